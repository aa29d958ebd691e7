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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Everything in a database, as its own words.
    fn whole_schema(conn: &Connection) -> String {
        let sql = "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type = 'view', rowid";
        let mut statement = conn.prepare(sql).expect("a statement");
        let parts = statement.query_map([], |row| row.get::<_, String>(0)).expect("rows");
        let parts: Vec<String> = parts.map(|part| part.expect("text") + ";\n").collect();
        format!(
            "-- Generated: the whole schema that the steps in schema/sqlite/ lead to.\n\n{}",
            parts.join("\n")
        )
    }

    fn migrated() -> Connection {
        let mut conn = Connection::open_in_memory().expect("a database");
        migrate(&mut conn).expect("migrated");
        conn
    }

    #[test]
    fn generated_sqlite_schema_is_current() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/sqlite.sql");
        let schema = whole_schema(&migrated());
        #[expect(clippy::disallowed_methods, reason = "a test asks whether to rewrite its golden file")]
        if std::env::var("UPDATE_SCHEMA").is_ok() {
            std::fs::write(&path, &schema).expect("written");
        }
        let golden = std::fs::read_to_string(&path).expect("the golden file");
        assert!(golden == schema, "schema/sqlite.sql is old: run `make schema`");
    }

    #[test]
    fn steps_are_numbered_without_holes_and_run_once() {
        let numbers: Vec<i64> = STEPS.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, (1..=VERSION).collect::<Vec<_>>());
        let mut conn = migrated();
        migrate(&mut conn).expect("nothing to do");
        assert_eq!(check(&conn).expect("ours"), VERSION);
    }

    #[test]
    fn a_newer_database_and_one_of_another_program_are_refused() {
        let newer = migrated();
        newer.pragma_update(None, "user_version", VERSION + 1).expect("set");
        let error = check(&newer).expect_err("newer");
        assert!(error.chain().contains("newer tidegate"), "{}", error.chain());
        let other = Connection::open_in_memory().expect("a database");
        other.execute_batch("CREATE TABLE t (x)").expect("a table");
        let error = check(&other).expect_err("another program's");
        assert!(error.chain().contains("another program"), "{}", error.chain());
    }

    /// Every step file in the folder is a step, under the name it has here.
    #[test]
    fn every_step_has_its_file() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schema/sqlite");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .expect("the folder")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        files.sort();
        let expected: Vec<String> =
            STEPS.iter().map(|(number, name, _)| format!("{number:04}_{name}.sql")).collect();
        assert_eq!(files, expected);
    }
}
