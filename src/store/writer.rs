//! The queue in front of the store and the one thread that commits: group commit.

use std::fmt::Debug;
use std::time::Duration;

use super::{StoreError, StoreErrorKind};
use crate::domain::receipt::Receipt;
use crate::domain::upload::Upload;

/// Bounds of the queue.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Most uploads waiting.
    pub queue_uploads_max: usize,
    /// Most bytes of waiting bodies.
    pub queue_bytes_max: usize,
    /// How long an upload waits for a place in the queue.
    pub patience: Duration,
    /// Most uploads of one transaction.
    pub group_uploads_max: usize,
    /// Most body bytes of one transaction.
    pub group_bytes_max: usize,
}

impl Default for WriterOptions {
    fn default() -> Self {
        Self {
            queue_uploads_max: 8192,
            queue_bytes_max: 64 << 20,
            patience: Duration::from_secs(5),
            group_uploads_max: 512,
            group_bytes_max: 8 << 20,
        }
    }
}

/// Told what the writer does, for metrics.
pub trait Observer: Send + Sync + Debug {
    /// A group was committed, or failed: uploads in it, body bytes, time from begin to synced commit.
    fn group_done(&self, uploads: usize, bytes: usize, took: Duration, committed: bool);
}

/// A handle to the writer; clones share it.
#[derive(Clone, Debug)]
pub struct Writer {}

impl Writer {
    /// Starts the thread that commits.
    pub fn start(
        _store: std::sync::Arc<dyn super::Store>,
        _options: WriterOptions,
        _observer: std::sync::Arc<dyn Observer>,
    ) -> Self {
        Self {}
    }

    /// Queues an upload and waits for its own receipt. A caller that goes away does not cancel the write.
    pub async fn submit(&self, _upload: Upload) -> Result<Receipt, StoreError> {
        Err(StoreError::new(StoreErrorKind::Closed, "not built yet"))
    }

    /// Uploads waiting now.
    pub fn queued(&self) -> usize {
        0
    }

    /// Takes no more uploads, commits those that wait, and returns when the thread has ended.
    pub async fn close(&self) {}
}
