//! The second baseline: a plain Python gateway with the same guarantees, in `python_gateway.py`.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::child::Server;
use crate::support::FLEET_KEY;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/gateway/python_gateway.py");

/// The version of the interpreter and its `SQLite`; `None` where there is none.
pub(crate) fn version() -> Option<String> {
    let print = "import sys, sqlite3; print(sys.version.split()[0], 'with SQLite', sqlite3.sqlite_version)";
    let output = Command::new("python3").args(["-c", print]).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Starts it on a database of that folder.
pub(crate) fn start(folder: &Path) -> Outcome<Server> {
    let mut command = Command::new("python3");
    command.arg(SCRIPT).arg(folder.join("python.db")).env("TIDEGATE_FLEET_KEYS", FLEET_KEY);
    Server::start(command)
}
