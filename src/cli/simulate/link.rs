//! The gateway as the fleet reaches it: one attempt each, and what to make of the answer.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Body, Client, Response, StatusCode, Url};
use serde_json::Value;
use tokio::time::timeout;

use super::super::Failure;
use super::super::web::{Trust, chain, client, read_body, retry_after, route};
use super::broken::{HalfBody, half_header};
use crate::domain::ids::DeviceId;
use crate::domain::signature::{FleetKey, SIGNATURE_LEN, sign};

/// Longest that one answer is waited for; of a track, each piece of it.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest line of a track: a record is far shorter.
const LINE_BYTES_MAX: usize = 1 << 20;

/// Why an attempt gave nothing.
#[derive(Debug)]
pub(super) enum Fault {
    /// A later attempt may do better.
    Passing { why: String, asked: Option<Duration> },
    /// No attempt will.
    Lasting(String),
}

impl Fault {
    fn passing(why: impl Into<String>) -> Self {
        Self::Passing { why: why.into(), asked: None }
    }
}

/// A receipt; null where the gateway sends none (`minimal_answers`).
pub(super) type Receipt = Value;

pub(super) struct Link {
    client: Client,
    uploads: Url,
    url: String,
    key: FleetKey,
    authorization: HeaderValue,
}

impl Link {
    pub(super) fn new(url: &str, trust: &Trust, key: FleetKey, token: &str) -> Result<Self, Failure> {
        let uploads = route(url, "/v1/batches")?;
        let mut authorization = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| Failure::fault("--token", "holds a character that no token has"))?;
        authorization.set_sensitive(true);
        Ok(Self { client: client(&uploads, trust)?, uploads, url: url.to_owned(), key, authorization })
    }

    /// Signs and sends a body, and waits for the receipt.
    pub(super) async fn upload(&self, device_id: &DeviceId, body: &[u8]) -> Result<Receipt, Fault> {
        let response = self.send(device_id, body).await?;
        let text = within(read_body(response)).await?.map_err(Fault::passing)?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|_| Fault::Lasting(format!("{device_id}: no receipt: {text}")))
    }

    /// The same, but the connection is cut when the answer has begun.
    pub(super) async fn upload_unheard(&self, device_id: &DeviceId, body: &[u8]) -> Result<(), Fault> {
        self.send(device_id, body).await.map(drop)
    }

    /// Sends the header and part of the body, then cuts the connection.
    pub(super) async fn upload_half(&self, device_id: &DeviceId, body: &[u8], permille: u32) {
        let half = Body::wrap(HalfBody::new(body, permille));
        let request = self.signed(device_id, &self.key.derive(device_id), body).body(half);
        let _ = timeout(ANSWER_TIMEOUT, request.send()).await;
    }

    /// Sends part of the header.
    pub(super) async fn half_header(&self) {
        half_header(&self.uploads).await;
    }

    fn signed(
        &self,
        device_id: &DeviceId,
        key: &[u8; SIGNATURE_LEN],
        body: &[u8],
    ) -> reqwest::RequestBuilder {
        self.client
            .post(self.uploads.clone())
            .header("X-Device-Id", device_id.as_str())
            .header("X-Signature", format!("sha256={}", sign(key, body)))
    }

    async fn send(&self, device_id: &DeviceId, body: &[u8]) -> Result<Response, Fault> {
        let request = self.signed(device_id, &self.key.derive(device_id), body).body(body.to_vec());
        let response = within(request.send()).await?.map_err(|error| self.unreached(&error))?;
        match response.status() {
            StatusCode::OK | StatusCode::ACCEPTED => Ok(response),
            StatusCode::UNAUTHORIZED => Err(Fault::Lasting(format!(
                "the gateway refuses the signature of {device_id} (401): the fleet key is none of its live ones"
            ))),
            _ => Err(refused(response, &format!("an upload of {device_id}")).await),
        }
    }

    /// A device's state; `None` where the gateway does not know it.
    pub(super) async fn device(&self, device_id: &DeviceId) -> Result<Option<Value>, Fault> {
        let Some(response) = self.get(&format!("/v1/devices/{device_id}")).await? else { return Ok(None) };
        let text = within(read_body(response)).await?.map_err(Fault::passing)?;
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|_| Fault::Lasting(format!("{device_id}: its state is no JSON: {text}")))
    }

    /// A device's whole track, record by record.
    pub(super) async fn track(
        &self,
        device_id: &DeviceId,
        mut record: impl FnMut(&Value),
    ) -> Result<(), Fault> {
        let path = format!("/v1/devices/{device_id}/track?format=ndjson");
        let Some(mut response) = self.get(&path).await? else { return Ok(()) };
        let mut unread = Vec::new();
        while let Some(chunk) =
            within(response.chunk()).await?.map_err(|error| Fault::passing(chain(&error)))?
        {
            unread.extend_from_slice(&chunk);
            let mut begin = 0;
            while let Some(len) = unread[begin..].iter().position(|byte| *byte == b'\n') {
                record(&read_line(device_id, &unread[begin..begin + len])?);
                begin += len + 1;
            }
            unread.drain(..begin);
            if unread.len() > LINE_BYTES_MAX {
                return Err(Fault::Lasting(format!("{device_id}: a record of its track never ends")));
            }
        }
        if !unread.trim_ascii().is_empty() {
            record(&read_line(device_id, &unread)?);
        }
        Ok(())
    }

    /// `None` for 404.
    async fn get(&self, path: &str) -> Result<Option<Response>, Fault> {
        let url = route(&self.url, path).map_err(|failure| Fault::Lasting(failure.lines().join("; ")))?;
        let request = self.client.get(url).header(AUTHORIZATION, self.authorization.clone());
        let response = within(request.send()).await?.map_err(|error| self.unreached(&error))?;
        match response.status() {
            StatusCode::OK => Ok(Some(response)),
            StatusCode::NOT_FOUND => Ok(None),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(Fault::Lasting(format!("the gateway refuses the read token ({})", status.as_u16())))
            }
            _ => Err(refused(response, path).await),
        }
    }

    fn unreached(&self, error: &reqwest::Error) -> Fault {
        // Its address holds no secret; a user or password in it would be one.
        Fault::passing(format!(
            "cannot reach {}: {}",
            self.uploads.origin().ascii_serialization(),
            causes(error)
        ))
    }
}

/// The causes of a client's error: its own text says no more than the address.
fn causes(error: &reqwest::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), chain)
}

fn read_line(device_id: &DeviceId, line: &[u8]) -> Result<Value, Fault> {
    serde_json::from_slice(line)
        .map_err(|_| Fault::Lasting(format!("{device_id}: its track holds what is no JSON")))
}

/// What a status that is no success means: 4xx lasts, but for those by which a gateway says that it was in a hurry.
async fn refused(response: Response, what: &str) -> Fault {
    let status = response.status();
    let asked = retry_after(&response);
    let passing = status.is_server_error() || matches!(status.as_u16(), 400 | 408 | 425 | 429);
    let text = read_body(response).await.unwrap_or_default();
    let why = format!("{what} was answered {status} {text}").trim_end().to_owned();
    if passing { Fault::Passing { why, asked } } else { Fault::Lasting(why) }
}

async fn within<T>(attempt: impl Future<Output = T>) -> Result<T, Fault> {
    timeout(ANSWER_TIMEOUT, attempt)
        .await
        .map_err(|_| Fault::passing(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())))
}
