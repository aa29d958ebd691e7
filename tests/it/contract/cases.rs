//! The given cases, over real HTTP: inputs that broke systems like this one, each with the right answer.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::http::harness::Gateway;
use crate::support::tracker::Tracker;

/// Every file of them.
const FILES: [(&str, &str); 2] = [
    ("telemetry.json", include_str!("../../../fixtures/cases/telemetry.json")),
    ("encodings.json", include_str!("../../../fixtures/cases/encodings.json")),
];

/// Cases that need the reset of an epoch by ops, a route this gateway does not have yet.
const WAITING: [&str; 1] = ["late batch of the old counter after a reset is held"];

/// Every key of `subset` is in `found` with that value.
fn holds(found: &Value, subset: &Value) -> bool {
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

fn upload(gateway: &Gateway, step: &Value) -> (u16, Value) {
    let body = match (&step["upload"], &step["raw"], &step["raw_b64"]) {
        (Value::Object(batch), ..) => Value::Object(batch.clone()).to_string().into_bytes(),
        (_, Value::String(raw), _) => raw.as_bytes().to_vec(),
        (.., Value::String(raw)) => STANDARD.decode(raw).expect("base64"),
        _ => panic!("no upload: {step}"),
    };
    let id = step["as"].as_str().expect("a device");
    let mut headers = vec![
        ("Host".to_owned(), "x".to_owned()),
        ("Content-Type".to_owned(), "application/json".to_owned()),
        ("X-Device-Id".to_owned(), id.to_owned()),
        ("X-Signature".to_owned(), format!("sha256={}", Tracker::new(id).sign(&body))),
        ("Content-Length".to_owned(), body.len().to_string()),
    ];
    for (name, value) in step["headers"].as_object().into_iter().flatten() {
        headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
        headers.extend(value.as_str().map(|value| (name.clone(), value.to_owned())));
    }
    let mut request = b"POST /v1/batches HTTP/1.1\r\n".to_vec();
    for (name, value) in headers {
        request.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    request.extend_from_slice(b"\r\n");
    request.extend_from_slice(&body);
    let answer = gateway.exchange(request);
    (answer.status, answer.json())
}

fn check_status(name: &str, status: u16, expected: &Value) {
    let allowed = match expected {
        Value::Array(several) => several.iter().any(|one| *one == status),
        one => *one == status,
    };
    assert!(allowed, "{name}: status {status}, expected {expected}");
}

fn check_step(name: &str, gateway: &Gateway, step: &Value) {
    let expected = &step["expect"];
    if let Some(id) = step["state"].as_str() {
        let state = gateway.get(&format!("/v1/devices/{id}")).json();
        assert!(holds(&state, expected), "{name}: state {state}, expected {expected}");
    } else if let Some(id) = step["track"].as_str() {
        let track = gateway.get(&format!("/v1/devices/{id}/track?format=json")).json();
        let records = track["records"].as_array().expect("records");
        let keys: Vec<Value> =
            records.iter().map(|record| serde_json::json!([record["epoch_id"], record["seq"]])).collect();
        assert_eq!(Value::Array(keys), expected["keys"], "{name}");
    } else {
        let (status, body) = upload(gateway, step);
        check_status(name, status, &expected["status"]);
        assert!(holds(&body, &expected["body"]), "{name}: answer {body}, expected {}", expected["body"]);
    }
}

#[test]
fn every_given_case_comes_out_right() {
    let read = |text: &str| serde_json::from_str::<Vec<Value>>(text).expect("a fixture");
    let cases: Vec<Value> = FILES.iter().flat_map(|(_, text)| read(text)).collect();
    let gateway = Gateway::start();
    let mut waiting = Vec::new();
    for case in &cases {
        let name = case["name"].as_str().expect("a name");
        let steps = case["steps"].as_array().expect("steps");
        if steps.iter().any(|step| step.get("reset").is_some()) {
            waiting.push(name);
            continue;
        }
        for step in steps {
            check_step(name, &gateway, step);
        }
    }
    assert_eq!(waiting, WAITING, "only what needs a reset may wait");
    let found = gateway.store.verify(&mut |_, _| {}).expect("verify runs");
    assert_eq!(found.differences, Vec::<String>::new());
    gateway.stop();
}

#[test]
fn every_file_of_cases_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/cases");
    let listing = std::fs::read_dir(folder).expect("a folder");
    let mut found: Vec<_> = listing.map(|entry| entry.expect("an entry").file_name()).collect();
    found.sort();
    let mut run: Vec<_> = FILES.iter().map(|(name, _)| std::ffi::OsString::from(name)).collect();
    run.sort();
    assert_eq!(found, run);
}

#[test]
fn the_comparison_can_fail() {
    let found = serde_json::json!({"a": 1, "b": {"c": 2.0}, "d": [1]});
    for (subset, expected) in [
        (serde_json::json!({"a": 1, "b": {"c": 2}}), true),
        (serde_json::json!({"a": 2}), false),
        (serde_json::json!({"missing": 1}), false),
        (serde_json::json!({"missing": null}), true),
        (serde_json::json!({"d": [1, 2]}), false),
    ] {
        assert_eq!(holds(&found, &subset), expected, "{subset}");
    }
}
