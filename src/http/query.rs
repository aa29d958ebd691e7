//! Query strings, strictly: an unknown, double or wrong parameter is an error, since a misspelt filter that
//! is passed over would answer another question than the one asked.

use axum::extract::Query;
use axum::http::Uri;

use super::problem::{Code, Problem};
use crate::domain::ids::{DeviceId, EpochId, Key, Seq};
use crate::domain::time::Timestamp;

/// The parameters of a request that nobody has asked for yet.
pub(super) struct Params(Vec<(String, String)>);

impl Params {
    /// Takes the query apart.
    pub(super) fn read(uri: &Uri) -> Result<Self, Problem> {
        Query::try_from_uri(uri)
            .map(|Query(pairs)| Self(pairs))
            .map_err(|_| Problem::new(Code::QueryInvalid, "The query string cannot be taken apart."))
    }

    /// A parameter, read by `parse`; `expected` says what it takes.
    pub(super) fn take<T>(
        &mut self,
        name: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(at) = self.0.iter().position(|(key, _)| key == name) else {
            return Ok(None);
        };
        let (_, value) = self.0.swap_remove(at);
        if self.0.iter().any(|(key, _)| key == name) {
            return Err(Problem::new(Code::QueryInvalid, format!("{name} stands more than once.")));
        }
        parse(&value)
            .map(Some)
            .ok_or_else(|| Problem::new(Code::QueryInvalid, format!("{name} takes {expected}.")))
    }

    /// Refuses what is left over.
    pub(super) fn finish(self) -> Result<(), Problem> {
        match self.0.first() {
            None => Ok(()),
            Some((name, _)) => {
                let name: String = name.chars().take(40).collect();
                Err(Problem::new(Code::QueryInvalid, format!("There is no parameter {name:?} here.")))
            }
        }
    }

    /// `limit`, from 1.
    pub(super) fn limit(&mut self, max: usize) -> Result<Option<usize>, Problem> {
        let limit = self.take("limit", "a whole number from 1", |text| integer(text).filter(|n| *n > 0))?;
        match limit.map(usize::try_from) {
            None => Ok(None),
            Some(Ok(limit)) if limit <= max => Ok(Some(limit)),
            Some(_) => Err(Problem::new(Code::QueryInvalid, format!("limit is at most {max} here."))),
        }
    }

    /// A device id.
    pub(super) fn device_id(&mut self, name: &'static str) -> Result<Option<DeviceId>, Problem> {
        self.take(name, "a device id", DeviceId::parse)
    }

    /// A sequence number.
    pub(super) fn seq(&mut self, name: &'static str) -> Result<Option<Seq>, Problem> {
        self.take(name, "a whole number 0 … 2^63−1", |text| integer(text).and_then(Seq::new))
    }

    /// An epoch.
    pub(super) fn epoch_id(&mut self, name: &'static str) -> Result<Option<EpochId>, Problem> {
        self.take(name, "a whole number 0 … 2^63−1", |text| integer(text).and_then(EpochId::new))
    }

    /// A point in time.
    pub(super) fn time(&mut self, name: &'static str) -> Result<Option<Timestamp>, Problem> {
        self.take(name, "an RFC 3339 time or whole Unix seconds", time)
    }

    /// A cursor as [`cursor`] wrote it.
    pub(super) fn cursor(&mut self, name: &'static str) -> Result<Option<Key>, Problem> {
        self.take(name, "the next of an earlier page", |text| {
            let (epoch_id, seq) = text.split_once('.')?;
            Some(Key { epoch_id: EpochId::new(integer(epoch_id)?)?, seq: Seq::new(integer(seq)?)? })
        })
    }
}

/// Where a next page starts, in the spelling that clients give back. Opaque to them.
pub(super) fn cursor(start: Key) -> String {
    format!("{}.{}", start.epoch_id, start.seq)
}

/// Plain decimal digits: `+5`, ` 5` and `5_0` are typing errors.
fn integer(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn time(text: &str) -> Option<Timestamp> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if let Some(seconds) = integer(digits) {
        let seconds = i64::try_from(seconds).ok()?;
        return Timestamp::from_seconds(if digits.len() < text.len() { -seconds } else { seconds });
    }
    // A plus sign that was not escaped arrives as a blank.
    let text = if text.contains(['T', 't']) { text.replace(' ', "+") } else { text.to_owned() };
    Timestamp::from_micros(text.parse::<jiff::Timestamp>().ok()?.as_microsecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(query: &str) -> Params {
        Params::read(&format!("/x?{query}").parse().expect("a URI")).expect("pairs")
    }

    #[test]
    fn takes_what_is_right_and_refuses_the_rest() {
        assert_eq!(params("").limit(10).expect("fine"), None);
        assert_eq!(params("limit=10").limit(10).expect("fine"), Some(10));
        for bad in ["limit=0", "limit=11", "limit=", "limit=x", "limit=-1", "limit=+1", "limit=1&limit=1"] {
            assert!(params(bad).limit(10).is_err(), "{bad}");
        }
        assert!(params("limit=99999999999999999999").limit(10).is_err());
        assert!(params("").finish().is_ok());
        assert!(params("limt=5").finish().is_err());
        assert_eq!(params("a=x%3Ay").device_id("a").expect("fine"), DeviceId::parse("x:y"));
        assert!(params("a=x%2Fy").device_id("a").is_err());
        assert_eq!(params("s=9223372036854775807").seq("s").expect("fine").map(Seq::to_i64), Some(i64::MAX));
        assert!(params("s=9223372036854775808").seq("s").is_err());
    }

    #[test]
    fn reads_times() {
        for (text, micros) in [
            ("0", 0),
            ("-1", -1_000_000),
            ("1774930320", 1_774_930_320_000_000),
            ("2026-03-31T04:12:00Z", 1_774_930_320_000_000),
            ("2026-03-31T04:12:00.5Z", 1_774_930_320_500_000),
            ("2026-03-31T06:12:00%2B02:00", 1_774_930_320_000_000),
            ("2026-03-31T06:12:00+02:00", 1_774_930_320_000_000),
            ("2026-03-31%2004:12:00Z", 1_774_930_320_000_000),
        ] {
            let read = params(&format!("t={text}")).time("t").expect(text).expect(text);
            assert_eq!(read.to_micros(), micros, "{text}");
        }
        for bad in ["", "yesterday", "2026-03-31", "2026-03-31T04:12:00", "1.5", "99999999999999999999"] {
            assert!(params(&format!("t={bad}")).time("t").is_err(), "{bad}");
        }
    }

    #[test]
    fn cursors_read_back() {
        let key =
            Key { epoch_id: EpochId::new(3).expect("in range"), seq: Seq::new(10_420).expect("in range") };
        assert_eq!(cursor(key), "3.10420");
        assert_eq!(params("after=3.10420").cursor("after").expect("fine"), Some(key));
        for bad in ["", "3", "3.", ".3", "3.4.5", "a.b", "3.-1"] {
            assert!(params(&format!("after={bad}")).cursor("after").is_err(), "{bad}");
        }
    }
}
