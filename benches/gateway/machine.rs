//! On what the figures were measured.

use std::fs::{File, read_to_string};
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use crate::Outcome;

/// Appends whose sync is timed.
const SYNCS: u32 = 200;

/// Cores, memory, kernel, and how long a sync of this folder's disk takes.
pub(crate) fn describe(folder: &Path) -> Outcome<String> {
    let cores = std::thread::available_parallelism()?;
    let memory = read_to_string("/proc/meminfo")?;
    let memory = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")).ok_or("no MemTotal")?;
    let memory = memory.trim().trim_end_matches("kB").trim().parse::<f64>()? / f64::from(1 << 20);
    let kernel = read_to_string("/proc/sys/kernel/osrelease")?;
    let kernel = kernel.trim().split('-').next().unwrap_or_default();
    let sync = sync_microseconds(folder)?;
    Ok(format!(
        "{cores} cores, {memory:.0} GiB of memory, Linux {kernel}, {sync:.0} µs to sync 8 KiB to disk"
    ))
}

/// CPU seconds of a thread (or a process of one thread), by its folder in /proc.
pub(crate) fn cpu_seconds(task: &Path) -> Outcome<f64> {
    let stat = read_to_string(task.join("schedstat"))?;
    Ok(stat.split(' ').next().ok_or("schedstat is empty")?.parse::<f64>()? / 1e9)
}

fn sync_microseconds(folder: &Path) -> Outcome<f64> {
    let path = folder.join("sync");
    let mut file = File::create(&path)?;
    let begun = Instant::now();
    for _ in 0..SYNCS {
        file.write_all(&[7; 8192])?;
        file.sync_data()?;
    }
    let took = begun.elapsed();
    std::fs::remove_file(path)?;
    Ok(1e6 * took.as_secs_f64() / f64::from(SYNCS))
}
