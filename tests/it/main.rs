//! The integration tests: one binary, because every further one would link the whole program again.

mod http;
mod store;
mod support;
