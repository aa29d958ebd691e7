//! A disk that is full and a database that somebody holds: 503 and never a false 200, and work again without a
//! restart once the cause is gone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{expect_no_differences, lock, verify};
use crate::support::gateway::{BINARY, Folder, Gateway, command, configure, run, serve, until};
use crate::support::link::{Answer, Link};
use crate::support::tracker::{Tracker, records};

/// Records of one upload.
const RECORDS: u64 = 20;
/// Where files end, in bytes: some dozens of uploads.
const SPACE: u64 = 1 << 20;
/// More uploads than fit into that space.
const UPLOADS_MAX: u64 = 10_000;

/// A tracker with its books, one upload after the other.
struct Uploads {
    tracker: Tracker,
    next: u64,
    acknowledged: BTreeSet<u64>,
}

impl Uploads {
    fn new() -> Self {
        Self { tracker: Tracker::new("t"), next: 0, acknowledged: BTreeSet::new() }
    }

    /// Sends the next batch, which stays the next one until it is acknowledged.
    fn send(&mut self, link: &mut Link) -> Answer {
        let answer = self.upload(link, self.next);
        if answer.status == 200 {
            self.acknowledged.extend(self.next * RECORDS..(self.next + 1) * RECORDS);
            self.next += 1;
        }
        answer
    }

    /// Sends the last acknowledged batch again.
    fn repeat(&self, link: &mut Link) -> Answer {
        self.upload(link, self.next - 1)
    }

    /// Either stored or "not now", never anything else.
    fn upload(&self, link: &mut Link, number: u64) -> Answer {
        let records = records(number * RECORDS, (number + 1) * RECORDS - 1);
        let body = self.tracker.body(&number.to_string(), None, &records).to_string();
        let answer = link.upload(&self.tracker, body.as_bytes()).expect("an answer");
        if answer.status != 200 {
            answer.expect_not_now();
        }
        answer
    }

    /// What was acknowledged is there, once, and nothing else.
    fn check(&self, link: &mut Link) {
        let seqs: Vec<_> =
            link.track("t").iter().map(|entry| entry["seq"].as_u64().expect("a seq")).collect();
        assert_eq!(seqs, self.acknowledged.iter().copied().collect::<Vec<_>>());
        assert_eq!(link.state("t")["last_seq"].as_u64(), self.acknowledged.last().copied());
    }
}

/// Fills the disk, looks around, frees it, and goes on.
fn fills_and_recovers(gateway: &Gateway, free: impl FnOnce()) -> Uploads {
    let mut link = gateway.link();
    let mut uploads = Uploads::new();
    while uploads.send(&mut link).status == 200 {
        assert!(uploads.next < UPLOADS_MAX, "the disk never fills");
    }
    assert!(uploads.next > 3, "the disk was full from the start");
    // The gap that the last upload left closes by duplicates: each writes a page, the time of the last contact.
    until("a duplicate does not fit", || (uploads.repeat(&mut link).status == 503).then_some(()));
    until("not ready", || (link.get("/readyz").status == 503).then_some(()));
    for _ in 0..10 {
        assert_eq!(uploads.send(&mut link).status, 503);
        assert_eq!(link.get("/readyz").status, 503);
        uploads.check(&mut link);
    }
    free();
    until("accepts again", || (uploads.send(&mut link).status == 200).then_some(()));
    assert_eq!(link.get("/readyz").status, 200);
    for _ in 0..10 {
        assert_eq!(uploads.send(&mut link).status, 200);
    }
    uploads.check(&mut link);
    uploads
}

/// Stops in good order, and said of its trouble what an operator needs.
fn stops_having_told(gateway: Gateway) {
    gateway.terminate();
    let (code, said) = gateway.ended();
    assert_eq!(code, Some(0), "{said}");
    expect_told(&said);
}

/// What the gateway said of it: a line when it could not store and one when it could again, however many tried.
/// Twice at most: after an upload that did not fit a duplicate may have.
fn expect_told(said: &str) {
    let [failed, healed] = ["cannot store: ", "storing again"].map(|line| said.matches(line).count());
    assert!(failed == healed && (1..=2).contains(&failed), "{said}");
}

/// Files of the gateway end at a limit, which is what quotas do, and needs no rights.
#[test]
fn a_file_that_cannot_grow() {
    let folder = Folder::new();
    let mut limited = command("prlimit", folder.path());
    // The signal would end the process before the error is seen; shells let children inherit that it is ignored.
    limited.arg(format!("--fsize={SPACE}:")).args(["sh", "-c", "trap '' XFSZ && exec \"$0\" serve", BINARY]);
    let gateway = Gateway::start_with(configure(&mut limited, &folder.database()));
    let id = gateway.id().to_string();
    let uploads = fills_and_recovers(&gateway, || {
        let lifted = run(command("prlimit", folder.path()).args(["--pid", &id, "--fsize=unlimited:"]));
        assert_eq!(lifted.code, Some(0), "{}", lifted.err);
    });
    verify(&folder);
    stops_having_told(gateway);
    let gateway = Gateway::start(&folder);
    uploads.check(&mut gateway.link());
    verify(&folder);
}

/// A small file system of its own, seen by the gateway alone, which goes when the gateway goes.
struct SmallDisk {
    /// Options of `unshare` and `nsenter`.
    namespaces: &'static [&'static str],
}

impl SmallDisk {
    /// `None` where mounting is not permitted at all.
    fn find(folder: &Folder) -> Option<Self> {
        let ways: [&[&str]; 2] = [&["--mount"], &["--user", "--mount"]];
        ways.map(|namespaces| Self { namespaces })
            .into_iter()
            .find(|disk| run(disk.mounted(folder).arg("true")).code == Some(0))
    }

    /// Runs what is added with the disk in the place of the folder.
    fn mounted(&self, folder: &Folder) -> Command {
        let mut mounted = command("unshare", Path::new("/"));
        mounted.args(self.namespaces);
        if self.namespaces.contains(&"--user") {
            mounted.arg("--map-root-user");
        }
        let script = "mount -t tmpfs -o size=\"$0\" tidegate \"$1\" && shift && exec \"$@\"";
        mounted.args(["sh", "-c", script]).arg((2 * SPACE).to_string()).arg(folder.path());
        mounted
    }

    /// The same path as the gateway sees it.
    fn seen_by(gateway: &Gateway, path: &Path) -> PathBuf {
        Path::new("/proc")
            .join(gateway.id().to_string())
            .join("root")
            .join(path.strip_prefix("/").expect("absolute"))
    }

    fn verify(&self, gateway: &Gateway, folder: &Folder) {
        let mut inside = command("nsenter", Path::new("/"));
        inside.args(["--target", &gateway.id().to_string()]).args(self.namespaces);
        if self.namespaces.contains(&"--user") {
            inside.arg("--preserve-credentials");
        }
        inside.args([BINARY, "verify", "--store"]).arg(format!("sqlite:{}", folder.database().display()));
        expect_no_differences(&mut inside);
    }
}

#[test]
fn a_full_disk() {
    let folder = Folder::new();
    let Some(disk) = SmallDisk::find(&folder) else {
        eprintln!("mounting is not permitted here: a_file_that_cannot_grow alone stands for a full disk");
        return a_file_that_cannot_grow();
    };
    let mut small = disk.mounted(&folder);
    small.args([BINARY, "serve"]);
    let gateway = Gateway::start_with(configure(&mut small, &folder.database()));
    let filler = SmallDisk::seen_by(&gateway, &folder.path().join("filler"));
    let bytes = usize::try_from(SPACE).expect("small");
    std::fs::write(&filler, vec![0; bytes]).expect("there is room at first");
    fills_and_recovers(&gateway, || std::fs::remove_file(&filler).expect("removed"));
    disk.verify(&gateway, &folder);
    stops_having_told(gateway);
}

#[test]
fn a_database_that_somebody_holds() {
    let folder = Folder::new();
    let gateway = Gateway::start_with(serve(&folder).env("TIDEGATE_BUSY_TIMEOUT_S", "1"));
    let mut link = gateway.link();
    let mut uploads = Uploads::new();
    assert_eq!(uploads.send(&mut link).status, 200);
    let held = lock(&folder);
    assert_eq!(uploads.send(&mut link).status, 503);
    assert_eq!(link.get("/readyz").status, 503);
    // Reading goes on.
    uploads.check(&mut link);
    verify(&folder);
    drop(held);
    until("accepts again", || (uploads.send(&mut link).status == 200).then_some(()));
    assert_eq!(link.get("/readyz").status, 200);
    uploads.check(&mut link);
    verify(&folder);
    stops_having_told(gateway);
}

#[test]
fn a_data_folder_that_is_moved_away() {
    let folder = Folder::new();
    let gateway = Gateway::start(&folder);
    let mut link = gateway.link();
    let mut uploads = Uploads::new();
    assert_eq!(uploads.send(&mut link).status, 200);
    let away = folder.path().with_extension("away");
    std::fs::rename(folder.path(), &away).expect("moved away");
    for _ in 0..3 {
        assert_eq!(uploads.send(&mut link).status, 503);
        assert_eq!(link.get("/readyz").status, 503);
    }
    // A new file in its place is not the one that is written to.
    std::fs::create_dir(folder.path()).expect("a folder");
    std::fs::write(folder.database(), "").expect("a file");
    assert_eq!(uploads.send(&mut link).status, 503);
    std::fs::remove_dir_all(folder.path()).expect("removed");
    std::fs::rename(&away, folder.path()).expect("moved back");
    assert_eq!(uploads.send(&mut link).status, 200);
    assert_eq!(link.get("/readyz").status, 200);
    uploads.check(&mut link);
    stops_having_told(gateway);
    let gateway = Gateway::start(&folder);
    uploads.check(&mut gateway.link());
    verify(&folder);
}
