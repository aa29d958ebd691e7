//! Configuration: flags over environment over file.

use std::path::PathBuf;
use std::time::Duration;

use crate::domain::batch::Limits;
use crate::store::StoreOptions;
use crate::store::writer::WriterOptions;

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `sqlite:PATH`; its folder is the data directory.
    Sqlite(PathBuf),
}

/// How the HTTP side behaves.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Most bytes of a body as sent.
    pub body_bytes_max: usize,
    /// Bytes of unfinished and waiting bodies together.
    pub inflight_bytes: usize,
    /// Most connections at once.
    pub connections_max: usize,
    /// Time to receive a request's header.
    pub header_timeout: Duration,
    /// Longest silence between two pieces of a body.
    pub body_idle_timeout: Duration,
    /// Answer 200 where the contract says 202.
    pub success_status_200: bool,
    /// Answer uploads as if every one asked `Prefer: return=minimal`.
    pub minimal_answers: bool,
    /// Whether trackers may sign with the fleet key itself and leave `X-Device-Id` out.
    pub shared_fleet_key: bool,
    /// How long SIGTERM waits for what is under way.
    pub drain: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            body_bytes_max: 1 << 20,
            inflight_bytes: 256 << 20,
            connections_max: 16_384,
            header_timeout: Duration::from_secs(120),
            body_idle_timeout: Duration::from_secs(300),
            success_status_200: false,
            minimal_answers: false,
            shared_fleet_key: false,
            drain: Duration::from_secs(10),
        }
    }
}

/// The whole configuration, checked, without the secrets.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on.
    pub listen: String,
    /// The store.
    pub store: StoreUrl,
    /// Decoding bounds.
    pub limits: Limits,
    /// Store choices.
    pub store_options: StoreOptions,
    /// Queue bounds.
    pub writer: WriterOptions,
    /// HTTP behaviour.
    pub http: HttpOptions,
}
