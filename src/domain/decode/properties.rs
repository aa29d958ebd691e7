//! What must hold for any body at all.

mod forms;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use super::canonical::DEPTH_MAX;
use super::walk::Cursor;
use super::{bare, canonical, decode, quick, salvage, to_json};
use crate::domain::batch::{Batch, Limits, Unreadable};
use crate::domain::record::Fix;

/// Decodes, checks that both passes agree, and that the quick one is not needed to be right.
fn checked(body: &[u8]) -> Result<Batch, Unreadable> {
    let limits = Limits::default();
    let decoded = decode(body, &limits);
    let json = bare(body);
    if let Some(batch) = std::str::from_utf8(json).ok().and_then(|text| quick::read(text, &limits)) {
        assert_eq!(salvage::read(json, &limits), Ok(batch));
    }
    if let Ok(batch) = &decoded {
        for record in &batch.records {
            let again = decode(body_of(&[to_json(record)]).as_bytes(), &limits).expect("a batch");
            assert_eq!(again.records, std::slice::from_ref(record), "{}", to_json(record));
        }
        let texts = batch.records.iter().flat_map(|r| [&r.extra, &r.raw]).flatten();
        assert!(texts.into_iter().all(|text| levels(text) <= DEPTH_MAX + 1));
        let texts = batch.records.iter().flat_map(|r| [&r.extra, &r.raw]).chain([&batch.extra]);
        let bytes: usize = texts.flatten().map(|text| text.len()).sum();
        assert!(bytes <= 4 * body.len() + 32 * batch.records.len(), "bounded by the body");
        assert!(batch.unusable.iter().all(|u| u.bytes.len() <= body.len() && u.detail.len() < 1000));
        assert!(batch.unusable.iter().all(|u| body.windows(u.bytes.len()).any(|w| w == u.bytes)));
    }
    decoded
}

/// The text of a JSON value, with everything that field rules or canonical spelling could trip over.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        any::<bool>().prop_map(|b| b.to_string()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<u64>().prop_map(|n| n.to_string()),
        (-200_i16..200).prop_map(|n| n.to_string()),
        any::<f64>().prop_filter("finite", |x| x.is_finite()).prop_map(|x| format!("{x:?}")),
        "-?(0|[1-9][0-9]{0,25})(\\.[0-9]{1,20})?([eE][+-]?([0-9]{1,3}|[0-9]{9,21}))?",
        "[0-9eE+.-]{0,6}".prop_map(|text| format!("\"{text}\"")),
        "20[0-9]{2}-[0-9]{2}-[0-3][0-9][T ][0-9]{2}:[0-9]{2}:[0-6][0-9](\\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})?"
            .prop_map(|text| format!("\"{text}\"")),
        any::<String>().prop_map(|text| Value::from(text).to_string()),
        "(a|\\\\u00[0-7][0-9a-f]|\\\\ud8[0-9a-f]{2}|\\\\udc00|\\\\n|\\\\/|é){0,4}"
            .prop_map(|text| format!("\"{text}\"")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            // About where values become too deep to be kept as values.
            (inner.clone(), DEPTH_MAX - 4..DEPTH_MAX + 4).prop_map(|(item, levels)| format!(
                "{}{item}{}",
                "[".repeat(levels),
                "]".repeat(levels)
            )),
            vec(inner.clone(), 0..4).prop_map(|items| format!("[ {}]", items.join(" ,"))),
            vec((key(), inner), 0..4).prop_map(|members| object(&members)),
        ]
    })
}

fn key() -> impl Strategy<Value = String> {
    prop_oneof!["[a-c]", "\\\\u006[1-3]", "[a-zé]{0,3}", Just("\\ud800".to_owned())]
}

fn object(members: &[(String, String)]) -> String {
    let members: Vec<_> = members.iter().map(|(key, value)| format!("\"{key}\" :{value}")).collect();
    format!("{{{}\n}}", members.join(", "))
}

/// A record whose fields are now good, now anything.
fn record() -> impl Strategy<Value = String> {
    let good =
        (any::<u32>(), -90.0..90.0_f64, -180.0..180.0_f64, 0..5000_i64).prop_map(|(s, lat, lon, b)| {
            let battery = b.to_string();
            let fields = [("seq", s.to_string()), ("lat", lat.to_string()), ("lon", lon.to_string())];
            let fields = fields.map(|(key, value)| (key.to_owned(), value));
            fields.into_iter().chain([("battery".to_owned(), battery)]).collect::<Vec<_>>()
        });
    let name = prop_oneof![
        3 => "seq|lat|lon|battery|recorded_at|s\\\\u0065q",
        2 => key(),
    ];
    (good, vec((name, json()), 0..3)).prop_map(|(good, odd)| {
        let good = good.into_iter().filter(|(key, _)| !odd.iter().any(|(other, _)| other == key));
        object(&good.chain(odd.clone()).collect::<Vec<_>>())
    })
}

fn body_of(elements: &[String]) -> String {
    format!(r#"{{"device_id":"d","batch_id":"b","records":[{}]}}"#, elements.join(","))
}

/// How deep a JSON text is nested.
fn levels(text: &str) -> usize {
    let (mut cursor, mut depth, mut most) = (Cursor::new(text, 0), 0_usize, 0);
    while let Some(byte) = cursor.peek() {
        match byte {
            b'"' => drop(cursor.literal()),
            b'[' | b'{' => {
                depth += 1;
                most = most.max(depth);
                cursor.step();
            }
            b']' | b'}' => {
                depth -= 1;
                cursor.step();
            }
            _ => cursor.step(),
        }
    }
    most
}

fn spelling(text: &str) -> Option<String> {
    let mut out = String::new();
    canonical::write_value(text, &mut out, canonical::Mode::Strict).ok().map(|_| out)
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(body in vec(any::<u8>(), 0..200)) {
        let _answer = checked(&body);
    }

    #[test]
    fn arbitrary_json_bytes_never_panic(body in "[\\[\\]{}:,\"\\\\u0d8ca1.e -]{0,60}") {
        let _answer = checked(body.as_bytes());
    }

    #[test]
    fn every_element_is_accounted_for(elements in vec(prop_oneof![4 => record(), 1 => json()], 0..6)) {
        let batch = checked(body_of(&elements).as_bytes()).expect("a batch");
        prop_assert_eq!(batch.records.len() + batch.unusable.len(), elements.len());
        for unusable in &batch.unusable {
            prop_assert_eq!(&unusable.bytes[..], elements[unusable.index].as_bytes());
        }
    }

    #[test]
    fn any_field_of_the_batch_may_be_anything(
        members in vec(("device_id|batch_id|epoch_id|records|x", json()), 0..5),
    ) {
        let body = object(&members);
        let _answer = checked(body.as_bytes());
        let _answer = checked(body.replace('a', "\u{1}").as_bytes());
    }

    #[test]
    fn mutations_never_panic(
        elements in vec(record(), 0..3),
        hits in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..4),
    ) {
        let mut body = body_of(&elements).into_bytes();
        for (at, byte, how) in hits {
            let at = at.index(body.len());
            match how {
                0 => body[at] = byte,
                1 => body.insert(at, byte),
                _ => drop(body.remove(at)),
            }
            let _answer = checked(&body);
        }
    }

    #[test]
    fn positions_round_trip(lat in -90.0..=90.0_f64, lon in -180.0..=180.0_f64, text: bool) {
        let quote = if text { "\"" } else { "" };
        let record = format!(r#"{{"seq":1,"lat":{quote}{lat:?}{quote},"lon":{quote}{lon}{quote}}}"#);
        let batch = checked(body_of(&[record]).as_bytes()).expect("a batch");
        let fix = (lat != 0.0 || lon != 0.0).then_some(Fix { lat: lat + 0.0, lon: lon + 0.0 });
        let bits = |fix: Option<Fix>| fix.map(|f| (f.lat.to_bits(), f.lon.to_bits()));
        prop_assert_eq!(bits(batch.records[0].fix), bits(fix));
    }

    #[test]
    fn every_float_round_trips_as_battery(bits: u64) {
        let x = f64::from_bits(bits);
        prop_assume!(x.is_finite());
        let batch = checked(body_of(&[format!(r#"{{"seq":1,"battery":{x:?}}}"#)]).as_bytes()).expect("a batch");
        prop_assert_eq!(batch.records[0].battery, Some(x));
    }

    #[test]
    fn seqs_are_exact(seq in 0..=i64::MAX.unsigned_abs(), text: bool) {
        let quote = if text { "\"" } else { "" };
        let batch = checked(body_of(&[format!(r#"{{"seq":{quote}{seq}{quote}}}"#)]).as_bytes()).expect("a batch");
        prop_assert_eq!(batch.records[0].seq.get(), seq);
    }

    #[test]
    fn decimals_are_spelled_as_their_f64(text in "-?(0|[1-9][0-9]{0,9})\\.[0-9]{1,9}") {
        let x: f64 = text.parse().expect("a number");
        let expected = if x.fract() == 0.0 { format!("{}", x + 0.0) } else { format!("{x:?}") };
        prop_assert_eq!(spelling(&text), Some(expected));
    }

    #[test]
    fn canonical_spelling_is_idempotent_and_true(text in json()) {
        let Some(once) = spelling(&text) else { return Ok(()) };
        prop_assert_eq!(spelling(&once), Some(once.clone()));
        // serde_json refuses numbers past f64; all else must still say the same.
        if let Ok(value) = serde_json::from_str::<Value>(&text) {
            let again: Value = serde_json::from_str(&once).expect("still JSON");
            prop_assert!(same(&value, &again), "{} {}", value, again);
        }
    }

    #[test]
    fn canonical_spelling_does_not_see_order(text in json()) {
        // Deeper than that nothing is sorted.
        prop_assume!(levels(&text) <= DEPTH_MAX);
        let value = serde_json::from_str::<Value>(&text).ok();
        if let (Some(value), Some(once)) = (value, spelling(&text)) {
            let shuffled = reversed(&value);
            let expected = spelling(&value.to_string());
            prop_assert_eq!(spelling(&shuffled), expected);
            prop_assert!(once.len() <= 4 * text.len());
        }
    }
}

/// The value's text with the members of each object in falling order of their keys, and blanks.
fn reversed(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut members: Vec<_> = map.iter().collect();
            members.sort_by(|(a, _), (b, _)| b.cmp(a));
            let text = members.iter().map(|(k, v)| format!(" {} : {}", Value::from(k.as_str()), reversed(v)));
            format!("{{{}}}", text.collect::<Vec<_>>().join(" ,"))
        }
        Value::Array(items) => {
            format!("[{}]", items.iter().map(reversed).collect::<Vec<_>>().join("\t,"))
        }
        other => other.to_string(),
    }
}

/// Equality of values with numbers as f64.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
