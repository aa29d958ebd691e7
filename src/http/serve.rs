//! The server loop: drives each connection in a task of its own, and drains at the end.

use std::convert::Infallible;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::{CONNECTION, DATE};
use axum::http::{HeaderValue, Method, Request, Response};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt;

use super::accept::{Place, Places, accept_until};
use super::gateway::Gateway;
use super::ingest;
use super::problem::Problem;
use super::progress::Progress;
use super::socket::{Socket, Transport};
use super::wire::{Patience, Wire};

/// Most bytes of a request's line and headers.
const HEADER_BYTES_MAX: usize = 16 << 10;
/// Bound of a connection's read and write buffers, which grow only while a client sends faster than this.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// A TLS handshake may take so many times the longest silence in it: a few KB over any link that is worth one.
const HANDSHAKE_SILENCES: u32 = 4;
/// How long a shutdown waits, after `drain`, for uploads whose body had come whole: they are committed in
/// order anyway, and each of them that is answered spares a retry.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Where a shutdown stands, told to every connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Serving,
    /// No further requests; those under way go on.
    Draining,
    /// Only uploads that are being committed are still answered.
    Cutting,
}

/// What every connection shares.
pub(super) struct Shared {
    gateway: Arc<Gateway>,
    router: Router,
    builder: http1::Builder,
    phase: watch::Receiver<Phase>,
    pub(super) places: Places,
}

/// Serves until `shutdown` is done, then drains: nothing new is accepted, every upload whose body was wholly
/// read is committed and answered, the rest is cut after `drain`.
pub async fn serve(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> io::Result<()> {
    let (phase, phases) = watch::channel(Phase::Serving);
    let shared = Arc::new(Shared {
        router: super::router(Arc::clone(&gateway)),
        builder: builder(),
        gateway: Arc::clone(&gateway),
        phase: phases,
        places: Places::new(gateway.http.connections_max),
    });
    accept_until(&shared, listener, shutdown).await;

    // A receiver is in `shared`, so nobody misses these.
    phase.send_replace(Phase::Draining);
    if timeout(gateway.http.drain, shared.places.all_free()).await.is_err() {
        phase.send_replace(Phase::Cutting);
        shared.places.all_free().await;
    }
    // Those whose client has left have no connection that would wait for them.
    if timeout(ANSWER_PATIENCE, gateway.underway.ended()).await.is_err() {
        tracing::error!("the store did not commit the last uploads in time");
    }
    Ok(())
}

fn builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // A bound on the whole header, and its default is 30 s: the wire's own deadlines are on silence.
        .header_read_timeout(None)
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
pub(super) async fn drive(shared: Arc<Shared>, stream: TcpStream, place: Place) {
    let counted = shared.gateway.metrics.connection();
    // An answer is one write; waiting for more to send along would only delay it.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    let tls = shared.gateway.secrets().tls.as_ref().map(|tls| TlsAcceptor::from(tls.config()));
    let progress = Arc::new(Progress::default());
    let wire = Wire::new(stream, Arc::clone(&progress), Patience::of(&shared.gateway.http));
    let transport = match tls {
        None => Some(Transport::Plain(wire)),
        Some(acceptor) => shake_hands(&shared, acceptor, wire, &progress).await,
    };
    if let Some(transport) = transport {
        speak(&shared, transport, progress).await;
    }
    drop((counted, place));
}

/// The handshake of TLS, under its deadlines. `None` where it came to nothing: plain HTTP, scanners, clients
/// that know none of our versions, a shutdown. Nothing was uploaded yet, so nothing is lost with it.
async fn shake_hands(
    shared: &Shared,
    acceptor: TlsAcceptor,
    wire: Wire,
    progress: &Progress,
) -> Option<Transport> {
    let mut phase = shared.phase.clone();
    let longest = shared.gateway.http.header_timeout.saturating_mul(HANDSHAKE_SILENCES);
    // Boxed: what a handshake needs is not carried along by the connection afterwards.
    let shaken = Box::pin(timeout(longest, acceptor.accept(wire)));
    let shaken = tokio::select! {
        biased;
        shaken = shaken => shaken,
        _ = phase.wait_for(|phase| *phase >= Phase::Draining) => return None,
        () = shared.places.wanted(progress) => return None,
    };
    match shaken {
        Ok(Ok(tls)) => {
            progress.handshake_done();
            Some(Transport::Tls(Box::new(tls)))
        }
        Ok(Err(error)) => {
            tracing::debug!(%error, "no TLS handshake");
            None
        }
        Err(_) => {
            tracing::debug!("a TLS handshake took too long");
            None
        }
    }
}

/// HTTP on an established connection.
async fn speak(shared: &Arc<Shared>, transport: Transport, progress: Arc<Progress>) {
    let socket = Socket::new(transport, Arc::clone(&progress));
    let service = service_fn(|request| {
        let (shared, progress) = (Arc::clone(shared), Arc::clone(&progress));
        async move { Ok::<_, Infallible>(answer(&shared, &progress, request).await) }
    });
    let mut connection = pin!(shared.builder.serve_connection(socket, service));
    let mut phase = shared.phase.clone();
    let ended = tokio::select! {
        // In this order: whether it is idle shows after it was driven.
        biased;
        ended = &mut connection => Some(ended),
        _ = phase.wait_for(|phase| *phase >= Phase::Draining) => None,
        // At once: hyper would wait for the rest of a header, and a refused client for the end of its own body.
        () = shared.places.wanted(&progress) => return,
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
}

/// Answers one request. A panic in a handler is a 500, and the connection goes on.
async fn answer(shared: &Shared, progress: &Progress, request: Request<Incoming>) -> Response<Body> {
    let requests = progress.request_began(!request.body().is_end_stream());
    let mut work = pin!(async {
        // The one hot route is entered directly: it spares the router's boxes on every upload. The router
        // has its row nevertheless, for its other methods.
        if request.method() == Method::POST && request.uri().path() == ingest::PATH {
            return ingest::upload(&shared.gateway, request, progress).await;
        }
        // Boxed: unboxed, every slow upload would carry its room along.
        let routed = Box::pin(shared.router.clone().oneshot(request.map(Body::new)));
        routed.await.unwrap_or_else(|never: Infallible| match never {})
    });
    let mut response = caught(work.as_mut()).await.unwrap_or_else(|| {
        tracing::error!("a handler panicked");
        let mut response = Problem::internal().closing().respond(false);
        if let Some(date) = shared.gateway.date() {
            response.headers_mut().insert(DATE, date);
        }
        response
    });
    if requests >= shared.gateway.http.keepalive_requests {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    progress.answered();
    response
}

/// Runs a future; `None` if it panicked. The panic hook has printed where. By reference: given away, the future
/// would have its room twice in its caller's.
async fn caught<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
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

    /// Thousands of slow uploads hold these at once. 20 KB each is the bar, and hyper's buffers take most of it.
    #[test]
    fn what_a_connection_holds_stays_small() {
        fn driving(shared: Arc<Shared>, stream: TcpStream, place: Place) -> impl Future {
            drive(shared, stream, place)
        }
        fn answering<'a>(
            shared: &'a Shared,
            progress: &'a Progress,
            request: Request<Incoming>,
        ) -> impl Future + use<'a> {
            answer(shared, progress, request)
        }
        fn room<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
            size_of::<F>()
        }
        let (driving, answering) = (room(driving), room(answering));
        assert!(driving < 2048 && answering < 2560, "{driving} and {answering} bytes");
    }

    #[tokio::test]
    async fn a_panic_ends_only_its_own_future() {
        async fn later(panics: bool) -> u8 {
            tokio::task::yield_now().await;
            assert!(!panics, "as told");
            7
        }
        assert_eq!(caught(pin!(later(false))).await, Some(7));
        assert_eq!(caught(pin!(later(true))).await, None);
    }
}
