//! SQLite's errors in the store's terms.

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};

use crate::store::{StoreError, StoreErrorKind};

/// Names what was being done, and sorts the error by what a caller may do about it.
pub(super) fn at(context: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::caused(kind(&error), context, error)
}

fn kind(error: &rusqlite::Error) -> StoreErrorKind {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreErrorKind::Full,
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreErrorKind::Busy,
        Some(
            ErrorCode::SystemIoFailure
            | ErrorCode::CannotOpen
            | ErrorCode::ReadOnly
            | ErrorCode::PermissionDenied
            | ErrorCode::FileLockingProtocolFailed
            | ErrorCode::OutOfMemory,
        ) => StoreErrorKind::Io,
        Some(ErrorCode::DatabaseCorrupt) => StoreErrorKind::Inconsistent,
        Some(ErrorCode::NotADatabase) => StoreErrorKind::Unusable,
        _ => StoreErrorKind::Refused,
    }
}

/// Whether a sync to disk failed. What the kernel then still holds, and what it dropped, nobody can tell: a later
/// commit on the same handle proves nothing, and the process must end.
pub(super) fn is_failed_sync(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

/// A stored value that no writer of ours wrote.
pub(super) fn inconsistent(what: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Inconsistent, format!("the database holds {what}"))
}
