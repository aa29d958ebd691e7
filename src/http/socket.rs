//! The connection as hyper sees it: plain or TLS, over a [`Wire`] with its deadlines, and with a lingering close.
//!
//! Where a request is refused before its body was read, closing at once makes the kernel
//! send a reset, and the reset overtakes the answer: the tracker sees a broken connection, retries, and pays
//! again. So the answer goes out, the sending side is closed, and what still arrives is read and thrown away
//! for a while.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::progress::Progress;
use super::wire::Wire;

/// Most bytes thrown away at the close: eight times the default body limit.
const LINGER_BYTES: usize = 8 << 20;
/// Longest time spent on it.
const LINGER_TIME: Duration = Duration::from_secs(30);

/// How a connection's bytes travel.
pub(super) enum Transport {
    Plain(Wire),
    // Boxed: plain connections need not carry the room of a TLS session.
    Tls(Box<TlsStream<Wire>>),
}

impl Transport {
    fn wire(&mut self) -> &mut Wire {
        match self {
            Self::Plain(wire) => wire,
            Self::Tls(tls) => tls.get_mut().0,
        }
    }
}

/// See the module.
pub(super) struct Socket {
    io: TokioIo<Transport>,
    progress: Arc<Progress>,
    linger: Option<Linger>,
}

struct Linger {
    ends: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl Socket {
    pub(super) fn new(transport: Transport, progress: Arc<Progress>) -> Self {
        Self { io: TokioIo::new(transport), progress, linger: None }
    }

    /// Reads and throws away until the client is done, or has used up what it is granted. Under TLS, too,
    /// what came is not looked at: it would only be decrypted to be thrown away.
    fn discard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let linger = self
            .linger
            .get_or_insert_with(|| Linger { ends: Box::pin(sleep(LINGER_TIME)), bytes_left: LINGER_BYTES });
        if linger.ends.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        let mut scratch = [0; 4096];
        loop {
            let mut buffer = ReadBuf::new(&mut scratch);
            match self.io.inner_mut().wire().stream().poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => match linger.bytes_left.checked_sub(buffer.filled().len()) {
                    Some(left) if !buffer.filled().is_empty() => linger.bytes_left = left,
                    _ => return Poll::Ready(()),
                },
            }
        }
    }
}

impl Read for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl Write for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            match Pin::new(&mut self.io).poll_shutdown(cx) {
                Poll::Ready(Ok(())) if self.progress.body_left() => {}
                shut => return shut,
            }
        }
        self.discard(cx).map(Ok)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, pieces)
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_read(cx, buffer),
            Self::Tls(tls) => Pin::new(tls).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_write_vectored(cx, pieces),
            Self::Tls(tls) => Pin::new(tls).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(wire) => wire.is_write_vectored(),
            Self::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_flush(cx),
            Self::Tls(tls) => Pin::new(tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(wire) => Pin::new(wire).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(tls).poll_shutdown(cx),
        }
    }
}
