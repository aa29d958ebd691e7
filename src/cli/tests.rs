//! Commands run in this process, with an environment, a folder and an output of their own.

use std::io::{self, BufRead as _, BufReader, Read as _, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use clap::CommandFactory as _;

use super::*;
use crate::domain::batch::Limits;
use crate::domain::decode::decode;

const FLEET_KEY: &str = "correct-horse-battery-staple";
/// Of track-exp-084 under that key: the fixture in `fixtures/signatures/derived.json`.
const DEVICE_KEY: &str = "t4myAYV8jquLB58IJOnuaJnYyehT+el8txNpupoWeJo=";
const BODY: &str = r#"{"device_id":"track-exp-084","batch_id":"1","records":[]}"#;
const SIGNATURE: &str = "c7da43e0b6e044f50f2ab3a667f4a5a2507e75f037e4a27dcfc36c5746821e98";

#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("unpoisoned").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("unpoisoned").clone()).expect("text")
    }
}

/// A pipe whose reader has left.
struct Closed;

impl Write for Closed {
    fn write(&mut self, _bytes: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::BrokenPipe.into())
    }
}

/// Exit code, stdout and stderr of a command.
fn tidegate(arguments: &[&str], environment: &[(&str, &str)], here: &Path) -> (ExitCode, String, String) {
    let (out, err) = (Paper::default(), Paper::default());
    let environment = environment.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    let mut terminal =
        Terminal::new(environment, here.to_owned(), Box::new(out.clone()), Box::new(err.clone()));
    let arguments = std::iter::once(&"tidegate").chain(arguments).map(Into::into);
    let code = run(arguments, &mut terminal);
    (code, out.text(), err.text())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// Answers one request; gives back its head and body.
fn gateway(answer: &'static str) -> (String, JoinHandle<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let mut reader = BufReader::new(stream.try_clone().expect("a handle"));
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(reader.read_line(&mut head).expect("a line"), 0, "ended in the head");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
        let mut body = vec![0; length.parse().expect("a number")];
        reader.read_exact(&mut body).expect("a body");
        stream.write_all(answer.as_bytes()).expect("an answer");
        (head, body)
    });
    (url, serving)
}

#[test]
fn the_commands_are_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn a_device_key_is_derived_from_flag_environment_file_or_data_directory() {
    let here = folder();
    let derive = ["keys", "derive", "track-exp-084"];
    let expected = (ExitCode::SUCCESS, format!("{DEVICE_KEY}\n"), String::new());
    let flag = [&derive[..], &["--fleet-key", FLEET_KEY]].concat();
    assert_eq!(tidegate(&flag, &[], here.path()), expected);
    assert_eq!(tidegate(&derive, &[("TIDEGATE_FLEET_KEYS", FLEET_KEY)], here.path()), expected);

    let store = format!("sqlite:{}", here.path().join("t.db").display());
    let of_store = [&derive[..], &["--store", &store]].concat();
    let (code, out, err) = tidegate(&of_store, &[], here.path());
    assert_eq!((code, out.as_str()), (ExitCode::from(2), ""));
    assert!(err.starts_with("tidegate: fleet_keys: is neither configured nor in "), "{err}");

    std::fs::write(here.path().join("tidegate.toml"), format!("fleet_keys = [\"{FLEET_KEY}\"]\n"))
        .expect("a file");
    assert_eq!(tidegate(&derive, &[], here.path()), expected);
}

#[test]
fn wrong_secrets_are_not_shown() {
    let here = folder();
    let derive = ["keys", "derive", "a", "--fleet-key", "hidden-one"];
    let (code, _, err) = tidegate(&derive, &[], here.path());
    assert_eq!(code, ExitCode::from(2));
    assert_eq!(err, "tidegate: --fleet-key: is too short: at least 16 bytes are needed\n");
    let (code, _, err) = tidegate(&["send", "x", "--key", "hidden-one"], &[], here.path());
    assert_eq!(
        (code, err.as_str()),
        (ExitCode::from(2), "tidegate: --key: is not base64 of a device key's 32 bytes\n")
    );
}

#[test]
fn new_fleet_keys_differ_and_can_be_used() {
    let here = folder();
    let (code, one, _) = tidegate(&["keys", "new"], &[], here.path());
    let (_, other, _) = tidegate(&["keys", "new"], &[], here.path());
    assert_eq!(code, ExitCode::SUCCESS);
    assert_ne!(one, other);
    let (code, key, _) =
        tidegate(&["keys", "derive", "a"], &[("TIDEGATE_FLEET_KEYS", one.trim_end())], here.path());
    assert_eq!((code, key.len()), (ExitCode::SUCCESS, 45));
}

#[test]
fn the_batches_of_the_demonstration_are_whole() {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/demo");
    let mut last_seqs = std::collections::HashMap::new();
    let mut files: Vec<_> =
        std::fs::read_dir(demo).expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    for file in &files {
        let body = std::fs::read(file).expect("a file");
        let batch = decode(&body, &Limits::default()).expect("a batch");
        assert!(batch.unusable.is_empty(), "{}", file.display());
        for record in batch.records {
            assert!(record.raw.is_none() && record.recorded_at.is_some(), "{}", file.display());
            let before = last_seqs.insert(batch.device_id.clone(), record.seq);
            assert!(before.is_none_or(|before| before < record.seq), "{}: sent in order", file.display());
        }
    }
    assert_eq!((files.len(), last_seqs.len()), (16, 4));
}

#[test]
fn every_fault_of_the_configuration_is_a_line() {
    let here = folder();
    let pairs = [("TIDEGATE_READERS", "0"), ("TIDEGATE_STORE", "postgres://u:secret@h/d")];
    let (code, out, err) = tidegate(&["serve", "--drain-s", "0", "--listen", "x"], &pairs, here.path());
    assert_eq!((code, out.as_str()), (ExitCode::from(2), ""));
    assert_eq!(err.lines().count(), 4, "{err}");
    assert!(err.lines().all(|line| line.starts_with("tidegate: ")) && !err.contains("secret"), "{err}");
}

#[test]
fn a_reader_that_left_is_no_failure() {
    let mut terminal = Terminal::new(Vec::new(), ".".into(), Box::new(Closed), Box::new(Closed));
    assert_eq!(run(["tidegate", "keys", "new"].map(Into::into), &mut terminal), ExitCode::SUCCESS);
    assert_eq!(
        run(["tidegate", "keys", "derive", "a", "--fleet-key", "x"].map(Into::into), &mut terminal),
        ExitCode::from(2)
    );
}

#[test]
fn send_signs_the_bytes_of_the_file_and_prints_the_receipt() {
    let here = folder();
    let file = here.path().join("batch.json");
    let file = file.to_str().expect("text");
    std::fs::write(file, BODY).expect("a file");
    for (key, answer, code, out, err) in [
        (
            ["--fleet-key", FLEET_KEY],
            "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n{\"status\":\"processed\"}",
            ExitCode::SUCCESS,
            "{\"status\":\"processed\"}\n",
            "",
        ),
        (
            ["--key", DEVICE_KEY],
            "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
            ExitCode::SUCCESS,
            "",
            "",
        ),
        (
            ["--key", DEVICE_KEY],
            "HTTP/1.1 401 Unauthorized\r\nContent-Length: 5\r\n\r\n{\n\x1b\n}",
            ExitCode::from(1),
            "{   }\n",
            ": not acknowledged: 401 Unauthorized\n",
        ),
        (
            ["--key", DEVICE_KEY],
            "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 9\r\nContent-Length: 0\r\n\r\n",
            ExitCode::from(1),
            "",
            ": not acknowledged: 503 Service Unavailable\n",
        ),
    ] {
        let (url, serving) = gateway(answer);
        let arguments = [&["send", "--url", &url, "--minimal"][..], &key, &[file]].concat();
        let done = tidegate(&arguments, &[], here.path());
        let (head, body) = serving.join().expect("served");
        assert_eq!(body, BODY.as_bytes());
        assert!(head.starts_with("POST /v1/batches HTTP/1.1\r\n"), "{head}");
        assert!(head.contains("\r\nX-Device-Id: track-exp-084\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nX-Signature: sha256={SIGNATURE}\r\n")), "{head}");
        assert!(head.contains("\r\nPrefer: return=minimal\r\n"), "{head}");
        let expected = if err.is_empty() { String::new() } else { format!("tidegate: {file}{err}") };
        assert_eq!(done, (code, out.to_owned(), expected));
    }
}

#[test]
fn send_says_what_it_could_not_do_and_goes_on() {
    let here = folder();
    let file = here.path().join("batch.json");
    std::fs::write(&file, "{}").expect("a file");
    let file = file.to_str().expect("text");
    let arguments = ["send", "--key", DEVICE_KEY, "/no/such/file", file];
    let (code, out, err) = tidegate(&arguments, &[], here.path());
    assert_eq!((code, out.as_str()), (ExitCode::from(1), ""));
    let lines: Vec<_> = err.lines().collect();
    assert!(lines[0].starts_with("tidegate: /no/such/file: cannot be read: "), "{err}");
    assert!(lines[1].ends_with("say whose it is with --device"), "{err}");

    // Nobody listens where a listener was a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
    let url = format!("http://127.0.0.1:{port}");
    let (code, _, err) =
        tidegate(&["send", "--key", DEVICE_KEY, "--device", "a", "--url", &url, file], &[], here.path());
    assert_eq!(code, ExitCode::from(1));
    assert!(err.contains("Connection refused"), "{err}");

    let (code, _, err) = tidegate(&["send", "--key", DEVICE_KEY, "--url", "ftp://x", file], &[], here.path());
    assert_eq!(
        (code, err.as_str()),
        (ExitCode::from(2), "tidegate: --url: is not http://host:port or https://host\n")
    );
}
