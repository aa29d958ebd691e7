//! Where secrets come from, and where they must not.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::ops::config::{Flags, load};

fn configured(pairs: &[(&str, &str)]) -> Configured {
    let here = tempfile::tempdir().expect("a folder");
    let pairs: Vec<_> = pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    load(&Flags::default(), pairs, here.path()).expect("loads").secrets
}

fn texts(faults: &[Fault]) -> Vec<String> {
    faults.iter().map(Fault::to_string).collect()
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("a file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("its mode");
}

#[test]
fn the_first_start_generates_and_later_ones_read() {
    let home = tempfile::tempdir().expect("a folder");
    let data = home.path().join("data");
    let first = configured(&[]).complete(&data, true).expect("generates");
    let path = first.generated.expect("a file was written");
    assert_eq!(path, data.join(FILE));
    assert_eq!(std::fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
    let left = std::fs::read_dir(&data).expect("a folder").count();
    assert_eq!(left, 1, "nothing unfinished stays behind");
    let second = configured(&[]).complete(&data, false).expect("reads");
    assert_eq!(second.generated, None);
    let print = |secrets: &Secrets| secrets.fleet_keys[0].fingerprint();
    assert_eq!(print(&first.secrets), print(&second.secrets));
    assert_eq!(first.secrets.seal_keys, second.secrets.seal_keys);
    let text = std::fs::read_to_string(&path).expect("text");
    let table: toml::Table = text.parse().expect("TOML");
    for (key, role) in [("admin_tokens", Role::Admin), ("read_tokens", Role::Read)] {
        let token = table[key][0].as_str().expect("a token");
        assert_eq!(token.len(), 43, "32 bytes in base64url");
        let caller = second.secrets.tokens.authenticate(token.as_bytes()).expect("it opens");
        assert_eq!((caller.name.as_str(), caller.role), (role.code(), role));
    }
    let fleet_key = table["fleet_keys"][0].as_str().expect("a key");
    assert_eq!(parse_secret(fleet_key).expect("a secret").len(), 32);
    let signing = configured(&[]).first_fleet_key(&data).expect("a key");
    assert_eq!(signing.fingerprint(), print(&first.secrets));
}

#[test]
fn the_first_read_token_is_the_configured_one_or_that_of_the_file() {
    let data = tempfile::tempdir().expect("a folder");
    let token = |pairs: &[(&str, &str)]| configured(pairs).first_read_token(data.path());
    let faults = token(&[]).expect_err("nowhere");
    assert!(texts(&faults)[0].starts_with("read_tokens: is neither configured nor in "), "{faults:?}");
    write(
        &data.path().join(FILE),
        "read_tokens = [\"of-the-file-0123456789\", \"another-0123456789\"]",
        0o600,
    );
    assert_eq!(token(&[]).expect("read").bytes(), b"of-the-file-0123456789");
    let named = "map:of-the-map-0123456789,night:of-the-night-0123456789";
    let configured = token(&[("TIDEGATE_READ_TOKENS", named)]).expect("configured");
    assert_eq!(configured.bytes(), b"of-the-map-0123456789", "without its name");
}

#[test]
fn nothing_is_generated_beside_devices() {
    let data = tempfile::tempdir().expect("a folder");
    let faults = configured(&[("TIDEGATE_FLEET_KEYS", "not-to-be-printed")])
        .complete(data.path(), false)
        .expect_err("refused");
    let keys: Vec<_> = faults.iter().map(|fault| fault.key.as_str()).collect();
    assert_eq!(keys, ["seal_keys", "admin_tokens", "read_tokens"]);
    assert!(faults[0].text.starts_with("is neither configured nor in "), "{}", faults[0]);
    assert_eq!(std::fs::read_dir(data.path()).expect("a folder").count(), 0);
}

#[test]
fn what_is_configured_wins_and_only_the_rest_is_generated() {
    let data = tempfile::tempdir().expect("a folder");
    let all = [
        ("TIDEGATE_FLEET_KEYS", "fleet-key-of-the-test"),
        ("TIDEGATE_SEAL_KEYS", "seal-key-of-the-test"),
        ("TIDEGATE_ADMIN_TOKENS", "ops:admin-token-of-the-test"),
        ("TIDEGATE_READ_TOKENS", "read-token-of-the-test"),
    ];
    let complete = configured(&all).complete(data.path(), true).expect("complete");
    assert_eq!(complete.generated, None);
    assert_eq!(std::fs::read_dir(data.path()).expect("a folder").count(), 0, "no file where none is needed");

    configured(&all[..2]).complete(data.path(), true).expect("generates tokens");
    let path = data.path().join(FILE);
    let table =
        |path: &Path| -> toml::Table { std::fs::read_to_string(path).expect("text").parse().expect("TOML") };
    assert_eq!(table(&path).keys().collect::<Vec<_>>(), ["admin_tokens", "read_tokens"]);
    let before = table(&path)["admin_tokens"].clone();
    configured(&[]).complete(data.path(), true).expect("adds the keys");
    assert_eq!(table(&path).len(), 4);
    assert_eq!(table(&path)["admin_tokens"], before, "what was there stays");
    let other = configured(&all[..1]).complete(data.path(), false).expect("complete").secrets;
    assert_eq!(other.fleet_keys[0].fingerprint(), KeyFingerprint::of(b"fleet-key-of-the-test"));
    assert!(!format!("{other:?}").contains("of-the-test"));
}

#[test]
fn a_file_that_cannot_be_trusted_refuses() {
    let data = tempfile::tempdir().expect("a folder");
    let path = data.path().join(FILE);
    let shown = path.display();
    for (text, mode, expected) in [
        ("", 0o644, format!("{shown}: has mode 0644, so others may read it; run chmod 600 on it")),
        ("x", 0o600, format!("{shown}: is not TOML, see line 1")),
        (
            "tokens = 1",
            0o600,
            format!(
                "{shown}: holds tokens; only fleet_keys, seal_keys, admin_tokens, read_tokens belong there"
            ),
        ),
        (
            "fleet_keys = []",
            0o600,
            format!("{shown}: fleet_keys: is not a list of texts with at least one entry"),
        ),
        (
            "fleet_keys = [\"short\"]",
            0o600,
            format!("{shown}: fleet_keys: entry 1 is too short: at least 16 bytes are needed"),
        ),
    ] {
        write(&path, text, mode);
        let faults = configured(&[]).complete(data.path(), true).expect_err("refused");
        assert_eq!(texts(&faults), [expected]);
        assert_eq!(std::fs::read_to_string(&path).expect("text"), text, "left as it was");
    }
}

#[test]
fn an_unfinished_file_of_a_crash_is_replaced() {
    let data = tempfile::tempdir().expect("a folder");
    write(&data.path().join("secrets.toml.new"), "half a ke", 0o600);
    configured(&[]).complete(data.path(), true).expect("generates");
    configured(&[]).complete(data.path(), false).expect("reads");
}

#[test]
fn a_missing_fleet_key_is_one_line() {
    let data = tempfile::tempdir().expect("a folder");
    let faults = configured(&[]).first_fleet_key(data.path()).expect_err("none");
    let path = data.path().join(FILE);
    assert_eq!(texts(&faults), [format!("fleet_keys: is neither configured nor in {}", path.display())]);
}
