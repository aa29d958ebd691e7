//! A fleet made up from a seed: trackers on open water and the batches they upload. The same seed gives the
//! same bytes on every machine, so a run can be done again. No I/O and no clock.
//!
//! Shared by what plays a fleet: the simulation, its test and the benches.

mod encoding;
mod ledger;
mod parcel;
mod random;
mod reading;
mod rename;
mod script;
mod spell;
mod tracker;
mod voyage;

pub use encoding::{Compression, Encoding, NotEncodable};
pub use ledger::{Account, Ledger, TrackCheck};
pub use parcel::Parcel;
pub use random::Random;
pub use reading::{Reading, Style};
pub use rename::rename;
pub use script::{Delivery, Encodings, Fate, Rates, Role, Script};
pub use spell::spell;
pub use tracker::Tracker;
