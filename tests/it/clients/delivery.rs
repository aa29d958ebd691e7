//! What every reference tracker must do, whatever it is written in. Each is a program with the same options.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tidegate::domain::ids::DeviceId;
use tidegate::domain::signature::{FleetKey, spell_key};

use super::course;
use crate::support::gateway::{Done, Folder, Gateway, Guarded, run_within, serve, tidegate};
use crate::support::link::Link;
use crate::support::lossy_proxy::{Books, LossyProxy};
use crate::support::tracker::FLEET_KEY;

/// Longest delivery: valgrind, a slow machine and many lost answers together.
pub(super) const PATIENCE: Duration = Duration::from_mins(5);

/// A gateway, a link to it, and a folder for a tracker's buffer.
pub(super) struct Sea {
    pub(super) folder: Folder,
    pub(super) gateway: Gateway,
    pub(super) proxy: LossyProxy,
}

/// Random, or the one to replay.
pub(super) fn seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not of the program")]
    let wanted = std::env::var("SEED").ok().map(|seed| seed.parse().expect("a number"));
    let seed = wanted.unwrap_or_else(rand::random);
    eprintln!("seed {seed}; to replay: SEED={seed} cargo test --test it clients");
    seed
}

/// The device key as it is flashed.
pub(super) fn key(device_id: &str) -> String {
    spell_key(&FleetKey::new(FLEET_KEY).derive(&DeviceId::parse(device_id).expect("an id")))
}

impl Sea {
    pub(super) fn new() -> Self {
        let folder = Folder::new();
        let gateway = Gateway::start_with(&mut serve(&folder));
        let proxy = LossyProxy::start(gateway.address, seed());
        Self { folder, gateway, proxy }
    }

    /// Loses nothing.
    pub(super) fn calm() -> Self {
        let folder = Folder::new();
        let gateway = Gateway::start_with(&mut serve(&folder));
        let proxy = LossyProxy::start_honest(gateway.address);
        Self { folder, gateway, proxy }
    }

    /// Adds what a tracker needs to sail here: where to, who it is, its buffer, and little patience.
    pub(super) fn fit_out<'a>(&self, tracker: &'a mut Command, device_id: &str) -> &'a mut Command {
        tracker
            .args(["--to", &self.proxy.address.to_string(), "--device", device_id, "--key", &key(device_id)])
            .arg("--store")
            .arg(self.folder.path().join(device_id))
            .args(["--backoff-ms", "2", "--backoff-max-ms", "20", "--idle-ms", "4000"])
    }

    pub(super) fn link(&self) -> Link {
        self.gateway.link()
    }

    /// The law holds, and the books of gateway and link agree: a tracker that sends the same bytes until they are
    /// acknowledged makes one batch of each distinct body, and one duplicate of each further copy.
    pub(super) fn check_uploads(&self) -> Books {
        let store = format!("sqlite:{}", self.folder.database().display());
        let verified =
            run_within(PATIENCE, &mut tidegate(self.folder.path(), &["verify", "--store", &store]));
        assert_eq!((verified.code, verified.err.as_str()), (Some(0), ""), "{}", verified.out);
        let books = self.proxy.books();
        let mut link = self.link();
        let mut count = |name: &str| link.metric(name).to_string().parse::<u64>().expect("a count");
        let batches = count(r#"tidegate_uploads_total{outcome="processed"}"#);
        let duplicates = count(r#"tidegate_uploads_total{outcome="duplicate"}"#);
        assert_eq!(count(r#"tidegate_uploads_total{outcome="quarantined"}"#), 0);
        assert_eq!(count(r#"tidegate_records_total{outcome="repeated"}"#), 0, "a batch came in other bytes");
        assert_eq!(batches, books.bodies.len() as u64, "distinct bodies");
        assert_eq!(batches + duplicates, books.answered, "every upload that arrived was one or the other");
        books
    }
}

/// Runs a tracker to its end and expects that it delivered.
pub(super) fn deliver(tracker: &mut Command) -> Done {
    let done = run_within(PATIENCE, tracker);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    done
}

/// A tracker that can be killed while it sails.
struct Underway {
    child: Guarded,
    first: String,
}

impl Underway {
    /// Starts it and reads its first line, with which it says where it goes on.
    fn start(tracker: &mut Command) -> Self {
        let mut child = Guarded::spawn(tracker.stdout(Stdio::piped()).stderr(Stdio::inherit()));
        let mut out = BufReader::new(child.0.stdout.take().expect("a pipe"));
        let mut first = String::new();
        out.read_line(&mut first).expect("a line");
        // The pipe must not fill up.
        std::thread::spawn(move || out.lines().map_while(Result::ok).for_each(drop));
        Self { child, first }
    }

    fn kill(mut self) {
        self.child.0.kill().expect("killed");
        assert_eq!(self.child.0.wait().expect("waited for").code(), None, "it ended by itself");
    }
}

/// The number behind a word of a tracker's first line.
fn said(line: &str, word: &str) -> u64 {
    let (_, rest) = line.split_once(word).unwrap_or_else(|| panic!("no {word} in {line:?}"));
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a number")
}

/// Everything arrives once, in one life.
pub(super) fn delivers_through_a_bad_link(tracker: impl Fn(&Path) -> Command, records: u64) {
    let sea = Sea::new();
    let mut command = tracker(sea.folder.path());
    sea.fit_out(&mut command, "ship-1");
    deliver(command.args(["--make", &records.to_string(), "--epoch", "7", "--batch", "8"]));
    course::check(&mut sea.link(), "ship-1", &BTreeMap::from([(7, records)]));
    let books = sea.check_uploads();
    eprintln!(
        "{} records: {} requests ({} bytes), {} lost, {} answers lost",
        records, books.requests, books.bytes, books.requests_lost, books.answers_lost
    );
    let batches = books.bodies.len() as u64;
    assert_eq!(batches, records.div_ceil(8), "batches are filled");
    assert!(books.answers_lost > 0 && books.requests_lost > 0, "the link was not bad: {books:?}");
    assert_eq!(
        books.answered,
        batches + books.answers_lost,
        "a lost answer costs one more copy and nothing else"
    );
    assert_eq!(books.requests, batches + books.answers_lost + books.requests_lost, "so does a lost request");
}

/// Killed again and again while an upload is under way: no seq is used twice, no record lost, and the batch in
/// flight goes out again in the same bytes, also where the next life would choose another one.
pub(super) fn survives_kills(tracker: impl Fn(&Path) -> Command) {
    let sea = Sea::new();
    let command = |batch: u64| {
        let mut command = tracker(sea.folder.path());
        sea.fit_out(&mut command, "ship-2");
        command.args(["--make", "240", "--epoch", "3", "--every-ms", "1", "--batch", &batch.to_string()]);
        command
    };
    let mut next_seq = 0;
    for life in 0..6 {
        let underway = Underway::start(&mut command(4 + life % 3));
        assert_eq!(said(&underway.first, "epoch"), 3, "{}", underway.first);
        let next = said(&underway.first, "next seq");
        assert!(next >= next_seq, "went back from {next_seq}: {}", underway.first);
        next_seq = next;
        sea.proxy.await_requests(sea.proxy.books().requests + 1 + life * 2);
        underway.kill();
    }
    assert!(next_seq > 6, "the kills came in the middle: {next_seq}");
    deliver(&mut command(7));
    course::check(&mut sea.link(), "ship-2", &BTreeMap::from([(3, 240)]));
    sea.check_uploads();
}

/// A buffer that is lost begins a new epoch, whose first records are newer than all before.
pub(super) fn begins_an_epoch_with_new_storage(tracker: impl Fn(&Path) -> Command) {
    let sea = Sea::new();
    let sail = |make: &str, more: &[&str]| {
        let mut command = tracker(sea.folder.path());
        sea.fit_out(&mut command, "ship-3").args(["--make", make]).args(more);
        said(&deliver(&mut command).out, "epoch")
    };
    assert_eq!(sail("60", &["--epoch", "7"]), 7);
    assert_eq!(sail("70", &["--epoch", "9"]), 7, "the buffer is there: the epoch goes on");
    std::fs::remove_file(sea.folder.path().join("ship-3")).expect("removed");
    assert_eq!(sail("40", &["--epoch", "8"]), 8);
    std::fs::remove_file(sea.folder.path().join("ship-3")).expect("removed");
    // By the clock.
    let epoch_id = sail("20", &[]);
    assert!(epoch_id > 1_774_930_320, "{epoch_id}");
    course::check(&mut sea.link(), "ship-3", &BTreeMap::from([(7, 70), (8, 40), (epoch_id, 20)]));
    sea.check_uploads();
}

/// A wrong key is not tried again and again; the records stay and go out under the right one.
pub(super) fn does_not_hammer_when_refused(tracker: impl Fn(&Path) -> Command) {
    let sea = Sea::calm();
    let mut command = tracker(sea.folder.path());
    sea.fit_out(&mut command, "ship-4").args(["--make", "10", "--epoch", "1", "--key", &key("ship-5")]);
    let done = run_within(PATIENCE, &mut command);
    assert_eq!(done.code, Some(3), "{}{}", done.out, done.err);
    assert!(done.out.contains("refused (status 401)"), "{}", done.out);
    assert_eq!(sea.proxy.books().requests, 1);
    let mut command = tracker(sea.folder.path());
    deliver(sea.fit_out(&mut command, "ship-4").args(["--make", "10"]));
    course::check(&mut sea.link(), "ship-4", &BTreeMap::from([(1, 10)]));
    let books = sea.proxy.books();
    assert_eq!((books.requests, books.bodies.len()), (2, 1), "the same bytes");
}

/// Compressed bodies arrive as the plain ones do, and are what is on the wire.
pub(super) fn compresses(tracker: impl Fn(&Path) -> Command) {
    let sea = Sea::calm();
    let sail = |device_id: &str, more: &[&str]| {
        let before = sea.proxy.books().bytes;
        let mut command = tracker(sea.folder.path());
        deliver(sea.fit_out(&mut command, device_id).args(["--make", "100", "--epoch", "1"]).args(more));
        course::check(&mut sea.link(), device_id, &BTreeMap::from([(1, 100)]));
        sea.proxy.books().bytes - before
    };
    let (packed, plain) = (sail("ship-6", &[]), sail("ship-7", &["--plain"]));
    eprintln!("100 records: {packed} bytes sent compressed, {plain} plain");
    assert!(packed * 2 < plain, "{packed} of {plain}");
    let heads = |first: u8| sea.proxy.books().bodies.iter().filter(|body| body[0] == first).count();
    assert!(heads(0x78) > 0 && heads(b'{') > 0, "both forms were sent");
    // Receipts instead of minimal answers, and one record, which no compression makes smaller.
    let mut command = tracker(sea.folder.path());
    deliver(sea.fit_out(&mut command, "ship-8").args(["--make", "1", "--epoch", "1", "--full-answers"]));
    course::check(&mut sea.link(), "ship-8", &BTreeMap::from([(1, 1)]));
    sea.check_uploads();
}

/// What cannot work is said in words, with the exit codes that the usage names, and sends nothing.
pub(super) fn says_why_it_cannot_start(tracker: impl Fn(&Path) -> Command) {
    let sea = Sea::calm();
    let try_with = |more: &[&str]| {
        let mut command = tracker(sea.folder.path());
        run_within(PATIENCE, sea.fit_out(&mut command, "ship-11").args(more))
    };
    assert_eq!(try_with(&["--make", "5", "--slots", "32"]).code, Some(0));
    let requests = sea.proxy.books().requests;
    let faults: [(&[&str], i32, &str); 5] = [
        (&["--slots", "16"], 1, "cannot start: the storage"),
        (&["--device", "a b"], 1, "cannot start: "),
        (&["--make", "many"], 2, "usage: "),
        (&["--no-such-option"], 2, "usage: "),
        (&["--key", "c2hvcnQ="], 2, "usage: "),
    ];
    for (more, code, words) in faults {
        let done = try_with(more);
        assert_eq!(done.code, Some(code), "{more:?}: {}{}", done.out, done.err);
        assert!(done.err.contains(words), "{more:?}: {}", done.err);
    }
    assert_eq!(sea.proxy.books().requests, requests);
}
