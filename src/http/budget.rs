//! Two counts that every upload is part of: bytes in memory, and uploads between body and receipt.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// Bytes that uploads hold in memory, bounded for all of them together.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    max: usize,
}

impl Budget {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    /// Bytes held now.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Starts an account of nothing.
    pub(super) fn open(self: &Arc<Self>) -> Held {
        Held { budget: Arc::clone(self), bytes: 0 }
    }
}

/// The bytes of one upload: of its body while that is read, then what the body decodes to as well. Given back
/// when dropped.
#[derive(Debug)]
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Held {
    /// Takes more bytes; `false`, and nothing taken, where they would pass the bound.
    pub(super) fn take(&mut self, bytes: usize) -> bool {
        let before = self.budget.used.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > self.budget.max {
            self.budget.used.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }

    /// Takes what is lacking to `bytes` in all; `false`, and nothing taken, where that would pass the bound.
    /// What passes it alone takes all there is: it goes through by itself instead of never.
    pub(super) fn raise_to(&mut self, bytes: usize) -> bool {
        self.take(bytes.min(self.budget.max).saturating_sub(self.bytes))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Uploads whose body was wholly read and that have no receipt yet. A shutdown waits for them, also for those
/// whose client has left.
#[derive(Debug, Default)]
pub(super) struct Underway(Arc<Count>);

#[derive(Debug, Default)]
struct Count {
    uploads: AtomicUsize,
    none_left: Notify,
}

impl Underway {
    /// Counts one until the guard is dropped.
    pub(super) fn begin(&self) -> UnderwayGuard {
        self.0.uploads.fetch_add(1, Ordering::AcqRel);
        UnderwayGuard(Arc::clone(&self.0))
    }

    /// Returns when there is none.
    pub(super) async fn ended(&self) {
        loop {
            let mut none_left = pin!(self.0.none_left.notified());
            // Listening starts before looking: a count that falls in between is not missed.
            none_left.as_mut().enable();
            if self.0.uploads.load(Ordering::Acquire) == 0 {
                return;
            }
            none_left.await;
        }
    }
}

/// See [`Underway::begin`].
#[derive(Debug)]
pub(super) struct UnderwayGuard(Arc<Count>);

impl Drop for UnderwayGuard {
    fn drop(&mut self) {
        if self.0.uploads.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_left.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_never_passed_and_comes_back() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (budget.open(), budget.open());
        assert!(one.take(6) && other.take(4));
        assert!(!other.take(1));
        assert_eq!(budget.used(), 10);
        drop(one);
        assert!(other.take(6));
        assert!(!other.take(usize::MAX), "no overflow");
        drop(other);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn an_account_is_raised_to_what_the_upload_weighs() {
        let budget = Budget::new(10);
        let mut one = budget.open();
        assert!(one.take(2) && one.raise_to(6) && one.raise_to(3));
        assert_eq!(budget.used(), 6);
        let mut other = budget.open();
        assert!(!other.raise_to(5));
        assert!(!other.raise_to(100), "not while somebody else holds a part");
        assert_eq!(budget.used(), 6);
        drop(one);
        assert!(other.raise_to(100), "alone it may have all");
        assert_eq!(budget.used(), 10);
    }

    #[tokio::test]
    async fn waits_for_the_last_one() {
        let underway = Underway::default();
        underway.ended().await;
        let (one, other) = (underway.begin(), underway.begin());
        let mut waiting = pin!(underway.ended());
        drop(one);
        assert!(
            std::future::poll_fn(|cx| std::task::Poll::Ready(waiting.as_mut().poll(cx).is_pending())).await
        );
        drop(other);
        waiting.await;
    }
}
