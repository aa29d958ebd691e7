//! The one table of what can be set: flags, environment names, file keys, their help and the example file's
//! test all come from it.

/// One thing that can be set: `name = …` in the file, `TIDEGATE_NAME` in the environment, and, unless it is
/// a secret (the list of processes shows flags to everybody), `--name` with hyphens.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in the file.
    pub name: &'static str,
    /// Its default as the file would spell it; `None` for secrets.
    pub default: Option<&'static str>,
    /// One line of help.
    pub help: &'static str,
}

impl Setting {
    /// The name in the environment.
    pub fn environment_name(&self) -> String {
        format!("TIDEGATE_{}", self.name.to_ascii_uppercase())
    }

    /// The name as a flag, without the two hyphens in front.
    pub fn flag_name(&self) -> String {
        self.name.replace('_', "-")
    }

    /// Whether its value must never be shown.
    pub const fn is_secret(&self) -> bool {
        self.default.is_none()
    }
}

const fn plain(name: &'static str, default: &'static str, help: &'static str) -> Setting {
    Setting { name, default: Some(default), help }
}

const fn secret(name: &'static str, help: &'static str) -> Setting {
    Setting { name, default: None, help }
}

/// All settings, in the order of the example file.
pub const SETTINGS: &[Setting] = &[
    plain("listen", "\"127.0.0.1:8080\"", "Address and port to listen on; port 0 takes a free one"),
    plain("tls_cert", "\"\"", "Certificate and chain (PEM) to speak https with; empty: plain http"),
    plain("tls_key", "\"\"", "Private key (PEM) of tls_cert; empty: plain http"),
    plain("store", "\"sqlite:data/tidegate.db\"", "The store; the folder of the file is the data directory"),
    plain(
        "log",
        "\"info\"",
        "What to log: error, warn, info, debug, or per module as in info,tidegate::store=debug",
    ),
    secret("fleet_keys", "Live fleet keys: whsec_<base64> or plain text of at least 16 bytes"),
    secret("seal_keys", "Keys that seal device keys at rest; the first seals, all open"),
    secret("admin_tokens", "Bearer tokens that may read and change: token or name:token"),
    secret("read_tokens", "Bearer tokens that may read: token or name:token"),
    secret("presence_secrets", "Secrets of the presence lane; none: the lane is off"),
    secret("resources_secrets", "Secrets of the resources lane; none: the lane is off"),
    secret("documents_secrets", "Secrets of the documents lane; none: the lane is off"),
    plain(
        "shared_fleet_key",
        "false",
        "Let trackers sign with the fleet key itself and leave X-Device-Id out",
    ),
    plain(
        "success_status",
        "202",
        "Status for what went to quarantine: 202, or 200 for firmware that tests == 200",
    ),
    plain("minimal_answers", "false", "Answer every upload as if it asked Prefer: return=minimal"),
    plain(
        "allow_zero_position",
        "false",
        "Take exactly 0,0 as a position instead of a receiver without a fix",
    ),
    plain(
        "reused_batch_id",
        "\"quarantine\"",
        "A known batch id with new content: quarantine it, or ingest its new records",
    ),
    plain(
        "session_secure",
        "false",
        "Browsers send session cookies over https alone; true behind a TLS proxy, and always with tls_cert",
    ),
    plain("guard_days", "7", "Days after which the guard of a new epoch falls by itself"),
    plain("body_bytes_max", "1048576", "Most bytes of a body as sent"),
    plain("decoded_bytes_max", "16777216", "Most bytes of a body after decompression"),
    plain("records_max", "10000", "Most records of a batch"),
    plain("quarantine_bytes_max", "67108864", "Most bytes of distinct quarantined bodies of one device"),
    plain(
        "inflight_bytes",
        "268435456",
        "Most bytes of unfinished and waiting uploads together, as they stand in memory",
    ),
    plain("connections_max", "16384", "Most connections at once; idle ones make room for new ones"),
    plain("header_timeout_s", "120", "Longest silence before and within the header of a request, in seconds"),
    plain("body_idle_timeout_s", "300", "Longest silence between two pieces of a body, in seconds"),
    plain(
        "keepalive_timeout_s",
        "180",
        "Seconds that a connection is kept for a next request; more than a proxy in front keeps it",
    ),
    plain("keepalive_requests", "10000", "Most requests of one connection"),
    plain("drain_s", "10", "Seconds that a shutdown waits for what is under way"),
    plain("queue_uploads_max", "8192", "Most uploads waiting for the store"),
    plain(
        "queue_bytes_max",
        "67108864",
        "Most bytes of uploads waiting for the store, as they stand in memory",
    ),
    plain("queue_patience_s", "5", "Seconds an upload waits for a place in the queue before it gets 503"),
    plain("group_uploads_max", "512", "Most uploads of one transaction"),
    plain(
        "group_bytes_max",
        "8388608",
        "Most bytes of the uploads of one transaction, as they stand in memory",
    ),
    plain("busy_timeout_s", "5", "Seconds to wait for a database that somebody else holds"),
    plain("sqlite_cache_bytes", "16777216", "Bytes of page cache of the writing connection"),
    plain("sqlite_checkpoint_pages", "8000", "Pages of the write-ahead log at which they are written back"),
    plain("readers", "4", "Readers of the store at work at once"),
];

/// The setting of a name.
pub fn lookup(name: &str) -> Option<&'static Setting> {
    SETTINGS.iter().find(|setting| setting.name == name)
}

/// The setting whose name is nearest to a misspelled one; `None` where none is near.
pub fn nearest(name: &str) -> Option<&'static Setting> {
    let folded = name.to_ascii_lowercase().replace('-', "_");
    SETTINGS
        .iter()
        .map(|setting| (distance(&folded, setting.name), setting))
        .filter(|(distance, setting)| *distance <= (setting.name.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, setting)| setting)
}

/// Levenshtein's distance in bytes, of names cut to 64 so that a hostile file costs nothing.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (&a.as_bytes()[..a.len().min(64)], &b.as_bytes()[..b.len().min(64)]);
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let swap = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = swap.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
