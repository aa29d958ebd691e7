//! The real process speaking https: its files, their reload, and `send` against it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use serde_json::Value;
use tidegate::domain::signature::spell_secret;
use tidegate::ops::tls::TlsFiles;

use super::verify;
use crate::support::gateway::{Done, Folder, Gateway, TOKEN, run, serve, tidegate};
use crate::support::link::request;
use crate::support::tls::{Authority, files};
use crate::support::tracker::{FLEET_KEY, Tracker, records};

fn serve_tls(folder: &Folder, files: &TlsFiles) -> Command {
    let mut command = serve(folder);
    command
        .env("TIDEGATE_TLS_CERT", &files.cert)
        .env("TIDEGATE_TLS_KEY", &files.key)
        .env("TIDEGATE_LOG", "info");
    command
}

fn set_mode(files: &TlsFiles, mode: u32) {
    std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(mode)).expect("a mode");
}

fn body(tracker: &Tracker, batch_id: &str, seq: u64) -> Vec<u8> {
    tracker.body(batch_id, None, &records(seq, seq)).to_string().into_bytes()
}

/// `tidegate send` over https, trusting an authority or whom the machine trusts.
fn send(folder: &Folder, gateway: &Gateway, ca: Option<&str>) -> Done {
    let file = folder.path().join("body");
    std::fs::write(&file, body(&Tracker::new("sent"), "a", 1)).expect("a file");
    let url = format!("https://{}", gateway.address);
    let mut arguments = vec!["send", "--url", &url, file.to_str().expect("text")];
    arguments.extend(ca.into_iter().flat_map(|ca| ["--ca", ca]));
    run(tidegate(folder.path(), &arguments).env("TIDEGATE_FLEET_KEYS", spell_secret(FLEET_KEY)))
}

#[test]
fn send_uploads_over_https_and_trusts_nobody_else() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let files = files(folder.path());
    authority.issue(&files);
    set_mode(&files, 0o644);
    let gateway = Gateway::start_with(&mut serve_tls(&folder, &files));
    let ca = folder.path().join("ca.pem");
    authority.write_to(&ca);
    let done = send(&folder, &gateway, ca.to_str());
    let receipt: Value = serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("{done:?}"));
    assert_eq!((done.code, &receipt["accepted"]), (Some(0), &Value::from(1)));

    // Another authority, and the machine's own: neither knows this gateway.
    Authority::new().write_to(&ca);
    for ca in [ca.to_str(), None] {
        let done = send(&folder, &gateway, ca);
        assert!(done.code == Some(1) && done.err.contains("certificate"), "{done:?}");
    }
    std::fs::write(&ca, "no certificate").expect("a file");
    let done = send(&folder, &gateway, ca.to_str());
    assert_eq!(
        (done.code, done.err),
        (Some(2), format!("tidegate: --ca: {} holds no certificate (PEM)\n", ca.display()))
    );
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));
    verify(&folder);
}

#[test]
fn a_fleet_and_the_cases_reach_a_gateway_over_https() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let files = files(folder.path());
    authority.issue(&files);
    let gateway = Gateway::start_with(&mut serve_tls(&folder, &files));
    let ca = folder.path().join("ca.pem");
    authority.write_to(&ca);
    let (url, ca) = (format!("https://{}", gateway.address), ca.to_str().expect("text"));
    let keyed = |arguments: &[&str]| {
        let mut command = tidegate(folder.path(), &[arguments, &["--ca", ca]].concat());
        run(command.env("TIDEGATE_FLEET_KEYS", spell_secret(FLEET_KEY)).env("TIDEGATE_READ_TOKENS", TOKEN))
    };
    let fleet = ["--devices", "5", "--batches", "40", "--interval", "0", "--loss", "0.3", "--seed", "5"];
    let done = keyed(&[&["simulate", "--url", &url], &fleet[..]].concat());
    assert_eq!((done.code, done.out.lines().last()), (Some(0), Some("no differences")), "{done:?}");
    let done = keyed(&["conform", &url, "--case", "no fix"]);
    assert_eq!(done.code, Some(0), "{done:?}");
    assert!(done.out.lines().any(|line| line.starts_with("ok 1 ")), "{done:?}");
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));
    verify(&folder);
}

#[test]
fn faulty_files_refuse_the_start_with_one_line_a_fault() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let files = files(folder.path());
    let refused = |lines: &[String]| {
        let done = run(&mut serve_tls(&folder, &files));
        let told: Vec<_> = done.err.lines().filter(|line| line.starts_with("tidegate: ")).collect();
        assert_eq!((done.code, told), (Some(2), lines.iter().map(String::as_str).collect()), "{}", done.err);
        assert!(!folder.database().exists(), "nothing was made");
    };
    let (cert, key) = (files.cert.display(), files.key.display());
    refused(&[
        format!("tidegate: tls_cert: {cert} does not exist"),
        format!("tidegate: tls_key: {key} does not exist"),
    ]);
    authority.issue(&files);
    let kept = std::fs::read(&files.cert).expect("a file");
    authority.issue(&files);
    std::fs::write(&files.cert, kept).expect("a file");
    refused(&[format!("tidegate: tls_key: {key} does not belong to the first certificate of {cert}")]);
    std::fs::write(&files.key, "").expect("a file");
    refused(&[format!("tidegate: tls_key: {key} holds no private key (PEM, unencrypted)")]);
}

#[test]
fn sighup_takes_another_certificate_and_cuts_nobody() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let files = files(folder.path());
    let first = authority.issue(&files);
    set_mode(&files, 0o600);
    let gateway = Gateway::start_with(&mut serve_tls(&folder, &files));
    let tracker = Tracker::new("t");
    let whole = request(&tracker, &body(&tracker, "a", 1));
    let mut slow = authority.connect(gateway.address);
    assert_eq!(slow.certificate(), first);
    slow.send(&whole[..whole.len() - 20]);

    let second = authority.issue(&files);
    assert_ne!(first, second);
    gateway.hang_up();
    let line = gateway.line_with("secrets reloaded");
    assert!(line.contains("certificate sha256 "), "{line}");
    let mut fresh = authority.connect(gateway.address);
    assert_eq!(fresh.certificate(), second);
    fresh.send(request(&tracker, &body(&tracker, "b", 2)));
    assert_eq!(fresh.answer().expect("an answer").status, 200);
    slow.send(&whole[whole.len() - 20..]);
    assert_eq!(slow.answer().expect("it was not cut").status, 200);

    // A pair that does not fit: the one before stays, and old connections as well as new ones go on.
    let kept = std::fs::read(&files.cert).expect("a file");
    authority.issue(&files);
    std::fs::write(&files.cert, kept).expect("a file");
    gateway.hang_up();
    let line = gateway.line_with("tls_key: ");
    assert!(line.contains("ERROR") && line.contains("does not belong to"), "{line}");
    gateway.line_with("certificate not reloaded; the one in use stays");
    gateway.line_with("secrets reloaded");
    assert_eq!(authority.connect(gateway.address).certificate(), second);
    fresh.send(request(&tracker, &body(&tracker, "c", 3)));
    assert_eq!(fresh.answer().expect("an answer").status, 200);
    std::fs::remove_file(&files.key).expect("it was there");
    gateway.hang_up();
    gateway.line_with("does not exist");
    gateway.line_with("secrets reloaded");
    assert_eq!(authority.connect(gateway.address).certificate(), second);
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));
    verify(&folder);
}

#[test]
fn the_log_tells_of_an_open_key_and_never_the_key() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let files = files(folder.path());
    authority.issue(&files);
    set_mode(&files, 0o644);
    let secret = std::fs::read_to_string(&files.key).expect("a file");
    let secret = secret.lines().nth(1).expect("base64").to_owned();
    let mut command = serve_tls(&folder, &files);
    let gateway = Gateway::start_with(command.env("TIDEGATE_LOG", "trace"));
    // Twice, since the first such line was said before it listened.
    gateway.hang_up();
    let warned = gateway.line_with("tls_key: ");
    assert!(warned.contains("WARN") && warned.contains("has mode 0644"), "{warned}");
    let mut link = authority.connect(gateway.address);
    let tracker = Tracker::new("t");
    link.send(request(&tracker, &body(&tracker, "a", 1)));
    assert_eq!(link.answer().expect("an answer").status, 200);
    gateway.terminate();
    let (code, said) = gateway.ended();
    assert_eq!(code, Some(0));
    assert!(said.contains("upload taken") && !said.contains(&secret), "{said}");
}

#[test]
fn plain_http_is_hung_up_on_without_noise() {
    let (folder, authority) = (Folder::new(), Authority::new());
    let files = files(folder.path());
    authority.issue(&files);
    set_mode(&files, 0o600);
    let gateway = Gateway::start_with(&mut serve_tls(&folder, &files));
    let tracker = Tracker::new("t");
    for _ in 0..3 {
        let answer = gateway.link().exchange(&request(&tracker, &body(&tracker, "a", 1)));
        assert!(answer.is_err(), "{answer:?}");
    }
    gateway.terminate();
    let (code, said) = gateway.ended();
    assert_eq!(code, Some(0));
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
}
