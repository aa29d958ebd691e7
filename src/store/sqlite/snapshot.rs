//! Loading what a decision needs to know, inside the transaction that will carry it out.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::columns;
use super::error::at;
use super::walk;
use crate::domain::batch::Batch;
use crate::domain::decide::{
    self, DeviceFacts, KnownBatch, Policy, Snapshot, Sought, StoredEntry, VERSIONS_MAX,
};
use crate::domain::epoch::EpochFacts;
use crate::domain::ids::{DeviceId, EpochId, Seq};
use crate::domain::reason::Reason;
use crate::domain::span;
use crate::domain::upload::{BodyHash, Upload};
use crate::store::StoreError;

/// How other tables name a body that names no device.
pub(super) const NO_DEVICE: i64 = 0;

/// Most earlier epochs that one implicit batch behind a guard is compared with, the latest first. A device that
/// opens more epochs than this within a guard's days is broken in ways the comparison cannot mend, and must
/// not hold up the writer.
const EARLIER_EPOCHS_MAX: i64 = 256;

/// A device's row, if it has one, and what was loaded for the decision.
pub(super) struct Loaded {
    pub(super) device_ref: Option<i64>,
    pub(super) snapshot: Snapshot,
}

/// Loads the snapshot for one upload.
pub(super) fn load(conn: &Connection, upload: &Upload, policy: &Policy) -> Result<Loaded, StoreError> {
    let Some(device_id) = &upload.device_id else {
        return unnamed(conn, upload);
    };
    let batch = upload.content.as_ref().ok();
    let Some(known) = lookup(conn, device_id, batch)? else {
        let epoch = batch.and_then(|batch| batch.epoch_id).unwrap_or(EpochId::ZERO);
        return Ok(Loaded { device_ref: None, snapshot: Snapshot::unseen(epoch) });
    };
    let Known { device_ref, device, batch: known_batch, epoch } = known;
    let epoch_id = batch.map_or(device.current_epoch, |batch| {
        decide::target_epoch(batch, device.current_epoch, known_batch.as_ref(), policy)
    });
    let mut snapshot = Snapshot { known_batch, ..Snapshot::unseen(epoch_id) };
    snapshot.device = device;
    // An identical body needs nothing more: it is a duplicate.
    if known_batch.is_none_or(|known| known.body_hash != upload.body_hash) {
        snapshot.epoch =
            if epoch.epoch_id == epoch_id { epoch } else { load_epoch(conn, device_ref, epoch_id)? };
        load_rest(conn, device_ref, upload, policy, &mut snapshot)?;
    }
    Ok(Loaded { device_ref: Some(device_ref), snapshot })
}

fn load_rest(
    conn: &Connection,
    device_ref: i64,
    upload: &Upload,
    policy: &Policy,
    snapshot: &mut Snapshot,
) -> Result<(), StoreError> {
    let candidates = decide::quarantine_candidates(upload, snapshot.known_batch.as_ref());
    snapshot.quarantined = known_quarantine(conn, device_ref, candidates)?;
    let Ok(batch) = &upload.content else { return Ok(()) };
    let epoch_id = snapshot.epoch.epoch_id;
    if decide::needs_old(batch, &snapshot.epoch, snapshot.device.current_epoch) {
        snapshot.old = load_old(conn, device_ref, epoch_id)?;
    }
    if decide::needs_same_key(batch, &snapshot.epoch) {
        snapshot.same_key = load_entries(conn, device_ref, epoch_id, &Sought::of(batch))?;
    }
    if decide::needs_earlier(upload, snapshot, policy) {
        snapshot.earlier = load_earlier(conn, device_ref, epoch_id, batch)?;
    }
    let surplus = decide::surplus_candidates(upload, snapshot, policy);
    snapshot.quarantined.extend(known_quarantine(conn, device_ref, surplus)?);
    Ok(())
}

fn unnamed(conn: &Connection, upload: &Upload) -> Result<Loaded, StoreError> {
    let mut snapshot = Snapshot::unseen(EpochId::ZERO);
    let bytes: i64 = conn
        .prepare_cached("SELECT value FROM store_meta WHERE key = 'unnamed_quarantined_bytes'")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)))
        .map_err(at("reading the size of the quarantine"))?;
    snapshot.device.quarantined_bytes = bytes.unsigned_abs();
    let candidates = decide::quarantine_candidates(upload, None);
    snapshot.quarantined = known_quarantine(conn, NO_DEVICE, candidates)?;
    Ok(Loaded { device_ref: Some(NO_DEVICE), snapshot })
}

/// What one statement finds of a known device.
struct Known {
    device_ref: i64,
    device: DeviceFacts,
    batch: Option<KnownBatch>,
    /// The epoch that the batch names, else the current one.
    epoch: EpochFacts,
}

/// The device, its state, the batch id and the epoch: what nearly every upload needs, in one statement, since
/// each further one costs as much as a row of the log.
fn lookup(
    conn: &Connection,
    device_id: &DeviceId,
    batch: Option<&Batch>,
) -> Result<Option<Known>, StoreError> {
    let sql = concat!(
        "SELECT d.device_ref, d.current_epoch_id, d.quarantined_bytes, p.body_hash, p.epoch_id, \
         coalesce(?3, d.current_epoch_id), ",
        columns::epoch_columns!(),
        ", ",
        columns::state_columns!(),
        " FROM devices AS d LEFT JOIN device_current_state AS s ON s.device_ref = d.device_ref \
         LEFT JOIN processed_batches AS p ON p.device_ref = d.device_ref AND p.batch_id = ?2 \
         LEFT JOIN epochs AS e ON e.device_ref = d.device_ref AND e.epoch_id = coalesce(?3, d.current_epoch_id) \
         WHERE d.device_id = ?1"
    );
    let read = |row: &rusqlite::Row<'_>| {
        let body_hash: Option<BodyHash> = row.get(3)?;
        Ok(Known {
            device_ref: row.get(0)?,
            device: DeviceFacts {
                current_epoch: row.get(1)?,
                quarantined_bytes: row.get::<_, i64>(2)?.unsigned_abs(),
                state: columns::state(row, 6 + columns::EPOCH_WIDTH)?,
            },
            batch: match body_hash {
                Some(body_hash) => Some(KnownBatch { body_hash, epoch_id: row.get(4)? }),
                None => None,
            },
            epoch: columns::epoch(row, row.get(5)?, 6)?,
        })
    };
    let values =
        params![device_id, batch.map(|batch| batch.batch_id.to_key()), batch.and_then(|b| b.epoch_id)];
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(values, read).optional())
        .map_err(at("looking up the device"))
}

fn known_quarantine(
    conn: &Connection,
    device_ref: i64,
    candidates: Vec<(BodyHash, Reason)>,
) -> Result<HashSet<(BodyHash, Reason)>, StoreError> {
    let sql = "SELECT 1 FROM quarantine WHERE device_ref = ?1 AND body_hash = ?2 AND reason = ?3";
    let mut known = HashSet::new();
    for (hash, reason) in candidates {
        let found = conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.exists(params![device_ref, hash, reason]))
            .map_err(at("looking into the quarantine"))?;
        if found {
            known.insert((hash, reason));
        }
    }
    Ok(known)
}

fn load_epoch(conn: &Connection, device_ref: i64, epoch_id: EpochId) -> Result<EpochFacts, StoreError> {
    let sql = concat!(
        "SELECT ",
        columns::epoch_columns!(),
        " FROM epochs AS e WHERE e.device_ref = ?1 AND e.epoch_id = ?2"
    );
    let read = |row: &rusqlite::Row<'_>| columns::epoch(row, epoch_id, 0);
    let found = conn
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params![device_ref, epoch_id], read).optional())
        .map_err(at("reading the epoch"))?;
    Ok(found.unwrap_or_else(|| EpochFacts::unseen(epoch_id)))
}

fn load_old(conn: &Connection, device_ref: i64, epoch_id: EpochId) -> Result<Option<Seq>, StoreError> {
    let sql = "SELECT max(max_counting_seq) FROM epochs \
               WHERE device_ref = ?1 AND epoch_id < ?2 AND voided_at IS NULL";
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(params![device_ref, epoch_id], |row| row.get(0)))
        .map_err(at("reading the earlier epochs"))
}

/// Entries of one epoch that share a seq with the batch, in order of (seq, row), at most [`VERSIONS_MAX`] a key.
/// Those between are only looked at, and contents that the batch does not hold are not kept: what stands in
/// memory is bounded by the number of keys that were sent, and by the batch itself.
fn load_entries(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    sought: &Sought<'_>,
) -> Result<Vec<StoredEntry>, StoreError> {
    let (mut locator, mut contents) = (walk::Locator::new(conn)?, walk::Contents::new(conn)?);
    let mut entries: Vec<StoredEntry> = Vec::new();
    for range in span::cut(sought.seqs().map(|seq| (seq, None))) {
        let window = walk::Window { first: range.seq_first, last: range.seq_last };
        // How many versions of which seq were found.
        let mut found = (window.first, 0);
        let located = locator.window(device_ref, epoch_id, window, |entry| {
            if entry.seq != found.0 {
                found = (entry.seq, 0);
            }
            found.1 += 1;
            found.1 <= VERSIONS_MAX && sought.has(entry.seq)
        })?;
        for entry in located {
            let record = Some(contents.of(entry.row)?).filter(|record| sought.holds(record)).map(Box::new);
            entries.push(StoredEntry { row: entry.row, seq: entry.seq, mark: entry.mark, record });
        }
    }
    Ok(entries)
}

/// Those in the epochs before it that hold what a record of the batch does.
fn load_earlier(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    batch: &Batch,
) -> Result<Vec<StoredEntry>, StoreError> {
    let Some(least) = batch.records.iter().map(|record| record.seq).min() else { return Ok(Vec::new()) };
    let sql = "SELECT epoch_id FROM epochs WHERE device_ref = ?1 AND epoch_id < ?2 AND max_logged_seq >= ?3 \
               ORDER BY epoch_id DESC LIMIT ?4";
    let earlier: Vec<EpochId> = conn
        .prepare_cached(sql)
        .and_then(|mut statement| {
            let bounds = params![device_ref, epoch_id, least, EARLIER_EPOCHS_MAX];
            statement.query_map(bounds, |row| row.get(0))?.collect()
        })
        .map_err(at("reading the earlier epochs"))?;
    let (sought, mut entries) = (Sought::of(batch), Vec::new());
    for epoch_id in earlier {
        let stored = load_entries(conn, device_ref, epoch_id, &sought)?;
        entries.extend(stored.into_iter().filter(|entry| entry.record.is_some()));
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::batch::Limits;
    use crate::domain::decode::decode;

    /// No decision logs so many; a database in which they stand all the same must not stop the writer.
    #[test]
    fn of_one_key_no_more_are_loaded_than_are_logged() {
        let conn = Connection::open_in_memory().expect("a database");
        conn.execute_batch(include_str!("../../../schema/sqlite/0001_telemetry.sql")).expect("a schema");
        conn.execute_batch(
            "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1199)
             INSERT INTO telemetry_log (row, seq, battery) SELECT i, 7 + i / 400, i FROM n;
             INSERT INTO log_spans VALUES (1, 0, 7, 0, 9, 1200, NULL, 1, 0, x'00');",
        )
        .expect("rows");
        let records = r#"{"seq":9,"battery":801},{"seq":7,"battery":3},{"seq":7,"battery":300},{"seq":5}"#;
        let body = format!(r#"{{"device_id":"d","batch_id":"b","records":[{records}]}}"#);
        let batch = decode(body.as_bytes(), &Limits::default()).expect("a batch");
        let found = load_entries(&conn, 1, EpochId::ZERO, &Sought::of(&batch)).expect("read");
        let rows: Vec<i64> = found.iter().map(|entry| entry.row).collect();
        assert_eq!(
            rows,
            (0..256).chain(800..1056).collect::<Vec<_>>(),
            "nothing of seq 8, the first of each"
        );
        let known: Vec<i64> =
            found.iter().filter(|entry| entry.record.is_some()).map(|entry| entry.row).collect();
        assert_eq!(known, [3, 801], "only what the batch holds is kept");
    }
}
