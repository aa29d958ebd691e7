//! Uploads and their answers.

use tidegate::domain::signature::{FleetKey, sign};

use super::harness::{Client, Gateway, batch, signature, upload};
use crate::support::tracker::FLEET_KEY;

#[test]
fn a_batch_is_stored_once_and_moves_the_state() {
    let gateway = Gateway::start();
    let body = batch("track-exp-084", "b1", Some(3), &[10_420, 10_439]);
    let answer = gateway.upload("track-exp-084", &body);
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.text(),
        r#"{"status":"processed","accepted":2,"applied":true,"epoch_id":3,"last_seq":10439}"#
    );
    let again = gateway.upload("track-exp-084", &body);
    assert_eq!((again.status, again.json()["status"].as_str()), (200, Some("duplicate")));
    let late = gateway.upload("track-exp-084", &batch("track-exp-084", "b2", Some(3), &[10_421]));
    assert_eq!(late.json()["reason"], "stale");
    let state = gateway.get("/v1/devices/track-exp-084").json();
    assert_eq!((&state["epoch_id"], &state["last_seq"]), (&3.into(), &10_439.into()));
    assert_eq!(state["received_at"], "2026-03-31T04:12:00Z");
    gateway.stop();
}

#[test]
fn authentic_rubbish_is_kept_and_acknowledged() {
    let gateway = Gateway::start();
    let answer = gateway.upload("a", "no json");
    assert_eq!((answer.status, answer.text()), (202, r#"{"status":"quarantined","reason":"invalid_json"}"#));
    let answer = gateway.upload("a", &batch("b", "x", None, &[1]));
    assert_eq!((answer.status, answer.json()["reason"].as_str()), (202, Some("device_mismatch")));
    assert_eq!(gateway.get("/v1/devices/b").status, 404, "touches nobody else");
    gateway.stop();
    let gateway = Gateway::start_with(|http| http.success_status_200 = true);
    assert_eq!(gateway.upload("a", "no json").status, 200);
    gateway.stop();
}

#[test]
fn headers_that_cannot_match_are_refused_before_the_body() {
    let gateway = Gateway::start();
    let signed = "X-Signature: ".to_owned() + &"ab".repeat(32) + "\r\n";
    for (headers, code) in [
        ("X-Device-Id: a\r\n".to_owned(), "signature_missing"),
        ("X-Device-Id: a\r\nX-Signature: \r\n".to_owned(), "signature_missing"),
        ("X-Device-Id: a\r\nX-Signature: sha256=abc\r\n".to_owned(), "signature_missing"),
        (signed.clone(), "device_id_missing"),
        (format!("{signed}X-Device-Id: \r\n"), "device_id_malformed"),
        (format!("{signed}X-Device-Id: a b\r\n"), "device_id_malformed"),
        (format!("{signed}X-Device-Id: ..\r\n"), "device_id_malformed"),
        (format!("{signed}X-Device-Id: \u{e9}\r\n"), "device_id_malformed"),
        (format!("{signed}X-Device-Id: a\r\nX-Device-Id: A\r\n"), "device_id_ambiguous"),
    ] {
        let mut client = gateway.connect();
        // Of the body not one byte is ever sent.
        client
            .send(format!("POST /v1/batches HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: 500000\r\n\r\n"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.code().as_str()), (401, code), "{headers}");
        assert_eq!(answer.header("Www-Authenticate"), Some("HMAC-SHA256"));
        assert!(answer.header("Date").is_some());
        assert!(client.is_closed(), "{headers}");
    }
    gateway.stop();
}

#[test]
fn a_signature_that_does_not_hold_stores_nothing() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1]);
    let good = upload("a", &body, "");
    let answer = gateway.exchange(good.replace("\"seq\":1,", "\"seq\":2,"));
    assert_eq!((answer.status, answer.code().as_str()), (401, "signature_mismatch"));
    let answer = gateway.exchange(good.replace("X-Device-Id: a", "X-Device-Id: b"));
    assert_eq!(answer.status, 401);
    assert_eq!(gateway.get("/v1/devices/a").status, 404);
    assert!(gateway.get("/metrics").text().contains("\ntidegate_signature_failures_total 2\n"));
    gateway.stop();
}

#[test]
fn any_signature_of_any_line_will_do() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1]);
    let wrong = "ab".repeat(32);
    let right = signature("a", body.as_bytes()).to_uppercase();
    let request = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: a\r\nX-Device-Id: a\r\nX-Signature: nonsense\r\n\
         X-Signature: sha256={wrong}, v1,{right}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = gateway.exchange(request);
    assert_eq!(answer.status, 200, "{}", answer.text());
    gateway.stop();
}

#[test]
fn the_fleet_key_itself_signs_only_where_that_is_allowed() {
    let body = batch("a", "x", None, &[1]);
    let mac = FleetKey::new(FLEET_KEY).mac(body.as_bytes());
    let hex = mac.map(|b| format!("{b:02x}")).concat();
    let request = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Signature: {hex}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let gateway = Gateway::start();
    assert_eq!(gateway.exchange(&request).code(), "device_id_missing");
    gateway.stop();
    let gateway = Gateway::start_with(|http| http.shared_fleet_key = true);
    assert_eq!(gateway.exchange(&request).status, 200);
    assert_eq!(gateway.get("/v1/devices/a").json()["last_seq"], 1);
    let foreign = sign(&[7; 32], body.as_bytes());
    assert_eq!(gateway.exchange(request.replace(&hex, &foreign)).code(), "signature_mismatch");
    gateway.stop();
}

#[test]
fn minimal_answers_are_as_few_bytes_as_http_allows() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1]);
    for prefer in ["Prefer: return=minimal\r\n", "prefer: respond-async\r\nPREFER: Return = \"minimal\"\r\n"]
    {
        let answer = gateway.exchange(upload("a", &body, prefer));
        assert_eq!(answer.head, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
    let answer = gateway.exchange(upload("a", "rubbish", "Prefer: return=minimal\r\n"));
    assert_eq!(answer.head, "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n");
    let forged = upload("a", &body, "Prefer: return=minimal\r\n").replace("\"seq\":1,", "\"seq\":2,");
    let answer = gateway.exchange(forged);
    let expected = "HTTP/1.1 401 Unauthorized\r\nWww-Authenticate: HMAC-SHA256\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(answer.head, expected);
    gateway.stop();
    let gateway = Gateway::start_with(|http| http.minimal_answers = true);
    let answer = gateway.upload("a", &body);
    assert_eq!(answer.head, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert!(gateway.get("/v1/devices/a").header("Date").is_some(), "uploads only");
    gateway.stop();
}

#[test]
fn full_answers_have_title_case_names_a_length_and_the_date() {
    let gateway = Gateway::start();
    let answer = gateway.upload("a", &batch("a", "x", None, &[1]));
    assert_eq!(
        answer.head,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Tue, 31 Mar 2026 04:12:00 GMT\r\nContent-Length: 76\r\n\r\n"
    );
    gateway.clock.advance_seconds(1);
    let answer = gateway.upload("a", &batch("a", "y", None, &[2]));
    assert_eq!(answer.header("Date"), Some("Tue, 31 Mar 2026 04:12:01 GMT"));
    gateway.stop();
}

/// A client whose body of 950 bytes has come but for the last 50.
fn hold_900_bytes(gateway: &Gateway) -> Client {
    let mut slow = gateway.connect();
    let request = upload("slow", &"x".repeat(950), "Expect: 100-continue\r\n");
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    slow.send(format!("{head}\r\n\r\n"));
    assert_eq!(slow.answer().status, 100);
    slow.send(&body[..900]);
    let holds = || gateway.get("/metrics").text().contains("\ntidegate_inflight_bytes 900\n");
    while !holds() {
        std::thread::yield_now();
    }
    slow
}

#[test]
fn bodies_together_are_bounded() {
    let gateway = Gateway::start_with(|http| http.inflight_bytes = 1000);
    let mut slow = hold_900_bytes(&gateway);
    let quick = batch("quick", "x", None, &[1]) + &" ".repeat(200);
    let answer = gateway.upload("quick", &quick);
    assert_eq!((answer.status, answer.code().as_str()), (503, "unavailable"));
    let seconds: u32 = answer.header("Retry-After").expect("a time").parse().expect("seconds");
    assert!((5..=30).contains(&seconds));
    let minimal = gateway.exchange(upload("quick", &quick, "Prefer: return=minimal\r\n"));
    assert!(minimal.status == 503 && minimal.header("Retry-After").is_some() && minimal.body.is_empty());
    slow.send("x".repeat(50));
    assert_eq!(slow.answer().status, 202);
    assert_eq!(gateway.upload("quick", &quick).status, 200, "the bytes came back");
    gateway.stop();
}

#[test]
fn what_bodies_decode_to_is_bounded_too() {
    let gateway = Gateway::start_with(|http| http.inflight_bytes = 10_000);
    let mut slow = hold_900_bytes(&gateway);
    let elements = vec!["{}"; 1000].join(",");
    let many = format!(r#"{{"device_id":"many","batch_id":"x","records":[{elements}]}}"#);
    assert!(many.len() < 4000, "the body alone would fit");
    assert_eq!(gateway.upload("many", &many).status, 503);
    slow.send("x".repeat(50));
    assert_eq!(slow.answer().status, 202);
    let alone = gateway.upload("many", &many);
    assert_eq!((alone.status, &alone.json()["quarantined"]), (200, &1000.into()), "no upload waits for ever");
    gateway.stop();
}
