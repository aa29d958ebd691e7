//! `make bench`: the gateway end to end over loopback HTTP with real signatures, beside two baselines that store
//! the same rows, interleaved with it in rounds so that a noisy machine disturbs all alike. What is measured and
//! what the figures were: `docs/performance.md`.

#![expect(clippy::print_stdout, reason = "the report is the product of this program")]

mod bare;
mod child;
mod fill;
mod load;
mod machine;
mod measure;
mod python;
mod report;
mod requests;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;

use bare::Bare;
use measure::{Figures, measure_gateway, measure_python};
use report::Row;
use requests::Device;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Compares the gateway with a bare rusqlite loop and a plain Python gateway
#[derive(Debug, Parser)]
struct Arguments {
    /// Rows already in the log for the second half of the figures; 0 leaves that half out
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(..=1_000_000_000))]
    rows: u64,
    /// How often everything is measured; the report gives medians
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=60))]
    seconds: u32,
    /// Connections at once
    #[arg(long, value_delimiter = ',', default_values_t = [1, 64, 256], value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: Vec<u16>,
    /// Devices of the fleet
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    devices: u32,
    /// Leave the Python gateway out
    #[arg(long)]
    skip_python: bool,
    /// Leave the bare loop out
    #[arg(long)]
    skip_bare: bool,
    /// Where the databases are made; must be on a real disk
    #[arg(long, default_value = env!("CARGO_TARGET_TMPDIR"))]
    folder: PathBuf,
    /// What cargo passes to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// A database with rows in it, twice: one for the gateway, one for the bare loop.
struct Filled {
    gateway: PathBuf,
    fleet: Vec<Device>,
    records: u64,
    bare: Option<(Bare, Vec<Device>)>,
}

fn main() -> Outcome<()> {
    let arguments = Arguments::parse();
    let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(&arguments.folder)?;
    println!("{}", machine::describe(folder.path())?);
    let python = if arguments.skip_python { None } else { python::version() };
    println!("Python gateway: {}", python.as_deref().unwrap_or("left out"));
    let mut filled = if arguments.rows == 0 { None } else { Some(fill(&arguments, folder.path())?) };
    let mut rows = Vec::new();
    for round in 1..=arguments.rounds {
        for &connections in &arguments.connections {
            tell(&format!("round {round} of {}, {connections} connections", arguments.rounds));
            let row =
                measure(&arguments, folder.path(), connections.into(), python.is_some(), filled.as_mut())?;
            rows.push(row);
        }
    }
    println!("\n{}", report::report(&rows, arguments.rows));
    Ok(())
}

fn tell(line: &str) {
    // Progress; where nobody listens there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn fill(arguments: &Arguments, folder: &Path) -> Outcome<Filled> {
    let mut fleet = requests::fleet(arguments.devices)?;
    let gateway = folder.join("filled");
    let database = gateway.join("tidegate.db");
    fill::fill(&database, &mut fleet, arguments.rows)?;
    let bare = if arguments.skip_bare {
        None
    } else {
        let copy = folder.join("bare-filled.db");
        std::fs::copy(&database, &copy)?;
        Some((Bare::open(&copy, &fleet)?, fleet.clone()))
    };
    Ok(Filled { gateway, fleet, records: arguments.rows, bare })
}

/// Everything once at so many connections, one after the other.
fn measure(
    arguments: &Arguments,
    folder: &Path,
    connections: usize,
    with_python: bool,
    filled: Option<&mut Filled>,
) -> Outcome<Row> {
    let time = Duration::from_secs(arguments.seconds.into());
    let own = tempfile::tempdir_in(folder)?;
    let fresh = measure_gateway(own.path(), &mut requests::fleet(arguments.devices)?, connections, time, 0)?;
    let bare = if arguments.skip_bare {
        None
    } else {
        let mut fleet = requests::fleet(arguments.devices)?;
        let mut bare = Bare::open(&own.path().join("bare.db"), &fleet)?;
        Some(bare.run(&mut fleet, group(&fresh), time)?)
    };
    let python = if with_python {
        Some(measure_python(own.path(), &mut requests::fleet(arguments.devices)?, connections, time)?)
    } else {
        None
    };
    drop(own);
    let (behind, bare_behind) = match filled {
        None => (None, None),
        Some(filled) => {
            let figures =
                measure_gateway(&filled.gateway, &mut filled.fleet, connections, time, filled.records)?;
            filled.records += figures.records;
            let group = group(&figures);
            let bare = filled.bare.as_mut().map(|(bare, fleet)| bare.run(fleet, group, time)).transpose()?;
            (Some(figures), bare)
        }
    };
    Ok(Row { connections, fresh, bare, python, behind, bare_behind })
}

/// The gateway's mean group, in whole batches.
fn group(figures: &Figures) -> u32 {
    (1..=512).find(|group| f64::from(*group) + 0.5 > figures.group).unwrap_or(512)
}
