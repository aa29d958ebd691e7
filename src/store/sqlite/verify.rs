//! Checking the law and the books. Each device is checked in one read transaction of its own; the rows as a
//! whole in another, with one bit of memory a row.

mod rows;

use std::fmt;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use self::rows::Rows;
use super::error::at;
use super::read;
use super::walk;
use crate::domain::decide::QUARANTINE_ENTRY_BYTES;
use crate::domain::ids::{DeviceId, EpochId, Key, Seq};
use crate::domain::reason::Mark;
use crate::domain::state::State;
use crate::store::{StoreError, Verification};

/// Most differences that are told one by one.
const DIFFERENCES_MAX: usize = 1000;

/// Checks a whole database.
pub(super) fn verify(
    conn: &Connection,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Verification, StoreError> {
    let mut report = Report::default();
    let total: i64 = one(conn, "SELECT count(*) FROM devices")?;
    let mut after = String::new();
    loop {
        let next: Option<DeviceId> = conn
            .prepare_cached("SELECT device_id FROM devices WHERE device_id > ?1 ORDER BY device_id LIMIT 1")
            .and_then(|mut statement| statement.query_row([&after], |row| row.get(0)).optional())
            .map_err(at("listing devices"))?;
        let Some(id) = next else { break };
        in_snapshot(conn, |tx| DeviceCheck { conn: tx, id: &id, report: &mut report }.run())?;
        report.out.devices += 1;
        progress(report.out.devices, total.unsigned_abs());
        id.as_str().clone_into(&mut after);
    }
    in_snapshot(conn, |tx| check_rows(tx, &mut report))?;
    Ok(report.out)
}

fn in_snapshot(
    conn: &Connection,
    check: impl FnOnce(&Connection) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let tx = Transaction::new_unchecked(conn, TransactionBehavior::Deferred).map_err(at("reading"))?;
    check(&tx)?;
    tx.finish().map_err(at("reading"))
}

fn one<T: rusqlite::types::FromSql>(conn: &Connection, sql: &str) -> Result<T, StoreError> {
    conn.query_row(sql, [], |row| row.get(0)).map_err(at("reading the books"))
}

#[derive(Default)]
struct Report {
    out: Verification,
}

impl Report {
    fn differ(&mut self, text: String) {
        self.out.difference_count += 1;
        if self.out.differences.len() < DIFFERENCES_MAX {
            self.out.differences.push(text);
        }
    }

    fn expect<T: PartialEq + fmt::Display>(
        &mut self,
        whose: &str,
        what: &str,
        stored: impl Into<Option<T>>,
        log: impl Into<Option<T>>,
    ) {
        let (stored, log) = (stored.into(), log.into());
        if stored != log {
            let told = |value: Option<T>| value.map_or_else(|| "none".to_owned(), |value| value.to_string());
            self.differ(format!("{whose}: {what} is {}, the log says {}", told(stored), told(log)));
        }
    }
}

struct DeviceCheck<'a> {
    conn: &'a Connection,
    id: &'a DeviceId,
    report: &'a mut Report,
}

/// What the log says of one device.
#[derive(Default)]
struct FromLog {
    state: Option<State>,
    conflicts: u64,
    held: u64,
    entries: u64,
}

/// What `epochs` says of one epoch.
struct EpochRow {
    epoch_id: EpochId,
    voided: bool,
    max_logged: Option<Seq>,
    max_counting: Option<Seq>,
}

impl DeviceCheck<'_> {
    fn run(&mut self) -> Result<(), StoreError> {
        let Some(device_ref) = read::device_ref(self.conn, self.id)? else { return Ok(()) };
        let whose = format!("device {}", self.id);
        let epochs = self.epochs(device_ref)?;
        let mut log = FromLog::default();
        self.spans(device_ref, &mut log)?;
        for epoch in &epochs {
            self.epoch(device_ref, epoch, &mut log)?;
        }
        self.strays(device_ref, &epochs)?;
        let Some(stored) = read::lookup_device(self.conn, self.id)? else { return Ok(()) };
        let current = epochs.iter().filter(|epoch| !epoch.voided).map(|epoch| epoch.epoch_id).max();
        let report = &mut *self.report;
        report.expect::<State>(&whose, "the state", stored.state, log.state);
        report.expect(&whose, "the current epoch", stored.current_epoch_id, current.unwrap_or_default());
        report.expect(&whose, "the number of held entries", stored.held, log.held);
        report.expect(&whose, "the number of conflicts", stored.conflicts, log.conflicts);
        self.batches(device_ref, &whose, log.entries)?;
        self.quarantine(device_ref, &whose, stored.quarantined)
    }

    fn epochs(&self, device_ref: i64) -> Result<Vec<EpochRow>, StoreError> {
        let sql = "SELECT epoch_id, voided_at IS NOT NULL, max_logged_seq, max_counting_seq FROM epochs \
                   WHERE device_ref = ?1 ORDER BY epoch_id";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(EpochRow {
                epoch_id: row.get(0)?,
                voided: row.get(1)?,
                max_logged: row.get(2)?,
                max_counting: row.get(3)?,
            })
        };
        self.conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map([device_ref], read)?.collect())
            .map_err(at("reading the epochs"))
    }

    /// Every span has its rows, in seq order, between the seqs it names.
    fn spans(&mut self, device_ref: i64, log: &mut FromLog) -> Result<(), StoreError> {
        let spans = "SELECT epoch_id, seq_first, seq_last, first_row, count, mark FROM log_spans WHERE device_ref = ?1";
        let rows = "SELECT seq FROM telemetry_log WHERE row BETWEEN ?1 AND ?1 + ?2 - 1 ORDER BY row";
        let mut check = || -> rusqlite::Result<()> {
            let mut statement = self.conn.prepare_cached(spans)?;
            let mut found = statement.query([device_ref])?;
            while let Some(span) = found.next()? {
                let (epoch_id, first, last): (EpochId, Seq, Seq) = (span.get(0)?, span.get(1)?, span.get(2)?);
                let (first_row, count): (i64, i64) = (span.get(3)?, span.get(4)?);
                let seqs: Vec<Seq> = self
                    .conn
                    .prepare_cached(rows)?
                    .query_map(params![first_row, count], |row| row.get(0))?
                    .collect::<Result<_, _>>()?;
                let whole = i64::try_from(seqs.len()) == Ok(count) && seqs.is_sorted();
                if !whole || seqs.first() != Some(&first) || seqs.last() != Some(&last) {
                    self.report.differ(format!(
                        "device {}: the span {first}–{last} of epoch {epoch_id} does not match its {count} rows from \
                         {first_row}",
                        self.id
                    ));
                }
                log.entries += count.unsigned_abs();
                if span.get::<_, Option<Mark>>(5)? == Some(Mark::Held) {
                    log.held += count.unsigned_abs();
                }
                self.report.out.spans += 1;
            }
            Ok(())
        };
        check().map_err(at("checking spans"))
    }

    /// Folds the counting entries of one epoch, and checks what its row says of them.
    fn epoch(&mut self, device_ref: i64, epoch: &EpochRow, log: &mut FromLog) -> Result<(), StoreError> {
        let epoch_id = epoch.epoch_id;
        let (mut from, mut greatest) = (Some(Seq::ZERO), None);
        while let Some(start) = from {
            let Some(window) = walk::next_window(self.conn, device_ref, epoch_id, start, Seq::MAX)? else {
                break;
            };
            for entry in walk::counting_entries(self.conn, device_ref, epoch_id, window)? {
                let entry = entry?;
                greatest = Some(entry.record.seq);
                log.conflicts += entry.conflicts;
                let key = Key { epoch_id, seq: entry.record.seq };
                State::fold(&mut log.state, key, &entry.record, entry.received_at);
            }
            from = Seq::new(window.last.get() + 1);
        }
        let sql = "SELECT max(seq_last) FROM log_spans WHERE device_ref = ?1 AND epoch_id = ?2";
        let logged: Option<Seq> = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row(params![device_ref, epoch_id], |row| row.get(0)))
            .map_err(at("checking an epoch"))?;
        let whose = format!("device {}, epoch {epoch_id}", self.id);
        self.report.expect::<Seq>(&whose, "the greatest logged seq", epoch.max_logged, logged);
        self.report.expect::<Seq>(&whose, "the greatest counting seq", epoch.max_counting, greatest);
        Ok(())
    }

    /// No span belongs to an epoch without a row.
    fn strays(&mut self, device_ref: i64, epochs: &[EpochRow]) -> Result<(), StoreError> {
        let sql = "SELECT DISTINCT epoch_id FROM log_spans WHERE device_ref = ?1";
        let found: Vec<EpochId> = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_map([device_ref], |row| row.get(0))?.collect())
            .map_err(at("checking epochs"))?;
        for epoch_id in found.iter().filter(|id| !epochs.iter().any(|epoch| epoch.epoch_id == **id)) {
            self.report.differ(format!("device {}: epoch {epoch_id} has entries and no row", self.id));
        }
        Ok(())
    }

    fn batches(&mut self, device_ref: i64, whose: &str, entries: u64) -> Result<(), StoreError> {
        let sql = "SELECT count(*), coalesce(sum(entries), 0) FROM processed_batches WHERE device_ref = ?1";
        let (batches, brought): (i64, i64) = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.query_row([device_ref], |row| Ok((row.get(0)?, row.get(1)?))))
            .map_err(at("checking batches"))?;
        self.report.out.batches += batches.unsigned_abs();
        self.report.out.entries += entries;
        self.report.expect(
            whose,
            "the number of entries its batches brought",
            &brought.unsigned_abs(),
            &entries,
        );
        Ok(())
    }

    fn quarantine(&mut self, device_ref: i64, whose: &str, stored: u64) -> Result<(), StoreError> {
        let sql = "SELECT count(*), coalesce(sum(length(body) + ?2), 0), (SELECT quarantined_bytes FROM devices \
                   WHERE device_ref = ?1) FROM quarantine WHERE device_ref = ?1 AND status = 'open'";
        let (open, bytes, stored_bytes): (i64, i64, i64) = self
            .conn
            .prepare_cached(sql)
            .and_then(|mut statement| {
                statement.query_row(params![device_ref, QUARANTINE_ENTRY_BYTES.cast_signed()], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                })
            })
            .map_err(at("checking the quarantine"))?;
        self.report.out.quarantined += open.unsigned_abs();
        self.report.expect(whose, "the number of quarantine entries", stored, open.unsigned_abs());
        self.report.expect(whose, "the size of its quarantine", stored_bytes, bytes);
        Ok(())
    }
}

/// Every row of the log belongs to exactly one span, and whatever belongs to a device to one that is there.
fn check_rows(conn: &Connection, report: &mut Report) -> Result<(), StoreError> {
    let all: i64 = one(conn, "SELECT count(*) FROM telemetry_log")?;
    let mut owned = Rows::default();
    let mut scan = || -> rusqlite::Result<()> {
        let mut spans = conn.prepare("SELECT first_row, count FROM log_spans")?;
        let mut found = spans.query([])?;
        while let Some(span) = found.next()? {
            let (first_row, count): (i64, i64) = (span.get(0)?, span.get(1)?);
            // A damaged count must not keep this busy for ever.
            let end = first_row.saturating_add(count.min(all.saturating_add(1)));
            if let Some(row) = (first_row..end).find(|row| !owned.insert(*row)) {
                report.differ(format!("log row {row} belongs to two spans"));
            }
        }
        let mut rows = conn.prepare("SELECT row FROM telemetry_log")?;
        let mut found = rows.query([])?;
        while let Some(row) = found.next()? {
            let row: i64 = row.get(0)?;
            if !owned.remove(row) {
                report.differ(format!("log row {row} belongs to no span"));
            }
        }
        Ok(())
    };
    scan().map_err(at("checking rows"))?;
    owned.iter().for_each(|row| report.differ(format!("log row {row} belongs to a span and is not there")));
    check_owners(conn, report)
}

fn check_owners(conn: &Connection, report: &mut Report) -> Result<(), StoreError> {
    for (what, sql) in [
        (
            "states",
            "SELECT count(*) FROM device_current_state WHERE device_ref NOT IN (SELECT device_ref FROM devices)",
        ),
        ("spans", "SELECT count(*) FROM log_spans WHERE device_ref NOT IN (SELECT device_ref FROM devices)"),
        ("epochs", "SELECT count(*) FROM epochs WHERE device_ref NOT IN (SELECT device_ref FROM devices)"),
        (
            "batches",
            "SELECT count(*) FROM processed_batches WHERE device_ref NOT IN (SELECT device_ref FROM devices)",
        ),
        (
            "quarantine entries",
            "SELECT count(*) FROM quarantine WHERE device_ref <> 0 AND device_ref NOT IN (SELECT device_ref FROM devices)",
        ),
    ] {
        report.expect(
            "the store",
            &format!("the number of {what} without a device"),
            &one::<i64>(conn, sql)?,
            &0,
        );
    }
    let (stored, bytes): (i64, i64) = conn
        .query_row(
            "SELECT (SELECT value FROM store_meta WHERE key = 'unnamed_quarantined_bytes'), \
             coalesce(sum(length(body) + ?1), 0) FROM quarantine WHERE device_ref = 0 AND status = 'open'",
            [QUARANTINE_ENTRY_BYTES.cast_signed()],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .map_err(at("checking the quarantine"))?;
    report.expect("the store", "the size of the quarantine of bodies without a device", stored, bytes);
    Ok(())
}
