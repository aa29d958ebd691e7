//! The reference trackers of `clients/` against the real binary, behind a link that loses a third of everything.

mod c;
mod course;
mod delivery;
mod micropython;
mod python;
mod readme;

use std::path::{Path, PathBuf};

/// A file or folder of the reference trackers.
fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("clients").join(name)
}
