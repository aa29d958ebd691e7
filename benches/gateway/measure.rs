//! One measurement of one server: warm up, load, look at the process, send again, stop, look at the disk.

use std::path::Path;
use std::time::Duration;

use crate::child::Server;
use crate::load::{self, Kind, Load, Until};
use crate::requests::{BATCH_RECORDS, Device, prepare};
use crate::{Outcome, machine, python};

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
    /// The same of the thread that commits alone.
    pub(crate) cpu_writer: f64,
    /// The load generator's CPU time of a batch, in microseconds.
    pub(crate) cpu_load: f64,
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
    let (load, cost) = timed(&server, fleet, connections, Kind::New, time)?;
    let (groups_after, uploads_after) = server.groups()?;
    let again = timed(&server, fleet, connections, Kind::Again, time / 2)?;
    let peak = server.peak_megabytes()?;
    server.stop()?;
    let mut figures = figures(&load, cost, peak, fleet.len())?;
    figures.group = (uploads_after - uploads) / (groups_after - groups);
    figures.again = Some((again.0.rate(), again.1.all));
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
    let (load, cost) = timed(&server, fleet, connections, Kind::New, time)?;
    let peak = server.peak_megabytes()?;
    // It knows no way to end but to be killed.
    drop(server);
    let mut figures = figures(&load, cost, peak, fleet.len())?;
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
    load::run(server.address(), fleet, connections, Kind::New, Until::EachOnce)?;
    Ok(())
}

/// CPU time of a batch, in microseconds.
#[derive(Clone, Copy, Debug)]
struct Cost {
    all: f64,
    writer: f64,
    load: f64,
}

/// Runs the load and looks at what it cost.
fn timed(
    server: &Server,
    fleet: &mut Vec<Device>,
    connections: usize,
    kind: Kind,
    time: Duration,
) -> Outcome<(Load, Cost)> {
    let own = || machine::cpu_seconds(Path::new("/proc/thread-self"));
    let (before, own_before) = (server.cpu()?, own()?);
    let load = load::run(server.address(), fleet, connections, kind, Until::Elapsed(time))?;
    let (after, own_after) = (server.cpu()?, own()?);
    let of_batch = |seconds: f64| 1e6 * seconds / f64::from(load.batches().max(1));
    let cost = Cost {
        all: of_batch(after.all - before.all),
        writer: of_batch(after.writer - before.writer),
        load: of_batch(own_after - own_before),
    };
    Ok((load, cost))
}

fn figures(load: &Load, cost: Cost, peak: f64, warm_up: usize) -> Outcome<Figures> {
    let milliseconds = |time: Duration| 1e3 * time.as_secs_f64();
    Ok(Figures {
        rate: load.rate(),
        p50: milliseconds(load.percentile(50)),
        p99: milliseconds(load.percentile(99)),
        stall: milliseconds(load.longest_stall()),
        group: 1.0,
        cpu: cost.all,
        cpu_writer: cost.writer,
        cpu_load: cost.load,
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
