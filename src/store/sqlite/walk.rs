//! Walking an epoch's entries in seq order, window by window: bounded memory, no long statement, and every
//! look-up two bounds on the span index.

use rusqlite::{CachedStatement, Connection, OptionalExtension, params};

use super::columns;
use super::error::at;
use crate::domain::ids::{EpochId, Seq};
use crate::domain::reason::Mark;
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

/// Where an entry stands and whether it counts; without its content, so that a window of them is small
/// whatever its records hold.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    pub(super) seq: Seq,
    pub(super) row: i64,
    pub(super) mark: Option<Mark>,
    received_at: Timestamp,
}

/// Finds entries. Prepared once for many windows.
pub(super) struct Locator<'c>(CachedStatement<'c>);

impl<'c> Locator<'c> {
    pub(super) fn new(conn: &'c Connection) -> Result<Self, StoreError> {
        let sql = "SELECT l.seq, l.row, s.mark, s.received_at FROM log_spans AS s \
                   CROSS JOIN telemetry_log AS l ON l.row BETWEEN s.first_row AND s.first_row + s.count - 1 \
                   WHERE s.device_ref = ?1 AND s.epoch_id = ?2 AND s.seq_first BETWEEN ?3 - ?5 AND ?4 \
                   AND s.seq_last >= ?3 AND l.seq BETWEEN ?3 AND ?4 ORDER BY l.seq, l.row";
        conn.prepare_cached(sql).map(Self).map_err(at("looking through the log"))
    }

    /// All entries of a window, marked or not, in order of (seq, row).
    pub(super) fn window(
        &mut self,
        device_ref: i64,
        epoch_id: EpochId,
        window: Window,
    ) -> Result<Vec<Located>, StoreError> {
        let read = |row: &rusqlite::Row<'_>| {
            Ok(Located { seq: row.get(0)?, row: row.get(1)?, mark: row.get(2)?, received_at: row.get(3)? })
        };
        let bounds = params![device_ref, epoch_id, window.first, window.last, SPAN_WIDTH_MAX.cast_signed()];
        let found = self.0.query_map(bounds, read).and_then(Iterator::collect);
        found.map_err(at("looking through the log"))
    }
}

/// Reads the contents of rows. Prepared once for many of them.
pub(super) struct Contents<'c>(CachedStatement<'c>);

impl<'c> Contents<'c> {
    pub(super) fn new(conn: &'c Connection) -> Result<Self, StoreError> {
        let sql = concat!("SELECT ", columns::record_columns!(), " FROM telemetry_log AS l WHERE l.row = ?1");
        conn.prepare_cached(sql).map(Self).map_err(at("reading the log"))
    }

    /// What a row of the log holds.
    pub(super) fn of(&mut self, row: i64) -> Result<Record, StoreError> {
        self.0.query_row([row], |found| columns::record(found, 0)).map_err(at("reading the log"))
    }
}

/// Counting entries of a window, in seq order, each read when it is asked for. Of one key the entry that
/// arrived first counts.
pub(super) fn counting_entries(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    window: Window,
) -> Result<impl Iterator<Item = Result<Counting, StoreError>>, StoreError> {
    let mut contents = Contents::new(conn)?;
    let mut unmarked = Locator::new(conn)?.window(device_ref, epoch_id, window)?;
    unmarked.retain(|entry| entry.mark.is_none());
    let mut unmarked = unmarked.into_iter().peekable();
    Ok(std::iter::from_fn(move || {
        let first = unmarked.next()?;
        let mut conflicts = 0;
        while unmarked.next_if(|entry| entry.seq == first.seq).is_some() {
            conflicts += 1;
        }
        Some(contents.of(first.row).map(|record| Counting {
            record,
            received_at: first.received_at,
            conflicts,
        }))
    }))
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
