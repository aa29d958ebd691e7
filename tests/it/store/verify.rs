//! Damage that was planted in a sound store, one thing at a time, is found and named.

use rusqlite::Connection;
use serde_json::json;

use crate::support::at;
use crate::support::bed::Bed;
use crate::support::tracker::{Tracker, record, records};

/// What was done to the database, and what the report must name: the device (or the row) and the thing.
struct Damage {
    sql: &'static str,
    named: &'static [&'static str],
}

const fn damage(sql: &'static str, named: &'static [&'static str]) -> Damage {
    Damage { sql, named }
}

/// Device "a" is `device_ref` 1 with rows 1 … 24 of the log in epochs 0 and 1, "b" is 2 with rows 25 … 29. See
/// [`sound`].
const DAMAGES: &[Damage] = &[
    damage(
        "UPDATE device_current_state SET last_seq = last_seq - 1 WHERE device_ref = 1",
        &["device a: the state"],
    ),
    damage(
        "UPDATE device_current_state SET last_seq = last_seq + 1 WHERE device_ref = 2",
        &["device b: the state"],
    ),
    damage("UPDATE device_current_state SET epoch_id = 0 WHERE device_ref = 1", &["device a: the state"]),
    damage(
        "UPDATE device_current_state SET lat = lat + 0.001 WHERE device_ref = 1",
        &["device a: the state"],
    ),
    damage(
        "UPDATE device_current_state SET position_seq = position_seq - 1 WHERE device_ref = 1",
        &["device a: the state"],
    ),
    damage(
        "UPDATE device_current_state SET position_epoch_id = NULL WHERE device_ref = 1",
        &["device a: the state"],
    ),
    damage(
        "UPDATE device_current_state SET position_recorded_at = 0 WHERE device_ref = 2",
        &["device b: the state"],
    ),
    damage("UPDATE device_current_state SET battery = 1.5 WHERE device_ref = 1", &["device a: the state"]),
    damage("UPDATE device_current_state SET recorded_at = 5 WHERE device_ref = 1", &["device a: the state"]),
    damage(
        "UPDATE device_current_state SET received_at = received_at + 1 WHERE device_ref = 1",
        &["device a: the state"],
    ),
    damage("DELETE FROM device_current_state WHERE device_ref = 1", &["device a: the state"]),
    damage(
        "UPDATE device_current_state SET device_ref = 99 WHERE device_ref = 1",
        &["device a: the state", "states without a device"],
    ),
    damage("DELETE FROM telemetry_log WHERE row = 3", &["device a: the span 1–10 of epoch 0", "log row 3"]),
    damage(
        "DELETE FROM telemetry_log WHERE row = (SELECT max(row) FROM telemetry_log)",
        &["device b: the span", "log row 29"],
    ),
    damage("UPDATE telemetry_log SET seq = 7 WHERE row = 3", &["device a: the span 1–10 of epoch 0"]),
    damage("UPDATE telemetry_log SET seq = 700 WHERE row = 27", &["device b: the span 1–5 of epoch 0"]),
    damage("INSERT INTO telemetry_log (row, seq) VALUES (1000, 1)", &["log row 1000 belongs to no span"]),
    damage(
        "UPDATE log_spans SET count = count - 1 WHERE device_ref = 1 AND first_row = 1",
        &["device a: the span 1–10 of epoch 0", "log row 10 belongs to no span"],
    ),
    damage(
        "UPDATE log_spans SET count = count + 1 WHERE device_ref = 1 AND first_row = 1",
        &["device a: the number of entries its batches brought", "log row 11 belongs to two spans"],
    ),
    damage(
        "UPDATE log_spans SET count = 9000000000000000000 WHERE device_ref = 1 AND first_row = 1",
        &["device a: the span 1–10 of epoch 0"],
    ),
    damage(
        "UPDATE log_spans SET seq_last = seq_last + 1 WHERE device_ref = 1 AND first_row = 1",
        &["device a: the span 1–11 of epoch 0"],
    ),
    damage(
        "UPDATE log_spans SET seq_first = 0 WHERE device_ref = 1 AND first_row = 1",
        &["device a: the span 0–10 of epoch 0"],
    ),
    damage(
        "UPDATE log_spans SET mark = 'void' WHERE device_ref = 2",
        &["device b: the state", "device b, epoch 0: the greatest counting seq"],
    ),
    damage(
        "UPDATE log_spans SET mark = 'held' WHERE device_ref = 1 AND first_row = 1",
        &["device a: the number of held entries"],
    ),
    damage(
        "UPDATE log_spans SET mark = NULL WHERE mark = 'held'",
        &["device a: the number of held entries", "device a: the state"],
    ),
    damage(
        "UPDATE log_spans SET epoch_id = 9 WHERE device_ref = 2",
        &["device b: epoch 9 has entries and no row"],
    ),
    damage(
        "DELETE FROM log_spans WHERE device_ref = 2",
        &["device b: the state", "log row 25 belongs to no span"],
    ),
    damage(
        "INSERT INTO log_spans SELECT 2, epoch_id, seq_first, first_row, seq_last, count, mark, implicit, received_at, batch_id \
         FROM log_spans WHERE device_ref = 1 AND first_row = 1",
        &["log row 1 belongs to two spans"],
    ),
    damage(
        "UPDATE devices SET held = held + 1 WHERE device_ref = 1",
        &["device a: the number of held entries"],
    ),
    damage("UPDATE devices SET conflicts = 0 WHERE device_ref = 1", &["device a: the number of conflicts"]),
    damage(
        "UPDATE devices SET quarantined = 0 WHERE device_ref = 1",
        &["device a: the number of quarantine entries"],
    ),
    damage(
        "UPDATE devices SET quarantined_bytes = 1 WHERE device_ref = 1",
        &["device a: the size of its quarantine"],
    ),
    damage("UPDATE devices SET current_epoch_id = 0 WHERE device_ref = 1", &["device a: the current epoch"]),
    damage(
        "DELETE FROM devices WHERE device_ref = 2",
        &["states without", "spans without", "epochs without", "batches without a device"],
    ),
    damage("DELETE FROM quarantine WHERE device_ref = 1", &["device a: the number of quarantine entries"]),
    damage(
        "UPDATE quarantine SET device_ref = 98 WHERE device_ref = 1",
        &["quarantine entries without a device"],
    ),
    damage(
        "UPDATE quarantine SET body = x'00' WHERE device_ref = 1",
        &["device a: the size of its quarantine"],
    ),
    damage(
        "UPDATE store_meta SET value = 7 WHERE key = 'unnamed_quarantined_bytes'",
        &["the store: the size of the quarantine of bodies without a device"],
    ),
    damage(
        "UPDATE epochs SET max_logged_seq = 9 WHERE device_ref = 1 AND epoch_id = 0",
        &["device a, epoch 0: the greatest logged seq"],
    ),
    damage(
        "UPDATE epochs SET max_counting_seq = NULL WHERE device_ref = 2",
        &["device b, epoch 0: the greatest counting seq"],
    ),
    damage(
        "UPDATE epochs SET max_counting_seq = 77 WHERE device_ref = 1 AND epoch_id = 1",
        &["device a, epoch 1: the greatest counting seq"],
    ),
    damage(
        "DELETE FROM epochs WHERE device_ref = 1 AND epoch_id = 1",
        &["device a: epoch 1 has entries and no row"],
    ),
    damage(
        "DELETE FROM processed_batches WHERE device_ref = 2",
        &["device b: the number of entries its batches brought"],
    ),
    damage(
        "UPDATE processed_batches SET entries = entries + 1 WHERE device_ref = 2",
        &["device b: the number of entries its batches brought"],
    ),
];

/// A small store with something of everything.
fn sound() -> Bed {
    let mut bed = Bed::sqlite();
    let (a, b) = (Tracker::new("a"), Tracker::new("b"));
    let mut send = |tracker: &Tracker, batch_id: &str, epoch_id, records: &serde_json::Value| {
        bed.commit(tracker.upload(&tracker.body(batch_id, epoch_id, records), at(1))).expect("stored");
    };
    send(&a, "1", None, &records(1, 10));
    // Other content under key 10, an unusable record, then a record without a fix far ahead.
    send(&a, "2", None, &json!([{"seq": 10, "battery": 1}, {"seq": 11, "lat": 912, "lon": 1}]));
    send(&a, "3", None, &records(10_000, 10_003));
    // A new epoch: what still comes of the old one is held.
    send(&a, "4", Some(1), &json!([record(0), record(1), {"seq": 2}]));
    send(&a, "5", None, &records(10_004, 10_009));
    send(&b, "1", None, &records(1, 5));
    bed.commit(a.upload_raw(b"rubbish", at(2))).expect("kept");
    bed
}

#[test]
fn planted_damage_is_found_and_named() {
    let mut bed = sound();
    bed.verify();
    bed.close();
    let path = bed.path().to_owned();
    let sound = std::fs::read(&path).expect("a file");
    for Damage { sql, named } in DAMAGES {
        std::fs::write(&path, &sound).expect("restored");
        let conn = Connection::open(&path).expect("a database");
        let changed = conn.execute(sql, []).expect("changed");
        assert!(changed > 0, "{sql}: changed nothing");
        drop(conn);
        let found = bed.store().verify(&mut |_, _| {}).expect("verify runs").differences;
        bed.close();
        for name in *named {
            assert!(found.iter().any(|line| line.contains(name)), "{sql}: {name:?} is not in {found:#?}");
        }
        assert!(found.iter().all(|line| line.len() < 1000), "{sql}: {found:#?}");
    }
}
