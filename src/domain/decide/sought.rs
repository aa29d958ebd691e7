//! What a store has to look for: the keys and contents of an upload's records.

use std::collections::HashSet;

use super::versions::Content;
use crate::domain::batch::Batch;
use crate::domain::ids::Seq;
use crate::domain::record::Record;

/// The records of a batch, for comparing stored ones with them one by one.
#[derive(Debug)]
pub struct Sought<'a> {
    /// Sorted.
    seqs: Vec<Seq>,
    contents: HashSet<Content<'a>>,
}

impl<'a> Sought<'a> {
    /// All records of a batch.
    pub fn of(batch: &'a Batch) -> Self {
        let mut seqs: Vec<Seq> = batch.records.iter().map(|record| record.seq).collect();
        seqs.sort_unstable();
        Self { seqs, contents: batch.records.iter().map(Content).collect() }
    }

    /// Their seqs in rising order, each as often as it was sent.
    pub fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.seqs.iter().copied()
    }

    /// Whether one of them has this seq.
    pub fn has(&self, seq: Seq) -> bool {
        self.seqs.binary_search(&seq).is_ok()
    }

    /// Whether one of them says exactly this.
    pub fn holds(&self, record: &Record) -> bool {
        self.contents.contains(&Content(record))
    }
}
