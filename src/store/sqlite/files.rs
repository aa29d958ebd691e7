//! The files of a store: its folder, the database before SQLite opens it, the lock that keeps a second process
//! out, and whether the path still leads to the file that was opened.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::store::{StoreError, StoreErrorKind};

/// Positions and quarantined bodies are not for everybody on the machine. A group may read them, with a SQL
/// shell or for a backup; SQLite gives its other files the database's mode.
const FILE_MODE: u32 = 0o640;
const FOLDER_MODE: u32 = 0o750;

/// Makes the folder and the database file if they are not there, with modes of our own and names that survive
/// a power cut. Files and folders that are there keep their modes.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    let folder = folder_of(path);
    create_folder(folder).map_err(|error| unusable(format!("cannot create {}", folder.display()), error))?;
    let created = open_or_create(path).and_then(|_| sync_folder(folder));
    created.map_err(|error| unusable(format!("cannot create {}", path.display()), error))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn create_folder(folder: &Path) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = folder_of(folder);
    create_folder(above)?;
    match DirBuilder::new().mode(FOLDER_MODE).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => sync_folder(above),
    }
}

/// A new name is on disk once its folder is.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn open_or_create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).truncate(false).write(true).mode(FILE_MODE).open(path)
}

fn unusable(context: String, error: io::Error) -> StoreError {
    StoreError::caused(StoreErrorKind::Unusable, context, error)
}

/// Takes the lock file beside the database; held as long as the handle lives, also through a crash no longer.
pub(super) fn lock(path: &Path) -> Result<File, StoreError> {
    let lock_path = with_suffix(path, ".lock");
    let context = || format!("cannot use the lock file {}", lock_path.display());
    let file = open_or_create(&lock_path).map_err(|error| unusable(context(), error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(StoreError::new(
            StoreErrorKind::Unusable,
            format!("{} is in use by another process (it holds {})", path.display(), lock_path.display()),
        )),
        Err(TryLockError::Error(error)) => Err(unusable(context(), error)),
    }
}

/// Which file a path led to when the database was opened.
#[derive(Debug)]
pub(super) struct Identity {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Identity {
    /// The file that is there now.
    pub(super) fn of(path: &Path) -> Result<Self, StoreError> {
        let found = std::fs::metadata(path).map_err(|error| {
            StoreError::caused(StoreErrorKind::Unusable, format!("cannot look at {}", path.display()), error)
        })?;
        Ok(Self { path: path.to_owned(), device: found.dev(), inode: found.ino() })
    }

    /// Whether it still is. SQLite writes on into a file that was moved away, replaced or deleted: what is
    /// acknowledged then is lost with the process.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let path = self.path.display();
        match std::fs::metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == (self.device, self.inode) => Ok(()),
            Ok(_) => {
                let why = format!("{path} was replaced while the gateway runs; restart it");
                Err(StoreError::new(StoreErrorKind::Io, why))
            }
            Err(error) => {
                Err(StoreError::caused(StoreErrorKind::Io, format!("{path} is no longer there"), error))
            }
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn new_files_are_not_for_everybody_and_old_ones_keep_their_modes() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a/b/tidegate.db");
        create(&path).expect("created");
        assert_eq!(
            (mode(&path), mode(&folder.path().join("a")), mode(&folder.path().join("a/b"))),
            (0o640, 0o750, 0o750)
        );
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("changed");
        create(&path).expect("there already");
        assert_eq!(mode(&path), 0o600);
    }
}
