//! One measurement of one server: warm up, load, look at the process, send again, stop, look at the disk.

use std::path::Path;
use std::time::Duration;

use crate::Outcome;
use crate::child::Server;
use crate::load::{self, Kind, Load, Until};
use crate::python;
use crate::requests::{BATCH_RECORDS, Device, prepare};

/// Requests made ready for each second of load; more than any server here answers.
const READY_A_SECOND: usize = 16_000;
/// With one connection a server waits for the disk at each batch.
const READY_A_SECOND_ALONE: usize = 5000;

/// What one measurement found.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// Batches a second.
    pub(crate) rate: f64,
    /// Times of the answer, in milliseconds.
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    /// The longest time without any answer, in milliseconds.
    pub(crate) stall: f64,
    /// Mean batches a transaction.
    pub(crate) group: f64,
    /// The server's CPU time of a batch, in microseconds.
    pub(crate) cpu: f64,
    /// Most memory, in megabytes.
    pub(crate) peak: f64,
    /// Bytes of the database of each record in it.
    pub(crate) disk: f64,
    /// Records added.
    pub(crate) records: u64,
    /// The same batches sent again: batches a second, and the server's CPU time of one.
    pub(crate) again: Option<(f64, f64)>,
}

/// Measures the gateway on the database of a folder that holds so many records already.
pub(crate) fn measure_gateway(
    folder: &Path,
    fleet: &mut Vec<Device>,
    connections: usize,
    time: Duration,
    records_before: u64,
) -> Outcome<Figures> {
    let server = Server::gateway(folder)?;
    warm_up(&server, fleet, connections, time, READY_A_SECOND)?;
    let (groups, uploads) = server.groups()?;
    let (load, cpu) = timed(&server, fleet, connections, Kind::New, time)?;
    let (groups_after, uploads_after) = server.groups()?;
    let again = timed(&server, fleet, connections, Kind::Again, time / 2)?;
    let peak = server.peak_megabytes()?;
    server.stop()?;
    let mut figures = figures(&load, cpu, peak, fleet.len())?;
    figures.group = (uploads_after - uploads) / (groups_after - groups);
    figures.again = Some((again.0.rate(), again.1));
    figures.disk =
        bytes_on_disk(folder, "tidegate.db")? / f64::from(u32::try_from(records_before + figures.records)?);
    Ok(figures)
}

/// Measures the Python gateway on a new database.
pub(crate) fn measure_python(
    folder: &Path,
    fleet: &mut Vec<Device>,
    connections: usize,
    time: Duration,
) -> Outcome<Figures> {
    let server = python::start(folder)?;
    warm_up(&server, fleet, connections, time, READY_A_SECOND_ALONE)?;
    let (load, cpu) = timed(&server, fleet, connections, Kind::New, time)?;
    let peak = server.peak_megabytes()?;
    // It knows no way to end but to be killed.
    drop(server);
    let mut figures = figures(&load, cpu, peak, fleet.len())?;
    figures.disk = bytes_on_disk(folder, "python.db")? / f64::from(u32::try_from(figures.records)?);
    Ok(figures)
}

/// Prepares the load, and lets every device be seen once.
fn warm_up(
    server: &Server,
    fleet: &mut Vec<Device>,
    connections: usize,
    time: Duration,
    ready_a_second: usize,
) -> Outcome<()> {
    let ready = if connections == 1 { READY_A_SECOND_ALONE } else { ready_a_second };
    let seconds = usize::try_from(time.as_secs())?;
    let devices = fleet.len();
    prepare(fleet, ready * seconds + devices);
    load::run(server.address, fleet, connections, Kind::New, Until::EachOnce)?;
    Ok(())
}

/// Runs the load; with the server's CPU time of a batch, in microseconds.
fn timed(
    server: &Server,
    fleet: &mut Vec<Device>,
    connections: usize,
    kind: Kind,
    time: Duration,
) -> Outcome<(Load, f64)> {
    let before = server.cpu_seconds()?;
    let load = load::run(server.address, fleet, connections, kind, Until::Elapsed(time))?;
    let cpu = server.cpu_seconds()? - before;
    let batches = f64::from(load.batches().max(1));
    Ok((load, 1e6 * cpu / batches))
}

fn figures(load: &Load, cpu: f64, peak: f64, warm_up: usize) -> Outcome<Figures> {
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    Ok(Figures {
        rate: load.rate(),
        p50: milliseconds(load.percentile(50)),
        p99: milliseconds(load.percentile(99)),
        stall: milliseconds(load.longest_stall()),
        group: 1.0,
        cpu,
        peak,
        disk: 0.0,
        records: (u64::from(load.batches()) + u64::try_from(warm_up)?) * u64::from(BATCH_RECORDS),
        again: None,
    })
}

/// The database with its WAL.
fn bytes_on_disk(folder: &Path, name: &str) -> Outcome<f64> {
    let length = |name: String| std::fs::metadata(folder.join(name)).map_or(0, |file| file.len());
    let bytes = length(name.to_owned()) + length(format!("{name}-wal"));
    Ok(f64::from(u32::try_from(bytes / 1024)?) * 1024.0)
}
