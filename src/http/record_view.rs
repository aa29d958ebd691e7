//! A record of a track as JSON.

use serde::Serialize;
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::domain::ids::{EpochId, Seq};
use crate::domain::time::Timestamp;
use crate::store::{Entry, StoreError, StoreErrorKind};

/// A page of a track, as it is documented; it is written piece by piece.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Track)]
pub(super) struct TrackBody<'a> {
    /// The device.
    device_id: &'a str,
    /// In order of `(epoch_id, seq)`, each key once.
    records: Vec<RecordView<'a>>,
    /// Give it as `after`, with the same range, for the next page; null at the end.
    #[schema(required)]
    next: Option<String>,
}

/// One record; what is empty is left out.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Record)]
pub(super) struct RecordView<'a> {
    /// Its epoch.
    #[schema(value_type = u64)]
    epoch_id: EpochId,
    /// Its number within the epoch.
    #[schema(value_type = u64)]
    seq: Seq,
    /// The device's own time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    recorded_at: Option<Timestamp>,
    /// When it arrived.
    #[schema(value_type = String, format = DateTime)]
    received_at: Timestamp,
    /// Degrees WGS 84.
    #[serde(skip_serializing_if = "Option::is_none")]
    lat: Option<f64>,
    /// Degrees WGS 84.
    #[serde(skip_serializing_if = "Option::is_none")]
    lon: Option<f64>,
    /// Volts.
    #[serde(skip_serializing_if = "Option::is_none")]
    battery: Option<f64>,
    /// Every other field as it was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    extra: Option<&'a RawValue>,
    /// Fields whose value could not be taken over: unusable optional ones as they were sent, and others that are
    /// nested too deep as a string that holds their JSON text.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    raw: Option<&'a RawValue>,
    /// Other contents received under the same key.
    #[serde(skip_serializing_if = "is_zero")]
    conflicts: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde calls")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Writes an entry. Stored text that is no JSON is a damaged store, never passed on.
pub(super) fn write(entry: &Entry, out: &mut Vec<u8>) -> Result<(), StoreError> {
    let record = &entry.record;
    let view = RecordView {
        epoch_id: entry.epoch_id,
        seq: record.seq,
        recorded_at: record.recorded_at,
        received_at: entry.received_at,
        lat: record.fix.map(|fix| fix.lat),
        lon: record.fix.map(|fix| fix.lon),
        battery: record.battery,
        extra: json(record.extra.as_deref())?,
        raw: json(record.raw.as_deref())?,
        conflicts: entry.conflicts,
    };
    serde_json::to_writer(out, &view).map_err(damaged)
}

fn json(stored: Option<&str>) -> Result<Option<&RawValue>, StoreError> {
    stored.map(serde_json::from_str).transpose().map_err(damaged)
}

fn damaged(error: serde_json::Error) -> StoreError {
    StoreError::caused(StoreErrorKind::Inconsistent, "a stored record cannot be written as JSON", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::record::{Fix, Record};

    fn entry() -> Entry {
        Entry {
            epoch_id: EpochId::ZERO,
            record: Record {
                seq: Seq::new(7).expect("in range"),
                recorded_at: None,
                fix: None,
                battery: None,
                extra: None,
                raw: None,
            },
            received_at: Timestamp::EPOCH,
            mark: None,
            conflicts: 0,
        }
    }

    fn text(entry: &Entry) -> String {
        let mut out = Vec::new();
        write(entry, &mut out).expect("JSON");
        String::from_utf8(out).expect("UTF-8")
    }

    #[test]
    fn leaves_out_what_is_empty() {
        assert_eq!(text(&entry()), r#"{"epoch_id":0,"seq":7,"received_at":"1970-01-01T00:00:00Z"}"#);
    }

    #[test]
    fn gives_extras_back_as_they_were_stored() {
        let mut full = entry();
        full.record.recorded_at = Some(Timestamp::EPOCH);
        full.record.fix = Some(Fix { lat: 21.3069, lon: -157.8583 });
        full.record.battery = Some(4.0);
        full.record.extra = Some(r#"{"big":123456789012345678901234567890,"hdop":0.90}"#.into());
        full.record.raw = Some(r#"{"battery":"n/a"}"#.into());
        full.conflicts = 2;
        assert_eq!(
            text(&full),
            concat!(
                r#"{"epoch_id":0,"seq":7,"recorded_at":"1970-01-01T00:00:00Z","received_at":"1970-01-01T00:00:00Z","#,
                r#""lat":21.3069,"lon":-157.8583,"battery":4.0,"#,
                r#""extra":{"big":123456789012345678901234567890,"hdop":0.90},"raw":{"battery":"n/a"},"conflicts":2}"#
            )
        );
    }

    #[test]
    fn a_damaged_text_is_an_error() {
        let mut damaged = entry();
        damaged.record.extra = Some("{".into());
        assert!(write(&damaged, &mut Vec::new()).is_err());
    }
}
