//! The one decision function: what is known, plus one upload, gives what is done. A store loads the
//! [`Snapshot`] inside its transaction, calls [`decide`], and carries the [`Plan`] out; SQL holds no rule.

mod judge;
mod plan;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::HashSet;

use super::batch::Batch;
use super::epoch::{EpochFacts, Guard};
use super::ids::{EpochId, Seq};
use super::reason::{Mark, Reason};
use super::record::Record;
use super::state::State;
use super::upload::{BodyHash, Upload, body_hash};
use judge::Judgement;
pub use plan::{EpochPlan, NewBatch, Plan, PlannedEntry, PlannedQuarantine, StateMove};

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
    /// What it holds.
    pub record: Record,
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
    /// Entries of the target epoch with a seq of the upload, in order of (seq, row); loaded where
    /// [`needs_same_key`] says so.
    pub same_key: Vec<StoredEntry>,
    /// Entries of earlier epochs with a seq of the upload, in order of seq; loaded where [`needs_earlier`]
    /// says so.
    pub earlier: Vec<StoredEntry>,
    /// Which of [`quarantine_candidates`] the device has in quarantine already.
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
            let records = batch.unusable.iter().map(|record| (body_hash(&record.bytes), record.reason));
            let reused = known.is_some_and(|known| known.body_hash != upload.body_hash);
            let body = reused.then_some((upload.body_hash, Reason::InconsistentDuplicate));
            records.chain(body).collect()
        }
    }
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
    if let Some(known) = &snapshot.known_batch {
        if known.body_hash == upload.body_hash {
            return Ok(Plan::duplicate(snapshot));
        }
        let judgement = judge::judge(upload, batch, snapshot, policy);
        if brings_nothing_new(batch, &judgement, snapshot) {
            return Ok(Plan::duplicate(snapshot));
        }
        if policy.reused_batch_id == ReusedBatchId::Quarantine && !only_lifts(batch, &judgement, snapshot) {
            let detail = "this batch id came before with other content";
            let plan = Plan::quarantined(upload, snapshot, Reason::InconsistentDuplicate, detail);
            return Plan { batch_id_reused: true, ..plan }.within_cap(snapshot, policy);
        }
        let reused = policy.reused_batch_id == ReusedBatchId::Ingest;
        let plan = Plan::processed(upload, batch, snapshot, policy, judgement);
        return Plan { batch_id_reused: reused, ..plan }.within_cap(snapshot, policy);
    }
    let judgement = judge::judge(upload, batch, snapshot, policy);
    Plan::processed(upload, batch, snapshot, policy, judgement).within_cap(snapshot, policy)
}

/// A known batch in another spelling: every usable record is an exact repeat and every unusable one is in
/// quarantine already.
fn brings_nothing_new(batch: &Batch, judgement: &Judgement, snapshot: &Snapshot) -> bool {
    judgement.lifts.is_empty() && only_lifts(batch, judgement, snapshot)
}

/// The same, but it names the epoch of entries that were held for want of it.
fn only_lifts(batch: &Batch, judgement: &Judgement, snapshot: &Snapshot) -> bool {
    let quarantined = |bytes: &[u8], reason| snapshot.quarantined.contains(&(body_hash(bytes), reason));
    judgement.entries.is_empty()
        && batch.unusable.iter().all(|record| quarantined(&record.bytes, record.reason))
}
