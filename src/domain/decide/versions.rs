//! The versions of one key: what is stored under it, and what the batch adds.
//!
//! A batch may bring thousands of contents for one key, and the log may hold as many. Each is looked up by
//! hash, so that judging takes time linear in them: it runs in the writer, where everybody else waits.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

use super::StoredEntry;
use crate::domain::reason::Mark;
use crate::domain::record::Record;

/// Up to so many versions are compared one by one: hashing them would cost more.
const COMPARED_MAX: usize = 8;

/// A record by what it says: equal contents are exact repeats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Content<'a>(pub(super) &'a Record);

// Numbers of a decoded record are finite, so that equality is total.
impl Eq for Content<'_> {}

impl Hash for Content<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Every field: one left out would let contents that differ only in it fall into one bucket.
        let Record { seq, recorded_at, fix, battery, extra, raw } = self.0;
        // Adding 0.0 turns −0.0, which equals 0.0, into 0.0.
        let bits = |x: f64| (x + 0.0).to_bits();
        (seq, recorded_at, extra, raw).hash(state);
        (fix.map(|fix| (bits(fix.lat), bits(fix.lon))), battery.map(bits)).hash(state);
    }
}

/// One stored or new version.
#[derive(Clone, Copy, Debug)]
pub(super) struct Version<'a> {
    record: &'a Record,
    /// Why it does not count, if it does not.
    pub(super) mark: Option<Mark>,
    /// Its row, if it is stored.
    pub(super) row: Option<i64>,
}

/// All versions of one key, each content once.
#[derive(Debug)]
pub(super) struct Versions<'a> {
    all: Vec<Version<'a>>,
    /// How many carry no mark.
    counting: usize,
    /// Where each content stands in `all`; `None` while they are few.
    places: Option<HashMap<Content<'a>, usize>>,
}

impl<'a> Versions<'a> {
    /// Starts with the stored ones; at most `more` will be added.
    pub(super) fn of(stored: &'a [StoredEntry], more: usize) -> Self {
        let many = stored.len().saturating_add(more) > COMPARED_MAX;
        let mut versions =
            Self { all: Vec::with_capacity(stored.len()), counting: 0, places: many.then(HashMap::new) };
        for entry in stored {
            versions.add(Version { record: &entry.record, mark: entry.mark, row: Some(entry.row) });
        }
        versions
    }

    /// How many carry no mark.
    pub(super) fn counting(&self) -> usize {
        self.counting
    }

    /// The version that a record repeats.
    pub(super) fn find(&self, record: &Record) -> Option<&Version<'a>> {
        self.place(record).and_then(|place| self.all.get(place))
    }

    /// Adds a new version.
    pub(super) fn push(&mut self, record: &'a Record, mark: Option<Mark>) {
        self.add(Version { record, mark, row: None });
    }

    /// Takes the mark of the version that a record repeats.
    pub(super) fn lift(&mut self, record: &Record) {
        let version = self.place(record).and_then(|place| self.all.get_mut(place));
        if version.is_some_and(|version| version.mark.take().is_some()) {
            self.counting += 1;
        }
    }

    fn place(&self, record: &Record) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(&Content(record)).copied(),
            None => self.all.iter().position(|version| version.record == record),
        }
    }

    fn add(&mut self, version: Version<'a>) {
        if let Some(places) = &mut self.places {
            places.entry(Content(version.record)).or_insert(self.all.len());
        }
        self.counting += usize::from(version.mark.is_none());
        self.all.push(version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Seq;
    use crate::domain::record::Fix;

    fn record(content: u32) -> Record {
        let x = f64::from(content);
        Record {
            seq: Seq::ZERO,
            recorded_at: None,
            fix: content.is_multiple_of(2).then_some(Fix { lat: 0.0, lon: x / 1e6 }),
            battery: Some(x),
            extra: None,
            raw: None,
        }
    }

    fn stored(content: u32) -> StoredEntry {
        let mark = content.is_multiple_of(3).then_some(Mark::Held);
        StoredEntry { row: i64::from(content), record: record(content), mark }
    }

    #[test]
    fn few_and_many_are_found_alike() {
        let entries: Vec<_> = (0..6).map(stored).collect();
        let new = record(7);
        for more in [1, 100] {
            let mut versions = Versions::of(&entries, more);
            assert_eq!(versions.places.is_some(), more > 1);
            assert_eq!(versions.counting(), 4);
            versions.push(&new, None);
            let rows = |content| versions.find(&record(content)).map(|version| version.row);
            assert_eq!([rows(3), rows(7), rows(6)], [Some(Some(3)), Some(None), None]);
            versions.lift(&record(3));
            versions.lift(&record(3));
            assert_eq!(versions.counting(), 6, "four, the new one, the lifted one once");
        }
    }

    #[test]
    fn equal_contents_have_one_hash() {
        let zero = |lat| Record { fix: Some(Fix { lat, lon: 0.0 }), ..record(1) };
        let (plus, minus) = (zero(0.0), zero(-0.0));
        assert_eq!(plus, minus);
        let places: HashMap<_, _> = [(Content(&plus), 1)].into();
        assert_eq!(places.get(&Content(&minus)), Some(&1));
    }

    /// Compared one by one this would take 2 · 10¹⁰ comparisons.
    #[test]
    fn contents_of_one_key_are_judged_in_linear_time() {
        let records: Vec<_> = (0..200_000).map(record).collect();
        let mut versions = Versions::of(&[], records.len());
        for record in &records {
            assert!(versions.find(record).is_none());
            versions.push(record, None);
        }
        assert_eq!(versions.counting(), records.len());
        assert!(records.iter().all(|record| versions.find(record).is_some()));
    }
}
