//! `POST /v1/batches`: a tracker's upload, from its headers to its receipt.
//!
//! What is cheap is checked first: headers, then length, then the body under its bounds, then the signature
//! over the raw bytes, and only then is anything decoded. From the last byte of the body on the work runs in
//! a task of its own, so that a tracker that hangs up undoes nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, DATE};
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, header::HeaderName};
use bytes::Bytes;

use super::body::{self, BodyError};
use super::budget::{Held, UnderwayGuard};
use super::gateway::Gateway;
use super::openapi::{BatchBody, ReceiptBody};
use super::prefer;
use super::problem::{self, Code, Problem, ProblemBody};
use super::progress::Progress;
use crate::domain::batch::Limits;
use crate::domain::ids::DeviceId;
use crate::domain::reason::Reason;
use crate::domain::receipt::{Receipt, Status};
use crate::domain::signature::{self, Offered, Signer, VerifiedBody};
use crate::domain::time::Timestamp;
use crate::domain::upload::Upload;
use crate::ops::metrics::Refusal;
use crate::ops::secrets::Secrets;
use crate::store::StoreErrorKind;

/// The path of the route.
pub(super) const PATH: &str = "/v1/batches";

/// Bodies from this size, as sent or as decoded, are hashed and decoded on a thread that may block: at 64 KiB
/// that takes a millisecond or so, which other connections of the same worker would wait for.
const LARGE: usize = 64 << 10;

static X_SIGNATURE: HeaderName = HeaderName::from_static("x-signature");
static X_DEVICE_ID: HeaderName = HeaderName::from_static("x-device-id");

/// What the headers say, well formed but not yet believed.
struct Claim {
    device_id: Option<DeviceId>,
    offered: Offered,
    /// Those that were live when the header had come: a reload must not turn away a body that is on its way.
    secrets: Arc<Secrets>,
}

/// The other methods of the path; `POST` never gets here, see `serve::answer`.
pub(super) async fn other_method() -> Response<Body> {
    let mut response = problem::method_not_allowed().await.respond(false);
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    response
}

/// Stores a batch of records, each record once.
///
/// The body is JSON or CBOR with the same field names, plain or packed with gzip, zlib or zstd, and signed as sent. Which it is, its
/// first bytes tell: no header is needed, and none is believed. The status alone is what firmware needs; with `Prefer: return=minimal` nothing
/// else is sent.
#[utoipa::path(
    post, path = PATH, tag = "uploading", request_body(
        content((BatchBody = "application/json"), (BatchBody = "application/cbor")),
        description = "Signed over the bytes as sent; gzip, zlib (HTTP's \"deflate\") or zstd may be around it, raw deflate may not; neither `Content-Type` nor `Content-Encoding` is needed"),
    params(
        ("X-Device-Id" = String, Header, description = "The device that signs"),
        ("X-Signature" = String, Header, description = "HMAC-SHA256 of the body under the device's key: `sha256=<hex>`, hex or base64; several are tried in turn"),
        ("Prefer" = Option<String>, Header, description = "`return=minimal`: an empty answer with as few headers as HTTP allows"),
    ),
    responses(
        (status = 200, description = "Stored, or known already", body = ReceiptBody),
        (status = 202, description = "Authentic but not usable: kept for a person", body = ReceiptBody),
        (status = 400, description = "The body broke off; nothing stored", body = ProblemBody, content_type = "application/problem+json"),
        (status = 401, description = "Signature missing or wrong; nothing stored", body = ProblemBody, content_type = "application/problem+json"),
        (status = 408, description = "The body fell silent; nothing stored", body = ProblemBody, content_type = "application/problem+json"),
        (status = 413, description = "Over the body limit as sent; nothing stored", body = ProblemBody, content_type = "application/problem+json"),
        (status = 503, description = "Cannot store now: try again after `Retry-After` seconds", body = ProblemBody, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn upload<B>(
    gateway: &Arc<Gateway>,
    request: Request<B>,
    progress: &Progress,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let minimal = gateway.http.minimal_answers || prefer::wants_minimal(request.headers());
    let mut response = match take(gateway, request, progress).await {
        Ok(receipt) => {
            gateway.metrics.receipt(&receipt);
            accepted(&receipt, gateway.http.success_status_200, minimal)
        }
        Err(problem) => {
            gateway.metrics.refused(refusal(problem.code()));
            problem.respond(minimal)
        }
    };
    if !minimal && let Some(date) = gateway.date() {
        response.headers_mut().insert(DATE, date);
    }
    gateway.metrics.answered(PATH, response.status().as_u16());
    response
}

async fn take<B>(gateway: &Arc<Gateway>, request: Request<B>, progress: &Progress) -> Result<Receipt, Problem>
where
    B: http_body::Body<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
{
    let (parts, body) = request.into_parts();
    let claim = claim(gateway, &parts.headers).map_err(|problem| {
        let claimed = parts.headers.get(&X_DEVICE_ID);
        tracing::debug!(code = ?problem.code(), claimed_device_id = ?claimed, "upload refused");
        problem.challenge(SCHEME).closing()
    })?;
    let max = gateway.http.body_bytes_max;
    if usize::try_from(body.size_hint().lower()).is_ok_and(|announced| announced > max) {
        return Err(body_problem(BodyError::TooLarge, max));
    }
    // Their values are pieces of the connection's read buffer: kept, each slow upload would hold two of these.
    drop(parts);
    let mut held = gateway.inflight.open();
    let body = body::read(body, max, &mut held).await.map_err(|error| body_problem(error, max))?;
    let received_at = gateway.clock.now();
    progress.body_read();
    // Nothing is awaited between the last byte and this line: from here on the upload is on its way even if
    // the connection, and this future with it, goes away.
    let counted = (held, gateway.underway.begin());
    let task = tokio::spawn(finish(Arc::clone(gateway), claim, body, received_at, counted));
    task.await.unwrap_or_else(|error| {
        tracing::error!(%error, "an upload's task failed");
        Err(Problem::internal())
    })
}

/// The scheme named to whoever did not sign, short since it travels over the expensive link.
const SCHEME: &str = "HMAC-SHA256";

/// Reads the headers. They are hints until the signature over the body holds, but a body under headers that
/// can never match need not travel.
fn claim(gateway: &Gateway, headers: &HeaderMap) -> Result<Claim, Problem> {
    let secrets = gateway.secrets();
    let offered = signature::read_signatures(headers.get_all(&X_SIGNATURE).iter().map(HeaderValue::as_bytes));
    if offered.is_empty() {
        let detail =
            "X-Signature holds nothing of the form of an HMAC-SHA256: 64 hex digits or base64 of 32 bytes.";
        return Err(Problem::new(Code::SignatureMissing, detail));
    }
    let mut lines = headers.get_all(&X_DEVICE_ID).iter();
    let Some(line) = lines.next() else {
        if gateway.http.shared_fleet_key {
            return Ok(Claim { device_id: None, offered, secrets });
        }
        return Err(Problem::new(Code::DeviceIdMissing, "X-Device-Id must name the device that signs."));
    };
    if lines.any(|other| other != line) {
        return Err(Problem::new(Code::DeviceIdAmbiguous, "The lines of X-Device-Id differ."));
    }
    let Some(device_id) = std::str::from_utf8(line.as_bytes()).ok().and_then(DeviceId::parse) else {
        let detail = "X-Device-Id takes 1 to 64 of A-Z a-z 0-9 . _ : - and neither . nor .. alone.";
        return Err(Problem::new(Code::DeviceIdMalformed, detail));
    };
    Ok(Claim { device_id: Some(device_id), offered, secrets })
}

fn body_problem(error: BodyError, max: usize) -> Problem {
    let problem = match error {
        BodyError::TooLarge => Problem::new(
            Code::BodyTooLarge,
            format!("A body is at most {max} bytes as sent; nothing was stored."),
        ),
        BodyError::Silent => {
            Problem::new(Code::BodyTimeout, "Nothing came for too long; nothing was stored.")
        }
        BodyError::Broken => Problem::new(Code::BodyBroken, "The body broke off; nothing was stored."),
        BodyError::NoRoom => Problem::unavailable(),
    };
    problem.closing()
}

fn refusal(code: Code) -> Refusal {
    match code {
        Code::BodyTooLarge => Refusal::TooLarge,
        Code::BodyTimeout | Code::BodyBroken => Refusal::Unfinished,
        Code::Unavailable | Code::QuarantineFull => Refusal::Unavailable,
        Code::SignatureMissing
        | Code::SignatureMismatch
        | Code::DeviceIdMissing
        | Code::DeviceIdMalformed
        | Code::DeviceIdAmbiguous => Refusal::Unauthorized,
        _ => Refusal::Internal,
    }
}

/// Everything from the last byte of the body to the receipt.
async fn finish(
    gateway: Arc<Gateway>,
    claim: Claim,
    body: Bytes,
    received_at: Timestamp,
    (mut held, underway): (Held, UnderwayGuard),
) -> Result<Receipt, Problem> {
    let device_id = claim.device_id.clone();
    let large = body.len() >= LARGE;
    let verified = if large {
        let gateway = Arc::clone(&gateway);
        let verifying = tokio::task::spawn_blocking(move || verified(&gateway, &claim, body));
        verifying.await.map_err(|_| Problem::internal())?
    } else {
        verified(&gateway, &claim, body)
    };
    let device = device_id.as_ref().map(DeviceId::as_str);
    let Some(body) = verified else {
        tracing::debug!(code = ?Code::SignatureMismatch, claimed_device_id = device, "upload refused");
        let detail = "No signature in X-Signature is the HMAC-SHA256 of the body under this device's key.";
        return Err(Problem::new(Code::SignatureMismatch, detail).challenge(SCHEME));
    };
    let upload = if large {
        read_large(&gateway, body, received_at).await?
    } else {
        let upload = read(body.clone(), received_at, &small(&gateway.limits));
        if has_outgrown(&upload) { read_large(&gateway, body, received_at).await? } else { upload }
    };
    if !held.raise_to(upload.weight()) {
        return Err(Problem::unavailable());
    }
    let receipt = gateway.writer.submit(upload).await;
    drop((held, underway));
    let receipt = receipt.map_err(|error| {
        if error.kind() == StoreErrorKind::QuarantineFull {
            tracing::warn!(
                device_id = device,
                "the device's quarantine is full: it gets 503 for what would add to it"
            );
        }
        Problem::from_store(&error)
    })?;
    tracing::debug!(device_id = device, status = receipt.status.code(), reason = ?receipt.reason, "upload taken");
    Ok(receipt)
}

/// The limits under which a small body is read at once. A few compressed bytes can hold as much as the limit
/// allows, and only decoding tells: it stops here, and what comes to more is begun again elsewhere.
fn small(limits: &Limits) -> Limits {
    Limits { decoded_bytes_max: limits.decoded_bytes_max.min(LARGE), ..limits.clone() }
}

fn has_outgrown(upload: &Upload) -> bool {
    matches!(&upload.content, Err(unreadable) if unreadable.reason == Reason::DecodedTooLarge)
}

/// Decodes on a thread that may block, when it is this device's turn.
async fn read_large(
    gateway: &Arc<Gateway>,
    body: VerifiedBody,
    received_at: Timestamp,
) -> Result<Upload, Problem> {
    let device_id = match body.signer() {
        Signer::Device(device_id) => Some(device_id.clone()),
        Signer::Fleet => None,
    };
    let turn = gateway.decoders.turn(device_id.as_ref(), gateway.writer.patience()).await;
    let Some(_turn) = turn else { return Err(Problem::unavailable()) };
    let gateway = Arc::clone(gateway);
    tokio::task::spawn_blocking(move || read(body, received_at, &gateway.limits))
        .await
        .map_err(|_| Problem::internal())
}

/// Checks the signature. `None`: none holds.
fn verified(gateway: &Gateway, claim: &Claim, body: Bytes) -> Option<VerifiedBody> {
    let shared = gateway.http.shared_fleet_key;
    signature::verify(&claim.secrets.fleet_keys, claim.device_id.as_ref(), shared, &claim.offered, body)
}

fn read(body: VerifiedBody, received_at: Timestamp, limits: &Limits) -> Upload {
    let evidence = body.clone();
    let read = catch_unwind(AssertUnwindSafe(|| Upload::read(body, received_at, limits)));
    read.unwrap_or_else(|_| failed(evidence, received_at))
}

/// An upload on which decoding panicked: authentic, so it is kept whole, and its neighbours go on.
fn failed(body: VerifiedBody, received_at: Timestamp) -> Upload {
    tracing::error!(bytes = body.bytes().len(), "decoding an upload panicked; it goes to quarantine");
    Upload::failed(body, received_at, "the gateway failed while decoding this body".to_owned())
}

fn accepted(receipt: &Receipt, always_200: bool, minimal: bool) -> Response<Body> {
    let body = if minimal {
        Body::empty()
    } else {
        // Numbers and fixed words always serialise.
        Body::from(serde_json::to_vec(receipt).unwrap_or_default())
    };
    let mut response = Response::new(body);
    if receipt.status == Status::Quarantined && !always_200 {
        *response.status_mut() = StatusCode::ACCEPTED;
    }
    if !minimal {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::testing::body_text;

    fn receipt(status: Status) -> Receipt {
        Receipt { status, counts: None, applied: None, reason: None, epoch_id: None, last_seq: None }
    }

    #[test]
    fn answers_receipts() {
        for (status, always_200, expected) in [
            (Status::Processed, false, 200),
            (Status::Duplicate, false, 200),
            (Status::Quarantined, false, 202),
            (Status::Quarantined, true, 200),
        ] {
            let full = accepted(&receipt(status), always_200, false);
            assert_eq!(full.status(), expected);
            assert_eq!(full.headers()[CONTENT_TYPE], "application/json");
            assert_eq!(body_text(full), format!(r#"{{"status":"{}"}}"#, status.code()));
            let minimal = accepted(&receipt(status), always_200, true);
            assert_eq!(minimal.status(), expected);
            assert!(minimal.headers().is_empty());
            assert_eq!(body_text(minimal), "");
        }
    }
}
