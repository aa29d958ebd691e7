//! Configuration: flags over environment over file, all checked at start-up with one clear line a fault.
//!
//! [`settings`] is the one table of what can be set; `source` merges the three sources; `read` checks a
//! value. This module is the only one that reads the environment ([`environment`]).

mod read;
pub mod settings;
mod source;

#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::time::Duration;

pub(crate) use self::read::Reader;
pub use self::settings::{SETTINGS, Setting};
pub use self::source::Flags;
use super::secrets::Configured;
use super::tls::TlsFiles;
use crate::domain::batch::Limits;
use crate::domain::decide::{Policy, QUARANTINE_ENTRY_BYTES, ReusedBatchId};
use crate::store::StoreOptions;
pub use crate::store::StoreUrl;
use crate::store::writer::WriterOptions;

/// How the HTTP side behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one setting of its own, as the file names it")]
pub struct HttpOptions {
    /// Most bytes of a body as sent.
    pub body_bytes_max: usize,
    /// Bytes of unfinished and waiting uploads together, as they stand in memory.
    pub inflight_bytes: usize,
    /// Most connections at once.
    pub connections_max: usize,
    /// Longest silence before and within a request's header.
    pub header_timeout: Duration,
    /// Longest silence between two pieces of a body.
    pub body_idle_timeout: Duration,
    /// How long a connection is kept for a next request.
    pub keepalive_timeout: Duration,
    /// Most requests of one connection.
    pub keepalive_requests: u32,
    /// Answer 200 where the contract says 202.
    pub success_status_200: bool,
    /// Answer uploads as if every one asked `Prefer: return=minimal`.
    pub minimal_answers: bool,
    /// Whether trackers may sign with the fleet key itself and leave `X-Device-Id` out.
    pub shared_fleet_key: bool,
    /// Whether session cookies are for https alone.
    pub session_secure: bool,
    /// How long SIGTERM waits for what is under way.
    pub drain: Duration,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            body_bytes_max: 1 << 20,
            inflight_bytes: 256 << 20,
            connections_max: 16_384,
            header_timeout: Duration::from_mins(2),
            body_idle_timeout: Duration::from_mins(5),
            keepalive_timeout: Duration::from_mins(3),
            keepalive_requests: 10_000,
            success_status_200: false,
            minimal_answers: false,
            shared_fleet_key: false,
            session_secure: false,
            drain: Duration::from_secs(10),
        }
    }
}

/// The whole configuration, checked, without the secrets.
#[derive(Clone, Debug)]
pub struct Config {
    /// Address to listen on.
    pub listen: String,
    /// With what to speak TLS; `None`: plain HTTP.
    pub tls: Option<TlsFiles>,
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

impl Config {
    /// The data directory: the folder of the database, where secrets are kept beside it.
    pub fn data_dir(&self) -> &Path {
        let StoreUrl::Sqlite(path) = &self.store;
        path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            tls: None,
            store: StoreUrl::Sqlite("data/tidegate.db".into()),
            limits: Limits::default(),
            store_options: StoreOptions::default(),
            writer: WriterOptions::default(),
            http: HttpOptions::default(),
        }
    }
}

/// One thing wrong with the configuration. Never holds a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The setting, or the file.
    pub key: String,
    /// What is wrong and what would be right.
    pub text: String,
}

impl Fault {
    /// A fault of one setting.
    pub fn new(key: impl Into<String>, text: impl Into<String>) -> Self {
        Self { key: key.into(), text: text.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.text)
    }
}

/// What loading gives.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The checked configuration.
    pub config: Config,
    /// Which lines to log, as `tracing-subscriber`'s env-filter reads it.
    pub log: String,
    /// Those secrets that are configured, checked; the others come from the data directory.
    pub secrets: Configured,
    /// What is legal but probably not meant, a line each.
    pub warnings: Vec<String>,
    /// Every setting as `name = value`, in the order of the table; of secrets only how many.
    pub effective: Vec<String>,
}

/// The process's environment.
pub fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    let variables = std::env::vars_os();
    variables
}

/// Merges flags over `environment` over the file, and checks everything. All faults are told, not the first.
///
/// The file is the one that the flags name, which then must be there, or else `tidegate.toml` in the folder
/// `here`, if there is one.
pub fn load(
    flags: &Flags,
    environment: impl IntoIterator<Item = (OsString, OsString)>,
    here: &Path,
) -> Result<Loaded, Vec<Fault>> {
    let merged = source::merge(flags, environment, here);
    let mut reader = Reader::new(merged.values, merged.faults);
    let config = read_config(&mut reader);
    let log = reader.filter("log", "info");
    let secrets = Configured::read(&mut reader);
    check_together(&config, &mut reader);
    let mut warnings = merged.warnings;
    if config.limits.decoded_bytes_max < config.http.body_bytes_max {
        warnings.push(
            "decoded_bytes_max is less than body_bytes_max: larger bodies are taken, then quarantined"
                .to_owned(),
        );
    }
    if secrets.has_lanes() {
        warnings.push("this version has no webhook lanes: their secrets are checked and not used".to_owned());
    }
    let effective = SETTINGS.iter().map(|setting| reader.describe(setting)).collect();
    let faults = reader.into_faults();
    if faults.is_empty() { Ok(Loaded { config, log, secrets, warnings, effective }) } else { Err(faults) }
}

fn read_config(reader: &mut Reader) -> Config {
    let default = Config::default();
    let tls = read_tls(reader);
    Config {
        listen: reader.address("listen", &default.listen),
        store: reader.store("store", default.store),
        limits: read_limits(reader, &default.limits),
        store_options: read_store_options(reader, &default.store_options),
        writer: read_writer(reader, &default.writer),
        http: read_http(reader, &default.http, tls.is_some()),
        tls,
    }
}

/// Both files or neither. Whether they can be used shows when they are read, at start.
fn read_tls(reader: &mut Reader) -> Option<TlsFiles> {
    match (reader.path("tls_cert"), reader.path("tls_key")) {
        (Some(cert), Some(key)) => return Some(TlsFiles { cert, key }),
        (None, None) => {}
        (Some(_), None) => reader.fault("tls_key", "is not set, but tls_cert is: TLS needs both"),
        (None, Some(_)) => reader.fault("tls_cert", "is not set, but tls_key is: TLS needs both"),
    }
    None
}

fn read_limits(reader: &mut Reader, default: &Limits) -> Limits {
    Limits {
        decoded_bytes_max: reader.size("decoded_bytes_max", 1 << 10..=1 << 30, default.decoded_bytes_max),
        records_max: reader.size("records_max", 1..=1_000_000, default.records_max),
        zero_position: reader.flag("allow_zero_position", default.zero_position),
    }
}

fn read_store_options(reader: &mut Reader, default: &StoreOptions) -> StoreOptions {
    let policy = &default.policy;
    StoreOptions {
        policy: Policy {
            reused_batch_id: reader.choice(
                "reused_batch_id",
                &[("quarantine", ReusedBatchId::Quarantine), ("ingest", ReusedBatchId::Ingest)],
                policy.reused_batch_id,
            ),
            quarantine_bytes_max: reader.number(
                "quarantine_bytes_max",
                1 << 10..=1 << 40,
                policy.quarantine_bytes_max,
            ),
            guard_days: reader.number("guard_days", 1..=365, policy.guard_days),
        },
        busy_timeout: reader.seconds("busy_timeout_s", 1..=300, default.busy_timeout),
        cache_bytes: reader.number("sqlite_cache_bytes", 1 << 20..=1 << 34, default.cache_bytes),
        checkpoint_pages: reader.number("sqlite_checkpoint_pages", 16..=1 << 20, default.checkpoint_pages),
        readers: reader.size("readers", 1..=64, default.readers),
    }
}

fn read_writer(reader: &mut Reader, default: &WriterOptions) -> WriterOptions {
    WriterOptions {
        queue_uploads_max: reader.size("queue_uploads_max", 1..=1_000_000, default.queue_uploads_max),
        queue_bytes_max: reader.size("queue_bytes_max", 1 << 10..=1 << 34, default.queue_bytes_max),
        patience: reader.seconds("queue_patience_s", 1..=300, default.patience),
        group_uploads_max: reader.size("group_uploads_max", 1..=10_000, default.group_uploads_max),
        group_bytes_max: reader.size("group_bytes_max", 1 << 10..=1 << 30, default.group_bytes_max),
    }
}

fn read_http(reader: &mut Reader, default: &HttpOptions, tls: bool) -> HttpOptions {
    HttpOptions {
        body_bytes_max: reader.size("body_bytes_max", 1 << 10..=1 << 28, default.body_bytes_max),
        inflight_bytes: reader.size("inflight_bytes", 1 << 10..=1 << 36, default.inflight_bytes),
        connections_max: reader.size("connections_max", 1..=1_000_000, default.connections_max),
        header_timeout: reader.seconds("header_timeout_s", 1..=3600, default.header_timeout),
        body_idle_timeout: reader.seconds("body_idle_timeout_s", 1..=86_400, default.body_idle_timeout),
        keepalive_timeout: reader.seconds("keepalive_timeout_s", 1..=86_400, default.keepalive_timeout),
        keepalive_requests: reader.number(
            "keepalive_requests",
            1..=1_000_000_000,
            default.keepalive_requests,
        ),
        success_status_200: reader.choice(
            "success_status",
            &[("202", false), ("200", true)],
            default.success_status_200,
        ),
        minimal_answers: reader.flag("minimal_answers", default.minimal_answers),
        shared_fleet_key: reader.flag("shared_fleet_key", default.shared_fleet_key),
        // Over TLS there is no reason to let the cookie travel in clear.
        session_secure: reader.flag("session_secure", default.session_secure) || tls,
        drain: reader.seconds("drain_s", 1..=3600, default.drain),
    }
}

/// A bound that the largest allowed body cannot pass would refuse it for ever: no retry would help.
fn check_together(config: &Config, reader: &mut Reader) {
    let body = config.http.body_bytes_max;
    for (key, bytes) in
        [("inflight_bytes", config.http.inflight_bytes), ("queue_bytes_max", config.writer.queue_bytes_max)]
    {
        if bytes < body {
            reader.fault(
                key,
                format!(
                    "is {bytes}, less than body_bytes_max ({body}): no body of that size could ever pass"
                ),
            );
        }
    }
    // Every record of a body may be unusable, and each is an entry of its own; none is shorter than `1,`.
    let entries = config.limits.records_max.min(body / 2).max(1);
    let whole = u64::try_from(body).unwrap_or(u64::MAX);
    let entries = u64::try_from(entries).unwrap_or(u64::MAX).saturating_mul(QUARANTINE_ENTRY_BYTES);
    let (needed, quarantine) =
        (whole.saturating_add(entries), config.store_options.policy.quarantine_bytes_max);
    if quarantine < needed {
        reader.fault(
            "quarantine_bytes_max",
            format!(
                "is {quarantine}, less than {needed}, what one body of unusable records can fill: it could never pass"
            ),
        );
    }
}
