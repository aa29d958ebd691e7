//! Loading what a decision needs to know, inside the transaction that will carry it out.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::columns;
use super::error::at;
use super::walk;
use crate::domain::batch::Batch;
use crate::domain::decide::{self, DeviceFacts, KnownBatch, Policy, Snapshot, StoredEntry};
use crate::domain::epoch::EpochFacts;
use crate::domain::ids::{EpochId, Seq};
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
    let Some((device_ref, device)) = lookup_device(conn, device_id.as_str())? else {
        let epoch = upload.content.as_ref().ok().and_then(|batch| batch.epoch_id).unwrap_or(EpochId::ZERO);
        return Ok(Loaded { device_ref: None, snapshot: Snapshot::unseen(epoch) });
    };
    let known_batch = match &upload.content {
        Ok(batch) => lookup_batch(conn, device_ref, batch)?,
        Err(_) => None,
    };
    let epoch_id = match &upload.content {
        Ok(batch) => decide::target_epoch(batch, device.current_epoch, known_batch.as_ref(), policy),
        Err(_) => device.current_epoch,
    };
    let mut snapshot = Snapshot { known_batch, ..Snapshot::unseen(epoch_id) };
    snapshot.device = device;
    // An identical body needs nothing more: it is a duplicate.
    if known_batch.is_none_or(|known| known.body_hash != upload.body_hash) {
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
    snapshot.epoch = load_epoch(conn, device_ref, epoch_id)?;
    if decide::needs_old(batch, &snapshot.epoch, snapshot.device.current_epoch) {
        snapshot.old = load_old(conn, device_ref, epoch_id)?;
    }
    if decide::needs_same_key(batch, &snapshot.epoch) {
        snapshot.same_key = load_entries(conn, device_ref, epoch_id, batch)?;
    }
    if decide::needs_earlier(upload, snapshot, policy) {
        snapshot.earlier = load_earlier(conn, device_ref, epoch_id, batch)?;
    }
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

fn lookup_device(conn: &Connection, device_id: &str) -> Result<Option<(i64, DeviceFacts)>, StoreError> {
    let sql = concat!(
        "SELECT d.device_ref, d.current_epoch_id, d.quarantined_bytes, ",
        columns::state_columns!(),
        " FROM devices AS d LEFT JOIN device_current_state AS s ON s.device_ref = d.device_ref \
         WHERE d.device_id = ?1"
    );
    let read = |row: &rusqlite::Row<'_>| {
        let facts = DeviceFacts {
            current_epoch: row.get(1)?,
            quarantined_bytes: row.get::<_, i64>(2)?.unsigned_abs(),
            state: columns::state(row, 3)?,
        };
        Ok((row.get(0)?, facts))
    };
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([device_id], read).optional())
        .map_err(at("looking up the device"))
}

fn lookup_batch(conn: &Connection, device_ref: i64, batch: &Batch) -> Result<Option<KnownBatch>, StoreError> {
    let sql = "SELECT body_hash, epoch_id FROM processed_batches WHERE device_ref = ?1 AND batch_id = ?2";
    conn.prepare_cached(sql)
        .and_then(|mut statement| {
            let known = |row: &rusqlite::Row<'_>| {
                Ok(KnownBatch { body_hash: row.get::<_, BodyHash>(0)?, epoch_id: row.get(1)? })
            };
            statement.query_row(params![device_ref, batch.batch_id.to_key()], known).optional()
        })
        .map_err(at("looking up the batch id"))
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
        "SELECT e.voided_at IS NOT NULL, e.max_logged_seq, e.max_counting_seq, ",
        columns::guard_columns!(),
        " FROM epochs AS e WHERE e.device_ref = ?1 AND e.epoch_id = ?2"
    );
    let read = |row: &rusqlite::Row<'_>| {
        Ok(EpochFacts {
            epoch_id,
            known: true,
            voided: row.get(0)?,
            max_logged: row.get(1)?,
            max_counting: row.get(2)?,
            guard: columns::guard(row, 3)?,
        })
    };
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

/// Entries of one epoch that share a seq with the batch, in order of (seq, row). Those between are only looked
/// at: what stands in memory is bounded by the versions of the keys that were sent.
fn load_entries(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    batch: &Batch,
) -> Result<Vec<StoredEntry>, StoreError> {
    let mut seqs: Vec<Seq> = batch.records.iter().map(|record| record.seq).collect();
    seqs.sort_unstable();
    let (mut locator, mut contents) = (walk::Locator::new(conn)?, walk::Contents::new(conn)?);
    let mut entries = Vec::new();
    for range in span::cut(seqs.iter().map(|seq| (*seq, None))) {
        let window = walk::Window { first: range.seq_first, last: range.seq_last };
        for entry in locator.window(device_ref, epoch_id, window)? {
            if seqs.binary_search(&entry.seq).is_ok() {
                let record = contents.of(entry.row)?;
                entries.push(StoredEntry { row: entry.row, mark: entry.mark, record });
            }
        }
    }
    Ok(entries)
}

/// The same in the epochs before it.
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
    let mut entries = Vec::new();
    for epoch_id in earlier {
        entries.append(&mut load_entries(conn, device_ref, epoch_id, batch)?);
    }
    Ok(entries)
}
