//! `make bench-slow`: thousands of uploads that dribble in over slow links, held open at once, and quick ones
//! beside them. Two bars: what a slow connection costs the gateway in memory beyond the bytes received, and how
//! long quick uploads take meanwhile. Exits 1 where one is missed. Figures: `docs/performance.md`.

#![expect(clippy::print_stdout, reason = "the report is the product of this program")]

mod client;
mod server;
#[path = "../support/mod.rs"]
mod support;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use client::{Client, Quick, Slow};
use server::Server;

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Bar: bytes of memory a slow connection, beyond those received.
const MEMORY_MAX: f64 = 20_000.0;
/// Bar: p99 of quick uploads while the slow ones are held.
const P99_MAX: Duration = Duration::from_millis(250);
/// Each second is cut into so many parts, so that the slow uploads do not all come at once.
const PARTS: usize = 50;
/// File descriptors of this program beside its connections.
const SPARE: u64 = 200;

/// Holds slow uploads open, measures what they cost, and times quick ones beside them
#[derive(Debug, Parser)]
struct Arguments {
    /// Slow uploads at once
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Bytes a second of each
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// How long they dribble
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// Connections of quick uploads, each of which pauses between two of them
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    quick: u32,
    /// Milliseconds of that pause
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(..=10_000))]
    pause: u64,
    /// Over TLS. The bar of memory is not for these: the figure is reported alone
    #[arg(long)]
    tls: bool,
    /// What cargo passes to every bench
    #[arg(long, hide = true)]
    bench: bool,
}

/// What was measured.
struct Figures {
    /// Resident bytes of the gateway before, with all slow uploads held, and after.
    memory: [f64; 3],
    /// Bytes of bodies that it had received by then.
    received: f64,
    alone: Vec<Duration>,
    beside: Vec<Duration>,
}

fn main() -> Outcome<ExitCode> {
    let arguments = Arguments::parse();
    raise_own_limit(u64::from(arguments.connections) + SPARE)?;
    let server = Server::start(arguments.tls)?;
    let client = server.client();
    tell("quick uploads alone");
    let figures = measure(&arguments, &server, &client)?;
    server.stop()?;
    Ok(report(&arguments, &figures))
}

/// This program holds as many connections as the gateway does.
fn raise_own_limit(needed: u64) -> Outcome<()> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let raised = Rlimit { current: Some(needed), ..limit };
        setrlimit(Resource::Nofile, raised)
            .map_err(|error| format!("{needed} file descriptors are needed, see ulimit -Hn: {error}"))?;
    }
    Ok(())
}

fn measure(arguments: &Arguments, server: &Server, client: &Client) -> Outcome<Figures> {
    let mut quick: Vec<_> =
        (0..arguments.quick).map(|n| Quick::connect(client, n)).collect::<Outcome<_>>()?;
    let time = Duration::from_secs(arguments.seconds.min(10).into());
    let alone = quick_while(arguments, &mut quick, || {
        sleep(time);
        Ok(())
    })?;
    let before = server.resident_bytes()?;

    tell(&format!("opening {} slow uploads", arguments.connections));
    let mut slow: Vec<_> =
        (0..arguments.connections).map(|n| Slow::begin(client, n)).collect::<Outcome<_>>()?;
    server.wait_for("tidegate_connections", f64::from(arguments.connections))?;
    tell("dribbling, with quick uploads beside");
    let mut held = 0.0;
    let beside = quick_while(arguments, &mut quick, || {
        dribble(arguments, &mut slow)?;
        held = server.resident_bytes()?;
        Ok(())
    })?;
    let received = slow.iter().map(Slow::sent_of_body).sum::<u32>();

    tell("finishing them");
    for upload in &mut slow {
        upload.finish()?;
    }
    for upload in &mut slow {
        upload.expect_stored()?;
    }
    drop(slow);
    server.wait_for_none("tidegate_inflight_bytes")?;
    let after = server.resident_bytes()?;
    Ok(Figures { memory: [before, held, after], received: f64::from(received), alone, beside })
}

/// Sends each slow upload its bytes of every second.
fn dribble(arguments: &Arguments, slow: &mut [Slow]) -> Outcome<()> {
    let part = slow.len().div_ceil(PARTS).max(1);
    let begun = Instant::now();
    let turn = Duration::from_secs(1) / u32::try_from(PARTS)?;
    let mut turns = 0;
    for _ in 0..arguments.seconds {
        for uploads in slow.chunks_mut(part) {
            for upload in uploads {
                upload.send(arguments.rate as usize)?;
            }
            turns += 1;
            sleep((begun + turns * turn).saturating_duration_since(Instant::now()));
        }
    }
    Ok(())
}

/// Uploads quickly, over and over, while something else goes on; how long each took.
fn quick_while(
    arguments: &Arguments,
    quick: &mut [Quick],
    meanwhile: impl FnOnce() -> Outcome<()>,
) -> Outcome<Vec<Duration>> {
    let done = AtomicBool::new(false);
    let pause = Duration::from_millis(arguments.pause);
    scope(|threads| {
        let running: Vec<_> = quick
            .iter_mut()
            .map(|connection| {
                let done = &done;
                threads.spawn(move || -> Outcome<Vec<Duration>> {
                    let mut took = Vec::new();
                    while !done.load(Ordering::Relaxed) {
                        took.push(connection.upload()?);
                        sleep(pause);
                    }
                    Ok(took)
                })
            })
            .collect();
        let other = meanwhile();
        done.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for thread in running {
            all.extend(thread.join().map_err(|_| "a thread panicked")??);
        }
        other.map(|()| all)
    })
}

fn percentile(took: &mut [Duration], percent: usize) -> Duration {
    took.sort_unstable();
    took.get((took.len() * percent / 100).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
}

fn report(arguments: &Arguments, figures: &Figures) -> ExitCode {
    let [before, held, after] = figures.memory;
    let each = (held - before - figures.received) / f64::from(arguments.connections);
    let profile = if cfg!(debug_assertions) { "debug build" } else { "release build" };
    let transport = if arguments.tls { "TLS" } else { "plain" };
    println!(
        "\n{} slow uploads ({transport}, {} bytes/s each, {profile})",
        arguments.connections, arguments.rate
    );
    println!("| | |\n|---|---|");
    println!("| resident memory before, held, after | {} |", [before, held, after].map(megabytes).join(", "));
    println!("| bytes of bodies received while held | {:.0} |", figures.received);
    println!("| a connection, beyond these | {each:.0} bytes |");
    let mut p99 = Duration::ZERO;
    for (what, took) in [("alone", &figures.alone), ("beside the slow ones", &figures.beside)] {
        let mut took = took.clone();
        let (half, most) = (percentile(&mut took, 50), percentile(&mut took, 99));
        let longest = took.last().copied().unwrap_or_default();
        let figures = [half, most, longest].map(|time| format!("{:.2}", 1e3 * time.as_secs_f64())).join(", ");
        println!("| quick uploads {what}: how many; p50, p99, longest in ms | {}; {figures} |", took.len());
        p99 = most;
    }
    let mut bars = vec![
        (format!("memory a connection under {MEMORY_MAX:.0} bytes"), each <= MEMORY_MAX),
        (format!("p99 of quick uploads under {} ms", P99_MAX.as_millis()), p99 < P99_MAX),
        ("all slow uploads stored, nothing left in flight".to_owned(), true),
    ];
    if arguments.tls {
        bars.remove(0);
    }
    for (bar, met) in &bars {
        println!("| {bar} | {} |", if *met { "met" } else { "MISSED" });
    }
    if bars.iter().all(|(_, met)| *met) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn megabytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

fn tell(line: &str) {
    // Progress; where nobody listens there is nobody to tell.
    let _ = writeln!(std::io::stderr(), "{line}");
}
