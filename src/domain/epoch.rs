//! Epochs and the guard that keeps a late batch of an old counter from looking like the newest of a new one.

use super::ids::{EpochId, Seq};
use super::time::Timestamp;

/// How far beyond the new counter an implicit record may jump, unless ops say otherwise.
pub const GUARD_WINDOW: u64 = 1000;

/// Raised with an epoch that was opened above another one; judges implicit records of that epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Allowed jump as asked for; the effective one may be narrower, see [`Guard::reach`].
    pub window: u64,
    /// Where the new counter starts.
    pub next_seq: Seq,
    /// When the epoch was opened.
    pub raised_at: Timestamp,
}

impl Guard {
    /// The guard of an epoch that a device opened by itself.
    pub const fn by_device(raised_at: Timestamp) -> Self {
        Self { window: GUARD_WINDOW, next_seq: Seq::ZERO, raised_at }
    }

    /// `here` of the contract: where the new counter is known to be.
    pub fn here(&self, max_counting: Option<Seq>) -> Seq {
        max_counting.map_or(self.next_seq, |seq| seq.max(self.next_seq))
    }

    /// The greatest implicit seq that counts while the new counter is at `here`. The window is at most half
    /// of the way from `next_seq` to `old`: beyond that a seq is nearer to the old counter than to the new.
    pub fn reach(&self, here: Seq, old: Seq) -> u64 {
        let half = old.get().checked_sub(self.next_seq.get()).filter(|d| *d > 0).map(|d| d / 2);
        let window = half.map_or(self.window, |half| self.window.min(half));
        here.get().saturating_add(window)
    }

    /// Whether the guard still stands: not while nothing older could be mistaken (`old` is `None`), not after
    /// `here` passed `old`, not after its days.
    pub fn stands(&self, here: Seq, old: Option<Seq>, now: Timestamp, guard_days: u32) -> bool {
        let ends = self.raised_at.plus_seconds(i64::from(guard_days) * 86_400);
        old.is_some_and(|old| here <= old) && now < ends
    }
}

/// What the store knows of one epoch of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochFacts {
    /// Which epoch.
    pub epoch_id: EpochId,
    /// Whether the store has a row of it.
    pub known: bool,
    /// Whether ops voided it whole.
    pub voided: bool,
    /// Greatest seq logged in it, marked or not.
    pub max_logged: Option<Seq>,
    /// Greatest seq of a counting entry.
    pub max_counting: Option<Seq>,
    /// Its guard, if one was raised and has not fallen.
    pub guard: Option<Guard>,
}

impl EpochFacts {
    /// An epoch nobody has seen yet.
    pub const fn unseen(epoch_id: EpochId) -> Self {
        Self { epoch_id, known: false, voided: false, max_logged: None, max_counting: None, guard: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seq(n: u64) -> Seq {
        Seq::new(n).expect("in range")
    }

    fn guard(window: u64, next_seq: u64) -> Guard {
        Guard { window, next_seq: seq(next_seq), raised_at: Timestamp::from_seconds(0).expect("in range") }
    }

    #[test]
    fn the_window_is_at_most_half_way_to_the_old_counter() {
        assert_eq!(guard(1000, 0).reach(seq(0), seq(10_420)), 1000);
        assert_eq!(guard(1000, 0).reach(seq(0), seq(900)), 450);
        assert_eq!(guard(1000, 0).reach(seq(7), seq(1)), 7, "old = 1 leaves no room at all");
        assert_eq!(
            guard(1000, 0).reach(seq(7), seq(0)),
            1007,
            "next_seq is not below old: the window as asked"
        );
        assert_eq!(guard(1000, 500).reach(seq(500), seq(400)), 1500);
        assert_eq!(guard(u64::MAX, 0).reach(seq(7), seq(0)), u64::MAX, "saturates");
    }

    #[test]
    fn here_is_the_counter_or_where_it_was_said_to_start() {
        assert_eq!(guard(1, 50).here(None), seq(50));
        assert_eq!(guard(1, 50).here(Some(seq(20))), seq(50));
        assert_eq!(guard(1, 50).here(Some(seq(60))), seq(60));
    }

    #[test]
    fn it_falls_past_old_or_after_its_days() {
        let at = |s| Timestamp::from_seconds(s).expect("in range");
        let guard = guard(1000, 0);
        assert!(guard.stands(seq(10), Some(seq(10)), at(0), 7), "equal is not past");
        assert!(!guard.stands(seq(11), Some(seq(10)), at(0), 7));
        assert!(guard.stands(seq(0), Some(seq(10)), at(7 * 86_400 - 1), 7));
        assert!(!guard.stands(seq(0), Some(seq(10)), at(7 * 86_400), 7));
        assert!(!guard.stands(seq(0), None, at(0), 7), "nothing older to be mistaken for");
    }
}
