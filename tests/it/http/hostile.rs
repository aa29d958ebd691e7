//! What broken and hostile clients send: refused without harm to anybody else.

use super::harness::{Gateway, batch, signature, upload};

/// That the gateway is as well as before.
fn is_well(gateway: &Gateway) {
    static BATCHES: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let seq = BATCHES.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let answer = gateway.upload("well", &batch("well", &seq.to_string(), None, &[seq]));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(gateway.get("/metrics").text().contains("\ntidegate_inflight_bytes 0\n"));
}

#[test]
fn headers_are_bounded_in_number_and_bytes() {
    let gateway = Gateway::start();
    let with = |more: &str| format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{more}\r\n");
    let fits = with(&"X-A: 1\r\n".repeat(50));
    assert_eq!(gateway.exchange(fits).status, 200);
    for more in [
        "X-A: 1\r\n".repeat(2000),
        format!("X-Long: {}\r\n", "x".repeat(17 << 10)),
        format!("{}: 1\r\n", "X".repeat(17 << 10)),
        "A:\r\n".repeat(4000),
    ] {
        let mut client = gateway.connect();
        // It may hang up before all of it was sent.
        client.try_send(with(&more));
        let answer = client.any_answer();
        assert!(answer.is_none_or(|answer| answer.status == 431), "{more:.20}");
        assert!(client.is_over());
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(17 << 10));
    assert!(matches!(gateway.exchange(long).status, 414 | 431));
    is_well(&gateway);
    gateway.stop();
}

#[test]
fn blank_lines_without_end_are_bounded() {
    let gateway = Gateway::start();
    let mut client = gateway.connect();
    client.try_send("\r\n".repeat(64 << 10));
    let _ = client.any_answer();
    assert!(client.is_over());
    is_well(&gateway);
    gateway.stop();
}

#[test]
fn two_lengths_are_no_length() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1]);
    let head = |framing: &str| {
        format!(
            "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: a\r\nX-Signature: {}\r\n{framing}\r\n",
            signature("a", body.as_bytes())
        )
    };
    for framing in [
        format!("Content-Length: {}\r\nContent-Length: {}\r\n", body.len(), body.len() + 1),
        format!("Content-Length: {}, {}\r\n", body.len(), body.len() + 1),
        format!("Content-Length: +{}\r\n", body.len()),
        "Content-Length: -1\r\n".to_owned(),
        format!("Content-Length: {}\r\n", u128::from(u64::MAX) + 1),
        format!("Content-Length: {}\r\nTransfer-Encoding: gzip\r\n", body.len()),
        "Transfer-Encoding: chunked, gzip\r\n".to_owned(),
    ] {
        let mut client = gateway.connect();
        client.try_send(head(&framing) + &body);
        let answer = client.any_answer();
        assert!(answer.is_none_or(|answer| answer.status == 400), "{framing}");
        assert!(client.is_over(), "what follows has no known beginning: {framing}");
    }
    assert_eq!(gateway.get("/v1/devices/a").status, 404);
    is_well(&gateway);
    gateway.stop();
}

/// A proxy that goes by the length would see a second request where this gateway sees a body, or the other way
/// round: the chunks decide (RFC 9112, 6.3), and the connection ends behind it.
#[test]
fn a_length_beside_chunks_smuggles_nothing() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1]);
    let request = format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nX-Device-Id: a\r\nX-Signature: {}\r\nContent-Length: 5\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        signature("a", body.as_bytes()),
        body.len()
    );
    let mut client = gateway.connect();
    client.try_send(request + "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert!(client.is_over(), "whatever stands behind it is not trusted");
    is_well(&gateway);
    gateway.stop();
}

#[test]
fn bodies_shorter_and_longer_than_announced() {
    let gateway = Gateway::start();
    let body = batch("a", "x", None, &[1]);
    let framed = |length: usize, sent: &str| {
        upload("a", &body, "").replace(
            &format!("Length: {}\r\n\r\n{body}", body.len()),
            &format!("Length: {length}\r\n\r\n{sent}"),
        )
    };
    // Shorter: it waits for the rest, which does not come.
    let mut client = gateway.connect();
    client.send(framed(body.len() + 1, &body));
    client.end_sending();
    assert_eq!(client.answer().code(), "body_broken");
    assert_eq!(gateway.get("/v1/devices/a").status, 404);
    // Longer: what is beyond the length is a request of its own, and no HTTP.
    let mut client = gateway.connect();
    client.send(framed(body.len(), &format!("{body}}}}}rubbish\r\n\r\n")));
    assert_eq!(client.answer().status, 200);
    assert!(client.any_answer().is_none_or(|answer| answer.status == 400));
    assert!(client.is_over());
    is_well(&gateway);
    gateway.stop();
}

#[test]
fn nothing_behind_a_refused_request_is_taken() {
    let gateway = Gateway::start();
    let refused = upload("a", &batch("a", "x", None, &[1]), "").replace("sha256=", "sha256=nonsense");
    let behind = upload("b", &batch("b", "x", None, &[1]), "");
    let mut client = gateway.connect();
    client.send(refused + &behind);
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("Connection")), (401, Some("close")));
    assert!(client.is_closed());
    drop(client);
    assert_eq!(gateway.get("/v1/devices/b").status, 404);
    // A signature that is well formed and wrong was read with its body: the next request counts.
    let wrong = upload("a", &batch("a", "x", None, &[1]), "").replacen(
        "sha256=",
        &format!("sha256={}", "0".repeat(64)),
        1,
    );
    let wrong = cut_old_signature(&wrong);
    let mut client = gateway.connect();
    client.send(wrong + &behind);
    assert_eq!(client.answer().status, 401);
    assert_eq!(client.answer().status, 200);
    gateway.stop();
}

/// Leaves the first 64 hex digits of the signature's line and drops those behind them.
fn cut_old_signature(request: &str) -> String {
    let at = request.find("sha256=").expect("a signature") + "sha256=".len() + 64;
    let end = at + request[at..].find("\r\n").expect("a line");
    request[..at].to_owned() + &request[end..]
}

#[test]
fn a_refused_request_is_not_told_to_go_on() {
    let gateway = Gateway::start();
    let good = upload("a", &batch("a", "x", None, &[1]), "Expect: 100-continue\r\n");
    let (head, body) = good.split_once("\r\n\r\n").expect("a body");
    let head = format!("{head}\r\n\r\n");
    for (refused, code) in [
        (head.replace("sha256=", "sha256=nonsense"), "signature_missing"),
        (head.replace("X-Signature", "X-Other"), "signature_missing"),
        (head.replace("X-Device-Id: a", "X-Device-Id: a/b"), "device_id_malformed"),
        (head.replace("X-Device-Id: a", "X-Other: a"), "device_id_missing"),
        (head.replace("X-Device-Id: a", "X-Device-Id: a\r\nX-Device-Id: b"), "device_id_ambiguous"),
    ] {
        let mut client = gateway.connect();
        client.send(&refused);
        // The first thing that comes is the refusal, and not 100.
        let answer = client.answer();
        assert_eq!((answer.status, answer.code().as_str()), (401, code));
        assert!(client.is_closed());
    }
    let mut client = gateway.connect();
    client.send(head);
    assert_eq!(client.answer().status, 100);
    client.send(body);
    assert_eq!(client.answer().status, 200);
    gateway.stop();
}

#[test]
fn many_half_headers_keep_nobody_out() {
    let gateway = Gateway::start_with(|http| http.header_timeout = std::time::Duration::from_millis(500));
    let mut slow: Vec<_> = (0..500)
        .map(|_| {
            let mut client = gateway.connect();
            client.send("POST /v1/batches HTTP/1.1\r\nX-A: ");
            client
        })
        .collect();
    is_well(&gateway);
    for client in &mut slow {
        assert!(client.is_over());
    }
    is_well(&gateway);
    gateway.stop();
}
