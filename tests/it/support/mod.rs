//! What several tests need: a tracker that signs, a clock reading, a store in a temporary folder, the binary as a
//! child process and a connection to it.

pub(crate) mod bed;
pub(crate) mod gateway;
pub(crate) mod link;
pub(crate) mod lossy_proxy;
pub(crate) mod tls;
pub(crate) mod tracker;

use tidegate::domain::ids::{DeviceId, EpochId, Key, Seq};
use tidegate::domain::time::Timestamp;

/// 2026-03-31T04:12:00Z, when the tests begin.
pub(crate) const BEGIN: i64 = 1_774_930_320;

/// Seconds after [`BEGIN`].
pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_seconds(BEGIN + second).expect("in range")
}

pub(crate) fn device(id: &str) -> DeviceId {
    DeviceId::parse(id).expect("a device id")
}

pub(crate) fn key(epoch_id: u64, seq: u64) -> Key {
    Key { epoch_id: EpochId::new(epoch_id).expect("in range"), seq: Seq::new(seq).expect("in range") }
}
