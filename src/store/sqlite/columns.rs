//! Groups of columns that several statements read: one list of names and one reader for each.

use rusqlite::Row;

use crate::domain::epoch::{EpochFacts, Guard};
use crate::domain::ids::{EpochId, Key};
use crate::domain::record::{Fix, Record};
use crate::domain::state::{Position, State};

/// Columns of `device_current_state AS s`, read by [`state`].
macro_rules! state_columns {
    () => {
        "s.epoch_id, s.last_seq, s.recorded_at, s.received_at, s.battery, s.position_epoch_id, s.position_seq, \
         s.lat, s.lon, s.position_recorded_at"
    };
}
pub(super) use state_columns;

/// The state whose columns start at `at`; `None` where an outer join found none.
pub(super) fn state(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<State>> {
    let Some(epoch_id) = row.get(at)? else { return Ok(None) };
    let position = match row.get(at + 5)? {
        None => None,
        Some(epoch_id) => Some(Position {
            key: Key { epoch_id, seq: row.get(at + 6)? },
            fix: Fix { lat: row.get(at + 7)?, lon: row.get(at + 8)? },
            recorded_at: row.get(at + 9)?,
        }),
    };
    Ok(Some(State {
        key: Key { epoch_id, seq: row.get(at + 1)? },
        recorded_at: row.get(at + 2)?,
        received_at: row.get(at + 3)?,
        battery: row.get(at + 4)?,
        position,
    }))
}

/// Columns of `telemetry_log AS l`, read by [`record`].
macro_rules! record_columns {
    () => {
        "l.seq, l.recorded_at, l.lat, l.lon, l.battery, l.extra, l.raw"
    };
}
pub(super) use record_columns;

/// The record whose columns start at `at`.
pub(super) fn record(row: &Row<'_>, at: usize) -> rusqlite::Result<Record> {
    let fix = match (row.get(at + 2)?, row.get(at + 3)?) {
        (Some(lat), Some(lon)) => Some(Fix { lat, lon }),
        _ => None,
    };
    Ok(Record {
        seq: row.get(at)?,
        recorded_at: row.get(at + 1)?,
        fix,
        battery: row.get(at + 4)?,
        extra: row.get(at + 5)?,
        raw: row.get(at + 6)?,
    })
}

/// Columns of a guard in `epochs AS e`, read by [`guard`].
macro_rules! guard_columns {
    () => {
        "e.guard_window, e.guard_next_seq, e.guard_raised_at"
    };
}
pub(super) use guard_columns;

/// The guard whose columns start at `at`.
pub(super) fn guard(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<Guard>> {
    let Some(window) = row.get::<_, Option<i64>>(at)? else { return Ok(None) };
    Ok(Some(Guard { window: window.unsigned_abs(), next_seq: row.get(at + 1)?, raised_at: row.get(at + 2)? }))
}

/// Columns of `epochs AS e`, read by [`epoch`].
macro_rules! epoch_columns {
    () => {
        concat!(
            "e.epoch_id IS NOT NULL, e.voided_at IS NOT NULL, e.max_logged_seq, e.max_counting_seq, ",
            $crate::store::sqlite::columns::guard_columns!()
        )
    };
}
pub(super) use epoch_columns;

/// How many columns [`epoch_columns`] are.
pub(super) const EPOCH_WIDTH: usize = 7;

/// The epoch whose columns start at `at`, also where an outer join found none.
pub(super) fn epoch(row: &Row<'_>, epoch_id: EpochId, at: usize) -> rusqlite::Result<EpochFacts> {
    Ok(EpochFacts {
        epoch_id,
        known: row.get(at)?,
        voided: row.get(at + 1)?,
        max_logged: row.get(at + 2)?,
        max_counting: row.get(at + 3)?,
        guard: guard(row, at + 4)?,
    })
}
