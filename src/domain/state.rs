//! The current state of a device and the law it obeys.

use std::fmt;

use super::ids::Key;
use super::record::{Fix, Record};
use super::time::Timestamp;

/// The last known position, with the ordering key of the record that brought it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    /// Key of the record with this fix.
    pub key: Key,
    /// Where.
    pub fix: Fix,
    /// When, by the device's clock.
    pub recorded_at: Option<Timestamp>,
}

/// The current state: the greatest counting entry, and the greatest counting entry with a fix.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Key of the greatest counting entry.
    pub key: Key,
    /// Its time by the device's clock.
    pub recorded_at: Option<Timestamp>,
    /// When it arrived.
    pub received_at: Timestamp,
    /// Its battery, volts.
    pub battery: Option<f64>,
    /// `None` while no counting entry has a fix.
    pub position: Option<Position>,
}

impl fmt::Display for State {
    /// For a person who compares two states: all that they can differ in.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, received {}", self.key, self.received_at)?;
        if let Some(recorded_at) = self.recorded_at {
            write!(f, ", recorded {recorded_at}")?;
        }
        if let Some(battery) = self.battery {
            write!(f, ", battery {battery}")?;
        }
        let Some(position) = &self.position else { return f.write_str(", no position") };
        write!(f, ", position {}, {} of {}", position.fix.lat, position.fix.lon, position.key)?;
        position.recorded_at.map_or(Ok(()), |recorded_at| write!(f, " recorded {recorded_at}"))
    }
}

/// The rule of the swap: only a greater key wins, equal is stale. `fault-equal-wins` breaks it on purpose.
fn wins(new: Key, kept: Key) -> bool {
    if cfg!(feature = "fault-equal-wins") { new >= kept } else { new > kept }
}

impl State {
    /// Folds one counting entry into the state. The order of calls does not matter, as long as of each key
    /// only the entry received first is folded: that is the law of section 2 of the contract.
    pub fn fold(state: &mut Option<Self>, key: Key, record: &Record, received_at: Timestamp) {
        let position = record.fix.map(|fix| Position { key, fix, recorded_at: record.recorded_at });
        let entry =
            Self { key, recorded_at: record.recorded_at, received_at, battery: record.battery, position };
        let Some(current) = state else {
            *state = Some(entry);
            return;
        };
        let position = match (current.position, position) {
            (Some(kept), Some(new)) if !wins(new.key, kept.key) => Some(kept),
            (kept, new) => new.or(kept),
        };
        if wins(key, current.key) {
            *current = entry;
        }
        current.position = position;
    }

    /// Key of the position.
    pub fn position_key(&self) -> Option<Key> {
        self.position.map(|p| p.key)
    }
}
