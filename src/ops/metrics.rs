//! Metrics: one registry a gateway, no global state. No label ever names a device: the number of series is
//! bounded by this file.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
};

use crate::domain::receipt::{Receipt, Status};
use crate::store::writer::Observer;

/// The content type of [`Metrics::render`].
pub const TEXT_FORMAT: &str = prometheus::TEXT_FORMAT;

/// What became of an upload that got no receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Signature or device header missing or wrong.
    Unauthorized,
    /// Over the body limit.
    TooLarge,
    /// Could not be stored now.
    Unavailable,
    /// The body never came whole.
    Unfinished,
    /// A fault of ours.
    Internal,
}

impl Refusal {
    const fn code(self) -> &'static str {
        match self {
            Self::Unauthorized => "unauthorized",
            Self::TooLarge => "too_large",
            Self::Unavailable => "unavailable",
            Self::Unfinished => "unfinished",
            Self::Internal => "internal",
        }
    }
}

/// The counters of one gateway.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    uploads: IntCounterVec,
    // The three of a receipt are looked up once: they are counted on every upload.
    processed: IntCounter,
    duplicate: IntCounter,
    quarantined: IntCounter,
    records: [IntCounter; 5],
    signature_failures: IntCounter,
    commit_seconds: Histogram,
    commit_failures: IntCounter,
    group_uploads: Histogram,
    queue_uploads: IntGauge,
    inflight_bytes: IntGauge,
    connections: IntGauge,
    http_requests: IntCounterVec,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Fresh counters in a registry of their own.
    pub fn new() -> Self {
        let registry = Registry::new();
        let r = &registry;
        let uploads = counters(r, "uploads_total", "Uploads by what became of them.", &["outcome"]);
        let records = counters(
            r,
            "records_total",
            "Records of stored uploads by outcome; the held ones are among the accepted.",
            &["outcome"],
        );
        counters(r, "build_info", "1, labelled with the version that runs.", &["version"])
            .with_label_values(&[env!("CARGO_PKG_VERSION")])
            .inc();
        Self {
            processed: uploads.with_label_values(&[Status::Processed.code()]),
            duplicate: uploads.with_label_values(&[Status::Duplicate.code()]),
            quarantined: uploads.with_label_values(&[Status::Quarantined.code()]),
            uploads,
            records: ["accepted", "repeated", "conflicts", "held", "quarantined"]
                .map(|outcome| records.with_label_values(&[outcome])),
            signature_failures: counter(r, "signature_failures_total", "Uploads answered 401."),
            commit_seconds: histogram(
                r,
                "commit_seconds",
                "Time from begin to synced commit of a group.",
                &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0],
            ),
            commit_failures: counter(r, "commit_failures_total", "Groups whose commit failed."),
            group_uploads: histogram(
                r,
                "group_uploads",
                "Uploads committed in one transaction.",
                &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0],
            ),
            queue_uploads: gauge(r, "queue_uploads", "Uploads that wait for the writer."),
            inflight_bytes: gauge(r, "inflight_bytes", "Bytes in memory of unfinished and waiting uploads."),
            connections: gauge(r, "connections", "Open connections."),
            http_requests: counters(r, "http_requests_total", "Answers sent.", &["route", "status"]),
            registry,
        }
    }

    /// Counts an upload that got a receipt, and its records.
    pub fn receipt(&self, receipt: &Receipt) {
        match receipt.status {
            Status::Processed => self.processed.inc(),
            Status::Duplicate => self.duplicate.inc(),
            Status::Quarantined => self.quarantined.inc(),
        }
        if let Some(counts) = &receipt.counts {
            let by_outcome =
                [counts.accepted, counts.repeated, counts.conflicts, counts.held, counts.quarantined];
            for (counter, count) in self.records.iter().zip(by_outcome) {
                if count > 0 {
                    counter.inc_by(count);
                }
            }
        }
    }

    /// Counts an upload that got none.
    pub fn refused(&self, refusal: Refusal) {
        if refusal == Refusal::Unauthorized {
            self.signature_failures.inc();
        }
        self.uploads.with_label_values(&[refusal.code()]).inc();
    }

    /// Counts an answer. `route` is the pattern of the table, never the path as sent.
    pub fn answered(&self, route: &str, status: u16) {
        let mut digits = [0; 5];
        self.http_requests.with_label_values(&[route, decimal(status, &mut digits)]).inc();
    }

    /// Counts a connection for as long as the guard lives.
    pub fn connection(&self) -> OpenConnection {
        self.connections.inc();
        OpenConnection(self.connections.clone())
    }

    /// Everything in the Prometheus text format 0.0.4. The two gauges that others keep are passed in.
    pub fn render(&self, queued_uploads: usize, inflight_bytes: usize) -> String {
        self.queue_uploads.set(i64::try_from(queued_uploads).unwrap_or(i64::MAX));
        self.inflight_bytes.set(i64::try_from(inflight_bytes).unwrap_or(i64::MAX));
        // Fails only for a family without a name or type, and `new` makes none.
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_default()
    }
}

/// See [`Metrics::connection`].
#[derive(Debug)]
pub struct OpenConnection(IntGauge);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Observer for Metrics {
    fn group_done(&self, uploads: usize, _bytes: usize, took: Duration, committed: bool) {
        if !committed {
            self.commit_failures.inc();
            return;
        }
        self.commit_seconds.observe(took.as_secs_f64());
        self.group_uploads.observe(f64::from(u32::try_from(uploads).unwrap_or(u32::MAX)));
    }
}

/// Writes a status without a trip to the heap.
fn decimal(mut n: u16, digits: &mut [u8; 5]) -> &str {
    let mut at = digits.len();
    loop {
        at -= 1;
        // A decimal digit fits a byte.
        digits[at] = b'0' + u8::try_from(n % 10).unwrap_or_default();
        n /= 10;
        if n == 0 || at == 0 {
            break;
        }
    }
    std::str::from_utf8(&digits[at..]).unwrap_or_default()
}

const SOUND: &str = "names in this file are valid and distinct";

fn register<C: Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let metric = made.expect(SOUND);
    registry.register(Box::new(metric.clone())).expect(SOUND);
    metric
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("tidegate_{name}"), help)
}

fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    register(registry, IntCounter::with_opts(opts(name, help)))
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(opts(name, help), labels))
}

fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    register(registry, IntGauge::with_opts(opts(name, help)))
}

fn histogram(registry: &Registry, name: &str, help: &str, buckets: &[f64]) -> Histogram {
    let opts = HistogramOpts::from(opts(name, help)).buckets(buckets.to_vec());
    register(registry, Histogram::with_opts(opts))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::receipt::Counts;

    #[test]
    fn counts_uploads_records_and_groups() {
        let metrics = Metrics::new();
        let counts = Counts { accepted: 3, repeated: 2, held: 1, ..Counts::default() };
        metrics.receipt(&Receipt {
            status: Status::Processed,
            counts: Some(counts),
            applied: Some(true),
            reason: None,
            epoch_id: None,
            last_seq: None,
        });
        metrics.refused(Refusal::Unauthorized);
        metrics.answered("/v1/batches", 200);
        metrics.answered("/v1/batches", 200);
        metrics.group_done(7, 100, Duration::from_millis(2), true);
        metrics.group_done(7, 100, Duration::from_millis(2), false);
        let _open = metrics.connection();
        drop(metrics.connection());
        let text = metrics.render(4, 99);
        for line in [
            "tidegate_uploads_total{outcome=\"processed\"} 1",
            "tidegate_uploads_total{outcome=\"unauthorized\"} 1",
            "tidegate_records_total{outcome=\"accepted\"} 3",
            "tidegate_records_total{outcome=\"repeated\"} 2",
            "tidegate_records_total{outcome=\"conflicts\"} 0",
            "tidegate_records_total{outcome=\"held\"} 1",
            "tidegate_signature_failures_total 1",
            "tidegate_http_requests_total{route=\"/v1/batches\",status=\"200\"} 2",
            "tidegate_commit_seconds_count 1",
            "tidegate_commit_failures_total 1",
            "tidegate_group_uploads_bucket{le=\"8\"} 1",
            "tidegate_group_uploads_bucket{le=\"4\"} 0",
            "tidegate_queue_uploads 4",
            "tidegate_inflight_bytes 99",
            "tidegate_connections 1",
            concat!("tidegate_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn writes_decimals() {
        for n in [0, 7, 10, 200, 503, u16::MAX] {
            assert_eq!(decimal(n, &mut [0; 5]), n.to_string());
        }
    }
}
