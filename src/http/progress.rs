//! How far a connection is with its current request. Three things hang on it: how long the client may be
//! silent, whether the connection may be closed without harm, and what a shutdown cuts and what it answers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What a connection is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Stage {
    /// Nothing came yet, or nothing behind a TLS handshake.
    Fresh,
    /// A TLS handshake or a request's header is coming.
    Header,
    /// A request is worked on whose body was not wholly read.
    Body,
    /// A request is worked on that has no body, or none that would still come.
    Work,
    /// An upload was wholly read and is being committed.
    Commit,
    /// The answer is made and on its way.
    Answer,
    /// The last answer is out, and nothing of a next request came yet.
    Idle,
}

const STAGES: [Stage; 7] =
    [Stage::Fresh, Stage::Header, Stage::Body, Stage::Work, Stage::Commit, Stage::Answer, Stage::Idle];
/// How far the count of steps is shifted to make room for a stage.
const STAGE_BITS: u32 = 3;

/// One connection's progress. Only the connection's own task changes it.
#[derive(Debug)]
pub(super) struct Progress {
    /// The stage, and above it how many steps led there: the same stage again is another step.
    step: AtomicU64,
    /// What the last request was at when its answer was made.
    last: AtomicU64,
    requests: AtomicU32,
}

/// A stage as it was reached: equal only to itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step(u64);

impl Step {
    pub(super) fn stage(self) -> Stage {
        let low = usize::try_from(self.0 % (1 << STAGE_BITS)).unwrap_or_default();
        // Only stages are ever put there.
        STAGES.get(low).copied().unwrap_or(Stage::Fresh)
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            step: AtomicU64::new(Stage::Fresh as u64),
            last: AtomicU64::new(Stage::Fresh as u64),
            requests: AtomicU32::new(0),
        }
    }
}

impl Progress {
    pub(super) fn step(&self) -> Step {
        Step(self.step.load(Ordering::Acquire))
    }

    fn stage(&self) -> Stage {
        self.step().stage()
    }

    fn enter(&self, stage: Stage) {
        let steps = (self.step.load(Ordering::Acquire) >> STAGE_BITS).wrapping_add(1);
        self.step.store(steps << STAGE_BITS | stage as u64, Ordering::Release);
    }

    /// The TLS handshake is done.
    pub(super) fn handshake_done(&self) {
        self.enter(Stage::Fresh);
    }

    /// The connection is about to read. After an answer that means that the answer is out: nothing is read
    /// while one is written.
    pub(super) fn reading(&self) {
        if self.stage() == Stage::Answer {
            self.enter(Stage::Idle);
        }
    }

    /// Bytes came.
    pub(super) fn bytes_came(&self) {
        if matches!(self.stage(), Stage::Fresh | Stage::Idle) {
            self.enter(Stage::Header);
        }
    }

    /// A request's header was read. Tells how many requests that makes.
    pub(super) fn request_began(&self, has_body: bool) -> u32 {
        self.enter(if has_body { Stage::Body } else { Stage::Work });
        self.requests.fetch_add(1, Ordering::AcqRel).saturating_add(1)
    }

    /// An upload's body was wholly read.
    pub(super) fn body_read(&self) {
        self.enter(Stage::Commit);
    }

    /// The request's answer is made.
    pub(super) fn answered(&self) {
        self.last.store(self.stage() as u64, Ordering::Release);
        self.enter(Stage::Answer);
    }

    /// Whether the connection waits for a request, or for the rest of its header or of a handshake: where all places
    /// are taken it can be closed, since whoever really meant to send something tries again.
    pub(super) fn may_make_room(&self) -> bool {
        matches!(self.stage(), Stage::Fresh | Stage::Idle | Stage::Header)
    }

    /// Whether the client may still be sending a body that nobody reads.
    pub(super) fn body_left(&self) -> bool {
        self.request_is_at(Stage::Body)
    }

    /// Whether an upload waits for its receipt, or for its answer to be sent.
    pub(super) fn committing(&self) -> bool {
        self.request_is_at(Stage::Commit)
    }

    /// Whether the current request is at this stage, or the last one was and no other has begun. Bytes behind a
    /// refused header look like another header, and are the body nobody reads.
    fn request_is_at(&self, stage: Stage) -> bool {
        let now = self.stage();
        let between = matches!(now, Stage::Answer | Stage::Idle | Stage::Header);
        now == stage || between && self.last.load(Ordering::Acquire) == stage as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_requests_through_their_stages() {
        let progress = Progress::default();
        assert!(progress.may_make_room());
        progress.bytes_came();
        assert!(progress.may_make_room(), "a handshake that never ends must not keep a place");
        progress.handshake_done();
        assert!(progress.may_make_room());
        progress.bytes_came();
        assert_eq!((progress.stage(), progress.may_make_room()), (Stage::Header, true));
        assert_eq!(progress.request_began(true), 1);
        progress.bytes_came();
        assert_eq!((progress.stage(), progress.body_left()), (Stage::Body, true));
        progress.body_read();
        assert!(progress.committing() && !progress.body_left());
        progress.answered();
        assert!(progress.committing() && !progress.may_make_room(), "the answer is not out");
        progress.reading();
        let idle = progress.step();
        assert!(progress.may_make_room() && idle.stage() == Stage::Idle);

        assert_eq!(progress.request_began(false), 2);
        assert!(!progress.committing() && !progress.body_left() && !progress.may_make_room());
        progress.answered();
        progress.reading();
        assert!(progress.step() != idle, "idle again is another step");
        assert_eq!(progress.request_began(true), 3);
        progress.answered();
        progress.reading();
        progress.bytes_came();
        assert!(progress.body_left(), "refused before its body was read, which comes now");
    }
}
