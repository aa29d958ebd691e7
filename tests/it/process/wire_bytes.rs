//! Bytes on the wire a record, measured at the socket against the real binary, as a table in `docs/protocol.md`.
//! `make schema` writes it anew; the test fails where it is old.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tidegate::domain::batch::Batch;
use tidegate::domain::ids::EpochId;
use tidegate::domain::signature::{FleetKey, hmac_sha256, sign};
use tidegate::fleet::{Encoding, Tracker, spell};

use crate::support::device;
use crate::support::gateway::{Folder, Gateway, PATIENCE};
use crate::support::tracker::FLEET_KEY;

const SEED: u64 = 1;
/// Records a batch.
const COUNTS: [usize; 3] = [1, 20, 100];
/// Batches of each size, each of another tracker: the digits of positions differ.
const BATCHES: u32 = 10;
const BEGIN: &str = "<!-- generated: bytes on the wire -->\n";
const END: &str = "<!-- end of generated -->\n";

/// How much is said around a body.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// The signature as unpadded base64url, an answer without a body.
    Lean,
    /// The signature as `sha256=` and hex, the whole receipt.
    Full,
    /// Lean, but with the whole receipt.
    LeanFullAnswer,
    /// Lean, but with the signature in hex.
    LeanHex,
}

impl Manner {
    fn head(self, device_id: &str, key: &[u8; 32], body: &[u8]) -> String {
        let signature = match self {
            Self::Lean | Self::LeanFullAnswer => URL_SAFE_NO_PAD.encode(hmac_sha256(key, body)),
            Self::Full | Self::LeanHex => format!("sha256={}", sign(key, body)),
        };
        let prefer = match self {
            Self::Lean | Self::LeanHex => "Prefer: return=minimal\r\n",
            Self::Full | Self::LeanFullAnswer => "",
        };
        format!(
            "POST /v1/batches HTTP/1.1\r\nHost: gateway.example\r\nX-Device-Id: {device_id}\r\nX-Signature: {signature}\r\n\
             {prefer}Content-Length: {}\r\n\r\n",
            body.len()
        )
    }
}

/// How a batch is written.
#[derive(Clone, Copy, Default)]
struct Shape {
    encoding: Encoding,
    /// Times as Unix seconds, instead of as text.
    unix: bool,
}

impl Shape {
    fn body(self, batch: &Batch) -> Vec<u8> {
        let mut json = spell(batch);
        for at in batch.records.iter().filter_map(|record| record.recorded_at).filter(|_| self.unix) {
            json = json.replacen(&format!("\"{at}\""), &(at.to_micros() / 1_000_000).to_string(), 1);
        }
        self.encoding.encode(json.as_bytes()).expect("JSON")
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.encoding.to_string().replace('+', " + "))?;
        f.write_str(if self.unix { ", Unix seconds" } else { "" })
    }
}

/// Bytes that went over the socket for one batch.
#[derive(Clone, Copy, Default)]
struct Passed {
    head: usize,
    body: usize,
    answer: usize,
}

impl Passed {
    fn all(self) -> usize {
        self.head + self.body + self.answer
    }
}

/// A keep-alive connection that counts, and uploads as devices that nobody has seen.
struct Meter {
    stream: TcpStream,
    devices: u32,
}

impl Meter {
    /// Uploads batch `index` of `count` records.
    fn upload(&mut self, shape: Shape, count: usize, index: u32, manner: Manner) -> Passed {
        let tracker = Tracker::new(SEED, index);
        let mut batch = tracker.in_epoch(EpochId::new(3).expect("in range")).next_batch(count);
        let id = format!("track-{:03}", self.devices);
        self.devices += 1;
        batch.device_id = device(&id);
        let key = FleetKey::new(FLEET_KEY).derive(&batch.device_id);
        let body = shape.body(&batch);
        let head = manner.head(&id, &key, &body);
        self.stream.write_all(&[head.as_bytes(), &body].concat()).expect("sent");
        let answer = self.answer();
        let text = String::from_utf8(answer.clone()).expect("text");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{shape}: {text}");
        let receipt = format!(r#"{{"status":"processed","accepted":{count},"applied":true,"#);
        let (_, content) = text.split_once("\r\n\r\n").expect("a head");
        let whole = matches!(manner, Manner::Full | Manner::LeanFullAnswer);
        assert!(if whole { content.starts_with(&receipt) } else { content.is_empty() }, "{shape}: {text}");
        Passed { head: head.len(), body: body.len(), answer: answer.len() }
    }

    /// Every byte of one answer.
    fn answer(&mut self) -> Vec<u8> {
        let mut answer = Vec::new();
        let mut piece = [0; 4096];
        loop {
            let read = self.stream.read(&mut piece).expect("an answer");
            assert_ne!(read, 0, "cut off: {}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..read]);
            let text = String::from_utf8_lossy(&answer);
            if let Some((head, content)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                if content.len() == length.expect("a length").parse::<usize>().expect("a number") {
                    return answer;
                }
            }
        }
    }
}

/// Bytes a record, with one decimal.
fn a_record(meter: &mut Meter, shape: Shape, count: usize, manner: Manner) -> String {
    let bytes: usize = (0..BATCHES).map(|index| meter.upload(shape, count, index, manner).all()).sum();
    let records = count * usize::try_from(BATCHES).expect("small");
    let tenths = (bytes * 10 + records / 2) / records;
    format!("{}.{}", tenths / 10, tenths % 10)
}

fn measure() -> String {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let stream = TcpStream::connect(gateway.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    let mut meter = Meter { stream, devices: 0 };
    let mut text =
        "\n| body | 1 record, full | lean | 20 records, full | lean | 100 records, full | lean |\n\
                    | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    let plain = Encoding::ALL.map(|encoding| Shape { encoding, unix: false });
    let unix = ["json", "zlib", "zstd", "cbor"]
        .map(|name| Shape { encoding: name.parse().expect("one"), unix: true });
    for shape in plain.into_iter().chain(unix) {
        // Writing to a String cannot fail.
        let _ = write!(text, "| {shape} |");
        for (count, manner) in COUNTS.iter().flat_map(|count| [(count, Manner::Full), (count, Manner::Lean)])
        {
            let _ = write!(text, " {} |", a_record(&mut meter, shape, *count, manner));
        }
        text.push('\n');
    }
    let passed = |meter: &mut Meter, manner| meter.upload(Shape::default(), 20, 0, manner);
    let [full, lean, hex, receipt] = [Manner::Full, Manner::Lean, Manner::LeanHex, Manner::LeanFullAnswer]
        .map(|manner| passed(&mut meter, manner));
    let _ = write!(
        text,
        "\n| around one body | bytes |\n| --- | ---: |\n\
         | request line and headers, lean | {} |\n\
         | of these: the line `Prefer: return=minimal` | {} |\n\
         | more with the signature as `sha256=` and hex | {} |\n\
         | answer without a body | {} |\n\
         | answer with the whole receipt | {} |\n\n",
        lean.head,
        lean.head - receipt.head,
        hex.head - lean.head,
        lean.answer,
        full.answer,
    );
    text
}

#[test]
fn the_generated_bytes_on_the_wire_are_written_down() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the program")]
    let update = std::env::var("UPDATE_SCHEMA").is_ok();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/protocol.md");
    let document = std::fs::read_to_string(&path).expect("the document");
    let (before, rest) = document.split_once(BEGIN).expect("where it begins");
    let (written, after) = rest.split_once(END).expect("where it ends");
    let measured = measure();
    if update {
        std::fs::write(&path, [before, BEGIN, &measured, END, after].concat()).expect("written");
        return;
    }
    assert_eq!(written, measured, "docs/protocol.md is old: run make schema");
}
