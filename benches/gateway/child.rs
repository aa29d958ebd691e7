//! A server of its own process: started, watched through /proc, ended by a signal to its own id.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::requests::FLEET_KEY;
use crate::{Outcome, machine};

/// Ticks a second of the process's times in /proc, on every Linux of today.
const TICKS: f64 = 100.0;
const READ_TOKEN: &str = "a-read-token-for-the-bench-alone";

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// Of all threads, also those that ended.
    pub(crate) all: f64,
    /// Of the one that commits.
    pub(crate) writer: f64,
}

/// A running server. Dropped, it is killed.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
}

impl Server {
    /// `tidegate serve` on a database of that folder.
    pub(crate) fn gateway(folder: &Path) -> Outcome<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        let store = format!("sqlite:{}", folder.join("tidegate.db").display());
        command.arg("serve").current_dir(folder);
        command.env("TIDEGATE_STORE", store).env("TIDEGATE_LISTEN", "127.0.0.1:0");
        for (name, value) in [
            ("TIDEGATE_FLEET_KEYS", FLEET_KEY),
            ("TIDEGATE_SEAL_KEYS", "a seal key for the bench alone"),
            ("TIDEGATE_ADMIN_TOKENS", "an-admin-token-for-the-bench-alone"),
            ("TIDEGATE_READ_TOKENS", READ_TOKEN),
            ("TIDEGATE_SQLITE_CACHE_BYTES", "16777216"),
            // A connection of the load lasts as long as the load.
            ("TIDEGATE_KEEPALIVE_REQUESTS", "1000000000"),
            ("TIDEGATE_LOG", "warn"),
        ] {
            command.env(name, value);
        }
        Self::start(command)
    }

    /// Starts a server that says `listening on http://ADDRESS` on stderr.
    pub(crate) fn start(mut command: Command) -> Outcome<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let stderr = child.stderr.take().ok_or("no stderr")?;
        let mut lines = BufReader::new(stderr);
        let mut told = String::new();
        let address = loop {
            let from = told.len();
            if lines.read_line(&mut told)? == 0 {
                child.wait()?;
                return Err(format!("the server ended before it listened:\n{told}").into());
            }
            if let Some((_, address)) = told[from..].split_once("listening on http://") {
                break address.trim().parse()?;
            }
        };
        // What it says from here on goes to our stderr; ends with the process.
        std::thread::spawn(move || std::io::copy(&mut lines.by_ref(), &mut std::io::stderr()));
        Ok(Self { child, address })
    }

    /// Most memory it ever held, in megabytes (10^6 bytes).
    pub(crate) fn peak_megabytes(&self) -> Outcome<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("no VmHWM")?;
        Ok(peak.trim().trim_end_matches("kB").trim().parse::<f64>()? * 1024.0 / 1e6)
    }

    /// CPU time it used so far.
    pub(crate) fn cpu(&self) -> Outcome<Cpu> {
        let process = format!("/proc/{}", self.child.id());
        let stat = std::fs::read_to_string(format!("{process}/stat"))?;
        // Behind the name in parentheses: utime and stime are the 12th and 13th fields.
        let behind = stat.rsplit_once(')').ok_or("no name in stat")?.1;
        let times = behind.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        let all = times.sum::<Result<f64, _>>()? / TICKS;
        let mut writer = 0.0;
        for task in std::fs::read_dir(format!("{process}/task"))? {
            let task = task?.path();
            // A thread may end while we look.
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            if name.trim() == "writer" {
                writer += machine::cpu_seconds(&task)?;
            }
        }
        Ok(Cpu { all, writer })
    }

    /// Groups and uploads in them so far, as `/metrics` tells.
    pub(crate) fn groups(&self) -> Outcome<(f64, f64)> {
        let mut stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        let head = format!("Host: gateway\r\nAuthorization: Bearer {READ_TOKEN}\r\nConnection: close\r\n");
        stream.write_all(format!("GET /metrics HTTP/1.1\r\n{head}\r\n").as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let value = |name: &str| -> Outcome<f64> {
            let line = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            Ok(line.ok_or_else(|| format!("no {name} in: {answer}"))?.trim().parse()?)
        };
        Ok((value("tidegate_group_uploads_count")?, value("tidegate_group_uploads_sum")?))
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

impl Drop for Server {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
