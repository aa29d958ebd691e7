//! What a gateway must know of one device, kept beside it and written from the contract alone: it shares no rule
//! with `domain::decide` or `domain::state`, only the names of values.
//!
//! Not modelled: guards, marks, voided epochs. A device of a script names an epoch always or never, and nobody
//! resets it, so that none of them can matter.

mod compare;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};

pub use self::compare::TrackCheck;
use super::parcel::Parcel;
use super::reading::Reading;
use crate::domain::ids::{BatchId, DeviceId, EpochId, Key};
use crate::domain::receipt::Status;
use crate::domain::record::Record;

/// The books of one device.
#[derive(Debug)]
pub struct Ledger {
    device_id: DeviceId,
    log: BTreeMap<Key, Versions>,
    batches: HashSet<BatchId>,
    /// Contents beside the first of their key.
    conflicts: u64,
    /// Distinct records that nobody can use.
    unusable: HashSet<Box<str>>,
}

/// All contents of one key.
#[derive(Debug)]
struct Versions {
    /// The one received first: it alone counts.
    first: Record,
    others: Vec<Record>,
}

/// What the gateway must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// `Processed` or `Duplicate`.
    pub status: Status,
    /// Records stored for the first time.
    pub accepted: u64,
    /// Records that repeat a stored one.
    pub repeated: u64,
    /// Records that contradict a stored one.
    pub conflicts: u64,
    /// Records that cannot be used.
    pub quarantined: u64,
    /// Whether state or position moved.
    pub applied: bool,
    /// The state afterwards.
    pub state: Option<Key>,
}

impl Ledger {
    /// Empty books.
    pub fn new(device_id: DeviceId) -> Self {
        Self {
            device_id,
            log: BTreeMap::new(),
            batches: HashSet::new(),
            conflicts: 0,
            unusable: HashSet::new(),
        }
    }

    /// Whose books these are.
    pub fn device_id(&self) -> &DeviceId {
        &self.device_id
    }

    /// Whether nothing of the device has arrived, so that no gateway can know it.
    pub fn is_blank(&self) -> bool {
        self.batches.is_empty()
    }

    /// Keys in the books.
    pub fn keys(&self) -> usize {
        self.log.len()
    }

    /// Distinct contents in the books: of each key the first, and what contradicts it.
    pub fn contents(&self) -> u64 {
        u64::try_from(self.log.len()).unwrap_or(u64::MAX).saturating_add(self.conflicts)
    }

    /// Books an upload that has arrived, and says what the gateway must answer. The order of calls is the order
    /// of arrival.
    pub fn receive(&mut self, parcel: &Parcel) -> Account {
        let before = (self.state_key(), self.position().map(|(key, _)| key));
        let mut account = Account {
            status: Status::Processed,
            accepted: 0,
            repeated: 0,
            conflicts: 0,
            quarantined: 0,
            applied: false,
            state: before.0,
        };
        if !self.batches.insert(parcel.batch_id.clone()) {
            // A parcel's name stands for its content, so that it can bring nothing new.
            return Account { status: Status::Duplicate, ..account };
        }
        for reading in &parcel.readings {
            match reading {
                Reading::Unusable(text) => {
                    self.unusable.insert(text.as_str().into());
                    account.quarantined += 1;
                }
                // Without an epoch it goes to the current one: 0, since nothing ever opens another.
                Reading::Usable(record) => {
                    let key = Key { epoch_id: parcel.epoch_id.unwrap_or(EpochId::ZERO), seq: record.seq };
                    *match self.enter(key, record) {
                        Entered::New => &mut account.accepted,
                        Entered::Repeat => &mut account.repeated,
                        Entered::Conflict => &mut account.conflicts,
                    } += 1;
                }
            }
        }
        let after = (self.state_key(), self.position().map(|(key, _)| key));
        Account { applied: before != after, state: after.0, ..account }
    }

    fn enter(&mut self, key: Key, record: &Record) -> Entered {
        let Some(versions) = self.log.get_mut(&key) else {
            self.log.insert(key, Versions { first: record.clone(), others: Vec::new() });
            return Entered::New;
        };
        if versions.first == *record || versions.others.contains(record) {
            return Entered::Repeat;
        }
        versions.others.push(record.clone());
        self.conflicts += 1;
        Entered::Conflict
    }

    /// The greatest ordering key.
    pub fn state_key(&self) -> Option<Key> {
        self.log.keys().next_back().copied()
    }

    fn latest(&self) -> Option<(Key, &Record)> {
        self.log.iter().next_back().map(|(key, versions)| (*key, &versions.first))
    }

    /// The greatest ordering key with a fix.
    fn position(&self) -> Option<(Key, &Record)> {
        let fixed = |(_, versions): &(&Key, &Versions)| versions.first.fix.is_some();
        self.log.iter().rev().find(fixed).map(|(key, versions)| (*key, &versions.first))
    }
}

enum Entered {
    New,
    Repeat,
    Conflict,
}
