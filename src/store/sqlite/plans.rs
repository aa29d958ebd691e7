//! Query plans, pinned: whatever a busy gateway runs finds its rows by their keys, however long the history.
//! The statements are not listed here: they are overheard while a store does everything it does.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use rusqlite::Connection;
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use serde_json::{Value, json};

use super::{SqliteStore, connection, read};
use crate::domain::batch::Limits;
use crate::domain::ids::{DeviceId, EpochId, Key, Seq};
use crate::domain::signature::{self, FleetKey};
use crate::domain::time::Timestamp;
use crate::domain::upload::Upload;
use crate::store::{Store as _, StoreOptions, TimeRange, TrackQuery};

/// Statements as they were prepared, with their parameters' names in place.
type Overheard = Arc<Mutex<BTreeSet<String>>>;

fn overhear(conn: &mut Connection, overheard: &Overheard) {
    let overheard = Arc::clone(overheard);
    let listen = move |event: TraceEvent<'_>| {
        if let TraceEvent::Stmt(statement, _) = event {
            overheard.lock().expect("unpoisoned").insert(statement.sql().into_owned());
        }
    };
    conn.trace_v2(TraceEventCodes::SQLITE_TRACE_STMT, Some(listen)).expect("traced");
}

fn upload(body: &[u8]) -> Upload {
    let (key, device) = (FleetKey::new(b"a fleet key of this test"), DeviceId::parse("t"));
    let signed = signature::sign(&key.derive(device.as_ref().expect("an id")), body);
    let offered = signature::read_signatures([signed.as_bytes()]);
    let verified = signature::verify(&[key], device.as_ref(), false, &offered, Bytes::copy_from_slice(body))
        .expect("signed");
    Upload::read(verified, Timestamp::from_seconds(1_774_930_320).expect("in range"), &Limits::default())
}

fn batch(batch_id: &str, epoch_id: Option<u64>, seqs: impl IntoIterator<Item = u64>) -> Upload {
    let records: Vec<Value> =
        seqs.into_iter().map(|seq| json!({"seq": seq, "recorded_at": seq, "lat": 1, "lon": 2})).collect();
    let mut body = json!({"device_id": "t", "batch_id": batch_id, "records": records});
    if let Some(epoch_id) = epoch_id {
        body["epoch_id"] = json!(epoch_id);
    }
    upload(body.to_string().as_bytes())
}

/// All that uploads can lead to.
fn write(store: &SqliteStore) {
    let mut unnamed = upload(b"rubbish");
    unnamed.device_id = None;
    let uploads = [
        batch("a", None, 10_000..10_020),
        batch("a", None, 10_000..10_020),
        batch("a", None, 10_000..10_030),
        // Behind the greatest seq: compared with what is stored.
        batch("b", None, 9_000..9_020),
        batch("c", None, 9_010..9_030),
        upload(br#"{"device_id":"t","batch_id":"d","records":[{"seq":1,"lat":912,"lon":1}]}"#),
        upload(b"rubbish"),
        unnamed,
        // An epoch with a guard: held, a repeat of the old epoch, and a mark that is lifted again.
        batch("e", Some(1), 0..5),
        batch("f", None, 10_018..10_040),
        // The lifted one came first and has no fix: the position falls back to what the log says.
        upload(br#"{"device_id":"t","batch_id":"h","records":[{"seq":20000}]}"#),
        upload(br#"{"device_id":"t","batch_id":"i","epoch_id":1,"records":[{"seq":20000,"lat":1,"lon":2}]}"#),
        upload(br#"{"device_id":"t","batch_id":"j","epoch_id":1,"records":[{"seq":20000}]}"#),
        batch("g", Some(1), 10_030..10_032),
    ];
    for upload in uploads {
        let done = store.commit_uploads(&[upload]);
        assert!(done.iter().all(Result::is_ok), "{done:?}");
    }
    store.check_writable().expect("writable");
}

/// All that dashboards ask.
fn read(conn: &Connection) {
    let device = DeviceId::parse("t").expect("an id");
    read::lookup_device(conn, &device).expect("read").expect("known");
    read::list_devices(conn, Some(&DeviceId::parse("a").expect("an id")), 10).expect("read");
    let query = TrackQuery {
        from: Key { epoch_id: EpochId::ZERO, seq: Seq::ZERO },
        to: Key { epoch_id: EpochId::MAX, seq: Seq::MAX },
        recorded: TimeRange::default(),
        received: TimeRange::default(),
        limit: 1000,
    };
    read::list_track(conn, &device, &query).expect("read").expect("known");
}

/// The lines of a statement's plan.
fn plan(conn: &Connection, sql: &str) -> Vec<String> {
    let mut explain = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("a plan");
    // Without values for the parameters: the plan is made from the words alone, as it is when cached.
    let lines = explain.raw_query().mapped(|row| row.get(3));
    lines.collect::<Result<_, _>>().expect("a plan")
}

/// What is wrong with one line of a statement's plan.
fn fault(sql: &str, line: &str) -> Option<&'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words.as_slice() {
        ["SCAN", "CONSTANT", "ROW"] => None,
        ["SCAN", ..] => Some("reads a whole table or index"),
        // So SQLite spells max() of a column without an index.
        ["SEARCH", _] => Some("reads a whole table"),
        _ if line.contains("AUTOMATIC") => Some("builds an index of its own each time"),
        ["SEARCH", table, ..]
            if *table == "log_spans" || *table == "s" && line.contains("PRIMARY KEY (device_ref") =>
        {
            // A span is at most so wide: only a bound on both sides keeps the rest of the history out. Or it is
            // the next epoch, or the last span, that is looked for, and the first one found is enough.
            let bounded = ["epoch_id>? AND epoch_id<?", "seq_first=?", "seq_first>? AND seq_first<?"];
            let bounded = bounded.iter().any(|bounds| line.contains(bounds));
            let first = line.contains("seq_first<?") && sql.contains("ORDER BY seq_first DESC LIMIT 1");
            (!bounded && !first).then_some("reads spans without bounds on both sides")
        }
        ["SEARCH", "l" | "a" | "b" | "telemetry_log", ..] => {
            let by_row = line.contains("INTEGER PRIMARY KEY (rowid");
            (!by_row).then_some("finds log rows by something else than their number")
        }
        _ => None,
    }
}

#[test]
fn nothing_hot_scans_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tidegate.db");
    let options = StoreOptions::default();
    let store = SqliteStore::open(&path, &options).expect("a store");
    let overheard = Overheard::default();
    store
        .with_writer(|writer| {
            overhear(&mut writer.conn, &overheard);
            Ok(())
        })
        .expect("opened for writing");
    write(&store);
    let mut reader = connection::open_reader(&path, options.busy_timeout).expect("a reader");
    overhear(&mut reader, &overheard);
    read(&reader);

    let overheard = overheard.lock().expect("unpoisoned").clone();
    let is_query =
        |sql: &&String| ["SELECT", "INSERT", "UPDATE", "DELETE"].iter().any(|verb| sql.starts_with(verb));
    let planned = Connection::open(&path).expect("a database");
    let mut faults = Vec::new();
    for sql in overheard.iter().filter(is_query) {
        let lines = plan(&planned, sql);
        faults.extend(
            lines.iter().filter_map(|line| Some(format!("{line}: {}\n  in {sql}", fault(sql, line)?))),
        );
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    // The store did do all that it does: what was added since must be overheard here, too.
    for part in [
        "INSERT INTO telemetry_log",
        "INSERT INTO log_spans",
        "INSERT INTO epochs",
        "INSERT INTO processed_batches",
        "INSERT INTO device_current_state",
        "INSERT INTO quarantine",
        "DELETE FROM log_spans",
        "UPDATE devices",
        "l.seq, l.row, s.mark",
        "FROM telemetry_log AS l WHERE l.row = ?1",
        "max(max_counting_seq) FROM epochs",
        "max_logged_seq >= ?3",
        "max(min(seq_last, ?3))",
        "WHERE d.device_id > ?1",
        "epoch_id > ?2 AND epoch_id <= ?3",
    ] {
        assert!(overheard.iter().any(|sql| sql.contains(part)), "{part} was not heard in {overheard:#?}");
    }
}

#[test]
fn the_check_of_plans_sees_what_it_should() {
    let conn = Connection::open_in_memory().expect("a database");
    conn.execute_batch(include_str!("../../../schema/sqlite/0001_telemetry.sql")).expect("a schema");
    for (sql, faulty) in [
        ("SELECT * FROM telemetry_log WHERE seq = ?1", true),
        ("SELECT * FROM telemetry_log WHERE row = ?1", false),
        ("SELECT * FROM log_spans WHERE seq_first = ?1", true),
        ("SELECT * FROM log_spans WHERE device_ref = ?1 AND seq_first = 1", true),
        ("SELECT * FROM log_spans WHERE device_ref = ?1 AND epoch_id = 1", true),
        ("SELECT * FROM log_spans WHERE device_ref = ?1 AND epoch_id = 1 AND seq_first <= 5", true),
        (
            "SELECT * FROM log_spans WHERE device_ref = ?1 AND epoch_id = 1 AND seq_first BETWEEN 1 AND 5",
            false,
        ),
        ("SELECT * FROM log_spans AS s WHERE device_ref = ?1 AND epoch_id = 1 AND seq_first = 5", false),
        ("SELECT * FROM device_current_state AS s WHERE device_ref = 1", false),
        ("SELECT * FROM log_spans AS s WHERE device_ref = ?1", true),
        ("SELECT max(cursor) FROM device_current_state", false),
        ("SELECT max(revision) FROM device_current_state", true),
        ("SELECT * FROM quarantine WHERE reason = 'x'", true),
        ("SELECT 1", false),
    ] {
        let plan = plan(&conn, sql);
        assert_eq!(plan.iter().any(|line| fault(sql, line).is_some()), faulty, "{sql}: {plan:?}");
    }
}
