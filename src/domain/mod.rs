//! What the product is about, as plain values and rules: decoding with salvage, signatures, ordering, epochs,
//! and the one decision function. No I/O, no clock, no async, no SQL, no HTTP.

pub mod batch;
pub mod decide;
pub mod decode;
pub mod epoch;
pub mod ids;
pub mod reason;
pub mod receipt;
pub mod record;
pub mod signature;
pub mod span;
pub mod state;
pub mod time;
pub mod upload;
