//! Opening a store: the one place that names the backends.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use super::sqlite::SqliteStore;
use super::{Store, StoreError, StoreOptions};

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite:PATH`; its folder is the data directory.
    Sqlite(PathBuf),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
        }
    }
}

/// Opens a store, creates it if it is not there, and brings it up to date.
pub fn open(url: &StoreUrl, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    match url {
        StoreUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open(path, options)?)),
    }
}

/// Opens an existing store for reading alone, also while a gateway writes to it.
pub fn open_read_only(url: &StoreUrl, options: &StoreOptions) -> Result<Arc<dyn Store>, StoreError> {
    match url {
        StoreUrl::Sqlite(path) => Ok(Arc::new(SqliteStore::open_read_only(path, options)?)),
    }
}
