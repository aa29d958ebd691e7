//! One tracker: where it sails, what it measures, and the batches it makes of that.

use super::random::Random;
use super::voyage::Voyage;
use crate::domain::batch::Batch;
use crate::domain::ids::{BatchId, DeviceId, EpochId, Seq};
use crate::domain::record::{Fix, Record};
use crate::domain::time::Timestamp;

/// 2026-03-31T04:12:00Z: when the first records are measured.
const BEGIN_SECONDS: i64 = 1_774_930_320;
/// A record a minute.
const PERIOD_SECONDS: i64 = 60;
/// Each so many records the tracker adds its speed and course.
const MOTION_EVERY: u64 = 10;
/// Most records of a batch that is made up.
const RECORDS_MAX: usize = 10_000;

/// A tracker: where it is, where its counter stands, and what it will send next.
#[derive(Clone, Debug)]
pub struct Tracker {
    device_id: DeviceId,
    /// What it names in its batches; `None`: it is an implicit device.
    epoch_id: Option<EpochId>,
    random: Random,
    voyage: Voyage,
    next_seq: Seq,
    next_at: Timestamp,
    /// Seconds from one record to the next.
    period: i64,
}

impl Tracker {
    /// The `index`-th tracker of the fleet of a seed, `track-000` … `track-999` and so on. It names no epoch.
    #[expect(clippy::missing_panics_doc, reason = "the id is a valid one whatever the index")]
    pub fn new(seed: u64, index: u32) -> Self {
        let mut random = Random::stream(seed, u64::from(index));
        let voyage = Voyage::new(index, &mut random);
        Self {
            // Only letters, digits and a hyphen, at most 16 of them.
            device_id: DeviceId::parse(&format!("track-{index:03}")).expect("a device id"),
            epoch_id: None,
            voyage,
            next_seq: Seq::new(1000 + u64::from(random.below(50_000))).unwrap_or(Seq::ZERO),
            next_at: Timestamp::EPOCH.plus_seconds(BEGIN_SECONDS + i64::from(random.below(60))),
            period: PERIOD_SECONDS,
            random,
        }
    }

    /// The same tracker, naming this epoch in its batches from now on.
    #[must_use]
    pub fn in_epoch(mut self, epoch_id: EpochId) -> Self {
        self.epoch_id = Some(epoch_id);
        self
    }

    /// The same tracker under another id.
    #[must_use]
    pub fn named(mut self, device_id: DeviceId) -> Self {
        self.device_id = device_id;
        self
    }

    /// The same tracker, whose next record is measured at this time. Where it is then depends on the time alone.
    #[must_use]
    pub fn starting_at(mut self, at: Timestamp) -> Self {
        self.next_at = at;
        self
    }

    /// The same tracker, with so many seconds from one record to the next; a minute unless said.
    #[must_use]
    pub fn every(mut self, seconds: u32) -> Self {
        self.period = i64::from(seconds);
        self
    }

    /// When the next record is measured.
    pub fn next_at(&self) -> Timestamp {
        self.next_at
    }

    /// Whose batches these are.
    pub fn device_id(&self) -> &DeviceId {
        &self.device_id
    }

    /// The epoch it names, if it names one.
    pub fn epoch_id(&self) -> Option<EpochId> {
        self.epoch_id
    }

    /// The seq of the next record.
    pub fn next_seq(&self) -> Seq {
        self.next_seq
    }

    /// The counter starts again, as after a reflash; the epoch stays what it was.
    pub fn restart_at(&mut self, seq: Seq) {
        self.next_seq = seq;
    }

    /// Makes the next `count` records and the batch of them, with an id of its own. At most 10,000 records.
    pub fn next_batch(&mut self, count: usize) -> Batch {
        Batch {
            device_id: self.device_id.clone(),
            batch_id: BatchId::Uuid(self.random.uuid()),
            epoch_id: self.epoch_id,
            records: (0..count.min(RECORDS_MAX)).map(|_| self.next_record()).collect(),
            unusable: Vec::new(),
            extra: None,
        }
    }

    /// Measures, and goes on to the time of the next record.
    pub fn next_record(&mut self) -> Record {
        let seq = self.next_seq;
        let recorded_at = self.next_at;
        // 2^63 records are never sent.
        self.next_seq = Seq::new(seq.get() + 1).unwrap_or(Seq::MAX);
        self.next_at = recorded_at.plus_seconds(self.period);
        let seconds = recorded_at.to_micros().div_euclid(1_000_000);
        let place = self.voyage.at(seconds);
        let extra = seq.get().is_multiple_of(MOTION_EVERY).then(|| {
            let speed = f64::from(self.voyage.speed()) / 10.0;
            format!("{{\"course\":{},\"speed\":{speed}}}", place.course).into_boxed_str()
        });
        Record {
            seq,
            recorded_at: Some(recorded_at),
            fix: Some(Fix { lat: rounded(place.lat), lon: rounded(place.lon) }),
            battery: Some(f64::from(charge(seconds) + self.random.below(3)) / 100.0),
            extra,
            raw: None,
        }
    }
}

/// Hundredths of a volt of a battery that the sun charges by day: 3.60 V at midnight UTC, 4.08 V at noon.
fn charge(seconds: i64) -> u32 {
    let quarter = u32::try_from(seconds.rem_euclid(86_400) / 900).unwrap_or_default();
    360 + quarter.min(96 - quarter)
}

/// Four decimals: about 11 m, as cheap receivers send them.
fn rounded(degrees: f64) -> f64 {
    (degrees * 10_000.0).round() / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::batch::Limits;
    use crate::domain::decode;
    use crate::fleet::spell;

    fn epoch(n: u64) -> EpochId {
        EpochId::new(n).expect("in range")
    }

    #[test]
    fn the_same_seed_gives_the_same_bytes() {
        let bytes = |seed, index| {
            let mut tracker = Tracker::new(seed, index);
            (0..50).map(|_| spell(&tracker.next_batch(20))).collect::<Vec<_>>()
        };
        assert_eq!(bytes(7, 3), bytes(7, 3));
        assert_ne!(bytes(7, 3), bytes(8, 3), "another seed");
        assert_ne!(bytes(7, 3)[0][30..], bytes(7, 4)[0][30..], "another tracker");
    }

    #[test]
    fn a_batch_reads_back_as_it_was_made_and_has_the_size_of_a_real_one() {
        for index in 0..200 {
            let mut tracker = Tracker::new(1, index);
            if index % 2 == 1 {
                tracker = tracker.in_epoch(epoch(3));
            }
            let batch = tracker.next_batch(20);
            let body = spell(&batch);
            assert!((1850..2150).contains(&body.len()), "{}: {body}", body.len());
            assert_eq!(decode::decode(body.as_bytes(), &Limits::default()), Ok(batch), "{body}");
        }
    }

    #[test]
    fn records_follow_each_other_on_open_water() {
        for index in 0..60 {
            let mut tracker = Tracker::new(2, index);
            let mut before = tracker.next_record();
            for _ in 0..5000 {
                let record = tracker.next_record();
                assert_eq!(record.seq.get(), before.seq.get() + 1);
                let minute = |at: Option<Timestamp>| at.map(|at| at.plus_seconds(60));
                assert_eq!(record.recorded_at, minute(before.recorded_at));
                let (fix, last) = (record.fix.expect("a fix"), before.fix.expect("a fix"));
                // 16 knots for a minute are 0.0044 degrees, in longitude at 61 degrees south twice as many.
                assert!((fix.lat - last.lat).abs() < 0.007, "{fix:?} after {last:?}");
                let east = (fix.lon - last.lon).abs();
                assert!(!(0.012..=359.9).contains(&east), "{fix:?} after {last:?}");
                assert!(record.battery.is_some_and(|volts| (3.59..4.12).contains(&volts)));
                before = record;
            }
        }
    }

    #[test]
    fn a_restarted_counter_goes_on_from_there() {
        let mut tracker = Tracker::new(1, 1);
        tracker.restart_at(Seq::ZERO);
        assert_eq!(tracker.next_seq(), Seq::ZERO);
        let batch = tracker.next_batch(3);
        assert_eq!(batch.records.iter().map(|record| record.seq.get()).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(tracker.next_batch(RECORDS_MAX + 1).records.len(), RECORDS_MAX);
    }
}
