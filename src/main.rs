//! The `tidegate` binary.

use std::process::ExitCode;

use tidegate::cli::{self, Terminal};

fn main() -> ExitCode {
    cli::run(std::env::args_os(), &mut Terminal::of_process())
}
