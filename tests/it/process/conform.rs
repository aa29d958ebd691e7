//! `tidegate conform` against the real binary, and against gateways that are wrong.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;

use super::verify;
use crate::support::gateway::{Done, Folder, Gateway, PATIENCE, configure, run, tidegate};

/// `tidegate conform`, configured as the gateway is.
fn conform(folder: &Folder, url: &str, more: &[&str]) -> Done {
    let mut command = tidegate(folder.path(), &[&["conform", url], more].concat());
    run(configure(&mut command, &folder.database()))
}

/// The cases of a report that begin with this word, numbers left out.
fn cases(report: &str, word: &str) -> Vec<String> {
    let lines = report.lines().filter_map(|line| line.strip_prefix(word)?.split_once(" - "));
    lines.map(|(_, case)| case.to_owned()).collect()
}

#[test]
fn the_binary_passes_every_time() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let url = format!("http://{}/", gateway.address);
    for turn in 0..2 {
        let done = conform(&folder, &url, &[]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{turn}: {}", done.out);
        assert!(done.out.starts_with("TAP version 14\n1.."), "{}", done.out);
        let (_, closing) = done.out.trim_end().rsplit_once('\n').expect("lines");
        assert!(closing.ends_with("; steps not checked: 0") && closing.contains(" 0 failed"), "{closing}");
        let skipped = cases(&done.out, "ok ").into_iter().filter(|case| case.contains(" # SKIP "));
        let skipped: Vec<_> = skipped.filter(|case| !case.contains("no route to reset an epoch")).collect();
        // Bodies that are damaged or packed in an odd way are the same ones again, and the gateway knows them now.
        let known = |case: &String| case.contains(" is known to this gateway; use a fresh one");
        assert!(skipped.len() <= 12 * turn && skipped.iter().all(known), "{turn}: {skipped:#?}");
    }
    // Its receipts say so, too.
    verify(&folder);
}

#[test]
fn without_tokens_what_cannot_be_read_is_counted() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let url = format!("http://{}", gateway.address);
    let key = tidegate::domain::signature::spell_secret(crate::support::tracker::FLEET_KEY);
    let given = ["--fleet-key", &key, "--case", "heartbeat"];
    // The key is given, so the tokens of the configuration stay here.
    let done = conform(&folder, &url, &given);
    assert_eq!(done.code, Some(0), "{}", done.out);
    assert!(
        done.out.contains("\n# steps of it that were not checked, for want of a read token: 1\n"),
        "{}",
        done.out
    );
    assert!(done.out.ends_with("# 1 passed, 0 failed, 0 skipped; steps not checked: 1\n"), "{}", done.out);
    assert_eq!(conform(&folder, &url, &[&given[..], &["--strict"]].concat()).code, Some(1));
    let token = ["--token", crate::support::gateway::TOKEN, "--strict"];
    let done = conform(&folder, &url, &[&given[..], &token].concat());
    assert_eq!(done.code, Some(0), "{}", done.out);

    // Ids that cannot be changed, and nobody to ask whether they are known.
    let file = folder.path().join("own.json");
    let own = r#"[{"name":"own","source":"me","ids":"as_written","steps":[
        {"raw":"rubbish","as":"d","expect":{"status":202}}]}]"#;
    std::fs::write(&file, own).expect("a file");
    let own = ["--fleet-key", &key, "--cases", file.to_str().expect("text")];
    let done = conform(&folder, &url, &own);
    assert!(done.code == Some(0) && done.out.contains("# SKIP whether device d is new"), "{}", done.out);
}

#[test]
fn a_wrong_key_or_token_is_said_once() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let url = format!("http://{}", gateway.address);
    let done = conform(&folder, &url, &["--fleet-key", "not the key of this fleet"]);
    assert_eq!(done.code, Some(1), "{}", done.out);
    assert!(cases(&done.out, "not ok ").is_empty(), "{}", done.out);
    assert!(done.out.contains("\nBail out! ") && done.out.contains("another gateway's"), "{}", done.out);
    assert!(done.err.contains("401") && !done.err.contains("not the key"), "{}", done.err);
    let done = conform(&folder, &url, &["--token", "not-a-token-of-this-gateway"]);
    assert!(done.code == Some(1) && done.err.contains("refuses the read token"), "{}", done.err);
    assert!(!done.out.contains("not-a-token"), "{}", done.out);
}

#[test]
fn own_cases_fail_with_what_came_instead() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let url = format!("http://{}", gateway.address);
    let file = folder.path().join("own.json");
    let own = r#"[{"name":"own # 1","source":"me","steps":[
        {"upload":{"device_id":"d","batch_id":"a","records":[{"seq":1}]},"as":"d","expect":{"status":200,"body":{"accepted":2}}}]}]"#;
    std::fs::write(&file, own).expect("a file");
    let own = ["--cases", file.to_str().expect("text")];
    let done = conform(&folder, &url, &own);
    assert_eq!(done.code, Some(1), "{}", done.out);
    for line in [
        "not ok 1 - own \\# 1",
        "  source: \"me\"",
        "  step: 1 of 1",
        r#"  expected: "a body with {\"accepted\":2}""#,
        "    POST /v1/batches",
        "# 0 passed, 1 failed, 0 skipped; steps not checked: 0",
    ] {
        assert!(done.out.lines().any(|printed| printed == line), "{line}: {}", done.out);
    }
    std::fs::write(&file, "[{}]").expect("a file");
    assert_eq!(conform(&folder, &url, &own).code, Some(2));
    let done = conform(&folder, &url, &["--case", "no such case"]);
    assert!(done.code == Some(2) && done.err.contains("--list"), "{}", done.err);
}

#[test]
fn nobody_there() {
    let folder = Folder::new();
    // Port 1 of this machine: nobody listens there.
    let done = conform(&folder, "http://127.0.0.1:1", &[]);
    assert_eq!(done.code, Some(1), "{}", done.out);
    assert!(done.err.contains("cannot be reached") && done.err.contains("refused"), "{}", done.err);
    let done = conform(&folder, "ftp://x", &[]);
    assert_eq!(
        (done.code, done.err.as_str()),
        (Some(2), "tidegate: URL: is not http://host:port or https://host\n")
    );
    let done = run(&mut tidegate(folder.path(), &["conform", "--list"]));
    assert!(
        done.code == Some(0) && done.out.contains("a batch without records is a heartbeat  (contract"),
        "{done:?}"
    );
}

#[test]
fn a_gateway_that_says_yes_to_everything_fails() {
    let folder = Folder::new();
    let address = yes_sayer();
    let done = conform(&folder, &format!("http://{address}"), &[]);
    assert_eq!(done.code, Some(1), "{}", done.out);
    let failed = cases(&done.out, "not ok ");
    for name in [
        "no signature: 401, nothing stored",
        "two documents",
        "older batch after reconnect",
        "the same batch again is a duplicate",
        "an answer can be minimal",
        "a body of 1 MiB is taken and one byte more is not",
    ] {
        assert!(failed.iter().any(|case| case == name), "{name} passed: {}", done.out);
    }
    // What passes there asks for nothing but 200 `processed`.
    let passed = cases(&done.out, "ok ");
    assert!(passed.len() < 5, "{passed:?}");
}

/// A server that answers every request, whatever it is, with 200 and `processed`, for as long as the test runs.
fn yes_sayer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            stream.set_read_timeout(Some(PATIENCE)).expect("an option");
            std::thread::spawn(move || while say_yes(&mut BufReader::new(&stream)).is_some() {});
        }
    });
    address
}

/// Reads a request and answers it; `None` where there is no further one.
fn say_yes(stream: &mut BufReader<&TcpStream>) -> Option<()> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        (stream.read_line(&mut head).ok()? > 0).then_some(())?;
    }
    let head = head.to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        let mut last = [0; 5];
        while last != *b"0\r\n\r\n" {
            last.rotate_left(1);
            stream.read_exact(&mut last[4..]).ok()?;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    std::io::copy(&mut stream.by_ref().take(length.unwrap_or(0)), &mut std::io::sink()).ok()?;
    let body = r#"{"status":"processed"}"#;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.get_mut().write_all(answer.as_bytes()).ok()
}

#[test]
fn every_built_in_case_file_is_in_the_binary() {
    let folder = Folder::new();
    let listed = run(&mut tidegate(folder.path(), &["conform", "--list"])).out;
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/cases");
    for entry in std::fs::read_dir(cases).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|ending| ending == "json") {
            let text = std::fs::read_to_string(&path).expect("text");
            let cases: Vec<serde_json::Value> = serde_json::from_str(&text).expect("JSON");
            let first = cases[0]["name"].as_str().expect("a name");
            assert!(listed.contains(&format!("{first}  (")), "{} is not built in", path.display());
        }
    }
}
