//! A batch as decoded: its usable records, and what could not be used.

use super::ids::{BatchId, DeviceId, EpochId};
use super::reason::Reason;
use super::record::Record;
use super::upload::BodyHash;

/// A body that could be read as a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The device that the body names.
    pub device_id: DeviceId,
    /// The device's name for this batch.
    pub batch_id: BatchId,
    /// `Some`: the batch is explicit. `None`: it is implicit and goes to the current epoch.
    pub epoch_id: Option<EpochId>,
    /// The usable records, in the order they stood in the body.
    pub records: Vec<Record>,
    /// Records that go to quarantine, in the order they stood in the body.
    pub unusable: Vec<UnusableRecord>,
    /// Top-level fields the contract does not name, as a canonical JSON object; never `{}`. Where a value is
    /// nested deeper than readers of JSON bear, a string that holds its text.
    pub extra: Option<Box<str>>,
}

/// One element of `records` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableRecord {
    /// Its place in the array, from 0.
    pub index: usize,
    /// Why.
    pub reason: Reason,
    /// The same for a person: which field, which value.
    pub detail: String,
    /// The bytes of this element as they stood in the decoded body; of CBOR, as its JSON.
    pub bytes: Vec<u8>,
    /// Hash of its canonical spelling, so that it is one and the same in every form a batch travels in; of the
    /// bytes where they have no such spelling.
    pub hash: BodyHash,
}

/// An authentic body that cannot be read as a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Why.
    pub reason: Reason,
    /// The same for a person: where and what.
    pub detail: String,
    /// The device that the body names, if that much could be read.
    pub device_id: Option<DeviceId>,
    /// Its batch id, if that much could be read.
    pub batch_id: Option<BatchId>,
}

/// Bounds and choices for decoding.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Most bytes of a body after decompression, and of the JSON it comes to where it is CBOR.
    pub decoded_bytes_max: usize,
    /// Most records of a batch.
    pub records_max: usize,
    /// Whether exactly 0,0 is a position (off: it is a receiver's mark for "no position").
    pub zero_position: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { decoded_bytes_max: 16 << 20, records_max: 10_000, zero_position: false }
    }
}
