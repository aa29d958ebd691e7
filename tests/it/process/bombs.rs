//! Bodies that are small on the wire and huge inside, at the real process: it neither grows nor stands still.

use std::thread;
use std::time::{Duration, Instant};

use tidegate::fleet::Encoding;

use crate::support::gateway::{Folder, Gateway, serve};
use crate::support::tracker::{Tracker, records};

/// Makes the body of a device.
type Bomb = fn(&str) -> Vec<u8>;

/// What is sent at the same time, and what becomes of it.
const HOSTILE: [(Bomb, &str); 8] = [
    (wrong, "quarantined"),
    (zstd_bomb, "decoded_too_large"),
    (zstd_bomb, "decoded_too_large"),
    (nesting, "invalid_json"),
    (zstd_bomb, "decoded_too_large"),
    (zstd_bomb, "decoded_too_large"),
    (nesting, "invalid_json"),
    (zstd_bomb, "decoded_too_large"),
];

/// A quarter of the default: an unoptimised gateway takes its time.
const DECODED_BYTES_MAX: usize = 4 << 20;

/// What decoding a body of that size may take at the worst: the body, text four times as long where bytes are
/// not UTF-8, and the records cut out of it; and as much again for what the allocator keeps.
const DECODING_KIB_MAX: usize = 2 * (1 + 4 + 1) * (DECODED_BYTES_MAX >> 10);

/// Loose, since tests run unoptimised and side by side; waiting behind what is decoded would take longer.
const SLOWEST: Duration = Duration::from_secs(5);

/// Memory of the process in KiB at its highest (`VmHWM`), or now (`VmRSS`).
fn memory(gateway: &Gateway, field: &str) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
    line.trim_matches([':', '\t', ' ']).trim_end_matches(" kB").parse().expect("a number")
}

/// A zstd frame that comes to 32 GiB: blocks of 128 KiB, each one byte repeated, four bytes on the wire.
fn zstd_bomb(id: &str) -> Vec<u8> {
    let block = u32::to_le_bytes((128 << 10) << 3 | 1 << 1);
    let blocks = [block[0], block[1], block[2], b' '].repeat((1 << 18) - 100);
    let last = [block[0] | 1, block[1], block[2], id.len().to_le_bytes()[0]];
    // A window of 2 GiB.
    [&b"\x28\xb5\x2f\xfd\x00\xa8"[..], &blocks, &last].concat()
}

/// Just under the limit: arrays in arrays, none of which closes.
fn nesting(_: &str) -> Vec<u8> {
    pack("zstd", &vec![b'['; DECODED_BYTES_MAX - 1])
}

/// Just under the limit: a batch in which everything is wrong, so that each byte is looked at in each pass.
fn wrong(id: &str) -> Vec<u8> {
    let head = format!(r#"{{"device_id":"{id}","batch_id":"w","records":["#);
    let record = [&br#"{"seq":1,"lat":912,"\ud800":""#[..], &[b'a', 0xff].repeat(900), b"\"},"].concat();
    let count = (DECODED_BYTES_MAX - head.len() - 4) / record.len();
    pack("gzip", &[head.as_bytes(), &record.repeat(count), b"7]}"].concat())
}

fn pack(form: &str, bytes: &[u8]) -> Vec<u8> {
    form.parse::<Encoding>().expect("a form").encode(bytes).expect("encodes")
}

#[test]
fn bombs_cost_bounded_memory_and_hold_nobody_up() {
    let folder = Folder::new();
    let limit = DECODED_BYTES_MAX.to_string();
    let gateway = Gateway::start_with(serve(&folder).env("TIDEGATE_DECODED_BYTES_MAX", limit));
    let quick = Tracker::new("quick");
    let mut link = gateway.link();
    let send = |link: &mut crate::support::link::Link, n: u64| -> u16 {
        let body = quick.body(&n.to_string(), None, &records(n, n)).to_string();
        link.upload(&quick, body.as_bytes()).expect("an answer").status
    };
    assert_eq!(send(&mut link, 0), 200);
    let before = memory(&gateway, "VmRSS");
    let bombs: Vec<_> = HOSTILE
        .iter()
        .enumerate()
        .map(|(n, (bomb, reason))| {
            let tracker = Tracker::new(&format!("hostile-{n}"));
            let body = bomb(tracker.id.as_str());
            assert!(body.len() <= 1 << 20, "{} bytes", body.len());
            let mut link = gateway.link();
            (thread::spawn(move || link.upload(&tracker, &body).expect("an answer")), reason)
        })
        .collect();
    let (mut n, mut slowest) = (0, Duration::ZERO);
    // Ends when the hostile ones are answered.
    while !bombs.iter().all(|(answer, _)| answer.is_finished()) {
        n += 1;
        let begun = Instant::now();
        assert_eq!(send(&mut link, n), 200);
        slowest = slowest.max(begun.elapsed());
    }
    for (answer, reason) in bombs {
        let answer = answer.join().expect("no panic");
        assert_eq!(answer.json()["reason"], *reason, "{answer:?}");
    }
    let grown = memory(&gateway, "VmHWM") - before;
    eprintln!("{n} quick uploads beside them, the slowest in {slowest:?}; grown by {grown} KiB");
    let decoders = thread::available_parallelism().map_or(2, usize::from).min(HOSTILE.len());
    assert!(grown < decoders * DECODING_KIB_MAX, "grown by {grown} KiB");
    assert!(n > 0 && slowest < SLOWEST, "{n} uploads, the slowest in {slowest:?}");
    gateway.kill_nine();
}
