//! The HTTP side of `tidegate send`.

use std::time::Duration;

use reqwest::{Client, StatusCode, Url};
use tokio::runtime::Runtime;

use super::super::Failure;
use super::super::backoff;
use super::super::web::{Trust, chain, client, read_body, retry_after, route, runtime};
use crate::domain::ids::DeviceId;
use crate::domain::signature::{SIGNATURE_LEN, sign};

/// What the gateway said.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// In one line.
    pub(super) body: String,
    retry_after: Option<Duration>,
}

impl Answer {
    pub(super) fn acknowledged(&self) -> bool {
        matches!(self.status, StatusCode::OK | StatusCode::ACCEPTED)
    }
}

/// Uploads to one gateway.
pub(super) struct Uploader {
    url: Url,
    minimal: bool,
    retries: u32,
    client: Client,
    runtime: Runtime,
}

impl Uploader {
    /// `url` is the gateway's, without the route.
    pub(super) fn new(url: &str, trust: &Trust, minimal: bool, retries: u32) -> Result<Self, Failure> {
        let url = route(url, "/v1/batches")?;
        Ok(Self { client: client(&url, trust)?, url, minimal, retries, runtime: runtime()? })
    }

    /// Uploads one body, again and again as configured; `tell` hears of each pause.
    pub(super) fn upload(
        &self,
        device_id: &DeviceId,
        key: &[u8; SIGNATURE_LEN],
        body: Vec<u8>,
        mut tell: impl FnMut(&str),
    ) -> Result<Answer, String> {
        let signature = format!("sha256={}", sign(key, &body));
        let body = bytes::Bytes::from(body);
        let mut attempt = 0;
        loop {
            let answer = self.runtime.block_on(self.post(device_id, &signature, body.clone()));
            let (why, asked) = match &answer {
                Ok(answer) if answer.status == StatusCode::SERVICE_UNAVAILABLE => {
                    (answer.status.to_string(), answer.retry_after)
                }
                Ok(_) => return answer,
                Err(error) => (error.clone(), None),
            };
            if attempt == self.retries {
                return answer;
            }
            attempt += 1;
            let pause = backoff::pause(attempt, asked, backoff::random());
            let told = format!("{why}; try {attempt} of {} in {:.1} s", self.retries, pause.as_secs_f64());
            tell(&told);
            // Made inside: a timer needs its runtime around it from the start.
            self.runtime.block_on(async { tokio::time::sleep(pause).await });
        }
    }

    async fn post(
        &self,
        device_id: &DeviceId,
        signature: &str,
        body: bytes::Bytes,
    ) -> Result<Answer, String> {
        let mut request = self.client.post(self.url.clone()).body(body);
        request = request.header("X-Device-Id", device_id.as_str()).header("X-Signature", signature);
        if self.minimal {
            request = request.header("Prefer", "return=minimal");
        }
        let response = request.send().await.map_err(|error| chain(&error))?;
        Ok(Answer {
            status: response.status(),
            retry_after: retry_after(&response),
            body: read_body(response).await?,
        })
    }
}
