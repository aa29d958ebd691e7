//! A fleet made up from a seed: trackers on open water and the batches they upload. The same seed gives the
//! same bytes on every machine, so a run can be done again. No I/O and no clock.
//!
//! Shared by what plays a fleet: the simulation, its test and the benches.

mod encoding;
mod random;
mod rename;
mod spell;
mod tracker;
mod voyage;

pub use encoding::{Compression, Encoding, NotEncodable};
pub use random::Random;
pub use rename::rename;
pub use spell::spell;
pub use tracker::Tracker;
