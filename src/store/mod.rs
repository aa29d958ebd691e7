//! The store: one trait with one method a domain transaction, and its backends.
//!
//! Every method blocks. Writing ones are called from the writer's own thread (`store::writer`), reading ones
//! from threads that may block; so neither backend's driver decides what executor the rest runs on, and a
//! backend with an asynchronous driver waits for it inside. Each doc line below is a promise that the
//! conformance suite checks on every backend.

pub mod error;
pub mod open;
mod sqlite;
pub mod types;
pub mod writer;

use crate::domain::ids::DeviceId;
use crate::domain::receipt::Receipt;
use crate::domain::signature::KeyFingerprint;
use crate::domain::upload::Upload;

pub use error::{StoreError, StoreErrorKind};
pub use open::StoreUrl;
pub use types::{Device, DevicePage, Entry, StoreOptions, TimeRange, TrackPage, TrackQuery, Verification};

/// Where uploads, states and history live.
pub trait Store: Send + Sync + std::fmt::Debug {
    /// Commits a group of uploads in one transaction, in the order given: for each the batch id, its log
    /// entries and the swap of the current state together, or nothing of it.
    ///
    /// Returns one result an upload, in the same order, and only after the commit is on disk. An upload that
    /// alone cannot be stored fails alone; its neighbours are stored. A failed commit is told to all.
    fn commit_uploads(&self, group: &[Upload]) -> Vec<Result<Receipt, StoreError>>;

    /// Housekeeping that must not delay an answer; called after the answers of a group are out.
    fn maintain(&self) -> Result<(), StoreError>;

    /// Proves that a commit would reach the disk now.
    fn check_writable(&self) -> Result<(), StoreError>;

    /// Remembers the fingerprints of the fleet keys that are live now. Returns `false`, and remembers nothing,
    /// if there are devices and none of the live keys was remembered before: all of them would be locked out.
    fn adopt_fleet_keys(&self, live: &[KeyFingerprint]) -> Result<bool, StoreError>;

    /// Whether any device is known.
    fn has_devices(&self) -> Result<bool, StoreError>;

    /// A device's state and the facts beside it; `None` if it was never seen.
    fn lookup_device(&self, id: &DeviceId) -> Result<Option<Device>, StoreError>;

    /// Devices with ids behind `after`, in order of their id's bytes, at most `limit`.
    fn list_devices(&self, after: Option<&DeviceId>, limit: usize) -> Result<DevicePage, StoreError>;

    /// Counting entries of a device in key order, each key once; `None` if the device was never seen.
    fn list_track(&self, id: &DeviceId, query: &TrackQuery) -> Result<Option<TrackPage>, StoreError>;

    /// Checks the law and the books, device by device, while uploads go on. `progress` is called with the
    /// number of devices checked so far and of all.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Verification, StoreError>;
}
