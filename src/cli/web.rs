//! HTTP as the commands speak it to a gateway.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use reqwest::header::RETRY_AFTER;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Client, Response, Url};
use tokio::runtime::Runtime;

use super::Failure;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest silence of the gateway: it answers after its commit, so within its queue's patience.
const READ_TIMEOUT: Duration = Duration::from_mins(2);
/// Most bytes of an answer that are kept: receipts and problems are far smaller.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// A route of the gateway at `url`, which has no path of its own but may have a prefix.
pub(super) fn route(url: &str, path: &str) -> Result<Url, Failure> {
    Url::parse(&format!("{}{path}", url.trim_end_matches('/')))
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
        .ok_or_else(|| Failure::fault("--url", "is not http://host:port or https://host"))
}

/// Whom to trust over https.
#[derive(Clone, Debug, Default, Args)]
pub(super) struct Trust {
    /// Trust this certificate authority (PEM) over https, and no other
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
}

impl Trust {
    /// The certificates of the file, which holds one at least; `None`: trust whom this machine trusts.
    fn authorities(&self) -> Result<Option<Vec<Certificate>>, Failure> {
        let Some(path) = &self.ca else { return Ok(None) };
        let fault = |text: &str| Failure::fault("--ca", format!("{} {text}", path.display()));
        let text = std::fs::read(path).map_err(|error| fault(&format!("cannot be read: {error}")))?;
        let found = Certificate::from_pem_bundle(&text).unwrap_or_default();
        if found.is_empty() { Err(fault("holds no certificate (PEM)")) } else { Ok(Some(found)) }
    }
}

/// A client for this gateway: no redirects, and no certificates needed for plain HTTP.
pub(super) fn client(url: &Url, trust: &Trust) -> Result<Client, Failure> {
    // Fails only where the process has a provider already, which then serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .read_timeout(READ_TIMEOUT)
        .redirect(Policy::none())
        .http1_title_case_headers();
    if let Some(authorities) = trust.authorities()? {
        builder = builder.tls_certs_only(authorities);
    } else if url.scheme() == "http" {
        // Plain HTTP must also work on a machine without certificates.
        builder = builder.tls_certs_only([]);
    }
    builder.build().map_err(|error| Failure::Failed(format!("cannot start a client: {}", chain(&error))))
}

/// What drives a client that makes one request at a time.
pub(super) fn runtime() -> Result<Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::Failed(format!("cannot start: {error}")))
}

/// How long an answer asks the client to wait, if it says so in seconds.
pub(super) fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// The body in one line, cut at [`ANSWER_BYTES_MAX`]; what a terminal would obey becomes a blank.
pub(super) async fn read_body(mut response: Response) -> Result<String, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| chain(&error))? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > ANSWER_BYTES_MAX {
            bytes.truncate(ANSWER_BYTES_MAX);
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes).replace(char::is_control, " ");
    Ok(text.trim().to_owned())
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
