//! One upload, packed: the bytes that are sent again and again until they are acknowledged.

use std::fmt::Write as _;

use super::encoding::{Encoding, NotEncodable};
use super::reading::{Reading, Style};
use crate::domain::ids::{BatchId, DeviceId, EpochId};

/// A batch as it travels.
#[derive(Clone, Debug, PartialEq)]
pub struct Parcel {
    /// Its name, a new one for each parcel of a device.
    pub batch_id: BatchId,
    /// The epoch it names; `None`: it is implicit.
    pub epoch_id: Option<EpochId>,
    /// What is in it, in the order of the body.
    pub readings: Vec<Reading>,
    /// The bytes.
    pub body: Vec<u8>,
}

impl Parcel {
    /// Packs readings.
    pub fn pack(
        device_id: &DeviceId,
        batch_id: BatchId,
        epoch_id: Option<EpochId>,
        readings: Vec<Reading>,
        style: Style,
        encoding: Encoding,
    ) -> Result<Self, NotEncodable> {
        // Writing to a String cannot fail; neither id holds a quote.
        let mut text = format!("{{\"device_id\":\"{device_id}\",\"batch_id\":\"{batch_id}\"");
        if let Some(epoch_id) = epoch_id {
            let _ = match style {
                Style::Plain => write!(text, ",\"epoch_id\":{epoch_id}"),
                Style::Loose => write!(text, ",\"epoch_id\":\"{epoch_id}\""),
            };
        }
        text.push_str(",\"records\":[");
        for (index, reading) in readings.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            reading.spell(style, &mut text);
        }
        text.push_str("]}");
        Ok(Self { batch_id, epoch_id, readings, body: encoding.encode(text.as_bytes())? })
    }

    /// Whether part of it goes to quarantine.
    pub fn has_unusable(&self) -> bool {
        self.readings.iter().any(|reading| reading.record().is_none())
    }
}
