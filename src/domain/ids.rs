//! Identifiers as the contract spells them: devices, batches, epochs, sequence numbers.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

/// Longest device id, in bytes (all of its characters are ASCII).
pub const DEVICE_ID_LEN_MAX: usize = 64;
/// Longest batch id that is not a UUID, in bytes.
pub const BATCH_ID_LEN_MAX: usize = 128;
/// Greatest sequence number and epoch id: they must fit a signed 64-bit column.
pub const COUNTER_MAX: u64 = i64::MAX.unsigned_abs();

/// A device id, kept exactly as sent: `007` and `7` are two devices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct DeviceId(Arc<str>);

impl DeviceId {
    /// Takes 1–64 of `A-Z a-z 0-9 . _ : -`, but neither `.` nor `..` (they would change a URL path).
    pub fn parse(text: &str) -> Option<Self> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b':' | b'-');
        let fits = (1..=DEVICE_ID_LEN_MAX).contains(&text.len()) && text.bytes().all(allowed);
        (fits && text != "." && text != "..").then(|| Self(text.into()))
    }

    /// The id as sent.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A batch id, unique for each device. Every spelling of one UUID is the same id.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum BatchId {
    /// A UUID, however it was spelled.
    Uuid([u8; 16]),
    /// Any other 1–128 printable ASCII characters.
    Text(Box<str>),
}

impl BatchId {
    /// Reads an id; `None` if it is empty, too long or not printable ASCII.
    pub fn parse(text: &str) -> Option<Self> {
        let fits = (1..=BATCH_ID_LEN_MAX).contains(&text.len());
        if !fits || !text.bytes().all(|b| (0x20..=0x7e).contains(&b)) {
            return None;
        }
        Some(parse_uuid(text).map_or_else(|| Self::Text(text.into()), Self::Uuid))
    }

    /// The bytes a store keys by: 16 for a UUID, for other text a NUL and the text. Text of 15 characters
    /// gets a second NUL behind it, so that its length never looks like a UUID's.
    pub fn to_key(&self) -> Vec<u8> {
        match self {
            Self::Uuid(bytes) => bytes.to_vec(),
            Self::Text(text) => {
                let mut key = Vec::with_capacity(text.len() + 2);
                key.push(0);
                key.extend_from_slice(text.as_bytes());
                if key.len() == 16 {
                    key.push(0);
                }
                key
            }
        }
    }

    /// Reads back what [`BatchId::to_key`] wrote; `None` if it wrote no such bytes.
    pub fn from_key(key: &[u8]) -> Option<Self> {
        if let Ok(bytes) = <[u8; 16]>::try_from(key) {
            return Some(Self::Uuid(bytes));
        }
        let text = key.strip_prefix(&[0])?;
        let text = if key.len() == 17 { text.strip_suffix(&[0]).unwrap_or(text) } else { text };
        std::str::from_utf8(text).ok().map(|text| Self::Text(text.into()))
    }
}

impl fmt::Display for BatchId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(bytes) => uuid::Uuid::from_bytes(*bytes).hyphenated().fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// Firmware spells UUIDs in every way: case, no hyphens, braces, a `urn:uuid:` prefix, and mixtures.
fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let urn = text.get(..9).is_some_and(|p| p.eq_ignore_ascii_case("urn:uuid:"));
    let bare = if urn { &text[9..] } else { text };
    let bare = bare.strip_prefix('{').and_then(|t| t.strip_suffix('}')).unwrap_or(bare);
    // Only the two plain forms are left; anything else uuid would accept (a nested urn) is no UUID to us.
    if !matches!(bare.len(), 32 | 36) {
        return None;
    }
    uuid::Uuid::try_parse(bare).ok().map(uuid::Uuid::into_bytes)
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize)]
        pub struct $name(u64);

        impl $name {
            /// The least value.
            pub const ZERO: Self = Self(0);
            /// The greatest value, 2^63−1.
            pub const MAX: Self = Self(COUNTER_MAX);

            /// `None` past 2^63−1.
            pub const fn new(value: u64) -> Option<Self> {
                if value <= COUNTER_MAX { Some(Self(value)) } else { None }
            }

            /// The number, 0 … 2^63−1.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The number as a signed column holds it.
            pub const fn to_i64(self) -> i64 {
                self.0.cast_signed()
            }

            /// Reads a signed column; `None` if it is negative.
            pub const fn from_i64(value: i64) -> Option<Self> {
                if value >= 0 { Some(Self(value.cast_unsigned())) } else { None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// A record's sequence number within its epoch, 0 … 2^63−1.
    Seq
}
counter! {
    /// One life of a device's sequence counter, 0 … 2^63−1.
    EpochId
}

/// The ordering key: epoch first, then seq. Device clocks never order anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The epoch; compared first.
    pub epoch_id: EpochId,
    /// The sequence number within it.
    pub seq: Seq,
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {} seq {}", self.epoch_id, self.seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_ids_keep_case_and_leading_zeros() {
        for good in ["a", "000270", "Track-Exp_1.2:3", &"x".repeat(64), "..."] {
            assert_eq!(DeviceId::parse(good).map(|d| d.to_string()).as_deref(), Some(good));
        }
        for bad in ["", ".", "..", "a b", "a/b", "é", &"x".repeat(65), "a\0"] {
            assert_eq!(DeviceId::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn every_spelling_of_a_uuid_is_one_id() {
        let one = BatchId::parse("b9f2c8d4-53c1-4828-98e6-71d3df85223a").expect("a UUID");
        assert!(matches!(one, BatchId::Uuid(_)));
        for other in [
            "B9F2C8D4-53C1-4828-98E6-71D3DF85223A",
            "b9f2c8d453c1482898e671d3df85223a",
            "{b9f2c8d4-53c1-4828-98e6-71d3df85223a}",
            "{B9F2C8D453C1482898E671D3DF85223A}",
            "urn:uuid:b9f2c8d4-53c1-4828-98e6-71d3df85223a",
            "URN:UUID:B9F2C8D453C1482898E671D3DF85223A",
        ] {
            assert_eq!(BatchId::parse(other), Some(one.clone()), "{other}");
        }
        for text in ["b9f2c8d4-53c1-4828-98e6-71d3df85223", "b9f2c8d453c1-4828-98e6-71d3df85223a-", "17"] {
            assert_eq!(BatchId::parse(text), Some(BatchId::Text(text.into())));
        }
        for bad in ["", "é", "a\n", &"x".repeat(129)] {
            assert_eq!(BatchId::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn batch_keys_of_any_length_differ_and_read_back() {
        let mut seen = std::collections::HashSet::new();
        for len in 1..=20 {
            let id = BatchId::parse(&"x".repeat(len)).expect("printable");
            let key = id.to_key();
            assert_ne!(key.len(), 16, "only a UUID has 16 bytes");
            assert_eq!(BatchId::from_key(&key), Some(id));
            assert!(seen.insert(key));
        }
        assert_eq!(BatchId::from_key(&[7; 16]), Some(BatchId::Uuid([7; 16])));
    }

    #[test]
    fn counters_stop_at_the_signed_range() {
        assert_eq!(Seq::new(COUNTER_MAX).map(Seq::to_i64), Some(i64::MAX));
        assert_eq!(Seq::new(COUNTER_MAX + 1), None);
        assert_eq!(EpochId::from_i64(-1), None);
    }
}
