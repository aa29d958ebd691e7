//! What a tracker measured, and the ways in which firmware spells it.

use std::fmt::Write as _;

use super::random::Random;
use super::spell::{push_members, spell_record};
use crate::domain::ids::Seq;
use crate::domain::record::{Fix, Record};
use crate::domain::time::Timestamp;

/// 2099-01-01T00:00:00Z: what a clock says that lost its week number.
const FUTURE_SECONDS: i64 = 4_070_908_800;

/// A record on its way.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    /// One that counts, as the gateway must read it back: what it cannot take over stands under `raw`.
    Usable(Record),
    /// The text of one that no gateway can use; never twice the same.
    Unusable(String),
}

/// How a record is spelled. Whatever the style, it is the same record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Numbers as numbers, times in RFC 3339, what is not known left out.
    Plain,
    /// Counters and voltages as strings, times in Unix seconds, what is not known null.
    Loose,
}

impl Reading {
    /// The record, if it is one.
    pub fn record(&self) -> Option<&Record> {
        match self {
            Self::Usable(record) => Some(record),
            Self::Unusable(_) => None,
        }
    }

    /// A record whose position cannot be one; nothing of it can be used.
    pub(super) fn unusable(random: &mut Random) -> Self {
        Self::Unusable(format!(
            "{{\"lat\":912,\"lon\":1.5,\"note\":\"{:016x}\",\"seq\":7}}",
            random.next_u64()
        ))
    }

    /// The reading as JSON text.
    pub fn spell(&self, style: Style, text: &mut String) {
        match self {
            Self::Unusable(sent) => text.push_str(sent),
            Self::Usable(record) => {
                match style {
                    Style::Plain => spell_record(text, record),
                    Style::Loose => spell_loose(text, record),
                }
                // What could not be taken over goes out as it was sent, beside the rest.
                if record.raw.is_some() && text.pop().is_some() {
                    push_members(text, record.raw.as_deref());
                    text.push('}');
                }
            }
        }
    }
}

fn spell_loose(text: &mut String, record: &Record) {
    // Writing to a String cannot fail.
    let _ = write!(text, "{{\"seq\":\"{}\"", record.seq);
    let unusable = |field: &str| record.raw.as_deref().is_some_and(|raw| raw.contains(field));
    match record.recorded_at {
        Some(at) => {
            let _ = write!(text, ",\"recorded_at\":{}", at.to_micros() / 1_000_000);
        }
        None if unusable("recorded_at") => {}
        None => text.push_str(",\"recorded_at\":null"),
    }
    match record.fix {
        Some(Fix { lat, lon }) => {
            let _ = write!(text, ",\"lon\":{lon},\"lat\":\"{lat}\"");
        }
        None => text.push_str(",\"lat\":null,\"lon\":null"),
    }
    match record.battery {
        Some(volts) => {
            let _ = write!(text, ",\"battery\":\"{volts}\"");
        }
        None if unusable("battery") => {}
        None => text.push_str(",\"battery\":null"),
    }
    push_members(text, record.extra.as_deref());
    text.push('}');
}

/// What a tracker's clock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clock {
    Right,
    /// No lock yet: seconds since it was switched on.
    At1970,
    Future,
    Absent,
}

/// What goes wrong while measuring.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    clock: Clock,
    /// Records still to come without a position.
    blind: u32,
    /// Seconds since it was switched on.
    uptime: i64,
}

impl Trouble {
    /// A cold start: no position for some records, and mostly no time.
    pub(super) fn cold_start(random: &mut Random) -> Self {
        let clock = match random.below(4) {
            0 => Clock::Right,
            1 => Clock::Absent,
            _ => Clock::At1970,
        };
        Self { clock, blind: random.below(4), uptime: 0 }
    }

    /// Spoils a record as a real tracker would have measured it.
    pub(super) fn spoil(&mut self, record: &mut Record, random: &mut Random) {
        self.uptime += 60;
        if self.blind > 0 {
            self.blind -= 1;
            record.fix = None;
        } else if self.clock != Clock::Right && random.once_in(3) {
            // A lock sets the clock.
            self.clock = Clock::Right;
        } else if random.once_in(60) {
            self.clock = Clock::Future;
        } else if random.once_in(40) {
            self.blind = 1 + random.below(5);
        }
        record.recorded_at = match self.clock {
            Clock::Right => record.recorded_at,
            Clock::At1970 => Timestamp::from_seconds(self.uptime),
            Clock::Future => Timestamp::from_seconds(FUTURE_SECONDS + self.uptime),
            Clock::Absent => None,
        };
        if random.once_in(50) {
            record.battery = None;
            record.raw = Some("{\"battery\":\"n/a\"}".into());
        } else if random.once_in(80) {
            record.recorded_at = None;
            record.raw = Some("{\"recorded_at\":\"0000-00-00\"}".into());
        }
    }
}

/// Another content for the same seq: elsewhere, with another battery. Never equal to the record itself.
pub(super) fn contradict(record: &Record, random: &mut Random) -> Record {
    let off = f64::from(1 + random.below(9_999)) / 10_000.0;
    let fix = record.fix.map_or(Fix { lat: off, lon: -off }, |Fix { lat, lon }| Fix {
        lat: if lat > 0.0 { lat - off } else { lat + off },
        lon: if lon > 0.0 { lon - off } else { lon + off },
    });
    let rounded = |degrees: f64| (degrees * 10_000.0).round() / 10_000.0;
    Record {
        fix: Some(Fix { lat: rounded(fix.lat), lon: rounded(fix.lon) }),
        battery: Some(f64::from(500 + random.below(100)) / 100.0),
        // Now that it has a battery, no other text can stand there.
        raw: record.raw.clone().filter(|raw| !raw.contains("battery")),
        ..record.clone()
    }
}

/// The seq of a reading that counts.
pub(super) fn seq_of(reading: &Reading) -> Option<Seq> {
    reading.record().map(|record| record.seq)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::batch::Limits;
    use crate::domain::decode;
    use crate::fleet::Tracker;

    /// Spelled in both styles and put into a batch, as the gateway reads it.
    fn read_back(reading: &Reading, style: Style) -> crate::domain::batch::Batch {
        let mut text = "{\"device_id\":\"t\",\"batch_id\":\"b\",\"records\":[".to_owned();
        reading.spell(style, &mut text);
        text.push_str("]}");
        decode::decode(text.as_bytes(), &Limits::default()).unwrap_or_else(|e| panic!("{e:?}: {text}"))
    }

    #[test]
    fn every_style_says_the_same_record() {
        let mut random = Random::new(5);
        let mut tracker = Tracker::new(5, 0);
        let mut trouble = Trouble::cold_start(&mut random);
        let (mut blind, mut raw, mut at_1970, mut future, mut timeless) = (0, 0, 0, 0, 0);
        for _ in 0..3000 {
            let mut record = tracker.next_record();
            trouble.spoil(&mut record, &mut random);
            if random.once_in(100) {
                trouble = Trouble::cold_start(&mut random);
            }
            blind += u32::from(record.fix.is_none());
            raw += u32::from(record.raw.is_some());
            at_1970 += u32::from(record.recorded_at.is_some_and(|at| at.to_micros() < 1_000_000_000_000));
            future += u32::from(record.recorded_at.is_some_and(|at| at.to_micros() > 4_000_000_000_000_000));
            timeless += u32::from(record.recorded_at.is_none() && record.raw.is_none());
            for style in [Style::Plain, Style::Loose] {
                let batch = read_back(&Reading::Usable(record.clone()), style);
                assert_eq!(batch.records, [record.clone()], "{style:?}");
            }
        }
        assert!([blind, raw, at_1970, future, timeless].iter().all(|n| *n > 5), "each happens");
    }

    #[test]
    fn what_cannot_be_used_is_not_used_and_never_the_same_twice() {
        let mut random = Random::new(6);
        let (one, other) = (Reading::unusable(&mut random), Reading::unusable(&mut random));
        assert_ne!(one, other);
        let batch = read_back(&one, Style::Plain);
        assert_eq!((batch.records.len(), batch.unusable.len()), (0, 1));
    }

    #[test]
    fn a_contradiction_is_another_content_of_the_same_seq() {
        let (mut random, mut tracker) = (Random::new(7), Tracker::new(7, 0));
        let mut trouble = Trouble::cold_start(&mut random);
        for _ in 0..1000 {
            let mut record = tracker.next_record();
            trouble.spoil(&mut record, &mut random);
            let other = contradict(&record, &mut random);
            assert_eq!(other.seq, record.seq);
            assert!(other.fix.is_some() && other.fix != record.fix && other.battery != record.battery);
            assert_eq!(read_back(&Reading::Usable(other.clone()), Style::Plain).records, [other]);
        }
    }
}
