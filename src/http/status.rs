//! What an operator's tools ask: alive, ready, metrics, the API document; and the plain start page.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, Response};

use super::auth::Reader;
use super::gateway::Gateway;
use super::problem::{Problem, ProblemBody};
use crate::ops::metrics::TEXT_FORMAT;

/// The page at `/`.
const START_PAGE: &str = include_str!("start.html");

/// Whether the process is alive.
#[utoipa::path(
    get, path = "/healthz", tag = "ops",
    responses((status = 200, description = "Alive", body = String, content_type = "text/plain")),
)]
pub(super) async fn healthz() -> &'static str {
    "alive\n"
}

/// Whether a commit would reach the disk now.
#[utoipa::path(
    get, path = "/readyz", tag = "ops",
    responses(
        (status = 200, description = "Uploads can be committed", body = String, content_type = "text/plain"),
        (status = 503, description = "They cannot, for now", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn readyz(State(gateway): State<Arc<Gateway>>) -> Result<&'static str, Problem> {
    if gateway.probe.check(&gateway.store).await { Ok("ready\n") } else { Err(Problem::unavailable()) }
}

/// Counters in the Prometheus text format.
#[utoipa::path(
    get, path = "/metrics", tag = "ops", security(("bearer" = []), ("session" = [])),
    responses(
        (status = 200, description = "Text format 0.0.4", body = String, content_type = "text/plain"),
        (status = 401, description = "No valid token or session", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn metrics(_: Reader, State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    let text = gateway.metrics.render(gateway.writer.queued(), gateway.inflight.used());
    typed(TEXT_FORMAT, text)
}

/// This document.
#[utoipa::path(
    get, path = "/openapi.json", tag = "ops",
    responses((status = 200, description = "OpenAPI", body = Object)),
)]
pub(super) async fn openapi(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    typed("application/json", gateway.openapi.clone())
}

/// A plain page that says what there is.
#[utoipa::path(
    get, path = "/", tag = "ops",
    responses((status = 200, description = "HTML", body = String, content_type = "text/html")),
)]
pub(super) async fn start() -> Response<Body> {
    let mut response = typed("text/html; charset=utf-8", START_PAGE);
    // The page needs nothing from anywhere, so it is allowed nothing.
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    response
}

fn typed(media_type: &'static str, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response
}
