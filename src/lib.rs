//! Tidegate: a satellite telemetry ingestion gateway. `ARCHITECTURE.md` is the map.

pub mod app;
pub mod cli;
pub mod domain;
pub mod fleet;
pub mod http;
pub mod ops;
pub mod store;
