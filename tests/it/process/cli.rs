//! The other commands, with the exit codes that scripts go by.

use serde_json::{Value, json};

use super::{lock, open, store_url};
use crate::support::gateway::{Done, Folder, Gateway, run, serve, tidegate};
use crate::support::tracker::{FLEET_KEY, Tracker, records};
use tidegate::domain::signature::spell_secret;
use tidegate::fleet::Encoding;

#[test]
fn keys_derive_computes_the_vectors() {
    let folder = Folder::new();
    let vectors = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/signatures/derived.json");
    let vectors: Value =
        serde_json::from_str(&std::fs::read_to_string(vectors).expect("a file")).expect("JSON");
    let cases = vectors["cases"].as_array().expect("cases");
    assert!(!cases.is_empty());
    for case in cases {
        let text = |field: &str| case[field].as_str().expect("text");
        let mut derive = tidegate(folder.path(), &["keys", "derive", text("device_id")]);
        let done = run(derive.env("TIDEGATE_FLEET_KEYS", text("fleet_key")));
        let expected = Done { code: Some(0), out: format!("{}\n", text("device_key")), err: String::new() };
        assert_eq!(done, expected, "{case}");
    }
}

/// `tidegate send` of a body to a gateway.
fn send(folder: &Folder, url: &str, body: &str, more: &[&str]) -> Done {
    let file = folder.path().join("body");
    std::fs::write(&file, body).expect("a file");
    let arguments = [&["send", "--url", url, file.to_str().expect("text")], more].concat();
    run(tidegate(folder.path(), &arguments).env("TIDEGATE_FLEET_KEYS", spell_secret(FLEET_KEY)))
}

#[test]
fn send_tries_again_as_often_as_told() {
    let folder = Folder::new();
    let body = Tracker::new("t").body("a", None, &records(1, 1)).to_string();
    // Port 1 of this machine: nobody listens there.
    let done = send(&folder, "http://127.0.0.1:1", &body, &["--retry", "1"]);
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""), "{}", done.err);
    assert_eq!(done.err.matches("try 1 of 1").count(), 1, "{}", done.err);
    assert!(!done.err.contains("panicked"), "{}", done.err);
}

#[test]
fn send_exits_0_only_if_acknowledged() {
    let folder = Folder::new();
    let gateway = Gateway::start_with(serve(&folder).env("TIDEGATE_BUSY_TIMEOUT_S", "1"));
    let url = format!("http://{}", gateway.address);
    let tracker = Tracker::new("t");
    let body = tracker.body("a", None, &records(1, 3)).to_string();
    let receipt = |done: &Done| -> Value { serde_json::from_str(&done.out).expect("a receipt") };

    let done = send(&folder, &url, &body, &[]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert_eq!(receipt(&done)["accepted"], 3);
    let done = send(&folder, &url, &body, &[]);
    assert_eq!((done.code, receipt(&done)["status"].as_str()), (Some(0), Some("duplicate")));
    let done = send(&folder, &url, "rubbish", &["--device", "t"]);
    assert_eq!((done.code, receipt(&done)["status"].as_str()), (Some(0), Some("quarantined")), "202");

    let wrong_key = ["--fleet-key", "not the key of this fleet"];
    let done = send(&folder, &url, &body, &wrong_key);
    assert!(done.code == Some(1) && done.err.contains("401"), "{done:?}");
    let held = lock(&folder);
    let fresh = tracker.body("b", None, &records(4, 5)).to_string();
    let done = send(&folder, &url, &fresh, &[]);
    assert!(done.code == Some(1) && done.err.contains("503"), "{done:?}");
    drop(held);
    // A retry of the command itself outlasts what passes.
    let done = send(&folder, &url, &fresh, &["--retry", "3"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert_eq!(gateway.link().track("t").len(), 5);

    gateway.kill_nine();
    let done = send(&folder, &url, &fresh, &[]);
    assert!(done.code == Some(1) && done.err.contains("refused"), "{done:?}");
}

#[test]
fn verify_exits_1_and_names_the_device() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let mut link = gateway.link();
    for id in ["sound", "damaged"] {
        let tracker = Tracker::new(id);
        let body = tracker.body("a", None, &records(1, 3)).to_string();
        assert_eq!(link.upload(&tracker, body.as_bytes()).expect("an answer").status, 200);
    }
    let sql = "UPDATE device_current_state SET last_seq = 2 WHERE device_ref = \
               (SELECT device_ref FROM devices WHERE device_id = 'damaged')";
    assert_eq!(open(&folder).execute(sql, []), Ok(1));
    let done = run(&mut tidegate(folder.path(), &["verify", "--store", &store_url(&folder)]));
    assert_eq!((done.code, done.err.as_str()), (Some(1), ""), "{}", done.out);
    let lines: Vec<_> = done.out.lines().collect();
    assert_eq!(lines.len(), 2, "{}", done.out);
    assert!(lines[0].starts_with("device damaged: the state is "), "{}", lines[0]);
    assert!(
        lines[1].starts_with("checked 2 devices, ") && lines[1].ends_with(": 1 difference"),
        "{}",
        lines[1]
    );
}

#[test]
fn verify_of_nothing_fails() {
    let folder = Folder::new();
    let done = run(&mut tidegate(folder.path(), &["verify", "--store", &store_url(&folder)]));
    assert_eq!((done.code, done.out.as_str()), (Some(1), ""));
    assert!(done.err.starts_with("tidegate: there is no "), "{}", done.err);
    assert!(!folder.database().exists(), "nothing was made");
}

#[test]
fn send_encodes_and_leaves_alone_what_it_is_not_told_to() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let url = format!("http://{}", gateway.address);
    let tracker = Tracker::new("t");
    let body = tracker.body("a", None, &records(1, 3)).to_string();
    let receipt = |done: &Done| -> Value { serde_json::from_str(&done.out).expect("a receipt") };
    for (encoding, status) in [("cbor+zstd", "processed"), ("gzip", "duplicate"), ("json", "duplicate")] {
        let done = send(&folder, &url, &body, &["--encoding", encoding]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{encoding}");
        assert_eq!(receipt(&done)["status"], status, "{encoding}");
    }
    // What is sent is the form that was named: as many bytes as it takes were kept of a body that is no batch.
    let rubbish = json!({"device_id": "t", "note": "x".repeat(5000)}).to_string();
    let done = send(&folder, &url, &rubbish, &["--encoding", "cbor+zlib"]);
    assert_eq!(receipt(&done)["reason"], "batch_id_invalid");
    let kept = "SELECT body FROM quarantine ORDER BY rowid DESC LIMIT 1";
    let kept: Vec<u8> = open(&folder).query_row(kept, [], |row| row.get(0)).expect("a row");
    assert!(kept.starts_with(b"\x78\xda") && kept.len() < 200, "{} bytes", kept.len());

    let packed = folder.path().join("packed");
    std::fs::write(
        &packed,
        "zlib".parse::<Encoding>().expect("a form").encode(body.as_bytes()).expect("encodes"),
    )
    .expect("a file");
    let file = packed.to_str().expect("text");
    let again = |more: &[&str]| {
        let arguments = [&["send", "--url", &url, file], more].concat();
        run(tidegate(folder.path(), &arguments).env("TIDEGATE_FLEET_KEYS", spell_secret(FLEET_KEY)))
    };
    assert_eq!(receipt(&again(&["--device", "t"]))["status"], "duplicate");
    assert!(again(&[]).err.contains("--device"));
    let done = send(&folder, &url, "rubbish", &["--device", "t", "--encoding", "cbor"]);
    assert!(done.code == Some(1) && done.err.contains("cannot be encoded"), "{done:?}");
    let done = send(&folder, &url, &body, &["--encoding", "deflate"]);
    assert!(done.code == Some(2) && done.err.contains("none of json, gzip"), "{done:?}");
}
