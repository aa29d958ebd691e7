//! A gateway that answers before it commits, see `tests/it/process/simulate.rs`.

use std::process::ExitCode;

use tidegate::cli::{self, Terminal};

fn main() -> ExitCode {
    cli::run(std::env::args_os(), &mut Terminal::of_process())
}
