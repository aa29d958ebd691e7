//! Devices as dashboards read them.

use super::harness::{Gateway, TOKEN, batch};

#[test]
fn devices_come_in_pages_ordered_by_id() {
    let gateway = Gateway::start();
    let empty = gateway.get("/v1/devices");
    assert_eq!(empty.text(), r#"{"devices":[],"next":null,"stream_cursor":"0"}"#);
    for device_id in ["b", "a", "B", "c"] {
        gateway.upload(device_id, &batch(device_id, "x", None, &[1]));
    }
    let ids = |path: &str| {
        let page = gateway.get(path).json();
        let ids: Vec<_> = page["devices"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|device| device["device_id"].as_str().expect("an id").to_owned())
            .collect();
        assert!(page["stream_cursor"].is_string());
        (ids.concat(), page["next"].as_str().map(ToOwned::to_owned))
    };
    assert_eq!(ids("/v1/devices"), ("Babc".into(), None));
    assert_eq!(ids("/v1/devices?limit=2"), ("Ba".into(), Some("a".into())));
    assert_eq!(ids("/v1/devices?limit=2&after=a"), ("bc".into(), None));
    assert_eq!(ids("/v1/devices?after=zzz"), (String::new(), None));
    gateway.stop();
}

#[test]
fn a_bad_query_is_400() {
    let gateway = Gateway::start();
    gateway.upload("a", &batch("a", "x", None, &[1]));
    for path in [
        "/v1/devices?limit=0",
        "/v1/devices?limit=1001",
        "/v1/devices?limit=1&limit=2",
        "/v1/devices?after=a/b",
        "/v1/devices?lmit=3",
        "/v1/devices/a?x=1",
        "/v1/devices/a/track?limit=10001",
        "/v1/devices/a/track?format=xml",
        "/v1/devices/a/track?recorded_from=yesterday",
        "/v1/devices/a/track?after=1",
    ] {
        let answer = gateway.get(path);
        assert_eq!((answer.status, answer.code().as_str()), (400, "query_invalid"), "{path}");
    }
    gateway.stop();
}

#[test]
fn a_state_has_a_strong_tag_that_moves_with_it() {
    let gateway = Gateway::start();
    assert_eq!(gateway.get("/v1/devices/a").code(), "device_unknown");
    for no_id in ["a%2Fb", "%FF", "%00", "..%2e"] {
        assert_eq!(gateway.get(&format!("/v1/devices/{no_id}")).code(), "device_unknown");
        assert_eq!(gateway.get(&format!("/v1/devices/{no_id}/track")).code(), "device_unknown");
    }
    gateway.upload("a", &batch("a", "x", None, &[1]));
    let first = gateway.get("/v1/devices/a");
    let tag = first.header("Etag").expect("a tag").to_owned();
    assert_eq!(tag, format!("\"{}\"", first.json()["revision"]));
    let conditional = |tag: &str| {
        gateway.exchange(format!(
            "GET /v1/devices/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nIf-None-Match: {tag}\r\n\r\n"
        ))
    };
    for known in [tag.clone(), format!("W/{tag}"), format!("\"x\", {tag}"), "*".to_owned()] {
        let answer = conditional(&known);
        assert_eq!((answer.status, answer.header("Etag")), (304, Some(tag.as_str())), "{known}");
        assert_eq!(answer.header("Content-Type"), None);
    }
    assert_eq!(conditional("\"x\"").status, 200);
    gateway.upload("a", &batch("a", "y", None, &[2]));
    assert_eq!(conditional(&tag).json()["last_seq"], 2);
    gateway.stop();
}

#[test]
fn the_guard_of_a_new_epoch_is_shown() {
    let gateway = Gateway::start();
    gateway.upload("a", &batch("a", "x", Some(0), &[900]));
    gateway.upload("a", &batch("a", "y", Some(1), &[5]));
    let guard = gateway.get("/v1/devices/a").json()["guard"].clone();
    assert_eq!(
        guard,
        serde_json::json!({
            "epoch_id": 1, "window": 1000, "next_seq": 0, "here": 5, "old": 900, "reach": 455,
            "raised_at": "2026-03-31T04:12:00Z", "until": "2026-04-07T04:12:00Z",
        })
    );
    gateway.clock.advance_seconds(7 * 86_400);
    assert!(gateway.get("/v1/devices/a").json()["guard"].is_null());
    gateway.stop();
}
