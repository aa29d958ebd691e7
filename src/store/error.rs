//! What can go wrong in a store, in terms that no backend owns.

use std::error::Error as StdError;

use thiserror::Error;

/// Kinds of failure; what a caller may do about each is the same on every backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreErrorKind {
    /// The disk, or a quota on it, is full.
    Full,
    /// Somebody else held the database for longer than the patience.
    Busy,
    /// The database cannot be reached, or reading or writing failed.
    Io,
    /// The device's quarantine is at its byte cap: this upload was not stored.
    QuarantineFull,
    /// The process was told to stop, or its writer is gone.
    Closed,
    /// A row says what no row can say: a fault of ours, or a damaged file.
    Inconsistent,
    /// The database is of a newer version, is no Tidegate database, or is in use by another process.
    Unusable,
    /// Anything else the database refused.
    Refused,
}

/// A failed store operation.
#[derive(Debug, Error)]
#[error("{context}")]
pub struct StoreError {
    kind: StoreErrorKind,
    context: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl StoreError {
    /// An error with nothing under it.
    pub fn new(kind: StoreErrorKind, context: impl Into<String>) -> Self {
        Self { kind, context: context.into(), source: None }
    }

    /// An error of the driver, with what was being done.
    pub fn caused(
        kind: StoreErrorKind,
        context: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Self { kind, context: context.into(), source: Some(source.into()) }
    }

    /// What kind of failure.
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same request may succeed later without anyone touching the request.
    pub const fn retryable(&self) -> bool {
        match self.kind {
            StoreErrorKind::Full
            | StoreErrorKind::Busy
            | StoreErrorKind::Io
            | StoreErrorKind::QuarantineFull
            | StoreErrorKind::Closed => true,
            StoreErrorKind::Inconsistent | StoreErrorKind::Unusable | StoreErrorKind::Refused => false,
        }
    }

    /// The same failure for another of the callers it concerns (a group shares one commit).
    #[must_use]
    pub fn share(&self) -> Self {
        Self::new(self.kind, self.chain())
    }

    /// The whole chain of causes in one line, for logs; never for clients.
    pub fn chain(&self) -> String {
        let mut text = self.context.clone();
        let mut cause = self.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
