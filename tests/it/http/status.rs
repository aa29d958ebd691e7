//! Routes for operators' tools, and the answers where there is no route.

use super::harness::Gateway;

#[test]
fn open_routes_need_no_token() {
    let gateway = Gateway::start();
    let plain = |path: &str| gateway.exchange(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"));
    for (path, media_type) in [
        ("/healthz", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
        ("/openapi.json", "application/json"),
        ("/", "text/html; charset=utf-8"),
    ] {
        let answer = plain(path);
        assert_eq!((answer.status, answer.header("Content-Type")), (200, Some(media_type)), "{path}");
        assert_eq!(answer.header("Date"), Some("Tue, 31 Mar 2026 04:12:00 GMT"), "{path}");
    }
    let golden = include_str!("../../../schema/openapi.json");
    assert!(plain("/openapi.json").text() == golden);
    for path in ["/metrics", "/v1/devices", "/v1/devices/a", "/v1/devices/a/track"] {
        let answer = plain(path);
        assert_eq!((answer.status, answer.code().as_str()), (401, "token_required"), "{path}");
        assert_eq!(answer.header("Www-Authenticate"), Some("Bearer"), "{path}");
    }
    gateway.stop();
}

#[test]
fn tokens_are_checked() {
    let gateway = Gateway::start();
    let with = |lines: &str| gateway.exchange(format!("GET /v1/devices HTTP/1.1\r\nHost: x\r\n{lines}\r\n"));
    for (lines, status) in [
        ("Authorization: Bearer read-token-of-the-tests\r\n", 200),
        ("authorization: bearer read-token-of-the-tests\r\n", 200),
        ("Authorization: Bearer read-token-of-the-test\r\n", 401),
        ("Authorization: Basic read-token-of-the-tests\r\n", 401),
        (
            "Authorization: Bearer read-token-of-the-tests\r\nAuthorization: Bearer read-token-of-the-tests\r\n",
            401,
        ),
    ] {
        assert_eq!(with(lines).status, status, "{lines}");
    }
    let wrong = with("Authorization: Bearer wrong\r\n");
    assert_eq!(wrong.header("Www-Authenticate"), Some(r#"Bearer error="invalid_token""#));
    assert!(!wrong.text().contains("wrong\""), "what was presented is not repeated");
    gateway.stop();
}

#[test]
fn metrics_speak_the_text_format() {
    let gateway = Gateway::start();
    gateway.get("/v1/devices/a");
    gateway.get("/no/such/path");
    let answer = gateway.get("/metrics");
    assert_eq!(answer.header("Content-Type"), Some("text/plain; version=0.0.4"));
    let text = answer.text();
    assert!(
        text.contains("tidegate_http_requests_total{route=\"/v1/devices/{device_id}\",status=\"404\"} 1")
    );
    assert!(text.contains("tidegate_http_requests_total{route=\"none\",status=\"404\"} 1"));
    assert!(text.contains("tidegate_connections "));
    gateway.stop();
}

#[test]
fn other_paths_and_methods_are_told_so() {
    let gateway = Gateway::start();
    let missing = gateway.get("/no/such/path");
    assert_eq!((missing.status, missing.code().as_str()), (404, "not_found"));
    assert!(missing.header("Date").is_some());
    for (request, allow) in
        [("GET /v1/batches", "POST"), ("DELETE /v1/devices", "GET,HEAD"), ("POST /healthz", "GET,HEAD")]
    {
        let answer = gateway.exchange(format!("{request} HTTP/1.1\r\nHost: x\r\n\r\n"));
        assert_eq!((answer.status, answer.code().as_str()), (405, "method_not_allowed"), "{request}");
        assert_eq!(answer.header("Allow"), Some(allow), "{request}");
    }
    gateway.stop();
}

#[test]
fn head_is_get_without_the_body() {
    let gateway = Gateway::start();
    let mut client = gateway.connect();
    client.send("HEAD /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let head = client.head();
    assert_eq!((head.status, head.header("Content-Length")), (200, Some("6")));
    assert_eq!(client.answer().text(), "alive\n", "no body in between");
    gateway.stop();
}
