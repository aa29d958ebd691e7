//! Points in time: microseconds since 1970 in UTC, read and written as RFC 3339.

use std::fmt;

use serde::{Serialize, Serializer};

/// 0000-01-01T00:00:00Z in microseconds: RFC 3339 has four digits for the year, and no sign.
const YEAR_0: i64 = -62_167_219_200_000_000;

/// Microseconds since 1970-01-01T00:00:00Z, without leap seconds. Covers the years 0 … 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);

    /// Microseconds since 1970; `None` outside the years that RFC 3339 can write (0 … 9999) and jiff knows.
    pub fn from_micros(micros: i64) -> Option<Self> {
        let writable = micros >= YEAR_0 && jiff::Timestamp::from_microsecond(micros).is_ok();
        writable.then_some(Self(micros))
    }

    /// Whole seconds since 1970; `None` outside the years 0 … 9999.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        Self::from_micros(seconds.checked_mul(1_000_000)?)
    }

    /// Microseconds since 1970.
    pub const fn to_micros(self) -> i64 {
        self.0
    }

    /// This time plus whole seconds, stopping at the ends of the range.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0.saturating_add(seconds.saturating_mul(1_000_000)))
    }
}

impl fmt::Display for Timestamp {
    /// RFC 3339 in UTC with `Z`; a fraction only where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(time) => time.fmt(f),
            // Out of range: only `plus_seconds` at the very end of time gets here.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_back_in_utc_with_z() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (1_648_731_311_000_000, "2022-03-31T12:55:11Z"),
            (1_500_000, "1970-01-01T00:00:01.5Z"),
            (39_955_335_588_000_000, "3236-02-19T00:19:48Z"),
        ] {
            assert_eq!(Timestamp::from_micros(micros).expect("in range").to_string(), text);
        }
        assert_eq!(Timestamp::from_micros(YEAR_0).expect("in range").to_string(), "0000-01-01T00:00:00Z");
        assert_eq!(Timestamp::from_micros(YEAR_0 - 1), None, "no year before 0 in RFC 3339");
        assert_eq!(Timestamp::from_seconds(i64::MAX), None);
    }
}
