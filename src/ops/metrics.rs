//! Metrics: one registry a gateway, no global state.
