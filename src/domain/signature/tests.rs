//! Published vectors, the header grammar, and what no forger may get past.

use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use proptest::prelude::*;
use serde_json::Value;

use super::*;

fn fixture(text: &str) -> Value {
    serde_json::from_str(text).expect("a fixture is JSON")
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().expect("a field of text")
}

fn cases(value: &Value) -> &Vec<Value> {
    value["cases"].as_array().expect("cases")
}

fn unhex(digits: &str) -> Vec<u8> {
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).expect("hex digits"))
        .collect()
}

fn device(id: &str) -> DeviceId {
    DeviceId::parse(id).expect("a device id")
}

fn read(lines: &[&str]) -> Offered {
    read_signatures(lines.iter().map(|line| line.as_bytes()))
}

/// Every spelling of one signature that counts.
fn spellings(mac: &[u8; 32]) -> Vec<String> {
    let lower = hex(mac);
    let bare = [
        lower.clone(),
        lower.to_uppercase(),
        STANDARD.encode(mac),
        STANDARD_NO_PAD.encode(mac),
        URL_SAFE.encode(mac),
        URL_SAFE_NO_PAD.encode(mac),
    ];
    let prefixes = ["", "sha256=", "v1=", "v1,", "v1 ", " \t, v1\t", "sha256=junk, "];
    bare.iter().flat_map(|bare| prefixes.iter().map(move |prefix| format!("{prefix}{bare}"))).collect()
}

#[test]
fn hmac_agrees_with_rfc_4231() {
    for case in cases(&fixture(include_str!("../../../fixtures/signatures/rfc4231.json"))) {
        let key = FleetKey::new(&unhex(text(case, "key")));
        let body = unhex(text(case, "body"));
        assert_eq!(key.mac(&body).to_vec(), unhex(text(case, "mac")), "case {}", case["case"]);
    }
}

#[test]
fn the_vector_that_github_publishes_verifies() {
    let vector = fixture(include_str!("../../../fixtures/signatures/github.json"));
    let keys = [FleetKey::new(text(&vector, "secret").as_bytes())];
    let body = Bytes::from(text(&vector, "body").to_owned());
    let offered = read(&[text(&vector, "signature")]);
    let verified = verify(&keys, None, true, &offered, body.clone()).expect("verifies");
    assert_eq!(verified.signer(), &Signer::Fleet);
    assert_eq!(verified.bytes(), &body[..]);
    assert!(verify(&keys, None, false, &offered, body).is_none(), "not unless it is allowed");
}

#[test]
fn device_keys_agree_with_azure_and_openssl() {
    for case in cases(&fixture(include_str!("../../../fixtures/signatures/derived.json"))) {
        let secret = parse_secret(text(case, "fleet_key")).expect("a secret");
        let key = FleetKey::new(&secret);
        let device_id = device(text(case, "device_id"));
        let device_key = key.derive(&device_id);
        assert_eq!(spell_key(&device_key), text(case, "device_key"));
        assert_eq!(read_key(text(case, "device_key")), Some(device_key));
        let Some(body) = case["body"].as_str() else { continue };
        assert_eq!(key.fingerprint().to_string(), text(case, "fingerprint"));
        assert_eq!(sign(&device_key, body.as_bytes()), text(case, "signature"));
        let body = Bytes::from(body.to_owned());
        let verified = verify(&[key], Some(&device_id), false, &read(&[text(case, "signature")]), body);
        assert_eq!(verified.expect("verifies").signer(), &Signer::Device(device_id));
    }
}

#[test]
fn what_is_no_signature_is_skipped() {
    let hex = "00".repeat(32);
    let near = [
        "",
        "v1",
        "sha256=",
        "v1=",
        ",,, \t",
        &hex[1..],
        &format!("{hex}0"),
        &format!("SHA256={hex}"),
        &format!("V1={hex}"),
        &format!("sha256=v1={hex}"),
        &format!("sha1={hex}"),
        &format!("{}g", &hex[1..]),
        &format!("v1;{hex}"),
        // 43 characters whose last one carries bits beyond the 32nd byte.
        &format!("{}B", "A".repeat(42)),
        // Both alphabets in one token.
        &format!("+_{}", "A".repeat(41)),
        // Padding where none belongs.
        &format!("{}==", "A".repeat(42)),
        &format!("{}=A", "A".repeat(42)),
        "é",
        "\u{0}",
    ];
    for token in near {
        assert!(read(&[token]).is_empty(), "{token:?}");
    }
    let mut lines = near.to_vec();
    lines.truncate(8);
    lines.push(&hex);
    assert_eq!(read(&lines), Offered(vec![[0; 32]]), "a good one among bad ones counts");
}

#[test]
fn at_most_sixteen_tokens_of_all_lines_are_looked_at() {
    let hex = "ab".repeat(32);
    let junk = |n: usize| vec!["x"; n].join(" ,\t");
    assert_eq!(read(&[&junk(15), &hex]).0.len(), 1);
    assert!(read(&[&junk(16), &hex]).is_empty());
    assert!(read(&[&junk(8), &junk(8), &hex]).is_empty());
    assert_eq!(read(&[&vec![hex.as_str(); 40].join(",")]).0.len(), TOKENS_MAX);
    let versioned = format!("{}v1,{hex}", "v1,".repeat(15));
    assert!(read(&[&versioned]).is_empty(), "a bare v1 is a token, too");
    assert_eq!(read(&[&",".repeat(100), &hex]).0.len(), 1, "nothing between two commas is no token");
}

#[test]
fn the_key_that_signed_is_told() {
    let keys: Vec<_> = (0..3u8).map(|n| FleetKey::new(&[n; 32])).collect();
    let (id, body) = (device("t-1"), Bytes::from_static(b"{}"));
    for key in &keys {
        let offered = read(&["v1,junk", &sign(&key.derive(&id), &body)]);
        let verified = verify(&keys, Some(&id), false, &offered, body.clone()).expect("verifies");
        assert_eq!(verified.key(), key.fingerprint());
    }
    let other = read(&[&sign(&keys[0].derive(&device("t-2")), &body)]);
    assert!(verify(&keys, Some(&id), true, &other, body.clone()).is_none(), "another device's key");
    assert!(verify(&[], Some(&id), true, &other, body).is_none(), "no live key");
}

#[test]
fn the_shared_key_signs_only_where_allowed() {
    let key = FleetKey::new(&[7; 32]);
    let (id, body) = (device("t-1"), Bytes::from_static(b"{}"));
    let shared = Offered(vec![key.mac(&body)]);
    let keys = [key.clone()];
    assert!(verify(&keys, Some(&id), false, &shared, body.clone()).is_none());
    let verified = verify(&keys, Some(&id), true, &shared, body.clone()).expect("allowed");
    assert_eq!(verified.signer(), &Signer::Device(id.clone()), "the header still says whose");
    let derived = Offered(vec![finish(keyed(&key.derive(&id)), &body)]);
    assert!(verify(&keys, None, true, &derived, body.clone()).is_none(), "a device's key needs its header");
    assert!(verify(&keys, None, false, &derived, body).is_none());
}

#[test]
fn secrets_are_read_and_faults_do_not_show_them() {
    let ok = |text: &str| parse_secret(text).expect("a secret");
    assert_eq!(ok("sixteen bytes ok"), b"sixteen bytes ok");
    assert_eq!(ok("whsec_AAECAwQFBgcICQoLDA0ODw=="), (0..16).collect::<Vec<u8>>());
    assert_eq!(ok("whsec_AAECAwQFBgcICQoLDA0ODw"), (0..16).collect::<Vec<u8>>());
    assert_eq!(ok(&spell_secret(&[0xfb; 32])), [0xfb; 32]);
    assert_eq!(ok(&spell_secret(&[0xfb; 32]).replace('+', "-").replace('/', "_")), [0xfb; 32]);
    for (text, fault) in [
        ("", SecretFault::Empty),
        ("whsec_", SecretFault::Empty),
        ("fifteen bytes..", SecretFault::Short),
        ("whsec_AAECAwQFBgcICQoLDA0O", SecretFault::Short),
        ("whsec_not base64 at all", SecretFault::BadBase64),
        ("whsec_AAECAwQFBgcICQoLDA0OD", SecretFault::BadBase64),
    ] {
        assert_eq!(parse_secret(text), Err(fault), "{text:?}");
    }
    let key = FleetKey::new(b"correct-horse-battery-staple");
    assert_eq!(format!("{key:?}"), format!("FleetKey({})", key.fingerprint()));
}

proptest! {
    #[test]
    fn no_header_panics(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6)) {
        let offered = read_signatures(lines.iter().map(Vec::as_slice));
        prop_assert!(offered.0.len() <= TOKENS_MAX);
    }

    #[test]
    fn near_signatures_never_panic(line in "(sha256=|v1=|v1,)?[A-Za-z0-9+/_=-]{40,66}") {
        let _ = read(&[&line]);
    }

    #[test]
    fn secrets_of_any_text_never_panic(text in "(whsec_)?.{0,80}") {
        let _ = parse_secret(&text);
    }

    #[test]
    fn every_spelling_verifies(secret in prop::collection::vec(any::<u8>(), 16..80), body: Vec<u8>) {
        let (key, id) = (FleetKey::new(&secret), device("track-exp-084"));
        let mac = finish(keyed(&key.derive(&id)), &body);
        for line in spellings(&mac) {
            let offered = read(&[&line]);
            let verified = verify(std::slice::from_ref(&key), Some(&id), false, &offered, body.clone().into());
            prop_assert!(verified.is_some(), "{}", line);
        }
    }

    #[test]
    fn one_changed_bit_fails(
        body in prop::collection::vec(any::<u8>(), 1..200),
        at: prop::sample::Index,
        bit in 0u8..8,
        in_signature: bool,
    ) {
        let (keys, id) = ([FleetKey::new(&[9; 32])], device("track-exp-084"));
        let mut mac = finish(keyed(&keys[0].derive(&id)), &body);
        let mut sent = body;
        if in_signature {
            mac[at.index(mac.len())] ^= 1 << bit;
        } else {
            let at = at.index(sent.len());
            sent[at] ^= 1 << bit;
        }
        for line in spellings(&mac) {
            prop_assert!(verify(&keys, Some(&id), false, &read(&[&line]), sent.clone().into()).is_none());
        }
    }
}
