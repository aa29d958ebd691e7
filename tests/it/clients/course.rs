//! The course that both example trackers make up, written down once more: what must stand in the track.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::link::Link;

/// A whole number of units as the number it stands for, by way of its decimal text: what the trackers send.
fn decimal(units: i64, digits: usize) -> f64 {
    let size = format!("{:0width$}", units.unsigned_abs(), width = digits + 1);
    let (whole, part) = size.split_at(size.len() - digits);
    let sign = if units < 0 { "-" } else { "" };
    format!("{sign}{whole}.{part}").parse().expect("a number")
}

/// What the gateway must give back for a seq, but for the time of arrival.
fn expected(epoch_id: u64, seq: u64) -> Value {
    let n = i64::try_from(seq).expect("small");
    let mut record = json!({"epoch_id": epoch_id, "seq": seq, "battery": decimal(4100 - n % 700, 3)});
    if seq % 50 != 49 {
        record["recorded_at"] = json!(crate::support::at(60 * n).to_string());
    }
    if seq % 10 != 9 {
        record["lat"] = json!(decimal(213_069_000 - 12_345 * n, 7));
        record["lon"] = json!(decimal(-1_578_583_000 + 23_456 * n, 7));
    }
    if !seq.is_multiple_of(7) {
        record["extra"] = json!({"speed": decimal(30 + n % 60, 1)});
    }
    record
}

/// The device's track is the course of each epoch, from seq 0 on, so many records of it, each once and unharmed; and
/// nothing else of the device is anywhere.
pub(super) fn check(link: &mut Link, device_id: &str, epochs: &BTreeMap<u64, u64>) {
    let mut track = link.track(device_id);
    for record in &mut track {
        let fields = record.as_object_mut().expect("an object");
        assert!(fields.remove("received_at").is_some());
        // Extras come back as they were sent: 4 for 4.0.
        if let Some(speed) = fields.get_mut("extra").and_then(|extra| extra.get_mut("speed")) {
            *speed = json!(speed.as_f64().expect("a number"));
        }
    }
    let mut due = epochs.iter().flat_map(|(epoch_id, count)| (0..*count).map(|seq| expected(*epoch_id, seq)));
    for record in &track {
        assert_eq!(Some(record), due.next().as_ref(), "{device_id}");
    }
    assert_eq!(due.next(), None, "{device_id}: missing after {} records", track.len());
    let state = link.state(device_id);
    let (epoch_id, count) = epochs.last_key_value().expect("an epoch");
    assert_eq!(state["epoch_id"], json!(epoch_id));
    assert_eq!(state["last_seq"], json!(count - 1));
    for nothing in ["held", "conflicts", "quarantined"] {
        assert_eq!(state[nothing], 0, "{device_id}: {nothing}");
    }
    assert_eq!(state["signals"], json!([]), "{device_id}");
}
