//! The requests of a case, over HTTP. The client adds `Host`, `Content-Length` and `Accept: */*`, nothing else.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use http_body::Frame;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Client, Method};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::super::Failure;
use super::super::web::{Trust, chain, client, read_body, route, runtime};
use super::case::Upload;
use crate::domain::ids::DeviceId;
use crate::domain::signature::{FleetKey, SIGNATURE_LEN, hex, hmac_sha256};

/// Most characters of a body that a report shows.
const SHOWN_CHARS_MAX: usize = 2000;
/// Bytes of a chunk where a body goes in chunks: small, so that every body has several.
const CHUNK_LEN: usize = 16;

/// A request, ready to be sent and to be shown.
#[derive(Clone, Debug)]
pub(super) struct Request {
    method: Method,
    path: String,
    /// In order; a name may stand several times.
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    chunked: bool,
    token: Option<String>,
}

/// What the gateway said.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) headers: HeaderMap,
    pub(super) body: String,
}

impl Answer {
    /// The body; null where it is no JSON.
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.status)?;
        if self.body.is_empty() { f.write_str(", no body") } else { write!(f, ", {}", cut(&self.body)) }
    }
}

/// Why there is no answer.
#[derive(Clone, Debug)]
pub(super) struct NoAnswer {
    pub(super) text: String,
    /// Nobody could be reached at all.
    pub(super) unreachable: bool,
}

impl Request {
    /// An upload, signed.
    pub(super) fn upload(upload: &Upload, key: &FleetKey) -> Self {
        let body = upload.body();
        let signature = Signature::new(key, &upload.signer, &body);
        let mut headers = vec![
            ("X-Device-Id".to_owned(), upload.signer.clone()),
            ("X-Signature".to_owned(), "sha256={hex}".to_owned()),
            ("Content-Type".to_owned(), "application/json".to_owned()),
        ];
        for (name, lines) in &upload.headers {
            headers.retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            headers.extend(lines.iter().map(|line| (name.clone(), line.clone())));
        }
        for (_, line) in &mut headers {
            *line = signature.spell(line);
        }
        let path = "/v1/batches".to_owned();
        Self { method: Method::POST, path, headers, body, chunked: upload.chunked, token: None }
    }

    /// A read with a token.
    pub(super) fn get(path: String, token: &str) -> Self {
        let token = Some(token.to_owned());
        Self { method: Method::GET, path, headers: Vec::new(), body: Vec::new(), chunked: false, token }
    }

    /// A change with a token.
    pub(super) fn post(path: String, body: &Value, token: &str) -> Self {
        let headers = vec![("Content-Type".to_owned(), "application/json".to_owned())];
        let (body, token) = (body.to_string().into_bytes(), Some(token.to_owned()));
        Self { method: Method::POST, path, headers, body, chunked: false, token }
    }
}

/// The request as a person reads it. Tokens stay hidden; a signature is none.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)?;
        for (name, value) in &self.headers {
            write!(f, "\n{name}: {value}")?;
        }
        if self.chunked {
            f.write_str("\nTransfer-Encoding: chunked")?;
        } else if self.method == Method::POST {
            write!(f, "\nContent-Length: {}", self.body.len())?;
        }
        if self.token.is_some() {
            f.write_str("\nAuthorization: Bearer (hidden)")?;
        }
        if self.body.is_empty() {
            return Ok(());
        }
        match std::str::from_utf8(&self.body) {
            Ok(text) => write!(f, "\n\n{}", cut(text)),
            Err(_) => write!(f, "\n\nbase64: {}", cut(&STANDARD.encode(&self.body))),
        }
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => text.to_owned(),
        Some((at, _)) => format!("{} … ({} bytes in all)", &text[..at], text.len()),
    }
}

/// The signature of a body, in all its spellings.
struct Signature([u8; SIGNATURE_LEN]);

impl Signature {
    fn new(key: &FleetKey, signer: &str, body: &[u8]) -> Self {
        // An id that is none has no key; whatever signs for it, the answer must be 401.
        let key = DeviceId::parse(signer).map_or([0; SIGNATURE_LEN], |id| key.derive(&id));
        Self(hmac_sha256(&key, body))
    }

    /// Puts the signature where a header's text asks for it.
    fn spell(&self, line: &str) -> String {
        let hex = hex(&self.0);
        line.replace("{hex}", &hex)
            .replace("{HEX}", &hex.to_ascii_uppercase())
            .replace("{base64}", &STANDARD.encode(self.0))
            .replace("{base64url}", &URL_SAFE_NO_PAD.encode(self.0))
    }
}

/// A body whose length nobody tells beforehand: it goes in chunks.
struct Chunks(VecDeque<Bytes>);

impl Chunks {
    fn of(body: &[u8]) -> Self {
        Self(body.chunks(CHUNK_LEN).map(Bytes::copy_from_slice).collect())
    }
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|chunk| Ok(Frame::data(chunk))))
    }
}

/// The way to one gateway.
pub(super) struct Wire {
    /// Without a route.
    base: String,
    client: Client,
    runtime: Runtime,
}

impl Wire {
    pub(super) fn new(url: &str, trust: &Trust) -> Result<Self, Failure> {
        let checked =
            route(url, "/").map_err(|_| Failure::fault("URL", "is not http://host:port or https://host"))?;
        Ok(Self { base: url.to_owned(), client: client(&checked, trust)?, runtime: runtime()? })
    }

    pub(super) fn exchange(&self, request: &Request) -> Result<Answer, NoAnswer> {
        self.runtime.block_on(self.send(request))
    }

    async fn send(&self, request: &Request) -> Result<Answer, NoAnswer> {
        let broken = |text: String| NoAnswer { text, unreachable: false };
        let url = route(&self.base, &request.path).map_err(|_| broken("the path is none".to_owned()))?;
        let mut headers = HeaderMap::new();
        for (name, value) in &request.headers {
            let (name, value) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value.as_bytes()));
            let (Ok(name), Ok(value)) = (name, value) else {
                return Err(broken("a header is none".to_owned()));
            };
            headers.append(name, value);
        }
        if let Some(token) = &request.token {
            let value = HeaderValue::from_str(&format!("Bearer {token}"));
            headers.insert(
                AUTHORIZATION,
                value.map_err(|_| broken("the token cannot stand in a header".to_owned()))?,
            );
        }
        let mut sending = self.client.request(request.method.clone(), url).headers(headers);
        if request.chunked {
            sending = sending.body(Body::wrap(Chunks::of(&request.body)));
        } else if request.method == Method::POST {
            sending = sending.body(request.body.clone());
        }
        let response = sending
            .send()
            .await
            .map_err(|error| NoAnswer { unreachable: error.is_connect(), text: chain(&error) })?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let body = read_body(response).await.map_err(broken)?;
        Ok(Answer { status, headers, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::conform::case::{Step, read};

    /// Of `{}` by `track-exp-084` under "correct-horse-battery-staple"; computed with openssl.
    #[test]
    fn a_signature_goes_where_the_header_asks() {
        let step = r#"{"raw":"{}","as":"track-exp-084","headers":{"Content-Type":null,
            "X-Signature":["{hex}","v1={base64url}, {HEX} {base64}"]},"expect":{"status":202}}"#;
        let cases = read(&format!(r#"[{{"name":"n","source":"s","steps":[{step}]}}]"#)).expect("a case");
        let Step::Upload(upload) = &cases[0].steps[0] else { panic!("an upload") };
        let request = Request::upload(upload, &FleetKey::new(b"correct-horse-battery-staple"));
        let shown = request.to_string();
        let hex = "af175da7d4b730c7c4eb2c051f4f01da8039a223670f498b3e2209a0e2bec82d";
        let base64 = "rxddp9S3MMfE6ywFH08B2oA5oiNnD0mLPiIJoOK+yC0=";
        let url = "rxddp9S3MMfE6ywFH08B2oA5oiNnD0mLPiIJoOK-yC0";
        let second = format!("\nX-Signature: v1={url}, {} {base64}\n", hex.to_ascii_uppercase());
        assert!(shown.contains(&format!("\nX-Signature: {hex}{second}")), "{shown}");
        assert!(shown.ends_with("\nContent-Length: 2\n\n{}"), "{shown}");
        assert!(!shown.contains("correct-horse") && !shown.contains("Content-Type"), "{shown}");
    }
}
