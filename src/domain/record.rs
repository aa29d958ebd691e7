//! A record: one measurement of a device, decoded.

use super::ids::Seq;
use super::time::Timestamp;

/// A position in degrees, WGS 84.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fix {
    /// Latitude, −90 … 90 degrees.
    pub lat: f64,
    /// Longitude, −180 … 180 degrees.
    pub lon: f64,
}

/// One measurement. Two records are an exact repeat when all of their decoded values are equal, which is
/// what `==` says: numbers as f64, `extra` and `raw` in their one canonical JSON spelling.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The device's counter, within its epoch.
    pub seq: Seq,
    /// The device's own time. Shown, never used to order anything.
    pub recorded_at: Option<Timestamp>,
    /// `None`: the receiver had no position.
    pub fix: Option<Fix>,
    /// Volts.
    pub battery: Option<f64>,
    /// Every other field as one JSON object in canonical spelling (keys sorted, no blanks); never `{}`.
    pub extra: Option<Box<str>>,
    /// Fields whose value could not be taken over, as a canonical JSON object; never `{}`: unusable optional ones
    /// as they were sent, and any other whose value is nested deeper than readers of JSON bear. Of the deep ones
    /// the value is a JSON string that holds their canonical text.
    pub raw: Option<Box<str>>,
}
