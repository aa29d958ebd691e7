//! One value of a named field, as the field rules see it.

use std::borrow::Cow;

use super::fault::Fault;
use super::walk::unescape;

/// The greatest whole number up to which every f64 is exact: 2^53.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// A value where a plain one is due.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Scalar<'a> {
    /// The key is not there.
    #[default]
    Absent,
    /// `null`: to the rules the same as absent.
    Null,
    /// An integer from 0.
    Unsigned(u64),
    /// A negative integer.
    Signed(i64),
    /// A number with a fraction or exponent, or an integer past 64 bits. Finite.
    Float(f64),
    /// A string.
    Text(Cow<'a, str>),
    /// A boolean, object or array, or a number too large for f64.
    Other,
}

impl<'a> Scalar<'a> {
    /// Reads the text of one well-formed value.
    pub(super) fn from_json(raw: &'a str) -> Result<Self, Fault> {
        match raw.as_bytes().first() {
            Some(b'"') => {
                let literal = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
                unescape(literal).map(Self::Text).ok_or_else(Fault::text)
            }
            Some(b'n') => Ok(Self::Null),
            Some(b'-' | b'0'..=b'9') => Ok(Self::from_number(raw)),
            _ => Ok(Self::Other),
        }
    }

    fn from_number(raw: &str) -> Self {
        if let Ok(unsigned) = raw.parse() {
            return Self::Unsigned(unsigned);
        }
        // "-0" is a float to serde_json too, and an i64 would lose nothing by it.
        if let Ok(signed) = raw.parse() {
            return Self::Signed(signed);
        }
        raw.parse().ok().filter(|x: &f64| x.is_finite()).map_or(Self::Other, Self::Float)
    }

    /// Whether nothing was said.
    pub(super) const fn is_nothing(&self) -> bool {
        matches!(self, Self::Absent | Self::Null)
    }

    /// A counter (`seq`, `epoch_id`) by the contract's spelling, up to 2^64−1: an integer, a string of at most
    /// 32 digits, a float with no fraction up to 2^53.
    pub(super) fn to_counter(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Signed(n) => u64::try_from(*n).ok(),
            Self::Float(x) => whole(*x).and_then(|n| u64::try_from(n).ok()),
            Self::Text(text) => {
                let digits = text.len() <= 32 && text.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| text.parse().ok()).flatten()
            }
            Self::Absent | Self::Null | Self::Other => None,
        }
    }

    /// A finite number, or a string of one; never −0.
    pub(super) fn to_number(&self) -> Option<f64> {
        let number = match self {
            Self::Unsigned(n) => nearest_unsigned(*n),
            Self::Signed(n) => nearest_signed(*n),
            Self::Float(x) => *x,
            Self::Text(text) => {
                let numeric = |b| matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E');
                text.bytes().all(numeric).then(|| text.parse().ok()).flatten()?
            }
            Self::Absent | Self::Null | Self::Other => return None,
        };
        // Adding 0.0 turns −0.0 into 0.0 and nothing else.
        number.is_finite().then_some(number + 0.0)
    }
}

/// A float that is a whole number no f64 before it skips.
pub(super) fn whole(x: f64) -> Option<i64> {
    #[expect(clippy::cast_possible_truncation, reason = "a whole number of at most 2^53")]
    (x.fract() == 0.0 && x.abs() <= WHOLE_MAX).then_some(x as i64)
}

#[expect(clippy::cast_precision_loss, reason = "numbers are f64 by contract; this is the nearest one")]
const fn nearest_unsigned(n: u64) -> f64 {
    n as f64
}

#[expect(clippy::cast_precision_loss, reason = "numbers are f64 by contract; this is the nearest one")]
const fn nearest_signed(n: i64) -> f64 {
    n as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(raw: &str) -> Scalar<'_> {
        Scalar::from_json(raw).expect("good text")
    }

    #[test]
    fn counters() {
        for (raw, expected) in [
            ("0", Some(0)),
            ("-0", Some(0)),
            ("-0.0", Some(0)),
            ("12.0", Some(12)),
            ("1e3", Some(1000)),
            ("9007199254740993", Some(9_007_199_254_740_993)),
            ("9007199254740992.0", Some(9_007_199_254_740_992)),
            ("9007199254740994.0", None),
            ("9223372036854775808", Some(1 << 63)),
            ("18446744073709551616", None),
            ("-1", None),
            ("1.5", None),
            ("1e400", None),
            (r#""12""#, Some(12)),
            (r#""\u0031""#, Some(1)),
            (r#""00000000000000000000000000000007""#, Some(7)),
            (r#""000000000000000000000000000000007""#, None),
            (r#""""#, None),
            (r#""+1""#, None),
            (r#"" 1""#, None),
            (r#""1.0""#, None),
            (r#""99999999999999999999""#, None),
            ("null", None),
            ("true", None),
            ("[1]", None),
        ] {
            assert_eq!(read(raw).to_counter(), expected, "{raw}");
        }
    }

    #[test]
    fn numbers() {
        for (raw, expected) in [
            ("3.82", Some(3.82)),
            ("41", Some(41.0)),
            ("-41", Some(-41.0)),
            (r#""3.82""#, Some(3.82)),
            (r#""+1e1""#, Some(10.0)),
            (r#""48,489790""#, None),
            (r#""""#, None),
            (r#""n/a""#, None),
            (r#""inf""#, None),
            (r#""NaN""#, None),
            (r#"" 1""#, None),
            (r#""1e400""#, None),
            ("1e400", None),
            ("false", None),
            ("{}", None),
        ] {
            assert_eq!(read(raw).to_number(), expected, "{raw}");
        }
        for zero in ["-0", "-0.0", r#""-0""#, "-1e-400"] {
            let number = read(zero).to_number().expect("a number");
            assert!(number == 0.0 && number.is_sign_positive(), "{zero}");
        }
    }
}
