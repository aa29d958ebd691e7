//! A walk through a device's history, one bounded read at a time.

use crate::domain::ids::{DeviceId, EpochId, Key, Seq};
use crate::store::{Entry, Store, StoreError, TimeRange, TrackQuery};

/// What of a history is wanted, and how far it has been read.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    device_id: DeviceId,
    /// Where the next read starts; `None` at the end.
    at: Option<Key>,
    epoch_last: EpochId,
    /// The seqs wanted of every epoch.
    seqs: (Seq, Seq),
    recorded: TimeRange,
    received: TimeRange,
}

/// The range as asked for; what is left out is open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Range {
    pub(super) epoch_id: Option<EpochId>,
    pub(super) from_seq: Option<Seq>,
    pub(super) to_seq: Option<Seq>,
    pub(super) recorded: TimeRange,
    pub(super) received: TimeRange,
    pub(super) after: Option<Key>,
}

impl Walk {
    /// Starts at the range's beginning, or at `after`.
    pub(super) fn new(device_id: DeviceId, range: &Range) -> Self {
        let seqs = (range.from_seq.unwrap_or(Seq::ZERO), range.to_seq.unwrap_or(Seq::MAX));
        let epoch_last = range.epoch_id.unwrap_or(EpochId::MAX);
        let first = Key { epoch_id: range.epoch_id.unwrap_or(EpochId::ZERO), seq: seqs.0 };
        let at = range.after.map_or(first, |after| after.max(first));
        Self { device_id, at: Some(at), epoch_last, seqs, recorded: range.recorded, received: range.received }
    }

    /// Where the next read starts; `None` at the end.
    pub(super) fn at(&self) -> Option<Key> {
        self.at
    }

    /// Reads on: at most `limit` entries, which may be none before the end. `None`: an unknown device.
    pub(super) fn step(&mut self, store: &dyn Store, limit: usize) -> Result<Option<Vec<Entry>>, StoreError> {
        let Some(at) = self.at else {
            return Ok(Some(Vec::new()));
        };
        let every_seq = self.seqs == (Seq::ZERO, Seq::MAX);
        // With bounds on seq each epoch is a range of its own; without, the whole is one.
        let epoch_id = if every_seq { self.epoch_last } else { at.epoch_id.min(self.epoch_last) };
        let to = Key { epoch_id, seq: self.seqs.1 };
        // Behind the end, which only a cursor of another query can be, still tells known devices from unknown.
        let (recorded, received) = (self.recorded, self.received);
        let from = Key { seq: at.seq.max(self.seqs.0), ..at }.min(to);
        let query = TrackQuery { from, to, recorded, received, limit };
        let Some(page) = store.list_track(&self.device_id, &query)? else {
            return Ok(None);
        };
        self.at = match page.next {
            Some(next) => Some(next),
            None if every_seq => None,
            None => self.next_epoch(store, epoch_id)?,
        };
        if at > to { Ok(Some(Vec::new())) } else { Ok(Some(page.entries)) }
    }

    /// The first wanted key of the next epoch that has entries.
    fn next_epoch(&self, store: &dyn Store, epoch_id: EpochId) -> Result<Option<Key>, StoreError> {
        let to = Key { epoch_id: self.epoch_last, seq: Seq::MAX };
        let mut from = EpochId::new(epoch_id.get() + 1).map(|epoch_id| Key { epoch_id, seq: Seq::ZERO });
        while let Some(start) = from.filter(|start| *start <= to) {
            let (recorded, received) = (TimeRange::default(), TimeRange::default());
            let query = TrackQuery { from: start, to, recorded, received, limit: 1 };
            let Some(page) = store.list_track(&self.device_id, &query)? else {
                return Ok(None);
            };
            if let Some(entry) = page.entries.first() {
                return Ok(Some(Key { epoch_id: entry.epoch_id, seq: self.seqs.0 }));
            }
            from = page.next;
        }
        Ok(None)
    }
}
