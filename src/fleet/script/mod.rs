//! The life of one tracker behind a bad link: what it uploads, in which order, and what becomes of each upload on
//! the way. A list of operations that follows from the seed alone; whoever plays it retries what really fails.

mod life;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::encoding::Encoding;
use super::parcel::Parcel;
use super::random::Random;
use super::reading::{Reading, Trouble};
use super::tracker::Tracker;
use crate::domain::ids::{DeviceId, EpochId, Key, Seq};
use crate::domain::record::Record;
use crate::domain::time::Timestamp;

/// Parcels that a copy may still turn up of: about the last minutes of a tracker.
const PAST_MAX: usize = 24;
/// Longest that an upload is held back, in steps.
const HELD_BACK_MAX: u32 = 5;
/// A parcel that was lost so often gets through: a fleet whose link never works tests nothing.
const LOSSES_MAX: u32 = 8;

/// How often the link fails, each 0 … 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rates {
    /// A request or its answer is lost.
    pub loss: f64,
    /// A copy of an upload arrives once more, soon or much later.
    pub duplicate: f64,
    /// An upload is held back, and newer ones overtake it.
    pub reorder: f64,
}

/// In which forms parcels travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encodings {
    /// All in one.
    One(Encoding),
    /// Each in any.
    Mix,
}

/// What becomes of an upload on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives, and so does its answer.
    Delivered,
    /// It is never sent.
    NeverSent,
    /// The link breaks in the middle of the header.
    HeaderBroken,
    /// The link breaks when so many thousandths of the body are sent.
    BodyBroken {
        /// 0 … 999.
        permille: u32,
    },
    /// It arrives; the tracker never learns of it, and sends it again some time later.
    AnswerLost,
    /// The link breaks after so many milliseconds, whatever has happened by then; the tracker sends the same
    /// bytes again at once, until they are acknowledged.
    Cut {
        /// 0 … 49.
        after_ms: u32,
    },
}

impl Fate {
    /// Whether the gateway has the upload for certain, once this was played.
    pub fn arrives(self) -> bool {
        matches!(self, Self::Delivered | Self::AnswerLost | Self::Cut { .. })
    }
}

/// Why an upload is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// For the first time.
    First,
    /// Again, since it was not acknowledged.
    Retry,
    /// A copy that the link made.
    Copy,
}

/// One step of a script.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// What is sent.
    pub parcel: Arc<Parcel>,
    /// Why.
    pub role: Role,
    /// What becomes of it.
    pub fate: Fate,
    /// Whether newer ones overtook it.
    pub held_back: bool,
}

/// Something that waits to be sent.
#[derive(Clone, Debug)]
struct Sending {
    parcel: Arc<Parcel>,
    role: Role,
    held_back: bool,
    losses: u32,
}

/// The life of one tracker, step by step.
#[derive(Debug)]
pub struct Script {
    tracker: Tracker,
    random: Random,
    rates: Rates,
    encodings: Encodings,
    records_max: usize,
    trouble: Trouble,
    /// Where each life of an implicit tracker's counter starts.
    first_seq: Seq,
    /// Lives of the counter so far, and contradictions of the newest record: both are bounded, since a gateway takes
    /// only so many contents of one key.
    reboots: u32,
    contradictions: u32,
    /// Readings whose parcel was given up: they go into the next one.
    unpacked: Vec<Reading>,
    /// By the step when it is due, then in the order queued.
    outbox: BTreeMap<(u64, u64), Sending>,
    queued: u64,
    step: u64,
    /// What arrived lately.
    past: VecDeque<Arc<Parcel>>,
    /// The greatest key that has arrived for certain.
    newest: Option<(Key, Record)>,
    closing: bool,
    records: u64,
    /// Where a past that is made up ends.
    past_ends: Option<Timestamp>,
}

impl Script {
    /// The `index`-th tracker of a seed's fleet. Every other one names epochs, which it keeps over reboots; the
    /// others never do.
    pub fn new(
        seed: u64,
        index: u32,
        device_id: DeviceId,
        rates: Rates,
        encodings: Encodings,
        records_max: usize,
    ) -> Self {
        // A stream of its own beside the tracker's.
        let mut random = Random::stream(!seed, u64::from(index));
        let mut tracker = Tracker::new(seed, index).named(device_id);
        if index.is_multiple_of(2) {
            tracker = tracker.in_epoch(EpochId::new(u64::from(random.below(5))).unwrap_or(EpochId::ZERO));
        }
        Self {
            trouble: Trouble::cold_start(&mut random),
            first_seq: tracker.next_seq(),
            tracker,
            random,
            rates,
            encodings,
            records_max: records_max.max(1),
            reboots: 0,
            contradictions: 0,
            unpacked: Vec::new(),
            outbox: BTreeMap::new(),
            queued: 0,
            step: 0,
            past: VecDeque::new(),
            newest: None,
            closing: false,
            records: 0,
            past_ends: None,
        }
    }

    /// The same life, begun at this time, with so many seconds between two records, and none of them measured after
    /// `now` unless it is told the time.
    #[must_use]
    pub fn begun_at(mut self, begin: Timestamp, seconds: u32, now: Timestamp) -> Self {
        self.tracker = self.tracker.starting_at(begin).every(seconds);
        self.past_ends = Some(now);
        self
    }

    /// Whether its past still goes on.
    pub fn in_the_past(&self) -> bool {
        self.past_ends.is_some_and(|end| self.tracker.next_at() < end)
    }

    /// Whose life this is.
    pub fn device_id(&self) -> &DeviceId {
        self.tracker.device_id()
    }

    /// Distinct records made so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Parcels that wait to be sent, and records that wait to be packed.
    pub fn backlog(&self) -> usize {
        self.outbox.len() + self.unpacked.len()
    }

    /// From now on nothing new is made and nothing is lost: what waits is delivered, and the script ends.
    pub fn close(&mut self) {
        self.closing = true;
    }

    /// The next upload; `None` once it was closed and all is delivered. With `now` its records are measured up to
    /// that time, a few seconds apart; else each some time after the one before, a minute unless said.
    pub fn next(&mut self, now: Option<Timestamp>) -> Option<Delivery> {
        loop {
            if let Some(sending) = self.due() {
                return Some(self.send(sending));
            }
            if self.closing {
                if self.unpacked.is_empty() {
                    return None;
                }
                self.pack_unpacked();
            } else {
                self.step += 1;
                // What became due goes first.
                if self.due_at().is_none_or(|due| due > self.step) {
                    self.live(now);
                }
            }
        }
    }

    fn due_at(&self) -> Option<u64> {
        self.outbox.keys().next().map(|(due, _)| *due)
    }

    /// The first that is due; once closed, everything is.
    fn due(&mut self) -> Option<Sending> {
        let due = self.due_at().is_some_and(|due| self.closing || due <= self.step);
        due.then(|| self.outbox.pop_first()).flatten().map(|(_, sending)| sending)
    }

    fn send(&mut self, sending: Sending) -> Delivery {
        let Sending { parcel, role, held_back, losses } = sending;
        let fate = if self.closing || losses >= LOSSES_MAX { Fate::Delivered } else { self.fate() };
        if fate.arrives() {
            self.arrived(&parcel);
        }
        let acknowledged = matches!(fate, Fate::Delivered | Fate::Cut { .. });
        if !acknowledged && role != Role::Copy {
            self.lost(Sending {
                parcel: Arc::clone(&parcel),
                role: Role::Retry,
                held_back: false,
                losses: losses + 1,
            });
        }
        if !self.closing && role != Role::Copy && self.chance(self.rates.duplicate) {
            // The link keeps a copy; it may come before the retry, or long after everything else.
            let later =
                if self.random.once_in(3) { 20 + self.random.below(40) } else { 1 + self.random.below(3) };
            self.queue(
                Sending { parcel: Arc::clone(&parcel), role: Role::Copy, held_back: false, losses: 0 },
                later,
            );
        }
        Delivery { parcel, role, fate, held_back }
    }

    fn fate(&mut self) -> Fate {
        if !self.chance(self.rates.loss) {
            return Fate::Delivered;
        }
        match self.random.below(8) {
            0 | 1 => Fate::NeverSent,
            2 => Fate::HeaderBroken,
            3 => Fate::BodyBroken { permille: self.random.below(1000) },
            4 => Fate::Cut { after_ms: self.random.below(50) },
            _ => Fate::AnswerLost,
        }
    }

    /// The tracker heard no answer: the same bytes again, or their records anew in another parcel.
    fn lost(&mut self, retry: Sending) {
        let same_epoch = retry.parcel.epoch_id == self.tracker.epoch_id();
        // Unusable records must not be packed anew: in another form they would be another entry of quarantine.
        if same_epoch && !retry.parcel.has_unusable() && self.random.once_in(4) {
            self.unpacked.extend(retry.parcel.readings.iter().cloned());
            // Sometimes the first parcel is on its way all the same.
            if self.random.once_in(2) {
                let later = 2 + self.random.below(10);
                self.queue(Sending { role: Role::Copy, ..retry }, later);
            }
        } else {
            let later = 1 + self.random.below(4);
            self.queue(retry, later);
        }
    }

    fn arrived(&mut self, parcel: &Arc<Parcel>) {
        if self.past.len() == PAST_MAX {
            self.past.pop_front();
        }
        self.past.push_back(Arc::clone(parcel));
        let epoch_id = parcel.epoch_id.unwrap_or(EpochId::ZERO);
        for record in parcel.readings.iter().filter_map(Reading::record) {
            let key = Key { epoch_id, seq: record.seq };
            if self.newest.as_ref().is_none_or(|(newest, _)| key > *newest) {
                self.newest = Some((key, record.clone()));
            }
        }
    }

    fn queue(&mut self, sending: Sending, later: u32) {
        self.queued += 1;
        self.outbox.insert((self.step + u64::from(later), self.queued), sending);
    }

    fn chance(&mut self, rate: f64) -> bool {
        f64::from(self.random.below(1 << 20)) < rate * f64::from(1 << 20)
    }
}
