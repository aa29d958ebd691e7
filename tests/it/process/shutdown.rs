//! SIGTERM: what was wholly read is committed and answered, the rest is cut, and the exit code is 0.

use std::io::ErrorKind;
use std::net::TcpStream;

use super::{lock, verify};
use crate::support::gateway::{Folder, Gateway, serve, until};
use crate::support::link::request;
use crate::support::tracker::{Tracker, records};

/// A body of one tracker with records 1 … 5.
fn body(tracker: &Tracker) -> Vec<u8> {
    tracker.body("a", None, &records(1, 5)).to_string().into_bytes()
}

#[test]
fn sigterm_answers_what_was_read_and_cuts_the_rest() {
    let folder = Folder::new();
    let gateway =
        Gateway::start_with(serve(&folder).env("TIDEGATE_DRAIN_S", "1").env("TIDEGATE_BUSY_TIMEOUT_S", "30"));
    // Somebody holds the database: uploads wait for their commit while the shutdown begins.
    let held = lock(&folder);
    let trackers: Vec<_> = (0..6).map(|n| Tracker::new(&format!("whole-{n}"))).collect();
    let mut waiting = Vec::new();
    let mut bytes = 0;
    for tracker in &trackers {
        let body = body(tracker);
        let mut link = gateway.link();
        link.send(&request(tracker, &body)).expect("sent");
        bytes += body.len();
        waiting.push(link);
    }
    let late = Tracker::new("half");
    let half_body = body(&late);
    let whole = request(&late, &half_body);
    let mut half = gateway.link();
    half.send(&whole[..whole.len() - half_body.len() / 2]).expect("sent");
    bytes += half_body.len() - half_body.len() / 2;
    let mut link = gateway.link();
    let bytes = f64::from(u32::try_from(bytes).expect("small"));
    until("every byte is read", || (link.metric("tidegate_inflight_bytes") >= bytes).then_some(()));

    gateway.terminate();
    until("nothing new is accepted", || match TcpStream::connect(gateway.address) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Some(()),
        _ => None,
    });
    let cut = half.answer().expect_err("half a body has no answer");
    assert!(matches!(cut.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset), "{cut}");
    // The drain is over, and those whose body was read still wait for their answers.
    drop(held);
    for (tracker, link) in trackers.iter().zip(&mut waiting) {
        let answer = link.answer().expect("an answer");
        assert_eq!(answer.status, 200, "{}: {answer:?}", tracker.id);
        assert_eq!(answer.json()["accepted"], 5);
    }
    assert_eq!(gateway.ended(), (Some(0), String::new()));

    let gateway = Gateway::start(&folder);
    let mut link = gateway.link();
    for tracker in &trackers {
        assert_eq!(link.track(tracker.id.as_str()).len(), 5);
    }
    assert_eq!(link.get("/v1/devices/half").status, 404);
    verify(&folder);
}

#[test]
fn sigterm_does_not_wait_for_idle_connections() {
    let folder = Folder::new();
    // Longer than any patience of these tests.
    let gateway = Gateway::start_with(serve(&folder).env("TIDEGATE_DRAIN_S", "3600"));
    let tracker = Tracker::new("idle");
    let mut used = gateway.link();
    assert_eq!(used.upload(&tracker, &body(&tracker)).expect("an answer").status, 200);
    let mut fresh = gateway.link();
    fresh.send(b"").expect("connected");
    let mut other = gateway.link();
    until("both connections are accepted", || (other.metric("tidegate_connections") >= 3.0).then_some(()));
    gateway.terminate();
    assert_eq!(gateway.ended(), (Some(0), String::new()));
}

#[test]
fn a_second_start_finds_what_sigterm_left() {
    let folder = Folder::new();
    let tracker = Tracker::new("t");
    for life in 0..3_u64 {
        let gateway = Gateway::start(&folder);
        let mut link = gateway.link();
        let body = tracker.body(&life.to_string(), None, &records(10 * life, 10 * life + 4)).to_string();
        assert_eq!(link.upload(&tracker, body.as_bytes()).expect("an answer").status, 200);
        assert_eq!(link.track("t").len(), usize::try_from(5 * (life + 1)).expect("small"));
        link.hang_up();
        gateway.terminate();
        assert_eq!(gateway.ended(), (Some(0), String::new()));
        assert!(!folder.path().join("tidegate.db-wal").exists(), "a stopped gateway's database is one file");
        verify(&folder);
    }
}
