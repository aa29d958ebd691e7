//! The rules' edges, against a ledger that keeps everything in memory and knows no index, span or counter.

mod surplus;

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::domain::batch::{Unreadable, UnusableRecord};
use crate::domain::ids::{BatchId, DeviceId, Key};
use crate::domain::reason::NotApplied;
use crate::domain::receipt::{Counts, Receipt, Status, Why};
use crate::domain::record::Fix;
use crate::domain::time::Timestamp;

/// A log entry of the ledger; its row is its place.
#[derive(Clone, Debug)]
struct LedgerEntry {
    epoch_id: EpochId,
    record: Record,
    mark: Option<Mark>,
    received_at: Timestamp,
}

/// One device as a store would keep it, the plain way.
#[derive(Default)]
struct Ledger {
    policy: Policy,
    entries: Vec<LedgerEntry>,
    epochs: Vec<(EpochId, EpochFacts)>,
    batches: Vec<(BatchId, KnownBatch)>,
    quarantined: HashSet<(BodyHash, Reason)>,
    device: Option<DeviceFacts>,
    held: i64,
    conflicts: i64,
    reused: bool,
}

impl Ledger {
    fn facts(&self) -> DeviceFacts {
        self.device.clone().unwrap_or(DeviceFacts::UNSEEN)
    }

    fn epoch(&self, epoch_id: EpochId) -> EpochFacts {
        let found = self.epochs.iter().find(|(id, _)| *id == epoch_id);
        found.map_or(EpochFacts::unseen(epoch_id), |(_, facts)| *facts)
    }

    /// Counting entries: without a mark, first of their key.
    fn counting(&self) -> Vec<&LedgerEntry> {
        let mut seen = HashSet::new();
        let unmarked = self.entries.iter().filter(|entry| entry.mark.is_none());
        unmarked.filter(|entry| seen.insert((entry.epoch_id, entry.record.seq))).collect()
    }

    fn law(&self) -> Option<State> {
        let mut state = None;
        for entry in self.counting() {
            let key = Key { epoch_id: entry.epoch_id, seq: entry.record.seq };
            State::fold(&mut state, key, &entry.record, entry.received_at);
        }
        state
    }

    fn snapshot(&self, upload: &Upload) -> Snapshot {
        let device = self.facts();
        let batch = upload.content.as_ref().ok();
        let known_batch = batch.and_then(|batch| {
            self.batches.iter().find(|(id, _)| *id == batch.batch_id).map(|(_, known)| *known)
        });
        let epoch_id = batch.map_or(device.current_epoch, |batch| {
            target_epoch(batch, device.current_epoch, known_batch.as_ref(), &self.policy)
        });
        let epoch = self.epoch(epoch_id);
        let stored = |wanted: &dyn Fn(EpochId) -> bool| {
            let mut entries: Vec<StoredEntry> = (0_i64..)
                .zip(&self.entries)
                .filter(|(_, entry)| wanted(entry.epoch_id))
                .map(|(row, LedgerEntry { record, mark, .. })| {
                    let (seq, record) = (record.seq, Some(Box::new(record.clone())));
                    StoredEntry { row, seq, record, mark: *mark }
                })
                .collect();
            entries.sort_by_key(|entry| (entry.seq, entry.row));
            entries
        };
        let old =
            self.counting().iter().filter(|entry| entry.epoch_id < epoch_id).map(|e| e.record.seq).max();
        let candidates = quarantine_candidates(upload, known_batch.as_ref());
        let quarantined = self.in_quarantine(candidates);
        let mut snapshot = Snapshot {
            device,
            known_batch,
            epoch,
            old: None,
            same_key: vec![],
            earlier: vec![],
            quarantined,
        };
        let Some(batch) = batch else { return snapshot };
        if needs_old(batch, &epoch, snapshot.device.current_epoch) {
            snapshot.old = old;
        }
        if needs_same_key(batch, &epoch) {
            snapshot.same_key = stored(&|id| id == epoch_id);
        }
        if needs_earlier(upload, &snapshot, &self.policy) {
            snapshot.earlier = stored(&|id| id < epoch_id);
        }
        let surplus = surplus_candidates(upload, &snapshot, &self.policy);
        snapshot.quarantined.extend(self.in_quarantine(surplus));
        snapshot
    }

    fn in_quarantine(&self, candidates: Vec<(BodyHash, Reason)>) -> HashSet<(BodyHash, Reason)> {
        candidates.into_iter().filter(|candidate| self.quarantined.contains(candidate)).collect()
    }

    fn ingest(&mut self, upload: &Upload) -> Result<Receipt, QuarantineFull> {
        let snapshot = self.snapshot(upload);
        let before = snapshot.device.state;
        let plan = decide(upload, &snapshot, &self.policy)?;
        let mut device = snapshot.device;
        device.current_epoch = plan.current_epoch;
        device.quarantined_bytes += plan.quarantine_bytes();
        if let Ok(batch) = &upload.content {
            self.append(upload, batch, &plan, snapshot.epoch);
        }
        self.quarantined.extend(plan.quarantine.iter().map(|entry| (entry.hash, entry.reason)));
        self.held += plan.held_delta;
        self.conflicts += plan.conflicts_delta;
        self.reused |= plan.batch_id_reused;
        device.state = match &plan.state {
            StateMove::Keep => before,
            StateMove::Swap(state) => Some(*state),
            StateMove::ByLaw => self.law(),
        };
        let receipt = plan.receipt(device.state.as_ref(), device.state != before);
        self.device = Some(device);
        Ok(receipt)
    }

    fn append(&mut self, upload: &Upload, batch: &Batch, plan: &Plan, facts: EpochFacts) {
        if let Some(new) = plan.batch {
            self.batches.retain(|(id, _)| *id != batch.batch_id);
            let known = KnownBatch { body_hash: upload.body_hash, epoch_id: new.epoch_id };
            self.batches.push((batch.batch_id.clone(), known));
        }
        let Some(epoch) = plan.epoch else { return };
        for entry in &plan.entries {
            let record = batch.records[entry.place].clone();
            let (epoch_id, mark, received_at) = (epoch.epoch_id, entry.mark, upload.received_at);
            self.entries.push(LedgerEntry { epoch_id, record, mark, received_at });
        }
        for row in &plan.lifts {
            self.entries[usize::try_from(*row).expect("a place")].mark = None;
        }
        let EpochPlan { epoch_id, max_logged, max_counting, guard, .. } = epoch;
        self.epochs.retain(|(id, _)| *id != epoch_id);
        self.epochs.push((epoch_id, EpochFacts { known: true, max_logged, max_counting, guard, ..facts }));
    }

    /// What `verify` checks on a real store.
    fn check(&self) {
        let counting = self.counting();
        assert_eq!(self.facts().state, self.law(), "the law");
        let held = self.entries.iter().filter(|entry| entry.mark == Some(Mark::Held)).count();
        let unmarked = self.entries.iter().filter(|entry| entry.mark.is_none()).count();
        assert_eq!(usize::try_from(self.held), Ok(held), "held entries");
        assert_eq!(usize::try_from(self.conflicts), Ok(unmarked - counting.len()), "conflicting entries");
        for (epoch_id, facts) in &self.epochs {
            let seqs = |entries: &mut dyn Iterator<Item = &LedgerEntry>| {
                entries.filter(|entry| entry.epoch_id == *epoch_id).map(|entry| entry.record.seq).max()
            };
            assert_eq!(facts.max_counting, seqs(&mut counting.iter().copied()), "greatest counting seq");
            assert_eq!(facts.max_logged, seqs(&mut self.entries.iter()), "greatest logged seq");
        }
    }
}

fn seq(n: u64) -> Seq {
    Seq::new(n).expect("in range")
}

fn epoch(n: u64) -> EpochId {
    EpochId::new(n).expect("in range")
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(second).expect("in range")
}

/// A record whose content is told by `content`: 0 has neither time nor fix.
fn record(n: u64, content: u32) -> Record {
    let telling = content > 0;
    Record {
        seq: seq(n),
        recorded_at: telling.then(|| at(i64::from(content))),
        fix: (!content.is_multiple_of(3)).then(|| Fix { lat: f64::from(content), lon: 1.0 }),
        battery: Some(3.5),
        extra: None,
        raw: None,
    }
}

fn batch(id: &str, epoch_id: Option<u64>, records: Vec<Record>) -> Batch {
    Batch {
        device_id: DeviceId::parse("t").expect("an id"),
        batch_id: BatchId::parse(id).expect("an id"),
        epoch_id: epoch_id.map(epoch),
        records,
        unusable: vec![],
        extra: None,
    }
}

fn upload(content: Result<Batch, Unreadable>, second: i64) -> Upload {
    let body = Bytes::from(format!("{content:?}"));
    Upload::unverified(DeviceId::parse("t"), at(second), body, content)
}

/// Sends records 1:1, each batch under an id of its own.
fn send(ledger: &mut Ledger, id: &str, epoch_id: Option<u64>, seqs: &[u64]) -> Receipt {
    let records = seqs.iter().map(|n| record(*n, 7)).collect();
    let receipt = ledger.ingest(&upload(Ok(batch(id, epoch_id, records)), 1_000)).expect("room");
    ledger.check();
    receipt
}

fn counts(receipt: &Receipt) -> Counts {
    receipt.counts.expect("a batch")
}

#[test]
fn a_new_batch_moves_the_state_and_an_older_one_does_not() {
    let mut ledger = Ledger::default();
    let first = send(&mut ledger, "a", None, &[11, 13, 12]);
    assert_eq!((counts(&first).accepted, first.applied, first.last_seq), (3, Some(true), Some(seq(13))));
    let older = send(&mut ledger, "b", None, &[1, 2]);
    assert_eq!((older.applied, older.reason), (Some(false), Some(Why::NotApplied(NotApplied::Stale))));
    assert_eq!(older.last_seq, Some(seq(13)));
    let empty = send(&mut ledger, "c", None, &[]);
    assert_eq!(empty.reason, Some(Why::NotApplied(NotApplied::Empty)));
}

#[test]
fn the_same_batch_again_is_a_duplicate_and_other_content_is_kept_as_evidence() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[1, 2]);
    let again = send(&mut ledger, "a", None, &[1, 2]);
    assert_eq!((again.status, again.applied), (Status::Duplicate, Some(false)));
    let fewer = send(&mut ledger, "a", None, &[2]);
    assert_eq!(fewer.status, Status::Duplicate, "every record an exact repeat");
    let other = send(&mut ledger, "a", None, &[3]);
    assert_eq!(other.status, Status::Quarantined);
    assert_eq!(other.reason, Some(Why::Quarantined(Reason::InconsistentDuplicate)));
    assert_eq!((ledger.entries.len(), ledger.reused), (2, true));
}

#[test]
fn a_fleet_that_reuses_ids_may_let_new_records_in() {
    let policy = Policy { reused_batch_id: ReusedBatchId::Ingest, ..Policy::default() };
    let mut ledger = Ledger { policy, ..Ledger::default() };
    send(&mut ledger, "a", None, &[1, 2]);
    let other = send(&mut ledger, "a", None, &[2, 3]);
    assert_eq!((other.status, counts(&other).accepted, counts(&other).repeated), (Status::Processed, 1, 1));
    assert!(ledger.reused);
    // Neither time nor fix: behind the guard of the next epoch only the body tells that it came before.
    let unanswered = upload(Ok(batch("a", None, vec![record(4, 0)])), 1_000);
    assert_eq!(ledger.ingest(&unanswered).expect("room").status, Status::Processed);
    send(&mut ledger, "b", Some(1), &[0]);
    assert_eq!(ledger.ingest(&unanswered).expect("room").status, Status::Duplicate);
}

#[test]
fn an_explicit_epoch_wins_over_any_seq_of_an_older_one() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", Some(4), &[900]);
    let next = send(&mut ledger, "b", Some(5), &[2]);
    assert_eq!((next.applied, next.epoch_id, next.last_seq), (Some(true), Some(epoch(5)), Some(seq(2))));
    let late = send(&mut ledger, "c", Some(4), &[901]);
    assert_eq!((late.applied, late.epoch_id), (Some(false), Some(epoch(5))));
    assert_eq!(ledger.facts().current_epoch, epoch(5));
}

#[test]
fn a_guard_holds_what_looks_like_the_old_counter() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[10_420]);
    send(&mut ledger, "b", Some(1), &[0]);
    // The window is 1000; each counting record moves it on, also within one batch.
    let walk = send(&mut ledger, "c", None, &[1000, 2000, 3001, 10_421]);
    assert_eq!((counts(&walk).accepted, counts(&walk).held), (4, 2));
    assert_eq!(walk.last_seq, Some(seq(2000)));
    let held = send(&mut ledger, "d", None, &[10_422]);
    assert_eq!(held.reason, Some(Why::NotApplied(NotApplied::Held)));
    let retry = send(&mut ledger, "e", None, &[10_420]);
    assert_eq!(
        (counts(&retry).repeated, counts(&retry).held),
        (1, 0),
        "an entry of the old epoch, sent again"
    );
}

#[test]
fn a_guard_falls_when_the_new_counter_passes_the_old_one() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[100]);
    send(&mut ledger, "b", Some(1), &[0]);
    assert!(ledger.epoch(epoch(1)).guard.is_some());
    let walk = send(&mut ledger, "c", None, &[50, 99]);
    assert_eq!(counts(&walk).held, 0);
    assert!(ledger.epoch(epoch(1)).guard.is_some(), "not past yet");
    let past = send(&mut ledger, "d", None, &[101, 5_000]);
    assert_eq!((counts(&past).held, past.last_seq), (0, Some(seq(5_000))), "past it all count");
    assert!(ledger.epoch(epoch(1)).guard.is_none());
}

#[test]
fn an_explicit_repeat_lifts_the_mark_of_a_held_entry() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[10_420]);
    send(&mut ledger, "b", Some(1), &[0]);
    send(&mut ledger, "c", None, &[9_000]);
    assert_eq!(ledger.facts().state.map(|s| s.key.seq), Some(seq(0)));
    let explicit = send(&mut ledger, "c", Some(1), &[9_000]);
    assert_eq!((explicit.status, counts(&explicit).repeated), (Status::Processed, 1));
    assert_eq!((explicit.applied, explicit.last_seq), (Some(true), Some(seq(9_000))));
    assert_eq!(ledger.held, 0);
}

#[test]
fn a_lifted_entry_that_came_first_takes_the_place_of_a_later_one() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[10_420]);
    send(&mut ledger, "b", Some(1), &[0]);
    send(&mut ledger, "c", None, &[9_000]);
    let other = batch("d", Some(1), vec![record(9_000, 8)]);
    assert_eq!(
        ledger.ingest(&upload(Ok(other), 1_001)).map(|r| counts(&r).conflicts),
        Ok(0),
        "a held one does not count"
    );
    ledger.check();
    assert_eq!(ledger.facts().state.and_then(|s| s.recorded_at), Some(at(8)));
    let lifted = send(&mut ledger, "e", Some(1), &[9_000]);
    assert_eq!((lifted.applied, ledger.conflicts), (Some(true), 1));
    assert_eq!(ledger.facts().state.and_then(|s| s.recorded_at), Some(at(7)));
}

#[test]
fn a_record_without_time_and_fix_is_never_taken_for_one_of_the_old_epoch() {
    let mut ledger = Ledger::default();
    let blank = |id: &str, n| upload(Ok(batch(id, None, vec![record(n, 0)])), 1_000);
    ledger.ingest(&blank("a", 10_420)).expect("room");
    send(&mut ledger, "b", Some(1), &[0]);
    let receipt = ledger.ingest(&blank("c", 10_420)).expect("room");
    assert_eq!((counts(&receipt).repeated, counts(&receipt).held), (0, 1));
}

#[test]
fn records_of_a_void_epoch_are_logged_and_do_not_count() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[5]);
    let voided = EpochFacts { known: true, voided: true, ..EpochFacts::unseen(epoch(9)) };
    ledger.epochs.push((epoch(9), voided));
    let receipt = send(&mut ledger, "b", Some(9), &[1]);
    assert_eq!((counts(&receipt).accepted, receipt.reason), (1, Some(Why::NotApplied(NotApplied::Void))));
    assert_eq!((receipt.epoch_id, ledger.facts().current_epoch), (Some(epoch(0)), epoch(0)));
}

#[test]
fn an_epoch_becomes_current_only_if_a_record_is_stored() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[5]);
    send(&mut ledger, "b", Some(3), &[]);
    let bytes = b"7".to_vec();
    let hash = body_hash(&bytes);
    let rubbish =
        UnusableRecord { index: 0, reason: Reason::RecordInvalid, detail: String::new(), bytes, hash };
    let body = Batch { unusable: vec![rubbish.clone(), rubbish], ..batch("c", Some(3), vec![]) };
    let receipt = ledger.ingest(&upload(Ok(body), 1_000)).expect("room");
    assert_eq!(
        (counts(&receipt).quarantined, receipt.reason),
        (2, Some(Why::NotApplied(NotApplied::Quarantined)))
    );
    assert_eq!((ledger.facts().current_epoch, ledger.quarantined.len()), (epoch(0), 1));
    assert_eq!(
        ledger.facts().quarantined_bytes,
        1 + QUARANTINE_ENTRY_BYTES,
        "the same rubbish twice is kept once"
    );
}

#[test]
fn past_the_cap_distinct_bodies_are_refused_and_known_ones_still_counted() {
    let unreadable = |detail: &str| {
        let reason = Reason::InvalidJson;
        upload(Err(Unreadable { reason, detail: detail.to_owned(), device_id: None, batch_id: None }), 1_000)
    };
    let one = unreadable("one").body.len() as u64 + QUARANTINE_ENTRY_BYTES;
    let mut ledger =
        Ledger { policy: Policy { quarantine_bytes_max: one, ..Policy::default() }, ..Ledger::default() };
    assert!(ledger.ingest(&unreadable("one")).is_ok());
    assert_eq!(ledger.ingest(&unreadable("two")), Err(QuarantineFull));
    assert!(ledger.ingest(&unreadable("one")).is_ok());
    assert_eq!(ledger.facts().quarantined_bytes, one);
}

fn any_batch() -> impl Strategy<Value = (Option<u64>, Vec<Record>)> {
    let epoch_id = prop_oneof![3 => Just(None), 1 => (0_u64..4).prop_map(Some)];
    let seqs = prop_oneof![4 => 0_u64..40, 1 => 2_000_u64..2_040, 1 => 9_000_u64..9_020];
    let records = proptest::collection::vec((seqs, 0_u32..4).prop_map(|(n, c)| record(n, c)), 0..6);
    (epoch_id, records)
}

proptest! {
    /// Whatever comes in whatever order: the law and the books hold after every step, and no record is lost.
    #[test]
    fn the_law_holds_after_every_step(batches in proptest::collection::vec((0_u8..12, any_batch()), 1..20)) {
        let mut ledger = Ledger::default();
        for (second, (id, (epoch_id, records))) in (0_i64..).zip(batches) {
            let sent = records.len() as u64;
            let upload = upload(Ok(batch(&id.to_string(), epoch_id, records.clone())), second * 100_000);
            let receipt = ledger.ingest(&upload).expect("room");
            ledger.check();
            if receipt.status == Status::Processed {
                let counts = counts(&receipt);
                prop_assert_eq!(counts.accepted + counts.repeated + counts.conflicts + counts.quarantined, sent);
                prop_assert!(records.iter().all(|record| ledger.entries.iter().any(|e| e.record == *record)));
            }
            prop_assert_eq!(receipt.last_seq, ledger.law().map(|state| state.key.seq));
        }
    }

    /// Without guards and conflicts the order of arrival does not change where it ends.
    #[test]
    fn arrival_order_does_not_change_the_end(
        keys in proptest::collection::hash_set((0_u64..3, 0_u64..60), 1..40),
        size in 1_usize..5,
        shuffle in any::<prop::sample::Index>(),
    ) {
        let mut keys: Vec<_> = keys.into_iter().collect();
        let end = |keys: &[(u64, u64)]| {
            let mut ledger = Ledger::default();
            for (id, run) in keys.chunk_by(|a, b| a.0 == b.0).flat_map(|run| run.chunks(size)).enumerate() {
                let records = run.iter().map(|(_, n)| record(*n, u32::try_from(n % 5).expect("small"))).collect();
                let upload = upload(Ok(batch(&id.to_string(), Some(run[0].0), records)), 1_000);
                ledger.ingest(&upload).expect("room");
                ledger.check();
            }
            ledger.facts()
        };
        let one = end(&keys);
        let cut = shuffle.index(keys.len());
        keys.rotate_left(cut);
        keys.reverse();
        prop_assert_eq!(one, end(&keys));
    }
}
