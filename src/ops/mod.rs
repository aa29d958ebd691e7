//! What running the gateway takes: configuration, secrets, certificate, tokens, clock, logging, metrics, limits.

pub mod clock;
pub mod config;
pub mod descriptors;
pub mod logging;
pub mod metrics;
pub mod secrets;
pub mod session;
pub mod tls;
pub mod tokens;
