//! The secrets of a running gateway.

use super::tokens::Tokens;
use crate::domain::signature::FleetKey;

/// All secrets, checked. `Debug` prints fingerprints only.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// Live fleet keys.
    pub fleet_keys: Vec<FleetKey>,
    /// Bearer tokens.
    pub tokens: Tokens,
}
