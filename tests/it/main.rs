//! The integration tests: one binary, because every further one would link the whole program again.

mod clients;
mod contract;
mod http;
mod process;
mod store;
mod support;
