//! The plan: what a store has to write for one upload, and the receipt that goes with it.

use std::collections::HashSet;

use super::judge::Judgement;
use super::{Policy, QUARANTINE_ENTRY_BYTES, QuarantineFull, Snapshot, VERSIONS_MAX};
use crate::domain::batch::Batch;
use crate::domain::decode::to_json;
use crate::domain::epoch::Guard;
use crate::domain::ids::{EpochId, Key, Seq};
use crate::domain::reason::{Mark, NotApplied, Reason};
use crate::domain::receipt::{Counts, Receipt, Status, Why};
use crate::domain::state::State;
use crate::domain::upload::{BodyHash, Upload, body_hash};

/// A new log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedEntry {
    /// Place of its record in the batch.
    pub place: usize,
    /// Why it does not count, if it does not.
    pub mark: Option<Mark>,
    /// Whether it is the counting entry of its key (else, without a mark, it is a conflict).
    pub first: bool,
}

/// A batch id to remember, with the upload's body hash; in place of the former one where it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBatch {
    /// The epoch its records went to.
    pub epoch_id: EpochId,
    /// How many entries it brought.
    pub entries: usize,
}

/// How the target epoch stands afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochPlan {
    /// Which.
    pub epoch_id: EpochId,
    /// Greatest seq logged in it.
    pub max_logged: Option<Seq>,
    /// Greatest seq of a counting entry.
    pub max_counting: Option<Seq>,
    /// Its guard.
    pub guard: Option<Guard>,
    /// The device opened it above another one by naming it: worth a line in the audit.
    pub opened_above: Option<EpochId>,
}

/// What happens to the current state.
#[derive(Clone, Debug, PartialEq)]
pub enum StateMove {
    /// Nothing.
    Keep,
    /// The state or the position moves to this; the store's statement checks it again.
    Swap(State),
    /// Marks were lifted: the law decides, from the log.
    ByLaw,
}

/// Something to keep for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedQuarantine {
    /// Why.
    pub reason: Reason,
    /// The same for a person.
    pub detail: String,
    /// Hash of the bytes: an identical one of the same device and reason is counted, not stored again.
    pub hash: BodyHash,
    /// The bytes themselves.
    pub bytes: QuarantinedBytes,
    /// How many they are.
    pub len: u64,
    /// The record's place in the array of the batch, from 0; `None`: the body is kept whole.
    pub index: Option<usize>,
    /// Whether it is there already.
    pub known: bool,
    /// The epoch it would have gone to.
    pub epoch_id: EpochId,
}

/// What is kept of an upload, or of one record of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QuarantinedBytes {
    /// The body as sent.
    Body,
    /// The bytes of the batch's unusable record at this place among them.
    Unusable(usize),
    /// A decoded record, whose own bytes are not known any more, written out again.
    Written(Vec<u8>),
}

/// What one upload does. Nothing in it refers to a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// First word of the receipt.
    pub status: Status,
    /// Records by outcome; `None` where the body was not read as a batch.
    pub counts: Option<Counts>,
    /// Why the body went to quarantine.
    pub reason: Option<Reason>,
    /// A batch id to remember, with what it brought; `None` if that is nothing new.
    pub batch: Option<NewBatch>,
    /// `None`: the epoch stays as it is.
    pub epoch: Option<EpochPlan>,
    /// The current epoch afterwards.
    pub current_epoch: EpochId,
    /// New entries, in seq order.
    pub entries: Vec<PlannedEntry>,
    /// Rows whose `held` mark is lifted.
    pub lifts: Vec<i64>,
    /// What happens to the state.
    pub state: StateMove,
    /// What goes to quarantine.
    pub quarantine: Vec<PlannedQuarantine>,
    /// The batch id came again with new content.
    pub batch_id_reused: bool,
    /// Change of the number of held entries.
    pub held_delta: i64,
    /// Change of the number of conflicting entries.
    pub conflicts_delta: i64,
}

impl Plan {
    fn new(status: Status, counts: Option<Counts>, current_epoch: EpochId) -> Self {
        Self {
            status,
            counts,
            reason: None,
            batch: None,
            epoch: None,
            current_epoch,
            entries: Vec::new(),
            lifts: Vec::new(),
            state: StateMove::Keep,
            quarantine: Vec::new(),
            batch_id_reused: false,
            held_delta: 0,
            conflicts_delta: 0,
        }
    }

    /// A known batch that brings nothing new.
    pub(super) fn duplicate(snapshot: &Snapshot) -> Self {
        Self::new(Status::Duplicate, Some(Counts::default()), snapshot.device.current_epoch)
    }

    /// A body kept whole.
    pub(super) fn quarantined(upload: &Upload, snapshot: &Snapshot, reason: Reason, detail: &str) -> Self {
        let entry = PlannedQuarantine {
            reason,
            detail: detail.to_owned(),
            hash: upload.body_hash,
            bytes: QuarantinedBytes::Body,
            len: len(&upload.body),
            index: None,
            known: snapshot.quarantined.contains(&(upload.body_hash, reason)),
            epoch_id: snapshot.epoch.epoch_id,
        };
        let mut plan = Self::new(Status::Quarantined, None, snapshot.device.current_epoch);
        plan.reason = Some(reason);
        plan.quarantine.push(entry);
        plan
    }

    /// A batch that was judged.
    pub(super) fn processed(
        upload: &Upload,
        batch: &Batch,
        snapshot: &Snapshot,
        policy: &Policy,
        judgement: Judgement,
        quarantine: Vec<PlannedQuarantine>,
    ) -> Self {
        let quarantined = u64::try_from(quarantine.len()).unwrap_or(u64::MAX);
        let counts = Counts { quarantined, ..judgement.counts };
        let mut plan = Self::new(Status::Processed, Some(counts), snapshot.device.current_epoch);
        plan.held_delta = held_delta(&judgement);
        plan.conflicts_delta = judgement.conflicts_delta;
        plan.quarantine = quarantine;
        plan.batch = Some(NewBatch { epoch_id: snapshot.epoch.epoch_id, entries: judgement.entries.len() });
        if !judgement.entries.is_empty() || !judgement.lifts.is_empty() {
            plan.epoch = Some(epoch_plan(upload, batch, snapshot, policy, &judgement));
            if !snapshot.epoch.voided {
                plan.current_epoch = plan.current_epoch.max(snapshot.epoch.epoch_id);
            }
        }
        plan.state = state_move(upload, batch, snapshot, &judgement);
        plan.entries = judgement.entries;
        plan.lifts = judgement.lifts;
        plan
    }

    /// The plan, unless it would take the device's quarantine past its cap.
    pub(super) fn within_cap(self, snapshot: &Snapshot, policy: &Policy) -> Result<Self, QuarantineFull> {
        let added = self.quarantine_bytes();
        let total = snapshot.device.quarantined_bytes.saturating_add(added);
        if added > 0 && total > policy.quarantine_bytes_max { Err(QuarantineFull) } else { Ok(self) }
    }

    /// Bytes that the quarantine grows by.
    pub fn quarantine_bytes(&self) -> u64 {
        let new = self.quarantine.iter().filter(|entry| !entry.known);
        new.map(|entry| entry.len.saturating_add(QUARANTINE_ENTRY_BYTES)).sum()
    }

    /// The receipt, given the state after the commit and whether it, or the position, moved.
    pub fn receipt(&self, state: Option<&State>, moved: bool) -> Receipt {
        let reason = match (self.status, &self.counts) {
            (Status::Processed, Some(counts)) if !moved => Some(Why::NotApplied(not_applied(counts, self))),
            (Status::Quarantined, _) => self.reason.map(Why::Quarantined),
            _ => None,
        };
        Receipt {
            status: self.status,
            counts: self.counts,
            applied: self.counts.map(|_| moved),
            reason,
            epoch_id: state.map(|state| state.key.epoch_id),
            last_seq: state.map(|state| state.key.seq),
        }
    }
}

/// The most telling reason, where several hold: what is newest about the batch comes first.
fn not_applied(counts: &Counts, plan: &Plan) -> NotApplied {
    let has = |mark| plan.entries.iter().any(|entry| entry.mark == mark);
    if has(None) {
        NotApplied::Stale
    } else if has(Some(Mark::Held)) {
        NotApplied::Held
    } else if has(Some(Mark::Void)) {
        NotApplied::Void
    } else if counts.repeated > 0 {
        NotApplied::Repeated
    } else if counts.quarantined > 0 {
        NotApplied::Quarantined
    } else {
        NotApplied::Empty
    }
}

fn held_delta(judgement: &Judgement) -> i64 {
    let held = i64::try_from(judgement.counts.held).unwrap_or(i64::MAX);
    held - i64::try_from(judgement.lifts.len()).unwrap_or(i64::MAX)
}

/// Records that go to quarantine alone, the unusable and the surplus ones. Each distinct one is new once: the same
/// rubbish twice in a batch is one entry.
pub(super) fn single_records(
    batch: &Batch,
    snapshot: &Snapshot,
    judgement: &Judgement,
) -> Vec<PlannedQuarantine> {
    let unusable = batch.unusable.iter().enumerate().map(|(place, record)| PlannedQuarantine {
        reason: record.reason,
        detail: record.detail.clone(),
        hash: record.hash,
        bytes: QuarantinedBytes::Unusable(place),
        len: len(&record.bytes),
        index: Some(record.index),
        known: false,
        epoch_id: snapshot.epoch.epoch_id,
    });
    let mut all: Vec<PlannedQuarantine> = unusable.collect();
    if !judgement.surplus.is_empty() {
        all.extend(surplus(batch, snapshot, judgement));
    }
    let mut seen = HashSet::new();
    for entry in &mut all {
        let content = (entry.hash, entry.reason);
        entry.known = snapshot.quarantined.contains(&content) || !seen.insert(content);
    }
    all
}

fn surplus(
    batch: &Batch,
    snapshot: &Snapshot,
    judgement: &Judgement,
) -> impl Iterator<Item = PlannedQuarantine> {
    // How many usable records stand before each unusable one.
    let unusable = batch.unusable.iter().enumerate();
    let before: Vec<usize> = unusable.map(|(place, record)| record.index.saturating_sub(place)).collect();
    judgement.surplus.iter().map(move |place| {
        let record = &batch.records[*place];
        let bytes = to_json(record).into_bytes();
        PlannedQuarantine {
            reason: Reason::TooManyConflicts,
            detail: format!("{VERSIONS_MAX} other contents of seq {} are stored already", record.seq),
            hash: body_hash(&bytes),
            len: len(&bytes),
            bytes: QuarantinedBytes::Written(bytes),
            index: Some(place + before.partition_point(|before| before <= place)),
            known: false,
            epoch_id: snapshot.epoch.epoch_id,
        }
    })
}

fn len(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

fn epoch_plan(
    upload: &Upload,
    batch: &Batch,
    snapshot: &Snapshot,
    policy: &Policy,
    judgement: &Judgement,
) -> EpochPlan {
    let facts = &snapshot.epoch;
    let logged = judgement.entries.last().map(|entry| batch.records[entry.place].seq);
    let opens = batch.epoch_id.is_some()
        && !facts.known
        && !facts.voided
        && facts.epoch_id > snapshot.device.current_epoch;
    let guard = if opens { Some(Guard::by_device(upload.received_at)) } else { facts.guard };
    let stands = |guard: &Guard| {
        let here = guard.here(judgement.max_counting);
        guard.stands(here, snapshot.old, upload.received_at, policy.guard_days)
    };
    EpochPlan {
        epoch_id: facts.epoch_id,
        max_logged: facts.max_logged.max(logged),
        max_counting: judgement.max_counting,
        guard: guard.filter(stands),
        opened_above: (opens && snapshot.old.is_some()).then_some(snapshot.device.current_epoch),
    }
}

fn state_move(upload: &Upload, batch: &Batch, snapshot: &Snapshot, judgement: &Judgement) -> StateMove {
    if !judgement.lifts.is_empty() {
        return StateMove::ByLaw;
    }
    let mut state = snapshot.device.state;
    // With the planted fault the first of a key has nothing ahead of what comes later for it.
    let may_win =
        |entry: &&PlannedEntry| entry.first || (cfg!(feature = "fault-equal-wins") && entry.mark.is_none());
    for entry in judgement.entries.iter().filter(may_win) {
        let record = &batch.records[entry.place];
        let key = Key { epoch_id: snapshot.epoch.epoch_id, seq: record.seq };
        State::fold(&mut state, key, record, upload.received_at);
    }
    match state {
        Some(state) if Some(state) != snapshot.device.state => StateMove::Swap(state),
        _ => StateMove::Keep,
    }
}
