//! SQLite's errors in the store's terms.

use rusqlite::ErrorCode;
use rusqlite::ffi::{SQLITE_IOERR_DIR_FSYNC, SQLITE_IOERR_FSYNC};

use crate::store::{StoreError, StoreErrorKind};

/// Names what was being done, and sorts the error by what a caller may do about it.
pub(super) fn at(context: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| StoreError::caused(kind(&error), context, error)
}

/// The same for a step that syncs to disk: a failed sync ends the process.
pub(super) fn at_sync(context: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| {
        if is_failed_sync(&error) {
            fail_stop(&error);
        }
        at(context)(error)
    }
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
fn is_failed_sync(error: &rusqlite::Error) -> bool {
    let code = error.sqlite_error().map(|error| error.extended_code);
    matches!(code, Some(SQLITE_IOERR_FSYNC | SQLITE_IOERR_DIR_FSYNC))
}

/// A stored value that no writer of ours wrote.
pub(super) fn inconsistent(what: impl std::fmt::Display) -> StoreError {
    StoreError::new(StoreErrorKind::Inconsistent, format!("the database holds {what}"))
}

/// Ends the process: after a failed sync, or when a transaction can neither be committed nor rolled back, no
/// later answer of this process could be trusted. A supervisor restarts it; the log on disk decides what holds.
pub(super) fn fail_stop(error: &rusqlite::Error) -> ! {
    tracing::error!(%error, "the disk failed: ending the process so that nothing is acknowledged without being stored");
    std::process::abort()
}
