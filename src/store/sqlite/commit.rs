//! Group commit: many uploads, one transaction, one sync to disk; a savepoint each where one of them fails.

use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::Connection;

use super::apply::{self, Counters};
use super::error::{at, at_sync, fail_stop, inconsistent};
use super::files::Identity;
use super::{law, lift, snapshot};
use crate::domain::decide::{self, Plan, Policy, StateMove};
use crate::domain::ids::Seq;
use crate::domain::receipt::Receipt;
use crate::domain::state::State;
use crate::domain::upload::Upload;
use crate::store::{StoreError, StoreErrorKind};

/// The one connection that writes, and the numbers it gives out.
#[derive(Debug)]
pub(super) struct WriteConn {
    pub(super) conn: Connection,
    /// The file that it writes to.
    pub(super) file: Identity,
    pub(super) policy: Policy,
    pub(super) counters: Counters,
}

impl WriteConn {
    /// Takes over a migrated connection.
    pub(super) fn new(conn: Connection, file: Identity, policy: Policy) -> Result<Self, StoreError> {
        let next = |sql: &str| conn.query_row(sql, [], |row| row.get(0)).map_err(at("reading the counters"));
        let counters = Counters {
            next_row: next("SELECT coalesce(max(row), 0) + 1 FROM telemetry_log")?,
            next_cursor: next("SELECT coalesce(max(cursor), 0) + 1 FROM device_current_state")?,
        };
        Ok(Self { conn, file, policy, counters })
    }

    /// Commits a group, at first without savepoints: they copy every page that an upload touches, and hardly ever
    /// is one rolled back to. Where an upload fails half-way the group is done again, with them.
    pub(super) fn commit_group(&mut self, group: &[Upload]) -> Vec<Result<Receipt, StoreError>> {
        match self.try_group(group, Self::upload_unguarded) {
            Ok(results) => results,
            Err(error) if error.retryable() => group.iter().map(|_| Err(error.share())).collect(),
            Err(_) => self.commit_guarded(group),
        }
    }

    /// Commits a group with a savepoint an upload. Where the group as a whole fails for a reason that no retry
    /// heals, each upload is tried alone: the one that fails alone goes to quarantine, its neighbours go on.
    fn commit_guarded(&mut self, group: &[Upload]) -> Vec<Result<Receipt, StoreError>> {
        match self.try_group(group, Self::upload) {
            Ok(results) => results,
            Err(error) if error.retryable() || error.kind() == StoreErrorKind::Inconsistent => {
                group.iter().map(|_| Err(error.share())).collect()
            }
            Err(error) => match group {
                [upload] => vec![self.quarantine_alone(upload, &error)],
                _ => group
                    .iter()
                    .flat_map(|upload| self.commit_guarded(std::slice::from_ref(upload)))
                    .collect(),
            },
        }
    }

    fn quarantine_alone(&mut self, upload: &Upload, error: &StoreError) -> Result<Receipt, StoreError> {
        let failed = failed(upload, error);
        self.try_group(std::slice::from_ref(&failed), Self::upload)?
            .pop()
            .unwrap_or_else(|| Err(error.share()))
    }

    /// One transaction, each upload by `store`. An error means that nothing of it was stored.
    fn try_group(
        &mut self,
        group: &[Upload],
        store: impl Fn(&mut Self, &Upload) -> Result<Result<Receipt, StoreError>, StoreError>,
    ) -> Result<Vec<Result<Receipt, StoreError>>, StoreError> {
        let counters = self.counters;
        self.conn.execute_batch("BEGIN IMMEDIATE").map_err(at("beginning the transaction"))?;
        let results = group.iter().map(|upload| store(self, upload)).collect::<Result<Vec<_>, _>>();
        let results = results.and_then(|results| self.commit().map(|()| results));
        if results.is_err() {
            self.counters = counters;
            self.roll_back();
        }
        results
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.file.check()?;
        if cfg!(feature = "fault-early-answer") {
            // The planted fault: the answers go out now, see `commit_late`.
            return Ok(());
        }
        self.conn.execute_batch("COMMIT").map_err(at_sync("committing"))
    }

    /// Half of the planted fault: commits some time after the answers are out.
    #[cfg(feature = "fault-early-answer")]
    pub(super) fn commit_late(&self) -> Result<(), StoreError> {
        if !self.conn.is_autocommit() {
            std::thread::sleep(std::time::Duration::from_millis(100));
            self.conn.execute_batch("COMMIT").map_err(at_sync("committing"))?;
        }
        Ok(())
    }

    fn roll_back(&self) {
        // SQLite may have rolled back by itself (a full disk); a second ROLLBACK would only be an error.
        if !self.conn.is_autocommit()
            && let Err(error) = self.conn.execute_batch("ROLLBACK")
        {
            fail_stop(&error);
        }
    }

    /// One upload without a savepoint: any error that may have come half-way ends the group.
    fn upload_unguarded(&mut self, upload: &Upload) -> Result<Result<Receipt, StoreError>, StoreError> {
        match self.ingest(upload) {
            Ok(receipt) => Ok(Ok(receipt)),
            // Decided before anything was written.
            Err(error) if error.kind() == StoreErrorKind::QuarantineFull => Ok(Err(error)),
            Err(error) => Err(error),
        }
    }

    /// One upload in its savepoint. The outer error ends the group, the inner one this upload alone.
    fn upload(&mut self, upload: &Upload) -> Result<Result<Receipt, StoreError>, StoreError> {
        match self.in_savepoint(upload) {
            Ok(receipt) => Ok(Ok(receipt)),
            Err(error) if error.kind() == StoreErrorKind::QuarantineFull => Ok(Err(error)),
            Err(error) if error.retryable() || self.conn.is_autocommit() => Err(error),
            Err(error) => match self.in_savepoint(&failed(upload, &error)) {
                Err(error) if error.kind() != StoreErrorKind::QuarantineFull => Err(error),
                result => Ok(result),
            },
        }
    }

    fn in_savepoint(&mut self, upload: &Upload) -> Result<Receipt, StoreError> {
        let counters = self.counters;
        self.savepoint("SAVEPOINT upload")?;
        match self.ingest(upload) {
            Ok(receipt) => {
                self.savepoint("RELEASE upload")?;
                Ok(receipt)
            }
            Err(error) => {
                self.counters = counters;
                if !self.conn.is_autocommit() {
                    self.savepoint("ROLLBACK TO upload")?;
                    self.savepoint("RELEASE upload")?;
                }
                Err(error)
            }
        }
    }

    fn savepoint(&self, sql: &'static str) -> Result<(), StoreError> {
        self.conn
            .prepare_cached(sql)
            .and_then(|mut statement| statement.execute([]))
            .map(|_| ())
            .map_err(at("setting a savepoint"))
    }

    /// Load, decide, carry out.
    fn ingest(&mut self, upload: &Upload) -> Result<Receipt, StoreError> {
        // The rules of the domain run in here, with whatever a body made of them; nothing is written yet.
        let deciding = AssertUnwindSafe(|| {
            let loaded = snapshot::load(&self.conn, upload, &self.policy)?;
            let plan = decide::decide(upload, &loaded.snapshot, &self.policy).map_err(
                |decide::QuarantineFull| {
                    StoreError::new(StoreErrorKind::QuarantineFull, "the device's quarantine is full")
                },
            )?;
            Ok((loaded, plan))
        });
        let (loaded, plan) = catch_unwind(deciding).unwrap_or_else(|_| {
            Err(StoreError::new(StoreErrorKind::Refused, "deciding this upload panicked"))
        })?;
        let device_ref = apply::touch_device(&self.conn, loaded.device_ref, upload, &plan)?;
        if let Ok(batch) = &upload.content {
            apply::append(&self.conn, device_ref, upload, batch, &plan, &mut self.counters)?;
        }
        for entry in &plan.quarantine {
            apply::quarantine(&self.conn, device_ref, upload, entry)?;
        }
        let before = loaded.snapshot.device.state;
        let after = self.move_state(device_ref, before, upload, &plan)?;
        Ok(plan.receipt(after.as_ref(), after != before))
    }

    fn move_state(
        &mut self,
        device_ref: i64,
        before: Option<State>,
        upload: &Upload,
        plan: &Plan,
    ) -> Result<Option<State>, StoreError> {
        let after = match plan.state {
            StateMove::Keep => return Ok(before),
            StateMove::Swap(state) => {
                apply::swap_state(&self.conn, device_ref, &state, false, &mut self.counters)?;
                return Ok(Some(state));
            }
            StateMove::ByLaw => {
                let epoch = plan.epoch.ok_or_else(|| inconsistent("a plan that lifts marks of no epoch"))?;
                lift::lift_held(&self.conn, device_ref, epoch.epoch_id, &plan.lifts)?;
                let records = upload.content.as_ref().map_or(&[][..], |batch| batch.records.as_slice());
                let mut seqs: Vec<Seq> = records.iter().map(|record| record.seq).collect();
                seqs.sort_unstable();
                law::state_after(&self.conn, device_ref, before, epoch.epoch_id, &seqs)?
            }
        };
        match after {
            Some(state) if after != before => {
                // A greater key won the swap like any other; anything else corrects what was shown.
                let won = before.is_none_or(|before| state.key > before.key);
                apply::swap_state(&self.conn, device_ref, &state, !won, &mut self.counters)?;
            }
            _ => {}
        }
        Ok(after)
    }
}

/// An upload that cannot be stored, as one for the quarantine.
fn failed(upload: &Upload, error: &StoreError) -> Upload {
    tracing::error!(error = error.chain(), "an upload cannot be stored: it goes to quarantine");
    upload.clone().into_internal_error(error.chain())
}
