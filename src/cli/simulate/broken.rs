//! Requests that break off in the middle.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use reqwest::Url;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep, timeout};

/// For what was written to leave before the connection is cut.
const LEAVING: Duration = Duration::from_millis(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A body that announces more than it gives.
pub(super) struct HalfBody {
    announced: u64,
    given: Option<Bytes>,
    leaving: Option<Pin<Box<Sleep>>>,
}

/// The end of half a body: makes the client cut the connection.
#[derive(Debug)]
pub(super) struct LinkBroke;

impl fmt::Display for LinkBroke {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the link broke, as it was told to")
    }
}

impl std::error::Error for LinkBroke {}

impl HalfBody {
    /// Announces the whole body and gives so many thousandths of it, never all.
    pub(super) fn new(body: &[u8], permille: u32) -> Self {
        let part = body.len() * permille.min(999) as usize / 1000;
        Self {
            announced: u64::try_from(body.len()).unwrap_or(u64::MAX),
            given: Some(Bytes::copy_from_slice(&body[..part])).filter(|part| !part.is_empty()),
            leaving: None,
        }
    }
}

impl Body for HalfBody {
    type Data = Bytes;
    type Error = LinkBroke;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, LinkBroke>>> {
        if let Some(part) = self.given.take() {
            return Poll::Ready(Some(Ok(Frame::data(part))));
        }
        let leaving = self.leaving.get_or_insert_with(|| Box::pin(sleep(LEAVING)));
        ready!(leaving.as_mut().poll(context));
        Poll::Ready(Some(Err(LinkBroke)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.announced)
    }
}

/// Connects, writes half a header and hangs up; behind TLS it is no more than a greeting that makes no sense.
/// Whether that works is nobody's concern: nothing of it can be an upload.
pub(super) async fn half_header(url: &Url) {
    let address = url.host_str().zip(url.port_or_known_default());
    if let Some((host, port)) = address {
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let _ = timeout(CONNECT_TIMEOUT, async move {
            let mut stream = TcpStream::connect((host.as_str(), port)).await?;
            stream.write_all(b"POST /v1/batches HTTP/1.1\r\nHost: gateway\r\nX-Device-Id: sim").await?;
            stream.shutdown().await
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn half_a_body_announces_all_of_it_and_breaks_off() {
        for (permille, given) in [(0, ""), (500, "01234"), (999, "012345678"), (5000, "012345678")] {
            let mut body = HalfBody::new(b"0123456789", permille);
            assert_eq!(body.size_hint().exact(), Some(10));
            let mut read = Vec::new();
            while let Some(Ok(frame)) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                read.extend_from_slice(&frame.into_data().expect("data"));
            }
            assert_eq!(read, given.as_bytes());
        }
    }
}
