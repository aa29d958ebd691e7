//! What running the gateway takes: configuration, secrets, tokens, clock, logging, metrics.

pub mod clock;
pub mod config;
pub mod logging;
pub mod metrics;
pub mod secrets;
pub mod session;
pub mod tokens;
