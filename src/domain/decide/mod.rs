//! The one decision function: what is known, plus one upload, gives what is done. A store loads the
//! [`Snapshot`] inside its transaction, calls [`decide`], and carries the [`Plan`] out; SQL holds no rule.

mod judge;
mod plan;
mod sought;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::HashSet;

use super::batch::Batch;
use super::decode::to_json;
use super::epoch::{EpochFacts, Guard};
use super::ids::{EpochId, Seq};
use super::reason::{Mark, Reason};
use super::record::Record;
use super::state::State;
use super::upload::{BodyHash, Upload, body_hash};
pub use plan::{EpochPlan, NewBatch, Plan, PlannedEntry, PlannedQuarantine, QuarantinedBytes, StateMove};
pub use sought::Sought;

/// Rules that configuration may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What a known batch id with new content does.
    pub reused_batch_id: ReusedBatchId,
    /// Most bytes of distinct bodies a device may have in quarantine, each entry counted with
    /// [`QUARANTINE_ENTRY_BYTES`] more.
    pub quarantine_bytes_max: u64,
    /// Days after which a guard falls by itself.
    pub guard_days: u32,
}

/// What a known batch id with new content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReusedBatchId {
    /// The body goes to quarantine.
    Quarantine,
    /// Its new records are let in.
    Ingest,
}

impl Default for Policy {
    fn default() -> Self {
        Self { reused_batch_id: ReusedBatchId::Quarantine, quarantine_bytes_max: 64 << 20, guard_days: 7 }
    }
}

/// What a quarantine entry costs beside its bytes; without it a cap in bytes would not bound one-byte bodies.
pub const QUARANTINE_ENTRY_BYTES: u64 = 256;

/// Most versions (contents) of one key that are logged. A tracker whose counter is stuck sends every record under
/// one seq; each is compared with all versions stored before, in the writer, where everybody else waits. Beyond
/// this number they go to quarantine one by one, which has a cap of its own.
pub const VERSIONS_MAX: usize = 256;

/// What the store knows of a device that matters to a decision.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceFacts {
    /// Where implicit batches go.
    pub current_epoch: EpochId,
    /// `None` while it has no counting entry.
    pub state: Option<State>,
    /// Bytes it has in quarantine, [`QUARANTINE_ENTRY_BYTES`] an entry included.
    pub quarantined_bytes: u64,
}

impl DeviceFacts {
    /// A device nobody has seen.
    pub const UNSEEN: Self = Self { current_epoch: EpochId::ZERO, state: None, quarantined_bytes: 0 };
}

/// A batch id the device used before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownBatch {
    /// Hash of the body taken last under it: where ids are reused, that is the one whose retry may still come,
    /// and the epoch may have changed since.
    pub body_hash: BodyHash,
    /// The epoch the records of that body went to.
    pub epoch_id: EpochId,
}

/// An entry of the log that has the epoch and seq of a record in the upload.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    /// Its row: its place in the order of arrival.
    pub row: i64,
    /// Its number within the epoch.
    pub seq: Seq,
    /// What it holds; `None`: something else than every record of the upload ([`Sought::holds`]), so that what
    /// stands in memory is bounded by the upload.
    pub record: Option<Box<Record>>,
    /// Why it does not count, if it does not.
    pub mark: Option<Mark>,
}

/// All that a decision needs to know.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The device; [`DeviceFacts::UNSEEN`] if it was never seen.
    pub device: DeviceFacts,
    /// The batch id, if the device used it before.
    pub known_batch: Option<KnownBatch>,
    /// The epoch [`target_epoch`] names.
    pub epoch: EpochFacts,
    /// Greatest counting seq of any epoch before it; loaded where [`needs_old`] says so.
    pub old: Option<Seq>,
    /// Entries of the target epoch with a seq of the upload, in order of (seq, row), the first [`VERSIONS_MAX`]
    /// of each; loaded where [`needs_same_key`] says so.
    pub same_key: Vec<StoredEntry>,
    /// Entries of earlier epochs that hold what a record of the upload does; loaded where [`needs_earlier`]
    /// says so.
    pub earlier: Vec<StoredEntry>,
    /// Which of [`quarantine_candidates`] and [`surplus_candidates`] the device has in quarantine already.
    pub quarantined: HashSet<(BodyHash, Reason)>,
}

impl Snapshot {
    /// The snapshot of a store that knows nothing of this device.
    pub fn unseen(epoch_id: EpochId) -> Self {
        Self {
            device: DeviceFacts::UNSEEN,
            known_batch: None,
            epoch: EpochFacts::unseen(epoch_id),
            old: None,
            same_key: Vec::new(),
            earlier: Vec::new(),
            quarantined: HashSet::new(),
        }
    }

    /// The guard of the target epoch, while it stands.
    fn standing_guard(&self, upload: &Upload, policy: &Policy) -> Option<(Guard, Seq)> {
        let (guard, old) = (self.epoch.guard?, self.old?);
        let here = guard.here(self.epoch.max_counting);
        guard.stands(here, Some(old), upload.received_at, policy.guard_days).then_some((guard, old))
    }
}

/// The device's quarantine is at its cap and this upload would add to it: it must not be acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineFull;

/// The epoch whose facts the decision needs: the one a batch names; else the current one. A known batch id is
/// compared with what it brought, in the epoch it then had.
pub fn target_epoch(batch: &Batch, current: EpochId, known: Option<&KnownBatch>, policy: &Policy) -> EpochId {
    match (batch.epoch_id, known, policy.reused_batch_id) {
        (Some(explicit), _, _) => explicit,
        (None, Some(known), ReusedBatchId::Quarantine) => known.epoch_id,
        (None, _, _) => current,
    }
}

/// Whether stored entries of the target epoch can have a key of this batch. Above the greatest logged seq
/// nothing can: the common case costs no look-up.
pub fn needs_same_key(batch: &Batch, epoch: &EpochFacts) -> bool {
    let least = batch.records.iter().map(|record| record.seq).min();
    least.zip(epoch.max_logged).is_some_and(|(least, logged)| least <= logged)
}

/// Whether the greatest counting seq of the earlier epochs matters: a guard stands, or may be raised.
pub fn needs_old(batch: &Batch, epoch: &EpochFacts, current: EpochId) -> bool {
    epoch.guard.is_some() || (batch.epoch_id.is_some() && !epoch.known && epoch.epoch_id > current)
}

/// Whether implicit records must be compared with earlier epochs: only while the guard stands.
pub fn needs_earlier(upload: &Upload, snapshot: &Snapshot, policy: &Policy) -> bool {
    let implicit = matches!(&upload.content, Ok(batch) if batch.epoch_id.is_none());
    implicit && snapshot.standing_guard(upload, policy).is_some()
}

/// What this upload may put into quarantine, so that the store can say which of it is there already.
pub fn quarantine_candidates(upload: &Upload, known: Option<&KnownBatch>) -> Vec<(BodyHash, Reason)> {
    match &upload.content {
        Err(unreadable) => vec![(upload.body_hash, unreadable.reason)],
        Ok(batch) => {
            let records = batch.unusable.iter().map(|record| (record.hash, record.reason));
            let reused = known.is_some_and(|known| known.body_hash != upload.body_hash);
            let body = reused.then_some((upload.body_hash, Reason::InconsistentDuplicate));
            records.chain(body).collect()
        }
    }
}

/// What more it may put there, by what is stored under its keys (all else of the snapshot must be loaded):
/// records beyond [`VERSIONS_MAX`]. Empty, without looking at any content, where no key can have so many.
pub fn surplus_candidates(upload: &Upload, snapshot: &Snapshot, policy: &Policy) -> Vec<(BodyHash, Reason)> {
    let Ok(batch) = &upload.content else { return Vec::new() };
    let stored = most_of_one_seq(snapshot.same_key.iter().map(|entry| entry.seq));
    let sent = match batch.records.len() {
        few if few.saturating_add(stored) <= VERSIONS_MAX => few,
        many if !batch.records.is_sorted_by_key(|record| record.seq) => many,
        _ => most_of_one_seq(batch.records.iter().map(|record| record.seq)),
    };
    if sent.saturating_add(stored) <= VERSIONS_MAX {
        return Vec::new();
    }
    let surplus = judge::judge(upload, batch, snapshot, policy).surplus;
    let hash = |place: &usize| body_hash(to_json(&batch.records[*place]).as_bytes());
    surplus.iter().map(|place| (hash(place), Reason::TooManyConflicts)).collect()
}

/// The longest run of equal seqs.
fn most_of_one_seq(seqs: impl Iterator<Item = Seq>) -> usize {
    let (mut last, mut run, mut most) = (None, 0, 0);
    for seq in seqs {
        run = if last == Some(seq) { run + 1 } else { 1 };
        last = Some(seq);
        most = run.max(most);
    }
    most
}

/// Decides one upload.
pub fn decide(upload: &Upload, snapshot: &Snapshot, policy: &Policy) -> Result<Plan, QuarantineFull> {
    let batch = match &upload.content {
        Err(unreadable) => {
            let plan = Plan::quarantined(upload, snapshot, unreadable.reason, &unreadable.detail);
            return plan.within_cap(snapshot, policy);
        }
        Ok(batch) => batch,
    };
    let reused = match &snapshot.known_batch {
        Some(known) if known.body_hash == upload.body_hash => return Ok(Plan::duplicate(snapshot)),
        known => known.is_some(),
    };
    let judgement = judge::judge(upload, batch, snapshot, policy);
    let quarantine = plan::single_records(batch, snapshot, &judgement);
    if reused {
        // A known batch in another spelling: every usable record is an exact repeat, and whatever goes to
        // quarantine is there already. It may yet name the epoch of entries that were held for want of it.
        let known = judgement.entries.is_empty() && quarantine.iter().all(|entry| entry.known);
        if known && judgement.lifts.is_empty() {
            return Ok(Plan::duplicate(snapshot));
        }
        if !known && policy.reused_batch_id == ReusedBatchId::Quarantine {
            let detail = "this batch id came before with other content";
            let plan = Plan::quarantined(upload, snapshot, Reason::InconsistentDuplicate, detail);
            return Plan { batch_id_reused: true, ..plan }.within_cap(snapshot, policy);
        }
    }
    let batch_id_reused = reused && policy.reused_batch_id == ReusedBatchId::Ingest;
    let plan = Plan::processed(upload, batch, snapshot, policy, judgement, quarantine);
    Plan { batch_id_reused, ..plan }.within_cap(snapshot, policy)
}
