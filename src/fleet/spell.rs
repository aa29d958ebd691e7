//! Batches as JSON text.

use std::fmt::Write as _;

use crate::domain::batch::Batch;
use crate::domain::record::{Fix, Record};

/// Spells a batch as a tracker would send it: JSON without blanks, times in RFC 3339. The members of `extra` go
/// beside the named ones; what could not be used (`unusable`, `raw`) is left out.
pub fn spell(batch: &Batch) -> String {
    let mut text = String::with_capacity(128 + 128 * batch.records.len());
    // Writing to a String cannot fail. Ids are free of quotes unless the batch id is other text.
    let id = serde_json::Value::String(batch.batch_id.to_string());
    let _ = write!(text, "{{\"device_id\":\"{}\",\"batch_id\":{id}", batch.device_id);
    if let Some(epoch_id) = batch.epoch_id {
        let _ = write!(text, ",\"epoch_id\":{epoch_id}");
    }
    push_members(&mut text, batch.extra.as_deref());
    text.push_str(",\"records\":[");
    for (index, record) in batch.records.iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        spell_record(&mut text, record);
    }
    text.push_str("]}");
    text
}

pub(super) fn spell_record(text: &mut String, record: &Record) {
    let _ = write!(text, "{{\"seq\":{}", record.seq);
    if let Some(at) = record.recorded_at {
        let _ = write!(text, ",\"recorded_at\":\"{at}\"");
    }
    if let Some(Fix { lat, lon }) = record.fix {
        let _ = write!(text, ",\"lat\":{lat},\"lon\":{lon}");
    }
    if let Some(battery) = record.battery {
        let _ = write!(text, ",\"battery\":{battery}");
    }
    push_members(text, record.extra.as_deref());
    text.push('}');
}

/// Appends the members of a canonical JSON object, each behind a comma.
pub(super) fn push_members(text: &mut String, object: Option<&str>) {
    if let Some(members) = object.and_then(|object| object.strip_prefix('{')?.strip_suffix('}')) {
        text.push(',');
        text.push_str(members);
    }
}
