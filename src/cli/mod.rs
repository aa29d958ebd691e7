//! The commands, one file each. Data goes to stdout, the rest to stderr.

mod backoff;
mod conform;
mod failure;
mod keys;
mod reload;
mod send;
mod serve;
mod settings;
mod simulate;
mod terminal;
mod verify;
mod web;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::failure::Failure;
pub use self::terminal::Terminal;

const EXAMPLES: &str = "\
Examples:
  tidegate serve                                start the gateway with tidegate.toml, or with defaults
  tidegate keys derive track-exp-084            the key to flash into that tracker
  tidegate send batch.json                      sign and upload a batch as that tracker would
  tidegate simulate --loss 0.3                  play a fleet behind a bad link, and compare
  tidegate verify                               check the whole database while the gateway runs
  tidegate conform http://127.0.0.1:8080        check a running gateway against the contract's cases

Every command that needs the store or its keys reads the same configuration: flags over TIDEGATE_… in
the environment over tidegate.toml. Exit codes: 0 done, 1 failed, 2 wrong usage or configuration.";

/// Satellite telemetry ingestion gateway: whatever arrives late, twice, out of order or after a crash, a
/// device's current state never moves backwards, and nothing that was acknowledged is lost.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, after_help = EXAMPLES, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Send(send::Send),
    Simulate(simulate::Simulate),
    #[command(subcommand)]
    Keys(keys::Keys),
    Verify(verify::Verify),
    Conform(conform::Conform),
}

/// Runs the command that the arguments (the program's name first) name, and says how it went.
pub fn run(arguments: impl IntoIterator<Item = OsString>, terminal: &mut Terminal) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(asked) => {
            // Help and version go to stdout with 0, wrong usage to stderr with 2; a closed pipe is no failure.
            let _ = asked.print();
            return ExitCode::from(u8::try_from(asked.exit_code()).unwrap_or(failure::CONFIGURATION));
        }
    };
    let done = match cli.command {
        Command::Serve(command) => serve::run(&command, terminal),
        Command::Send(command) => send::run(&command, terminal),
        Command::Simulate(command) => simulate::run(&command, terminal),
        Command::Keys(command) => keys::run(&command, terminal),
        Command::Verify(command) => verify::run(&command, terminal),
        Command::Conform(command) => conform::run(&command, terminal),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.tell(terminal),
    }
}

#[cfg(test)]
mod tests;
