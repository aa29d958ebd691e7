//! The load: keep-alive connections that each send one request, wait for its answer, and send the next. As
//! little work as can be, since it runs on the same cores: one thread, ready bytes, answers parsed by hand.

use std::cell::{Cell, RefCell};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::Outcome;
use crate::requests::Device;

/// Largest answer expected, head and body.
const ANSWER_BYTES_MAX: usize = 4096;
/// An answer that takes longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each device's next batches; each must be answered `processed`.
    New,
    /// Those sent already, round and round; each must be answered `duplicate`.
    Again,
}

impl Kind {
    const fn expected(self) -> &'static [u8] {
        match self {
            Self::New => b"{\"status\":\"processed\",",
            Self::Again => b"{\"status\":\"duplicate\",",
        }
    }
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    /// After a time; or before, where no prepared request is left.
    Elapsed(Duration),
    /// After one request a device.
    EachOnce,
}

/// What was measured.
pub(crate) struct Load {
    /// From the first request to the last answer.
    pub(crate) elapsed: Duration,
    /// When each answer came, since the start, and how long it took; in order.
    pub(crate) answers: Vec<(Duration, Duration)>,
}

impl Load {
    /// Answers.
    pub(crate) fn batches(&self) -> u32 {
        u32::try_from(self.answers.len()).unwrap_or(u32::MAX)
    }

    /// Answers a second.
    pub(crate) fn rate(&self) -> f64 {
        f64::from(self.batches()) / self.elapsed.as_secs_f64()
    }

    /// The time that so many of a hundred answers did not exceed.
    pub(crate) fn percentile(&self, percent: usize) -> Duration {
        let mut took: Vec<_> = self.answers.iter().map(|(_, took)| *took).collect();
        took.sort_unstable();
        took.get((took.len() * percent / 100).min(took.len().saturating_sub(1))).copied().unwrap_or_default()
    }

    /// The longest time in which no connection got an answer.
    pub(crate) fn longest_stall(&self) -> Duration {
        let ends = self.answers.iter().map(|(at, _)| *at);
        let begins = std::iter::once(Duration::ZERO).chain(ends.clone());
        begins.zip(ends).map(|(begin, end)| end.saturating_sub(begin)).max().unwrap_or_default()
    }
}

struct Shared {
    kind: Kind,
    begun: Instant,
    deadline: Option<Duration>,
    stop: Cell<bool>,
    answers: RefCell<Vec<(Duration, Duration)>>,
}

/// Sends the fleet's requests over so many connections. Fails at the first answer that is not as expected.
pub(crate) fn run(
    address: SocketAddr,
    fleet: &mut Vec<Device>,
    connections: usize,
    kind: Kind,
    until: Until,
) -> Outcome<Load> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut portions: Vec<Vec<Device>> = (0..connections).map(|_| Vec::new()).collect();
    for (index, device) in fleet.drain(..).enumerate() {
        portions[index % connections].push(device);
    }
    let local = LocalSet::new();
    let (load, returned) = local.block_on(&runtime, async {
        let mut streams = Vec::new();
        for _ in 0..connections {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            streams.push(stream);
        }
        let deadline = match until {
            Until::Elapsed(time) => Some(time),
            Until::EachOnce => None,
        };
        let (stop, answers) = (Cell::new(false), RefCell::new(Vec::with_capacity(1 << 18)));
        let common = Rc::new(Shared { kind, begun: Instant::now(), deadline, stop, answers });
        let tasks: Vec<_> = streams
            .into_iter()
            .zip(portions)
            .map(|(stream, share)| tokio::task::spawn_local(connection(Rc::clone(&common), stream, share)))
            .collect();
        let mut returned = Vec::new();
        for task in tasks {
            returned.push(task.await??);
        }
        let answers = common.answers.take();
        let elapsed = answers.last().map(|(at, _)| *at).unwrap_or_default();
        Outcome::Ok((Load { elapsed, answers }, returned))
    })?;
    fleet.extend(returned.into_iter().flatten());
    Ok(load)
}

/// One connection, with devices of its own, so that each device's batches arrive in order.
async fn connection(shared: Rc<Shared>, stream: TcpStream, mut share: Vec<Device>) -> Outcome<Vec<Device>> {
    let mut buffer = vec![0; ANSWER_BYTES_MAX];
    let mut round = 0;
    // EachOnce ends after one round; a device has at least one request ready.
    'rounds: while shared.deadline.is_some() || round == 0 {
        for device in &mut share {
            let sent_at = shared.begun.elapsed();
            if shared.stop.get() || shared.deadline.is_some_and(|deadline| sent_at >= deadline) {
                break 'rounds;
            }
            let place = match shared.kind {
                Kind::New => device.next,
                Kind::Again => round % device.next.max(1),
            };
            let Some(request) = device.requests.get(place) else {
                // Nothing prepared is left: with fewer connections the figures would be of another load.
                shared.stop.set(true);
                break 'rounds;
            };
            send(&stream, request).await?;
            if shared.kind == Kind::New {
                device.next += 1;
            }
            let exchange = receive(&stream, &mut buffer, shared.kind.expected());
            tokio::time::timeout(PATIENCE, exchange).await??;
            let at = shared.begun.elapsed();
            shared.answers.borrow_mut().push((at, at.saturating_sub(sent_at)));
        }
        round += 1;
    }
    Ok(share)
}

async fn send(stream: &TcpStream, mut rest: &[u8]) -> Outcome<()> {
    while !rest.is_empty() {
        match stream.try_write(rest) {
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

async fn receive(stream: &TcpStream, buffer: &mut [u8], expected: &[u8]) -> Outcome<()> {
    let mut filled = 0;
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer[filled..]) {
            Ok(0) => return Err("the gateway hung up".into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        if let Some(body) = whole_body(&buffer[..filled])? {
            let as_expected = buffer.starts_with(b"HTTP/1.1 200 ") && body.starts_with(expected);
            let shown = || String::from_utf8_lossy(&buffer[..filled]).into_owned();
            return if as_expected { Ok(()) } else { Err(format!("unexpected answer: {}", shown()).into()) };
        }
    }
}

/// The body, once it is there whole.
fn whole_body(answer: &[u8]) -> Outcome<Option<&[u8]>> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&answer[..end])?;
    let length = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let body = &answer[end + 4..];
    Ok((body.len() >= length.ok_or("an answer without Content-Length")?).then_some(body))
}
