//! `/v1/session`: a browser trades a bearer token for a cookie, since its event streams cannot send a header.
//!
//! A wrong token costs here what it costs anywhere, and tokens are too long to guess, so trading is not
//! throttled. `SameSite=Strict` keeps other sites' pages from using the cookie.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, COOKIE as COOKIE_HEADER, SET_COOKIE};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::{self, Reader, Way};
use super::gateway::Gateway;
use super::problem::{Problem, ProblemBody};
use crate::domain::time::Timestamp;
use crate::ops::session::{self, NONCE_LEN, Session};
use crate::ops::tokens::Caller;

/// The path of the routes.
pub(super) const PATH: &str = "/v1/session";
/// The name of the cookie.
pub(super) const COOKIE: &str = "tidegate_session";

/// Most cookies of this name that are looked at: a browser sends several where other paths or domains set some.
const COOKIES_MAX: usize = 8;

/// A session as its holder sees it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(super) struct SessionBody<'a> {
    /// The token's name, or its role where it has none.
    name: &'a str,
    /// `admin` or `read`.
    role: &'static str,
    /// When the session ends by itself.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

/// Trades a bearer token for the cookie of a session, which reads as the token does. The session ends after
/// twelve hours, and with its token.
#[utoipa::path(
    post, path = PATH, tag = "reading", security(("bearer" = [])),
    responses(
        (status = 200, description = "The session", body = SessionBody<'_>, headers(
            ("Set-Cookie" = String, description = "`tidegate_session`: HttpOnly, SameSite=Strict"),
        )),
        (status = 401, description = "No valid token; a session alone begins no other", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn begin(
    reader: Reader,
    State(gateway): State<Arc<Gateway>>,
) -> Result<Response<Body>, Problem> {
    // A session that could begin another would never end.
    let Way::Bearer(token) = &reader.way else {
        return Err(auth::token_required());
    };
    let expires_at = gateway.clock.now().plus_seconds(session::SECONDS);
    let value = session::issue(&gateway.secrets().seal_keys, token, expires_at, nonce()?);
    let cookie = value.and_then(|value| set_cookie(&value, session::SECONDS, gateway.http.session_secure));
    let cookie = cookie.ok_or_else(Problem::internal)?;
    let Caller { name, role } = &reader.caller;
    let body = SessionBody { name, role: role.code(), expires_at };
    // Strings and a time always serialise.
    let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// Ends the session of the cookie and takes the cookie back. Needs nothing, and says the same of any cookie.
#[utoipa::path(
    delete, path = PATH, tag = "reading", security((), ("session" = [])),
    responses((status = 204, description = "The cookie is no longer good for anything", headers(
        ("Set-Cookie" = String, description = "Takes `tidegate_session` back"),
    ))),
)]
pub(super) async fn end(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    let now = gateway.clock.now();
    for session in sessions(&gateway, &headers, now) {
        gateway.ended_sessions.add(session.id, now);
    }
    let cookie = set_cookie("", 0, gateway.http.session_secure).ok_or_else(Problem::internal)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response.headers_mut().insert(SET_COOKIE, cookie);
    Ok(response)
}

/// Whose session a request's cookies hold, if any of them does.
pub(super) fn resume(gateway: &Gateway, headers: &HeaderMap) -> Option<Caller> {
    let mut sessions = sessions(gateway, headers, gateway.clock.now());
    sessions.find(|session| !gateway.ended_sessions.contains(&session.id)).map(|session| session.caller)
}

/// The sessions of a request, ended ones among them.
fn sessions(gateway: &Gateway, headers: &HeaderMap, now: Timestamp) -> impl Iterator<Item = Session> {
    let secrets = gateway.secrets();
    presented(headers).filter_map(move |value| session::check(&secrets, value, now))
}

/// The values of all cookies of our name, over all lines, at most [`COOKIES_MAX`].
fn presented(headers: &HeaderMap) -> impl Iterator<Item = &[u8]> {
    let pairs = headers.get_all(COOKIE_HEADER).iter().flat_map(|line| line.as_bytes().split(|b| *b == b';'));
    let values =
        pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(COOKIE.as_bytes())?.strip_prefix(b"="));
    values.take(COOKIES_MAX)
}

/// The header that sets the cookie, or with an age of 0 takes it back. Never shown by `Debug`.
fn set_cookie(value: &str, max_age: i64, secure: bool) -> Option<HeaderValue> {
    let secure = if secure { "; Secure" } else { "" };
    let text = format!("{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={max_age}{secure}");
    let mut header = HeaderValue::try_from(text).ok()?;
    header.set_sensitive(true);
    Some(header)
}

fn nonce() -> Result<[u8; NONCE_LEN], Problem> {
    let mut nonce = [0; NONCE_LEN];
    getrandom::fill(&mut nonce).map_err(|error| {
        tracing::error!(%error, "no random numbers to be had");
        Problem::internal()
    })?;
    Ok(nonce)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_its_cookies_among_others() {
        for (lines, values) in [
            (&[][..], &[][..]),
            (&["tidegate_session=abc"], &["abc"]),
            (&["a=1; tidegate_session=abc; b=2", "tidegate_session=def"], &["abc", "def"]),
            (&["tidegate_session=abc;tidegate_session=def"], &["abc", "def"]),
            (&[" tidegate_session=a=b; x"], &["a=b"]),
            (&["tidegate_session; tidegate_session="], &[""]),
            (
                &[
                    "xtidegate_session=abc; tidegate_session2=abc; Tidegate_session=abc; tidegate_session =abc",
                ],
                &[],
            ),
            (&["a=tidegate_session=abc", ";;;", ""], &[]),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(COOKIE_HEADER, line.parse().expect("a header value"));
            }
            let found: Vec<_> =
                presented(&headers).map(|value| std::str::from_utf8(value).expect("text")).collect();
            assert_eq!(found, values, "{lines:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append(COOKIE_HEADER, "tidegate_session=x;".repeat(20).parse().expect("a header value"));
        assert_eq!(presented(&headers).count(), COOKIES_MAX);
    }

    #[test]
    fn the_cookie_is_for_this_site_and_no_script() {
        let header = set_cookie("abc", 43_200, false).expect("a header");
        assert_eq!(header, "tidegate_session=abc; Path=/; HttpOnly; SameSite=Strict; Max-Age=43200");
        assert!(!format!("{header:?}").contains("abc"));
        let header = set_cookie("", 0, true).expect("a header");
        assert_eq!(header, "tidegate_session=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0; Secure");
    }
}
