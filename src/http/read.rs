//! Devices as dashboards read them: one, and pages of all.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts, Path, State};
use axum::http::header::{CONTENT_TYPE, ETAG};
use axum::http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, request};
use serde::Serialize;
use utoipa::ToSchema;

use super::auth::Reader;
use super::device_view::DeviceView;
use super::etag;
use super::gateway::{Gateway, READ_PATIENCE};
use super::problem::{Code, Problem, ProblemBody};
use super::query::Params;
use crate::domain::ids::DeviceId;
use crate::store::DevicePage;

/// Devices of a page where the client names no limit, and at most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// A page of devices.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = DeviceList)]
pub(super) struct DeviceList<'a> {
    /// In order of their ids' bytes.
    devices: Vec<DeviceView<'a>>,
    /// Give it as `after` for the next page; null on the last one.
    #[schema(required)]
    next: Option<&'a str>,
    /// Every change up to here is in the page: a live stream may go on from it.
    stream_cursor: String,
}

/// Current states of all devices, a page at a time.
#[utoipa::path(
    get, path = "/v1/devices", tag = "reading", security(("bearer" = []), ("session" = [])),
    params(
        ("limit" = Option<u32>, Query, description = "Devices of a page, 1 … 1,000; 100 by default", minimum = 1, maximum = 1000),
        ("after" = Option<String>, Query, description = "The `next` of the page before"),
    ),
    responses(
        (status = 200, description = "A page", body = DeviceList),
        (status = 400, description = "The query cannot be used", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "No valid token or session", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Try again after `Retry-After` seconds", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(
    _: Reader,
    State(gateway): State<Arc<Gateway>>,
    uri: Uri,
) -> Result<Response<Body>, Problem> {
    let mut params = Params::read(&uri)?;
    let limit = params.limit(LIMIT_MAX)?.unwrap_or(LIMIT);
    let after = params.device_id("after")?;
    params.finish()?;
    let page = gateway.read(READ_PATIENCE, move |store| store.list_devices(after.as_ref(), limit)).await?;
    json(&view(&page, &gateway))
}

fn view<'a>(page: &'a DevicePage, gateway: &Gateway) -> DeviceList<'a> {
    let now = gateway.clock.now();
    let last = page.devices.last().map(|device| device.device_id.as_str());
    DeviceList {
        devices: page.devices.iter().map(|device| DeviceView::new(device, now, gateway.guard_days)).collect(),
        next: last.filter(|_| page.more),
        stream_cursor: page.cursor.to_string(),
    }
}

/// One device's current state.
#[utoipa::path(
    get, path = "/v1/devices/{device_id}", tag = "reading", security(("bearer" = []), ("session" = [])),
    params(
        ("device_id" = String, Path, description = "The device"),
        ("If-None-Match" = Option<String>, Header, description = "An `ETag` seen before"),
    ),
    responses(
        (status = 200, description = "The state; `ETag` is its revision", body = DeviceView<'_>),
        (status = 304, description = "The state has not changed"),
        (status = 401, description = "No valid token or session", body = ProblemBody, content_type = "application/problem+json"),
        (status = 404, description = "The device was never seen", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Try again after `Retry-After` seconds", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn one(
    _: Reader,
    State(gateway): State<Arc<Gateway>>,
    Named(device_id): Named,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response<Body>, Problem> {
    Params::read(&uri)?.finish()?;
    let device = gateway.read(READ_PATIENCE, move |store| store.lookup_device(&device_id)).await?;
    let device = device.ok_or_else(unknown)?;
    let tag = etag::tag(device.revision);
    let mut response = if etag::is_known(&headers, &tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        json(&DeviceView::new(&device, gateway.clock.now(), gateway.guard_days))?
    };
    response.headers_mut().insert(ETAG, tag);
    Ok(response)
}

/// The device that the path names. What can be no device's id is a device that nobody has heard of.
pub(super) struct Named(pub(super) DeviceId);

impl<S: Send + Sync> FromRequestParts<S> for Named {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut request::Parts, state: &S) -> Result<Self, Problem> {
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(|_| unknown())?;
        DeviceId::parse(&text).map(Self).ok_or_else(unknown)
    }
}

/// The answer about a device that nobody has heard of.
pub(super) fn unknown() -> Problem {
    Problem::new(Code::DeviceUnknown, "No upload of this device has been seen.")
}

fn json(body: &impl Serialize) -> Result<Response<Body>, Problem> {
    let body = serde_json::to_vec(body).map_err(|_| Problem::internal())?;
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
