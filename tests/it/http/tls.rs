//! TLS spoken by the gateway itself: what holds over plain connections holds over these.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use tidegate::ops::config::HttpOptions;

use super::harness::{Gateway, NAMED_ADMIN_TOKEN, TOKEN, batch, upload};
use crate::support::gateway::{PATIENCE, until};
use crate::support::tls::{Authority, TlsLink};

struct Bed {
    gateway: Gateway,
    authority: Authority,
}

fn start(change: impl FnOnce(&mut HttpOptions)) -> Bed {
    let authority = Authority::new();
    Bed { gateway: Gateway::start_over(Some(authority.identity()), change), authority }
}

impl Bed {
    fn connect(&self) -> TlsLink {
        self.authority.connect(self.gateway.address)
    }

    fn tcp(&self) -> TcpStream {
        let stream = TcpStream::connect(self.gateway.address).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("an option");
        stream
    }

    /// A number of `/metrics`.
    fn metric(&self, name: &str) -> f64 {
        let mut link = self.connect();
        link.send(format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"));
        let text = String::from_utf8(link.answer().expect("an answer").body).expect("text");
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.and_then(|number| number.parse().ok()).expect("a number")
    }
}

#[test]
fn uploads_go_through_with_both_versions() {
    let bed = start(|_| {});
    for (n, version) in [&rustls::version::TLS12, &rustls::version::TLS13].into_iter().enumerate() {
        let mut link = bed.authority.connect_with(bed.gateway.address, &[version]).expect("a handshake");
        assert_eq!(link.protocol(), Some(&b"http/1.1"[..]), "h2 was offered, too");
        for seq in [2 * n, 2 * n + 1] {
            let seq = u64::try_from(seq).expect("small");
            link.send(upload("a", &batch("a", &seq.to_string(), None, &[seq]), ""));
            assert_eq!(link.answer().expect("an answer").json()["last_seq"], seq);
        }
    }
    // Larger than any buffer on the way.
    let seqs: Vec<u64> = (0..10_000).collect();
    let mut link = bed.connect();
    link.send(upload("b", &batch("b", "x", None, &seqs), ""));
    assert_eq!(link.answer().expect("an answer").json()["accepted"], 10_000);
    bed.gateway.stop();
}

#[test]
fn a_refused_body_is_read_away_before_the_close() {
    let bed = start(|http| http.body_bytes_max = 1000);
    let mut link = bed.connect();
    // All of it is sent before anyone looks for the answer.
    link.send(upload("a", &"x".repeat(3 << 20), ""));
    assert_eq!(link.answer().expect("no reset").status, 413);
    assert!(link.is_closed());
    drop(link);
    bed.gateway.stop();
}

#[test]
fn a_client_that_ends_its_side_still_gets_its_answer() {
    let bed = start(|_| {});
    let mut link = bed.connect();
    link.send(upload("a", &batch("a", "x", None, &[1]), ""));
    link.end_sending();
    assert_eq!(link.answer().expect("an answer").status, 200);
    assert!(link.is_closed());
    // In the middle of a body.
    let request = upload("a", &batch("a", "y", None, &[2]), "");
    let mut link = bed.connect();
    link.send(&request[..request.len() - 1]);
    link.end_sending();
    assert_eq!(link.answer().expect("an answer").status, 400);
    drop(link);
    bed.gateway.stop();
}

#[test]
fn whoever_speaks_no_tls_is_hung_up_on() {
    let bed = start(|_| {});
    for rubbish in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x16\x03\x01\x00\x05hello", &[0; 600]] {
        let mut stream = bed.tcp();
        stream.write_all(rubbish).expect("sent");
        let mut said = Vec::new();
        // A reset, where it had not read everything, or an alert of TLS and an end.
        let _ = stream.read_to_end(&mut said);
        assert!(said.len() < 64 && !said.starts_with(b"HTTP"), "{said:?}");
    }
    let mut link = bed.connect();
    link.send(upload("a", &batch("a", "x", None, &[1]), ""));
    assert_eq!(link.answer().expect("an answer").status, 200);
    bed.gateway.stop();
}

#[test]
fn a_handshake_that_does_not_go_on_is_ended() {
    let bed = start(|http| http.header_timeout = Duration::from_millis(100));
    let mut silent = bed.tcp();
    let mut begun = bed.tcp();
    begun.write_all(b"\x16\x03\x01\x02\x00\x01").expect("sent");
    for stream in [&mut silent, &mut begun] {
        assert_eq!(stream.read(&mut [0]).expect("an end"), 0);
    }
    // One that never falls silent: 512 bytes at one in 20 ms would take ten seconds.
    let mut dribble = bed.tcp();
    dribble.write_all(b"\x16\x03\x01\x02\x00\x01").expect("sent");
    let sent = (0..500).take_while(|_| {
        std::thread::sleep(Duration::from_millis(20));
        dribble.write_all(b"\0").is_ok()
    });
    assert!(sent.count() < 400, "it is bounded as a whole, too");
    until("their places are free", || (bed.metric("tidegate_connections") <= 1.0).then_some(()));
    bed.gateway.stop();
}

#[test]
fn handshakes_that_do_not_begin_make_room_at_once_and_others_in_time() {
    let bed = start(|http| http.connections_max = 2);
    let _silent = [bed.tcp(), bed.tcp(), bed.tcp()];
    let mut link = bed.connect();
    link.send(upload("a", &batch("a", "x", None, &[1]), ""));
    assert_eq!(link.answer().expect("an answer").status, 200);
    bed.gateway.stop();

    let bed = start(|http| {
        http.connections_max = 2;
        http.header_timeout = Duration::from_millis(300);
    });
    let mut begun = [bed.tcp(), bed.tcp(), bed.tcp()];
    for stream in &mut begun {
        stream.write_all(b"\x16\x03\x01\x02\x00\x01").expect("sent");
    }
    let mut link = bed.connect();
    link.send(upload("a", &batch("a", "x", None, &[1]), ""));
    assert_eq!(link.answer().expect("an answer").status, 200);
    bed.gateway.stop();
}

#[test]
fn a_silent_body_is_given_up_and_a_slow_record_is_not() {
    let bed = start(|http| http.body_idle_timeout = Duration::from_millis(400));
    let request = upload("a", &batch("a", "x", None, &[1]), "");
    let mut link = bed.connect();
    link.send(&request[..request.len() - 1]);
    assert_eq!(link.answer().expect("an answer").status, 408);
    drop(link);

    // One record of TLS that takes three times as long as the longest silence: bytes come, and no plaintext.
    let seqs: Vec<u64> = (0..100).collect();
    let request = upload("b", &batch("b", "x", None, &seqs), "");
    let mut link = bed.connect();
    link.send_slowly(request.as_bytes(), 16, Duration::from_millis(75));
    assert_eq!(link.answer().expect("an answer").status, 200);
    bed.gateway.stop();
}

#[test]
fn a_shutdown_answers_what_was_read_and_waits_for_no_handshake() {
    let bed = start(|http| http.drain = Duration::from_hours(1));
    let mut idle = bed.connect();
    idle.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(idle.answer().expect("an answer").status, 200);
    let mut begun = bed.tcp();
    begun.write_all(b"\x16\x03\x01\x02\x00\x01").expect("sent");
    let mut clients: Vec<_> = (0..10)
        .map(|n| {
            let id = format!("d{n}");
            let request = upload(&id, &batch(&id, "x", None, &[1]), "Expect: 100-continue\r\n");
            let (head, body) = request.split_once("\r\n\r\n").expect("a body");
            let mut link = bed.connect();
            link.send(format!("{head}\r\n\r\n"));
            assert_eq!(link.answer().expect("it reads the body").status, 100);
            link.send(body);
            link
        })
        .collect();
    bed.gateway.stop();
    for client in &mut clients {
        assert_eq!(client.answer().expect("an answer").status, 200);
        assert!(client.is_closed());
    }
    assert!(idle.is_closed(), "with a word of goodbye");
    assert!(matches!(begun.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn a_session_s_cookie_is_checked_over_tls_as_well() {
    let bed = start(|http| http.session_secure = true);
    let (_, token) = NAMED_ADMIN_TOKEN.split_once(':').expect("a name");
    let mut link = bed.connect();
    link.send(format!(
        "POST /v1/session HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: 0\r\n\r\n"
    ));
    let answer = link.answer().expect("an answer");
    assert!(answer.header("Set-Cookie").is_some_and(|cookie| cookie.ends_with("; Secure")), "{answer:?}");
    bed.gateway.stop();
}
