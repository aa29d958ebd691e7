//! The embedded store: SQLite in WAL mode, one connection that writes, a few that read.

mod apply;
mod columns;
mod commit;
mod connection;
mod error;
mod files;
mod law;
mod lift;
mod migrate;
#[cfg(test)]
mod plans;
mod read;
mod snapshot;
mod values;
mod verify;
mod walk;

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use crate::domain::ids::DeviceId;
use crate::domain::receipt::Receipt;
use crate::domain::signature::KeyFingerprint;
use crate::domain::upload::Upload;
use crate::store::{
    Device, DevicePage, Store, StoreError, StoreErrorKind, StoreOptions, TrackPage, TrackQuery, Verification,
};
use commit::WriteConn;
use connection::Readers;
use error::{at, at_sync};

/// An open SQLite store.
#[derive(Debug)]
pub(super) struct SqliteStore {
    /// Before the writer, so that the writer closes last: only it may write the WAL back, and a database that was
    /// closed in good order is one file.
    readers: Readers,
    /// `None`: opened for reading alone.
    writer: Option<Mutex<WriteConn>>,
    /// Pages in the WAL after the last commit.
    wal_pages: Arc<AtomicI32>,
    /// How many of them make a checkpoint.
    checkpoint_pages: i32,
    /// Held, not used: keeps a second process out.
    _lock: Option<File>,
}

impl SqliteStore {
    /// Opens or creates the database, brings it up to date, and locks it against other processes.
    pub(super) fn open(path: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        files::create(path)?;
        let lock = files::lock(path)?;
        let mut conn = connection::open_writer(path, options)?;
        migrate::migrate(&mut conn)?;
        let wal_pages = Arc::new(AtomicI32::new(0));
        let seen = Arc::clone(&wal_pages);
        conn.wal_hook(Some(move |_: &mut rusqlite::hooks::Wal, pages| {
            seen.store(pages, Ordering::Relaxed);
            Ok(())
        }))
        .map_err(at("setting up the database"))?;
        let writer = WriteConn::new(conn, files::Identity::of(path)?, options.policy.clone())?;
        let readers = Readers::new(path, options.busy_timeout, options.readers);
        let checkpoint_pages = i32::try_from(options.checkpoint_pages).unwrap_or(i32::MAX);
        Ok(Self { writer: Some(Mutex::new(writer)), readers, wal_pages, checkpoint_pages, _lock: Some(lock) })
    }

    /// Opens an existing database for reading, also while a gateway writes to it.
    pub(super) fn open_read_only(path: &Path, options: &StoreOptions) -> Result<Self, StoreError> {
        if !path.exists() {
            return Err(StoreError::new(StoreErrorKind::Unusable, format!("there is no {}", path.display())));
        }
        let readers = Readers::new(path, options.busy_timeout, options.readers);
        let version = readers.with(migrate::check)?;
        if version != migrate::VERSION {
            let why = format!("the database has version {version}, this binary needs {}", migrate::VERSION);
            return Err(StoreError::new(StoreErrorKind::Unusable, why));
        }
        Ok(Self { writer: None, readers, wal_pages: Arc::default(), checkpoint_pages: i32::MAX, _lock: None })
    }

    fn with_writer<T>(
        &self,
        write: impl FnOnce(&mut WriteConn) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let writer = self.writer.as_ref().ok_or_else(|| {
            StoreError::new(StoreErrorKind::Unusable, "the database was opened for reading alone")
        })?;
        // A panic while writing ends the process (see `store::writer`); in a test the next caller may go on,
        // since every transaction rolls back what it did not commit.
        write(&mut writer.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Runs in a transaction that is rolled back on any error.
fn in_transaction<T>(
    conn: &Connection,
    context: &'static str,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, StoreError> {
    let run = || {
        let tx = rusqlite::Transaction::new_unchecked(conn, rusqlite::TransactionBehavior::Immediate)?;
        let result = work(&tx)?;
        tx.commit()?;
        Ok(result)
    };
    run().map_err(at_sync(context))
}

impl Store for SqliteStore {
    fn commit_uploads(&self, group: &[Upload]) -> Vec<Result<Receipt, StoreError>> {
        self.with_writer(|writer| Ok(writer.commit_group(group)))
            .unwrap_or_else(|error| group.iter().map(|_| Err(error.share())).collect())
    }

    fn maintain(&self) -> Result<(), StoreError> {
        #[cfg(feature = "fault-early-answer")]
        self.with_writer(|writer| writer.commit_late())?;
        if self.wal_pages.load(Ordering::Relaxed) < self.checkpoint_pages {
            return Ok(());
        }
        self.with_writer(|writer| {
            // PASSIVE never waits: what a reader still needs is left for the next time.
            let checkpoint = writer.conn.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            checkpoint.map_err(at_sync("writing the WAL back"))
        })
    }

    fn check_writable(&self) -> Result<(), StoreError> {
        self.with_writer(|writer| {
            writer.file.check()?;
            in_transaction(&writer.conn, "proving that a commit works", |tx| {
                tx.execute("UPDATE store_meta SET value = (value + 1) % 1000000 WHERE key = 'probe'", [])
                    .map(|_| ())
            })
        })
    }

    fn adopt_fleet_keys(&self, live: &[KeyFingerprint]) -> Result<bool, StoreError> {
        self.with_writer(|writer| {
            in_transaction(&writer.conn, "remembering the fleet keys", |tx| {
                let known: Vec<KeyFingerprint> = tx
                    .prepare("SELECT fingerprint FROM fleet_keys")?
                    .query_map([], |row| row.get(0))?
                    .collect::<Result<_, _>>()?;
                let devices: bool =
                    tx.query_row("SELECT EXISTS (SELECT 1 FROM devices)", [], |row| row.get(0))?;
                if devices && !known.is_empty() && !live.iter().any(|key| known.contains(key)) {
                    return Ok(false);
                }
                for key in live {
                    tx.execute(
                        "INSERT INTO fleet_keys (fingerprint) VALUES (?1) ON CONFLICT DO NOTHING",
                        [key],
                    )?;
                }
                Ok(true)
            })
        })
    }

    fn has_devices(&self) -> Result<bool, StoreError> {
        self.readers.with(|conn| {
            conn.query_row("SELECT EXISTS (SELECT 1 FROM devices)", [], |row| row.get(0))
                .map_err(at("looking for devices"))
        })
    }

    fn lookup_device(&self, id: &DeviceId) -> Result<Option<Device>, StoreError> {
        self.readers.with(|conn| read::lookup_device(conn, id))
    }

    fn list_devices(&self, after: Option<&DeviceId>, limit: usize) -> Result<DevicePage, StoreError> {
        self.readers.with(|conn| read::list_devices(conn, after, limit))
    }

    fn list_track(&self, id: &DeviceId, query: &TrackQuery) -> Result<Option<TrackPage>, StoreError> {
        self.readers.with(|conn| read::list_track(conn, id, query))
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verification, StoreError> {
        self.readers.with(|conn| verify::verify(conn, progress))
    }
}
