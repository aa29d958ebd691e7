//! The connection's socket as hyper sees it, with two things added that a plain one lacks.
//!
//! *Lingering close.* Where a request is refused before its body was read, closing at once makes the kernel
//! send a reset, and the reset overtakes the answer: the tracker sees a broken connection, retries, and pays
//! again. So the answer goes out, the sending side is closed, and what still arrives is read and thrown away
//! for a while.
//!
//! *Stalled writes.* A client that stops reading an answer would keep its connection for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use super::progress::Progress;

/// Most bytes thrown away at the close: eight times the default body limit.
const LINGER_BYTES: usize = 8 << 20;
/// Longest time spent on it.
const LINGER_TIME: Duration = Duration::from_secs(30);

/// See the module.
pub(super) struct Socket {
    io: TokioIo<TcpStream>,
    progress: Arc<Progress>,
    write_stall: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

struct Linger {
    ends: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl Socket {
    /// `write_stall`: how long the client may leave an answer unread.
    pub(super) fn new(stream: TcpStream, progress: Arc<Progress>, write_stall: Duration) -> Self {
        Self { io: TokioIo::new(stream), progress, write_stall, stalled: None, linger: None }
    }

    /// Passes a write's result on, unless it has been pending for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let stall = self.write_stall;
        let timer = self.stalled.get_or_insert_with(|| Box::pin(sleep(stall)));
        match timer.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads and throws away until the client is done, or has used up what it is granted.
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
            match Pin::new(self.io.inner_mut()).poll_read(cx, &mut buffer) {
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
        let wrote = Pin::new(&mut self.io).poll_write(cx, bytes);
        self.watch(cx, wrote)
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
        let wrote = Pin::new(&mut self.io).poll_write_vectored(cx, pieces);
        self.watch(cx, wrote)
    }
}
