//! `recorded_at`: RFC 3339 or Unix seconds. Never a reason to drop a record, never guessed.

use super::scalar::{Scalar, whole};
use crate::domain::time::Timestamp;

/// What a `recorded_at` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct When {
    /// The time; `None` where the value is none, or was not sent.
    pub(super) time: Option<Timestamp>,
    /// Whether `time` says all that was sent. If not, the sent value must be kept beside it.
    pub(super) whole: bool,
}

/// Reads a `recorded_at`.
pub(super) fn read(sent: &Scalar<'_>) -> When {
    let seconds = match sent {
        Scalar::Absent | Scalar::Null => return When { time: None, whole: true },
        Scalar::Unsigned(n) => i64::try_from(*n).ok(),
        Scalar::Signed(n) => Some(*n),
        Scalar::Float(x) => whole(*x),
        Scalar::Text(text) if text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit()) => {
            text.parse().ok()
        }
        Scalar::Text(text) => {
            return read_rfc3339(text.as_bytes()).unwrap_or(When { time: None, whole: false });
        }
        Scalar::Other => None,
    };
    let time = seconds.and_then(Timestamp::from_seconds);
    When { time, whole: time.is_some() }
}

/// The shape is checked here, since jiff takes far more than RFC 3339; the calendar is jiff's.
fn read_rfc3339(text: &[u8]) -> Option<When> {
    let (head, rest) = text.split_first_chunk::<19>()?;
    let [y1, y2, y3, y4, b'-', o1, o2, b'-', d1, d2, b'T' | b't' | b' ', time @ ..] = head else {
        return None;
    };
    let [h1, h2, b':', m1, m2, b':', s1, s2] = time else {
        return None;
    };
    let year = i16::from(two(*y1, *y2)?) * 100 + i16::from(two(*y3, *y4)?);
    let leap = two(*s1, *s2)? == 60;
    let second = if leap { 59 } else { two(*s1, *s2)? };
    let (micros, finer, zone) = read_fraction(rest)?;
    let offset = jiff::tz::Offset::from_seconds(read_offset(zone)?).ok()?;
    let local = jiff::civil::DateTime::new(
        year,
        two(*o1, *o2)?,
        two(*d1, *d2)?,
        two(*h1, *h2)?,
        two(*m1, *m2)?,
        second,
        micros * 1000,
    );
    let time = Timestamp::from_micros(offset.to_timestamp(local.ok()?).ok()?.as_microsecond())?;
    Some(When { time: Some(time), whole: !leap && !finer })
}

fn two(tens: u8, ones: u8) -> Option<i8> {
    let digit = |b: u8| b.is_ascii_digit().then(|| i8::try_from(b - b'0').ok()).flatten();
    Some(digit(tens)? * 10 + digit(ones)?)
}

/// Reads an optional fraction of a second: its microseconds, whether it is finer than that, and what follows.
fn read_fraction(text: &[u8]) -> Option<(i32, bool, &[u8])> {
    let Some(text) = text.strip_prefix(b".") else {
        return Some((0, false, text));
    };
    let count = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at_checked(count).filter(|_| count > 0)?;
    let padded = digits.iter().chain(std::iter::repeat(&b'0')).take(6);
    let micros = padded.fold(0, |sum, digit| sum * 10 + i32::from(digit - b'0'));
    let finer = digits.iter().skip(6).any(|digit| *digit != b'0');
    Some((micros, finer, rest))
}

/// Reads `Z` or `±hh:mm`: seconds east of Greenwich.
fn read_offset(zone: &[u8]) -> Option<i32> {
    let [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] = zone else {
        return matches!(zone, [b'Z' | b'z']).then_some(0);
    };
    let (hours, minutes) = (two(*h1, *h2)?, two(*m1, *m2)?);
    let seconds = i32::from(hours) * 3600 + i32::from(minutes) * 60;
    (hours < 24 && minutes < 60).then_some(if *sign == b'-' { -seconds } else { seconds })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sent: &Scalar<'_>) -> (Option<String>, bool) {
        let when = read(sent);
        (when.time.map(|t| t.to_string()), when.whole)
    }

    #[test]
    fn rfc3339() {
        for (sent, time, whole) in [
            ("2026-03-31T04:12:00Z", "2026-03-31T04:12:00Z", true),
            ("2026-03-31t04:12:00z", "2026-03-31T04:12:00Z", true),
            ("2026-03-31 04:12:00.5Z", "2026-03-31T04:12:00.5Z", true),
            ("2015-10-01T08:00:00-07:00", "2015-10-01T15:00:00Z", true),
            ("2015-10-01T08:00:00+05:45", "2015-10-01T02:15:00Z", true),
            ("2015-10-01T08:00:00-00:00", "2015-10-01T08:00:00Z", true),
            ("1969-12-31T23:59:59.999999Z", "1969-12-31T23:59:59.999999Z", true),
            ("2026-03-31T04:12:00.1234560000Z", "2026-03-31T04:12:00.123456Z", true),
            ("2026-03-31T04:12:00.1234569Z", "2026-03-31T04:12:00.123456Z", false),
            ("2016-12-31T23:59:60Z", "2016-12-31T23:59:59Z", false),
            ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00Z", true),
            ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00Z", true),
            ("1648731311", "2022-03-31T12:55:11Z", true),
        ] {
            assert_eq!(shown(&Scalar::Text(sent.into())), (Some(time.to_owned()), whole), "{sent}");
        }
    }

    #[test]
    fn nonsense_is_kept_raw_and_not_guessed() {
        for sent in [
            "",
            "n/a",
            "0000-00-00",
            "2026-03-31T04:12:00",
            "2026-03-31T04:12Z",
            "2026-03-31T04:12:00+0000",
            "2026-03-31T04:12:00+24:00",
            "2026-03-31T04:12:00+01:60",
            "2026-03-31T04:12:00 Z",
            "2026-03-31T04:12:00.Z",
            "2026-03-31T04:12:00,5Z",
            "2026-03-31T04:12:00Z[UTC]",
            "2026-03-31T04:12:61Z",
            "2026-03-31T24:00:00Z",
            "2026-02-30T25:61:00Z",
            "2025-02-29T00:00:00Z",
            "+002026-03-31T04:12:00Z",
            "20260331T041200Z",
            "9999-12-31T23:59:59Z",
            "0000-01-01T00:00:00+00:01",
            "164873131",
            "-164873131",
            "1648731311000",
            "２０26-03-31T04:12Z",
        ] {
            assert_eq!(shown(&Scalar::Text(sent.into())), (None, false), "{sent}");
        }
        for sent in [
            Scalar::Float(1.5),
            Scalar::Float(1e300),
            Scalar::Unsigned(u64::MAX),
            Scalar::Unsigned(1_648_731_311_000),
            Scalar::Signed(-62_167_219_201),
            Scalar::Other,
        ] {
            assert_eq!(shown(&sent), (None, false), "{sent:?}");
        }
        assert_eq!(shown(&Scalar::Null), (None, true));
    }

    #[test]
    fn unix_seconds() {
        for (sent, time) in [
            (Scalar::Unsigned(0), "1970-01-01T00:00:00Z"),
            (Scalar::Signed(-1), "1969-12-31T23:59:59Z"),
            (Scalar::Float(1_648_731_311.0), "2022-03-31T12:55:11Z"),
            (Scalar::Float(-0.0), "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(shown(&sent), (Some(time.to_owned()), true), "{sent:?}");
        }
    }
}
