//! The first baseline: a bare rusqlite loop. The same schema, the same rows, as many batches a transaction as
//! the gateway had on average; no network, no signature, no decoding, no look-ups, and both cores to itself.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::{Connection, params};
use tidegate::domain::batch::Batch;
use tidegate::domain::ids::EpochId;
use tidegate::domain::record::Record;
use tidegate::domain::time::Timestamp;

use crate::requests::{BATCH_RECORDS, Device};
use crate::{Outcome, machine};

const SCHEMA: &str = include_str!("../../schema/sqlite/0001_telemetry.sql");

/// How fast it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Batches a second.
    pub(crate) rate: f64,
    /// CPU time of a batch, in microseconds.
    pub(crate) cpu: f64,
}

/// An open database, with the devices' references.
pub(crate) struct Bare {
    conn: Connection,
    next_row: i64,
    next_cursor: i64,
    received_at: i64,
}

impl Bare {
    /// Creates a database, or opens one that the gateway made.
    pub(crate) fn open(path: &Path, fleet: &[Device]) -> Outcome<Self> {
        let fresh = !path.exists();
        let conn = Connection::open(path)?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        conn.pragma_update(None, "synchronous", "FULL")?;
        conn.pragma_update(None, "wal_autocheckpoint", 8000)?;
        conn.pragma_update(None, "cache_size", -16_384)?;
        conn.set_prepared_statement_cache_capacity(64);
        if fresh {
            conn.execute_batch(SCHEMA)?;
        }
        for device in fleet {
            conn.execute(
                "INSERT INTO devices (device_id, first_contact_at, last_contact_at, current_epoch_id, held, conflicts, \
                 quarantined, quarantined_bytes) VALUES (?1, 0, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING",
                [device.tracker.device_id().as_str()],
            )?;
        }
        let next = |sql| conn.query_row(sql, [], |row| row.get(0));
        let next_row = next("SELECT coalesce(max(row), 0) + 1 FROM telemetry_log")?;
        let next_cursor = next("SELECT coalesce(max(cursor), 0) + 1 FROM device_current_state")?;
        Ok(Self { conn, next_row, next_cursor, received_at: 1_774_930_320_000_000 })
    }

    /// Stores new batches of the fleet in groups of `group` for a time.
    pub(crate) fn run(&mut self, fleet: &mut [Device], group: u32, time: Duration) -> Outcome<Pace> {
        let refs = self.device_refs(fleet)?;
        let own = || machine::cpu_seconds(Path::new("/proc/thread-self"));
        let (mut spent, mut cpu, mut batches) = (Duration::ZERO, 0.0, 0_u32);
        let mut turn = (0..fleet.len()).cycle();
        while spent < time {
            // Made outside the measured time, about as many as a second takes.
            let groups = 4096_u32.div_ceil(group);
            let mut made = Vec::new();
            for place in turn.by_ref().take((groups * group) as usize) {
                let (batch, _, _) = fleet[place].signed_batch();
                made.push((refs[place], batch));
            }
            let (begun, cpu_before) = (Instant::now(), own()?);
            for some in made.chunks(group as usize) {
                self.commit(some)?;
            }
            spent += begun.elapsed();
            cpu += own()? - cpu_before;
            batches += groups * group;
        }
        let batches = f64::from(batches);
        Ok(Pace { rate: batches / spent.as_secs_f64(), cpu: 1e6 * cpu / batches })
    }

    fn device_refs(&self, fleet: &[Device]) -> Outcome<Vec<i64>> {
        let mut statement = self.conn.prepare("SELECT device_ref FROM devices WHERE device_id = ?1")?;
        let refs = fleet
            .iter()
            .map(|device| statement.query_row([device.tracker.device_id().as_str()], |row| row.get(0)));
        Ok(refs.collect::<Result<_, _>>()?)
    }

    fn commit(&mut self, group: &[(i64, Batch)]) -> Outcome<()> {
        self.conn.execute_batch("BEGIN IMMEDIATE")?;
        for (device_ref, batch) in group {
            self.store(*device_ref, batch)?;
        }
        self.conn.execute_batch("COMMIT")?;
        Ok(())
    }

    fn store(&mut self, device_ref: i64, batch: &Batch) -> Outcome<()> {
        self.received_at += 1;
        let (received_at, batch_id) = (self.received_at, batch.batch_id.to_key());
        let epoch_id = batch.epoch_id.map_or(0, EpochId::to_i64);
        let (Some(first), Some(newest)) = (batch.records.first(), batch.records.last()) else {
            return Ok(());
        };
        let (seq_first, seq) = (first.seq.to_i64(), newest.seq.to_i64());
        self.execute(
            "UPDATE devices SET last_contact_at = ?2, current_epoch_id = ?3 WHERE device_ref = ?1",
            params![device_ref, received_at, epoch_id],
        )?;
        self.execute(
            "INSERT INTO processed_batches (device_ref, batch_id, body_hash, received_at, epoch_id, entries) \
             VALUES (?1, ?2, ?2, ?3, ?4, ?5)",
            params![device_ref, batch_id, received_at, epoch_id, BATCH_RECORDS],
        )?;
        let first_row = self.next_row;
        self.append(&batch.records)?;
        self.execute(
            "INSERT INTO log_spans (device_ref, epoch_id, seq_first, first_row, seq_last, count, implicit, received_at, \
             batch_id) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
            params![
                device_ref,
                epoch_id,
                seq_first,
                first_row,
                seq,
                BATCH_RECORDS,
                batch.epoch_id.is_none(),
                received_at,
                batch_id
            ],
        )?;
        self.execute(
            "INSERT INTO epochs (device_ref, epoch_id, opened_at, max_logged_seq, max_counting_seq) \
             VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT DO UPDATE SET max_logged_seq = ?4, max_counting_seq = ?4",
            params![device_ref, epoch_id, received_at, seq],
        )?;
        self.swap(device_ref, epoch_id, newest)
    }

    fn append(&mut self, records: &[Record]) -> Outcome<()> {
        let mut row = self.conn.prepare_cached(
            "INSERT INTO telemetry_log (row, seq, recorded_at, lat, lon, battery, extra) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?;
        for record in records {
            let (north, east) = (record.fix.map(|fix| fix.lat), record.fix.map(|fix| fix.lon));
            let (seq, at) = (record.seq.to_i64(), record.recorded_at.map(Timestamp::to_micros));
            row.execute(params![self.next_row, seq, at, north, east, record.battery, record.extra])?;
            self.next_row += 1;
        }
        Ok(())
    }

    fn swap(&mut self, device_ref: i64, epoch_id: i64, newest: &Record) -> Outcome<()> {
        let (north, east) = (newest.fix.map(|fix| fix.lat), newest.fix.map(|fix| fix.lon));
        let (seq, at) = (newest.seq.to_i64(), newest.recorded_at.map(Timestamp::to_micros));
        self.execute(
            "INSERT INTO device_current_state AS s (device_ref, epoch_id, last_seq, recorded_at, received_at, battery, \
             position_epoch_id, position_seq, lat, lon, position_recorded_at, revision, cursor, corrected) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?2, ?3, ?7, ?8, ?4, 1, ?9, 0) ON CONFLICT (device_ref) DO UPDATE SET \
             epoch_id = ?2, last_seq = ?3, recorded_at = ?4, received_at = ?5, battery = ?6, position_epoch_id = ?2, \
             position_seq = ?3, lat = ?7, lon = ?8, position_recorded_at = ?4, revision = s.revision + 1, cursor = ?9 \
             WHERE (?2, ?3) > (s.epoch_id, s.last_seq)",
            params![
                device_ref,
                epoch_id,
                seq,
                at,
                self.received_at,
                newest.battery,
                north,
                east,
                self.next_cursor
            ],
        )?;
        self.next_cursor += 1;
        Ok(())
    }

    /// Runs a statement that must change one row.
    fn execute(&self, sql: &str, values: &[&dyn rusqlite::ToSql]) -> Outcome<()> {
        let changed = self.conn.prepare_cached(sql)?.execute(values)?;
        if changed == 1 { Ok(()) } else { Err(format!("{changed} rows for one: {sql}").into()) }
    }
}
