//! Reading devices and tracks.

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};

use super::columns;
use super::error::at;
use super::values::count_to_sql;
use super::walk;
use crate::domain::ids::{DeviceId, EpochId, Key, Seq};
use crate::store::{Device, DevicePage, Entry, StoreError, TrackPage, TrackQuery};

/// Windows that one page may pass over without finding an entry: bounds the work of a page whose time range
/// excludes almost everything.
const WINDOWS_MAX: usize = 256;
/// A page ends with the entry whose `extra` and `raw` bring it to so many bytes: one record may hold as much as
/// a whole body, and a thousand of them must not stand in memory at once.
const PAGE_TEXT_BYTES: usize = 1 << 20;

macro_rules! device_columns {
    () => {
        concat!(
            "SELECT d.device_id, d.last_contact_at, d.current_epoch_id, d.held, d.conflicts, d.quarantined, \
             d.batch_id_reused_at, d.label, d.disabled_at IS NOT NULL, d.fleet_key, coalesce(s.revision, 0), \
             e.max_counting_seq, CASE WHEN e.guard_raised_at IS NOT NULL THEN (SELECT max(o.max_counting_seq) \
             FROM epochs AS o WHERE o.device_ref = d.device_ref AND o.epoch_id < d.current_epoch_id \
             AND o.voided_at IS NULL) END, ",
            columns::guard_columns!(),
            ", ",
            columns::state_columns!(),
            " FROM devices AS d LEFT JOIN device_current_state AS s ON s.device_ref = d.device_ref \
             LEFT JOIN epochs AS e ON e.device_ref = d.device_ref AND e.epoch_id = d.current_epoch_id "
        )
    };
}

fn device(row: &Row<'_>) -> rusqlite::Result<Device> {
    let count = |at| row.get::<_, i64>(at).map(i64::unsigned_abs);
    Ok(Device {
        device_id: row.get(0)?,
        last_contact_at: row.get(1)?,
        current_epoch_id: row.get(2)?,
        held: count(3)?,
        conflicts: count(4)?,
        quarantined: count(5)?,
        batch_id_reused_at: row.get(6)?,
        label: row.get(7)?,
        disabled: row.get(8)?,
        fleet_key: row.get(9)?,
        revision: count(10)?,
        guard_max_counting: row.get(11)?,
        guard_old: row.get(12)?,
        guard: columns::guard(row, 13)?,
        state: columns::state(row, 16)?,
    })
}

/// One device.
pub(super) fn lookup_device(conn: &Connection, id: &DeviceId) -> Result<Option<Device>, StoreError> {
    let sql = concat!(device_columns!(), "WHERE d.device_id = ?1");
    conn.prepare_cached(sql)
        .and_then(|mut statement| statement.query_row([id], device).optional())
        .map_err(at("reading a device"))
}

/// A page of devices in order of their ids.
pub(super) fn list_devices(
    conn: &Connection,
    after: Option<&DeviceId>,
    limit: usize,
) -> Result<DevicePage, StoreError> {
    let sql = concat!(device_columns!(), "WHERE d.device_id > ?1 ORDER BY d.device_id LIMIT ?2");
    let read = || -> rusqlite::Result<DevicePage> {
        // One snapshot for both: every change up to the cursor is in the page.
        let tx = rusqlite::Transaction::new_unchecked(conn, TransactionBehavior::Deferred)?;
        let cursor: i64 = tx
            .prepare_cached("SELECT coalesce(max(cursor), 0) FROM device_current_state")?
            .query_row([], |row| row.get(0))?;
        let after = after.map_or("", DeviceId::as_str);
        let mut devices: Vec<Device> = tx
            .prepare_cached(sql)?
            .query_map(params![after, count_to_sql(limit.saturating_add(1))], device)?
            .collect::<Result<_, _>>()?;
        let more = devices.len() > limit;
        devices.truncate(limit);
        Ok(DevicePage { devices, more, cursor: cursor.unsigned_abs() })
    };
    read().map_err(at("listing devices"))
}

/// How tables name a device; `None` if it was never seen.
pub(super) fn device_ref(conn: &Connection, id: &DeviceId) -> Result<Option<i64>, StoreError> {
    conn.prepare_cached("SELECT device_ref FROM devices WHERE device_id = ?1")
        .and_then(|mut statement| statement.query_row([id], |row| row.get(0)).optional())
        .map_err(at("looking up a device"))
}

/// A page of a device's track.
pub(super) fn list_track(
    conn: &Connection,
    id: &DeviceId,
    query: &TrackQuery,
) -> Result<Option<TrackPage>, StoreError> {
    let Some(device_ref) = device_ref(conn, id)? else { return Ok(None) };
    let mut page = TrackPage { entries: Vec::new(), next: None };
    let mut text_bytes = 0;
    let mut from = Some(query.from);
    for _ in 0..WINDOWS_MAX {
        let Some(start) = from.filter(|start| *start <= query.to) else { return Ok(Some(page)) };
        let Some((epoch_id, window)) = next_window(conn, device_ref, start, query.to)? else {
            return Ok(Some(page));
        };
        for counting in walk::counting_entries(conn, device_ref, epoch_id, window)? {
            let counting = counting?;
            let entry = Entry {
                epoch_id,
                record: counting.record,
                received_at: counting.received_at,
                mark: None,
                conflicts: counting.conflicts,
            };
            let wanted = query.recorded.holds(entry.record.recorded_at)
                && query.received.holds(Some(entry.received_at));
            if !wanted {
                continue;
            }
            if page.entries.len() == query.limit || text_bytes >= PAGE_TEXT_BYTES {
                page.next = Some(entry.key());
                return Ok(Some(page));
            }
            let texts = [&entry.record.extra, &entry.record.raw];
            text_bytes += texts.into_iter().flatten().map(|text| text.len()).sum::<usize>();
            page.entries.push(entry);
        }
        from = following(Key { epoch_id, seq: window.last });
    }
    page.next = from.filter(|from| *from <= query.to);
    Ok(Some(page))
}

/// The first window at or behind a key that can hold entries, in whatever epoch it is.
fn next_window(
    conn: &Connection,
    device_ref: i64,
    start: Key,
    to: Key,
) -> Result<Option<(EpochId, walk::Window)>, StoreError> {
    let sql = "SELECT epoch_id FROM log_spans WHERE device_ref = ?1 AND epoch_id > ?2 AND epoch_id <= ?3 \
               AND mark IS NULL ORDER BY epoch_id LIMIT 1";
    let mut from = start;
    loop {
        let until = if from.epoch_id == to.epoch_id { to.seq } else { Seq::MAX };
        if let Some(window) = walk::next_window(conn, device_ref, from.epoch_id, from.seq, until)? {
            return Ok(Some((from.epoch_id, window)));
        }
        let next: Option<EpochId> = conn
            .prepare_cached(sql)
            .and_then(|mut statement| {
                let bounds = params![device_ref, from.epoch_id, to.epoch_id];
                statement.query_row(bounds, |row| row.get(0)).optional()
            })
            .map_err(at("finding the next epoch"))?;
        match next {
            Some(epoch_id) => from = Key { epoch_id, seq: Seq::ZERO },
            None => return Ok(None),
        }
    }
}

/// The key behind a key.
fn following(key: Key) -> Option<Key> {
    if let Some(seq) = Seq::new(key.seq.get() + 1) {
        return Some(Key { seq, ..key });
    }
    EpochId::new(key.epoch_id.get() + 1).map(|epoch_id| Key { epoch_id, seq: Seq::ZERO })
}
