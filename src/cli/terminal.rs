//! Where a command runs: its environment, its folder, its output. A value, so that tests bring their own.

use std::ffi::OsString;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::path::PathBuf;

use crate::ops::config;

/// What a command finds around it.
pub struct Terminal {
    /// The environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder where `tidegate.toml` is looked for.
    pub here: PathBuf,
    /// Whether a person watches stderr.
    pub watched: bool,
    out: Box<dyn Write>,
    err: Box<dyn Write>,
}

impl Terminal {
    /// The process's own.
    pub fn of_process() -> Self {
        Self {
            environment: config::environment().collect(),
            here: PathBuf::from("."),
            watched: io::stderr().is_terminal(),
            out: Box::new(io::stdout()),
            err: Box::new(io::stderr()),
        }
    }

    /// One made up.
    pub fn new(
        environment: Vec<(OsString, OsString)>,
        here: PathBuf,
        out: Box<dyn Write>,
        err: Box<dyn Write>,
    ) -> Self {
        Self { environment, here, watched: false, out, err }
    }

    /// Writes a line of data to stdout. A reader that has left (`tidegate … | head`) is no failure: what the
    /// command does besides printing goes on.
    pub(super) fn print(&mut self, line: &str) -> io::Result<()> {
        match writeln!(self.out, "{line}").and_then(|()| self.out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            done => done,
        }
    }

    /// Tells the person something on stderr; where nobody listens there is nobody to tell.
    pub(super) fn tell(&mut self, line: &str) {
        let _ = writeln!(self.err, "{line}");
    }

    /// Overwrites the line of progress, where a person watches.
    pub(super) fn progress(&mut self, line: &str) {
        if self.watched {
            let _ = write!(self.err, "\r{line}\x1b[K").and_then(|()| self.err.flush());
        }
    }

    /// Wipes the line of progress.
    pub(super) fn progress_done(&mut self) {
        self.progress("");
    }
}
