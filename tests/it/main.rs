//! The integration tests: one binary, because every further one would link the whole program again.

#[cfg(any(feature = "fault-equal-wins", feature = "fault-early-answer"))]
compile_error!("a gateway with a planted fault is for the test of `simulate` alone, which builds it itself");

mod clients;
mod contract;
mod http;
mod process;
mod store;
mod support;
