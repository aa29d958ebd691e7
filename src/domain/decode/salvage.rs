//! The salvage pass: reads record by record what the quick pass refused, and says what is wrong with what.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::canonical::{self, Member, Mode};
use super::fault::{Fault, quoted};
use super::fields::{Field, Fields, Sent};
use super::repair::{Origin, repair};
use super::scalar::Scalar;
use super::scout::scout;
use super::unreadable;
use super::walk::{Cursor, unescape, unescape_lossy};
use crate::domain::batch::{Batch, Limits, Unreadable, UnusableRecord};
use crate::domain::ids::{BatchId, DeviceId, EpochId};
use crate::domain::reason::Reason;
use crate::domain::record::Record;
use crate::domain::upload::{BodyHash, body_hash};

/// Reads a body from which padding was taken.
pub(super) fn read(body: &[u8], limits: &Limits) -> Result<Batch, Unreadable> {
    let text = check_json(body)?;
    let top = Top::read(&text);
    let (device_id, batch_id) = (top.device_id(), top.batch_id());
    let ids = (device_id.as_ref().ok().cloned(), batch_id.as_ref().ok().cloned());
    let name = |fault: Fault| Unreadable {
        device_id: ids.0.clone(),
        batch_id: ids.1.clone(),
        ..unreadable(fault.reason, fault.detail)
    };
    let records = top.records.clone();
    let epoch_id = top.epoch_id();
    let extra = top.into_extra().map_err(name)?;
    let device_id = device_id.map_err(name)?;
    let batch_id = batch_id.map_err(name)?;
    let epoch_id = epoch_id.map_err(name)?;
    let elements = Elements::find(&text, &records).map_err(name)?;
    let (records, unusable) = elements.read(body, limits).map_err(name)?;
    Ok(Batch { device_id, batch_id, epoch_id, records, unusable, extra })
}

/// The body as text that is one well-formed JSON object with nothing around it.
fn check_json(body: &[u8]) -> Result<Cow<'_, str>, Unreadable> {
    let (text, damage) = match std::str::from_utf8(body) {
        Ok(text) => (Cow::Borrowed(text), String::new()),
        Err(error) => {
            let damage = format!(" (the byte at {} is not UTF-8)", error.valid_up_to());
            (Cow::Owned(repair(body)), damage)
        }
    };
    // A raw value: its grammar is checked without recursion, whatever its strings and numbers mean.
    if let Err(error) = serde_json::from_str::<&RawValue>(&text) {
        let (device_id, batch_id) = scout(&text).into_ids();
        let fault = unreadable(Reason::InvalidJson, format!("{error}{damage}"));
        return Err(Unreadable { device_id, batch_id, ..fault });
    }
    let mut cursor = Cursor::new(&text, 0);
    cursor.skip_blanks();
    if cursor.peek() == Some(b'{') {
        return Ok(text);
    }
    let detail = format!("the body is no JSON object but {}", quoted(cursor.value()));
    Err(unreadable(Reason::InvalidJson, detail))
}

/// A value that stands in the text.
#[derive(Clone, Debug)]
struct Found<'a> {
    at: usize,
    raw: &'a str,
}

/// A named field of the batch.
#[derive(Clone, Debug, Default)]
enum Place<'a> {
    #[default]
    Absent,
    Once(Found<'a>),
    Twice,
}

impl<'a> Place<'a> {
    fn set(&mut self, found: Found<'a>) -> bool {
        let first = matches!(self, Self::Absent);
        *self = if first { Self::Once(found) } else { Self::Twice };
        first
    }

    /// Its value; a fault where that is missing, with the reason and rule of the field.
    fn once(&self, field: &str, reason: Reason) -> Result<&Found<'a>, Fault> {
        match self {
            Self::Once(found) => Ok(found),
            Self::Absent => Err(Fault::new(reason, format!("{field} is missing"))),
            Self::Twice => Err(Fault::twice(field)),
        }
    }
}

/// The members of the batch.
#[derive(Default)]
struct Top<'a> {
    device_id: Place<'a>,
    batch_id: Place<'a>,
    epoch_id: Place<'a>,
    records: Place<'a>,
    extra: Vec<Member<'a>>,
    twice: Option<Fault>,
}

impl<'a> Top<'a> {
    fn read(text: &'a str) -> Self {
        let mut top = Self::default();
        let mut cursor = Cursor::new(text, 0);
        cursor.skip_blanks();
        cursor.step();
        while let Some(literal) = cursor.next_key() {
            let at = cursor.at();
            let found = Found { at, raw: cursor.value() };
            let key = unescape_lossy(literal);
            let place = match &*key {
                "device_id" => &mut top.device_id,
                "batch_id" => &mut top.batch_id,
                "epoch_id" => &mut top.epoch_id,
                "records" => &mut top.records,
                _ => {
                    top.extra.push((key, found.raw));
                    continue;
                }
            };
            if !place.set(found) && top.twice.is_none() {
                top.twice = Some(Fault::twice(&key));
            }
        }
        top
    }

    fn device_id(&self) -> Result<DeviceId, Fault> {
        let rule = "is not 1–64 of A-Z a-z 0-9 . _ : -";
        read_id(&self.device_id, "device_id", Reason::DeviceIdInvalid, rule, DeviceId::parse)
    }

    fn batch_id(&self) -> Result<BatchId, Fault> {
        let rule = "is not 1–128 printable ASCII characters";
        read_id(&self.batch_id, "batch_id", Reason::BatchIdInvalid, rule, BatchId::parse)
    }

    fn epoch_id(&self) -> Result<Option<EpochId>, Fault> {
        let Place::Once(found) = &self.epoch_id else {
            return Ok(None);
        };
        let sent = Scalar::from_json(found.raw).unwrap_or(Scalar::Other);
        if sent.is_nothing() {
            return Ok(None);
        }
        let epoch_id = sent.to_counter().and_then(EpochId::new).map(Some);
        epoch_id.ok_or_else(|| {
            let detail = format!("epoch_id {} is no integer 0 … 2^63−1", quoted(found.raw));
            Fault::new(Reason::EpochInvalid, detail)
        })
    }

    /// The fields that the contract does not name. A fault where any key stands twice, named or not.
    fn into_extra(mut self) -> Result<Option<Box<str>>, Fault> {
        self.twice.map_or(Ok(()), Err)?;
        // Lenient: nobody needs these to read the batch.
        canonical::object(&mut self.extra, None, Mode::Lenient)
    }
}

fn read_id<T>(
    place: &Place<'_>,
    field: &str,
    reason: Reason,
    rule: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<T, Fault> {
    let found = place.once(field, reason)?;
    let id = match Scalar::from_json(found.raw) {
        Ok(Scalar::Text(text)) => parse(&text),
        _ => None,
    };
    id.ok_or_else(|| Fault::new(reason, format!("{field} {} {rule}", quoted(found.raw))))
}

/// The array of records.
struct Elements<'a> {
    text: &'a str,
    first: Cursor<'a>,
}

impl<'a> Elements<'a> {
    fn find(text: &'a str, records: &Place<'a>) -> Result<Self, Fault> {
        let found = records.once("records", Reason::RecordsInvalid)?;
        if !found.raw.starts_with('[') {
            let detail = format!("records is no array but {}", quoted(found.raw));
            return Err(Fault::new(Reason::RecordsInvalid, detail));
        }
        Ok(Self { text, first: Cursor::new(text, found.at + 1) })
    }

    fn read(&self, body: &[u8], limits: &Limits) -> Result<(Vec<Record>, Vec<UnusableRecord>), Fault> {
        let count = self.count();
        if count > limits.records_max {
            let detail = format!("{count} records, at most {} are taken", limits.records_max);
            return Err(Fault::new(Reason::TooManyRecords, detail));
        }
        let (mut records, mut unusable) = (Vec::with_capacity(count), Vec::new());
        let mut origin = Origin::new(body);
        let mut fields = Fields::default();
        let mut cursor = self.first;
        for index in 0..count {
            cursor.next_element();
            let at = cursor.at();
            let element = cursor.value();
            match read_record(self.text, at, element, &mut fields, limits) {
                Ok(record) => records.push(record),
                Err(Fault { reason, detail }) => {
                    let range = origin.of(at)..origin.of(at + element.len());
                    let bytes = body.get(range).unwrap_or_default().to_vec();
                    let hash = hash(&bytes);
                    unusable.push(UnusableRecord { index, reason, detail, bytes, hash });
                }
            }
        }
        Ok((records, unusable))
    }

    fn count(&self) -> usize {
        let mut cursor = self.first;
        let mut count = 0;
        while cursor.next_element() {
            cursor.value();
            count += 1;
        }
        count
    }
}

/// The hash of one element, whatever its spelling.
fn hash(element: &[u8]) -> BodyHash {
    let mut text = String::new();
    let written = std::str::from_utf8(element)
        .is_ok_and(|element| canonical::write_value(element, &mut text, Mode::Lossless).is_ok());
    body_hash(if written { text.as_bytes() } else { element })
}

fn read_record<'a>(
    text: &'a str,
    at: usize,
    element: &'a str,
    fields: &mut Fields<'a>,
    limits: &Limits,
) -> Result<Record, Fault> {
    if !element.starts_with('{') {
        let detail = format!("the record is no object but {}", quoted(element));
        return Err(Fault::new(Reason::RecordInvalid, detail));
    }
    fields.clear();
    let mut cursor = Cursor::new(text, at + 1);
    while let Some(literal) = cursor.next_key() {
        let key = unescape(literal).ok_or_else(Fault::text)?;
        let raw = cursor.value();
        match Field::named(&key) {
            Some(field) => {
                *fields.place(field)? = Sent { scalar: Scalar::from_json(raw)?, raw: Some(raw) };
            }
            None => fields.push_extra((key, raw)),
        }
    }
    fields.finish(limits)
}
