//! A whole gateway over SQLite in a temporary folder, on a port of its own, and a client that speaks to it
//! byte by byte: what trackers see is part of the contract.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tidegate::app::{self, Reload};
use tidegate::domain::signature::FleetKey;
use tidegate::ops::clock::MockClock;
use tidegate::ops::config::{Config, HttpOptions};
use tidegate::ops::secrets::{Secret, Secrets};
use tidegate::ops::tls::TlsIdentity;
use tidegate::ops::tokens::{Role, Tokens};
use tidegate::store::{Store, StoreOptions, StoreUrl, open};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::support::at;
pub(crate) use crate::support::tracker::FLEET_KEY;
use crate::support::tracker::Tracker;

/// The read token of every test gateway.
pub(crate) const TOKEN: &str = "read-token-of-the-tests";

/// The admin token of every test gateway, as it is configured.
pub(crate) const NAMED_ADMIN_TOKEN: &str = "ops-desk:admin-token-of-the-tests";
const SEAL_KEY: &[u8] = b"a seal key for tests, not a secret";

/// A running gateway.
pub(crate) struct Gateway {
    runtime: Runtime,
    serving: JoinHandle<std::io::Result<()>>,
    stop: oneshot::Sender<()>,
    reloads: mpsc::Sender<Reload>,
    pub(crate) address: SocketAddr,
    pub(crate) clock: Arc<MockClock>,
    pub(crate) store: Arc<dyn Store>,
    folder: TempDir,
}

impl Gateway {
    /// Starts one as it is by default.
    pub(crate) fn start() -> Self {
        Self::start_with(|_| {})
    }

    /// Starts one with other HTTP options.
    pub(crate) fn start_with(change: impl FnOnce(&mut HttpOptions)) -> Self {
        Self::start_over(None, change)
    }

    /// Starts one that speaks TLS.
    pub(crate) fn start_over(tls: Option<TlsIdentity>, change: impl FnOnce(&mut HttpOptions)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut http = HttpOptions::default();
        change(&mut http);
        let config = config(folder.path(), http);
        let store = open::open(&config.store, &config.store_options).expect("a store");
        let clock = Arc::new(MockClock::new(at(0)));
        let secrets = secrets(FLEET_KEY, &[(Role::Read, TOKEN), (Role::Admin, NAMED_ADMIN_TOKEN)]);
        let secrets = Secrets { tls, ..secrets };
        let runtime = Runtime::new().expect("threads");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let (reloads, reloaded) = mpsc::channel(1);
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            let _ = stopped.await;
        };
        let (same_store, same_clock) = (Arc::clone(&store), Arc::clone(&clock));
        let running = app::run(config, secrets, same_store, listener, same_clock, reloaded, shutdown);
        let serving = runtime.spawn(running);
        Self { runtime, serving, stop, reloads, address, clock, store, folder }
    }

    /// Hands it other secrets, or the faults of some. It takes them soon, not at once.
    pub(crate) fn reload(&self, reload: Reload) {
        self.reloads.blocking_send(reload).expect("it is running");
    }

    /// Shuts it down, waits until it has ended, and gives its store back.
    pub(crate) fn stop(self) -> (Arc<dyn Store>, TempDir) {
        self.stop.send(()).expect("it is running");
        self.runtime.block_on(self.serving).expect("no panic").expect("served to the end");
        (self.store, self.folder)
    }

    /// A new connection.
    pub(crate) fn connect(&self) -> Client {
        Client::new(self.address)
    }

    /// Sends one request on a connection of its own.
    pub(crate) fn exchange(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.connect();
        client.send(request);
        client.answer()
    }

    /// Reads a path with the read token.
    pub(crate) fn get(&self, path: &str) -> Answer {
        self.exchange(format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"))
    }

    /// Uploads a body as a device does.
    pub(crate) fn upload(&self, device_id: &str, body: &str) -> Answer {
        self.exchange(upload(device_id, body, ""))
    }
}

/// Secrets with this fleet key and these tokens.
pub(crate) fn secrets(fleet_key: &[u8], tokens: &[(Role, &str)]) -> Secrets {
    let mut known = Tokens::default();
    for (role, text) in tokens {
        known.add(*role, text).expect("a token");
    }
    let seal_keys = vec![Secret::new(SEAL_KEY)];
    Secrets { fleet_keys: vec![FleetKey::new(fleet_key)], seal_keys, tokens: known, ..Secrets::default() }
}

fn config(folder: &Path, http: HttpOptions) -> Config {
    Config {
        listen: String::new(),
        tls: None,
        store: StoreUrl::Sqlite(folder.join("tidegate.db")),
        limits: tidegate::domain::batch::Limits::default(),
        store_options: StoreOptions::default(),
        writer: tidegate::store::writer::WriterOptions::default(),
        http,
    }
}

/// The signature of a body by a device.
pub(crate) fn signature(device_id: &str, body: &[u8]) -> String {
    Tracker::new(device_id).sign(body)
}

/// A signed upload, with further header lines, each ended.
pub(crate) fn upload(device_id: &str, body: &str, more: &str) -> String {
    format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: {device_id}\r\nX-Signature: sha256={}\r\n{more}Content-Length: {}\r\n\r\n{body}",
        signature(device_id, body.as_bytes()),
        body.len()
    )
}

/// A batch with records of these seqs.
pub(crate) fn batch(device_id: &str, batch_id: &str, epoch_id: Option<u64>, seqs: &[u64]) -> String {
    let records: Vec<_> = seqs
        .iter()
        .map(|seq| {
            format!(r#"{{"seq":{seq},"recorded_at":{},"lat":21.5,"lon":-157.25,"hdop":0.9}}"#, 1000 + seq)
        })
        .collect();
    let epoch = epoch_id.map_or_else(String::new, |epoch_id| format!(r#""epoch_id":{epoch_id},"#));
    format!(
        r#"{{"device_id":"{device_id}","batch_id":"{batch_id}",{epoch}"records":[{}]}}"#,
        records.join(",")
    )
}

/// One connection.
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    fn new(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("it listens");
        // Only so that a fault fails the test instead of hanging it.
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a socket option");
        Self { stream: BufReader::new(stream) }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.get_mut().write_all(bytes.as_ref()).expect("the gateway reads");
    }

    /// Sends what the gateway may refuse, and stop reading, before it has all of it.
    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.get_mut().write_all(bytes.as_ref());
    }

    pub(crate) fn end_sending(&mut self) {
        self.stream.get_mut().shutdown(Shutdown::Write).expect("an open socket");
    }

    /// Reads an answer's head alone.
    pub(crate) fn head(&mut self) -> Answer {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(self.stream.read_line(&mut head).expect("a line"), 0, "cut off in {head:?}");
        }
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).expect("a status");
        Answer { status, head, body: Vec::new() }
    }

    /// Reads one answer.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut answer = self.head();
        if matches!(answer.status, 100 | 204 | 304) {
            return answer;
        }
        if let Some(length) = answer.header("Content-Length") {
            answer.body = vec![0; length.parse().expect("a length")];
            self.stream.read_exact(&mut answer.body).expect("a whole body");
        } else if answer.header("Transfer-Encoding").is_some() {
            answer.body = self.chunks();
        } else {
            self.stream.read_to_end(&mut answer.body).expect("a body");
        }
        answer
    }

    /// Reads an answer if there is one: to a request that is no HTTP there need not be.
    pub(crate) fn any_answer(&mut self) -> Option<Answer> {
        let some = self.stream.fill_buf().is_ok_and(|bytes| !bytes.is_empty());
        some.then(|| self.answer())
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a chunk's size");
            let size = usize::from_str_radix(line.trim(), 16).expect("a chunk's size");
            let mut chunk = vec![0; size + 2];
            self.stream.read_exact(&mut chunk).expect("a whole chunk");
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Whether the gateway ended the connection, orderly or not, without another byte.
    pub(crate) fn is_over(&mut self) -> bool {
        let mut byte = [0];
        matches!(self.stream.read(&mut byte), Ok(0) | Err(_))
    }

    /// Whether it ended it orderly.
    pub(crate) fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        self.stream.read(&mut byte).expect("no reset") == 0
    }
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Status line and headers, byte by byte.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header by its exact spelling.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("UTF-8")
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }

    /// The stable code of a problem document.
    pub(crate) fn code(&self) -> String {
        assert_eq!(self.header("Content-Type"), Some("application/problem+json"), "{}", self.head);
        let json = self.json();
        assert_eq!(json["status"], self.status);
        json["code"].as_str().expect("a code").to_owned()
    }
}
