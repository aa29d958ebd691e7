//! Takes connections in, and makes room for new ones where there are as many as there may be.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::progress::Progress;
use super::serve::{Shared, drive};

/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The log says at most this often that all places are taken.
const FULL_TOLD_EVERY: Duration = Duration::from_mins(1);

/// While a new connection waits for a place, somebody is asked to go this often.
const ASKED_EVERY: Duration = Duration::from_millis(500);

/// Held by a connection for as long as it lives.
pub(super) type Place = OwnedSemaphorePermit;

/// The places that connections take. When all are taken, the connection that has been idle, or has not
/// finished its header, for longest gives its own up, so that whoever holds many connections open and says nothing
/// keeps no tracker out.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    max: u32,
    /// Connections without a whole header wait for this, in the order in which they came to it.
    wanted: Notify,
}

impl Places {
    pub(super) fn new(max: usize) -> Self {
        let max = u32::try_from(max.clamp(1, 1 << 28)).unwrap_or(1 << 28);
        Self { free: Arc::new(Semaphore::new(max as usize)), max, wanted: Notify::new() }
    }

    /// A place now, or else when the first connection has made room. `None` never comes: the semaphore is not closed.
    async fn take(&self) -> Option<Place> {
        if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
            return Some(place);
        }
        let mut free = pin!(Arc::clone(&self.free).acquire_owned());
        let place = loop {
            // Again and again: whoever was asked may have got busy, and not have left.
            self.wanted.notify_one();
            if let Ok(place) = timeout(ASKED_EVERY, free.as_mut()).await {
                break place.ok();
            }
        };
        // Somebody may have left by itself before anyone was idle; nobody is wanted out of the way any more.
        let mut asked = pin!(self.wanted.notified());
        asked.as_mut().enable();
        place
    }

    fn are_all_taken(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Returns when every connection has ended.
    pub(super) async fn all_free(&self) {
        let _ = self.free.acquire_many(self.max).await;
    }

    /// Returns when this connection shall make room: it has no whole header, and has had none for longest. To be polled
    /// whenever the connection was.
    pub(super) async fn wanted(&self, progress: &Progress) {
        let mut waiting = pin!(None::<Notified<'_>>);
        let mut since = None;
        std::future::poll_fn(|cx| {
            let step = progress.step();
            if since != Some(step) {
                // Whoever was busy meanwhile waits at the end of the row again. If it was its turn, the next one
                // in the row gets it.
                since = Some(step);
                waiting.set(progress.may_make_room().then(|| self.wanted.notified()));
            }
            waiting.as_mut().as_pin_mut().map_or(Poll::Pending, |turn| turn.poll(cx))
        })
        .await;
    }
}

/// Takes connections in until `shutdown` is done.
pub(super) async fn accept_until(
    shared: &Arc<Shared>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    let mut told: Option<Instant> = None;
    loop {
        let accepting = async {
            let (stream, _) = listener.accept().await?;
            if shared.places.are_all_taken() && told.is_none_or(|at| at.elapsed() > FULL_TOLD_EVERY) {
                tracing::warn!(
                    "connections_max is reached: connections without a whole header make room, others wait"
                );
                told = Some(Instant::now());
            }
            io::Result::Ok((stream, shared.places.take().await))
        };
        let accepted = tokio::select! {
            () = &mut shutdown => return,
            accepted = accepting => accepted,
        };
        match accepted {
            Ok((stream, Some(place))) => {
                tokio::spawn(drive(Arc::clone(shared), stream, place));
            }
            Ok((_, None)) => return,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections now");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether only the connection that was about to be accepted failed.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn is_done(future: std::pin::Pin<&mut impl Future<Output = ()>>) -> bool {
        let mut future = future;
        std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
    }

    #[tokio::test]
    async fn the_one_idle_for_longest_makes_room() {
        let places = Places::new(2);
        let held = (places.take().await, places.take().await);
        assert!(places.are_all_taken());
        let (busy, first, second) = (Progress::default(), Progress::default(), Progress::default());
        let mut of_busy = pin!(places.wanted(&busy));
        let mut of_first = pin!(places.wanted(&first));
        let mut of_second = pin!(places.wanted(&second));
        for connection in [&mut of_busy, &mut of_first, &mut of_second] {
            // A plain loop would move them: each is polled where it is pinned.
            assert!(!is_done(connection.as_mut()).await);
        }
        let mut taking = pin!(async {
            places.take().await;
        });
        assert!(!is_done(taking.as_mut()).await);
        // It was its turn, but a request came in and was answered meanwhile: the next one goes.
        busy.bytes_came();
        busy.request_began(false);
        busy.answered();
        busy.reading();
        assert!(busy.may_make_room() && !is_done(of_busy.as_mut()).await);
        assert!(!is_done(of_second.as_mut()).await);
        assert!(is_done(of_first.as_mut()).await);
        drop(held.0);
        taking.await;
        assert!(!is_done(of_second.as_mut()).await, "one was wanted");
    }

    #[tokio::test]
    async fn nobody_goes_for_somebody_who_has_a_place_by_now() {
        let places = Places::new(1);
        let held = places.take().await;
        let mut taking = pin!(async {
            places.take().await;
        });
        assert!(!is_done(taking.as_mut()).await);
        drop(held);
        taking.await;
        let late = Progress::default();
        let mut of_late = pin!(places.wanted(&late));
        assert!(!is_done(of_late.as_mut()).await);
    }
}
