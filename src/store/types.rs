//! What a store takes and gives back, in terms of the domain.

use std::time::Duration;

use crate::domain::epoch::Guard;
use crate::domain::ids::{DeviceId, EpochId, Key, Seq};
use crate::domain::reason::Mark;
use crate::domain::record::Record;
use crate::domain::signature::KeyFingerprint;
use crate::domain::state::State;
use crate::domain::time::Timestamp;

/// Choices a store is opened with.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Rules the decision takes from configuration.
    pub policy: crate::domain::decide::Policy,
    /// How long to wait for a database that somebody else holds.
    pub busy_timeout: Duration,
    /// Bytes of page cache of the writing connection.
    pub cache_bytes: u64,
    /// Pages in a write-ahead log at which they are written back into the database, where the backend has one.
    pub checkpoint_pages: u64,
    /// How many readers may be at work at once.
    pub readers: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            policy: crate::domain::decide::Policy::default(),
            busy_timeout: Duration::from_secs(5),
            cache_bytes: 16 << 20,
            // 32 MiB. Between 4,000 and 16,000 it makes no measurable difference to throughput.
            checkpoint_pages: 8000,
            readers: 4,
        }
    }
}

/// A device as it is read: its state and the facts beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Which device.
    pub device_id: DeviceId,
    /// `None` while it has no counting entry.
    pub state: Option<State>,
    /// How often the state changed; the `ETag`.
    pub revision: u64,
    /// When the latest authentic upload arrived.
    pub last_contact_at: Timestamp,
    /// Where implicit batches go.
    pub current_epoch_id: EpochId,
    /// The guard of the current epoch, as stored: whether it still stands depends on the time, see
    /// [`Guard::stands`].
    pub guard: Option<Guard>,
    /// Greatest counting seq of any earlier epoch, where there is a guard.
    pub guard_old: Option<Seq>,
    /// Greatest counting seq of the current epoch, where there is a guard.
    pub guard_max_counting: Option<Seq>,
    /// Entries marked held.
    pub held: u64,
    /// Counting keys' other contents.
    pub conflicts: u64,
    /// Open quarantine entries.
    pub quarantined: u64,
    /// When a known batch id last came with new content.
    pub batch_id_reused_at: Option<Timestamp>,
    /// Name given by ops.
    pub label: Option<String>,
    /// Whether ops locked it out.
    pub disabled: bool,
    /// The fleet key it last signed with.
    pub fleet_key: Option<KeyFingerprint>,
}

/// A page of devices, ordered by id.
#[derive(Clone, Debug, PartialEq)]
pub struct DevicePage {
    /// At most as many as asked for.
    pub devices: Vec<Device>,
    /// Whether there are more behind the last one.
    pub more: bool,
    /// Every state change up to this number is in the page: a stream may go on from here.
    pub cursor: u64,
}

/// Which part of a device's history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrackQuery {
    /// Least key wanted, itself included.
    pub from: Key,
    /// Greatest key wanted, itself included.
    pub to: Key,
    /// Only records whose device time is in this range, ends included.
    pub recorded: TimeRange,
    /// Only records that arrived in this range, ends included.
    pub received: TimeRange,
    /// Most entries of the page.
    pub limit: usize,
}

/// A range of time; an end left out is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// Not before.
    pub from: Option<Timestamp>,
    /// Not after.
    pub to: Option<Timestamp>,
}

impl TimeRange {
    /// Whether a time is in the range. An unknown time is only in the range that is open at both ends.
    pub fn holds(&self, time: Option<Timestamp>) -> bool {
        match time {
            Some(time) => self.from.is_none_or(|from| from <= time) && self.to.is_none_or(|to| time <= to),
            None => self.from.is_none() && self.to.is_none(),
        }
    }
}

/// One entry of the telemetry log.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// Its epoch.
    pub epoch_id: EpochId,
    /// What the device sent.
    pub record: Record,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Why it does not count, if it does not.
    pub mark: Option<Mark>,
    /// Other contents stored under the same key.
    pub conflicts: u64,
}

impl Entry {
    /// Its ordering key.
    pub fn key(&self) -> Key {
        Key { epoch_id: self.epoch_id, seq: self.record.seq }
    }
}

/// A page of a track: counting entries in key order, each key once.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackPage {
    /// At most as many as asked for.
    pub entries: Vec<Entry>,
    /// Where the next page starts; `None` at the end of the range. A page may be short, even empty, and
    /// still have a next one, where a time range passed over much or the records are large.
    pub next: Option<Key>,
}

/// What a check of the law and the books found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verification {
    /// Devices checked.
    pub devices: u64,
    /// Log entries read.
    pub entries: u64,
    /// Spans read.
    pub spans: u64,
    /// Remembered batches counted.
    pub batches: u64,
    /// Quarantine entries counted.
    pub quarantined: u64,
    /// One line a difference, the first thousand of them.
    pub differences: Vec<String>,
    /// How many differences there were in all.
    pub difference_count: u64,
}
