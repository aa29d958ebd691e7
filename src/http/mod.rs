//! HTTP: all routes as one table, and what serves them.
//!
//! Nothing here decides what a batch means; nothing below knows a status code. `accept` takes connections in and
//! makes room for them, `serve` drives each and owns the shutdown, `ingest` the one hot route, the other files a route or a helper each.

mod accept;
mod auth;
mod body;
mod budget;
mod decoders;
mod device_view;
mod etag;
mod gateway;
mod ingest;
mod openapi;
mod prefer;
mod probe;
mod problem;
mod progress;
mod query;
mod read;
mod record_view;
mod serve;
mod session;
mod socket;
mod status;
#[cfg(test)]
mod testing;
mod track;
mod walk;
mod wire;

use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::header::DATE;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use axum::routing::{any, get, post};

pub use gateway::{Gateway, Parts};
pub use serve::serve;

/// Every route.
fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        // Its POST is `ingest::upload`, entered from `serve::answer` without the detour through this table.
        .route(ingest::PATH, any(ingest::other_method))
        .route("/v1/devices", get(read::list))
        .route("/v1/devices/{device_id}", get(read::one))
        .route("/v1/devices/{device_id}/track", get(track::track))
        .route(session::PATH, post(session::begin).delete(session::end))
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .route("/metrics", get(status::metrics))
        .route("/openapi.json", get(status::openapi))
        .route("/", get(status::start))
        .method_not_allowed_fallback(problem::method_not_allowed)
        .fallback(problem::not_found)
        .layer(from_fn_with_state(Arc::clone(&gateway), observe))
        .with_state(gateway)
}

/// Dates and counts the answers of the table.
async fn observe(State(gateway): State<Arc<Gateway>>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let method = request.method().clone();
    let mut response = next.run(request).await;
    if let Some(date) = gateway.date() {
        response.headers_mut().insert(DATE, date);
    }
    // The pattern, never the path as sent: that would be a series a device, or a series a typing error.
    let route = matched.as_ref().map_or("none", MatchedPath::as_str);
    let status = response.status().as_u16();
    gateway.metrics.answered(route, status);
    tracing::debug!(%method, route, status, "answered");
    response
}
