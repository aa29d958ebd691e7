//! Errors as clients see them: problem documents (RFC 9457) with stable codes. Only this file knows which
//! code has which status; no text from below HTTP ever gets in.

use std::borrow::Cow;
use std::ops::RangeInclusive;

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use crate::store::{StoreError, StoreErrorKind};

/// Least and greatest seconds of a `Retry-After`; the spread keeps a fleet from coming back at once.
const RETRY_SECONDS: RangeInclusive<u32> = 5..=30;
/// The same where a person has to make room first.
const RETRY_SECONDS_OF_PEOPLE: RangeInclusive<u32> = 600..=1800;

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $status:ident $code:literal $title:literal,)+) => {
        /// The closed list of problems.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Code { $($(#[$doc])* $variant,)+ }

        impl Code {
            #[cfg(test)]
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Status, stable code, title.
            const fn parts(self) -> (StatusCode, &'static str, &'static str) {
                match self { $(Self::$variant => (StatusCode::$status, $code, $title)),+ }
            }
        }
    };
}

codes! {
    /// No `X-Signature` line offers anything of a signature's form.
    SignatureMissing = UNAUTHORIZED "signature_missing" "No usable signature",
    /// None of the offered signatures holds.
    SignatureMismatch = UNAUTHORIZED "signature_mismatch" "The signature does not hold",
    /// No `X-Device-Id`.
    DeviceIdMissing = UNAUTHORIZED "device_id_missing" "No device named",
    /// `X-Device-Id` is no device id.
    DeviceIdMalformed = UNAUTHORIZED "device_id_malformed" "The named device is no device id",
    /// Several lines of `X-Device-Id` that differ.
    DeviceIdAmbiguous = UNAUTHORIZED "device_id_ambiguous" "Several devices named",
    /// No bearer token, or one that nobody has.
    TokenRequired = UNAUTHORIZED "token_required" "A bearer token is required",
    /// The token's role is too low.
    Forbidden = FORBIDDEN "forbidden" "The token does not allow this",
    /// A query parameter is unknown, double or wrong.
    QueryInvalid = BAD_REQUEST "query_invalid" "The query cannot be used",
    /// The body broke off or is badly framed.
    BodyBroken = BAD_REQUEST "body_broken" "The body did not arrive whole",
    /// The body fell silent.
    BodyTimeout = REQUEST_TIMEOUT "body_timeout" "The body fell silent for too long",
    /// The body is over the limit as sent.
    BodyTooLarge = PAYLOAD_TOO_LARGE "body_too_large" "The body is too large",
    /// No such route.
    NotFound = NOT_FOUND "not_found" "No such resource",
    /// No such device.
    DeviceUnknown = NOT_FOUND "device_unknown" "No such device",
    /// The route has other methods.
    MethodNotAllowed = METHOD_NOT_ALLOWED "method_not_allowed" "The method does not exist here",
    /// Nothing can be stored or read now.
    Unavailable = SERVICE_UNAVAILABLE "unavailable" "The gateway cannot do this now",
    /// The device's quarantine is full, and this upload would add to it.
    QuarantineFull = SERVICE_UNAVAILABLE "quarantine_full" "The device's quarantine is full",
    /// A fault of the gateway.
    Internal = INTERNAL_SERVER_ERROR "internal" "The gateway failed",
}

/// An answer that says what is wrong.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    challenge: Option<&'static str>,
    last: bool,
}

/// The body of every error.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody<'a> {
    /// Stable name of the kind of problem, as a URN.
    #[schema(example = "urn:tidegate:problem:signature_mismatch")]
    r#type: String,
    /// The kind of problem for a person.
    title: &'a str,
    /// The HTTP status again.
    status: u16,
    /// Stable code.
    #[schema(example = "signature_mismatch")]
    code: &'a str,
    /// What is wrong with this very request.
    detail: &'a str,
}

impl Problem {
    /// A problem of a kind, and what is wrong with this very request.
    pub(crate) fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { code, detail: detail.into(), challenge: None, last: false }
    }

    /// Names the scheme to authenticate with.
    pub(crate) fn challenge(self, scheme: &'static str) -> Self {
        Self { challenge: Some(scheme), ..self }
    }

    /// Says that this connection ends here: the request's body was not read.
    pub(crate) fn closing(self) -> Self {
        Self { last: true, ..self }
    }

    /// The one problem where a retry helps.
    pub(crate) fn unavailable() -> Self {
        Self::new(
            Code::Unavailable,
            "Nothing was stored or changed. Try again after the seconds in Retry-After.",
        )
    }

    /// A fault of ours.
    pub(crate) fn internal() -> Self {
        Self::new(Code::Internal, "The fault is the gateway's and is in its log.")
    }

    /// A failed store operation. What the store said goes to the log and nowhere else.
    pub(crate) fn from_store(error: &StoreError) -> Self {
        if error.kind() == StoreErrorKind::QuarantineFull {
            let detail = "Nothing was stored. Bodies that can be used whole are still taken; the rest must wait until \
                          the operator makes room.";
            return Self::new(Code::QuarantineFull, detail);
        }
        if error.retryable() {
            // The writer and readers of the store log the failure itself; a line a request would be a flood.
            tracing::debug!(kind = ?error.kind(), error = error.chain(), "store is not available");
        } else {
            tracing::error!(kind = ?error.kind(), error = error.chain(), "store failed");
        }
        Self::unavailable()
    }

    /// Which problem.
    pub(crate) fn code(&self) -> Code {
        self.code
    }

    /// The answer; `minimal`: without a body and the headers that describe one.
    pub(crate) fn respond(&self, minimal: bool) -> Response<Body> {
        let (status, code, title) = self.code.parts();
        let mut response = if minimal {
            Response::new(Body::empty())
        } else {
            let body = ProblemBody {
                r#type: format!("urn:tidegate:problem:{code}"),
                title,
                status: status.as_u16(),
                code,
                detail: &self.detail,
            };
            // Strings and a number always serialise.
            let mut response = Response::new(Body::from(serde_json::to_vec(&body).unwrap_or_default()));
            let media_type = HeaderValue::from_static("application/problem+json");
            response.headers_mut().insert(CONTENT_TYPE, media_type);
            response
        };
        *response.status_mut() = status;
        let headers = response.headers_mut();
        if let Some(seconds) = self.code.retry_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(drawn(&seconds)));
        }
        if let Some(scheme) = self.challenge {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(scheme));
        }
        if self.last {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> axum::response::Response {
        self.respond(false)
    }
}

impl Code {
    /// Between which numbers of seconds the client may be told to wait, where waiting helps.
    const fn retry_seconds(self) -> Option<RangeInclusive<u32>> {
        match self {
            Self::Unavailable => Some(RETRY_SECONDS),
            Self::QuarantineFull => Some(RETRY_SECONDS_OF_PEOPLE),
            _ => None,
        }
    }
}

/// Seconds to wait, drawn anew for every answer.
fn drawn(seconds: &RangeInclusive<u32>) -> u32 {
    let (least, greatest) = (*seconds.start(), *seconds.end());
    // Without randomness the middle still is a fair answer.
    getrandom::u32().map_or(least.midpoint(greatest), |random| least + random % (greatest - least + 1))
}

/// The answer where no route is.
pub(super) async fn not_found() -> Problem {
    Problem::new(Code::NotFound, "There is nothing at this path; /openapi.json lists what there is.")
}

/// The answer where the route is but not this method; the router adds `Allow`.
pub(super) async fn method_not_allowed() -> Problem {
    Problem::new(Code::MethodNotAllowed, "The Allow header lists the methods of this path.")
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::http::testing::body_text;

    #[test]
    fn codes_are_distinct_and_every_status_is_an_error() {
        let mut seen = HashSet::new();
        for code in Code::ALL {
            let (status, text, title) = code.parts();
            assert!(seen.insert(text), "{text} twice");
            assert!(status.is_client_error() || status.is_server_error());
            assert!(!title.is_empty());
        }
    }

    #[test]
    fn says_what_is_wrong_as_a_problem_document() {
        let problem = Problem::new(Code::QueryInvalid, "limit: not a number");
        let response = problem.respond(false);
        assert_eq!(response.status(), 400);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(
            body_text(response),
            r#"{"type":"urn:tidegate:problem:query_invalid","title":"The query cannot be used","status":400,"code":"query_invalid","detail":"limit: not a number"}"#
        );
    }

    #[test]
    fn minimal_keeps_only_what_the_client_acts_on() {
        let response = Problem::unavailable().respond(true);
        let names: Vec<_> = response.headers().keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(names, ["retry-after"]);
        assert_eq!(body_text(response), "");
        let response = Problem::new(Code::SignatureMissing, "x").challenge("HMAC-SHA256").respond(true);
        assert_eq!(response.headers()[WWW_AUTHENTICATE], "HMAC-SHA256");
        assert_eq!(response.headers().len(), 1);
    }

    #[test]
    fn retries_are_spread() {
        for (code, range) in [(Code::Unavailable, 5..=30), (Code::QuarantineFull, 600..=1800)] {
            let told = || Problem::new(code, "x").respond(true).headers()[RETRY_AFTER].clone();
            let seconds = || told().to_str().expect("digits").parse::<u32>().expect("a number");
            let drawn: HashSet<_> = (0..200).map(|_| seconds()).collect();
            assert!(drawn.iter().all(|seconds| range.contains(seconds)), "{drawn:?}");
            assert!(drawn.len() > 5, "{drawn:?}");
        }
    }
}
