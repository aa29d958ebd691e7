//! The real binary as a child process. Every wait is bounded, and a child never outlives its handle.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tidegate::domain::signature::spell_secret;

use super::link::Link;
use super::tracker::FLEET_KEY;

/// The read token of every child.
pub(crate) const TOKEN: &str = "read-token-of-the-tests";
/// Longest wait for anything: only a fault takes so long.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Where `sh`, `unshare`, `mount` and `prlimit` are; children inherit nothing else.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The binary that these tests were built with.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_tidegate");

/// A folder for one store.
pub(crate) struct Folder(TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder"))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The database, there or not.
    pub(crate) fn database(&self) -> PathBuf {
        self.path().join("tidegate.db")
    }
}

/// A program with an empty environment, run in an empty folder's place: no `tidegate.toml` is found by chance.
pub(crate) fn command(program: impl AsRef<OsStr>, here: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).current_dir(here).stdin(Stdio::null());
    command
}

/// `tidegate` with arguments.
pub(crate) fn tidegate(here: &Path, arguments: &[&str]) -> Command {
    let mut command = command(BINARY, here);
    command.args(arguments);
    command
}

/// Adds what `serve` needs: a free port, a store, secrets, quiet.
pub(crate) fn configure<'a>(command: &'a mut Command, database: &Path) -> &'a mut Command {
    command
        .env("TIDEGATE_LISTEN", "127.0.0.1:0")
        .env("TIDEGATE_STORE", format!("sqlite:{}", database.display()))
        .env("TIDEGATE_LOG", "warn,tidegate::store::writer=info")
        .env("TIDEGATE_FLEET_KEYS", spell_secret(FLEET_KEY))
        .env("TIDEGATE_SEAL_KEYS", "a seal key for tests and no secret")
        .env("TIDEGATE_ADMIN_TOKENS", "admin-token-of-the-tests")
        .env("TIDEGATE_READ_TOKENS", TOKEN)
}

/// `tidegate serve` on a database, configured.
pub(crate) fn serve(folder: &Folder) -> Command {
    let mut command = tidegate(folder.path(), &["serve"]);
    configure(&mut command, &folder.database());
    command
}

/// What a program that ended has said. `code` is `None` where a signal ended it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command) -> Done {
    Running::start(command).ended()
}

/// The same for one that may take its time.
pub(crate) fn run_within(patience: Duration, command: &mut Command) -> Done {
    Running::start(command).ended_within(patience)
}

/// A program under way whose output is gathered.
pub(crate) struct Running {
    child: Guarded,
    said: [Receiver<std::io::Result<String>>; 2],
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = Guarded::spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let (out, err) = (child.0.stdout.take().expect("a pipe"), child.0.stderr.take().expect("a pipe"));
        let said = [Box::new(out) as Box<dyn std::io::Read + Send>, Box::new(err)].map(|mut pipe| {
            let (whole, said) = channel();
            std::thread::spawn(move || {
                let mut text = String::new();
                let read = pipe.read_to_string(&mut text);
                let _ = whole.send(read.map(|_| text));
            });
            said
        });
        Self { child, said }
    }

    /// SIGTERM; does not wait.
    pub(crate) fn terminate(&self) {
        signal(self.child.0.id(), "TERM");
    }

    /// Waits until it has ended.
    pub(crate) fn ended(self) -> Done {
        self.ended_within(PATIENCE)
    }

    fn ended_within(mut self, patience: Duration) -> Done {
        let [out, err] =
            self.said.map(|said| said.recv_timeout(patience).expect("ends in time").expect("UTF-8"));
        // Both pipes are closed: it has ended, or is about to.
        Done { code: self.child.0.wait().expect("waited for").code(), out, err }
    }
}

/// Signals a child that was not waited for, so that its id is still its own.
fn signal(id: u32, name: &str) {
    let id = id.to_string();
    let done = run(command("sh", Path::new("/")).args(["-c", "kill -\"$1\" \"$0\"", &id, name]));
    assert_eq!(done.code, Some(0), "{}", done.err);
}

/// A child that is killed, by its own id, when its handle goes.
pub(crate) struct Guarded(pub(crate) Child);

impl Guarded {
    pub(crate) fn spawn(command: &mut Command) -> Self {
        Self(command.spawn().unwrap_or_else(|error| panic!("{command:?} does not start: {error}")))
    }

    /// Whether it is over already.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("waited for").is_some()
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // Does nothing to one that was waited for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A running gateway.
pub(crate) struct Gateway {
    child: Guarded,
    pub(crate) address: SocketAddr,
    lines: Receiver<String>,
}

impl Gateway {
    /// Starts one with defaults.
    pub(crate) fn start(folder: &Folder) -> Self {
        Self::start_with(&mut serve(folder))
    }

    /// Starts a command that becomes a gateway, and waits until it listens.
    pub(crate) fn start_with(command: &mut Command) -> Self {
        Self::start_hearing(command).0
    }

    /// The same, with what it said until then.
    pub(crate) fn start_hearing(command: &mut Command) -> (Self, String) {
        let mut child = Guarded::spawn(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let stderr = BufReader::new(child.0.stderr.take().expect("a pipe"));
        let (line, lines) = channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|said| line.send(said)).ok();
        });
        let mut said = String::new();
        let address = loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => {
                    if let Some((_, url)) = line.split_once("listening on ") {
                        let (_, address) = url.split_once("://").expect("a URL");
                        break address.parse().expect("an address");
                    }
                    said.push_str(&line);
                    said.push('\n');
                }
                Err(error) => panic!("the gateway does not listen ({error}); it said: {said}"),
            }
        };
        (Self { child, address, lines }, said)
    }

    /// Its process id.
    pub(crate) fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// A connection to it, made when first used.
    pub(crate) fn link(&self) -> Link {
        Link::new(self.address)
    }

    /// SIGKILL, in the middle of whatever it does.
    pub(crate) fn kill_nine(mut self) {
        self.child.0.kill().expect("killed");
        let status = self.child.0.wait().expect("waited for");
        assert_eq!(status.code(), None, "it ended by itself: {}", self.rest());
    }

    /// SIGTERM; does not wait.
    pub(crate) fn terminate(&self) {
        signal(self.id(), "TERM");
    }

    /// SIGHUP; does not wait.
    pub(crate) fn hang_up(&self) {
        signal(self.id(), "HUP");
    }

    /// The next line of its log that holds these words.
    pub(crate) fn line_with(&self, words: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) if line.contains(words) => return line,
                Ok(_) => {}
                Err(error) => panic!("waited in vain for {words:?} ({error})"),
            }
        }
    }

    /// Waits until it has ended: its exit code and the rest of what it said.
    pub(crate) fn ended(mut self) -> (Option<i32>, String) {
        // Stderr closes with the process.
        let said = self.rest();
        (self.child.0.wait().expect("waited for").code(), said)
    }

    fn rest(&self) -> String {
        let mut said = String::new();
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => said = said + &line + "\n",
                Err(RecvTimeoutError::Disconnected) => return said,
                Err(RecvTimeoutError::Timeout) => panic!("the gateway does not end; it said: {said}"),
            }
        }
    }
}

/// Tries again and again, each try some input or output of its own, until there is something or time is up.
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::yield_now();
    }
}
