//! Deadlines are on silence, and connections are kept and closed as configured.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::harness::{Client, Gateway, batch, upload};
use crate::support::gateway::until;

const GET: &str = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Sends piece by piece, with pauses that are the point of the test.
fn send_slowly(client: &mut Client, bytes: &[u8], pieces: usize, pause: Duration) {
    for piece in bytes.chunks(bytes.len() / pieces + 1) {
        sleep(pause);
        client.send(piece);
    }
}

#[test]
fn a_header_may_take_longer_than_its_longest_silence() {
    let gateway = Gateway::start_with(|http| http.header_timeout = millis(500));
    let mut client = gateway.connect();
    let begun = Instant::now();
    let request = upload("a", &batch("a", "x", None, &[1]), &format!("X-Long: {}\r\n", "x".repeat(2000)));
    send_slowly(&mut client, request.as_bytes(), 15, millis(100));
    assert_eq!(client.answer().status, 200);
    assert!(begun.elapsed() > millis(1200));
    gateway.stop();
}

#[test]
fn a_body_may_take_longer_than_its_longest_silence() {
    let gateway = Gateway::start_with(|http| http.body_idle_timeout = millis(500));
    let request = upload("a", &batch("a", "x", None, &[1, 2, 3, 4, 5]), "");
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let mut client = gateway.connect();
    client.send(format!("{head}\r\n\r\n"));
    send_slowly(&mut client, body.as_bytes(), 15, millis(100));
    assert_eq!(client.answer().json()["accepted"], 5);
    gateway.stop();
}

#[test]
fn silence_before_and_within_a_header_is_ended() {
    let gateway = Gateway::start_with(|http| {
        http.header_timeout = millis(200);
        http.body_idle_timeout = Duration::from_hours(1);
        http.keepalive_timeout = Duration::from_hours(1);
    });
    for sent in ["", "P", "POST /v1/batches HTTP/1.1\r\nHost: x\r\n"] {
        let mut client = gateway.connect();
        client.send(sent);
        assert!(client.is_closed(), "after {sent:?}");
    }
    // Within the header of a second request.
    let mut client = gateway.connect();
    client.send(GET);
    assert_eq!(client.answer().status, 200);
    client.send("GET /heal");
    assert!(client.is_closed());
    gateway.stop();
}

#[test]
fn an_idle_connection_is_kept_for_its_time_and_no_longer() {
    let gateway = Gateway::start_with(|http| {
        http.header_timeout = millis(100);
        http.keepalive_timeout = millis(800);
    });
    let mut client = gateway.connect();
    for _ in 0..3 {
        client.send(GET);
        assert_eq!(client.answer().status, 200);
        // Longer than a header may be silent; shorter than a connection is kept.
        sleep(millis(300));
    }
    assert!(client.is_closed());
    gateway.stop();
}

#[test]
fn the_last_request_of_a_connection_says_so() {
    let gateway = Gateway::start_with(|http| http.keepalive_requests = 3);
    let mut client = gateway.connect();
    let request = |seq: u64, more: &str| upload("a", &batch("a", &seq.to_string(), None, &[seq]), more);
    for seq in 0..2 {
        client.send(request(seq, ""));
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("Connection")), (200, None));
    }
    // The third, and one too many behind it.
    client.send(request(2, "Prefer: return=minimal\r\n") + GET);
    let answer = client.answer();
    assert_eq!((answer.status, answer.header("Connection")), (200, Some("close")));
    assert!(client.is_over(), "and nothing behind it");
    gateway.stop();
}

#[test]
fn idle_connections_make_room_oldest_first() {
    let gateway = Gateway::start_with(|http| http.connections_max = 3);
    let mut kept: Vec<_> = (0..3)
        .map(|_| {
            let mut client = gateway.connect();
            client.send(GET);
            assert_eq!(client.answer().status, 200);
            client
        })
        .collect();
    // The first one is used again, so the second is idle for longest by now.
    kept[0].send(GET);
    assert_eq!(kept[0].answer().status, 200);
    assert_eq!(gateway.upload("a", &batch("a", "x", None, &[1])).status, 200);
    assert!(kept[1].is_closed());
    for still in [0, 2] {
        kept[still].send(GET);
        assert_eq!(kept[still].answer().status, 200, "{still} was not wanted");
    }
    gateway.stop();
}

#[test]
fn a_request_under_way_makes_room_for_nobody() {
    let gateway = Gateway::start_with(|http| http.connections_max = 1);
    let request = upload("a", &batch("a", "x", None, &[1]), "Expect: 100-continue\r\n");
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let mut busy = gateway.connect();
    busy.send(format!("{head}\r\n\r\n"));
    assert_eq!(busy.answer().status, 100);
    let mut next = gateway.connect();
    next.send(GET);
    busy.send(body);
    assert_eq!(busy.answer().status, 200, "answered in full");
    // Then it is idle, and goes.
    assert!(busy.is_closed());
    assert_eq!(next.answer().status, 200);
    gateway.stop();
}

#[test]
fn connections_that_say_nothing_keep_no_tracker_out() {
    let gateway = Gateway::start_with(|http| http.connections_max = 20);
    let silent: Vec<_> = (0..100).map(|_| gateway.connect()).collect();
    for n in 0..20 {
        assert_eq!(gateway.upload("a", &batch("a", &n.to_string(), None, &[n])).status, 200);
    }
    drop(silent);
    gateway.stop();
}

#[test]
fn headers_that_never_end_keep_no_tracker_out() {
    let gateway = Gateway::start_with(|http| http.connections_max = 5);
    let mut begun: Vec<_> = (0..5).map(|_| gateway.connect()).collect();
    for client in &mut begun {
        client.send("P");
    }
    for n in 0..5 {
        assert_eq!(gateway.upload("a", &batch("a", &n.to_string(), None, &[n])).status, 200);
    }
    drop(begun);
    gateway.stop();
}

#[test]
fn a_client_that_does_not_read_its_answer_is_ended() {
    let gateway = Gateway::start_with(|http| http.body_idle_timeout = millis(200));
    let seqs: Vec<u64> = (0..10_000).collect();
    for n in 0..4_u64 {
        let seqs: Vec<u64> = seqs.iter().map(|seq| seq + n * 10_000).collect();
        assert_eq!(gateway.upload("a", &batch("a", &n.to_string(), None, &seqs)).status, 200);
    }
    let token = super::harness::TOKEN;
    let get = format!(
        "GET /v1/devices/a/track?format=ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n"
    );
    let mut stuck = gateway.connect();
    // Several MB each: more than the kernel's buffers hold.
    stuck.send(get.repeat(3));
    until("it is given up", || {
        gateway.get("/metrics").text().contains("\ntidegate_connections 1\n").then_some(())
    });
    drop(stuck);
    gateway.stop();
}

#[test]
fn what_is_only_announced_costs_nothing() {
    let gateway = Gateway::start_with(|http| http.inflight_bytes = 2 << 20);
    let announced = |n: usize| {
        let request = upload(&format!("d{n}"), &"x".repeat(1 << 20), "");
        let (head, _) = request.split_once("\r\n\r\n").expect("a head");
        format!("{head}\r\nExpect: 100-continue\r\n\r\n")
    };
    let clients: Vec<_> = (0..40)
        .map(|n| {
            let mut client = gateway.connect();
            client.send(announced(n));
            assert_eq!(client.answer().status, 100);
            client
        })
        .collect();
    assert!(gateway.get("/metrics").text().contains("\ntidegate_inflight_bytes 0\n"));
    let seqs: Vec<u64> = (0..1000).collect();
    assert_eq!(gateway.upload("a", &batch("a", "x", None, &seqs)).status, 200);
    drop(clients);
    gateway.stop();
}

#[test]
fn hundreds_of_slow_uploads_neither_block_quick_ones_nor_get_lost() {
    const SLOW: usize = 300;
    let gateway = Gateway::start();
    let mut slow: Vec<_> = (0..SLOW)
        .map(|n| {
            let id = format!("slow-{n}");
            let request = upload(&id, &batch(&id, "x", None, &[1, 2, 3]), "");
            let (begun, rest) = request.split_at(request.len() - 100);
            let mut client = gateway.connect();
            client.send(begun);
            (client, rest.to_owned())
        })
        .collect();
    for byte in 0..10 {
        for (client, rest) in &mut slow {
            client.send(&rest[byte..=byte]);
        }
        let batch = batch("quick", &byte.to_string(), None, &[u64::try_from(byte).expect("small")]);
        assert_eq!(gateway.upload("quick", &batch).status, 200);
    }
    // Those of the quick ones have ended, but for the one that asks.
    until("all slow ones are still held", || {
        gateway.get("/metrics").text().contains("tidegate_connections 301\n").then_some(())
    });
    for (client, rest) in &mut slow {
        client.send(&rest[10..]);
    }
    for (client, _) in &mut slow {
        assert_eq!(client.answer().json()["accepted"], 3);
    }
    assert!(gateway.get("/metrics").text().contains("\ntidegate_inflight_bytes 0\n"));
    gateway.stop();
}
