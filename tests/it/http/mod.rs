//! The gateway over real sockets and a real disk.

mod connections;
mod encodings;
pub(crate) mod harness;
mod ingest;
mod read;
mod reload;
mod session;
mod shutdown;
mod status;
mod track;
