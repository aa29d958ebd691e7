//! The lines of `clients/README.md`, run as a newcomer would type them: beside `make run`'s place, on a copy.

use std::path::Path;

use super::delivery::PATIENCE;
use super::source;
use crate::support::gateway::{BINARY, Folder, Gateway, command, configure, run_within, tidegate};

/// Copies a folder's files, not those of its folders.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("created");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("readable").path();
        if path.is_file() {
            std::fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copied");
        }
    }
}

/// Runs the block behind a marker; gives what it said.
fn try_out(marker: &str) -> String {
    let readme = std::fs::read_to_string(source("README.md")).expect("it is there");
    let (_, rest) = readme.split_once(marker).expect("the marker");
    let (_, rest) = rest.split_once("```sh\n").expect("a block");
    let (lines, _) = rest.split_once("```").expect("its end");
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("run")).expect("created");
    for part in ["c", "python"] {
        copy(&source(part), &folder.path().join("clients").join(part));
    }
    let mut serve = tidegate(folder.path(), &["serve"]);
    configure(&mut serve, &folder.path().join("run/tidegate.db")).env_remove("TIDEGATE_FLEET_KEYS");
    let gateway = Gateway::start_with(&mut serve);
    let lines = lines
        .replace("127.0.0.1:8080", &gateway.address.to_string())
        .replace("target/release/tidegate", BINARY);
    let done = run_within(PATIENCE, command("sh", folder.path()).args(["-eu", "-c", &lines]));
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    done.out
}

#[test]
fn the_tracker_in_c() {
    let said = try_out("<!-- tested: c -->");
    assert!(said.ends_with("no answer 0, busy 0, split 0, overwritten 0, unreadable 0\n"), "{said}");
    assert!(said.contains("uploads 5, acknowledged 5, "), "{said}");
}

#[test]
fn the_tracker_in_python() {
    let said = try_out("<!-- tested: python -->");
    assert!(said.ends_with("no answer 0, busy 0, split 0, overwritten 0, unreadable 0\n"), "{said}");
}
