//! What every bench needs of a server: a process of its own, watched through /proc and its metrics, ended by a signal
//! to its own id.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::Outcome;

/// The fleet key of the gateway.
pub(crate) const FLEET_KEY: &str = "a fleet key for the bench alone";
const READ_TOKEN: &str = "a-read-token-for-the-bench-alone";

/// `tidegate serve` on a database of that folder, with keys for the bench.
pub(crate) fn gateway(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    let store = format!("sqlite:{}", folder.join("tidegate.db").display());
    command.arg("serve").current_dir(folder);
    command.env("TIDEGATE_STORE", store).env("TIDEGATE_LISTEN", "127.0.0.1:0");
    for (name, value) in [
        ("TIDEGATE_FLEET_KEYS", FLEET_KEY),
        ("TIDEGATE_SEAL_KEYS", "a seal key for the bench alone"),
        ("TIDEGATE_ADMIN_TOKENS", "an-admin-token-for-the-bench-alone"),
        ("TIDEGATE_READ_TOKENS", READ_TOKEN),
        // A connection of the load lasts as long as the load.
        ("TIDEGATE_KEEPALIVE_REQUESTS", "1000000000"),
    ] {
        command.env(name, value);
    }
    command
}

/// What asks a gateway for its metrics, on a connection for this alone.
pub(crate) fn metrics_request() -> String {
    format!(
        "GET /metrics HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {READ_TOKEN}\r\nConnection: close\r\n\r\n"
    )
}

/// One number of the answer.
pub(crate) fn metric(answer: &str, name: &str) -> Outcome<f64> {
    let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(line.ok_or_else(|| format!("no {name} in: {answer}"))?.trim().parse()?)
}

/// A running server. Dropped, it is killed.
pub(crate) struct Process {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Starts a server that says `listening on http://ADDRESS` (or https) on stderr.
    pub(crate) fn start(mut command: Command) -> Outcome<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut lines = BufReader::new(child.stderr.take().ok_or("no stderr")?);
        let mut told = String::new();
        let address = loop {
            let from = told.len();
            if lines.read_line(&mut told)? == 0 {
                child.wait()?;
                return Err(format!("the server ended before it listened:\n{told}").into());
            }
            let url = told[from..].split_once("listening on ").map(|(_, url)| url);
            if let Some((_, address)) = url.and_then(|url| url.split_once("://")) {
                break address.trim().parse()?;
            }
        };
        // What it says from here on goes to our stderr; ends with the process.
        std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::stderr()));
        Ok(Self { child, address })
    }

    /// Its folder in /proc.
    pub(crate) fn proc(&self) -> String {
        format!("/proc/{}", self.child.id())
    }

    /// A figure of its memory in bytes: `VmRSS`, what it holds now, or `VmHWM`, the most that it ever held.
    pub(crate) fn memory(&self, figure: &str) -> Outcome<f64> {
        let status = std::fs::read_to_string(format!("{}/status", self.proc()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(figure)?.strip_prefix(':'));
        let kilobytes = line.ok_or_else(|| format!("no {figure}"))?.trim().trim_end_matches("kB").trim();
        Ok(kilobytes.parse::<f64>()? * 1024.0)
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(mut self) -> Outcome<()> {
        let id = self.child.id().to_string();
        let signalled = Command::new("kill").args(["-TERM", &id]).status()?;
        let ended = self.child.wait()?;
        if signalled.success() && ended.success() {
            Ok(())
        } else {
            Err(format!("the server ended with {ended}").into())
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
