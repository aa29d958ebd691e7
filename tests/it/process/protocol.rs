//! `docs/protocol.md`: its examples, vectors and lists are what the gateway does.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::path::Path;

use serde_json::Value;
use tidegate::domain::ids::DeviceId;
use tidegate::domain::reason::{NotApplied, Reason};
use tidegate::domain::signature::{FleetKey, parse_secret, sign, spell_key};
use tidegate::fleet::Encoding;
use tidegate::ops::config::SETTINGS;

use crate::support::gateway::{Folder, Gateway, PATIENCE, command, run, serve};

/// The fleet key of the examples.
const EXAMPLE_KEY: &str = "correct-horse-battery-staple";

fn document() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/protocol.md");
    std::fs::read_to_string(path).expect("it is there")
}

/// What stands behind a mark, up to the next empty line or, where it is fenced, the closing fence.
fn marked(mark: &str) -> String {
    let document = document();
    let (_, rest) = document.split_once(&format!("<!-- checked: {mark} -->\n")).expect("the mark");
    match rest.strip_prefix("```") {
        Some(fenced) => {
            let (_, block) = fenced.split_once('\n').expect("a block");
            block.split_once("```").expect("its end").0.to_owned()
        }
        None => rest.split_once("\n\n").expect("its end").0.to_owned(),
    }
}

/// A message of the document as it travels: CR LF in the head, no line end behind the body.
fn message(mark: &str) -> String {
    let block = marked(mark);
    let (head, body) = block.split_once("\n\n").expect("a head");
    format!("{}\r\n\r\n{}", head.replace('\n', "\r\n"), body.trim_end_matches('\n'))
}

/// Sends a request on a connection of its own: every byte that comes back.
fn exchange(gateway: &Gateway, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(gateway.address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("an option");
    stream.write_all(request).expect("sent");
    stream.shutdown(Shutdown::Write).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The same message with the date that came: its form is checked, its value is the day's.
fn dated(expected: &str, found: &str) -> String {
    let date = |text: &str| text.lines().find_map(|line| line.strip_prefix("Date: ").map(str::to_owned));
    match (date(expected), date(found)) {
        (Some(written), Some(came)) => {
            assert_eq!((written.len(), &written[25..]), (came.len(), " GMT"), "{came}");
            expected.replace(&written, &came)
        }
        _ => expected.to_owned(),
    }
}

#[test]
fn the_example_is_what_happens() {
    let folder = Folder::new();
    let gateway = Gateway::start_with(serve(&folder).env("TIDEGATE_FLEET_KEYS", EXAMPLE_KEY));
    let request = message("request");
    for mark in ["answer", "duplicate"] {
        let found = exchange(&gateway, request.as_bytes());
        assert_eq!(found, dated(&message(mark), &found), "{mark}");
    }
    let lean = request.replacen("\r\n", "\r\nPrefer: return=minimal\r\n", 1);
    assert_eq!(exchange(&gateway, lean.as_bytes()), message("minimal"));

    // In CBOR it is the same batch.
    let (_, json) = request.split_once("\r\n\r\n").expect("a body");
    let cbor = Encoding { cbor: true, compression: None }.encode(json.as_bytes()).expect("JSON");
    let hex: String = marked("cbor").split_whitespace().collect();
    let written: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex digits"))
        .collect();
    assert_eq!(written, cbor);
    let key = FleetKey::new(EXAMPLE_KEY.as_bytes()).derive(&device("track-exp-084"));
    let (head, _) = request.split_once("X-Signature").expect("a head");
    let head = format!("{head}X-Signature: {}\r\nContent-Length: {}\r\n\r\n", sign(&key, &cbor), cbor.len());
    let found = exchange(&gateway, &[head.as_bytes(), &cbor].concat());
    assert_eq!(found, dated(&message("duplicate"), &found));
}

fn device(id: &str) -> DeviceId {
    DeviceId::parse(id).expect("a device id")
}

#[test]
fn the_vectors_hold_and_are_those_of_the_fixture() {
    let block = marked("vectors");
    let vectors: Vec<_> = block.trim().split("\n\n").collect();
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/signatures/derived.json");
    let fixture: Value =
        serde_json::from_str(&std::fs::read_to_string(fixture).expect("a file")).expect("JSON");
    let cases = fixture["cases"].as_array().expect("cases");
    assert_eq!(vectors.len(), cases.len());
    for (vector, case) in vectors.iter().zip(cases) {
        let field = |name: &str| {
            vector.lines().find_map(|line| Some(line.strip_prefix(name)?.trim_start().to_owned()))
        };
        for (name, key) in [
            ("fleet key", "fleet_key"),
            ("device id", "device_id"),
            ("device key", "device_key"),
            ("body", "body"),
            ("signature", "signature"),
        ] {
            assert_eq!(field(name).as_deref(), case[key].as_str(), "{name} of {vector}");
        }
        let fleet_key = FleetKey::new(&parse_secret(&field("fleet key").expect("one")).expect("a key"));
        let key = fleet_key.derive(&device(&field("device id").expect("one")));
        assert_eq!(Some(spell_key(&key)), field("device key"));
        let signed = field("body").map(|body| sign(&key, body.as_bytes()));
        assert_eq!(signed, field("signature"));
    }
}

#[test]
fn the_openssl_lines_give_the_signature_of_the_vector() {
    let folder = Folder::new();
    let done = run(command("sh", folder.path()).args(["-eu", "-c", &marked("openssl")]));
    assert_eq!(done.code, Some(0), "{}", done.err);
    let (signature, _) = done.out.split_once(' ').expect("a digest and a name");
    assert!(marked("vectors").contains(&format!("signature   {signature}\n")), "{}", done.out);
}

#[test]
fn every_reason_is_named() {
    let document = document();
    let (_, answers) = document.split_once("\n## Answers\n").expect("the section");
    let (answers, _) = answers.split_once("\n## ").expect("its end");
    let codes = Reason::ALL.iter().map(|reason| reason.code());
    for code in codes.chain(NotApplied::ALL.iter().map(|reason| reason.code())) {
        assert!(answers.contains(&format!("`{code}`")), "{code}");
    }
}

#[test]
fn the_limits_are_the_defaults() {
    let table = marked("limits");
    let rows: Vec<Vec<&str>> =
        table.lines().skip(2).map(|row| row.split('|').map(str::trim).collect()).collect();
    assert!(rows.len() >= 6, "{table}");
    for row in rows {
        let name = row[3].trim_matches('`');
        let setting = SETTINGS.iter().find(|setting| setting.name == name).expect(name);
        assert_eq!(Some(row[2]), setting.default, "{name}");
    }
}
