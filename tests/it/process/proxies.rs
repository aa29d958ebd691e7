//! The documented nginx and Caddy in front of the real gateway: receipts and states are as without them, and what
//! they change on the way is what the documentation says.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::verify;
use crate::support::gateway::{Folder, Gateway, Guarded, PATIENCE, command, until};
use crate::support::link::{Answer, Link};
use crate::support::tls::{Authority, TlsLink, files};
use crate::support::tracker::{Tracker, records};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Nginx,
    /// The same file with `proxy_request_buffering off`.
    NginxUnbuffered,
    Caddy,
}

/// A running proxy in front of some address. Dropped, it is killed.
struct Proxy {
    _child: Guarded,
    address: SocketAddr,
    authority: Option<Authority>,
    _folder: TempDir,
}

/// Replaces what must be there: a file that changed is noticed.
fn put(text: &str, what: &str, by: &str) -> String {
    assert!(text.contains(what), "{what:?} is not in the documented file");
    text.replace(what, by)
}

fn documented(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/proxies").join(file);
    std::fs::read_to_string(path).expect("a documented file")
}

impl Proxy {
    fn start(kind: Kind, upstream: SocketAddr) -> Self {
        // A port that is free now may be taken a moment later: then another one.
        until("the proxy starts", || Self::try_start(kind, upstream))
    }

    fn try_start(kind: Kind, upstream: SocketAddr) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = free.local_addr().expect("an address");
        drop(free);
        let authority = (kind != Kind::Caddy).then(Authority::new);
        let mut child = match &authority {
            None => caddy(folder.path(), address, upstream),
            Some(authority) => nginx(kind, folder.path(), address, upstream, authority),
        };
        let listens = until("it listens or ends", || match TcpStream::connect(address) {
            Ok(_) => Some(true),
            Err(_) => child.has_ended().then_some(false),
        });
        listens.then_some(Self { _child: child, address, authority, _folder: folder })
    }

    fn connect(&self) -> Client {
        match &self.authority {
            Some(authority) => Client::Tls(Box::new(authority.connect(self.address))),
            None => Client::Plain(Link::new(self.address)),
        }
    }
}

fn nginx(
    kind: Kind,
    folder: &Path,
    address: SocketAddr,
    upstream: SocketAddr,
    authority: &Authority,
) -> Guarded {
    let pair = files(folder);
    authority.issue(&pair);
    let mut site = documented("nginx.conf");
    for (what, by) in [
        ("listen 443 ssl;", format!("listen {address} ssl;")),
        ("server 127.0.0.1:8080;", format!("server {upstream};")),
        ("/etc/ssl/certs/gateway.example.pem", pair.cert.display().to_string()),
        ("/etc/ssl/private/gateway.example.key", pair.key.display().to_string()),
    ] {
        site = put(&site, what, &by);
    }
    if kind == Kind::NginxUnbuffered {
        site = put(&site, "proxy_request_buffering on;", "proxy_request_buffering off;");
    }
    // What Debian's own nginx.conf has around such a file, as little of it as there must be.
    let temps = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temps = temps.map(|name| format!("{name}_temp_path {}/{name};", folder.display())).join("\n");
    let main = format!(
        "daemon off; master_process off; pid {0}/pid; error_log {0}/log;\nevents {{ worker_connections 1024; }}\n\
         http {{ access_log off;\n{temps}\ninclude {0}/site.conf; }}\n",
        folder.display()
    );
    std::fs::write(folder.join("site.conf"), site).expect("a file");
    std::fs::write(folder.join("nginx.conf"), main).expect("a file");
    let mut nginx = command("nginx", folder);
    nginx.arg("-p").arg(folder).arg("-c").arg(folder.join("nginx.conf")).arg("-e").arg(folder.join("log"));
    Guarded::spawn(nginx.stdout(Stdio::null()).stderr(Stdio::null()))
}

fn caddy(folder: &Path, address: SocketAddr, upstream: SocketAddr) -> Guarded {
    let mut site = documented("Caddyfile");
    for (what, by) in [
        ("\ngateway.example {", format!("\nhttp://gateway.example:{} {{\n\tbind 127.0.0.1", address.port())),
        ("reverse_proxy 127.0.0.1:8080 {", format!("reverse_proxy {upstream} {{")),
        ("\n{\n", "\n{\n\tadmin off\n".to_owned()),
    ] {
        site = put(&site, what, &by);
    }
    let file = folder.join("Caddyfile");
    std::fs::write(&file, site).expect("a file");
    let mut caddy = command("caddy", folder);
    caddy.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
    caddy.env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
    Guarded::spawn(caddy.stdout(Stdio::null()).stderr(Stdio::null()))
}

enum Client {
    Plain(Link),
    Tls(Box<TlsLink>),
}

impl Client {
    fn send(&mut self, bytes: &[u8]) {
        match self {
            Self::Plain(link) => link.send(bytes).expect("sent"),
            Self::Tls(link) => link.send(bytes),
        }
    }

    fn answer(&mut self) -> Answer {
        let answer = match self {
            Self::Plain(link) => link.answer(),
            Self::Tls(link) => link.answer(),
        };
        answer.expect("an answer")
    }
}

/// How a body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Whole,
    Chunked,
    /// In pieces, with pauses.
    Slow,
}

/// Uploads over a connection of its own.
fn upload(client: &mut Client, tracker: &Tracker, body: &[u8], more: &str, way: Way) -> Answer {
    let framing = match way {
        Way::Chunked => "Transfer-Encoding: chunked".to_owned(),
        _ => format!("Content-Length: {}", body.len()),
    };
    let head = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: gateway.example\r\nX-Device-Id: {}\r\nX-Signature: sha256={}\r\n{more}{framing}\r\n\r\n",
        tracker.id,
        tracker.sign(body)
    );
    match way {
        Way::Whole => client.send(&[head.as_bytes(), body].concat()),
        Way::Chunked => {
            client.send(head.as_bytes());
            for chunk in body.chunks(100) {
                client.send(&[format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
            }
            client.send(b"0\r\n\r\n");
        }
        Way::Slow => {
            client.send(head.as_bytes());
            for piece in body.chunks(body.len() / 8 + 1) {
                std::thread::sleep(Duration::from_millis(100));
                client.send(piece);
            }
        }
    }
    client.answer()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(body).and_then(|()| encoder.finish()).expect("memory")
}

/// Bodies of a tracker, each with further header lines and a way to send it.
fn uploads(tracker: &Tracker) -> Vec<(Vec<u8>, &'static str, Way)> {
    let body =
        |id: &str, from: u64, to: u64| tracker.body(id, None, &records(from, to)).to_string().into_bytes();
    let text = "Content-Type: text/plain\r\nContent-Encoding: br\r\n";
    vec![
        (body("a", 1, 5), "", Way::Whole),
        (body("a", 1, 5), "", Way::Whole),
        // The headers lie, and the bytes decide.
        (gzip(&body("b", 6, 9)), text, Way::Whole),
        (body("c", 10, 20), "Content-Encoding: gzip\r\n", Way::Whole),
        (body("d", 21, 40), "", Way::Chunked),
        (gzip(&body("e", 41, 50)), "Content-Encoding: identity\r\n", Way::Chunked),
        (body("f", 51, 60), "", Way::Slow),
        (body("g", 61, 6500), "", Way::Whole),
        (body("h", 6501, 6501), "Prefer: return=minimal\r\n", Way::Whole),
        (b"rubbish".to_vec(), "", Way::Whole),
        (Vec::new(), "", Way::Whole),
    ]
}

/// A state without what differs between any two devices.
fn comparable(mut state: Value) -> Value {
    let times =
        ["device_id", "revision", "last_contact_at", "received_at", "position_received_at", "quarantined"];
    for field in times {
        if let Some(fields) = state.as_object_mut() {
            fields.remove(field);
        }
    }
    state
}

#[test]
fn receipts_and_states_are_as_without_a_proxy() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let direct = Tracker::new("direct");
    let expected: Vec<_> = uploads(&direct)
        .into_iter()
        .map(|(body, more, way)| upload(&mut Client::Plain(gateway.link()), &direct, &body, more, way))
        .collect();
    assert!(expected.iter().all(|answer| matches!(answer.status, 200 | 202)), "{expected:?}");
    for kind in [Kind::Nginx, Kind::NginxUnbuffered, Kind::Caddy] {
        let proxy = Proxy::start(kind, gateway.address);
        // As long as the other's id, so that bodies are of one length.
        let tracker = Tracker::new(&format!("{kind:?}").to_lowercase());
        let mut client = proxy.connect();
        for ((body, more, way), expected) in uploads(&tracker).into_iter().zip(&expected) {
            let answer = upload(&mut client, &tracker, &body, more, way);
            assert_eq!(
                (answer.status, &answer.body),
                (expected.status, &expected.body),
                "{kind:?}: {answer:?}"
            );
        }
        let state = |id: &str| comparable(gateway.link().state(id));
        assert_eq!(state(tracker.id.as_str()), state("direct"), "{kind:?}");
        let track = |id: &str| gateway.link().track(id).into_iter().map(comparable).collect::<Vec<_>>();
        assert!(track(tracker.id.as_str()) == track("direct"), "{kind:?}: the tracks differ");

        let forged = tracker.body("i", None, &records(7000, 7000)).to_string();
        let answer =
            upload(&mut proxy.connect(), &direct, forged.as_bytes(), "X-Signature: x\r\n", Way::Whole);
        assert_eq!(answer.status, 202, "{kind:?}: signed by another device: {answer:?}");
        for more in ["X-Device-Id: nobody\r\n", "X-Device-Id: a/b\r\n"] {
            let answer = upload(&mut proxy.connect(), &tracker, forged.as_bytes(), more, Way::Whole);
            assert_eq!(answer.status, 401, "{kind:?}: {answer:?}");
        }
        let large = vec![b' '; (1 << 20) + 1];
        assert_eq!(upload(&mut proxy.connect(), &tracker, &large, "", Way::Whole).status, 413, "{kind:?}");
    }
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));
    verify(&folder);
}

/// A request whose names are in every case, with what proxies like to touch.
const SENT: &str = "\
POST /v1/batches HTTP/1.1
host: gateway.example
x-device-id: track-exp-084
X-SIGNATURE: sha256=00
Content-Encoding: br
Prefer: return=minimal
User-Agent: tracker/1.0
Transfer-Encoding: chunked
";

/// Stands in for the gateway: takes one request, and tells its header.
fn capture(listener: &TcpListener) -> String {
    listener.set_nonblocking(true).expect("an option");
    let (stream, _) = until("the proxy connects", || listener.accept().ok());
    stream.set_nonblocking(false).expect("an option");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert_ne!(stream.read_line(&mut head).expect("a line"), 0, "{head}");
    }
    stream
        .get_mut()
        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        .expect("sent");
    head
}

/// A header without what changes from run to run.
fn stable(head: &str) -> String {
    let line = |line: &str| match line.split_once(": ") {
        Some(("Date", _)) => "Date: …\n".to_owned(),
        _ => format!("{line}\n"),
    };
    head.trim_end().lines().map(line).collect()
}

/// The blocks of the documentation that are marked so.
fn documented_block(mark: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/proxies.md");
    let text = std::fs::read_to_string(path).expect("the documentation");
    let marked = text.split_once(&format!("<!-- tested: {mark} -->\n```\n"));
    let (_, block) = marked.unwrap_or_else(|| panic!("no block {mark}"));
    block.split_once("```").expect("it ends").0.to_owned()
}

#[test]
fn what_they_change_is_documented() {
    assert_eq!(documented_block("sent"), SENT);
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    for (kind, name) in [(Kind::Nginx, "nginx"), (Kind::Caddy, "caddy")] {
        let upstream = TcpListener::bind("127.0.0.1:0").expect("a port");
        let proxy = Proxy::start(kind, upstream.local_addr().expect("an address"));
        let mut client = proxy.connect();
        client.send(SENT.replace('\n', "\r\n").as_bytes());
        client.send(b"\r\n4\r\nbody\r\n0\r\n\r\n");
        assert_eq!(stable(&capture(&upstream)), documented_block(&format!("{name} request")));
        drop(client);

        let proxy = Proxy::start(kind, gateway.address);
        let tracker = Tracker::new(name);
        for (seq, more, answers) in [(1, "", "answer"), (2, "Prefer: return=minimal\r\n", "minimal")] {
            let body = tracker.body(&seq.to_string(), None, &json!([{"seq": seq}])).to_string();
            let answer = upload(&mut proxy.connect(), &tracker, body.as_bytes(), more, Way::Whole);
            assert_eq!(stable(&answer.head), documented_block(&format!("{name} {answers}")));
        }
    }
}
