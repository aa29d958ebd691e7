//! Opening connections: one that writes, and a few that only read.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::at;
use super::migrate;
use crate::store::{StoreError, StoreOptions};

/// Page cache of a reading connection, KiB: readers look at a few pages at a time.
const READER_CACHE_KIB: u32 = 2048;

/// A path as SQLite takes it for nothing but a file: it reads `file:…?mode=memory` as a URI and `:memory:` as
/// no file at all, both of which would forget what was acknowledged.
fn file_name(path: &Path) -> PathBuf {
    if path.is_relative() { Path::new(".").join(path) } else { path.to_owned() }
}

/// Opens the one connection that writes.
pub(super) fn open_writer(path: &Path, options: &StoreOptions) -> Result<Connection, StoreError> {
    let conn = Connection::open(file_name(path)).map_err(at("opening the database"))?;
    conn.busy_timeout(options.busy_timeout).map_err(at("setting up the database"))?;
    // Before anything is set: the journal mode would stay in a file that is not ours to touch.
    migrate::check(&conn)?;
    let setup = || -> rusqlite::Result<()> {
        keep_plans(&conn)?;
        conn.pragma_update(None, "journal_mode", "WAL")?;
        // FULL: a commit is on disk before anyone is told, also through a power cut.
        conn.pragma_update(None, "synchronous", "FULL")?;
        // Checkpoints run between groups, after the answers are out (`maintain`), and their errors are seen.
        conn.pragma_update(None, "wal_autocheckpoint", 0)?;
        conn.pragma_update(None, "journal_size_limit", 64 << 20)?;
        conn.pragma_update(None, "cache_size", -i64::try_from(options.cache_bytes / 1024).unwrap_or(16_384))?;
        // Savepoints and sorts must not need a second file on a full disk.
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        conn.pragma_update(None, "trusted_schema", false)?;
        conn.set_prepared_statement_cache_capacity(64);
        Ok(())
    };
    setup().map_err(at("setting up the database"))?;
    Ok(conn)
}

/// Opens a connection that cannot write.
pub(super) fn open_reader(path: &Path, busy_timeout: Duration) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let conn = Connection::open_with_flags(file_name(path), flags)
        .map_err(at("opening the database for reading"))?;
    let setup = || -> rusqlite::Result<()> {
        conn.busy_timeout(busy_timeout)?;
        keep_plans(&conn)?;
        conn.pragma_update(None, "query_only", true)?;
        conn.pragma_update(None, "cache_size", -i64::from(READER_CACHE_KIB))?;
        conn.pragma_update(None, "temp_store", "MEMORY")?;
        conn.pragma_update(None, "trusted_schema", false)?;
        conn.set_prepared_statement_cache_capacity(32);
        Ok(())
    };
    setup().map_err(at("setting up a reader"))?;
    Ok(conn)
}

/// Plans a statement once, whatever is bound to it. Without this SQLite, built with `SQLITE_ENABLE_STAT4` as it is
/// here, prepares some statements anew for each new value, to look it up in statistics that no database of ours
/// has: that was a third of the writer's time.
fn keep_plans(conn: &Connection) -> rusqlite::Result<()> {
    conn.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true).map(|_| ())
}

/// A fixed number of reading connections, lent one at a time.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    busy_timeout: Duration,
    idle: Mutex<Vec<Option<Connection>>>,
    returned: Condvar,
}

impl Readers {
    /// Room for `count` connections, each opened when first needed.
    pub(super) fn new(path: &Path, busy_timeout: Duration, count: usize) -> Self {
        let idle = Mutex::new((0..count.max(1)).map(|_| None).collect());
        Self { path: path.to_owned(), busy_timeout, idle, returned: Condvar::new() }
    }

    /// Runs `read` on a connection of its own, waiting for a free one.
    pub(super) fn with<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut lent = Lent { readers: self, conn: self.take() };
        let conn = match lent.conn.take() {
            Some(conn) => conn,
            None => open_reader(&self.path, self.busy_timeout)?,
        };
        let result = read(&conn);
        // A connection on which reading failed is not lent again.
        lent.conn = result.is_ok().then_some(conn);
        result
    }

    fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(slot) = idle.pop() {
                return slot;
            }
            idle = self.returned.wait(idle).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Gives the place back, with its connection if that is still good, whatever happened meanwhile.
struct Lent<'a> {
    readers: &'a Readers,
    conn: Option<Connection>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut idle = self.readers.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.push(self.conn.take());
        self.readers.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_path_and_no_uri() {
        let path = Path::new("file:no-such-folder/tidegate.db?mode=memory");
        assert!(open_writer(path, &StoreOptions::default()).is_err(), "opened in memory");
        assert!(open_reader(path, Duration::ZERO).is_err(), "opened in memory");
    }

    #[test]
    fn a_refused_database_stays_as_it_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("other.db");
        Connection::open(&path)
            .and_then(|conn| conn.execute_batch("CREATE TABLE t (x)"))
            .expect("a database");
        let before = std::fs::read(&path).expect("the file");
        assert!(open_writer(&path, &StoreOptions::default()).is_err());
        assert!(std::fs::read(&path).expect("the file") == before, "changed");
    }
}
