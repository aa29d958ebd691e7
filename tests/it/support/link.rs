//! A client's connection to a gateway that may go away at any moment: every fault is a value.

use std::io::{self, BufRead, BufReader, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};

use serde_json::Value;

use super::gateway::{PATIENCE, TOKEN};
use super::tracker::Tracker;

/// One keep-alive connection, made anew after a fault.
pub(crate) struct Link {
    address: SocketAddr,
    stream: Option<BufReader<TcpStream>>,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// A header by its exact spelling.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|_| panic!("no JSON: {}", String::from_utf8_lossy(&self.body)))
    }

    /// That it says "not now": 503, with the seconds after which to come back.
    pub(crate) fn expect_not_now(&self) {
        assert_eq!(self.status, 503, "{self:?}");
        let seconds: u32 = self.header("Retry-After").and_then(|s| s.parse().ok()).expect("Retry-After");
        assert!(seconds > 0, "{self:?}");
    }
}

/// A signed upload.
pub(crate) fn request(tracker: &Tracker, body: &[u8]) -> Vec<u8> {
    let mut request = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: {}\r\nX-Signature: sha256={}\r\nContent-Length: {}\r\n\r\n",
        tracker.id,
        tracker.sign(body),
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    request
}

impl Link {
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self { address, stream: None }
    }

    fn stream(&mut self) -> io::Result<&mut BufReader<TcpStream>> {
        if self.stream.is_none() {
            let stream = TcpStream::connect(self.address)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            stream.set_nodelay(true)?;
            self.stream = Some(BufReader::new(stream));
        }
        self.stream.as_mut().ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Connects if it must, and writes.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream()?.get_mut().write_all(bytes)
    }

    /// Reads one answer.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        read_answer(self.stream()?)
    }

    /// Hangs up without reading.
    pub(crate) fn hang_up(&mut self) {
        self.stream = None;
    }

    /// Sends and reads; hangs up after any fault.
    pub(crate) fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        let exchanged = self.send(request).and_then(|()| self.answer());
        if exchanged.is_err() {
            self.hang_up();
        }
        exchanged
    }

    /// Uploads a body.
    pub(crate) fn upload(&mut self, tracker: &Tracker, body: &[u8]) -> io::Result<Answer> {
        self.exchange(&request(tracker, body))
    }

    /// Reads with the read token.
    pub(crate) fn get(&mut self, path: &str) -> Answer {
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n").into_bytes();
        self.exchange(&request).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// A device's state.
    pub(crate) fn state(&mut self, device_id: &str) -> Value {
        let answer = self.get(&format!("/v1/devices/{device_id}"));
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()
    }

    /// A device's whole track, record by record; empty where the device was never seen.
    pub(crate) fn track(&mut self, device_id: &str) -> Vec<Value> {
        let answer = self.get(&format!("/v1/devices/{device_id}/track?format=ndjson"));
        if answer.status == 404 {
            return Vec::new();
        }
        assert_eq!(answer.status, 200, "{answer:?}");
        serde_json::Deserializer::from_slice(&answer.body)
            .into_iter()
            .map(|line| line.expect("JSON"))
            .collect()
    }

    /// One number of `/metrics`.
    pub(crate) fn metric(&mut self, name: &str) -> f64 {
        let answer = self.get("/metrics");
        let text = String::from_utf8_lossy(&answer.body);
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
    }
}

fn read_line(stream: &mut impl BufRead, into: &mut String) -> io::Result<()> {
    match stream.read_line(into)? {
        0 => Err(ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Reads one answer from any kind of connection.
pub(super) fn read_answer(stream: &mut impl BufRead) -> io::Result<Answer> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        read_line(stream, &mut head)?;
    }
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or(ErrorKind::InvalidData)?;
    let mut answer = Answer { status, head, body: Vec::new() };
    if answer.header("Transfer-Encoding") == Some("chunked") {
        while read_chunk(stream, &mut answer.body)? {}
    } else if let Some(length) = answer.header("Content-Length") {
        answer.body = vec![0; length.parse().map_err(|_| ErrorKind::InvalidData)?];
        stream.read_exact(&mut answer.body)?;
    }
    Ok(answer)
}

/// Whether there is another chunk behind it.
fn read_chunk(stream: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<bool> {
    let mut line = String::new();
    read_line(stream, &mut line)?;
    let size = usize::from_str_radix(line.trim(), 16).map_err(|_| ErrorKind::InvalidData)?;
    let mut chunk = vec![0; size + 2];
    stream.read_exact(&mut chunk)?;
    body.extend_from_slice(&chunk[..size]);
    Ok(size > 0)
}
