//! The gateway's own words against the books. Each difference names device and key.

use std::collections::btree_map;
use std::iter::Peekable;

use serde_json::Value;

use super::{Account, Ledger, Versions};
use crate::domain::ids::{EpochId, Key, Seq};
use crate::domain::receipt::Status;
use crate::domain::record::Record;
use crate::domain::time::Timestamp;

impl Ledger {
    /// Compares a receipt with what it must say. `perhaps`: these bytes were sent before and no answer came, so
    /// that the gateway may call them a duplicate.
    pub fn check_receipt(&self, account: &Account, receipt: &Value, perhaps: bool) -> Option<String> {
        let count = |name: &str| receipt.get(name).map_or(Some(0), Value::as_u64);
        let counts = ["accepted", "repeated", "conflicts", "quarantined", "held"].map(count);
        let said = (receipt["status"].as_str(), read_key(receipt, "epoch_id", "last_seq"));
        let duplicate = said.0 == Some(Status::Duplicate.code());
        let Account { accepted, repeated, conflicts, quarantined, applied, state, .. } = *account;
        let fits = if duplicate {
            (perhaps || account.status == Status::Duplicate)
                && counts.iter().all(|n| *n == Some(0))
                && receipt["applied"] != true
        } else {
            said.0 == Some(account.status.code())
                && counts == [accepted, repeated, conflicts, quarantined, 0].map(Some)
                && receipt["applied"] == applied
        };
        (!fits || said.1 != Ok(state)).then(|| {
            let at = state.map_or("no state".to_owned(), |key| key.to_string());
            format!(
                "device {}: the receipt is {receipt}, the ledger says {} with accepted {accepted}, repeated \
                 {repeated}, conflicts {conflicts}, quarantined {quarantined}, applied {applied}, and {at} afterwards",
                self.device_id,
                account.status.code(),
            )
        })
    }

    /// Compares a state as `GET /v1/devices/{id}` gives it.
    pub fn check_state(&self, device: &Value) -> Vec<String> {
        let (latest, position) = (self.latest(), self.position());
        let at = latest.map_or("no key".to_owned(), |(key, _)| key.to_string());
        let mut differences = Vec::new();
        let mut compare = |field: &str, right: bool, expected: String| {
            if !right {
                let said = device.get(field).map_or("missing".to_owned(), Value::to_string);
                let id = &self.device_id;
                differences
                    .push(format!("device {id} at {at}: {field} is {said}, the ledger says {expected}"));
            }
        };
        let number = |field: &str, n: Option<u64>| (device[field].as_u64() == n, shown(n));
        let float = |field: &str, x: Option<f64>| (device[field].as_f64() == x, shown(x));
        let time = |field: &str, t: Option<Timestamp>| (is_time(&device[field], t), shown(t));
        let fix = position.and_then(|(_, record)| record.fix);
        let epochs = |key: Option<Key>| key.map(|key| key.epoch_id.get());
        let seqs = |key: Option<Key>| key.map(|key| key.seq.get());
        let (state_key, position_key) = (latest.map(|(key, _)| key), position.map(|(key, _)| key));
        let unusable = u64::try_from(self.unusable.len()).ok();
        for (field, (right, expected)) in [
            ("epoch_id", number("epoch_id", epochs(state_key))),
            ("last_seq", number("last_seq", seqs(state_key))),
            ("position_epoch_id", number("position_epoch_id", epochs(position_key))),
            ("position_seq", number("position_seq", seqs(position_key))),
            ("lat", float("lat", fix.map(|fix| fix.lat))),
            ("lon", float("lon", fix.map(|fix| fix.lon))),
            ("battery", float("battery", latest.and_then(|(_, record)| record.battery))),
            ("recorded_at", time("recorded_at", latest.and_then(|(_, record)| record.recorded_at))),
            (
                "position_recorded_at",
                time("position_recorded_at", position.and_then(|(_, record)| record.recorded_at)),
            ),
            ("current_epoch_id", number("current_epoch_id", Some(epochs(state_key).unwrap_or(0)))),
            ("held", number("held", Some(0))),
            ("conflicts", number("conflicts", Some(self.conflicts))),
            ("quarantined", number("quarantined", unusable)),
        ] {
            compare(field, right, expected);
        }
        if device["device_id"].as_str() != Some(self.device_id.as_str()) {
            compare("device_id", false, self.device_id.to_string());
        }
        differences
    }

    /// Begins to compare a track, record by record.
    pub fn check_track(&self) -> TrackCheck<'_> {
        TrackCheck { ledger: self, expected: self.log.iter().peekable(), last: None }
    }
}

/// A track being compared.
#[derive(Debug)]
pub struct TrackCheck<'a> {
    ledger: &'a Ledger,
    expected: Peekable<btree_map::Iter<'a, Key, Versions>>,
    last: Option<Key>,
}

impl TrackCheck<'_> {
    /// Compares the next record of the track; `tell` hears of each difference.
    pub fn record(&mut self, record: &Value, tell: &mut impl FnMut(String)) {
        let id = &self.ledger.device_id;
        let Ok(Some(key)) = read_key(record, "epoch_id", "seq") else {
            return tell(format!("device {id}: the track has a record without a key: {record}"));
        };
        if self.last.is_some_and(|last| key <= last) {
            return tell(format!("device {id} at {key}: stands twice in the track, or out of order"));
        }
        self.last = Some(key);
        while let Some((missing, _)) = self.expected.next_if(|(expected, _)| **expected < key) {
            tell(format!("device {id} at {missing}: acknowledged, but missing from the track"));
        }
        match self.expected.next_if(|(expected, _)| **expected == key) {
            None => tell(format!("device {id} at {key}: stands in the track, but was never sent")),
            Some((_, versions)) => {
                if let Some(why) = unlike(versions, record) {
                    tell(format!("device {id} at {key}: {why}"));
                }
            }
        }
    }

    /// The track has ended.
    pub fn end(self, tell: &mut impl FnMut(String)) {
        let id = &self.ledger.device_id;
        for (missing, _) in self.expected {
            tell(format!("device {id} at {missing}: acknowledged, but missing from the track"));
        }
    }
}

/// How a record of the track differs from the one that counts.
fn unlike(versions: &Versions, said: &Value) -> Option<String> {
    let Record { recorded_at, fix, battery, extra, raw, .. } = &versions.first;
    let object = |text: &Option<Box<str>>| {
        text.as_deref().map_or(Value::Null, |text| serde_json::from_str(text).unwrap_or(Value::Null))
    };
    let conflicts = u64::try_from(versions.others.len()).unwrap_or(u64::MAX);
    let wrong = |field: &str, expected: String| {
        let said = said.get(field).map_or("missing".to_owned(), Value::to_string);
        Some(format!("{field} is {said}, the ledger says {expected}"))
    };
    if said["lat"].as_f64() != fix.map(|fix| fix.lat) {
        return wrong("lat", shown(fix.map(|fix| fix.lat)));
    }
    if said["lon"].as_f64() != fix.map(|fix| fix.lon) {
        return wrong("lon", shown(fix.map(|fix| fix.lon)));
    }
    if said["battery"].as_f64() != *battery {
        return wrong("battery", shown(*battery));
    }
    if !is_time(&said["recorded_at"], *recorded_at) {
        return wrong("recorded_at", shown(*recorded_at));
    }
    if said["extra"] != object(extra) {
        return wrong("extra", object(extra).to_string());
    }
    if said["raw"] != object(raw) {
        return wrong("raw", object(raw).to_string());
    }
    if said.get("conflicts").map_or(Some(0), Value::as_u64) != Some(conflicts) {
        return wrong("conflicts", conflicts.to_string());
    }
    None
}

/// A key of two members; `Ok(None)` where both are null or absent.
fn read_key(object: &Value, epoch_id: &str, seq: &str) -> Result<Option<Key>, ()> {
    match (&object[epoch_id], &object[seq]) {
        (Value::Null, Value::Null) => Ok(None),
        (epoch_id, seq) => {
            let key = epoch_id.as_u64().and_then(EpochId::new).zip(seq.as_u64().and_then(Seq::new));
            key.map(|(epoch_id, seq)| Some(Key { epoch_id, seq })).ok_or(())
        }
    }
}

/// Whether a value is this time, however its fraction is spelled, in UTC.
fn is_time(value: &Value, time: Option<Timestamp>) -> bool {
    match (value, time) {
        (Value::Null, None) => true,
        (Value::String(text), Some(time)) if text.ends_with('Z') => {
            text.parse().is_ok_and(|said: jiff::Timestamp| said.as_microsecond() == time.to_micros())
        }
        _ => false,
    }
}

fn shown<T: ToString>(value: Option<T>) -> String {
    value.map_or("null".to_owned(), |value| value.to_string())
}
