//! Uploads byte by byte over blocking sockets: on the loopback a few bytes never block, so one thread holds
//! thousands of them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use tidegate::domain::signature::{FleetKey, SIGNATURE_LEN, sign};
use tidegate::fleet::{Tracker, spell};

use crate::Outcome;
use crate::support::FLEET_KEY;

/// Records of each batch.
const BATCH_RECORDS: usize = 20;
/// An answer that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);
/// Largest answer expected.
const ANSWER_BYTES_MAX: usize = 4096;
/// The seed of all trackers.
const SEED: u64 = 3;
/// Trackers of quick uploads are numbered from here.
const QUICK: u32 = 1_000_000;

pub(crate) trait Connection: Read + Write + Send {}
impl<T: Read + Write + Send> Connection for T {}

/// How to reach the gateway.
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    /// `None`: plain HTTP.
    pub(crate) tls: Option<Arc<ClientConfig>>,
}

impl Client {
    pub(crate) fn connect(&self) -> Outcome<Box<dyn Connection>> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let Some(config) = &self.tls else { return Ok(Box::new(stream)) };
        let name = ServerName::IpAddress(self.address.ip().into());
        let mut session = ClientConnection::new(Arc::clone(config), name)?;
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Box::new(StreamOwned::new(session, stream)))
    }
}

/// A device that makes signed batches.
struct Device {
    tracker: Tracker,
    key: [u8; SIGNATURE_LEN],
}

impl Device {
    fn new(number: u32) -> Self {
        let tracker = Tracker::new(SEED, number);
        let key = FleetKey::new(FLEET_KEY.as_bytes()).derive(tracker.device_id());
        Self { tracker, key }
    }

    /// The next upload, head and body.
    fn request(&mut self) -> (String, String) {
        let batch = self.tracker.next_batch(BATCH_RECORDS);
        let body = spell(&batch);
        let head = format!(
            "POST /v1/batches HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\nUser-Agent: tracker/1.0\r\nX-Device-Id: {}\r\n\
             X-Signature: sha256={}\r\nContent-Length: {}\r\n\r\n",
            batch.device_id,
            sign(&self.key, body.as_bytes()),
            body.len()
        );
        (head, body)
    }
}

/// An upload that takes its time.
pub(crate) struct Slow {
    connection: Box<dyn Connection>,
    body: String,
    sent: usize,
}

impl Slow {
    /// Connects and sends the header.
    pub(crate) fn begin(client: &Client, number: u32) -> Outcome<Self> {
        let (head, body) = Device::new(number).request();
        let mut connection = client.connect()?;
        connection.write_all(head.as_bytes())?;
        Ok(Self { connection, body, sent: 0 })
    }

    /// Sends so many more bytes, and never the last one.
    pub(crate) fn send(&mut self, bytes: usize) -> Outcome<()> {
        let until = (self.sent + bytes).min(self.body.len() - 1);
        self.connection.write_all(&self.body.as_bytes()[self.sent..until])?;
        self.sent = until;
        Ok(())
    }

    pub(crate) fn sent_of_body(&self) -> u32 {
        u32::try_from(self.sent).unwrap_or(u32::MAX)
    }

    /// Sends what is left.
    pub(crate) fn finish(&mut self) -> Outcome<()> {
        Ok(self.connection.write_all(&self.body.as_bytes()[self.sent..])?)
    }

    /// Fails unless the whole batch was stored.
    pub(crate) fn expect_stored(&mut self) -> Outcome<()> {
        expect_stored(self.connection.as_mut())
    }
}

/// A connection of quick uploads.
pub(crate) struct Quick {
    connection: Box<dyn Connection>,
    device: Device,
}

impl Quick {
    pub(crate) fn connect(client: &Client, number: u32) -> Outcome<Self> {
        Ok(Self { connection: client.connect()?, device: Device::new(QUICK + number) })
    }

    /// Uploads one batch; how long its answer took.
    pub(crate) fn upload(&mut self) -> Outcome<Duration> {
        let (head, body) = self.device.request();
        let begun = Instant::now();
        self.connection.write_all((head + &body).as_bytes())?;
        expect_stored(self.connection.as_mut())?;
        Ok(begun.elapsed())
    }
}

fn expect_stored(connection: &mut dyn Connection) -> Outcome<()> {
    let mut answer = Vec::new();
    let mut piece = [0; 1024];
    let whole = |answer: &[u8]| answer.ends_with(b"}") && answer.windows(4).any(|four| four == b"\r\n\r\n");
    while !whole(&answer) && answer.len() < ANSWER_BYTES_MAX {
        match connection.read(&mut piece)? {
            0 => break,
            read => answer.extend_from_slice(&piece[..read]),
        }
    }
    let text = String::from_utf8_lossy(&answer);
    let accepted = format!("\"accepted\":{BATCH_RECORDS},");
    let stored = text.starts_with("HTTP/1.1 200 ") && text.contains(&accepted);
    if stored { Ok(()) } else { Err(format!("unexpected answer: {text}").into()) }
}
