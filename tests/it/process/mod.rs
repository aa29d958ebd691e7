//! The binary as others run it: killed, stopped, out of space, started twice.

mod bombs;
mod cli;
mod conform;
mod crash;
mod help;
mod limits;
mod protocol;
mod proxies;
mod readme;
mod shutdown;
mod simulate;
mod start;
mod tls;
mod wire_bytes;
mod write_errors;

use std::process::Command;

use rusqlite::Connection;

use crate::support::gateway::{Folder, run, tidegate};

/// Where the folder's store is, as the command line takes it.
fn store_url(folder: &Folder) -> String {
    format!("sqlite:{}", folder.database().display())
}

/// `tidegate verify`, also while the gateway runs: no differences.
fn verify(folder: &Folder) {
    expect_no_differences(&mut tidegate(folder.path(), &["verify", "--store", &store_url(folder)]));
}

fn expect_no_differences(verify: &mut Command) {
    let done = run(verify);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{}", done.out);
    assert!(done.out.starts_with("checked ") && done.out.ends_with(": no differences\n"), "{}", done.out);
}

/// Opens the database as any other program would.
fn open(folder: &Folder) -> Connection {
    Connection::open(folder.database()).expect("a database")
}

/// Holds the database's write lock until it is dropped.
fn lock(folder: &Folder) -> Connection {
    let conn = open(folder);
    conn.busy_timeout(crate::support::gateway::PATIENCE).expect("an option");
    conn.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    conn
}
