//! What refuses to start says why in one line, and disturbs nobody.

use super::{open, store_url, verify};
use crate::support::gateway::{Done, Folder, Gateway, run, serve, tidegate};
use crate::support::link::request;
use crate::support::tracker::{Tracker, records};

/// It ended with this code and one line, which holds these words.
fn expect_refused(done: &Done, code: i32, words: &[&str]) {
    assert_eq!((done.code, done.out.as_str()), (Some(code), ""), "{}", done.err);
    assert!(done.err.starts_with("tidegate: ") && done.err.lines().count() == 1, "{}", done.err);
    for word in words {
        assert!(done.err.contains(word), "{word}: {}", done.err);
    }
}

#[test]
fn a_second_gateway_on_one_database_is_refused() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let (mut link, tracker) = (gateway.link(), Tracker::new("t"));
    for n in 1..=3_u64 {
        let lock_file = folder.path().join("tidegate.db.lock");
        let words = ["is in use by another process", lock_file.to_str().expect("text")];
        expect_refused(&run(&mut serve(&folder)), 1, &words);
        let body = tracker.body(&n.to_string(), None, &records(n, n)).to_string();
        let answer = link.exchange(&request(&tracker, body.as_bytes())).expect("an answer");
        assert_eq!(answer.status, 200, "the first one goes on: {answer:?}");
    }
    assert_eq!(link.track("t").len(), 3);
    verify(&folder);
    gateway.kill_nine();
    // The lock goes with the process, however it went.
    let gateway = Gateway::start(&folder);
    assert_eq!(gateway.link().track("t").len(), 3);
}

#[test]
fn a_newer_database_and_one_of_another_program_are_refused() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));
    open(&folder).pragma_update(None, "user_version", 4711).expect("raised");
    let words = ["version 4711", "newer tidegate"];
    expect_refused(&run(&mut serve(&folder)), 1, &words);
    expect_refused(
        &run(&mut tidegate(folder.path(), &["verify", "--store", &store_url(&folder)])),
        1,
        &words,
    );

    let folder = Folder::new();
    open(&folder).execute_batch("CREATE TABLE tides (height REAL)").expect("a table");
    let before = std::fs::read(folder.database()).expect("a file");
    expect_refused(&run(&mut serve(&folder)), 1, &["another program"]);
    assert_eq!(open(&folder).query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)), Ok(1));
    // Only the mark of the journal mode may differ.
    let after = std::fs::read(folder.database()).expect("a file");
    assert_eq!((before.len(), &before[100..]), (after.len(), &after[100..]));

    let folder = Folder::new();
    let text = "no database at all, but a text that is longer than the header of one\n".repeat(20);
    std::fs::write(folder.database(), &text).expect("a file");
    expect_refused(&run(&mut serve(&folder)), 1, &["not a database"]);
    assert_eq!(std::fs::read_to_string(folder.database()).expect("a file"), text);
}

#[test]
fn a_folder_that_cannot_be_made_is_refused() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("file"), "").expect("a file");
    let inside = folder.path().join("file").join("tidegate.db");
    let done = run(serve(&folder).env("TIDEGATE_STORE", format!("sqlite:{}", inside.display())));
    expect_refused(&done, 1, &["cannot", "file"]);
}

#[test]
fn lost_secrets_refuse_the_start() {
    const SECRETS: [&str; 4] = ["fleet_keys", "seal_keys", "admin_tokens", "read_tokens"];
    let folder = Folder::new();
    let unconfigured = || {
        let mut command = serve(&folder);
        for secret in SECRETS {
            command.env_remove(format!("TIDEGATE_{}", secret.to_uppercase()));
        }
        command
    };
    let gateway = Gateway::start_with(&mut unconfigured());
    // A device, signed for with what was generated.
    let batch = folder.path().join("batch.json");
    let tracker = Tracker::new("t");
    std::fs::write(&batch, tracker.body("a", None, &records(1, 1)).to_string()).expect("a file");
    let (url, store) = (format!("http://{}", gateway.address), store_url(&folder));
    let arguments = ["send", "--url", &url, "--store", &store, batch.to_str().expect("text")];
    let sent = run(&mut tidegate(folder.path(), &arguments));
    assert_eq!(sent.code, Some(0), "{}", sent.err);
    gateway.terminate();
    assert_eq!(gateway.ended().0, Some(0));

    let secrets = folder.path().join("secrets.toml");
    let kept = folder.path().join("kept.toml");
    std::fs::rename(&secrets, &kept).expect("moved away");
    let done = run(&mut unconfigured());
    assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{}", done.err);
    let lines: Vec<_> = done.err.lines().collect();
    assert_eq!(lines.len(), SECRETS.len(), "{}", done.err);
    for (line, secret) in lines.iter().zip(SECRETS) {
        assert!(
            line.starts_with(&format!("tidegate: {secret}: ")) && line.contains("secrets.toml"),
            "{line}"
        );
    }
    assert!(!secrets.exists(), "nothing was made up");
    // Other keys than those the fleet knows are no way out either.
    expect_refused(&run(&mut serve(&folder)), 2, &["fleet_keys", "locked out"]);
    std::fs::rename(&kept, &secrets).expect("moved back");
    let gateway = Gateway::start_with(&mut unconfigured());
    drop(gateway);
}
