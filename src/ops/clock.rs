//! The clock, passed in wherever time matters, so that tests can move it.

use std::fmt::Debug;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::domain::time::Timestamp;

/// Tells the time of day.
pub trait Clock: Send + Sync + Debug {
    /// Now.
    fn now(&self) -> Timestamp;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the one place that asks the machine for the time")]
        let micros = jiff::Timestamp::now().as_microsecond();
        Timestamp::from_micros(micros).unwrap_or(Timestamp::EPOCH)
    }
}

/// A clock that stands still until told otherwise.
#[derive(Debug)]
pub struct MockClock(AtomicI64);

impl MockClock {
    /// Stands at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.to_micros()))
    }

    /// Moves on, or back with a negative number.
    pub fn advance_seconds(&self, seconds: i64) {
        self.0.fetch_add(seconds * 1_000_000, Ordering::SeqCst);
    }
}

impl Clock for MockClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst)).unwrap_or(Timestamp::EPOCH)
    }
}
