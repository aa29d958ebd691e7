//! A store to test on.

use std::sync::Arc;

use tempfile::TempDir;
use tidegate::domain::receipt::Receipt;
use tidegate::domain::upload::Upload;
use tidegate::store::{self, Store, StoreError, StoreOptions, StoreUrl};

/// A store of its own for one test, opened on demand.
pub(crate) struct Bed {
    _folder: TempDir,
    pub(crate) url: StoreUrl,
    pub(crate) options: StoreOptions,
    /// Close and open it again before every use.
    reopen: bool,
    open: Option<Arc<dyn Store>>,
}

impl Bed {
    /// SQLite in a temporary folder.
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let url = StoreUrl::Sqlite(folder.path().join("tidegate.db"));
        Self { _folder: folder, url, options: StoreOptions::default(), reopen: false, open: None }
    }

    /// The same, closed and opened again before every use: nothing may live in memory alone.
    pub(crate) fn sqlite_reopened() -> Self {
        Self { reopen: true, ..Self::sqlite() }
    }

    /// The store.
    pub(crate) fn store(&mut self) -> Arc<dyn Store> {
        if self.reopen {
            self.open = None;
        }
        let open = || store::open::open(&self.url, &self.options).expect("the store opens");
        Arc::clone(self.open.get_or_insert_with(open))
    }

    /// Closes it, so that its file can be changed by other means.
    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    /// The database's file.
    pub(crate) fn path(&self) -> &std::path::Path {
        let StoreUrl::Sqlite(path) = &self.url;
        path
    }

    /// Commits one upload.
    pub(crate) fn commit(&mut self, upload: Upload) -> Result<Receipt, StoreError> {
        self.commit_group(&[upload]).pop().expect("one result an upload")
    }

    /// Commits a group and checks the law and the books behind it.
    pub(crate) fn commit_group(&mut self, group: &[Upload]) -> Vec<Result<Receipt, StoreError>> {
        let results = self.store().commit_uploads(group);
        assert_eq!(results.len(), group.len(), "one result an upload");
        self.verify();
        results
    }

    /// The law and the books hold.
    pub(crate) fn verify(&mut self) {
        let found = self.store().verify(&mut |_, _| {}).expect("verify runs");
        assert_eq!(found.differences, Vec::<String>::new());
    }
}
