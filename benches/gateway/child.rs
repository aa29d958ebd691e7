//! A server of the comparison: what it costs, and how its groups grow.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::{self, Process};
use crate::{Outcome, machine};

/// Ticks a second of the process's times in /proc, on every Linux of today.
const TICKS: f64 = 100.0;

/// CPU time in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// Of all threads, also those that ended.
    pub(crate) all: f64,
    /// Of the one that commits.
    pub(crate) writer: f64,
}

/// A running server.
pub(crate) struct Server {
    process: Process,
}

impl Server {
    /// `tidegate serve` on a database of that folder.
    pub(crate) fn gateway(folder: &Path) -> Outcome<Self> {
        let mut command = support::gateway(folder);
        command.env("TIDEGATE_SQLITE_CACHE_BYTES", "16777216").env("TIDEGATE_LOG", "warn");
        Self::start(command)
    }

    /// Any other one that says where it listens.
    pub(crate) fn start(command: Command) -> Outcome<Self> {
        Ok(Self { process: Process::start(command)? })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.process.address
    }

    /// Most memory it ever held, in megabytes (10^6 bytes).
    pub(crate) fn peak_megabytes(&self) -> Outcome<f64> {
        Ok(self.process.memory("VmHWM")? / 1e6)
    }

    /// CPU time it used so far.
    pub(crate) fn cpu(&self) -> Outcome<Cpu> {
        let process = self.process.proc();
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
        let mut stream = TcpStream::connect(self.address())?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(support::metrics_request().as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let value = |name: &str| support::metric(&answer, name);
        Ok((value("tidegate_group_uploads_count")?, value("tidegate_group_uploads_sum")?))
    }

    /// Asks it to end, and waits until it has.
    pub(crate) fn stop(self) -> Outcome<()> {
        self.process.stop()
    }
}
