//! The given cases, as far as decoding alone decides them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::decode;
use crate::domain::batch::Limits;

const CASES: [&str; 2] = [
    include_str!("../../../fixtures/cases/telemetry.json"),
    include_str!("../../../fixtures/cases/encodings.json"),
];

fn body(step: &Value) -> Option<Vec<u8>> {
    if let Some(raw) = step["raw"].as_str() {
        return Some(raw.as_bytes().to_vec());
    }
    if let Some(raw) = step["raw_b64"].as_str() {
        return Some(STANDARD.decode(raw).expect("base64"));
    }
    step.get("upload").map(|upload| upload.to_string().into_bytes())
}

fn count(expected: &Value, key: &str) -> usize {
    expected[key].as_u64().map_or(0, |n| usize::try_from(n).expect("small"))
}

/// Compares one upload; `fresh`: it is the first of its device, so every usable record is new.
fn check(name: &str, step: &Value, fresh: bool) {
    let expected = &step["expect"]["body"];
    let bytes = body(step).expect("an upload");
    let decoded = decode(&bytes, &Limits::default());
    if expected["status"] == "quarantined" && expected["reason"] != "inconsistent_duplicate" {
        let unreadable = decoded.expect_err(name);
        assert!(!unreadable.detail.is_empty(), "{name}");
        return;
    }
    let batch = decoded.expect(name);
    assert_eq!(batch.device_id.as_str(), step["as"], "{name}");
    assert_eq!(batch.unusable.len(), count(expected, "quarantined"), "{name}: {:?}", batch.unusable);
    if fresh && expected.get("accepted").is_some() {
        let usable: usize =
            ["accepted", "repeated", "conflicts"].map(|key| count(expected, key)).iter().sum();
        assert_eq!(batch.records.len(), usable, "{name}");
    }
    if let Some(seq) = expected["last_seq"].as_u64() {
        assert_eq!(batch.records.iter().map(|r| r.seq.get()).max(), Some(seq), "{name}");
    }
}

#[test]
fn the_given_cases_come_out_right() {
    let read = |text: &str| serde_json::from_str::<Vec<Value>>(text).expect("the fixture");
    let cases: Vec<Value> = CASES.into_iter().flat_map(read).collect();
    let mut uploads = 0;
    for case in &cases {
        let name = case["name"].as_str().expect("a name");
        let mut seen = Vec::new();
        for step in case["steps"].as_array().expect("steps").iter().filter(|step| body(step).is_some()) {
            check(name, step, !seen.contains(&&step["as"]));
            seen.push(&step["as"]);
            uploads += 1;
        }
    }
    assert!(cases.len() >= 70 && uploads >= cases.len(), "{uploads} uploads of {} cases", cases.len());
}
