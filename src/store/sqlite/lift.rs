//! Lifting the mark of single entries: their span is cut so that the mark goes from them alone. Log rows
//! themselves never change.

use rusqlite::{Connection, params};

use super::error::at;
use super::values::count_to_sql;
use crate::domain::ids::{EpochId, Seq};
use crate::domain::reason::Mark;
use crate::domain::span::SPAN_WIDTH_MAX;
use crate::domain::time::Timestamp;
use crate::store::StoreError;

struct HeldSpan {
    seq_first: Seq,
    first_row: i64,
    count: i64,
    implicit: bool,
    received_at: Timestamp,
    batch_id: Vec<u8>,
}

/// Takes the `held` mark from the given rows of one epoch.
pub(super) fn lift_held(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    rows: &[i64],
) -> Result<(), StoreError> {
    let mut rows = rows.to_vec();
    rows.sort_unstable();
    let mut rest = rows.as_slice();
    while let Some(row) = rest.first() {
        let run = lift_run(conn, device_ref, epoch_id, *row, rest).map_err(at("lifting a mark"))?;
        rest = rest.get(run..).unwrap_or_default();
    }
    Ok(())
}

/// Lifts the mark of the span's rows from `row` on that stand next to each other in `rows`; gives their number.
fn lift_run(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    row: i64,
    rows: &[i64],
) -> rusqlite::Result<usize> {
    let span = find(conn, device_ref, epoch_id, row)?;
    let sql =
        "DELETE FROM log_spans WHERE device_ref = ?1 AND epoch_id = ?2 AND seq_first = ?3 AND first_row = ?4";
    conn.prepare_cached(sql)?.execute(params![device_ref, epoch_id, span.seq_first, span.first_row])?;
    let end = span.first_row + span.count;
    // Neighbours in the span go together: a span a row would make the index as long as the log.
    let run = (row..end).zip(rows).take_while(|(next, row)| next == *row).count();
    let behind = row + count_to_sql(run);
    let held = Some(Mark::Held);
    for (first_row, count, mark) in [
        (span.first_row, row - span.first_row, held),
        (row, count_to_sql(run), None),
        (behind, end - behind, held),
    ] {
        if count > 0 {
            insert(conn, device_ref, epoch_id, &span, (first_row, count, mark))?;
        }
    }
    Ok(run)
}

/// The held span of a row. It starts at most a span's width before the row's seq: two bounds on the index.
fn find(conn: &Connection, device_ref: i64, epoch_id: EpochId, row: i64) -> rusqlite::Result<HeldSpan> {
    let seq: Seq = conn
        .prepare_cached("SELECT seq FROM telemetry_log WHERE row = ?1")?
        .query_row([row], |found| found.get(0))?;
    let sql = "SELECT seq_first, first_row, count, implicit, received_at, batch_id FROM log_spans \
               WHERE device_ref = ?1 AND epoch_id = ?2 AND mark = 'held' AND seq_first BETWEEN ?4 - ?5 AND ?4 \
               AND ?3 BETWEEN first_row AND first_row + count - 1";
    let bounds = params![device_ref, epoch_id, row, seq, SPAN_WIDTH_MAX.cast_signed()];
    conn.prepare_cached(sql)?.query_row(bounds, |found| {
        Ok(HeldSpan {
            seq_first: found.get(0)?,
            first_row: found.get(1)?,
            count: found.get(2)?,
            implicit: found.get(3)?,
            received_at: found.get(4)?,
            batch_id: found.get(5)?,
        })
    })
}

fn insert(
    conn: &Connection,
    device_ref: i64,
    epoch_id: EpochId,
    span: &HeldSpan,
    (first_row, count, mark): (i64, i64, Option<Mark>),
) -> rusqlite::Result<()> {
    let sql = "INSERT INTO log_spans (device_ref, epoch_id, seq_first, first_row, seq_last, count, mark, implicit, \
               received_at, batch_id) SELECT ?1, ?2, a.seq, ?3, b.seq, ?4, ?5, ?6, ?7, ?8 \
               FROM telemetry_log AS a, telemetry_log AS b WHERE a.row = ?3 AND b.row = ?3 + ?4 - 1";
    let values =
        params![device_ref, epoch_id, first_row, count, mark, span.implicit, span.received_at, span.batch_id];
    match conn.prepare_cached(sql)?.execute(values)? {
        1 => Ok(()),
        _ => Err(rusqlite::Error::QueryReturnedNoRows),
    }
}
