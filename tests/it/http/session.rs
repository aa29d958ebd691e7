//! A browser's session: a cookie in place of a bearer token.

use std::collections::HashSet;

use tidegate::ops::tokens::Role;

use super::harness::{Answer, FLEET_KEY, Gateway, NAMED_ADMIN_TOKEN, TOKEN, secrets};
use crate::support::gateway::until;

const HOURS_12: i64 = 12 * 3600;
const ATTRIBUTES: &str = "; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200";
const CLEARED: &str = "tidegate_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0";

fn request(gateway: &Gateway, line: &str, headers: &str) -> Answer {
    gateway.exchange(format!("{line} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"))
}

/// Trades a token; gives the answer and the cookie as a browser sends it back.
fn begin(gateway: &Gateway, token: &str) -> (Answer, String) {
    let answer = request(gateway, "POST /v1/session", &format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(answer.status, 200, "{}", answer.head);
    let set = answer.header("Set-Cookie").expect("a cookie");
    let cookie = set.strip_suffix(ATTRIBUTES).expect("its attributes").to_owned();
    (answer, cookie)
}

fn read(gateway: &Gateway, cookies: &str) -> u16 {
    request(gateway, "GET /v1/devices", &format!("Cookie: {cookies}\r\n")).status
}

fn end(gateway: &Gateway, cookies: &str) -> Answer {
    request(gateway, "DELETE /v1/session", &format!("Cookie: {cookies}\r\n"))
}

#[test]
fn a_session_reads_as_its_token_does() {
    let gateway = Gateway::start();
    let (answer, cookie) = begin(&gateway, TOKEN);
    assert_eq!(answer.header("Content-Type"), Some("application/json"));
    assert_eq!(answer.text(), r#"{"name":"read","role":"read","expires_at":"2026-03-31T16:12:00Z"}"#);
    let (admin, other) = begin(&gateway, "admin-token-of-the-tests");
    assert_eq!(admin.text(), r#"{"name":"ops-desk","role":"admin","expires_at":"2026-03-31T16:12:00Z"}"#);
    let value = cookie.strip_prefix("tidegate_session=").expect("the name");
    assert!(value.len() == 96 && value.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)));

    for path in ["/v1/devices", "/metrics"] {
        for (lines, status) in [
            (format!("Cookie: {cookie}\r\n"), 200),
            (format!("Cookie: {other}\r\n"), 200),
            (format!("Cookie: theme=dark; {cookie}; x=y\r\n"), 200),
            (format!("Cookie: theme=dark\r\ncookie: {cookie}\r\n"), 200),
            (format!("Cookie: tidegate_session=old; {cookie}\r\n"), 200),
            (format!("Cookie: {}{cookie}\r\n", "tidegate_session=old; ".repeat(7)), 200),
            (format!("Cookie: {}{cookie}\r\n", "tidegate_session=old; ".repeat(8)), 401),
            (format!("Cookie: {cookie}x\r\n"), 401),
            (format!("Cookie: tidegate_session={}\r\n", "A".repeat(96)), 401),
            (format!("Cookie: tidegate_session={}\r\n", "A".repeat(10_000)), 401),
            (format!("Cookie: session={value}\r\n"), 401),
            // A line of authorization alone decides.
            (format!("Cookie: {cookie}\r\nAuthorization: Bearer wrong\r\n"), 401),
            (format!("Cookie: {cookie}\r\nAuthorization: Basic eA==\r\n"), 401),
            (format!("Cookie: tidegate_session=old\r\nAuthorization: Bearer {TOKEN}\r\n"), 200),
            // The value is no token.
            (format!("Authorization: Bearer {value}\r\n"), 401),
        ] {
            let answer = request(&gateway, &format!("GET {path}"), &lines);
            assert_eq!(answer.status, status, "{path} {lines}");
        }
    }
    // The device is unknown, not the caller.
    for path in ["/v1/devices/a", "/v1/devices/a/track"] {
        let answer = request(&gateway, &format!("GET {path}"), &format!("Cookie: {cookie}\r\n"));
        assert_eq!(answer.code(), "device_unknown");
    }
    gateway.stop();
}

#[test]
fn only_a_token_begins_one() {
    let gateway = Gateway::start();
    let (_, cookie) = begin(&gateway, TOKEN);
    for (lines, challenge) in [
        (String::new(), "Bearer"),
        (format!("Cookie: {cookie}\r\n"), "Bearer"),
        ("Authorization: Basic eA==\r\n".to_owned(), "Bearer"),
        ("Authorization: Bearer read-token-of-the-test\r\n".to_owned(), r#"Bearer error="invalid_token""#),
        (format!("Authorization: Bearer {NAMED_ADMIN_TOKEN}\r\n"), r#"Bearer error="invalid_token""#),
    ] {
        let answer = request(&gateway, "POST /v1/session", &lines);
        assert_eq!((answer.status, answer.code().as_str()), (401, "token_required"), "{lines}");
        assert_eq!(answer.header("Www-Authenticate"), Some(challenge), "{lines}");
        assert_eq!(answer.header("Set-Cookie"), None, "{lines}");
    }
    let other = request(&gateway, "GET /v1/session", "");
    assert_eq!((other.status, other.header("Allow")), (405, Some("POST,DELETE")));
    let values: HashSet<_> = (0..20).map(|_| begin(&gateway, TOKEN).1).collect();
    assert_eq!(values.len(), 20, "no two sessions are one");
    gateway.stop();
}

#[test]
fn it_ends_when_it_is_ended() {
    let gateway = Gateway::start();
    let (_, cookie) = begin(&gateway, TOKEN);
    let (_, other) = begin(&gateway, TOKEN);
    let answer = end(&gateway, &cookie);
    assert_eq!((answer.status, answer.text()), (204, ""));
    assert_eq!(answer.header("Set-Cookie"), Some(CLEARED));
    assert_eq!(read(&gateway, &cookie), 401);
    assert_eq!(read(&gateway, &other), 200, "another session of the same token goes on");
    assert_eq!(read(&gateway, &format!("{cookie}; {other}")), 200, "any that holds will do");
    let (_, third) = begin(&gateway, TOKEN);
    for cookies in [&cookie, "tidegate_session=rubbish", "x=y", &format!("{other}; {third}")] {
        let answer = end(&gateway, cookies);
        assert_eq!((answer.status, answer.header("Set-Cookie")), (204, Some(CLEARED)), "{cookies}");
    }
    assert_eq!(request(&gateway, "DELETE /v1/session", "").status, 204);
    assert_eq!((read(&gateway, &other), read(&gateway, &third)), (401, 401));
    gateway.stop();
}

#[test]
fn it_ends_after_twelve_hours() {
    let gateway = Gateway::start();
    let (_, cookie) = begin(&gateway, TOKEN);
    gateway.clock.advance_seconds(HOURS_12 - 1);
    assert_eq!(read(&gateway, &cookie), 200);
    gateway.clock.advance_seconds(1);
    assert_eq!(read(&gateway, &cookie), 401);
    assert_eq!(end(&gateway, &cookie).status, 204);
    gateway.stop();
}

#[test]
fn it_ends_with_its_token() {
    let gateway = Gateway::start();
    let (_, cookie) = begin(&gateway, TOKEN);
    let (_, admin) = begin(&gateway, "admin-token-of-the-tests");
    gateway.reload(Ok(secrets(FLEET_KEY, &[(Role::Admin, NAMED_ADMIN_TOKEN)])));
    until("the session ends", || (read(&gateway, &cookie) == 401).then_some(()));
    assert_eq!(read(&gateway, &admin), 200);
    gateway.stop();
}

#[test]
fn it_holds_on_another_gateway_with_the_same_secrets() {
    let (one, other) = (Gateway::start(), Gateway::start());
    let (_, cookie) = begin(&one, TOKEN);
    one.stop();
    assert_eq!(read(&other, &cookie), 200);
    other.stop();
}

#[test]
fn behind_tls_the_cookie_is_for_https_alone() {
    let gateway = Gateway::start_with(|http| http.session_secure = true);
    let answer = request(&gateway, "POST /v1/session", &format!("Authorization: Bearer {TOKEN}\r\n"));
    let set = answer.header("Set-Cookie").expect("a cookie");
    assert!(set.ends_with(&format!("{ATTRIBUTES}; Secure")), "{set}");
    assert_eq!(end(&gateway, "x=y").header("Set-Cookie"), Some(&*format!("{CLEARED}; Secure")));
    gateway.stop();
}
