//! Readiness: one check of the store at a time, however many ask.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::store::{Store, StoreError};

/// How long a probe waits for a check. A disk that takes longer is not ready.
const PATIENCE: Duration = Duration::from_secs(5);

/// A good check as young as this answers for a new one: `/readyz` asks for no token, and each check is a commit.
const FRESH: Duration = Duration::from_secs(1);

/// The check under way, and how the last one ended.
#[derive(Debug, Default)]
pub(super) struct Probe(Mutex<Checks>);

#[derive(Debug, Default)]
struct Checks {
    /// Left here by a probe that lost its patience: the next one waits for it instead of starting another.
    running: Option<JoinHandle<Result<(), StoreError>>>,
    started: Option<Instant>,
    /// When the last finished check had started, and whether a commit reached the disk.
    last: Option<(Instant, bool)>,
}

impl Probe {
    /// Whether a commit would reach the disk, or did within the last second.
    pub(super) async fn check(&self, store: &Arc<dyn Store>) -> bool {
        let asked = Instant::now();
        let Ok(mut checks) = timeout(PATIENCE, self.0.lock()).await else {
            return false;
        };
        // Trouble that is over shows at once, and a failure that started after the call answers it.
        if let Some((started, ready)) = checks.last
            && (started >= asked || (ready && asked.saturating_duration_since(started) < FRESH))
        {
            return ready;
        }
        loop {
            if checks.running.is_none() {
                let store = Arc::clone(store);
                checks.started = Some(Instant::now());
                checks.running = Some(tokio::task::spawn_blocking(move || store.check_writable()));
            }
            let Some(running) = checks.running.as_mut() else {
                return false;
            };
            let Ok(ended) = timeout(PATIENCE, running).await else {
                return false;
            };
            let ready = match ended {
                Ok(Ok(())) => true,
                Ok(Err(error)) => {
                    tracing::warn!(error = error.chain(), "not ready: a commit would not reach the disk");
                    false
                }
                Err(_) => false,
            };
            checks.running = None;
            let started = checks.started.take();
            checks.last = started.map(|started| (started, ready));
            // A check that an impatient probe left behind says what was wrong then; what is wrong now shows in another.
            if ready || started.is_none_or(|started| started >= asked) {
                return ready;
            }
        }
    }
}
