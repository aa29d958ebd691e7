//! What a tracker does when nothing waits to be sent.

use std::sync::Arc;

use super::{Encodings, HELD_BACK_MAX, Role, Script, Sending};
use crate::domain::ids::{BatchId, EpochId, Key, Seq};
use crate::domain::record::Record;
use crate::domain::time::Timestamp;
use crate::fleet::encoding::Encoding;
use crate::fleet::parcel::Parcel;
use crate::fleet::reading::{Reading, Style, Trouble, contradict, seq_of};

/// Most reboots without an epoch, and most contradictions of the newest record: a gateway need not store more than
/// some hundred contents of one key.
const REBOOTS_MAX: u32 = 20;
const CONTRADICTIONS_MAX: u32 = 60;
/// Seconds between two records that are measured in real time.
const LIVE_SECONDS: i64 = 3;

impl Script {
    /// Makes at least one parcel, or reboots.
    pub(super) fn live(&mut self, now: Option<Timestamp>) {
        match self.random.below(60) {
            0 => self.reboot(),
            1 => self.heartbeat(),
            2..=5 => self.backlog_newest_first(now),
            6..=8 => self.two_links(now),
            9..=12 => self.repeat_newest(),
            13..=17 => self.contradict_newest(),
            18..=20 => self.resend_old(),
            _ => {
                let readings = self.measure_batch(now);
                self.hand_in(readings, 0);
            }
        }
    }

    /// A tracker that names epochs keeps the number in memory that outlives it and raises it; one that does not
    /// starts its counter again near where it once began, so that its keys meet those of earlier lives.
    fn reboot(&mut self) {
        if let Some(epoch_id) = self.tracker.epoch_id() {
            // What was measured before goes out in the old epoch, and late.
            self.pack_unpacked();
            let raised = epoch_id.get() + 1 + u64::from(self.random.below(4) / 3);
            let epoch_id = EpochId::new(raised).unwrap_or(EpochId::MAX);
            self.tracker = self.tracker.clone().in_epoch(epoch_id);
            self.tracker.restart_at(Seq::ZERO);
        } else {
            if self.reboots == REBOOTS_MAX {
                return;
            }
            self.reboots += 1;
            let first = self.first_seq.get() + u64::from(self.random.below(10));
            self.tracker.restart_at(Seq::new(first).unwrap_or(Seq::ZERO));
        }
        self.trouble = Trouble::cold_start(&mut self.random);
    }

    fn heartbeat(&mut self) {
        self.hand_in_parcel(Vec::new(), self.tracker.epoch_id(), 0);
    }

    /// A firmware that prefers the present: after hours without sky it sends the newest batch first.
    fn backlog_newest_first(&mut self, now: Option<Timestamp>) {
        let count = 2 + self.random.below(4);
        let mut batches: Vec<_> = (0..count).map(|_| self.measure_batch(now)).collect();
        batches.reverse();
        for (readings, later) in batches.into_iter().zip(0..) {
            self.hand_in(readings, later);
        }
    }

    /// The same records by two modems, cut into batches differently.
    fn two_links(&mut self, now: Option<Timestamp>) {
        let mut first = self.measure_batch(now);
        first.extend(self.measure_batch(now));
        let second: Vec<Reading> =
            first.iter().filter(|reading| reading.record().is_some()).cloned().collect();
        let cut = 1 + self.random.below(u32::try_from(second.len().max(2)).unwrap_or(2) - 1);
        let later = self.random.below(8);
        let (head, tail) = second.split_at(second.len().min(cut as usize));
        for piece in [head.to_vec(), tail.to_vec()] {
            self.hand_in(piece, later);
        }
        self.hand_in(first, 0);
    }

    /// The newest record once more, under another batch id.
    fn repeat_newest(&mut self) {
        if let Some((key, record)) = self.newest.clone() {
            self.hand_in_key(key, record);
        }
    }

    /// The newest key with another content: whoever lets an equal key win puts it on the map.
    fn contradict_newest(&mut self) {
        if self.contradictions == CONTRADICTIONS_MAX {
            return;
        }
        if let Some((key, record)) = self.newest.clone() {
            self.contradictions += 1;
            self.records += 1;
            let other = contradict(&record, &mut self.random);
            self.hand_in_key(key, other);
        }
    }

    fn hand_in_key(&mut self, key: Key, record: Record) {
        let epoch_id = self.tracker.epoch_id().map(|_| key.epoch_id);
        self.hand_in_parcel(vec![Reading::Usable(record)], epoch_id, 0);
    }

    /// Something that arrived some time ago turns up again: the very bytes, its records under another name, or the
    /// same batch spelled and packed in another way.
    fn resend_old(&mut self) {
        let place = self.random.below(u32::try_from(self.past.len()).unwrap_or(0)) as usize;
        let Some(parcel) = self.past.get(place).cloned() else { return };
        if parcel.has_unusable() || self.random.once_in(2) {
            self.queue(Sending { parcel, role: Role::Copy, held_back: false, losses: 0 }, 0);
        } else if self.random.once_in(2) {
            self.hand_in_parcel(parcel.readings.clone(), parcel.epoch_id, 0);
        } else {
            self.hand_in_named(parcel.batch_id.clone(), parcel.readings.clone(), parcel.epoch_id, 0);
        }
    }

    fn measure_batch(&mut self, now: Option<Timestamp>) -> Vec<Reading> {
        let most = u32::try_from(self.records_max).unwrap_or(u32::MAX);
        let count = match now {
            None => 1 + self.random.below(most),
            Some(_) => (3 + self.random.below(2)).min(most),
        };
        let mut readings = Vec::new();
        for left in (0..count).rev() {
            if let Some(now) = now {
                // Whole seconds: more cannot be said in every style.
                let fraction = now.to_micros().rem_euclid(1_000_000);
                let whole = Timestamp::from_micros(now.to_micros() - fraction).unwrap_or(now);
                let at = whole.plus_seconds(-LIVE_SECONDS * i64::from(left));
                self.tracker = self.tracker.clone().starting_at(at);
            } else if let Some(end) = self.past_ends.filter(|end| self.tracker.next_at() > *end) {
                // Within a batch the past may reach the present: nothing is measured in the future.
                self.tracker = self.tracker.clone().starting_at(end);
            }
            let mut record = self.tracker.next_record();
            self.trouble.spoil(&mut record, &mut self.random);
            self.records += 1;
            readings.push(Reading::Usable(record));
        }
        if readings.len() < self.records_max && self.random.once_in(40) {
            readings.push(Reading::unusable(&mut self.random));
        }
        readings
    }

    /// Packs new readings, with those whose parcel was given up before them, and hands them to the link.
    fn hand_in(&mut self, mut readings: Vec<Reading>, later: u32) {
        if !self.unpacked.is_empty() {
            let mut all = std::mem::take(&mut self.unpacked);
            all.append(&mut readings);
            readings = all;
        }
        self.hand_in_all(readings, later);
    }

    /// Packs those whose parcel was given up by themselves.
    pub(super) fn pack_unpacked(&mut self) {
        let readings = std::mem::take(&mut self.unpacked);
        let later = if self.closing { 0 } else { 3 + self.random.below(30) };
        self.hand_in_all(readings, later);
    }

    fn hand_in_all(&mut self, mut readings: Vec<Reading>, later: u32) {
        if self.random.once_in(6) {
            // Firmware with a ring buffer does not always begin at its start.
            let middle = readings.len() / 2;
            readings.rotate_left(middle);
        } else {
            readings.sort_by_key(seq_of);
        }
        for piece in readings.chunks(self.records_max) {
            self.hand_in_parcel(piece.to_vec(), self.tracker.epoch_id(), later);
        }
    }

    fn hand_in_parcel(&mut self, readings: Vec<Reading>, epoch_id: Option<EpochId>, later: u32) {
        let batch_id = BatchId::Uuid(self.random.uuid());
        self.hand_in_named(batch_id, readings, epoch_id, later);
    }

    fn hand_in_named(
        &mut self,
        batch_id: BatchId,
        readings: Vec<Reading>,
        epoch_id: Option<EpochId>,
        later: u32,
    ) {
        let style = if self.random.once_in(4) { Style::Loose } else { Style::Plain };
        let encoding = match self.encodings {
            Encodings::One(encoding) => encoding,
            Encodings::Mix => {
                let place = self.random.below(u32::try_from(Encoding::ALL.len()).unwrap_or(1)) as usize;
                Encoding::ALL[place]
            }
        };
        let device_id = self.tracker.device_id().clone();
        // What a script spells is JSON, so only a want of memory could fail; plain JSON needs no more of it.
        let parcel = Parcel::pack(&device_id, batch_id.clone(), epoch_id, readings.clone(), style, encoding)
            .or_else(|_| Parcel::pack(&device_id, batch_id, epoch_id, readings, style, Encoding::default()));
        let Ok(parcel) = parcel else { return };
        let held_back = !self.closing && self.chance(self.rates.reorder);
        let wait = if held_back { 1 + self.random.below(HELD_BACK_MAX) } else { 0 };
        self.queue(
            Sending { parcel: Arc::new(parcel), role: Role::First, held_back, losses: 0 },
            later + wait,
        );
    }
}
