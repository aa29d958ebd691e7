//! Why a command failed, and its exit code.

use std::process::ExitCode;

use super::Terminal;
use crate::ops::config::Fault;
use crate::store::StoreError;

/// Exit code of a command that could not do what it was asked to.
const FAILED: u8 = 1;
/// Exit code of wrong usage and wrong configuration: nothing was done, and nothing will be until it is changed.
pub(super) const CONFIGURATION: u8 = 2;

#[derive(Debug)]
pub(super) enum Failure {
    /// The configuration is wrong: all of its faults.
    Configuration(Vec<Fault>),
    /// Something did not work.
    Failed(String),
    /// What there was to say has been said.
    Told,
}

impl Failure {
    /// A single fault of the configuration.
    pub(super) fn fault(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Configuration(vec![Fault::new(key, text)])
    }

    /// The failure, one line a fault.
    pub(super) fn lines(self) -> Vec<String> {
        match self {
            Self::Configuration(faults) => faults.iter().map(ToString::to_string).collect(),
            Self::Failed(text) => vec![text],
            Self::Told => Vec::new(),
        }
    }

    /// Prints the failure, one line a fault, and gives its exit code.
    pub(super) fn tell(self, terminal: &mut Terminal) -> ExitCode {
        let code = if matches!(self, Self::Configuration(_)) { CONFIGURATION } else { FAILED };
        for line in self.lines() {
            terminal.tell(&format!("tidegate: {line}"));
        }
        ExitCode::from(code)
    }
}

impl From<Vec<Fault>> for Failure {
    fn from(faults: Vec<Fault>) -> Self {
        Self::Configuration(faults)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.chain())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(format!("cannot write the output: {error}"))
    }
}
