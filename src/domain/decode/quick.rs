//! The quick pass: a clean body straight into a [`Batch`], with one walk over its bytes.
//!
//! It gives up at the first thing that is not as it should be, without saying what: the salvage pass finds
//! out. It accepts nothing that the salvage pass would read otherwise.

use std::borrow::Cow;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::canonical::{self, Member, Mode};
use super::fault::Fault;
use super::fields::{Field, Fields};
use super::scalar::Scalar;
use crate::domain::batch::{Batch, Limits};
use crate::domain::ids::{BatchId, DeviceId, EpochId};
use crate::domain::record::Record;

/// Records for which room is made at once; more make room as they come.
const RECORDS_EXPECTED: usize = 32;

/// Reads a body in which nothing is wrong; `None` for any other.
pub(super) fn read(text: &str, limits: &Limits) -> Option<Batch> {
    let mut json = serde_json::Deserializer::from_str(text);
    let batch = json.deserialize_map(BatchVisitor { limits }).ok()?;
    json.end().ok()?;
    Some(batch)
}

struct BatchVisitor<'l> {
    limits: &'l Limits,
}

impl<'de> Visitor<'de> for BatchVisitor<'_> {
    type Value = Batch;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a batch")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Batch, A::Error> {
        let (mut device_id, mut batch_id, mut records) = (None, None, None);
        let mut epoch_id = Scalar::Absent;
        let mut extra: Vec<Member<'de>> = Vec::new();
        while let Some(key) = map.next_key_seed(TextSeed)? {
            match &*key {
                "device_id" if device_id.is_none() => {
                    device_id = Some(DeviceId::parse(&map.next_value_seed(TextSeed)?).ok_or_else(refuse)?);
                }
                "batch_id" if batch_id.is_none() => {
                    batch_id = Some(BatchId::parse(&map.next_value_seed(TextSeed)?).ok_or_else(refuse)?);
                }
                "epoch_id" if epoch_id == Scalar::Absent => {
                    map.next_value_seed(ScalarSeed { into: &mut epoch_id })?;
                }
                "records" if records.is_none() => {
                    records = Some(map.next_value_seed(RecordsSeed { limits: self.limits })?);
                }
                "device_id" | "batch_id" | "epoch_id" | "records" => return Err(refuse()),
                _ => extra.push((key, map.next_value::<&RawValue>()?.get())),
            }
        }
        Ok(Batch {
            device_id: device_id.ok_or_else(refuse)?,
            batch_id: batch_id.ok_or_else(refuse)?,
            epoch_id: match epoch_id {
                Scalar::Absent | Scalar::Null => None,
                sent => Some(sent.to_counter().and_then(EpochId::new).ok_or_else(refuse)?),
            },
            records: records.ok_or_else(refuse)?,
            unusable: Vec::new(),
            extra: canonical::object(&mut extra, None, Mode::Strict).map_err(|_| refuse())?,
        })
    }
}

struct RecordsSeed<'l> {
    limits: &'l Limits,
}

impl<'de> DeserializeSeed<'de> for RecordsSeed<'_> {
    type Value = Vec<Record>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Vec<Record>, D::Error> {
        json.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for RecordsSeed<'_> {
    type Value = Vec<Record>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of records")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<Record>, A::Error> {
        let mut records = Vec::with_capacity(RECORDS_EXPECTED.min(self.limits.records_max));
        let mut fields = Fields::default();
        while let Some(record) =
            seq.next_element_seed(RecordSeed { fields: &mut fields, limits: self.limits })?
        {
            if records.len() == self.limits.records_max {
                return Err(refuse());
            }
            records.push(record);
        }
        Ok(records)
    }
}

struct RecordSeed<'f, 'de> {
    fields: &'f mut Fields<'de>,
    limits: &'f Limits,
}

impl<'de> DeserializeSeed<'de> for RecordSeed<'_, 'de> {
    type Value = Record;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Record, D::Error> {
        // A map and nothing else: a derived struct would take an array by position.
        json.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RecordSeed<'_, 'de> {
    type Value = Record;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a record")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Record, A::Error> {
        self.fields.clear();
        while let Some(key) = map.next_key_seed(TextSeed)? {
            match Field::named(&key) {
                Some(field) => {
                    let sent = self.fields.place(field).map_err(give_up)?;
                    map.next_value_seed(ScalarSeed { into: &mut sent.scalar })?;
                }
                None => self.fields.push_extra((key, map.next_value::<&RawValue>()?.get())),
            }
        }
        self.fields.finish(self.limits).map_err(give_up)
    }
}

/// A string, borrowed from the body where it has no escapes.
pub(super) struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Cow<'de, str>, D::Error> {
        json.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for TextSeed {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Borrowed(text))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(Cow::Owned(text.to_owned()))
    }
}

/// A value of a named field. Objects and arrays there are for the salvage pass.
struct ScalarSeed<'s, 'de> {
    into: &'s mut Scalar<'de>,
}

impl<'de> DeserializeSeed<'de> for ScalarSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<(), D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ScalarSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        *self.into = Scalar::Null;
        Ok(())
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        *self.into = Scalar::Other;
        Ok(())
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<(), E> {
        *self.into = Scalar::Unsigned(n);
        Ok(())
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<(), E> {
        *self.into = Scalar::Signed(n);
        Ok(())
    }

    fn visit_f64<E: Error>(self, x: f64) -> Result<(), E> {
        *self.into = Scalar::Float(x);
        Ok(())
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<(), E> {
        *self.into = Scalar::Text(Cow::Borrowed(text));
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        *self.into = Scalar::Text(Cow::Owned(text.to_owned()));
        Ok(())
    }
}

fn refuse<E: Error>() -> E {
    E::custom("not clean")
}

fn give_up<E: Error>(_: Fault) -> E {
    refuse()
}
