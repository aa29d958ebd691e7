//! Tidegate: a satellite telemetry ingestion gateway. `ARCHITECTURE.md` is the map.

#[cfg(all(any(feature = "fault-equal-wins", feature = "fault-early-answer"), not(debug_assertions)))]
compile_error!("features fault-… plant faults on purpose: they are for test builds only");

pub mod app;
pub mod cli;
pub mod domain;
pub mod fleet;
pub mod http;
pub mod ops;
pub mod store;
