//! Schema steps, forward only, each in a transaction of its own with the number it leads to.

use rusqlite::{Connection, TransactionBehavior};

use super::error::at;
use crate::store::{StoreError, StoreErrorKind};

/// The steps in order: number, name, SQL. Append-only: a released step never changes.
const STEPS: &[(i64, &str, &str)] =
    &[(1, "telemetry", include_str!("../../../schema/sqlite/0001_telemetry.sql"))];

/// "TIDE": marks a file as ours.
const APPLICATION_ID: i64 = 0x5449_4445;

/// The version a database has when all steps are done.
pub(super) const VERSION: i64 = STEPS[STEPS.len() - 1].0;

/// Brings the database to this binary's version; refuses files that are newer or not ours.
pub(super) fn migrate(conn: &mut Connection) -> Result<(), StoreError> {
    let found = check(conn)?;
    for (number, name, sql) in STEPS.iter().filter(|(number, ..)| *number > found) {
        step(conn, *number, sql).map_err(at("bringing the database up to date"))?;
        tracing::info!(version = number, step = name, "database brought up to date");
    }
    Ok(())
}

fn step(conn: &mut Connection, number: i64, sql: &str) -> rusqlite::Result<()> {
    let tx = conn.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute_batch(sql)?;
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", number)?;
    tx.commit()
}

/// The version found, 0 for an empty file; an error for one that this binary must not touch.
pub(super) fn check(conn: &Connection) -> Result<i64, StoreError> {
    let pragma = |name: &str| -> Result<i64, StoreError> {
        conn.pragma_query_value(None, name, |row| row.get(0)).map_err(at("reading the database's version"))
    };
    let (application, version) = (pragma("application_id")?, pragma("user_version")?);
    let tables: i64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))
        .map_err(at("reading the database's version"))?;
    let refuse = |why: String| Err(StoreError::new(StoreErrorKind::Unusable, why));
    if tables > 0 && application != APPLICATION_ID {
        return refuse("the file is an SQLite database of another program".to_owned());
    }
    if version > VERSION {
        return refuse(format!(
            "the database has version {version}, this binary knows up to {VERSION}: it was written by a newer \
             tidegate"
        ));
    }
    Ok(version)
}
