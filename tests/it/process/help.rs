//! The help of every command is part of what users see: it changes only on purpose.

use std::path::Path;

use crate::support::gateway::{Folder, run, tidegate};

/// Every command, and the file that holds its help.
const COMMANDS: &[(&[&str], &str)] = &[
    (&[], "tidegate"),
    (&["serve"], "serve"),
    (&["send"], "send"),
    (&["simulate"], "simulate"),
    (&["keys"], "keys"),
    (&["keys", "derive"], "keys-derive"),
    (&["keys", "new"], "keys-new"),
    (&["verify"], "verify"),
    (&["conform"], "conform"),
];

#[test]
fn the_generated_help_is_written_down() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the program")]
    let update = std::env::var("UPDATE_SCHEMA").is_ok();
    let folder = Folder::new();
    let goldens = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/process/help");
    for (command, name) in COMMANDS {
        let done = run(&mut tidegate(folder.path(), &[*command, &["--help"]].concat()));
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{name}");
        let golden = goldens.join(format!("{name}.txt"));
        if update {
            std::fs::write(&golden, &done.out).expect("written");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(done.out, expected, "{name}.txt is old: run make schema");
    }
}

#[test]
fn every_command_has_its_help_here() {
    let folder = Folder::new();
    for (command, name) in COMMANDS {
        let done = run(&mut tidegate(folder.path(), &[*command, &["--help"]].concat()));
        let listed = done.out.split_once("\nCommands:\n").map_or("", |(_, listed)| listed);
        let listed = listed.lines().take_while(|line| !line.is_empty());
        for word in listed.filter_map(|line| line.split_whitespace().next()).filter(|word| *word != "help") {
            let path = [*command, &[word]].concat();
            assert!(COMMANDS.iter().any(|(known, _)| *known == path), "{name}: {path:?} has no golden file");
        }
    }
}

#[test]
fn wrong_usage_exits_2() {
    let folder = Folder::new();
    for arguments in [&[][..], &["surf"], &["serve", "--surf"], &["send"], &["verify", "--listen", "x:1"]] {
        let done = run(&mut tidegate(folder.path(), arguments));
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(done.err.contains("Usage: "), "{arguments:?}: {}", done.err);
    }
}
