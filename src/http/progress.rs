//! How far a connection's current request is, for the two moments when that decides something: a shutdown
//! (what is cut and what is still answered) and the close of the connection (whether a body is still coming).

use std::sync::atomic::{AtomicU8, Ordering};

/// One connection's progress.
#[derive(Debug, Default)]
pub(super) struct Progress(AtomicU8);

/// No request yet, or one whose body was wholly read.
const QUIET: u8 = 0;
/// A request whose body was not wholly read.
const BODY: u8 = 1;
/// An upload that is or was being committed.
const COMMITTING: u8 = 2;

impl Progress {
    /// A request's header was read.
    pub(super) fn request_began(&self, has_body: bool) {
        self.0.store(if has_body { BODY } else { QUIET }, Ordering::Release);
    }

    /// An upload's body was wholly read.
    pub(super) fn body_read(&self) {
        self.0.store(COMMITTING, Ordering::Release);
    }

    /// Whether the client may still be sending a body that nobody reads.
    pub(super) fn body_left(&self) -> bool {
        self.0.load(Ordering::Acquire) == BODY
    }

    /// Whether an upload waits for its receipt, or for its answer to be sent.
    pub(super) fn committing(&self) -> bool {
        self.0.load(Ordering::Acquire) == COMMITTING
    }
}
