//! `fixtures/cases/encodings.json`: cases whose bodies are bytes. Here stands how each was made; the file is for
//! whoever runs them against another gateway. `make schema` writes it anew.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciborium::Value as Cbor;
use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use serde_json::{Value, json};
use tidegate::fleet::Encoding;

const GZIP: &str = "RFC 1952, section 2.2";
const ZLIB: &str = "RFC 1950, section 2.2";
const ZSTD: &str = "RFC 8878, section 3.1";
const CBOR: &str = "RFC 8949, section 3";
const CBOR_AS_JSON: &str = "RFC 8949, section 6.1";
const BOMB: &str = "RFC 8878, section 7.2; CWE-409";
const HEADERS: &str = "RFC 9110, section 8.4: a proxy may code and decode";

/// A batch of one device with two records.
fn batch(device_id: &str, batch_id: &str) -> String {
    format!(
        r#"{{"device_id":"{device_id}","batch_id":"{batch_id}","records":[{{"seq":1,"recorded_at":"2026-03-31T04:12:00Z","lat":21.3069,"lon":-157.8583,"battery":3.82}},{{"seq":2,"recorded_at":"2026-03-31T04:13:00Z","lat":21.3,"lon":-157.9,"battery":3.81}}]}}"#
    )
}

fn encode(form: &str, json: &str) -> Vec<u8> {
    form.parse::<Encoding>().expect("a form").encode(json.as_bytes()).expect("encodes")
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

fn text(text: &str) -> Cbor {
    Cbor::Text(text.to_owned())
}

fn map(members: Vec<(&str, Cbor)>) -> Cbor {
    Cbor::Map(members.into_iter().map(|(key, value)| (text(key), value)).collect())
}

fn bytes_of(value: &Cbor) -> Vec<u8> {
    let mut bytes = Vec::new();
    ciborium::into_writer(value, &mut bytes).expect("memory");
    bytes
}

/// A batch in CBOR with these records.
fn cbor_batch(device_id: &str, batch_id: Cbor, records: Vec<Cbor>) -> Vec<u8> {
    let records = Cbor::Array(records);
    bytes_of(&map(vec![("device_id", text(device_id)), ("batch_id", batch_id), ("records", records)]))
}

fn cbor_record(seq: u64, more: Vec<(&str, Cbor)>) -> Cbor {
    map([vec![("seq", Cbor::from(seq))], more].concat())
}

/// A zstd frame of `blocks` blocks of 128 KiB, each one byte repeated: four bytes on the wire.
fn zstd_bomb(blocks: usize) -> Vec<u8> {
    let block = u32::to_le_bytes((128 << 10) << 3 | 1 << 1);
    let block = [block[0], block[1], block[2], b' '];
    let last = [block[0] | 1, block[1], block[2], b' '];
    [&b"\x28\xb5\x2f\xfd\x00\x58"[..], &block.repeat(blocks - 1), &last].concat()
}

/// A step: these bytes, signed by this device, and what must come of them.
fn step(device_id: &str, body: impl AsRef<[u8]>, status: u16, expected: &Value) -> Value {
    json!({
        "raw_b64": STANDARD.encode(body),
        "as": device_id,
        "expect": {"status": status, "body": expected},
    })
}

fn with_headers(mut step: Value, headers: Value) -> Value {
    step["headers"] = headers;
    step
}

fn accepted(device_id: &str, body: impl AsRef<[u8]>, records: u64) -> Value {
    step(device_id, body, 200, &json!({"status": "processed", "accepted": records}))
}

fn duplicate(device_id: &str, body: impl AsRef<[u8]>) -> Value {
    step(device_id, body, 200, &json!({"status": "duplicate"}))
}

fn quarantined(device_id: &str, body: impl AsRef<[u8]>, reason: &str) -> Value {
    step(device_id, body, 202, &json!({"status": "quarantined", "reason": reason}))
}

fn case(name: &str, source: &str, steps: impl Into<Value>) -> Value {
    json!({"name": name, "source": source, "steps": steps.into()})
}

fn headers_lie() -> Vec<Value> {
    let steps = |id: &str, form: &str, headers: Value| {
        vec![with_headers(accepted(id, encode(form, &batch(id, "b")), 2), headers)]
    };
    vec![
        case("gzip that no header names", HEADERS, steps("e-h1", "gzip", json!({"Content-Type": null}))),
        case(
            "JSON that is said to be gzip",
            HEADERS,
            steps("e-h2", "json", json!({"Content-Encoding": "gzip"})),
        ),
        case(
            "CBOR that is said to be JSON in gzip",
            HEADERS,
            steps("e-h3", "cbor", json!({"Content-Type": "application/json", "Content-Encoding": "gzip"})),
        ),
        case(
            "zlib that is said to be gzip",
            HEADERS,
            steps("e-h4", "zlib", json!({"Content-Encoding": "gzip"})),
        ),
        case(
            "zstd under a coding that nobody knows",
            HEADERS,
            steps(
                "e-h5",
                "cbor+zstd",
                json!({"Content-Type": "text/plain", "Content-Encoding": "x-unknown, br"}),
            ),
        ),
    ]
}

fn gzip_cases() -> Vec<Value> {
    let whole = |id: &str| encode("gzip", &batch(id, "b"));
    let (damaged, broken) = ("e-g3", "e-g4");
    let mut bad_sum = whole(damaged);
    let at = bad_sum.len() - 8;
    bad_sum[at] ^= 1;
    let halves = batch("e-g1", "b");
    let (one, other) = halves.split_at(60);
    vec![
        case(
            "gzip of two members",
            GZIP,
            vec![accepted("e-g1", [gzip(one.as_bytes()), gzip(other.as_bytes())].concat(), 2)],
        ),
        case(
            "gzip with NUL behind",
            GZIP,
            vec![accepted("e-g2", [&whole("e-g2")[..], b"\0\0\0"].concat(), 2)],
        ),
        case(
            "gzip with a wrong checksum, then whole",
            GZIP,
            vec![quarantined(damaged, bad_sum, "encoding_invalid"), accepted(damaged, whole(damaged), 2)],
        ),
        case(
            "gzip that breaks off, then whole",
            GZIP,
            vec![
                quarantined(broken, &whole(broken)[..80], "encoding_invalid"),
                quarantined(broken, &whole(broken)[..whole(broken).len() - 1], "encoding_invalid"),
                accepted(broken, whole(broken), 2),
            ],
        ),
        case(
            "gzip with rubbish behind",
            GZIP,
            vec![quarantined("e-g5", [&whole("e-g5")[..], b"{}"].concat(), "encoding_invalid")],
        ),
        case(
            "gzip around what is no JSON",
            GZIP,
            vec![
                quarantined("e-g6", gzip(b"not json"), "invalid_json"),
                quarantined("e-g6", gzip(b""), "invalid_json"),
            ],
        ),
        case(
            "compression in compression",
            GZIP,
            vec![
                quarantined("e-g7", gzip(&whole("e-g7")), "unsupported_encoding"),
                quarantined("e-g7", gzip(&encode("cbor+zstd", &batch("e-g7", "b"))), "unsupported_encoding"),
            ],
        ),
    ]
}

fn zlib_and_zstd_cases() -> Vec<Value> {
    // A window of 512 bytes, as a microcontroller sends it: only the header differs.
    let short = r#"{"device_id":"e-z1","batch_id":"b","records":[{"seq":1}]}"#;
    let small_window = [b"\x18\x95", &encode("zlib", short)[2..]].concat();
    let mut raw = DeflateEncoder::new(Vec::new(), Compression::best());
    raw.write_all(batch("e-z3", "b").as_bytes()).expect("memory");
    let raw = raw.finish().expect("memory");
    let skipped = b"\x50\x2a\x4d\x18\x04\0\0\0skip";
    let zstd = encode("zstd", &batch("e-z4", "b"));
    let frames = batch("e-z5", "b");
    let (one, other) = frames.split_at(100);
    vec![
        case("zlib with a small window", ZLIB, vec![accepted("e-z1", small_window, 1)]),
        case(
            "zlib with rubbish behind",
            ZLIB,
            vec![quarantined(
                "e-z2",
                [&encode("zlib", &batch("e-z2", "b"))[..], b"x"].concat(),
                "encoding_invalid",
            )],
        ),
        case(
            "raw deflate, which nothing tells from rubbish",
            "RFC 9110, section 8.4.1.2",
            vec![step("e-z3", raw, 202, &json!({"status": "quarantined"}))],
        ),
        case(
            "zstd behind a frame to be skipped",
            ZSTD,
            vec![accepted("e-z4", [skipped, &zstd[..]].concat(), 2)],
        ),
        case(
            "zstd of two frames",
            ZSTD,
            vec![accepted("e-z5", [encode("zstd", one), encode("zstd", other)].concat(), 2)],
        ),
        case(
            "zstd with a dictionary",
            ZSTD,
            vec![quarantined("e-z6", b"\x28\xb5\x2f\xfd\x01\x58\x07\x01\0\0", "unsupported_encoding")],
        ),
    ]
}

fn bombs() -> Vec<Value> {
    let spaces = [batch("e-b1", "b").as_bytes(), &vec![b' '; 17 << 20]].concat();
    let one = |id: &str, body: Vec<u8>| vec![quarantined(id, body, "decoded_too_large")];
    let nested = bytes_of(&map(vec![("device_id", text("e-b4")), ("x", Cbor::Null)]));
    let deep = [&nested[..nested.len() - 1], &vec![0x81; 100_000], b"\0"].concat();
    vec![
        case("a gzip bomb that begins as a batch", BOMB, one("e-b1", gzip(&spaces))),
        case("a zstd bomb of 128 MiB in 4 KB", BOMB, one("e-b2", zstd_bomb(1000))),
        case(
            "a CBOR bomb in gzip: single bytes that are null in JSON",
            BOMB,
            one("e-b3", gzip(&[&b"\xa1\x61x\x9f"[..], &vec![0xf7; 15 << 20], b"\xff"].concat())),
        ),
        case(
            "CBOR nested 100,000 levels deep",
            BOMB,
            vec![quarantined("e-b4", gzip(&deep), "encoding_invalid")],
        ),
        case(
            "CBOR that announces more than memory",
            BOMB,
            vec![
                quarantined("e-b5", b"\xa1\x61x\x5b\x7f\xff\xff\xff\xff\xff\xff\xff", "encoding_invalid"),
                quarantined("e-b5", b"\xbb\xff\xff\xff\xff\xff\xff\xff\xff", "encoding_invalid"),
            ],
        ),
    ]
}

fn cbor_cases() -> Vec<Value> {
    let fix = |lat: Cbor| vec![("lat", lat), ("lon", Cbor::Float(-157.5))];
    let twice = bytes_of(&map(vec![
        ("device_id", text("e-c1")),
        ("batch_id", text("b")),
        ("records", Cbor::Array(vec![])),
        ("records", Cbor::Array(vec![])),
    ]));
    let one_bad = |id: &str, bad: Cbor| {
        let good = cbor_record(2, fix(Cbor::Float(21.25)));
        let counts = json!({"status": "processed", "accepted": 1, "quarantined": 1, "last_seq": 2});
        vec![step(id, cbor_batch(id, text("b"), vec![bad, good]), 200, &counts)]
    };
    let whole = |id: &str| encode("cbor", &batch(id, "b"));
    vec![
        case("a CBOR key twice at the top", CBOR, vec![quarantined("e-c1", twice, "duplicate_key")]),
        case(
            "a CBOR key twice in a record",
            CBOR,
            one_bad("e-c2", cbor_record(1, vec![("seq", Cbor::from(1))])),
        ),
        case("a latitude that is NaN", CBOR_AS_JSON, one_bad("e-c3", cbor_record(1, fix(Cbor::Float(f64::NAN))))),
        case(
            "both NaN are no way to say that there is no fix",
            CBOR_AS_JSON,
            one_bad(
                "e-c4",
                cbor_record(1, vec![("lat", Cbor::Float(f64::NAN)), ("lon", Cbor::Float(f64::NAN))]),
            ),
        ),
        case(
            "a battery that is NaN",
            CBOR_AS_JSON,
            vec![
                accepted("e-c5", cbor_batch("e-c5", text("b"), vec![cbor_record(1, vec![("battery", Cbor::Float(f64::NAN))])]), 1),
                json!({"state": "e-c5", "expect": {"last_seq": 1, "battery": null}}),
            ],
        ),
        case(
            "CBOR of no stated lengths",
            CBOR,
            vec![
                accepted("e-c6", b"\xbf\x69device_id\x7f\x62e-\x62c6\xff\x68batch_id\x61b\x67records\x9f\xbf\x63seq\x18\x2a\x63lat\x15\x63lon\xf9\xc9\x00\xff\xff\xff", 1),
                json!({"state": "e-c6", "expect": {"last_seq": 42, "lat": 21, "lon": -10}}),
            ],
        ),
        case("CBOR that breaks off", CBOR, vec![quarantined("e-c7", &whole("e-c7")[..100], "encoding_invalid")]),
        case(
            "CBOR with rubbish behind, then with NUL",
            CBOR,
            vec![
                quarantined("e-c8", [&whole("e-c8")[..], b"\xa0"].concat(), "encoding_invalid"),
                accepted("e-c8", [&whole("e-c8")[..], b"\0\0"].concat(), 2),
            ],
        ),
        case(
            "a coordinate in single precision",
            CBOR,
            vec![
                accepted("e-c9", b"\xa3\x69device_id\x64e-c9\x68batch_id\x61b\x67records\x81\xa3\x63seq\x01\x63lat\xfa\x41\xaa\x74\x88\x63lon\x18\x20", 1),
                json!({"state": "e-c9", "expect": {"lat": 21.306_900_024_414_062, "lon": 32}}),
            ],
        ),
    ]
}

fn one_batch_in_several_forms() -> Vec<Value> {
    let id = "b9f2c8d4-53c1-4828-98e6-71d3df85223a";
    let uuid = Cbor::Bytes(b"\xb9\xf2\xc8\xd4\x53\xc1\x48\x28\x98\xe6\x71\xd3\xdf\x85\x22\x3a".to_vec());
    let again = |form: &str| duplicate("e-f1", encode(form, &batch("e-f1", "b")));
    let forms = ["gzip", "zlib", "zstd", "cbor", "cbor+gzip", "cbor+zlib", "cbor+zstd"];
    let steps: Vec<Value> =
        [accepted("e-f1", batch("e-f1", "b"), 2)].into_iter().chain(forms.map(again)).collect();
    let named = format!(r#"{{"device_id":"e-f2","batch_id":"{id}","records":[{{"seq":1}}]}}"#);
    let other = r#"{"device_id":"e-f3","batch_id":"c","records":[{"seq":1,"lat":1.5,"lon":2.50},{"seq":2}]}"#;
    let same = vec![
        cbor_record(1, vec![("lat", Cbor::Float(1.5)), ("lon", Cbor::Float(2.5))]),
        cbor_record(2, vec![]),
    ];
    let repeated = json!({"status": "processed", "accepted": 0, "repeated": 2, "applied": false});
    vec![
        case("the same batch in every form is one batch", HEADERS, steps),
        case(
            "a batch id of 16 bytes is that UUID",
            "RFC 9562, section 4; IANA CBOR tag 37",
            vec![
                accepted("e-f2", named, 1),
                duplicate("e-f2", cbor_batch("e-f2", uuid.clone(), vec![cbor_record(1, vec![])])),
                duplicate(
                    "e-f2",
                    cbor_batch("e-f2", Cbor::Tag(37, Box::new(uuid)), vec![cbor_record(1, vec![])]),
                ),
            ],
        ),
        case(
            "known records come again as CBOR under another batch id",
            CBOR,
            vec![
                accepted("e-f3", other, 2),
                step("e-f3", cbor_batch("e-f3", text("d"), same), 200, &repeated),
            ],
        ),
    ]
}

/// One case a line, so that a change shows what it changes.
fn file() -> String {
    let cases = [
        headers_lie(),
        gzip_cases(),
        zlib_and_zstd_cases(),
        bombs(),
        cbor_cases(),
        one_batch_in_several_forms(),
    ];
    let lines: Vec<String> = cases.concat().iter().map(Value::to_string).collect();
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[test]
fn the_generated_cases_are_written_down() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the program")]
    let update = std::env::var("UPDATE_SCHEMA").is_ok();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/cases/encodings.json");
    if update {
        std::fs::write(path, file()).expect("written");
    }
    let golden = std::fs::read_to_string(path).expect("the fixture");
    assert!(golden == file(), "fixtures/cases/encodings.json is old: run make schema");
}
