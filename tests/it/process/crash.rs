//! SIGKILL and SIGTERM in the middle of load, round after round on one database: what was acknowledged is there
//! exactly once, and what was not is there at most once.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use super::verify;
use crate::support::gateway::{Folder, Gateway, PATIENCE, serve};
use crate::support::link::{Link, request};
use crate::support::tracker::{Tracker, record, records};

const KILLS: usize = 12;
const STOPS: usize = 3;
const MEMBERS: u64 = 8;
/// Acknowledgements before each end: from the very first one to well into group commits.
const ACKNOWLEDGED: RangeInclusive<usize> = 1..=160;

#[derive(Clone)]
struct Batch {
    seqs: RangeInclusive<u64>,
    body: Vec<u8>,
}

/// One tracker with its own books.
struct Member {
    tracker: Tracker,
    epoch_id: Option<u64>,
    rng: ChaCha8Rng,
    next_seq: u64,
    batches: u64,
    sent: BTreeSet<u64>,
    acknowledged: BTreeSet<u64>,
    /// Sent, and no answer came: it is sent again until one does.
    pending: Option<Batch>,
    last: RangeInclusive<u64>,
}

impl Member {
    fn new(number: u64, seed: u64) -> Self {
        Self {
            tracker: Tracker::new(&format!("buoy-{number}")),
            epoch_id: (number % 2 == 1).then_some(number),
            rng: ChaCha8Rng::seed_from_u64(seed.wrapping_add(number)),
            next_seq: 0,
            batches: 0,
            sent: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            pending: None,
            last: 0..=0,
        }
    }

    /// Mostly what comes next; sometimes with a gap before it, with a piece of what was sent before (which
    /// fills gaps), or the last records once more under another batch id.
    fn next_batch(&mut self) -> Batch {
        let count = self.rng.random_range(1..=16);
        let seqs = match self.rng.random_range(0..10) {
            0 => self.last.clone(),
            1 => self.next_seq.saturating_sub(self.rng.random_range(1..40))..=self.next_seq + count - 1,
            2 => {
                let first = self.next_seq + self.rng.random_range(1..5);
                first..=first + count - 1
            }
            _ => self.next_seq..=self.next_seq + count - 1,
        };
        self.next_seq = self.next_seq.max(seqs.end() + 1);
        self.last = seqs.clone();
        self.sent.extend(seqs.clone());
        self.batches += 1;
        let batch_id = format!("batch-{}", self.batches);
        let body = self.tracker.body(&batch_id, self.epoch_id, &records(*seqs.start(), *seqs.end()));
        Batch { seqs, body: body.to_string().into_bytes() }
    }

    /// Uploads as fast as answers come, until the gateway is gone.
    fn upload(&mut self, mut link: Link, ending: &AtomicBool, acknowledged: &Sender<()>) {
        loop {
            let batch = self.pending.take().unwrap_or_else(|| self.next_batch());
            self.pending = Some(batch.clone());
            // Now and then the answer is lost on the way: the same bytes go out again.
            if self.rng.random_ratio(1, 16) && link.send(&request(&self.tracker, &batch.body)).is_ok() {
                link.hang_up();
                continue;
            }
            match link.upload(&self.tracker, &batch.body) {
                Ok(answer) => {
                    assert_eq!(answer.status, 200, "{answer:?}");
                    self.acknowledged.extend(batch.seqs);
                    self.pending = None;
                    let _ = acknowledged.send(());
                }
                Err(error) => {
                    assert!(ending.load(Ordering::Acquire), "lost an answer of a living gateway: {error}");
                    return;
                }
            }
        }
    }

    /// Compares the whole track with the books.
    fn check(&self, link: &mut Link) {
        let id = self.tracker.id.as_str();
        let track = link.track(id);
        let mut stored = BTreeSet::new();
        for entry in &track {
            let seq = entry["seq"].as_u64().expect("a seq");
            assert!(
                stored.last().is_none_or(|before| *before < seq),
                "{id}: {seq} stands twice or unordered"
            );
            stored.insert(seq);
            let sent = record(seq);
            for field in ["lat", "lon", "battery"] {
                assert_eq!(entry[field], sent[field], "{id}: {field} of {seq}");
            }
            assert_eq!(entry["extra"]["speed"], sent["speed"], "{id}: speed of {seq}");
            assert_eq!(entry["epoch_id"].as_u64(), Some(self.epoch_id.unwrap_or(0)), "{id}: epoch of {seq}");
            assert_eq!(entry.get("conflicts"), None, "{id}: {seq} met itself with other content");
        }
        let lost: Vec<_> = self.acknowledged.difference(&stored).collect();
        assert!(lost.is_empty(), "{id}: acknowledged and lost: {lost:?}");
        let made_up: Vec<_> = stored.difference(&self.sent).collect();
        assert!(made_up.is_empty(), "{id}: never sent: {made_up:?}");
        if let Some(pending) = &self.pending {
            let mut fresh = pending.seqs.clone().filter(|seq| !self.acknowledged.contains(seq)).peekable();
            let there = fresh.peek().is_some_and(|seq| stored.contains(seq));
            assert!(fresh.all(|seq| stored.contains(&seq) == there), "{id}: half of {:?}", pending.seqs);
        }
        let Some(greatest) = stored.last() else { return };
        let state = link.state(id);
        for field in ["last_seq", "position_seq"] {
            assert_eq!(state[field].as_u64(), Some(*greatest), "{id}: {field}");
        }
        for count in ["held", "conflicts", "quarantined"] {
            assert_eq!(state[count], 0, "{id}: {count}");
        }
    }
}

/// How a life of the gateway ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Terminate,
}

/// One life of the gateway: load, and its end in the middle of it.
fn live(folder: &Folder, members: &mut [Member], acknowledged_before: usize, end: End) {
    // So few pages that nearly every group is followed by a checkpoint, for the kill to fall into.
    let gateway = Gateway::start_with(serve(folder).env("TIDEGATE_SQLITE_CHECKPOINT_PAGES", "64"));
    let ending = AtomicBool::new(false);
    let (acknowledge, acknowledged): (_, Receiver<()>) = channel();
    std::thread::scope(|scope| {
        for member in &mut *members {
            let (link, acknowledge, ending) = (gateway.link(), acknowledge.clone(), &ending);
            scope.spawn(move || member.upload(link, ending, &acknowledge));
        }
        drop(acknowledge);
        for _ in 0..acknowledged_before {
            acknowledged.recv_timeout(PATIENCE).expect("uploads are acknowledged");
        }
        if end == End::Terminate {
            // While uploads go on.
            verify(folder);
        }
        ending.store(true, Ordering::Release);
        match end {
            End::Kill => gateway.kill_nine(),
            End::Terminate => {
                gateway.terminate();
                assert_eq!(gateway.ended(), (Some(0), String::new()));
            }
        }
    });
}

/// Random, or the one to replay.
fn seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the program")]
    let wanted = std::env::var("SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = wanted.unwrap_or_else(rand::random);
    eprintln!("seed {seed}; to replay: SEED={seed} cargo test --test it process::crash");
    seed
}

/// Lives one after the other, each compared with the books behind it.
fn lives(rounds: usize, end: End) {
    let seed = seed();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let folder = Folder::new();
    let mut members: Vec<_> = (0..MEMBERS).map(|number| Member::new(number, seed)).collect();
    for round in 0..rounds {
        let count = rng.random_range(ACKNOWLEDGED);
        eprintln!("round {round}: {end:?} after {count} acknowledgements");
        live(&folder, &mut members, count, end);
        let gateway = Gateway::start(&folder);
        let mut link = gateway.link();
        for member in &members {
            member.check(&mut link);
        }
        verify(&folder);
    }
    let gateway = Gateway::start(&folder);
    let mut link = gateway.link();
    for member in &mut members {
        let Some(batch) = member.pending.take() else { continue };
        let answer = link.upload(&member.tracker, &batch.body).expect("an answer");
        assert_eq!(answer.status, 200, "{answer:?}");
        member.acknowledged.extend(batch.seqs);
        assert_eq!(member.acknowledged, member.sent, "every record sent was acknowledged in the end");
        member.check(&mut link);
    }
    verify(&folder);
}

#[test]
fn kill_nine_under_load() {
    lives(KILLS, End::Kill);
}

#[test]
fn sigterm_under_load() {
    lives(STOPS, End::Terminate);
}
