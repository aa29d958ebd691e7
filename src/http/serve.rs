//! The server loop: accepts connections, drives each in a task of its own, and drains at the end.

use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::DATE;
use axum::http::{Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioTimer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::{sleep, timeout};
use tower::ServiceExt;

use super::gateway::Gateway;
use super::ingest;
use super::problem::Problem;
use super::progress::Progress;
use super::socket::Socket;

/// Most bytes of a request's line and headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Bound of a connection's read and write buffers, which grow only while a client sends faster than this.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Pause after an accept that failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a shutdown waits, after `drain`, for uploads whose body had come whole: they are committed in
/// order anyway, and each of them that is answered spares a retry.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Where a shutdown stands, told to every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// No further requests; those under way go on.
    Draining,
    /// Only uploads that are being committed are still answered.
    Cutting,
}

/// What every connection shares.
struct Shared {
    gateway: Arc<Gateway>,
    router: Router,
    builder: http1::Builder,
    phase: watch::Receiver<Phase>,
}

/// Serves until `shutdown` is done, then drains: nothing new is accepted, every upload whose body was wholly
/// read is committed and answered, the rest is cut after `drain`.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (phase, phases) = watch::channel(Phase::Serving);
    let connections_max = u32::try_from(gateway.http.connections_max.clamp(1, 1 << 28)).unwrap_or(1 << 28);
    let places = Arc::new(Semaphore::new(connections_max as usize));
    let shared = Arc::new(Shared {
        router: super::router(Arc::clone(&gateway)),
        builder: builder(&gateway),
        gateway: Arc::clone(&gateway),
        phase: phases,
    });
    accept_until(&shared, listener, &places, shutdown).await;

    // A receiver is in `shared`, so nobody misses these.
    phase.send_replace(Phase::Draining);
    // All places free: every connection has ended.
    let ended = Arc::clone(&places).acquire_many_owned(connections_max);
    if timeout(gateway.http.drain, ended).await.is_err() {
        phase.send_replace(Phase::Cutting);
        let _ = places.acquire_many_owned(connections_max).await;
    }
    // Those whose client has left have no connection that would wait for them.
    if timeout(ANSWER_PATIENCE, gateway.underway.ended()).await.is_err() {
        tracing::error!("the store did not commit the last uploads in time");
    }
    Ok(())
}

async fn accept_until(
    shared: &Arc<Shared>,
    listener: TcpListener,
    places: &Arc<Semaphore>,
    shutdown: impl Future<Output = ()>,
) {
    let mut shutdown = pin!(shutdown);
    loop {
        let accepting = async {
            // A connection beyond the bound waits in the kernel's queue, where it costs nothing here.
            let place = Arc::clone(places).acquire_owned().await.ok()?;
            Some((listener.accept().await, place))
        };
        let accepted = tokio::select! {
            () = &mut shutdown => return,
            accepted = accepting => accepted,
        };
        match accepted {
            // The semaphore is never closed.
            None => return,
            Some((Ok((stream, _)), place)) => {
                tokio::spawn(drive(Arc::clone(shared), stream, place));
            }
            Some((Err(error), _)) if is_of_one_connection(&error) => {}
            Some((Err(error), _)) => {
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

fn builder(gateway: &Gateway) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(gateway.http.header_timeout)
        .max_header_size(HEADER_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        // Cheap modems parse header names by hand, as the standards spell them.
        .title_case_headers(true)
        // Minimal answers have no Date; all others get theirs from the gateway's clock.
        .auto_date_header(false)
        // A client that closes its sending side after the request still gets its answer.
        .half_close(true)
        .keep_alive(true);
    builder
}

/// Drives one connection to its end.
async fn drive(shared: Arc<Shared>, stream: TcpStream, place: OwnedSemaphorePermit) {
    let counted = shared.gateway.metrics.connection();
    // An answer is one write; waiting for more to send along would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let progress = Arc::new(Progress::default());
    let socket = Socket::new(stream, Arc::clone(&progress), shared.gateway.http.body_idle_timeout);
    let service = service_fn(|request| {
        let (shared, progress) = (Arc::clone(&shared), Arc::clone(&progress));
        async move { Ok::<_, Infallible>(answer(&shared, &progress, request).await) }
    });
    let mut connection = pin!(shared.builder.serve_connection(socket, service));
    let mut phase = shared.phase.clone();
    let ended = tokio::select! {
        ended = &mut connection => Some(ended),
        _ = phase.wait_for(|phase| *phase >= Phase::Draining) => None,
    };
    let ended = if ended.is_some() {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        tokio::select! {
            ended = &mut connection => Some(ended),
            _ = phase.wait_for(|phase| *phase >= Phase::Cutting) => None,
        }
    };
    let ended = match ended {
        None if progress.committing() => timeout(ANSWER_PATIENCE, connection).await.ok(),
        ended => ended,
    };
    if let Some(Err(error)) = ended {
        // Timeouts, resets and bad framing: the ordinary life of a bad link.
        tracing::debug!(%error, "connection ended");
    }
    drop((counted, place));
}

/// Answers one request. A panic in a handler is a 500, and the connection goes on.
async fn answer(shared: &Shared, progress: &Progress, request: Request<Incoming>) -> Response<Body> {
    progress.request_began(!request.body().is_end_stream());
    let answered = caught(async {
        // The one hot route is entered directly: it spares the router's boxes on every upload. The router
        // has its row nevertheless, for its other methods.
        if request.method() == Method::POST && request.uri().path() == ingest::PATH {
            return ingest::upload(&shared.gateway, request, progress).await;
        }
        let routed = shared.router.clone().oneshot(request.map(Body::new)).await;
        routed.unwrap_or_else(|never: Infallible| match never {})
    });
    answered.await.unwrap_or_else(|| {
        tracing::error!("a handler panicked");
        let mut response = Problem::internal().closing().respond(false);
        if let Some(date) = shared.gateway.date() {
            response.headers_mut().insert(DATE, date);
        }
        response
    })
}

/// Runs a future; `None` if it panicked. The panic hook has printed where.
async fn caught<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| {
        // What the future had borrowed is shared state that is sound at every await.
        catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
            .map_or(Poll::Ready(None), |poll| poll.map(Some))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_only_its_own_future() {
        async fn later(panics: bool) -> u8 {
            tokio::task::yield_now().await;
            assert!(!panics, "as told");
            7
        }
        assert_eq!(caught(later(false)).await, Some(7));
        assert_eq!(caught(later(true)).await, None);
    }
}
