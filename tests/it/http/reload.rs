//! Secrets change while the gateway runs, and no upload is cut for it.

use std::path::Path;

use tidegate::domain::ids::DeviceId;
use tidegate::domain::signature::{self, FleetKey};
use tidegate::ops::tokens::Role;

use super::harness::{self, FLEET_KEY, TOKEN, batch, secrets, upload};
use crate::support::gateway::{Folder, Gateway, configure, tidegate, until};

const NEW_FLEET_KEY: &[u8] = b"the next fleet key of the tests";
const NEW_TOKEN: &str = "another-token-of-the-tests";

/// An upload signed under a fleet key.
fn signed(fleet_key: &[u8], device_id: &str) -> String {
    let body = batch(device_id, "x", None, &[1]);
    let id = DeviceId::parse(device_id).expect("an id");
    let signature = signature::sign(&FleetKey::new(fleet_key).derive(&id), body.as_bytes());
    let length = body.len();
    format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: {device_id}\r\nX-Signature: {signature}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

fn reading(token: &str) -> String {
    format!("GET /v1/devices HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n")
}

#[test]
fn new_secrets_are_live_and_old_ones_are_not() {
    let gateway = harness::Gateway::start();
    // Its header has come, and half of its body.
    let request = upload("a", &batch("a", "x", None, &[1]), "Expect: 100-continue\r\n");
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let (first, second) = body.split_at(body.len() / 2);
    let mut slow = gateway.connect();
    slow.send(format!("{head}\r\n\r\n"));
    assert_eq!(slow.answer().status, 100);
    slow.send(first);

    gateway.reload(Ok(secrets(NEW_FLEET_KEY, &[(Role::Read, NEW_TOKEN)])));
    until("the new token opens", || (gateway.exchange(reading(NEW_TOKEN)).status == 200).then_some(()));
    assert_eq!(gateway.exchange(reading(TOKEN)).status, 401);
    assert_eq!(gateway.exchange(signed(NEW_FLEET_KEY, "b")).status, 200);
    assert_eq!(gateway.exchange(signed(FLEET_KEY, "c")).code(), "signature_mismatch");

    slow.send(second);
    assert_eq!(slow.answer().status, 200, "it began under the old key");
    slow.send(upload("a", &batch("a", "y", None, &[2]), ""));
    assert_eq!(slow.answer().status, 401, "and the next one does not");
    gateway.stop();
}

#[test]
fn faults_change_nothing() {
    let gateway = harness::Gateway::start();
    gateway.reload(Err(vec!["fleet_keys: entry 1 is empty".to_owned()]));
    gateway.reload(Err(Vec::new()));
    // What is handed over later is taken later.
    gateway.reload(Ok(secrets(FLEET_KEY, &[(Role::Read, TOKEN), (Role::Read, NEW_TOKEN)])));
    until("the new token opens", || (gateway.exchange(reading(NEW_TOKEN)).status == 200).then_some(()));
    assert_eq!(gateway.exchange(reading(TOKEN)).status, 200);
    assert_eq!(gateway.upload("a", &batch("a", "x", None, &[1])).status, 200);
    gateway.stop();
}

/// Writes `tidegate.toml` with a fleet key and a read token, both as text.
fn write_file(folder: &Path, fleet_key: &str, token: &str, more: &str) {
    let text = format!("fleet_keys = [\"{fleet_key}\"]\nread_tokens = [\"{token}\"]\n{more}");
    std::fs::write(folder.join("tidegate.toml"), text).expect("a file");
}

/// The file's secrets alone: nothing of them in the environment.
fn serve(folder: &Folder) -> Gateway {
    let mut command = tidegate(folder.path(), &["serve"]);
    configure(&mut command, &folder.database())
        .env_remove("TIDEGATE_FLEET_KEYS")
        .env_remove("TIDEGATE_READ_TOKENS")
        .env("TIDEGATE_LOG", "info");
    Gateway::start_with(&mut command)
}

#[test]
fn sighup_reloads_the_secrets_of_the_file() {
    const KEY: &str = "the first fleet key of this file";
    const NEXT: &str = "the second fleet key of this file";
    let print = |key: &str| FleetKey::new(key.as_bytes()).fingerprint().to_string();
    let folder = Folder::new();
    write_file(folder.path(), KEY, TOKEN, "");
    let gateway = serve(&folder);
    let status = |request: String| gateway.link().exchange(request.as_bytes()).expect("an answer").status;
    assert_eq!(status(signed(KEY.as_bytes(), "a")), 200);

    write_file(folder.path(), &format!("{KEY}\", \"{NEXT}"), &format!("desk:{NEW_TOKEN}"), "readers = 2\n");
    gateway.hang_up();
    let line = gateway.line_with("readers");
    assert!(line.contains("WARN") && line.contains("readers = 2: takes effect at the next start"), "{line}");
    let line = gateway.line_with("secrets reloaded");
    let keys = format!("fleet_keys {} {};", print(KEY), print(NEXT));
    assert!(line.contains(&keys) && line.contains("tokens admin (admin), desk (read)"), "{line}");
    assert!(![KEY, NEXT, NEW_TOKEN].iter().any(|secret| line.contains(secret)), "{line}");
    assert_eq!((status(reading(NEW_TOKEN)), status(reading(TOKEN))), (200, 401));
    assert_eq!((status(signed(KEY.as_bytes(), "b")), status(signed(NEXT.as_bytes(), "c"))), (200, 200));

    // The store knows the second key by now, so the first may go.
    write_file(folder.path(), NEXT, NEW_TOKEN, "");
    gateway.hang_up();
    gateway.line_with("secrets reloaded");
    assert_eq!((status(signed(KEY.as_bytes(), "d")), status(signed(NEXT.as_bytes(), "e"))), (401, 200));
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));
}

#[test]
fn sighup_keeps_the_old_secrets_where_the_new_ones_are_faulty() {
    const KEY: &str = "the first fleet key of this file";
    let folder = Folder::new();
    write_file(folder.path(), KEY, TOKEN, "");
    let gateway = serve(&folder);
    let status = |request: String| gateway.link().exchange(request.as_bytes()).expect("an answer").status;
    assert_eq!(status(signed(KEY.as_bytes(), "a")), 200);
    let stays = || {
        let line = gateway.line_with("secrets not reloaded");
        assert!(line.contains(&FleetKey::new(KEY.as_bytes()).fingerprint().to_string()), "{line}");
        assert_eq!((status(reading(TOKEN)), status(reading(NEW_TOKEN))), (200, 401));
    };

    write_file(folder.path(), "short", "shorter", "no_such_setting = 1\n");
    gateway.hang_up();
    for words in
        ["no_such_setting: is no setting", "fleet_keys: entry 1 is too short", "read_tokens: entry 1"]
    {
        assert!(gateway.line_with(words).contains("ERROR"), "{words}");
    }
    stays();
    write_file(folder.path(), "a fleet key nobody here knows", NEW_TOKEN, "");
    gateway.hang_up();
    gateway.line_with("none of the live keys");
    stays();
    std::fs::remove_file(folder.path().join("tidegate.toml")).expect("it was there");
    gateway.hang_up();
    gateway.line_with("fleet_keys: is neither configured nor in ");
    stays();
    assert!(!folder.path().join("secrets.toml").exists(), "nothing is generated");
    assert_eq!(status(signed(KEY.as_bytes(), "b")), 200);
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));
}
