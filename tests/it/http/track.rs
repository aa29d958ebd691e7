//! Histories.

use super::harness::{Gateway, TOKEN, batch};

/// `epoch.seq` of every record of a page.
fn keys(page: &serde_json::Value) -> Vec<String> {
    let records = page["records"].as_array().expect("records");
    records.iter().map(|record| format!("{}.{}", record["epoch_id"], record["seq"])).collect()
}

fn two_epochs() -> Gateway {
    let gateway = Gateway::start();
    gateway.upload("a", &batch("a", "x", Some(2), &[3, 1, 2]));
    gateway.clock.advance_seconds(60);
    gateway.upload("a", &batch("a", "y", Some(7), &[2, 9]));
    gateway
}

#[test]
fn records_come_in_key_order_with_all_they_hold() {
    let gateway = two_epochs();
    let answer = gateway.get("/v1/devices/a/track");
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    let first = concat!(
        r#"{"device_id":"a","records":[{"epoch_id":2,"seq":1,"recorded_at":"1970-01-01T00:16:41Z","#,
        r#""received_at":"2026-03-31T04:12:00Z","lat":21.5,"lon":-157.25,"extra":{"hdop":0.9}},"#
    );
    assert!(answer.text().starts_with(first), "{}", answer.text());
    let page = answer.json();
    assert_eq!(keys(&page), ["2.1", "2.2", "2.3", "7.2", "7.9"]);
    assert!(page["next"].is_null());
    assert_eq!(gateway.get("/v1/devices/b/track").code(), "device_unknown");
    gateway.stop();
}

#[test]
fn ranges_choose_by_key_and_time() {
    let gateway = two_epochs();
    for (query, expected) in [
        ("epoch_id=2", "2.1 2.2 2.3"),
        ("epoch_id=7&from_seq=3", "7.9"),
        ("epoch_id=3", ""),
        ("from_seq=2&to_seq=2", "2.2 7.2"),
        ("from_seq=3", "2.3 7.9"),
        ("to_seq=1", "2.1"),
        ("from_seq=10", ""),
        ("recorded_from=1003", "2.3 7.9"),
        ("recorded_to=1970-01-01T00:16:41Z", "2.1"),
        ("received_from=2026-03-31T04:13:00Z", "7.2 7.9"),
        ("received_to=2026-03-31T04:12:59%2B00:00", "2.1 2.2 2.3"),
        ("after=2.3", "2.3 7.2 7.9"),
        ("after=2.4&to_seq=3", "7.2"),
        ("after=9.0", ""),
        ("epoch_id=2&after=9.0", ""),
    ] {
        let page = gateway.get(&format!("/v1/devices/a/track?{query}")).json();
        assert_eq!(keys(&page).join(" "), expected, "{query}");
        assert!(page["next"].is_null(), "{query}");
    }
    gateway.stop();
}

#[test]
fn a_page_is_readable_however_deep_its_values_were_sent() {
    let gateway = Gateway::start();
    for (seq, levels) in [(1, 56), (2, 57), (3, 5_000)] {
        let value = "[".repeat(levels) + &"]".repeat(levels);
        let record = format!(r#"{{"seq":{seq},"a":1,"x":{value},"battery":{value},"\u0079":{value}}}"#);
        let body =
            |id: &str| format!(r#"{{"device_id":"a","batch_id":"{id}","z":{value},"records":[{record}]}}"#);
        assert_eq!(gateway.upload("a", &body(&format!("{seq}"))).json()["accepted"], 1);
        let again = gateway.upload("a", &body(&format!("{seq} again"))).json();
        assert_eq!((&again["accepted"], &again["repeated"]), (&0.into(), &1.into()), "the same text");
        // A parser with serde_json's default limits reads it; the page as a whole is less than 64 levels deep.
        let answer = gateway.get(&format!("/v1/devices/a/track?from_seq={seq}"));
        let page = answer.json();
        let found = &page["records"][0];
        assert_eq!(found["extra"]["a"], 1);
        let text = serde_json::Value::from(value.as_str());
        if levels > 56 {
            assert_eq!(found["raw"], serde_json::json!({"battery": text, "x": text, "y": text}));
        } else {
            assert_eq!(found["extra"]["x"].to_string(), value);
            assert_eq!(found["raw"]["battery"].to_string(), value);
        }
    }
    gateway.stop();
}

#[test]
fn pages_meet_without_gap_or_overlap() {
    let gateway = Gateway::start();
    let seqs: Vec<u64> = (0..2500).collect();
    gateway.upload("a", &batch("a", "x", Some(0), &seqs));
    gateway.upload("a", &batch("a", "y", Some(1), &seqs));
    for (range, limit, expected) in [("", 1700, 5000), ("&from_seq=100&to_seq=2199", 900, 4200)] {
        let mut seen = Vec::new();
        let mut after = String::new();
        loop {
            let page = gateway.get(&format!("/v1/devices/a/track?limit={limit}{range}{after}")).json();
            assert!(keys(&page).len() <= limit);
            seen.extend(keys(&page));
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), expected);
        let mut distinct = seen.clone();
        distinct.dedup();
        assert_eq!(distinct, seen);
    }
    assert_eq!(keys(&gateway.get("/v1/devices/a/track").json()).len(), 1000, "the default");
    gateway.stop();
}

#[test]
fn lines_are_whole_unless_limited() {
    let gateway = Gateway::start();
    let seqs: Vec<u64> = (0..3500).collect();
    gateway.upload("a", &batch("a", "x", None, &seqs));
    let whole = gateway.get("/v1/devices/a/track?format=ndjson");
    assert_eq!(whole.header("Content-Type"), Some("application/x-ndjson"));
    assert!(whole.text().ends_with("}\n"));
    for (seq, line) in whole.text().lines().enumerate() {
        let record: serde_json::Value = serde_json::from_str(line).expect("a record a line");
        assert_eq!(record["seq"], seq);
    }
    assert_eq!(whole.text().lines().count(), 3500);
    let accepted = gateway.exchange(format!(
        "GET /v1/devices/a/track?limit=2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\
         Accept: application/x-ndjson\r\n\r\n"
    ));
    assert_eq!(accepted.text().lines().count(), 2);
    assert_eq!(gateway.get("/v1/devices/a/track?format=ndjson&from_seq=9999").text(), "");
    // A client that leaves in the middle takes nothing along.
    let mut leaving = gateway.connect();
    leaving.send(format!(
        "GET /v1/devices/a/track?format=ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    ));
    drop(leaving);
    gateway.stop();
}
