//! Carrying a plan out. Each statement that moves something repeats what it expects to find.

use rusqlite::{CachedStatement, Connection, params};

use super::error::{at, inconsistent};
use super::snapshot::NO_DEVICE;
use super::values::count_to_sql;
use crate::domain::batch::Batch;
use crate::domain::decide::{EpochPlan, Plan, PlannedQuarantine, QuarantinedBytes};
use crate::domain::ids::{BatchId, EpochId};
use crate::domain::span;
use crate::domain::state::State;
use crate::domain::upload::Upload;
use crate::store::StoreError;

/// Numbers the writer gives out: the next log row and the next state change.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    pub(super) next_row: i64,
    pub(super) next_cursor: i64,
}

/// The row of the upload's device, made if it is new; with the plan's changes of the device itself.
pub(super) fn touch_device(
    conn: &Connection,
    device_ref: Option<i64>,
    upload: &Upload,
    plan: &Plan,
) -> Result<i64, StoreError> {
    match (device_ref, &upload.device_id) {
        (Some(NO_DEVICE), _) | (None, None) => {
            let sql = "UPDATE store_meta SET value = value + ?1 WHERE key = 'unnamed_quarantined_bytes'";
            run(conn, sql, params![plan.quarantine_bytes().cast_signed()], "counting the quarantine")?;
            Ok(NO_DEVICE)
        }
        (Some(device_ref), _) => update_device(conn, device_ref, upload, plan).map(|()| device_ref),
        (None, Some(device_id)) => {
            let sql = "INSERT INTO devices (device_id, first_contact_at, last_contact_at, current_epoch_id, held, \
                       conflicts, quarantined, quarantined_bytes) VALUES (?1, ?2, ?2, 0, 0, 0, 0, 0)";
            run(conn, sql, params![device_id, upload.received_at], "adding the device")?;
            let device_ref = conn.last_insert_rowid();
            update_device(conn, device_ref, upload, plan).map(|()| device_ref)
        }
    }
}

fn update_device(conn: &Connection, device_ref: i64, upload: &Upload, plan: &Plan) -> Result<(), StoreError> {
    let sql = "UPDATE devices SET last_contact_at = max(last_contact_at, ?2), current_epoch_id = ?3, \
               fleet_key = ?4, held = held + ?5, conflicts = conflicts + ?6, quarantined = quarantined + ?7, \
               quarantined_bytes = quarantined_bytes + ?8, \
               batch_id_reused_at = coalesce(?9, batch_id_reused_at) WHERE device_ref = ?1";
    let new_quarantine = plan.quarantine.iter().filter(|entry| !entry.known).count();
    let values = params![
        device_ref,
        upload.received_at,
        plan.current_epoch,
        upload.key,
        plan.held_delta,
        plan.conflicts_delta,
        count_to_sql(new_quarantine),
        plan.quarantine_bytes().cast_signed(),
        plan.batch_id_reused.then_some(upload.received_at),
    ];
    run(conn, sql, values, "updating the device")
}

/// Remembers the batch id and appends the entries with their spans.
pub(super) fn append(
    conn: &Connection,
    device_ref: i64,
    upload: &Upload,
    batch: &Batch,
    plan: &Plan,
    counters: &mut Counters,
) -> Result<(), StoreError> {
    let batch_id = batch.batch_id.to_key();
    if let Some(new) = &plan.batch {
        let sql = "INSERT INTO processed_batches (device_ref, batch_id, body_hash, received_at, epoch_id, entries, \
                   extra) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
                   ON CONFLICT (device_ref, batch_id) DO UPDATE SET entries = entries + excluded.entries, \
                   body_hash = excluded.body_hash, epoch_id = excluded.epoch_id";
        let entries = count_to_sql(new.entries);
        let values = params![
            device_ref,
            batch_id,
            upload.body_hash,
            upload.received_at,
            new.epoch_id,
            entries,
            batch.extra
        ];
        run(conn, sql, values, "remembering the batch id")?;
    }
    let Some(epoch) = &plan.epoch else { return Ok(()) };
    let first_row = counters.next_row;
    append_rows(conn, batch, plan, first_row)?;
    counters.next_row += count_to_sql(plan.entries.len());
    let sql = "INSERT INTO log_spans (device_ref, epoch_id, seq_first, first_row, seq_last, count, mark, implicit, \
               received_at, batch_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let marked = plan.entries.iter().map(|entry| (batch.records[entry.place].seq, entry.mark));
    for span in span::cut(marked) {
        let values = params![
            device_ref,
            epoch.epoch_id,
            span.seq_first,
            first_row + count_to_sql(span.offset),
            span.seq_last,
            count_to_sql(span.count),
            span.mark,
            batch.epoch_id.is_none(),
            upload.received_at,
            batch_id,
        ];
        run(conn, sql, values, "appending the span")?;
    }
    put_epoch(conn, device_ref, upload, epoch)
}

fn append_rows(conn: &Connection, batch: &Batch, plan: &Plan, first_row: i64) -> Result<(), StoreError> {
    let sql = "INSERT INTO telemetry_log (row, seq, recorded_at, lat, lon, battery, extra, raw) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let append = || -> rusqlite::Result<()> {
        let mut statement: CachedStatement<'_> = conn.prepare_cached(sql)?;
        for (row, entry) in (first_row..).zip(&plan.entries) {
            let record = &batch.records[entry.place];
            let (lat, lon) = (record.fix.map(|fix| fix.lat), record.fix.map(|fix| fix.lon));
            // Bound one by one: a list of trait objects costs as much again, and this runs once a record.
            statement.raw_bind_parameter(1, row)?;
            statement.raw_bind_parameter(2, record.seq)?;
            statement.raw_bind_parameter(3, record.recorded_at)?;
            statement.raw_bind_parameter(4, lat)?;
            statement.raw_bind_parameter(5, lon)?;
            statement.raw_bind_parameter(6, record.battery)?;
            statement.raw_bind_parameter(7, record.extra.as_deref())?;
            statement.raw_bind_parameter(8, record.raw.as_deref())?;
            statement.raw_execute()?;
        }
        Ok(())
    };
    append().map_err(at("appending to the log"))
}

fn put_epoch(
    conn: &Connection,
    device_ref: i64,
    upload: &Upload,
    epoch: &EpochPlan,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO epochs (device_ref, epoch_id, opened_at, max_logged_seq, max_counting_seq, guard_window, \
               guard_next_seq, guard_raised_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) \
               ON CONFLICT (device_ref, epoch_id) DO UPDATE SET max_logged_seq = excluded.max_logged_seq, \
               max_counting_seq = excluded.max_counting_seq, guard_window = excluded.guard_window, \
               guard_next_seq = excluded.guard_next_seq, guard_raised_at = excluded.guard_raised_at";
    let guard = epoch.guard;
    let values = params![
        device_ref,
        epoch.epoch_id,
        upload.received_at,
        epoch.max_logged,
        epoch.max_counting,
        guard.map(|guard| i64::try_from(guard.window).unwrap_or(i64::MAX)),
        guard.map(|guard| guard.next_seq),
        guard.map(|guard| guard.raised_at),
    ];
    run(conn, sql, values, "updating the epoch")?;
    epoch.opened_above.map_or(Ok(()), |above| audit_opened(conn, device_ref, upload, epoch, above))
}

fn audit_opened(
    conn: &Connection,
    device_ref: i64,
    upload: &Upload,
    epoch: &EpochPlan,
    above: EpochId,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO audit (at, actor, action, device_ref, before, after) \
               VALUES (?1, ?2, 'epoch_opened', ?3, ?4, ?5)";
    let actor = upload.device_id.as_ref().map(|id| format!("device:{id}"));
    let (before, after) = (epoch_json(above), epoch_json(epoch.epoch_id));
    run(conn, sql, params![upload.received_at, actor, device_ref, before, after], "writing the audit")
}

fn epoch_json(epoch_id: EpochId) -> String {
    format!("{{\"epoch_id\":{epoch_id}}}")
}

/// Compares the ordering keys of new and stored state in [`swap_state`].
#[cfg(not(feature = "fault-equal-wins"))]
macro_rules! wins {
    () => {
        ">"
    };
}
/// The planted fault: equal wins.
#[cfg(feature = "fault-equal-wins")]
macro_rules! wins {
    () => {
        ">="
    };
}

/// Swaps the current state: the statement itself refuses to move the state or the position backwards. A
/// correction may move them anywhere, and says so in the row.
pub(super) fn swap_state(
    conn: &Connection,
    device_ref: i64,
    state: &State,
    correction: bool,
    counters: &mut Counters,
) -> Result<(), StoreError> {
    let sql = concat!(
        "INSERT INTO device_current_state AS s (device_ref, epoch_id, last_seq, recorded_at, received_at, \
               battery, position_epoch_id, position_seq, lat, lon, position_recorded_at, revision, cursor, corrected) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, 1, ?12, ?13) \
               ON CONFLICT (device_ref) DO UPDATE SET epoch_id = excluded.epoch_id, last_seq = excluded.last_seq, \
               recorded_at = excluded.recorded_at, received_at = excluded.received_at, battery = excluded.battery, \
               position_epoch_id = excluded.position_epoch_id, position_seq = excluded.position_seq, \
               lat = excluded.lat, lon = excluded.lon, position_recorded_at = excluded.position_recorded_at, \
               revision = s.revision + 1, cursor = excluded.cursor, corrected = excluded.corrected \
               WHERE excluded.corrected OR ( \
               (coalesce(excluded.position_epoch_id, -1), coalesce(excluded.position_seq, -1)) \
               >= (coalesce(s.position_epoch_id, -1), coalesce(s.position_seq, -1)) \
               AND ((excluded.epoch_id, excluded.last_seq) ",
        wins!(),
        " (s.epoch_id, s.last_seq) \
               OR ((excluded.epoch_id, excluded.last_seq) = (s.epoch_id, s.last_seq) \
               AND (coalesce(excluded.position_epoch_id, -1), coalesce(excluded.position_seq, -1)) \
               > (coalesce(s.position_epoch_id, -1), coalesce(s.position_seq, -1)))))"
    );
    let position = state.position;
    let values = params![
        device_ref,
        state.key.epoch_id,
        state.key.seq,
        state.recorded_at,
        state.received_at,
        state.battery,
        position.map(|position| position.key.epoch_id),
        position.map(|position| position.key.seq),
        position.map(|position| position.fix.lat),
        position.map(|position| position.fix.lon),
        position.and_then(|position| position.recorded_at),
        counters.next_cursor,
        correction,
    ];
    run(conn, sql, values, "swapping the current state")?;
    counters.next_cursor += 1;
    Ok(())
}

/// Keeps what cannot be used; an identical body is counted.
pub(super) fn quarantine(
    conn: &Connection,
    device_ref: i64,
    upload: &Upload,
    entry: &PlannedQuarantine,
) -> Result<(), StoreError> {
    let sql = "INSERT INTO quarantine (lane, device_ref, reason, detail, body_hash, body, record_index, batch_id, \
               epoch_id, implicit, first_seen_at, last_seen_at, count, status) \
               VALUES ('telemetry', ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, 1, 'open') \
               ON CONFLICT (device_ref, body_hash, reason) DO UPDATE SET count = count + 1, \
               last_seen_at = max(last_seen_at, excluded.last_seen_at)";
    let batch = upload.content.as_ref().ok();
    let body = match &entry.bytes {
        QuarantinedBytes::Body => upload.body.as_ref(),
        QuarantinedBytes::Written(bytes) => bytes.as_slice(),
        QuarantinedBytes::Unusable(place) => {
            let record = batch.and_then(|batch| batch.unusable.get(*place));
            record.ok_or_else(|| inconsistent("a plan that keeps a record of no batch"))?.bytes.as_slice()
        }
    };
    let implicit = batch.is_none_or(|batch| batch.epoch_id.is_none());
    let values = params![
        device_ref,
        entry.reason,
        entry.detail,
        entry.hash,
        body,
        entry.index.map(count_to_sql),
        upload.batch_id().map(BatchId::to_key),
        entry.epoch_id,
        implicit,
        upload.received_at,
    ];
    run(conn, sql, values, "keeping a body in quarantine")
}

/// Runs a statement that must change exactly one row.
fn run(
    conn: &Connection,
    sql: &'static str,
    values: &[&dyn rusqlite::ToSql],
    context: &'static str,
) -> Result<(), StoreError> {
    let changed =
        conn.prepare_cached(sql).and_then(|mut statement| statement.execute(values)).map_err(at(context))?;
    if changed == 1 { Ok(()) } else { Err(inconsistent(format_args!("{changed} rows for one: {context}"))) }
}
