//! The queue in front of the store and the one thread that commits. No timer decides when to commit: while
//! one group syncs to disk, the next one gathers.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};

use super::{Store, StoreError, StoreErrorKind};
use crate::domain::receipt::Receipt;
use crate::domain::upload::Upload;

/// Bounds of the queue.
#[derive(Clone, Debug)]
pub struct WriterOptions {
    /// Most uploads waiting.
    pub queue_uploads_max: usize,
    /// Most bytes of waiting uploads, as they stand in memory.
    pub queue_bytes_max: usize,
    /// How long an upload waits for a place in the queue.
    pub patience: Duration,
    /// Most uploads of one transaction.
    pub group_uploads_max: usize,
    /// Most bytes of one transaction's uploads, as they stand in memory.
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
    /// A group was committed, or failed: uploads in it, their bytes, time from begin to synced commit.
    fn group_done(&self, uploads: usize, bytes: usize, took: Duration, committed: bool);
}

/// A handle to the writer; clones share it.
#[derive(Clone, Debug)]
pub struct Writer {
    queue: mpsc::Sender<Message>,
    /// One permit a KiB of waiting uploads.
    places: Arc<Semaphore>,
    places_max: u32,
    patience: Duration,
    ended: watch::Receiver<bool>,
}

#[derive(Debug)]
enum Message {
    Upload(Box<Job>),
    Close,
}

#[derive(Debug)]
struct Job {
    upload: Upload,
    reply: oneshot::Sender<Result<Receipt, StoreError>>,
    /// Its share of the queue's bytes, given back when it is committed.
    place: OwnedSemaphorePermit,
}

impl Writer {
    /// Starts the thread.
    pub fn start(
        store: Arc<dyn Store>,
        options: &WriterOptions,
        observer: Arc<dyn Observer>,
    ) -> std::io::Result<Self> {
        let (queue, waiting) = mpsc::channel(options.queue_uploads_max);
        let (end, ended) = watch::channel(false);
        let places_max = u32::try_from(options.queue_bytes_max / 1024).unwrap_or(u32::MAX).max(1);
        let committer = Committer {
            store,
            observer,
            waiting,
            options: options.clone(),
            storing: Trouble::default(),
            tidying: Trouble::default(),
        };
        thread::Builder::new().name("writer".to_owned()).spawn(move || {
            if catch_unwind(AssertUnwindSafe(|| committer.run())).is_err() {
                // What a half-done writer would acknowledge nobody can tell: a supervisor restarts the process.
                tracing::error!("the writer panicked: ending the process");
                std::process::abort();
            }
            end.send_replace(true);
        })?;
        let places = usize::try_from(places_max).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Ok(Self {
            queue,
            places: Arc::new(Semaphore::new(places)),
            places_max,
            patience: options.patience,
            ended,
        })
    }

    /// How long an upload waits for a place in the queue.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// Queues an upload and waits for its own receipt. A caller that goes away does not cancel the write.
    pub async fn submit(&self, upload: Upload) -> Result<Receipt, StoreError> {
        let (reply, answer) = oneshot::channel();
        let queued = tokio::time::timeout(self.patience, self.enqueue(upload, reply)).await;
        queued.map_err(|_| StoreError::new(StoreErrorKind::Busy, "the queue is full"))??;
        answer.await.unwrap_or_else(|_| Err(closed()))
    }

    async fn enqueue(
        &self,
        upload: Upload,
        reply: oneshot::Sender<Result<Receipt, StoreError>>,
    ) -> Result<(), StoreError> {
        let kib = u32::try_from(upload.weight() / 1024 + 1).unwrap_or(u32::MAX).min(self.places_max);
        let place = Arc::clone(&self.places).acquire_many_owned(kib).await.map_err(|_| closed())?;
        let job = Box::new(Job { upload, reply, place });
        self.queue.send(Message::Upload(job)).await.map_err(|_| closed())
    }

    /// Uploads waiting now.
    pub fn queued(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }

    /// Takes no more uploads, commits those that wait, and returns when the thread has ended.
    pub async fn close(&self) {
        self.places.close();
        // Fails only if the thread has ended already.
        let _ = self.queue.send(Message::Close).await;
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }
}

fn closed() -> StoreError {
    StoreError::new(StoreErrorKind::Closed, "the gateway is stopping")
}

/// The thread's own state.
struct Committer {
    store: Arc<dyn Store>,
    observer: Arc<dyn Observer>,
    waiting: mpsc::Receiver<Message>,
    options: WriterOptions,
    /// Storing, and housekeeping behind it.
    storing: Trouble,
    tidying: Trouble,
}

impl Committer {
    fn run(mut self) {
        let mut messages = Vec::with_capacity(self.options.group_uploads_max);
        // Zero messages: the queue is closed and empty.
        while self.waiting.blocking_recv_many(&mut messages, self.options.group_uploads_max) > 0 {
            let mut jobs = Vec::with_capacity(messages.len());
            for message in messages.drain(..) {
                match message {
                    Message::Upload(job) => jobs.push(*job),
                    // From here on nothing comes in; what waits is still received and committed.
                    Message::Close => self.waiting.close(),
                }
            }
            self.commit(jobs);
        }
    }

    /// Commits jobs in groups of bounded bytes.
    fn commit(&mut self, jobs: Vec<Job>) {
        let mut group = Group::default();
        for job in jobs {
            let bytes = job.upload.weight();
            if group.bytes > 0 && group.bytes + bytes > self.options.group_bytes_max {
                self.commit_group(std::mem::take(&mut group));
            }
            group.bytes += bytes;
            group.uploads.push(job.upload);
            group.replies.push(job.reply);
            group.places.push(job.place);
        }
        if !group.uploads.is_empty() {
            self.commit_group(group);
        }
    }

    fn commit_group(&mut self, group: Group) {
        let begun = Instant::now();
        let results = self.store.commit_uploads(&group.uploads);
        let took = begun.elapsed();
        drop(group.places);
        let mut errors = results.iter().filter_map(|result| result.as_ref().err());
        // A full quarantine is one device's affair, told in its metrics and its answer.
        let trouble = errors.find(|error| error.kind() != StoreErrorKind::QuarantineFull);
        self.storing.tell(
            trouble,
            "cannot store: uploads are answered 503 until this heals",
            "storing again",
        );
        let committed = trouble.is_none();
        for (reply, result) in group.replies.into_iter().zip(results) {
            // A caller that left is no reason to do anything: its upload is stored.
            let _ = reply.send(result);
        }
        self.observer.group_done(group.uploads.len(), group.bytes, took, committed);
        let tidied = self.store.maintain();
        self.tidying.tell(
            tidied.as_ref().err(),
            "housekeeping fails, and is tried again",
            "housekeeping works again",
        );
    }
}

/// Logs when something begins to fail and when it works again, not each time: a full disk must not fill the
/// log as well.
#[derive(Debug, Default)]
struct Trouble {
    failing: bool,
}

impl Trouble {
    fn tell(&mut self, failure: Option<&StoreError>, begins: &str, ends: &str) {
        match failure {
            Some(error) if !self.failing => tracing::error!(error = error.chain(), "{begins}"),
            None if self.failing => tracing::info!("{ends}"),
            _ => {}
        }
        self.failing = failure.is_some();
    }
}

#[derive(Default)]
struct Group {
    uploads: Vec<Upload>,
    replies: Vec<oneshot::Sender<Result<Receipt, StoreError>>>,
    places: Vec<OwnedSemaphorePermit>,
    bytes: usize,
}
