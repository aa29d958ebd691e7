//! The TCP stream under a connection, with deadlines on silence.
//!
//! They stand here, below TLS, because they are about bytes on the wire: a record of 16 KiB of a slow link
//! gives no plaintext for minutes while its bytes keep coming. And they are on silence, never on a whole
//! header or body: 200 KB at 300 bit/s is fine. What a client can draw out that way is bounded in bytes.
//!
//! Writes have one, too: a client that stops reading its answer would keep its connection for ever.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::progress::{Progress, Stage, Step};
use crate::ops::config::HttpOptions;

/// Longest silences.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Before and within a handshake or a header.
    header: Duration,
    /// Within a body, and of a client that has an answer to read.
    body: Duration,
    /// Between an answer and the next request.
    idle: Duration,
}

impl Patience {
    pub(super) fn of(options: &HttpOptions) -> Self {
        Self {
            header: options.header_timeout,
            body: options.body_idle_timeout,
            idle: options.keepalive_timeout,
        }
    }

    fn at(self, stage: Stage) -> Duration {
        match stage {
            Stage::Fresh | Stage::Header => self.header,
            Stage::Body | Stage::Work | Stage::Commit | Stage::Answer => self.body,
            Stage::Idle => self.idle,
        }
    }
}

/// See the module.
pub(super) struct Wire {
    stream: TcpStream,
    progress: Arc<Progress>,
    patience: Patience,
    /// The step at which the client fell silent, and until when it may be.
    silent: Option<(Step, Instant)>,
    read_timer: Timer,
    /// Until when a write may be pending.
    stalled: Option<Instant>,
    write_timer: Timer,
}

impl Wire {
    pub(super) fn new(stream: TcpStream, progress: Arc<Progress>, patience: Patience) -> Self {
        Self {
            stream,
            progress,
            patience,
            silent: None,
            read_timer: Timer::default(),
            stalled: None,
            write_timer: Timer::default(),
        }
    }

    /// The stream itself, without deadlines.
    pub(super) fn stream(&mut self) -> Pin<&mut TcpStream> {
        Pin::new(&mut self.stream)
    }

    /// Passes a write's result on, unless it has been pending for too long.
    fn watch<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stalled = None;
            return wrote;
        }
        let until = *self.stalled.get_or_insert_with(|| Instant::now() + self.patience.body);
        ready!(self.write_timer.poll(cx, until));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.progress.reading();
        let before = buffer.filled().len();
        let read = self.stream().poll_read(cx, buffer);
        if read.is_ready() {
            self.silent = None;
            if buffer.filled().len() > before {
                self.progress.bytes_came();
            }
            return read;
        }
        let now_at = self.progress.step();
        let until = match self.silent {
            Some((step, until)) if step == now_at => until,
            _ => Instant::now() + self.patience.at(now_at.stage()),
        };
        self.silent = Some((now_at, until));
        ready!(self.read_timer.poll(cx, until));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = self.stream().poll_write(cx, bytes);
        self.watch(cx, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wrote = self.stream().poll_write_vectored(cx, pieces);
        self.watch(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(cx)
    }
}

/// A timer whose time is put off with every byte and hardly ever comes: it is moved only when it went off
/// too early, or would go off too late.
#[derive(Default)]
struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    fn poll(&mut self, cx: &mut Context<'_>, until: Instant) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    /// Whether the timer has gone off by now.
    async fn is_over(timer: &mut Timer, until: Instant) -> bool {
        std::future::poll_fn(|cx| Poll::Ready(timer.poll(cx, until).is_ready())).await
    }

    #[tokio::test]
    async fn a_timer_goes_off_at_the_last_time_it_was_given() {
        let (begin, soon) = (Instant::now(), Duration::from_millis(2));
        let mut timer = Timer::default();
        assert!(!is_over(&mut timer, begin + Duration::from_hours(1)).await);
        // Moved nearer, then put off: it wakes at the nearer time, and is set again.
        assert!(!is_over(&mut timer, Instant::now() + soon).await);
        let until = Instant::now() + 2 * soon;
        let goes_off = std::future::poll_fn(|cx| timer.poll(cx, until));
        timeout(Duration::from_mins(1), goes_off).await.expect("it wakes by itself");
        assert!(Instant::now() >= until);
        assert!(!is_over(&mut timer, until + Duration::from_hours(1)).await, "used again");
    }
}
