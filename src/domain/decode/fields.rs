//! The rules for the fields of one record, shared by both passes.

use std::borrow::Cow;
use std::mem;

use super::canonical::{self, Kept, Member, Mode};
use super::fault::{Fault, quoted};
use super::scalar::Scalar;
use super::when;
use crate::domain::batch::Limits;
use crate::domain::ids::Seq;
use crate::domain::reason::Reason;
use crate::domain::record::{Fix, Record};

/// AIS for "no position".
const AIS_NO_POSITION: (f64, f64) = (91.0, 181.0);

/// A field of a record that the contract names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Seq,
    RecordedAt,
    Lat,
    Lon,
    Battery,
}

impl Field {
    /// The field of a key; `None`: the key goes to `extra`.
    pub(super) fn named(key: &str) -> Option<Self> {
        Some(match key {
            "seq" => Self::Seq,
            "recorded_at" => Self::RecordedAt,
            "lat" => Self::Lat,
            "lon" => Self::Lon,
            "battery" => Self::Battery,
            _ => return None,
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Seq => "seq",
            Self::RecordedAt => "recorded_at",
            Self::Lat => "lat",
            Self::Lon => "lon",
            Self::Battery => "battery",
        }
    }
}

/// A value as sent.
#[derive(Debug, Default)]
pub(super) struct Sent<'a> {
    /// What it says.
    pub(super) scalar: Scalar<'a>,
    /// Its text. The quick pass has none, and gives up where one is needed.
    pub(super) raw: Option<&'a str>,
}

/// The members of one record while it is read; used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Fields<'a> {
    seq: Sent<'a>,
    recorded_at: Sent<'a>,
    lat: Sent<'a>,
    lon: Sent<'a>,
    battery: Sent<'a>,
    extra: Vec<Member<'a>>,
}

impl<'a> Fields<'a> {
    /// Where the value of a named field goes; a fault if one stands there already. Values are written in
    /// place, since moving them costs the quick pass more than reading them.
    pub(super) fn place(&mut self, field: Field) -> Result<&mut Sent<'a>, Fault> {
        let place = match field {
            Field::Seq => &mut self.seq,
            Field::RecordedAt => &mut self.recorded_at,
            Field::Lat => &mut self.lat,
            Field::Lon => &mut self.lon,
            Field::Battery => &mut self.battery,
        };
        match place.scalar {
            Scalar::Absent => Ok(place),
            _ => Err(Fault::twice(field.name())),
        }
    }

    /// Takes any other member.
    pub(super) fn push_extra(&mut self, member: Member<'a>) {
        self.extra.push(member);
    }

    /// Forgets what was taken.
    pub(super) fn clear(&mut self) {
        let mut extra = mem::take(&mut self.extra);
        extra.clear();
        *self = Self { extra, ..Self::default() };
    }

    /// Applies the rules to what was taken.
    pub(super) fn finish(&mut self, limits: &Limits) -> Result<Record, Fault> {
        // Values of other fields that are nested too deep for most readers, and unusable optional ones.
        let mut kept = Vec::new();
        let extra = if self.extra.is_empty() {
            None
        } else {
            canonical::object(&mut self.extra, Some(&mut kept), Mode::Strict)?
        };
        let seq = read_seq(&self.seq)?;
        let fix = read_fix(&self.lat, &self.lon, limits)?;
        let when = when::read(&self.recorded_at.scalar);
        let battery = self.battery.scalar.to_number();
        if battery.is_none() && !self.battery.scalar.is_nothing() {
            kept.push(keep(Field::Battery, &self.battery)?);
        }
        if !when.whole {
            kept.push(keep(Field::RecordedAt, &self.recorded_at)?);
        }
        let raw = canonical::kept_object(kept);
        Ok(Record { seq, recorded_at: when.time, fix, battery, extra, raw })
    }
}

fn read_seq(sent: &Sent<'_>) -> Result<Seq, Fault> {
    sent.scalar
        .to_counter()
        .and_then(Seq::new)
        .ok_or_else(|| refuse(Reason::SeqInvalid, Field::Seq, sent, "is no integer 0 … 2^63−1"))
}

/// Reads the position: `None` where the receiver had none.
fn read_fix(lat: &Sent<'_>, lon: &Sent<'_>, limits: &Limits) -> Result<Option<Fix>, Fault> {
    if lat.scalar.is_nothing() && lon.scalar.is_nothing() {
        return Ok(None);
    }
    let number = |field, sent: &Sent<'_>| {
        let fault = || refuse(Reason::PositionInvalid, field, sent, "is no number");
        sent.scalar.to_number().ok_or_else(fault)
    };
    let fix = Fix { lat: number(Field::Lat, lat)?, lon: number(Field::Lon, lon)? };
    let pair = (fix.lat, fix.lon);
    if pair == AIS_NO_POSITION || (pair == (0.0, 0.0) && !limits.zero_position) {
        return Ok(None);
    }
    let within = |field, sent, degrees: f64, most: f64| {
        let fault = || refuse(Reason::PositionInvalid, field, sent, "is out of range");
        (degrees.abs() <= most).then_some(()).ok_or_else(fault)
    };
    within(Field::Lat, lat, fix.lat, 90.0)?;
    within(Field::Lon, lon, fix.lon, 180.0)?;
    Ok(Some(fix))
}

fn refuse(reason: Reason, field: Field, sent: &Sent<'_>, why: &str) -> Fault {
    let name = field.name();
    let detail = match (&sent.scalar, sent.raw) {
        (Scalar::Absent, _) => format!("{name} is missing"),
        (_, Some(raw)) => format!("{name} {} {why}", quoted(raw)),
        (_, None) => format!("{name} {why}"),
    };
    Fault::new(reason, detail)
}

/// An optional field's unusable value, as it goes under `raw`.
fn keep<'a>(field: Field, sent: &Sent<'_>) -> Result<Kept<'a>, Fault> {
    let text = match (&sent.scalar, sent.raw) {
        (Scalar::Text(text), _) => canonical::string(text),
        (_, Some(text)) => canonical::kept(text)?,
        // Only the quick pass gets here; its faults are never shown.
        (_, None) => return Err(Fault::new(Reason::InternalError, "the sent text is needed")),
    };
    Ok((Cow::Borrowed(field.name()), text))
}
