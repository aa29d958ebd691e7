//! Judging the records of a batch one by one, in seq order, each seeing what its predecessors made.

use std::collections::HashSet;

use super::plan::PlannedEntry;
use super::versions::{Content, Version, Versions};
use super::{Policy, Snapshot, StoredEntry};
use crate::domain::batch::Batch;
use crate::domain::epoch::Guard;
use crate::domain::ids::Seq;
use crate::domain::reason::Mark;
use crate::domain::receipt::Counts;
use crate::domain::record::Record;
use crate::domain::upload::Upload;

/// What became of the usable records.
#[derive(Clone, Debug, Default)]
pub(super) struct Judgement {
    /// New entries in seq order.
    pub(super) entries: Vec<PlannedEntry>,
    /// Rows of held entries that an explicit repeat lets count.
    pub(super) lifts: Vec<i64>,
    /// Records by outcome, the unusable ones not among them.
    pub(super) counts: Counts,
    /// By how much the number of conflicting entries changes (lifting can make some).
    pub(super) conflicts_delta: i64,
    /// Greatest counting seq of the epoch afterwards.
    pub(super) max_counting: Option<Seq>,
}

/// Judges the records of a batch against the snapshot's target epoch.
pub(super) fn judge(upload: &Upload, batch: &Batch, snapshot: &Snapshot, policy: &Policy) -> Judgement {
    let order = seq_order(&batch.records);
    let mut judge = Judge {
        snapshot,
        explicit: batch.epoch_id.is_some(),
        gate: Gate::of(upload, batch, snapshot, policy),
        earlier: snapshot.earlier.iter().map(|entry| Content(&entry.record)).collect(),
        out: Judgement { max_counting: snapshot.epoch.max_counting, ..Judgement::default() },
    };
    let mut stored = snapshot.same_key.as_slice();
    for group in order.chunk_by(|a, b| batch.records[*a].seq == batch.records[*b].seq) {
        let seq = batch.records[group[0]].seq;
        let (same, rest) = split_at_seq(stored, seq);
        stored = rest;
        judge.key(&batch.records, group, same);
    }
    judge.out
}

/// Places of the records in order of seq, equal seqs in the order received.
fn seq_order(records: &[Record]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..records.len()).collect();
    if !records.is_sorted_by_key(|record| record.seq) {
        order.sort_by_key(|place| records[*place].seq);
    }
    order
}

/// The stored entries of one seq, and those behind it; whatever lies before belongs to no record.
fn split_at_seq(stored: &[StoredEntry], seq: Seq) -> (&[StoredEntry], &[StoredEntry]) {
    let start = stored.partition_point(|entry| entry.record.seq < seq);
    let end = stored.partition_point(|entry| entry.record.seq <= seq);
    (&stored[start..end], &stored[end..])
}

/// Which new records of this epoch count.
enum Gate {
    /// All: explicit, or no guard stands.
    Open,
    /// None: ops voided the epoch.
    Void,
    /// Those within reach of the new counter.
    Guarded { guard: Guard, here: Seq, old: Seq },
}

impl Gate {
    fn of(upload: &Upload, batch: &Batch, snapshot: &Snapshot, policy: &Policy) -> Self {
        if snapshot.epoch.voided {
            return Self::Void;
        }
        match snapshot.standing_guard(upload, policy) {
            Some((guard, old)) if batch.epoch_id.is_none() => {
                Self::Guarded { guard, here: guard.here(snapshot.epoch.max_counting), old }
            }
            _ => Self::Open,
        }
    }

    /// The mark of a new record, which from then on is part of what later ones are judged by.
    fn pass(&mut self, seq: Seq) -> Option<Mark> {
        match self {
            Self::Open => None,
            Self::Void => Some(Mark::Void),
            Self::Guarded { guard, here, old } => {
                if seq.get() > guard.reach(*here, *old) {
                    return Some(Mark::Held);
                }
                *here = seq.max(*here);
                if *here > *old {
                    *self = Self::Open;
                }
                None
            }
        }
    }
}

struct Judge<'a> {
    snapshot: &'a Snapshot,
    explicit: bool,
    gate: Gate,
    earlier: HashSet<Content<'a>>,
    out: Judgement,
}

impl Judge<'_> {
    /// Judges all records of one key against its stored versions and each other.
    fn key(&mut self, records: &[Record], group: &[usize], stored: &[StoredEntry]) {
        if let ([place], []) = (group, stored) {
            return self.new_key(*place, &records[*place]);
        }
        let mut versions = Versions::of(stored, group.len());
        let before = versions.counting();
        for place in group {
            let record = &records[*place];
            if let Some(version) = versions.find(record) {
                self.out.counts.repeated += 1;
                if let Some(row) = self.liftable(version) {
                    versions.lift(record);
                    self.out.lifts.push(row);
                }
            } else if self.repeats_earlier_epoch(record) {
                self.out.counts.repeated += 1;
            } else {
                let mark = self.gate.pass(record.seq);
                self.enter(*place, mark, versions.counting() > 0);
                versions.push(record, mark);
            }
        }
        let after = versions.counting();
        self.out.conflicts_delta += extra(after) - extra(before);
        if after > 0 {
            self.out.max_counting = self.out.max_counting.max(Some(records[group[0]].seq));
        }
    }

    /// The common case: one record, nothing stored under its key.
    fn new_key(&mut self, place: usize, record: &Record) {
        if self.repeats_earlier_epoch(record) {
            self.out.counts.repeated += 1;
            return;
        }
        let mark = self.gate.pass(record.seq);
        self.enter(place, mark, false);
        if mark.is_none() {
            self.out.max_counting = self.out.max_counting.max(Some(record.seq));
        }
    }

    fn enter(&mut self, place: usize, mark: Option<Mark>, key_taken: bool) {
        self.out.entries.push(PlannedEntry { place, mark, first: mark.is_none() && !key_taken });
        match mark {
            None if key_taken => self.out.counts.conflicts += 1,
            Some(Mark::Held) => {
                self.out.counts.accepted += 1;
                self.out.counts.held += 1;
            }
            _ => self.out.counts.accepted += 1,
        }
    }

    /// An explicit repeat of a held entry says which epoch it belongs to: the doubt is gone. Its row, if so.
    fn liftable(&self, version: &Version<'_>) -> Option<i64> {
        let held = self.explicit && version.mark == Some(Mark::Held) && !self.snapshot.epoch.voided;
        version.row.filter(|_| held)
    }

    /// Behind a standing guard an implicit record may be a retry of the old counter: if it equals an entry of
    /// an earlier epoch, that is what it is. A record with neither time nor fix could equal any, and does not.
    fn repeats_earlier_epoch(&self, record: &Record) -> bool {
        let telling = record.recorded_at.is_some() || record.fix.is_some();
        telling && matches!(self.gate, Gate::Guarded { .. }) && self.earlier.contains(&Content(record))
    }
}

/// Entries beyond the first of a key: its conflicts.
fn extra(counting: usize) -> i64 {
    i64::try_from(counting.saturating_sub(1)).unwrap_or(i64::MAX)
}
