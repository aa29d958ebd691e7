//! How requests travel: framing, limits, old clients, many requests on one connection.

use std::io::Write as _;

use super::harness::{Gateway, batch, signature, upload};

#[test]
fn one_connection_takes_many_uploads() {
    let gateway = Gateway::start();
    let mut client = gateway.connect();
    for seq in 0..3 {
        client.send(upload("a", &batch("a", &format!("b{seq}"), None, &[seq]), ""));
        assert_eq!(client.answer().json()["last_seq"], seq);
    }
    // Sent before the answers are read.
    let both: String =
        [3, 4].map(|seq| upload("a", &batch("a", &format!("b{seq}"), None, &[seq]), "")).concat();
    client.send(both);
    assert_eq!(client.answer().json()["last_seq"], 3);
    assert_eq!(client.answer().json()["last_seq"], 4);
    gateway.stop();
}

#[test]
fn http_1_0_without_a_host_gets_its_answer_after_closing_its_side() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1]);
    let mut client = gateway.connect();
    let request = upload("a", &body, "").replace("HTTP/1.1\r\nHost: x\r\n", "HTTP/1.0\r\n");
    client.send(request);
    client.end_sending();
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.header("Content-Length").is_some(), "{}", answer.head);
    assert!(client.is_closed());
    gateway.stop();
}

fn chunked(body: &[u8], piece: usize) -> Vec<u8> {
    let mut framed = Vec::new();
    for chunk in body.chunks(piece) {
        write!(framed, "{:x}\r\n", chunk.len()).expect("memory");
        framed.extend_from_slice(chunk);
        framed.extend_from_slice(b"\r\n");
    }
    framed.extend_from_slice(b"0\r\n\r\n");
    framed
}

fn chunked_head(device_id: &str, body: &[u8]) -> String {
    format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: {device_id}\r\nX-Signature: {}\r\n\
         Transfer-Encoding: chunked\r\n\r\n",
        signature(device_id, body)
    )
}

#[test]
fn chunks_are_put_together() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1, 2, 3]);
    let mut client = gateway.connect();
    client.send(chunked_head("a", body.as_bytes()));
    client.send(chunked(body.as_bytes(), 7));
    assert_eq!(client.answer().json()["accepted"], 3);
    gateway.stop();
}

#[test]
fn large_bodies_are_decoded_too() {
    let gateway = Gateway::start();
    let seqs: Vec<u64> = (0..10_000).collect();
    let body = batch("a", "x", None, &seqs);
    assert!(body.len() > 600_000 && body.len() < 1 << 20);
    let answer = gateway.upload("a", &body);
    assert_eq!(answer.json()["accepted"], 10_000, "{}", answer.text());
    gateway.stop();
}

#[test]
fn a_body_over_the_limit_is_refused_and_the_client_sees_it() {
    let gateway = Gateway::start_with(|http| http.body_bytes_max = 1000);
    let fits = batch("a", "x", None, &[1]);
    let fits = fits.clone() + &" ".repeat(1000 - fits.len());
    assert_eq!(gateway.upload("a", &fits).status, 200);

    // Announced: the client sends all of it before it looks for the answer.
    let mut client = gateway.connect();
    client.send(upload("a", &"x".repeat(3 << 20), ""));
    let answer = client.answer();
    assert_eq!((answer.status, answer.code().as_str()), (413, "body_too_large"));
    assert!(client.is_closed());
    drop(client);

    // In chunks: noticed on the way.
    let body = "x".repeat(3 << 20);
    let mut client = gateway.connect();
    client.send(chunked_head("a", body.as_bytes()));
    client.send(chunked(body.as_bytes(), 1 << 16));
    assert_eq!(client.answer().status, 413);
    assert!(client.is_closed());
    drop(client);

    // With Expect: refused before a byte of it is sent.
    let mut client = gateway.connect();
    let request = upload("a", &"x".repeat(1001), "Expect: 100-continue\r\n");
    client.send(request.split_inclusive("\r\n\r\n").next().expect("a head"));
    assert_eq!(client.answer().status, 413);
    assert!(client.is_closed());
    drop(client);
    assert!(gateway.get("/metrics").text().contains("tidegate_uploads_total{outcome=\"too_large\"} 3"));
    gateway.stop();
}

#[test]
fn expect_is_answered_before_the_body() {
    let gateway = Gateway::start();
    let request = upload("a", &batch("a", "x", None, &[1]), "Expect: 100-continue\r\n");
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let mut client = gateway.connect();
    client.send(format!("{head}\r\n\r\n"));
    assert_eq!(client.answer().status, 100);
    client.send(body);
    assert_eq!(client.answer().status, 200);
    gateway.stop();
}

#[test]
fn a_body_that_breaks_off_stores_nothing() {
    let gateway = Gateway::start();
    let request = upload("a", &batch("a", "x", None, &[1]), "");
    let mut client = gateway.connect();
    client.send(&request[..request.len() - 1]);
    client.end_sending();
    assert_eq!(client.answer().code(), "body_broken");
    assert_eq!(gateway.get("/v1/devices/a").status, 404);
    gateway.stop();
}

#[test]
fn a_silent_body_is_given_up() {
    let gateway = Gateway::start_with(|http| http.body_idle_timeout = std::time::Duration::from_millis(1));
    let request = upload("a", &batch("a", "x", None, &[1]), "");
    let mut client = gateway.connect();
    client.send(&request[..request.len() - 1]);
    assert_eq!(client.answer().code(), "body_timeout");
    assert!(client.is_closed());
    drop(client);
    gateway.stop();
}

#[test]
fn bad_framing_and_endless_headers_are_refused() {
    let gateway = Gateway::start();
    let answer = gateway.exchange("POST /v1/batches HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n");
    assert_eq!(answer.status, 400);
    let long = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(20 << 10));
    assert_eq!(gateway.exchange(long).status, 431);
    gateway.stop();
}

#[test]
fn connections_are_counted_until_their_client_leaves() {
    let gateway = Gateway::start();
    let mut staying = gateway.connect();
    staying.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    staying.answer();
    for _ in 0..5 {
        gateway.get("/healthz");
    }
    // Each look is a connection of its own; those that left are seen to have left.
    while !gateway.get("/metrics").text().contains("\ntidegate_connections 2\n") {
        std::thread::yield_now();
    }
    gateway.stop();
}
