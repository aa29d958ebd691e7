//! Who may read: ops and dashboards with their bearer tokens, browsers with the session they traded one for.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request;

use super::gateway::Gateway;
use super::problem::{Code, Problem};
use super::session;
use crate::ops::tokens::{Caller, Role, TokenDigest};

/// How a caller came in. A browser sends its cookie by itself, whatever made it send the request, so what a
/// session may do beyond reading each route decides.
pub(super) enum Way {
    /// With a bearer token of this digest.
    Bearer(TokenDigest),
    /// With the cookie of a session.
    Session,
}

/// A caller who may read. As a handler's first argument it is asked for before anything else is looked at.
pub(super) struct Reader {
    pub(super) caller: Caller,
    pub(super) way: Way,
}

impl FromRequestParts<Arc<Gateway>> for Reader {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut request::Parts, gateway: &Arc<Gateway>) -> Result<Self, Problem> {
        let (caller, way) = authorize(gateway, &parts.headers, Role::Read)?;
        Ok(Self { caller, way })
    }
}

/// Finds who calls and refuses whose role is too low. With an `Authorization` line that alone decides: a token
/// that is wrong must not pass for a session's sake.
fn authorize(gateway: &Gateway, headers: &HeaderMap, least: Role) -> Result<(Caller, Way), Problem> {
    let (caller, way) = if headers.contains_key(AUTHORIZATION) {
        by_token(gateway, headers)?
    } else {
        (session::resume(gateway, headers).ok_or_else(token_required)?, Way::Session)
    };
    if caller.role < least {
        return Err(Problem::new(Code::Forbidden, "This takes a token with the admin role."));
    }
    Ok((caller, way))
}

fn by_token(gateway: &Gateway, headers: &HeaderMap) -> Result<(Caller, Way), Problem> {
    let token = bearer_token(headers).ok_or_else(token_required)?;
    let Some(caller) = gateway.secrets().tokens.authenticate(token) else {
        let detail = "The token is none of those configured here.";
        return Err(Problem::new(Code::TokenRequired, detail).challenge(r#"Bearer error="invalid_token""#));
    };
    Ok((caller, Way::Bearer(TokenDigest::of(token))))
}

/// The answer to whoever showed nothing that could be believed.
pub(super) fn token_required() -> Problem {
    let detail = "Send one header line: Authorization: Bearer <token>.";
    Problem::new(Code::TokenRequired, detail).challenge("Bearer")
}

/// The token of the one `Authorization` line; of several lines none is believed.
fn bearer_token(headers: &HeaderMap) -> Option<&[u8]> {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return None;
    };
    let line = line.as_bytes();
    let blank = line.iter().position(|b| *b == b' ')?;
    let (scheme, token) = (&line[..blank], line[blank..].trim_ascii());
    (scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_token_of_one_line() {
        for (lines, token) in [
            (&[][..], None),
            (&["Bearer abc"], Some("abc")),
            (&["bearer  abc "], Some("abc")),
            (&["BEARER a b"], Some("a b")),
            (&["Basic abc"], None),
            (&["Bearer"], None),
            (&["Bearer "], None),
            (&["Bearerabc"], None),
            (&["Bearer abc", "Bearer abc"], None),
        ] {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line.parse().expect("a header value"));
            }
            assert_eq!(bearer_token(&headers), token.map(str::as_bytes), "{lines:?}");
        }
    }
}
