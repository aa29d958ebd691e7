//! CBOR by the RFC's own examples, and by the choices that are ours.

use serde_json::Value;

use super::*;
use crate::domain::batch::Limits;
use crate::domain::decode::decode;
use crate::domain::ids::DeviceId;

const VECTORS: &str = include_str!("../../../../fixtures/cbor/rfc8949.json");

fn unhex(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("hex");
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn json(cbor: impl AsRef<[u8]>) -> String {
    String::from_utf8(to_json(cbor.as_ref(), 1 << 20).expect("well-formed")).expect("UTF-8")
}

/// A string's header: the major type, and a length below 256.
fn head(major: u8, len: usize) -> Vec<u8> {
    vec![major << 5 | 0x18, u8::try_from(len).expect("short")]
}

fn text(text: &str) -> Vec<u8> {
    [&head(3, text.len()), text.as_bytes()].concat()
}

#[test]
fn the_examples_of_the_rfc() {
    let vectors: Value = serde_json::from_str(VECTORS).expect("the fixture");
    let list = |name: &str| vectors[name].as_array().expect("a list").clone();
    for vector in list("well_formed") {
        let cbor = vector["cbor"].as_str().expect("hex");
        assert_eq!(json(unhex(cbor)), vector["json"].as_str().expect("text"), "{cbor}");
        for end in 0..cbor.len() / 2 {
            let broken = to_json(&unhex(cbor)[..end], 1 << 20).expect_err("it breaks off");
            assert_eq!(broken.reason, Reason::EncodingInvalid, "{cbor} up to {end}");
        }
    }
    for cbor in list("malformed") {
        let cbor = cbor.as_str().expect("hex");
        let fault = to_json(&unhex(cbor), 1 << 20).expect_err(cbor);
        assert_eq!(fault.reason, Reason::EncodingInvalid, "{cbor}");
    }
    assert!(list("well_formed").len() > 70 && list("malformed").len() > 80);
}

#[test]
fn what_json_has_no_word_for() {
    let uuid = unhex("b9f2c8d453c1482898e671d3df85223a");
    for (cbor, expected) in [
        ("fa40747ae1", "3.819999933242798"),
        ("d9d9f7c1d82501", "1"),
        ("c240", "0"),
        ("c340", "-1"),
        ("c2420000", "0"),
        ("c250ffffffffffffffffffffffffffffffff", "340282366920938463463374607431768211455"),
        ("c25100ffffffffffffffffffffffffffffffff", "340282366920938463463374607431768211455"),
        ("c350ffffffffffffffffffffffffffffffff", r#""base64url:~_____________________w""#),
        ("c2510100000000000000000000000000000000", r#""base64url:AQAAAAAAAAAAAAAAAAAAAAA""#),
        ("c348ffffffffffffffff", "-18446744073709551616"),
        ("c482211a00017561", "[-2,95585]"),
        ("a1f54100", r#"{"true":"base64url:AA"}"#),
        ("a4f97e0001f6024101033903e704", r#"{"NaN":1,"null":2,"base64url:AQ":3,"-1000":4}"#),
        ("a2f93e0000c24102f5", r#"{"1.5":0,"2":true}"#),
        ("a2820102a0a1800080", r#"{"\ud800?":{},"\ud800?":[]}"#),
        ("bf9fa10102ff00ff", r#"{"\ud800?":0}"#),
        ("a1a18000a0", r#"{"\ud800?":{}}"#),
        ("7f61c361bc60ff", r#""ü""#),
        ("6300092e", r#""\u0000\u0009.""#),
    ] {
        assert_eq!(json(unhex(cbor)), expected, "{cbor}");
    }
    let named = "b9f2c8d4-53c1-4828-98e6-71d3df85223a";
    let tagged = [&[0xd8, 37][..], &head(2, 16), &uuid].concat();
    assert_eq!(json(&tagged), format!("\"{named}\""));
    let bare = [&head(2, 16), &uuid[..]].concat();
    let base64 = "base64url:ufLI1FPBSCiY5nHT34UiOg";
    assert_eq!(json(&bare), format!("\"{base64}\""));
    let pair = |key: &str, value: &[u8]| [text(key), value.to_vec()].concat();
    let map = [
        &[0xa3][..],
        &pair("batch_id", &bare),
        &pair("x", &[&[0xa1][..], &pair("batch_id", &bare)].concat()),
        &pair("y", &bare),
    ]
    .concat();
    let expected = format!(r#"{{"batch_id":"{named}","x":{{"batch_id":"{base64}"}},"y":"{base64}"}}"#);
    assert_eq!(json(map), expected, "only the batch's own id");
}

#[test]
fn only_padding_may_follow() {
    for (behind, right) in
        [(&b""[..], true), (b"\0", true), (b"\0\r\n \t\0", true), (b"\x01", false), (b"\0\xa0", false)]
    {
        let found = to_json(&[b"\xa1\x61a\0", behind].concat(), 100);
        assert_eq!(found.map_err(|fault| fault.reason).is_ok(), right, "{behind:02x?}");
    }
    assert_eq!(json(b"\x00\x00"), "0", "the first one is the item");
}

#[test]
fn depth_and_size_are_bounded() {
    let nested = |open: u8, levels: usize| {
        let mut cbor = vec![open; levels];
        cbor.push(0);
        cbor
    };
    let text = json(nested(0x81, OPEN_MAX));
    assert!(text.starts_with("[[[") && text.ends_with("]]]") && text.len() == 2 * OPEN_MAX + 1);
    let deeper = to_json(&nested(0x81, OPEN_MAX + 1), 1 << 30).expect_err("too deep");
    assert_eq!(deeper.reason, Reason::EncodingInvalid);
    // Each map is the key of the one around it: what was written for a key is thrown away once.
    assert_eq!(to_json(&nested(0xa1, 1000), 1 << 20).map_err(|f| f.reason), Err(Reason::EncodingInvalid));
    let tags = nested(0xc6, 1 << 20);
    assert_eq!(json(tags), "0", "tags open nothing");
    // 2^64-1 items are announced, no room is made for them.
    let many = to_json(b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff\x00", 100).expect_err("it breaks off");
    assert_eq!(many.reason, Reason::EncodingInvalid);

    // Everything that is longer as JSON.
    for cbor in [
        [vec![0x9f], vec![0xf7; 1 << 20]].concat(),
        [vec![0x9f], [0xf9, 0, 1].repeat(1 << 20)].concat(),
        [b"\x7a\x00\x10\x00\x00".to_vec(), vec![1; 1 << 20]].concat(),
        [b"\x5a\x00\x10\x00\x00".to_vec(), vec![1; 1 << 20]].concat(),
        [vec![0x7f], [0x61, 1].repeat(1 << 20), vec![0xff]].concat(),
    ] {
        for max in [0, 1000, 100_000] {
            let mut walk =
                Walk { body: &cbor, rest: &cbor, out: Vec::new(), max, open: Vec::new(), names_batch: false };
            assert_eq!(walk.run().map_err(|fault| fault.reason), Err(Reason::DecodedTooLarge));
            // What one more item, or one piece of a string, adds before the limit is looked at.
            assert!(walk.out.len() <= max + 6 * PIECE + 64, "{} for {max}", walk.out.len());
        }
    }
}

#[test]
fn a_body_that_breaks_off_says_who_sent_it() {
    let body = [
        &[0xa3][..],
        &text("device_id"),
        &text("buoy-1"),
        &text("batch_id"),
        &text("b"),
        &text("records"),
        &[0x9f],
    ]
    .concat();
    let fault = decode(&body, &Limits::default()).expect_err("it breaks off");
    assert_eq!(fault.reason, Reason::EncodingInvalid);
    assert_eq!(fault.device_id.as_ref().map(DeviceId::as_str), Some("buoy-1"));
    assert_eq!(fault.batch_id.map(|id| id.to_string()).as_deref(), Some("b"));
    let whole = decode(&[&body[..], &[0xff]].concat(), &Limits::default()).expect("a batch");
    assert_eq!(whole.records, []);
}

#[test]
fn one_bad_value_costs_its_record_only() {
    let pair = |key: &str, value: &[u8]| [text(key), value.to_vec()].concat();
    let record = |more: &[u8]| [&[0xbf][..], &pair("seq", &[1]), more, &[0xff]].concat();
    for (more, reason) in [
        (pair("note", b"\x62\xff\x41"), Reason::TextInvalid),
        (b"\x62\xff\x41\x00".to_vec(), Reason::TextInvalid),
        (b"\x81\x01\x00".to_vec(), Reason::TextInvalid),
        (pair("seq", &[1]), Reason::DuplicateKey),
        (b"\x01\x00\x611\x00".to_vec(), Reason::DuplicateKey),
        ([pair("lat", b"\xf9\x7e\x00"), pair("lon", b"\xf9\x7e\x00")].concat(), Reason::PositionInvalid),
        ([pair("lat", b"\xf9\x7c\x00"), pair("lon", &[1])].concat(), Reason::PositionInvalid),
        (pair("lat", b"\xf7\x63lon\x01"), Reason::PositionInvalid),
        // Bytes whose base64url is digits are no number, and no key in bytes is one of the named fields.
        (pair("lat", b"\x42\xd3\x5d\x63lon\x01"), Reason::PositionInvalid),
        (pair("lat", b"\x01\x42\x96\x89\x01"), Reason::PositionInvalid),
    ] {
        let body = [
            &[0xbf][..],
            &pair("device_id", &text("d")),
            &pair("batch_id", &text("b")),
            &text("records"),
            &[0x83],
            &record(&[]),
            &record(&more),
            &record(&pair("battery", b"\xf9\x7e\x00")),
            &[0xff],
        ]
        .concat();
        let batch = decode(&body, &Limits::default()).expect("a batch");
        assert_eq!(batch.unusable.iter().map(|u| (u.index, u.reason)).collect::<Vec<_>>(), [(1, reason)]);
        assert_eq!(batch.records.len(), 2);
        assert_eq!(batch.records[1].raw.as_deref(), Some(r#"{"battery":"NaN"}"#));
    }
}
