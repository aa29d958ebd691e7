//! Whether an answer is the right one.

use reqwest::header::HeaderMap;
use serde_json::{Value, json};

use super::case::{Expect, TrackExpect};
use super::wire::Answer;

/// What was expected of an answer and what it was instead.
#[derive(Debug, PartialEq)]
pub(super) struct Mismatch {
    pub(super) expected: String,
    pub(super) got: String,
}

/// Every key of `subset` is in `found` with that value; null: it is null or not there.
pub(super) fn holds(found: &Value, subset: &Value) -> bool {
    match subset {
        Value::Object(subset) => subset.iter().all(|(key, value)| match found.get(key) {
            Some(found) => holds(found, value),
            None => value.is_null(),
        }),
        // 11 and 11.0 are one number; past 2^53 only the integers tell.
        Value::Number(number) => match (found.as_u64(), number.as_u64()) {
            (Some(found), Some(number)) => found == number,
            _ => found.as_f64() == number.as_f64(),
        },
        other => found == other,
    }
}

/// Judges the answer to an upload or a reset.
pub(super) fn answer(answer: &Answer, expect: &Expect) -> Result<(), Mismatch> {
    status(answer, &expect.status)?;
    for (name, value) in &expect.headers {
        header(&answer.headers, name, value)?;
    }
    if expect.empty && !answer.body.is_empty() {
        return Err(mismatch("an empty body", answer));
    }
    if expect.body.is_null() { Ok(()) } else { body(answer, &expect.body) }
}

/// Judges a device's state.
pub(super) fn state(answer: &Answer, allowed: &[u16], expect: &Value) -> Result<(), Mismatch> {
    status(answer, allowed)?;
    body(answer, expect)
}

/// Judges a device's track.
pub(super) fn track(answer: &Answer, expect: &TrackExpect) -> Result<(), Mismatch> {
    status(answer, &[200])?;
    let found = answer.json();
    let records = found["records"].as_array().ok_or_else(|| mismatch("an array `records`", answer))?;
    let keys: Vec<_> = records.iter().map(|record| json!([record["epoch_id"], record["seq"]])).collect();
    let keys = Value::Array(keys);
    if keys != expect.keys {
        return Err(Mismatch { expected: format!("keys {}", expect.keys), got: format!("keys {keys}") });
    }
    for (subset, record) in expect.records.iter().flatten().zip(records) {
        if !holds(record, subset) {
            return Err(Mismatch { expected: format!("a record with {subset}"), got: record.to_string() });
        }
    }
    Ok(())
}

fn status(answer: &Answer, allowed: &[u16]) -> Result<(), Mismatch> {
    if allowed.contains(&answer.status) {
        return Ok(());
    }
    let allowed: Vec<_> = allowed.iter().map(ToString::to_string).collect();
    Err(mismatch(&format!("status {}", allowed.join(" or ")), answer))
}

fn body(answer: &Answer, expect: &Value) -> Result<(), Mismatch> {
    if holds(&answer.json(), expect) {
        Ok(())
    } else {
        Err(mismatch(&format!("a body with {expect}"), answer))
    }
}

fn header(found: &HeaderMap, name: &str, expect: &Value) -> Result<(), Mismatch> {
    let value = found.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let (right, expected) = match expect {
        Value::Null => (value.is_none(), format!("no header {name}")),
        Value::String(text) => (value.as_ref() == Some(text), format!("{name}: {text}")),
        _ => (value.is_some(), format!("a header {name}")),
    };
    let got =
        || value.as_ref().map_or_else(|| format!("no header {name}"), |value| format!("{name}: {value}"));
    if right { Ok(()) } else { Err(Mismatch { expected, got: got() }) }
}

fn mismatch(expected: &str, answer: &Answer) -> Mismatch {
    Mismatch { expected: expected.to_owned(), got: answer.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subset_holds_or_not() {
        let found = json!({"a": 1, "b": {"c": 2.0}, "d": [1], "big": 9_007_199_254_740_993_u64});
        for (subset, expected) in [
            (json!({"a": 1, "b": {"c": 2}}), true),
            (json!({"a": 2}), false),
            (json!({"missing": 1}), false),
            (json!({"missing": null}), true),
            (json!({"a": null}), false),
            (json!({"d": [1, 2]}), false),
            (json!({"big": 9_007_199_254_740_992_u64}), false),
        ] {
            assert_eq!(holds(&found, &subset), expected, "{subset}");
        }
    }

    #[test]
    fn every_part_of_an_answer_is_judged() {
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "7".parse().expect("a value"));
        let found = Answer { status: 503, headers, body: r#"{"code":"unavailable"}"#.to_owned() };
        for (expect, got) in [
            (json!({"status": 503, "body": {"code": "unavailable"}, "headers": {"Retry-After": "7"}}), None),
            (json!({"status": [500, 503], "headers": {"Retry-After": true, "Date": null}}), None),
            (json!({"status": [200, 202]}), Some("status 503")),
            (json!({"status": 503, "body": {"code": "internal"}}), Some("status 503")),
            (json!({"status": 503, "empty": true}), Some("status 503")),
            (json!({"status": 503, "headers": {"Date": true}}), Some("no header Date")),
            (json!({"status": 503, "headers": {"Retry-After": null}}), Some("Retry-After: 7")),
            (json!({"status": 503, "headers": {"Retry-After": "8"}}), Some("Retry-After: 7")),
        ] {
            let parsed = serde_json::from_value(expect.clone()).expect("an expectation");
            let judged = answer(&found, &parsed).err();
            assert_eq!(judged.is_some(), got.is_some(), "{expect}");
            assert!(judged.is_none_or(|judged| judged.got.starts_with(got.unwrap_or_default())), "{expect}");
        }
    }

    #[test]
    fn a_track_is_its_keys_and_records() {
        let body = r#"{"records":[{"epoch_id":0,"seq":1,"extra":{"hdop":1}},{"epoch_id":0,"seq":2}]}"#;
        let found = Answer { status: 200, headers: HeaderMap::new(), body: body.to_owned() };
        for (expect, right) in [
            (json!({"keys": [[0, 1], [0, 2]]}), true),
            (json!({"keys": [[0, 1], [0, 2]], "records": [{"extra": {"hdop": 1}}, {"battery": null}]}), true),
            (json!({"keys": [[0, 1], [0, 2]], "records": [{"extra": {"hdop": 2}}]}), false),
            (json!({"keys": [[0, 1]]}), false),
            (json!({"keys": [[0, 2], [0, 1]]}), false),
        ] {
            let parsed = serde_json::from_value(expect.clone()).expect("an expectation");
            assert_eq!(track(&found, &parsed).is_ok(), right, "{expect}");
        }
    }
}
