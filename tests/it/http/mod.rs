//! The gateway over real sockets and a real disk.

mod connections;
mod deadlines;
mod encodings;
pub(crate) mod harness;
mod hostile;
mod ingest;
mod read;
mod reload;
mod session;
mod shutdown;
mod status;
mod tls;
mod track;
