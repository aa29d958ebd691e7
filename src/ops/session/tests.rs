//! What a session's value withstands.

use proptest::prelude::*;

use super::*;
use crate::ops::tokens::{Role, Tokens};

const TOKEN: &str = "a-token-of-the-tests";
const NONCE: [u8; NONCE_LEN] = [7; NONCE_LEN];

fn secrets(seal_keys: &[&str], tokens: &[(Role, &str)]) -> Secrets {
    let mut known = Tokens::default();
    for (role, text) in tokens {
        known.add(*role, text).expect("a token");
    }
    let seal_keys = seal_keys.iter().map(|text| Secret::new(text.as_bytes())).collect();
    Secrets { seal_keys, tokens: known, ..Secrets::default() }
}

fn of_the_tests() -> Secrets {
    secrets(&["first-key-of-the-tests"], &[(Role::Read, "desk:a-token-of-the-tests")])
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(1_774_930_320 + seconds).expect("in range")
}

fn value(secrets: &Secrets) -> String {
    issue(&secrets.seal_keys, &TokenDigest::of(TOKEN.as_bytes()), at(SECONDS), NONCE).expect("a seal key")
}

fn caller(secrets: &Secrets, value: &str, now: Timestamp) -> Option<Caller> {
    check(secrets, value.as_bytes(), now).map(|session| session.caller)
}

#[test]
fn a_value_gives_its_token_back_until_it_expires() {
    let secrets = of_the_tests();
    let value = value(&secrets);
    assert_eq!(value.len(), VALUE_LEN);
    let desk = Some(Caller { name: "desk".into(), role: Role::Read });
    assert_eq!(caller(&secrets, &value, at(0)), desk);
    assert_eq!(caller(&secrets, &value, at(SECONDS - 1)), desk);
    assert_eq!(caller(&secrets, &value, at(SECONDS)), None);
    assert_eq!(issue(&[], &TokenDigest::of(TOKEN.as_bytes()), at(1), NONCE), None, "never without a key");
}

#[test]
fn it_goes_with_its_token_and_with_its_seal_key() {
    let value = value(&of_the_tests());
    let desk = (Role::Read, "desk:a-token-of-the-tests");
    let other = (Role::Admin, "ops:another-token-here");
    for (seal_keys, tokens, name) in [
        (&["first-key-of-the-tests"][..], &[desk, other][..], Some("desk")),
        (&["first-key-of-the-tests"], &[other, desk], Some("desk")),
        (&["first-key-of-the-tests"], &[(Role::Admin, "boss:a-token-of-the-tests")], Some("boss")),
        (&["second-key-of-the-tests", "first-key-of-the-tests"], &[desk], Some("desk")),
        (&["second-key-of-the-tests"], &[desk], None),
        (&[], &[desk], None),
        (&["first-key-of-the-tests"], &[other], None),
        (&["first-key-of-the-tests"], &[], None),
    ] {
        let found = caller(&secrets(seal_keys, tokens), &value, at(0)).map(|caller| caller.name);
        assert_eq!(found.as_deref(), name, "{seal_keys:?} {tokens:?}");
    }
}

#[test]
fn an_ended_session_stays_ended_until_it_expires() {
    let (secrets, ended) = (of_the_tests(), Ended::default());
    let id = |nonce, expires_at| SessionId { expires_at, nonce: [nonce; NONCE_LEN] };
    let session = check(&secrets, value(&secrets).as_bytes(), at(0)).expect("holds");
    assert!(!ended.contains(&session.id));
    ended.add(session.id, at(0));
    assert!(ended.contains(&session.id));
    assert!(!ended.contains(&id(8, at(SECONDS))), "another one at the same time goes on");
    ended.add(id(1, at(2 * SECONDS)), at(SECONDS));
    assert!(!ended.contains(&session.id), "forgotten once it has expired");
    assert!(ended.contains(&id(1, at(2 * SECONDS))));
    assert_eq!(format!("{ended:?}"), "Ended(1)");
}

#[test]
fn what_is_remembered_is_bounded() {
    let ended = Ended::default();
    let id = |n: usize| SessionId { expires_at: at(1 + i64::try_from(n).expect("small")), nonce: NONCE };
    for n in 0..ENDED_MAX + 5 {
        ended.add(id(n), at(0));
    }
    assert_eq!(ended.ids().len(), ENDED_MAX);
    assert!(!ended.contains(&id(4)), "the nearest to expiry goes first");
    assert!(ended.contains(&id(5)));
    assert!(ended.contains(&id(ENDED_MAX + 4)));
}

#[test]
fn every_flipped_bit_fails() {
    let secrets = of_the_tests();
    let sealed = URL_SAFE_NO_PAD.decode(value(&secrets)).expect("base64");
    for bit in 0..8 * sealed.len() {
        let mut forged = sealed.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(caller(&secrets, &URL_SAFE_NO_PAD.encode(forged), at(0)), None, "bit {bit}");
    }
}

#[test]
fn times_nobody_can_write_are_refused() {
    let secrets = of_the_tests();
    let key = &secrets.seal_keys[0];
    let token = TokenDigest::of(TOKEN.as_bytes());
    for (expiry, holds) in [(at(1).to_micros(), true), (i64::MAX, false), (i64::MIN, false), (-1, false)] {
        let claim = [&expiry.to_be_bytes()[..], &NONCE, &mark(key, &token)].concat();
        let value = URL_SAFE_NO_PAD.encode([&claim[..], &seal(key, &claim)].concat());
        assert_eq!(caller(&secrets, &value, at(0)).is_some(), holds, "{expiry}");
    }
}

proptest! {
    #[test]
    fn no_other_value_holds(value in prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        "[A-Za-z0-9_-]{96}".prop_map(String::into_bytes),
        proptest::collection::vec(any::<u8>(), SEALED_LEN).prop_map(|b| URL_SAFE_NO_PAD.encode(b).into_bytes()),
    ]) {
        prop_assert!(check(&of_the_tests(), &value, at(0)).is_none());
    }

    #[test]
    fn every_changed_character_fails(at_char in 0..VALUE_LEN, character in any::<u8>()) {
        let secrets = of_the_tests();
        let mut forged = value(&secrets).into_bytes();
        let same = forged[at_char] == character;
        forged[at_char] = character;
        prop_assert_eq!(check(&secrets, &forged, at(0)).is_some(), same);
    }

    #[test]
    fn every_cut_or_longer_value_fails(keep in 0..VALUE_LEN, more in "[A-Za-z0-9_=-]{1,8}") {
        let secrets = of_the_tests();
        let value = value(&secrets);
        prop_assert!(check(&secrets, &value.as_bytes()[..keep], at(0)).is_none());
        let longer = value + &more;
        prop_assert!(check(&secrets, longer.as_bytes(), at(0)).is_none());
    }
}
