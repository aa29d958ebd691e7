//! What happened so far, counted while the fleet sails.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that many tasks raise.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Moves a gauge from what its owner told last.
    pub(super) fn shift(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Steps of the scripts, whatever became of them.
    pub(super) uploads: Counter,
    pub(super) requests_lost: Counter,
    pub(super) answers_lost: Counter,
    pub(super) copies: Counter,
    pub(super) retries: Counter,
    pub(super) held_back: Counter,
    /// Attempts that failed although no script said so.
    pub(super) real_faults: Counter,
    /// Receipts, by their first word.
    pub(super) processed: Counter,
    pub(super) duplicate: Counter,
    pub(super) quarantined: Counter,
    /// An acknowledgement without a receipt to read.
    pub(super) unheard: Counter,
    pub(super) records_made: Counter,
    /// Gauge: parcels and records that wait.
    pub(super) backlog: Counter,
    pub(super) states_read: Counter,
    pub(super) records_read: Counter,
    pub(super) devices_done: Counter,
}

impl Tally {
    pub(super) fn acknowledged(&self) -> u64 {
        self.processed.get() + self.duplicate.get() + self.quarantined.get() + self.unheard.get()
    }

    /// One line for who watches.
    pub(super) fn line(&self, devices: usize) -> String {
        format!(
            "{devices} devices, {} uploads, {} lost, {} acknowledged, {} waiting",
            self.uploads.get(),
            self.requests_lost.get() + self.answers_lost.get(),
            self.acknowledged(),
            self.backlog.get(),
        )
    }

    /// The report, but for the differences.
    pub(super) fn report(&self, devices: usize, contents: u64) -> [String; 4] {
        let get = Counter::get;
        [
            format!(
                "link      {} uploads: {} requests lost, {} answers lost, {} retried, {} copies, {} held back; {} \
                 attempts really failed and were made again",
                get(&self.uploads),
                get(&self.requests_lost),
                get(&self.answers_lost),
                get(&self.retries),
                get(&self.copies),
                get(&self.held_back),
                get(&self.real_faults),
            ),
            format!("records   {} made, {contents} distinct ones delivered", get(&self.records_made)),
            format!(
                "receipts  {}: {} processed, {} duplicate, {} quarantined, {} unheard",
                self.acknowledged(),
                get(&self.processed),
                get(&self.duplicate),
                get(&self.quarantined),
                get(&self.unheard),
            ),
            format!(
                "compared  each receipt, {} states on the way, {devices} states and {} records at the end",
                get(&self.states_read),
                get(&self.records_read),
            ),
        ]
    }
}

/// Differences found, of which the first few are kept.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) listed: Vec<String>,
    pub(super) count: u64,
}

impl Differences {
    /// Counts one; keeps its text while fewer than `room` are kept.
    pub(super) fn add(&mut self, line: String, room: usize) {
        self.count += 1;
        if self.listed.len() < room {
            self.listed.push(line);
        }
    }

    /// The last line of a run.
    pub(super) fn verdict(count: u64, listed: usize) -> String {
        let told = u64::try_from(listed).unwrap_or(u64::MAX);
        match count {
            0 => "no differences".to_owned(),
            1 => "1 difference".to_owned(),
            n if n > told => format!("{n} differences, of which {told} are listed"),
            n => format!("{n} differences"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_counted_and_the_first_ones_kept() {
        let mut differences = Differences::default();
        for n in 0..5 {
            differences.add(n.to_string(), 2);
        }
        assert_eq!((differences.count, differences.listed), (5, vec!["0".to_owned(), "1".to_owned()]));
        let verdict = Differences::verdict;
        assert_eq!(
            [verdict(0, 0), verdict(1, 1), verdict(2, 2)],
            ["no differences", "1 difference", "2 differences"]
        );
        assert_eq!(verdict(5, 2), "5 differences, of which 2 are listed");
    }

    #[test]
    fn a_gauge_follows_its_owners() {
        let gauge = Counter::default();
        gauge.shift(0, 7);
        gauge.shift(0, 5);
        gauge.shift(7, 1);
        assert_eq!(gauge.get(), 6);
    }
}
