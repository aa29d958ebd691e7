//! A bad link between a tracker and a gateway: a TCP proxy that loses a third of all requests and a third of all
//! answers, each in several ways, and keeps books of what it did. It understands just enough HTTP to do so.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tidegate::fleet::Random;

use super::gateway::PATIENCE;

/// Connections at once; a tracker has one, and perhaps one that it gave up.
const CONNECTIONS_MAX: usize = 32;
/// Longest request or answer.
const BYTES_MAX: usize = 1 << 20;
/// How often a thread that waits looks whether the test is over.
const LOOK: Duration = Duration::from_millis(50);

/// What the link did so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Books {
    /// Requests of which at least the head came.
    pub(crate) requests: u64,
    /// Those of which the gateway saw nothing, or half.
    pub(crate) requests_lost: u64,
    /// Those that the gateway answered.
    pub(crate) answered: u64,
    /// Answers of which the tracker saw nothing, or half.
    pub(crate) answers_lost: u64,
    /// Bytes of heads and bodies that came whole, and how many those were.
    pub(crate) bytes: u64,
    /// Each distinct body that came whole.
    pub(crate) bodies: BTreeSet<Vec<u8>>,
}

/// How something gets lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// The connection ends in its place.
    Cut,
    /// Half of it arrives, then the connection ends.
    Half,
    /// Nothing happens until the tracker gives up.
    Silence,
}

/// Draws a third, in any order but exactly: of each twelve four, so that no test is lucky.
#[derive(Default)]
struct Third(Vec<bool>);

impl Third {
    fn draw(&mut self, random: &mut Random) -> bool {
        if self.0.is_empty() {
            self.0 = (0..12).map(|n| n < 4).collect();
        }
        let left = u32::try_from(self.0.len()).expect("at most twelve");
        self.0.swap_remove(random.below(left) as usize)
    }
}

struct Chance {
    random: Random,
    requests: Third,
    answers: Third,
}

struct Shared {
    gateway: SocketAddr,
    lossy: bool,
    stop: AtomicBool,
    chance: Mutex<Chance>,
    books: Mutex<Books>,
    changed: Condvar,
}

/// The proxy; it ends with its handle.
pub(crate) struct LossyProxy {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

impl LossyProxy {
    /// In front of a gateway, losing what the seed says.
    pub(crate) fn start(gateway: SocketAddr, seed: u64) -> Self {
        Self::start_as(gateway, seed, true)
    }

    /// One that loses nothing and only keeps books.
    pub(crate) fn start_honest(gateway: SocketAddr) -> Self {
        Self::start_as(gateway, 0, false)
    }

    fn start_as(gateway: SocketAddr, seed: u64, lossy: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            gateway,
            lossy,
            stop: AtomicBool::new(false),
            chance: Mutex::new(Chance {
                random: Random::new(seed),
                requests: Third::default(),
                answers: Third::default(),
            }),
            books: Mutex::default(),
            changed: Condvar::new(),
        });
        let own = Arc::clone(&shared);
        let accepting = Some(std::thread::spawn(move || accept(&listener, &own)));
        Self { address, shared, accepting }
    }

    /// The books as they stand.
    pub(crate) fn books(&self) -> Books {
        self.shared.books().clone()
    }

    /// Waits until so many requests have come: the last of them is then under way.
    pub(crate) fn await_requests(&self, wanted: u64) {
        let deadline = Instant::now() + PATIENCE;
        let mut books = self.shared.books();
        while books.requests < wanted {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "waited in vain for request {wanted}: {}", books.requests);
            books = self.shared.changed.wait_timeout(books, left).expect("no panic").0;
        }
    }
}

impl Drop for LossyProxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no panic")
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether, and how, something gets lost. Silence is the rarest loss, since a test has to wait for the tracker's
    /// patience to end.
    fn draw(&self, of: impl Fn(&mut Chance) -> (&mut Third, &mut Random)) -> Option<Loss> {
        let mut chance = self.chance.lock().expect("no panic");
        let (third, random) = of(&mut chance);
        let lost = third.draw(random);
        let how = match random.below(20) {
            0 => Loss::Silence,
            1..10 => Loss::Half,
            _ => Loss::Cut,
        };
        (lost && self.lossy).then_some(how)
    }

    /// Whether an answer comes in single bytes.
    fn dribbles(&self) -> bool {
        self.lossy && self.chance.lock().expect("no panic").random.once_in(4)
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut open: Vec<JoinHandle<()>> = Vec::new();
    for stream in listener.incoming() {
        if shared.stopped() {
            break;
        }
        open.retain(|thread| !thread.is_finished());
        let Ok(stream) = stream else { continue };
        if open.len() >= CONNECTIONS_MAX {
            continue;
        }
        let own = Arc::clone(shared);
        open.push(std::thread::spawn(move || {
            // Whatever breaks is a fault of the link, which is what this is for.
            let _ = carry(stream, &own);
        }));
    }
    for thread in open {
        let _ = thread.join();
    }
}

/// One connection of a tracker: exchange after exchange until one gets lost.
fn carry(mut tracker: TcpStream, shared: &Shared) -> io::Result<()> {
    tracker.set_nodelay(true)?;
    tracker.set_read_timeout(Some(LOOK))?;
    while let Some(head) = read_head(&mut tracker, shared)? {
        let loss = shared.draw(|chance| (&mut chance.requests, &mut chance.random));
        shared.books().requests += 1;
        shared.changed.notify_all();
        let body = read_body(&mut tracker, &head, loss == Some(Loss::Half), shared)?;
        if loss != Some(Loss::Half) {
            let mut books = shared.books();
            books.bytes += u64::try_from(head.len() + body.len()).expect("small");
            books.bodies.insert(body.clone());
        }
        if let Some(loss) = loss {
            shared.books().requests_lost += 1;
            return lose_request(loss, &mut tracker, &[head, body].concat(), shared);
        }
        let mut gateway = TcpStream::connect(shared.gateway)?;
        gateway.set_read_timeout(Some(LOOK))?;
        gateway.write_all(&[head, body].concat())?;
        let Some(head) = read_head(&mut gateway, shared)? else { return Ok(()) };
        let body = read_body(&mut gateway, &head, false, shared)?;
        let answer = [head, body].concat();
        shared.books().answered += 1;
        if let Some(loss) = shared.draw(|chance| (&mut chance.answers, &mut chance.random)) {
            shared.books().answers_lost += 1;
            return lose_answer(loss, &mut tracker, &answer, shared);
        }
        for piece in answer.chunks(if shared.dribbles() { 1 } else { BYTES_MAX }) {
            tracker.write_all(piece)?;
        }
    }
    Ok(())
}

fn lose_request(loss: Loss, tracker: &mut TcpStream, begun: &[u8], shared: &Shared) -> io::Result<()> {
    match loss {
        Loss::Cut => Ok(()),
        Loss::Half => TcpStream::connect(shared.gateway)?.write_all(begun),
        Loss::Silence => await_end(tracker, shared),
    }
}

fn lose_answer(loss: Loss, tracker: &mut TcpStream, answer: &[u8], shared: &Shared) -> io::Result<()> {
    match loss {
        Loss::Cut => Ok(()),
        Loss::Half => {
            tracker.write_all(&answer[..answer.len() / 2])?;
            tracker.shutdown(Shutdown::Both)
        }
        Loss::Silence => await_end(tracker, shared),
    }
}

/// Reads once, and again as long as nothing comes. 0: the other side hung up.
fn read_some(stream: &mut TcpStream, into: &mut [u8], shared: &Shared) -> io::Result<usize> {
    loop {
        match stream.read(into) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if shared.stopped() {
                    return Ok(0);
                }
            }
            done => return done,
        }
    }
}

fn await_end(stream: &mut TcpStream, shared: &Shared) -> io::Result<()> {
    while read_some(stream, &mut [0; 512], shared)? > 0 {}
    Ok(())
}

/// Up to the empty line. `None`: there is no further one.
fn read_head(stream: &mut TcpStream, shared: &Shared) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        if read_some(stream, &mut byte, shared)? == 0 || head.len() > BYTES_MAX {
            return Ok(None);
        }
        head.push(byte[0]);
    }
    Ok(Some(head))
}

/// As long as the head says, or half of that.
fn read_body(stream: &mut TcpStream, head: &[u8], half: bool, shared: &Shared) -> io::Result<Vec<u8>> {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    let length = length.filter(|length| *length <= BYTES_MAX).ok_or(ErrorKind::InvalidData)?;
    let mut body = vec![0; if half { length / 2 } else { length }];
    let mut at = 0;
    while at < body.len() {
        let got = read_some(stream, &mut body[at..], shared)?;
        if got == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        at += got;
    }
    Ok(body)
}
