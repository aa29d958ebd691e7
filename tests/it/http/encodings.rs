//! A batch says the same in every form it can travel in.

use serde_json::{Value, json};
use tidegate::fleet::Encoding;

use super::harness::{Answer, Gateway, signature};
use crate::support::tracker::Tracker;

/// Uploads bytes of any kind.
fn upload(gateway: &Gateway, device_id: &str, body: &[u8], more: &str) -> Answer {
    let mut request = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: {device_id}\r\nX-Signature: sha256={}\r\n{more}Content-Length: {}\r\n\r\n",
        signature(device_id, body),
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    gateway.exchange(request)
}

/// Good records and bad ones, spelled as no encoder would: numbers with zeros behind, blanks, escapes.
fn body(device_id: &str, batch_id: &str) -> String {
    format!(
        r#"{{ "device_id":"{device_id}","batch_id":"{batch_id}","epoch_id":"2","fw":{{"b":1,"a":2}},"records":[
            {{"seq":1,"recorded_at":"2026-03-31T04:12:00Z","lat":21.30690,"lon":-157.8583,"battery":3.820}},
            {{"seq":2.0,"recorded_at":1774930380,"lat":-0.0,"lon":1e2,"battery":"n/a","note":"\u00e9\n\"\\"}},
            {{"seq":9007199254740993,"lat":null,"extra":[1,2.50,{{"z":null,"y":true}}]}},
            {{"seq":4,"lat":912.00,"lon":1}},
            7.0,
            {{"battery":3.8 }},
            {{"seq":5,"seq":5}}]}}"#
    )
}

fn track(gateway: &Gateway, device_id: &str) -> Value {
    gateway.get(&format!("/v1/devices/{device_id}/track?format=json")).json()["records"].clone()
}

#[test]
fn every_form_gets_the_same_receipt_and_gives_the_same_track() {
    let gateway = Gateway::start();
    let plain = upload(&gateway, "json", body("json", "b").as_bytes(), "");
    let counts = json!({"status": "processed", "accepted": 3, "quarantined": 4, "applied": true,
        "epoch_id": 2, "last_seq": 9_007_199_254_740_993_u64});
    assert_eq!((plain.status, plain.json()), (200, counts));
    let expected = track(&gateway, "json");
    assert_eq!(expected.as_array().map(Vec::len), Some(3));
    for encoding in Encoding::ALL {
        let id = format!("d-{encoding}").replace('+', "-");
        let packed = encoding.encode(body(&id, "b").as_bytes()).expect("encodes");
        let answer = upload(&gateway, &id, &packed, "");
        assert_eq!((answer.status, answer.text()), (200, plain.text()), "{encoding}");
        assert_eq!(track(&gateway, &id), expected, "{encoding}");
    }
    gateway.stop();
}

#[test]
fn what_is_small_on_the_wire_and_large_inside_is_read_whole() {
    let gateway = Gateway::start();
    let records: Vec<String> =
        (0..5000).map(|seq| format!(r#"{{"seq":{seq},"lat":1.5,"lon":2.5}}"#)).collect();
    for (id, form) in [("z", "gzip"), ("c", "cbor+zstd")] {
        let body = format!(r#"{{"device_id":"{id}","batch_id":"b","records":[{}]}}"#, records.join(","));
        let packed = form.parse::<Encoding>().expect("a form").encode(body.as_bytes()).expect("encodes");
        assert!(packed.len() < 60_000 && body.len() > 150_000, "{} {}", packed.len(), body.len());
        let answer = upload(&gateway, id, &packed, "");
        assert_eq!((answer.status, answer.json()["accepted"].as_u64()), (200, Some(5000)), "{form}");
    }
    gateway.stop();
}

#[test]
fn the_same_batch_in_another_form_is_a_duplicate() {
    let gateway = Gateway::start();
    for first in Encoding::ALL {
        let id = format!("first-{first}").replace('+', "-");
        let json = body(&id, "b");
        let sent = first.encode(json.as_bytes()).expect("encodes");
        assert_eq!(upload(&gateway, &id, &sent, "").json()["accepted"], 3, "{first}");
        for again in Encoding::ALL {
            let answer = upload(&gateway, &id, &again.encode(json.as_bytes()).expect("encodes"), "");
            let status = answer.json()["status"].clone();
            assert_eq!(
                (answer.status, status),
                (200, json!("duplicate")),
                "{first}, {again}: {}",
                answer.text()
            );
        }
        let other = upload(&gateway, &id, &sent[..sent.len() - 1], "");
        assert_eq!(other.status, 202, "{first}: not whole");
    }
    gateway.stop();
}

#[test]
fn under_another_batch_id_every_record_is_a_repeat() {
    let gateway = Gateway::start();
    let tracker = Tracker::new("t");
    let records = crate::support::tracker::records(1, 20);
    for (index, encoding) in Encoding::ALL.into_iter().enumerate() {
        let body = tracker.body(&index.to_string(), None, &records).to_string();
        let answer = upload(&gateway, "t", &encoding.encode(body.as_bytes()).expect("encodes"), "").json();
        let (accepted, repeated) = if index == 0 { (20, Value::Null) } else { (0, json!(20)) };
        assert_eq!((&answer["accepted"], &answer["repeated"]), (&json!(accepted), &repeated), "{encoding}");
    }
    gateway.stop();
}
