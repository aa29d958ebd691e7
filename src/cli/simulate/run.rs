//! The run as a whole: when it is over, how it is watched, what is said at its end.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::super::{Failure, Terminal, backoff};
use super::link::{Fault, Link};
use super::member::{Logbook, Member};
use super::show::Show;
use super::tally::{Differences, Tally};
use crate::domain::time::Timestamp;
use crate::fleet::{Ledger, Random, Script};
use crate::ops::clock::{Clock as _, SystemClock};

/// Most records of a run; the books keep each of them.
const RECORDS_MAX: u64 = 1_000_000;
/// Exchanges under way at once.
const EXCHANGES_MAX: usize = 64;
/// Longest that one exchange is tried again and again.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE_FIRST: Duration = Duration::from_millis(100);
const PAUSE_LONGEST: Duration = Duration::from_secs(3);
/// Most differences printed where a run is given up.
const NOTICED_MAX: usize = 20;
/// Most differences printed.
const LISTED_MAX: usize = 100;

/// How fast, how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    pub(super) duration: Option<Duration>,
    pub(super) uploads: Option<u64>,
    pub(super) interval: Duration,
    pub(super) live: bool,
}

/// A result, or why the whole run is given up.
pub(super) type Given<T> = Result<T, String>;

/// What all members share.
pub(super) struct Sea {
    pub(super) link: Link,
    pub(super) tally: Tally,
    pace: Pace,
    /// Asking for devices that may exist comes before.
    begun: OnceLock<Instant>,
    slots: Semaphore,
    stop: watch::Sender<bool>,
    /// The first differences, for a run that is given up.
    noticed: Mutex<Vec<String>>,
}

impl Sea {
    /// How long it sails.
    fn elapsed(&self) -> Duration {
        self.begun.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    /// A place among the exchanges under way.
    pub(super) async fn slot(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed; without a permit the exchange would only be one too many.
        self.slots.acquire().await.ok()
    }

    /// The time, where the fleet sails in real time.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.pace.live.then(|| SystemClock.now())
    }

    /// Whether a member with so many uploads makes no more.
    pub(super) fn over(&self, uploads: u64) -> bool {
        *self.stop.borrow()
            || self.pace.uploads.is_some_and(|most| uploads >= most)
            || self.pace.duration.is_some_and(|most| self.elapsed() >= most)
            || self.full()
    }

    fn full(&self) -> bool {
        self.tally.records_made.get() >= RECORDS_MAX
    }

    /// Hears of a difference.
    pub(super) fn notice(&self, line: &str) {
        // A list of lines is never half written.
        let mut noticed = self.noticed.lock().unwrap_or_else(PoisonError::into_inner);
        if noticed.len() < NOTICED_MAX {
            noticed.push(line.to_owned());
        }
    }

    /// Sleeps so many thousandths of the interval, or until making records is over.
    pub(super) async fn pause(&self, permille: u32) {
        let mut pause = self.pace.interval.mul_f64(f64::from(permille) / 1000.0);
        if let Some(most) = self.pace.duration {
            pause = pause.min(most.saturating_sub(self.elapsed()));
        }
        let mut stop = self.stop.subscribe();
        let _ = timeout(pause, stop.wait_for(|stop| *stop)).await;
    }

    /// Makes attempts until one succeeds; whether any failed before it.
    pub(super) async fn again<T, F>(&self, mut attempt: impl FnMut() -> F) -> Given<(T, bool)>
    where
        F: Future<Output = Result<T, Fault>>,
    {
        let begun = Instant::now();
        let mut failed = 0;
        loop {
            let (why, asked) = match attempt().await {
                Ok(done) => return Ok((done, failed > 0)),
                Err(Fault::Lasting(why)) => return Err(why),
                Err(Fault::Passing { why, asked }) => (why, asked),
            };
            if begun.elapsed() >= PATIENCE {
                return Err(format!("gave up after {} s: {why}", begun.elapsed().as_secs()));
            }
            self.tally.real_faults.add(1);
            failed += 1;
            sleep(backoff::between(PAUSE_FIRST, PAUSE_LONGEST, failed, asked, backoff::random())).await;
        }
    }
}

/// A fleet about to sail.
pub(super) struct Fleet {
    link: Link,
    pace: Pace,
    seed: u64,
}

impl Fleet {
    pub(super) fn new(link: Link, pace: Pace, seed: u64) -> Self {
        Self { link, pace, seed }
    }

    /// Plays all scripts and reports. Fails where gateway and ledger differ.
    pub(super) fn sail(self, members: Vec<(Script, Ledger)>, terminal: &mut Terminal) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::Failed(format!("cannot start threads: {error}")))?;
        let done = runtime.block_on(self.steer(members, terminal));
        // What still runs after a failure is not waited for.
        runtime.shutdown_background();
        done
    }

    async fn steer(self, members: Vec<(Script, Ledger)>, terminal: &mut Terminal) -> Result<(), Failure> {
        let devices = members.len();
        let sea = Arc::new(Sea {
            link: self.link,
            tally: Tally::default(),
            pace: self.pace,
            begun: OnceLock::new(),
            slots: Semaphore::new(EXCHANGES_MAX),
            stop: watch::Sender::new(false),
            noticed: Mutex::default(),
        });
        let mut signals = Signals::new()?;
        tokio::select! {
            fresh = expect_fresh(&sea, &members) => fresh.map_err(Failure::Failed)?,
            () = signals.next() => return Err(Failure::Failed("interrupted".to_owned())),
        }
        sea.begun.get_or_init(Instant::now);
        let mut tasks = JoinSet::new();
        for (index, (script, ledger)) in (0..).zip(members) {
            let seed = Random::stream(self.seed ^ 0x6c6f_6f6b, index).next_u64();
            tasks.spawn(Member::new(Arc::clone(&sea), script, ledger, seed).sail());
        }
        let mut logbooks = Vec::new();
        let mut show = Show::new(terminal, self.pace.duration);
        let watched =
            watch(&sea, &mut tasks, &mut logbooks, &mut signals, &mut show, terminal, devices).await;
        show.end();
        if let Err(failure) = watched {
            tasks.abort_all();
            for line in sea.noticed.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                terminal.print(line)?;
            }
            return Err(failure);
        }
        report(&sea.tally, logbooks, terminal)
    }
}

/// A device that exists already has a past that no ledger knows.
async fn expect_fresh(sea: &Arc<Sea>, members: &[(Script, Ledger)]) -> Given<()> {
    let mut first = 1;
    let mut ids = members.iter().map(|(script, _)| script.device_id().clone()).peekable();
    while ids.peek().is_some() {
        let mut asked = JoinSet::new();
        // One alone first: where nobody listens, one fault says so.
        for id in ids.by_ref().take(first) {
            let sea = Arc::clone(sea);
            asked.spawn(async move {
                match sea.link.device(&id).await {
                    Ok(None) => Ok(()),
                    Ok(Some(_)) => {
                        Err(format!("the gateway knows a device {id} already: choose another --prefix"))
                    }
                    Err(Fault::Lasting(why) | Fault::Passing { why, .. }) => Err(why),
                }
            });
        }
        while let Some(answer) = asked.join_next().await {
            answer.map_err(|error| format!("a question failed: {error}"))??;
        }
        first = EXCHANGES_MAX;
    }
    Ok(())
}

/// Until all members are back.
async fn watch(
    sea: &Arc<Sea>,
    tasks: &mut JoinSet<Given<Logbook>>,
    logbooks: &mut Vec<Logbook>,
    signals: &mut Signals,
    show: &mut Show,
    terminal: &mut Terminal,
    devices: usize,
) -> Result<(), Failure> {
    let mut ticks = tokio::time::interval(show.period());
    // The first tick comes at once.
    ticks.tick().await;
    let mut told_full = false;
    loop {
        tokio::select! {
            joined = tasks.join_next() => match joined {
                None => return Ok(()),
                Some(Ok(Ok(logbook))) => logbooks.push(logbook),
                Some(Ok(Err(why))) => return Err(Failure::Failed(why)),
                Some(Err(error)) => return Err(Failure::Failed(format!("a tracker failed: {error}"))),
            },
            _ = ticks.tick() => {
                show.progress(terminal, sea.elapsed(), &sea.tally, devices);
                if sea.full() && !told_full {
                    told_full = true;
                    show.say(terminal, &format!("{RECORDS_MAX} records are made: no more, what waits is delivered"));
                }
            }
            () = signals.next() => {
                if sea.stop.send_replace(true) {
                    return Err(Failure::Failed("interrupted: nothing was compared".to_owned()));
                }
                show.say(terminal, "stopping: what waits is delivered and compared; once more to give up");
            }
        }
    }
}

fn report(tally: &Tally, logbooks: Vec<Logbook>, terminal: &mut Terminal) -> Result<(), Failure> {
    let contents = logbooks.iter().map(|logbook| logbook.contents).sum();
    for line in tally.report(logbooks.len(), contents) {
        terminal.print(&line)?;
    }
    let count = logbooks.iter().map(|logbook| logbook.differences.count).sum();
    let listed = logbooks.into_iter().flat_map(|logbook| logbook.differences.listed).take(LISTED_MAX);
    let listed: Vec<_> = listed.collect();
    for line in &listed {
        terminal.print(line)?;
    }
    terminal.print(&Differences::verdict(count, listed.len()))?;
    if count == 0 { Ok(()) } else { Err(Failure::Told) }
}

/// SIGINT and SIGTERM.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self, Failure> {
        let deaf = |error: std::io::Error| Failure::Failed(format!("cannot wait for signals: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(deaf)?,
            terminate: signal(SignalKind::terminate()).map_err(deaf)?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
