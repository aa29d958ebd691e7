//! `tidegate simulate`: a fleet behind a bad link, and its own books to compare the gateway with.

mod broken;
mod link;
mod member;
mod run;
mod show;
mod tally;

use std::time::Duration;

use clap::Args;

use self::link::Link;
use self::run::{Fleet, Pace};
use super::keys::{FleetKeyFlag, Hidden};
use super::settings::StoreSettings;
use super::web::Trust;
use super::{Failure, Terminal};
use crate::domain::ids::DeviceId;
use crate::domain::time::Timestamp;
use crate::fleet::{Encoding, Encodings, Ledger, Rates, Script};
use crate::ops::clock::{Clock as _, SystemClock};
use crate::ops::secrets::FILE;
use crate::ops::tokens::Role;

const EXAMPLES: &str = "\
Plays a fleet of trackers against any running gateway, over HTTP, behind a link that loses requests and answers,
breaks off in the middle, delivers copies, and lets newer uploads overtake older ones. The trackers do what real ones
do: retry the same bytes, pack unacknowledged records anew, send the newest first after a long silence, use two links,
reboot with and without an epoch, start at 1970 or without a position, repeat and contradict their newest record, and
send voltages that are no numbers. Half of them always name an epoch, the others never do.

A ledger of its own, written from the contract and not from the gateway's code, knows what must come of it. Every
receipt is compared with it, states are read on the way (they must show what was acknowledged, and never move
backwards), and at the end every state and every record of every track. Whatever really fails on the way (the gateway
restarts, 503) is retried for a minute. Differences name device and key.

What the trackers do follows from --seed; with --batches and --prefix they send the very same bytes in every run.
Devices are fresh ones, and stay on the gateway afterwards. Ctrl-C stops making records; what waits is delivered and compared,
too. A second Ctrl-C gives up. The books of a run take about 200 bytes a record in memory; at 1,000,000 records no
more are made.

The fleet key is found as `tidegate send` finds it. The read token is the first of: --token, TIDEGATE_READ_TOKENS or
read_tokens of tidegate.toml, secrets.toml in the data directory; beside --fleet-key it must be given, since the gateway
is another one. Exits 0 where gateway and ledger agree, 1 where they differ or the run failed.

Examples:
  tidegate simulate
  tidegate simulate --devices 200 --duration 60s --loss 0.3 --duplicate 0.3 --reorder 0.3
  tidegate simulate --seed 42 --prefix rerun --batches 100 --interval 0
  tidegate simulate --live --history 48h --devices 12 --url https://gateway.example --token \"$READ_TOKEN\"";

/// Most devices of a run.
const DEVICES_MAX: u32 = 10_000;
/// Seconds between two uploads of a tracker, unless told otherwise.
const INTERVAL: Duration = Duration::from_millis(250);
const LIVE_INTERVAL: Duration = Duration::from_secs(10);
const DURATION: Duration = Duration::from_secs(30);
/// Seconds between two records of the past.
const HISTORY_PERIOD: u32 = 600;

/// Play a fleet behind a bad link, and compare the gateway with an own ledger
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Simulate {
    /// The gateway, without a path
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080")]
    url: String,
    #[command(flatten)]
    trust: Trust,
    /// How many trackers
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(DEVICES_MAX)))]
    devices: u32,
    /// How long new records are made: seconds, or 60s, 5m, 2h [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    duration: Option<Duration>,
    /// In place of a duration: so many uploads of each tracker, before what then waits is delivered
    #[arg(long, value_name = "N", conflicts_with = "duration")]
    batches: Option<u32>,
    /// Time between two uploads of a tracker, on average; 0: as fast as answers come [default: 0.25, live: 10]
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    interval: Option<Duration>,
    /// What the run follows from; random, and printed, unless given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// How often a request or an answer is lost, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.1, value_parser = read_rate)]
    loss: f64,
    /// How often a copy of an upload arrives once more, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.1, value_parser = read_rate)]
    duplicate: f64,
    /// How often an upload is held back while newer ones overtake it, 0 to 1
    #[arg(long, value_name = "P", default_value_t = 0.1, value_parser = read_rate)]
    reorder: f64,
    /// Most records of a batch
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
    records: u16,
    /// How bodies travel: json, cbor, gzip, zlib, zstd, cbor+gzip, cbor+zlib, cbor+zstd, or mix
    #[arg(long, value_name = "NAME", default_value = "mix", value_parser = read_encodings)]
    encoding: Encodings,
    /// Sail in real time until Ctrl-C or --duration: records stamped now, an upload every 10 s
    #[arg(long, conflicts_with = "batches")]
    live: bool,
    /// Begin a live run with a past: so long at sea, a record each ten minutes, delivered at once
    #[arg(long, value_name = "TIME", requires = "live", value_parser = read_time)]
    history: Option<Duration>,
    /// Device ids are PREFIX-000, PREFIX-001, … [default: from time and seed, so that they are fresh]
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
    /// Read token; the list of processes shows it, so better configure it
    #[arg(long, value_name = "TOKEN")]
    token: Option<Hidden>,
    #[command(flatten)]
    fleet_key: FleetKeyFlag,
    #[command(flatten)]
    settings: StoreSettings,
}

pub(super) fn run(command: &Simulate, terminal: &mut Terminal) -> Result<(), Failure> {
    let seed = command.seed.map_or_else(random_seed, Ok)?;
    let ids = device_ids(command, seed)?;
    let key = command.fleet_key.resolve(&command.settings, terminal)?;
    let link = Link::new(&command.url, &command.trust, key, &token(command, terminal)?)?;
    let pace = Pace {
        duration: command.duration.or((command.batches.is_none() && !command.live).then_some(DURATION)),
        uploads: command.batches.map(u64::from),
        interval: command.interval.unwrap_or(if command.live { LIVE_INTERVAL } else { INTERVAL }),
        live: command.live,
    };
    let begin = command.history.map(begun);
    let rates = Rates { loss: command.loss, duplicate: command.duplicate, reorder: command.reorder };
    let (first, last) = (ids.first().cloned(), ids.last().cloned());
    let members = (0..).zip(ids).map(|(index, id)| {
        let records_max = usize::from(command.records);
        let script = Script::new(seed, index, id.clone(), rates, command.encoding, records_max);
        let script = match begin {
            Some((begin, now)) => script.begun_at(begin, HISTORY_PERIOD, now),
            None => script,
        };
        (script, Ledger::new(id))
    });
    let members = members.collect();
    if let (Some(first), Some(last)) = (first, last) {
        terminal.print(&format!("seed {seed}, devices {first} to {last}"))?;
    }
    Fleet::new(link, pace, seed).sail(members, terminal)
}

/// When a fleet began that has been at sea for so long, and the time now: whole seconds, as every style can say them.
fn begun(history: Duration) -> (Timestamp, Timestamp) {
    let now = Timestamp::EPOCH.plus_seconds(SystemClock.now().to_micros().div_euclid(1_000_000));
    (now.plus_seconds(-i64::try_from(history.as_secs()).unwrap_or(0)), now)
}

fn token(command: &Simulate, terminal: &Terminal) -> Result<String, Failure> {
    if let Some(Hidden(token)) = &command.token {
        return Ok(token.clone());
    }
    if command.fleet_key.is_given() {
        // A key of its own means another gateway: it must not see this one's token.
        return Err(Failure::fault("--token", "is needed beside --fleet-key"));
    }
    let loaded = command.settings.load(terminal)?;
    let data_dir = loaded.config.data_dir();
    loaded.secrets.first_token(Role::Read, data_dir)?.ok_or_else(|| {
        let nowhere = format!("is neither configured nor in {}", data_dir.join(FILE).display());
        Failure::fault("read_tokens", nowhere)
    })
}

/// Short enough to be typed again.
fn random_seed() -> Result<u64, Failure> {
    let mut bytes = [0; 4];
    getrandom::fill(&mut bytes)
        .map_err(|error| Failure::Failed(format!("no random numbers to be had: {error}; give a --seed")))?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

fn device_ids(command: &Simulate, seed: u64) -> Result<Vec<DeviceId>, Failure> {
    let prefix = command.prefix.clone().unwrap_or_else(|| fresh_prefix(SystemClock.now(), seed));
    let id = |index| {
        DeviceId::parse(&format!("{prefix}-{index:03}")).ok_or_else(|| {
            Failure::fault("--prefix", "gives no device ids: they are 1 to 64 of A-Z a-z 0-9 . _ : -")
        })
    };
    (0..command.devices).map(id).collect()
}

/// `sim-20260331T041200-002a`: the time, and the seed's last digits in hexadecimal.
fn fresh_prefix(now: Timestamp, seed: u64) -> String {
    let time: String = now.to_string().chars().take(19).filter(|c| !matches!(c, '-' | ':')).collect();
    format!("sim-{time}-{:04x}", seed & 0xffff)
}

fn read_rate(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|rate| (0.0..=1.0).contains(rate))
        .ok_or_else(|| "not a number from 0 to 1".to_owned())
}

fn read_time(text: &str) -> Result<Duration, String> {
    let (number, seconds) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1.0),
        Some(b'm') => (&text[..text.len() - 1], 60.0),
        Some(b'h') => (&text[..text.len() - 1], 3600.0),
        _ => (text, 1.0),
    };
    let seconds = number.parse().ok().map(|n: f64| n * seconds);
    seconds
        .filter(|seconds| (0.0..=31_536_000.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| "not a time such as 30, 60s, 5m or 2h, up to a year".to_owned())
}

fn read_encodings(name: &str) -> Result<Encodings, String> {
    if name == "mix" {
        return Ok(Encodings::Mix);
    }
    name.parse::<Encoding>().map(Encodings::One).map_err(|why| format!("{why} or mix"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("30", Some(30_000)),
            ("60s", Some(60_000)),
            ("0.25", Some(250)),
            ("5m", Some(300_000)),
            ("2h", Some(7_200_000)),
            ("0", Some(0)),
            ("-1", None),
            ("s", None),
            ("", None),
            ("nan", None),
            ("inf", None),
            ("9000h", None),
            ("5é", None),
        ] {
            assert_eq!(read_time(text).ok(), expected.map(Duration::from_millis), "{text}");
        }
    }

    #[test]
    fn rates_and_encodings_are_read() {
        assert_eq!([read_rate("0"), read_rate("0.3"), read_rate("1")], [Ok(0.0), Ok(0.3), Ok(1.0)]);
        assert!(["1.1", "-0.1", "nan", "", "30%"].iter().all(|text| read_rate(text).is_err()));
        assert_eq!(read_encodings("mix"), Ok(Encodings::Mix));
        assert_eq!(read_encodings("json"), Ok(Encodings::One(Encoding::default())));
        assert!(read_encodings("deflate").is_err_and(|why| why.ends_with("cbor+zstd or mix")));
    }

    #[test]
    fn a_fresh_prefix_tells_time_and_seed() {
        let now = Timestamp::from_micros(1_774_930_320_500_000).expect("in range");
        assert_eq!(fresh_prefix(now, 42), "sim-20260331T041200-002a");
        assert_eq!(fresh_prefix(now, u64::MAX), "sim-20260331T041200-ffff");
    }
}
