//! Sources and their order, every bound, and the example file.

use super::settings::nearest;
use super::*;

const EXAMPLE: &str = include_str!("../../../tidegate.example.toml");
const SECRET: &str = "not-to-be-printed";

fn env(pairs: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

/// Loads with a file of this text (none if empty).
fn load_with(file: &str, pairs: &[(&str, &str)], flags: &Flags) -> Result<Loaded, Vec<String>> {
    let here = tempfile::tempdir().expect("a folder");
    if !file.is_empty() {
        std::fs::write(here.path().join("tidegate.toml"), file).expect("a file");
    }
    load(flags, env(pairs), here.path()).map_err(|faults| faults.iter().map(Fault::to_string).collect())
}

fn faults(file: &str, pairs: &[(&str, &str)]) -> Vec<String> {
    let faults = load_with(file, pairs, &Flags::default()).expect_err("refused");
    assert!(!faults.iter().any(|fault| fault.contains(SECRET) || fault.contains('\n')), "{faults:?}");
    faults
}

/// The example with its settings switched on.
fn switched_on(wanted: impl Fn(&Setting) -> bool) -> String {
    let setting_of = |line: &str| settings::lookup(line.strip_prefix('#')?.split_once(" = ")?.0);
    EXAMPLE
        .lines()
        .filter(|line| setting_of(line).is_some_and(&wanted))
        .flat_map(|line| [&line[1..], "\n"])
        .collect()
}

#[test]
fn nothing_set_gives_the_defaults() {
    let loaded = load_with("", &[], &Flags::default()).expect("loads");
    assert_eq!(format!("{:?}", loaded.config), format!("{:?}", Config::default()));
    assert_eq!(loaded.log, "info");
    assert_eq!(loaded.warnings, Vec::<String>::new());
    assert_eq!(loaded.effective.len(), SETTINGS.len());
}

#[test]
fn the_example_names_every_setting_with_its_default() {
    let text = switched_on(|_| true);
    for setting in SETTINGS {
        let named = text.lines().filter(|line| line.starts_with(&format!("{} = ", setting.name))).count();
        assert_eq!(named, 1, "{}", setting.name);
        if let Some(default) = setting.default {
            assert!(text.contains(&format!("{} = {default}\n", setting.name)), "{}", setting.name);
        }
    }
    let plain =
        load_with(&switched_on(|setting| !setting.is_secret()), &[], &Flags::default()).expect("loads");
    assert_eq!(format!("{:?}", plain.config), format!("{:?}", Config::default()));
    assert_eq!(plain.log, "info");
    let refused = faults(&switched_on(Setting::is_secret), &[]);
    assert_eq!(refused.len(), 7, "nobody runs on the example's secrets: {refused:?}");
    load_with(EXAMPLE, &[], &Flags::default()).expect("as it stands it sets nothing");
}

#[test]
fn flags_win_over_environment_over_file() {
    let file = "readers = 2\nguard_days = 2\ndrain_s = 2\n";
    let pairs = [("TIDEGATE_GUARD_DAYS", "3"), ("TIDEGATE_DRAIN_S", "3"), ("HOME", "x")];
    let flags = Flags { config: None, values: vec![("drain_s", "4".to_owned())] };
    let config = load_with(file, &pairs, &flags).expect("loads").config;
    assert_eq!(config.store_options.readers, 2);
    assert_eq!(config.store_options.policy.guard_days, 3);
    assert_eq!(config.http.drain, Duration::from_secs(4));
}

#[test]
fn every_setting_is_read() {
    let file = r#"
        listen = "[::]:0"
        tls_cert = "/etc/t/cert.pem"
        tls_key = "/etc/t/key.pem"
        store = "sqlite:/var/lib/t.db"
        shared_fleet_key = true
        success_status = 200
        minimal_answers = true
        allow_zero_position = true
        reused_batch_id = "ingest"
        session_secure = true
        guard_days = 1
        body_bytes_max = 2048
        decoded_bytes_max = 4096
        records_max = 3
        quarantine_bytes_max = 5000
        inflight_bytes = 6000
        connections_max = 7
        header_timeout_s = 8
        body_idle_timeout_s = 9
        keepalive_timeout_s = 19
        keepalive_requests = 20
        drain_s = 10
        queue_uploads_max = 11
        queue_bytes_max = 12000
        queue_patience_s = 13
        group_uploads_max = 14
        group_bytes_max = 15000
        busy_timeout_s = 16
        sqlite_cache_bytes = 1700000
        sqlite_checkpoint_pages = 1900
        readers = 18
    "#;
    let seconds = Duration::from_secs;
    let config = load_with(file, &[], &Flags::default()).expect("loads").config;
    assert_eq!(
        (config.listen.as_str(), config.store.to_string().as_str()),
        ("[::]:0", "sqlite:/var/lib/t.db")
    );
    assert_eq!(config.data_dir(), Path::new("/var/lib"));
    let files = TlsFiles { cert: "/etc/t/cert.pem".into(), key: "/etc/t/key.pem".into() };
    assert_eq!(config.tls, Some(files));
    let http = HttpOptions {
        body_bytes_max: 2048,
        inflight_bytes: 6000,
        connections_max: 7,
        header_timeout: seconds(8),
        body_idle_timeout: seconds(9),
        keepalive_timeout: seconds(19),
        keepalive_requests: 20,
        success_status_200: true,
        minimal_answers: true,
        shared_fleet_key: true,
        session_secure: true,
        drain: seconds(10),
    };
    assert_eq!(config.http, http);
    let limits = &config.limits;
    assert_eq!((limits.decoded_bytes_max, limits.records_max, limits.zero_position), (4096, 3, true));
    let store = &config.store_options;
    assert_eq!((store.busy_timeout, store.cache_bytes, store.readers), (seconds(16), 1_700_000, 18));
    assert_eq!(store.checkpoint_pages, 1900);
    let policy = Policy { reused_batch_id: ReusedBatchId::Ingest, quarantine_bytes_max: 5000, guard_days: 1 };
    assert_eq!(store.policy, policy);
    let writer = &config.writer;
    assert_eq!(
        (writer.queue_uploads_max, writer.queue_bytes_max, writer.patience),
        (11, 12_000, seconds(13))
    );
    assert_eq!((writer.group_uploads_max, writer.group_bytes_max), (14, 15_000));
}

#[test]
fn with_tls_session_cookies_are_for_https_alone() {
    let secure =
        |file: &str| load_with(file, &[], &Flags::default()).expect("loads").config.http.session_secure;
    assert!(!secure("tls_cert = \"\"\ntls_key = \"\"\n"));
    assert!(secure("tls_cert = \"c\"\ntls_key = \"k\"\nsession_secure = false\n"));
}

#[test]
fn one_wrong_value_is_one_clear_line() {
    for (line, fault) in [
        ("listen = \"8080\"", "listen: \"8080\" is not host:port, as in 127.0.0.1:8080 or [::1]:8080"),
        ("listen = \"::1:80\"", "listen: \"::1:80\" is not host:port, as in 127.0.0.1:8080 or [::1]:8080"),
        ("listen = \"a:70000\"", "listen: \"a:70000\" is not host:port, as in 127.0.0.1:8080 or [::1]:8080"),
        ("listen = \"\"", "listen: is empty; leave it out for the default"),
        ("listen = [\"a:1\"]", "listen: is a list; one value is wanted"),
        ("listen = {}", "listen: must be text, a number, true or false (or a list of texts)"),
        ("tls_cert = \"a\"", "tls_key: is not set, but tls_cert is: TLS needs both"),
        ("tls_key = \"a\"\ntls_cert = \" \"", "tls_cert: is not set, but tls_key is: TLS needs both"),
        ("keepalive_requests = 0", "keepalive_requests: \"0\" is not a whole number from 1 to 1000000000"),
        ("readers = 0", "readers: \"0\" is not a whole number from 1 to 64"),
        ("readers = 65", "readers: \"65\" is not a whole number from 1 to 64"),
        ("readers = 1.5", "readers: \"1.5\" is not a whole number from 1 to 64"),
        ("readers = -1", "readers: \"-1\" is not a whole number from 1 to 64"),
        ("drain_s = 0", "drain_s: \"0\" is not a whole number from 1 to 3600"),
        ("header_timeout_s = 0", "header_timeout_s: \"0\" is not a whole number from 1 to 3600"),
        ("guard_days = \"7d\"", "guard_days: \"7d\" is not a whole number from 1 to 365"),
        ("success_status = 204", "success_status: \"204\" is not 202 or 200"),
        ("minimal_answers = \"yes\"", "minimal_answers: \"yes\" is not true or false"),
        ("reused_batch_id = \"drop\"", "reused_batch_id: \"drop\" is not quarantine or ingest"),
        (
            "store = \"postgres://u:not-to-be-printed@h/d\"",
            "store: this build has no PostgreSQL store yet; write sqlite:PATH, as in sqlite:data/tidegate.db",
        ),
        ("store = \"data.db\"", "store: is no store; write sqlite:PATH, as in sqlite:data/tidegate.db"),
        ("store = \"sqlite:\"", "store: sqlite: names no file; write sqlite:data/tidegate.db"),
        ("store = \"sqlite:d/\"", "store: sqlite: names a folder; name the file in it"),
        ("store = \"sqlite:///d\"", "store: write sqlite:PATH, without slashes in front of the path"),
        (
            "store = \"sqlite::memory:\"",
            "store: sqlite::memory: would forget every upload at the end; name a file",
        ),
        (
            "queue_bytes_max = 1024",
            "queue_bytes_max: is 1024, less than body_bytes_max (1048576): no body of that size could ever pass",
        ),
        (
            "quarantine_bytes_max = 2097152",
            "quarantine_bytes_max: is 2097152, less than 3608576, what one body of unusable records can fill: it could never pass",
        ),
        (
            "log = \"loud\"",
            "log: \"loud\" is no filter; write error, warn, info, debug, trace or off, or add module=level behind a comma",
        ),
    ] {
        assert_eq!(faults(line, &[]), [fault], "{line}");
    }
}

#[test]
fn every_fault_is_told() {
    let all = faults("readers = 0\nguard_days = 0\nrubbish = 1\n", &[("TIDEGATE_DRAIN_S", "")]);
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn unknown_names_refuse_in_the_file_and_warn_in_the_environment() {
    let all = faults("listne = \"127.0.0.1:1\"\nbananas = 1\n", &[]);
    assert!(all[0].starts_with("bananas: is no setting (in "), "{all:?}");
    assert!(!all[0].contains("mean"), "{all:?}");
    assert!(
        all[1].starts_with("listne: is no setting") && all[1].ends_with("; did you mean listen?"),
        "{all:?}"
    );
    let pairs = [("TIDEGATE_FLEET_KEY", SECRET), ("TIDEGATE_", "x"), ("OTHER", "x")];
    let loaded = load_with("", &pairs, &Flags::default()).expect("loads");
    let expected = [
        "TIDEGATE_FLEET_KEY in the environment is no setting and has no effect; did you mean TIDEGATE_FLEET_KEYS?",
        "TIDEGATE_ in the environment is no setting and has no effect",
    ];
    assert_eq!(loaded.warnings, expected);
    assert_eq!(nearest("body-bytes-max").map(|s| s.name), Some("body_bytes_max"));
    assert_eq!(nearest(&"x".repeat(10_000)).map(|s| s.name), None);
    assert_eq!(nearest(&"é".repeat(33)).map(|s| s.name), None, "cut inside a character");
}

#[test]
fn files_that_cannot_be_used_refuse() {
    let named = Flags { config: Some("/no/such/file.toml".into()), values: Vec::new() };
    let all = load_with("", &[], &named).expect_err("refused");
    assert!(all[0].starts_with("/no/such/file.toml: cannot be read: "), "{all:?}");
    let all = faults("readers = 1\nfleet_keys = [\"not-to-be-printed\n", &[]);
    assert!(all[0].contains("tidegate.toml: line 2: is not TOML: "), "{all:?}");
}

#[cfg(unix)]
#[test]
fn names_and_values_that_are_no_text_do_not_panic() {
    use std::os::unix::ffi::OsStringExt as _;
    let odd = || OsString::from_vec(vec![b'T', 0xff]);
    let pairs = vec![(odd(), odd()), ("TIDEGATE_LISTEN".into(), odd())];
    let here = tempfile::tempdir().expect("a folder");
    let all = load(&Flags::default(), pairs, here.path()).expect_err("refused");
    assert_eq!(all, [Fault::new("listen", "TIDEGATE_LISTEN is not UTF-8")]);
}

#[test]
fn secrets_are_checked_and_never_shown() {
    let short = "fleet_keys: entry 2 is too short: at least 16 bytes are needed";
    for (key, value, fault) in [
        ("fleet_keys", "not-to-be-printed, short", short),
        (
            "fleet_keys",
            "",
            "fleet_keys: is set but empty; give at least one entry, or leave it out altogether",
        ),
        ("fleet_keys", "not-to-be-printed,", "fleet_keys: entry 2 is empty"),
        (
            "seal_keys",
            "whsec_not-to-be-printed",
            "seal_keys: entry 1 starts with whsec_ but is not base64 behind it",
        ),
        ("presence_secrets", ",", "presence_secrets: entry 1 is empty"),
        (
            "read_tokens",
            "a:b:not-to-be-printed",
            "read_tokens: entry 1 is not token or name:token with one colon at most and no comma",
        ),
        ("admin_tokens", "ops:", "admin_tokens: entry 1 is empty"),
    ] {
        let name = format!("TIDEGATE_{}", key.to_ascii_uppercase());
        assert_eq!(faults("", &[(&name, value)])[0], fault);
    }
    let both =
        [("TIDEGATE_ADMIN_TOKENS", "not-to-be-printed"), ("TIDEGATE_READ_TOKENS", "r:not-to-be-printed")];
    assert_eq!(
        faults("", &both),
        [
            "read_tokens: entry 1 is a token that stands in the lists already: each token needs one role and one name"
        ]
    );
    let many = vec!["not-to-be-printed"; 17].join(",");
    assert_eq!(faults("", &[("TIDEGATE_FLEET_KEYS", &many)]), ["fleet_keys: has 17 entries; 16 at most"]);
    let file = "fleet_keys = [\"not-to-be-printed\", \"not-to-be-printed, too\"]\npresence_secrets = []\n";
    let loaded = load_with(file, &[("TIDEGATE_RESOURCES_SECRETS", "")], &Flags::default()).expect("loads");
    assert!(!format!("{loaded:?}").contains(SECRET));
    assert!(loaded.effective.contains(&"fleet_keys = (2 configured)".to_owned()), "{:?}", loaded.effective);
}
