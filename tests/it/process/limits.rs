//! File descriptors: the gateway takes what it may have, and no more connections than that.

use std::net::TcpStream;
use std::process::Command;

use super::store_url;
use crate::support::gateway::{BINARY, Folder, Gateway, command, configure};
use crate::support::tracker::{Tracker, records};

/// `tidegate serve` under a soft and a hard limit.
fn serve_under(folder: &Folder, limits: &str) -> Command {
    let mut command = command("prlimit", folder.path());
    command.args([&format!("--nofile={limits}"), BINARY, "serve", "--store", &store_url(folder)]);
    configure(&mut command, &folder.database());
    command.env("TIDEGATE_LOG", "info");
    command
}

/// The soft limit that a process has.
fn soft_limit(id: u32) -> u64 {
    let limits = std::fs::read_to_string(format!("/proc/{id}/limits")).expect("limits");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).expect("a number")
}

#[test]
fn it_raises_its_own_limit_as_far_as_it_needs() {
    let folder = Folder::new();
    let gateway =
        Gateway::start_with(serve_under(&folder, "256:2000").env("TIDEGATE_CONNECTIONS_MAX", "1000"));
    assert_eq!(soft_limit(gateway.id()), 1192);
    gateway.terminate();
    let (code, said) = gateway.ended();
    assert!(code == Some(0) && !said.contains("WARN"), "{said}");
}

#[test]
fn where_it_may_not_it_says_so_and_takes_fewer_connections() {
    let folder = Folder::new();
    let (gateway, said) = Gateway::start_hearing(&mut serve_under(&folder, "256:256"));
    let warning = said.lines().find(|line| line.contains("connections_max: ")).expect("a warning");
    assert!(warning.contains("WARN") && warning.contains("it takes 128."), "{warning}");
    // More than there are descriptors for, and the store still has its own.
    let silent: Vec<_> = (0..400).map(|_| TcpStream::connect(gateway.address).expect("it listens")).collect();
    let tracker = Tracker::new("t");
    for seq in 1..=5 {
        let body = tracker.body(&seq.to_string(), None, &records(seq, seq)).to_string();
        assert_eq!(gateway.link().upload(&tracker, body.as_bytes()).expect("an answer").status, 200);
    }
    assert_eq!(gateway.link().track("t").len(), 5);
    drop(silent);
    gateway.line_with("connections_max is reached");
    gateway.terminate();
    let (code, said) = gateway.ended();
    assert!(code == Some(0) && !said.contains("cannot accept"), "{said}");
}
