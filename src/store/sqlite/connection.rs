//! Opening connections: one that writes, a few that only read, and the lock that keeps a second process out.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::error::at;
use crate::store::{StoreError, StoreErrorKind, StoreOptions};

/// Page cache of a reading connection, KiB: readers look at a few pages at a time.
const READER_CACHE_KIB: u32 = 2048;

/// Takes the lock file beside the database; held as long as the handle lives, also through a crash no longer.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    let lock_path = with_suffix(path, ".lock");
    let context = || format!("cannot use the lock file {}", lock_path.display());
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&lock_path)
        .map_err(|error| StoreError::caused(StoreErrorKind::Unusable, context(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::new(
            StoreErrorKind::Unusable,
            format!("{} is in use by another process (it holds {})", path.display(), lock_path.display()),
        )),
        Err(TryLockError::Error(error)) => {
            Err(StoreError::caused(StoreErrorKind::Unusable, context(), error))
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// Opens the one connection that writes.
pub(super) fn open_writer(path: &Path, options: &StoreOptions) -> Result<Connection, StoreError> {
    let conn = Connection::open(path).map_err(at("opening the database"))?;
    let setup = || -> rusqlite::Result<()> {
        conn.busy_timeout(options.busy_timeout)?;
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
    let conn = Connection::open_with_flags(path, flags).map_err(at("opening the database for reading"))?;
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
