//! One tracker: where it sails, what it measures, and the batches it makes of that.

use super::random::Random;
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

/// A box of open water, in degrees, with degrees of longitude a degree of way in its middle.
struct Sea {
    south: f64,
    north: f64,
    west: f64,
    east: f64,
    stretch: f64,
}

const SEAS: [Sea; 6] = [
    // North Pacific between Hawaii and California; South Pacific east of the islands.
    Sea { south: 24.0, north: 40.0, west: -152.0, east: -130.0, stretch: 1.18 },
    Sea { south: -45.0, north: -25.0, west: -125.0, east: -85.0, stretch: 1.22 },
    // North Atlantic between the Azores and Bermuda; South Atlantic off its islands.
    Sea { south: 28.0, north: 44.0, west: -60.0, east: -34.0, stretch: 1.24 },
    Sea { south: -35.0, north: -18.0, west: -30.0, east: -7.0, stretch: 1.12 },
    // Indian Ocean; the southern part of the Tasman Sea.
    Sea { south: -34.0, north: -12.0, west: 75.0, east: 95.0, stretch: 1.09 },
    Sea { south: -40.0, north: -35.0, west: 156.0, east: 167.0, stretch: 1.26 },
];

/// Cosines of the 16 points of the compass, from north by east. A table, since the last bit of a library's
/// cosine is not the same everywhere.
const COMPASS: [f64; 16] = {
    const DIAGONAL: f64 = std::f64::consts::FRAC_1_SQRT_2;
    const NEAR: f64 = 0.923_88;
    const FAR: f64 = 0.382_68;
    [
        1.0, NEAR, DIAGONAL, FAR, 0.0, -FAR, -DIAGONAL, -NEAR, -1.0, -NEAR, -DIAGONAL, -FAR, 0.0, FAR,
        DIAGONAL, NEAR,
    ]
};

/// A tracker: where it is, where its counter stands, and what it will send next.
#[derive(Clone, Debug)]
pub struct Tracker {
    device_id: DeviceId,
    /// What it names in its batches; `None`: it is an implicit device.
    epoch_id: Option<EpochId>,
    random: Random,
    sea: usize,
    lat: f64,
    lon: f64,
    /// Point of the compass, 0 … 15.
    heading: usize,
    /// Tenths of a knot.
    speed: u32,
    /// Hundredths of a volt.
    battery: u32,
    next_seq: Seq,
    next_at: Timestamp,
}

impl Tracker {
    /// The `index`-th tracker of the fleet of a seed, `track-000` … `track-999` and so on. It names no epoch.
    #[expect(clippy::missing_panics_doc, reason = "the id is a valid one whatever the index")]
    pub fn new(seed: u64, index: u32) -> Self {
        let mut random = Random::stream(seed, u64::from(index));
        let sea = random.below(6) as usize;
        let Sea { south, north, west, east, .. } = SEAS[sea];
        let part = |random: &mut Random| f64::from(random.below(10_000)) / 10_000.0;
        Self {
            // Only letters, digits and a hyphen, at most 16 of them.
            device_id: DeviceId::parse(&format!("track-{index:03}")).expect("a device id"),
            epoch_id: None,
            sea,
            lat: south + (north - south) * part(&mut random),
            lon: west + (east - west) * part(&mut random),
            heading: random.below(16) as usize,
            speed: 20 + random.below(120),
            battery: 340 + random.below(80),
            next_seq: Seq::new(1000 + u64::from(random.below(50_000))).unwrap_or(Seq::ZERO),
            next_at: Timestamp::EPOCH.plus_seconds(BEGIN_SECONDS + i64::from(random.below(60))),
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

    /// The same tracker, its next record measured at this time.
    #[must_use]
    pub fn starting_at(mut self, at: Timestamp) -> Self {
        self.next_at = at;
        self
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

    /// Sails on for `count` minutes and gives the batch of these records, with an id of its own. At most
    /// 10,000 records.
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

    /// Sails on for a minute and measures.
    pub fn next_record(&mut self) -> Record {
        let seq = self.next_seq;
        let recorded_at = self.next_at;
        // 2^63 records are never sent.
        self.next_seq = Seq::new(seq.get() + 1).unwrap_or(Seq::MAX);
        self.next_at = recorded_at.plus_seconds(PERIOD_SECONDS);
        self.sail();
        let extra = seq.get().is_multiple_of(MOTION_EVERY).then(|| {
            let (course, speed) = (self.heading * 45 / 2, f64::from(self.speed) / 10.0);
            format!("{{\"course\":{course},\"speed\":{speed}}}").into_boxed_str()
        });
        Record {
            seq,
            recorded_at: Some(recorded_at),
            fix: Some(Fix { lat: rounded(self.lat), lon: rounded(self.lon) }),
            battery: Some(f64::from(self.battery) / 100.0),
            extra,
            raw: None,
        }
    }

    /// One minute of way, turning back at the edge of its sea.
    fn sail(&mut self) {
        let Sea { south, north, west, east, stretch } = SEAS[self.sea];
        if self.random.once_in(8) {
            self.heading = (self.heading + if self.random.once_in(2) { 1 } else { 15 }) % 16;
        }
        self.battery =
            if self.battery <= 320 { 420 } else { self.battery - u32::from(self.random.once_in(40)) };
        // A knot is a minute of arc an hour, so 1/3600 degree a minute.
        let way = f64::from(self.speed) / 10.0 / 3600.0;
        let lat = self.lat + way * COMPASS[self.heading];
        let lon = self.lon + way * COMPASS[(self.heading + 12) % 16] * stretch;
        if (south..=north).contains(&lat) && (west..=east).contains(&lon) {
            (self.lat, self.lon) = (lat, lon);
        } else {
            self.heading = (self.heading + 8) % 16;
        }
    }
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
                assert!(SEAS.iter().any(|sea| (sea.south..=sea.north).contains(&fix.lat)
                    && (sea.west..=sea.east).contains(&fix.lon)));
                // 14 knots for a minute are 0.0039 degrees, in longitude up to 1.26 times as many.
                assert!((fix.lat - last.lat).abs() < 0.005 && (fix.lon - last.lon).abs() < 0.006);
                assert!(record.battery.is_some_and(|volts| (3.19..4.21).contains(&volts)));
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
