//! Walking an epoch's entries in seq order, window by window: bounded memory, no long statement, and every
//! look-up two bounds on the span index.

use rusqlite::{Connection, OptionalExtension, params};

use super::columns;
use super::error::at;
use crate::domain::ids::{EpochId, Seq};
use crate::domain::record::Record;
use crate::domain::span::SPAN_WIDTH_MAX;
use crate::domain::time::Timestamp;
use crate::store::StoreError;

/// A key's counting entry, and how many other contents stand beside it.
#[derive(Clone, Debug)]
pub(super) struct Counting {
    pub(super) record: Record,
    pub(super) received_at: Timestamp,
    pub(super) conflicts: u64,
}

/// A run of seqs, both ends included.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) first: Seq,
    pub(super) last: Seq,
}

impl Window {
    fn of(first: Seq, to: Seq) -> Self {
        let last = Seq::new(first.get() + SPAN_WIDTH_MAX).unwrap_or(Seq::MAX);
        Self { first, last: last.min(to) }
    }
}

/// The first window, within `from … to`, that unmarked entries can be in; `None`: there are no more.
pub(super) fn next_window(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    from: Seq,
    to: Seq,
) -> Result<Option<Window>, StoreError> {
    let sql = "SELECT max(seq_first, ?3) FROM log_spans WHERE device_ref = ?1 AND epoch_id = ?2 \
               AND seq_first BETWEEN ?3 - ?5 AND ?4 AND seq_last >= ?3 AND mark IS NULL \
               ORDER BY seq_first LIMIT 1";
    let bounds = params![device_ref, epoch_id, from, to, SPAN_WIDTH_MAX.cast_signed()];
    let first: Option<Seq> = conn
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(bounds, |row| row.get(0)).optional())
        .map_err(at("finding the next span"))?;
    Ok(first.map(|first| Window::of(first, to)))
}

/// Counting entries of a window, in seq order. Of one key the entry that arrived first counts.
pub(super) fn counting_entries(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    window: Window,
) -> Result<Vec<Counting>, StoreError> {
    let sql = concat!(
        "SELECT s.received_at, ",
        columns::record_columns!(),
        " FROM log_spans AS s CROSS JOIN telemetry_log AS l ON l.row BETWEEN s.first_row AND s.first_row + s.count - 1 \
         WHERE s.device_ref = ?1 AND s.epoch_id = ?2 AND s.seq_first BETWEEN ?3 - ?5 AND ?4 AND s.seq_last >= ?3 \
         AND s.mark IS NULL AND l.seq BETWEEN ?3 AND ?4 ORDER BY l.seq, l.row"
    );
    let read = || -> rusqlite::Result<Vec<Counting>> {
        let mut statement = conn.prepare_cached(sql)?;
        let bounds = params![device_ref, epoch_id, window.first, window.last, SPAN_WIDTH_MAX.cast_signed()];
        let mut rows = statement.query(bounds)?;
        let mut entries: Vec<Counting> = Vec::new();
        while let Some(row) = rows.next()? {
            let seq: Seq = row.get(1)?;
            match entries.last_mut().filter(|entry| entry.record.seq == seq) {
                Some(entry) => entry.conflicts += 1,
                None => entries.push(Counting {
                    received_at: row.get(0)?,
                    record: columns::record(row, 1)?,
                    conflicts: 0,
                }),
            }
        }
        Ok(entries)
    };
    read().map_err(at("reading the log"))
}

/// Epochs of a device that are not void, from the greatest down.
pub(super) fn epochs_down(conn: &Connection, device_ref: i64) -> Result<Vec<EpochId>, StoreError> {
    let sql =
        "SELECT epoch_id FROM epochs WHERE device_ref = ?1 AND voided_at IS NULL ORDER BY epoch_id DESC";
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.query_map([device_ref], |row| row.get(0))?.collect())
        .map_err(at("reading the epochs"))
}

/// The greatest window, ending at most at `to`, that unmarked entries can be in.
pub(super) fn window_down(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    to: Seq,
) -> Result<Option<Window>, StoreError> {
    // The span that starts last bounds where the greatest seq can be: whatever reaches further starts at
    // most a span's width before its end.
    let sql = "SELECT max(min(seq_last, ?3)) FROM log_spans WHERE device_ref = ?1 AND epoch_id = ?2 AND mark IS NULL \
               AND seq_first BETWEEN (SELECT seq_first FROM log_spans WHERE device_ref = ?1 AND epoch_id = ?2 \
               AND mark IS NULL AND seq_first <= ?3 ORDER BY seq_first DESC LIMIT 1) - ?4 AND ?3";
    let bounds = params![device_ref, epoch_id, to, SPAN_WIDTH_MAX.cast_signed()];
    let last: Option<Seq> = conn
        .prepare_cached(sql)
        .and_then(|mut statement| statement.query_row(bounds, |row| row.get(0)))
        .map_err(at("finding the last span"))?;
    Ok(last.map(|last| Window {
        first: Seq::new(last.get().saturating_sub(SPAN_WIDTH_MAX)).unwrap_or(last),
        last,
    }))
}
