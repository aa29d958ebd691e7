//! The state of one gateway: all that its handlers share, as a value. Any number of them run in one process.

use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use axum::http::HeaderValue;
use jiff::fmt::rfc2822::DateTimePrinter;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::budget::{Budget, Underway};
use super::decoders::Decoders;
use super::probe::Probe;
use super::problem::Problem;
use crate::domain::batch::Limits;
use crate::domain::time::Timestamp;
use crate::ops::clock::Clock;
use crate::ops::config::HttpOptions;
use crate::ops::metrics::Metrics;
use crate::ops::secrets::Secrets;
use crate::ops::session::Ended;
use crate::store::writer::Writer;
use crate::store::{Store, StoreError};

/// How long a read waits for a free reader before its client is told to come back.
pub(super) const READ_PATIENCE: Duration = Duration::from_secs(5);
/// Most histories streamed at once. Each holds about one page of 1,000 records: at 150 bytes a record 64 of
/// them are 10 MB.
const STREAMS_MAX: usize = 64;

/// What a gateway is made of.
#[derive(Debug)]
pub struct Parts {
    /// Where states and history are read.
    pub store: Arc<dyn Store>,
    /// Where uploads go.
    pub writer: Writer,
    /// Fleet keys and tokens.
    pub secrets: Secrets,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The counters.
    pub metrics: Arc<Metrics>,
    /// Decoding bounds.
    pub limits: Limits,
    /// HTTP behaviour.
    pub http: HttpOptions,
    /// How many readers may be at work at once.
    pub readers: usize,
    /// Days after which a guard falls by itself.
    pub guard_days: u32,
}

/// A gateway's shared state.
#[derive(Debug)]
pub struct Gateway {
    pub(super) store: Arc<dyn Store>,
    pub(super) writer: Writer,
    secrets: RwLock<Arc<Secrets>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) limits: Limits,
    pub(super) http: HttpOptions,
    pub(super) guard_days: u32,
    pub(super) inflight: Arc<Budget>,
    pub(super) underway: Underway,
    /// Bounds the bodies that are decoded at once and are large, as sent or inside: each may take six times the
    /// decoded limit in memory (itself, as text with the damaged bytes spelled out, and as records).
    pub(super) decoders: Decoders,
    pub(super) streams: Arc<Semaphore>,
    pub(super) probe: Probe,
    pub(super) openapi: String,
    pub(super) ended_sessions: Ended,
    readers: Arc<Semaphore>,
    date: Mutex<Option<(i64, HeaderValue)>>,
}

impl Gateway {
    /// Puts the parts together.
    pub fn new(parts: Parts) -> Arc<Self> {
        let decoders = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        Arc::new(Self {
            store: parts.store,
            writer: parts.writer,
            secrets: RwLock::new(Arc::new(parts.secrets)),
            clock: parts.clock,
            metrics: parts.metrics,
            limits: parts.limits,
            inflight: Budget::new(parts.http.inflight_bytes),
            http: parts.http,
            guard_days: parts.guard_days,
            underway: Underway::default(),
            decoders: Decoders::new(decoders),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
            probe: Probe::default(),
            openapi: super::openapi::document(),
            ended_sessions: Ended::default(),
            readers: Arc::new(Semaphore::new(parts.readers.max(1))),
            date: Mutex::new(None),
        })
    }

    /// The secrets that are live now.
    pub fn secrets(&self) -> Arc<Secrets> {
        Arc::clone(&self.secrets.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes other secrets from now on; requests under way keep those they began with.
    pub fn replace_secrets(&self, secrets: Secrets) {
        *self.secrets.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(secrets);
    }

    /// The value of `Date`, written anew once a second. `None` in years that HTTP cannot spell.
    pub(super) fn date(&self) -> Option<HeaderValue> {
        let now = self.clock.now();
        let second = now.to_micros().div_euclid(1_000_000);
        let mut cached = self.date.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = cached.as_ref().filter(|(of, _)| *of == second) {
            return Some(value.clone());
        }
        let value = http_date(now)?;
        *cached = Some((second, value.clone()));
        Some(value)
    }

    /// Reads the store on a thread that may block, with at most as many at once as there are readers.
    /// A reader that does not come free in `patience` is a 503.
    pub(super) async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        patience: Duration,
        read: impl FnOnce(&dyn Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Problem> {
        let free = Arc::clone(&self.readers).acquire_owned();
        let Ok(Ok(permit)) = timeout(patience, free).await else {
            return Err(Problem::unavailable());
        };
        let store = Arc::clone(&self.store);
        // The permit goes along: a client that leaves does not end the read, so it must not free the reader.
        let reading = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            read(store.as_ref())
        });
        match reading.await {
            Ok(read) => read.map_err(|error| Problem::from_store(&error)),
            Err(_) => Err(Problem::internal()),
        }
    }
}

fn http_date(now: Timestamp) -> Option<HeaderValue> {
    let now = jiff::Timestamp::from_microsecond(now.to_micros()).ok()?;
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&now).ok()?;
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spells_dates_as_http_does() {
        let at = |seconds| Timestamp::from_seconds(seconds).expect("in range");
        assert_eq!(http_date(at(784_111_777)).expect("a date"), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(at(1_774_930_320)).expect("a date"), "Tue, 31 Mar 2026 04:12:00 GMT");
    }
}
