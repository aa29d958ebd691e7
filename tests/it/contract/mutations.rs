//! Ten thousand random mutations of valid bodies and headers: never a 5xx, never a panic, and no record that
//! is neither in the log nor in the quarantine.

use std::thread;

use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use tidegate::fleet::Encoding;

use crate::http::harness::{Answer, Gateway};
use crate::support::tracker::{Tracker, records};

const THREADS: u64 = 8;
const MUTATIONS_A_THREAD: u64 = 1250;

/// Pieces that parsers trip over.
const PIECES: &[&[u8]] = &[
    b"\"",
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\0",
    b"\xff",
    b"\xc3",
    b"\\ud83c",
    b"\\u0000",
    b"null",
    b"true",
    b"nan",
    b"1e400",
    b"-0",
    b"9223372036854775808",
    b"-1",
    b"1.5",
    b"\"seq\":1,",
    b"\"lat\":91,",
    b"\"device_id\":\"x\",",
    b"\"epoch_id\":null,",
    b"\"epoch_id\":18446744073709551615,",
    b"\r\n",
    b"\xef\xbb\xbf",
    b"[[[[[[[[[[[[[[[[",
    b"{\"a\":{\"a\":{\"a\":",
    b"7,",
    b"{},",
    b"\"records\":[],",
];

/// Changes a text in one to three places: bits, bytes, pieces put in, taken out, doubled, cut off.
fn mutate(rng: &mut ChaCha8Rng, text: &mut Vec<u8>) {
    for _ in 0..rng.random_range(1..=3) {
        let at = rng.random_range(0..=text.len());
        let end = (at + rng.random_range(0..24)).min(text.len());
        match rng.random_range(0..7) {
            0 if at < text.len() => text[at] ^= 1 << rng.random_range(0..8),
            1 if at < text.len() => text[at] = rng.random(),
            2 => drop(text.drain(at..end)),
            3 => {
                let copy = text[at..end].to_vec();
                text.splice(at..at, copy);
            }
            4 => text.truncate(at),
            _ => {
                let piece = PIECES.choose(rng).copied().unwrap_or_default();
                text.splice(at..at, piece.iter().copied());
            }
        }
    }
}

fn head(tracker: &Tracker, body: &[u8]) -> Vec<u8> {
    format!(
        "POST /v1/batches HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nX-Device-Id: {}\r\nX-Signature: \
         sha256={}\r\nContent-Length: {}\r\n\r\n",
        tracker.id,
        tracker.sign(body),
        body.len()
    )
    .into_bytes()
}

/// How many records a body holds, by a reader of no relation to ours.
fn records_in(body: &[u8]) -> Option<u64> {
    let value: Value = serde_json::from_slice(body).ok()?;
    Some(value["records"].as_array()?.len() as u64)
}

/// Records by outcome, as an answer tells them.
fn told(answer: &Value, outcomes: &[&str]) -> u64 {
    outcomes.iter().filter_map(|outcome| answer[outcome].as_u64()).sum()
}

fn check(context: &str, body: &[u8], answer: &Answer) -> u64 {
    assert!(
        [200, 202, 400, 401, 404, 405, 408, 411, 413, 414, 431, 505].contains(&answer.status)
            || answer.status == 417,
        "{context}: {}",
        answer.head
    );
    if answer.status != 200 {
        return 0;
    }
    let receipt = answer.json();
    if let (Some(sent), "processed") = (records_in(body), receipt["status"].as_str().expect("a status")) {
        let all = told(&receipt, &["accepted", "repeated", "conflicts", "quarantined"]);
        assert_eq!(all, sent, "{context}: {receipt}");
    }
    told(&receipt, &["accepted", "conflicts"])
}

/// One client's share. Returns how many entries its answers say were logged.
fn client(gateway: &Gateway, seed: u64) -> u64 {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut logged = 0;
    for n in 0..MUTATIONS_A_THREAD {
        let context = format!("seed {seed}, mutation {n}");
        let tracker = Tracker::new(&format!("m{}", rng.random_range(0..20)));
        let from = rng.random_range(0..200);
        let epoch_id = rng.random_bool(0.3).then(|| rng.random_range(0..3));
        let records = records(from, from + rng.random_range(0..6));
        let id = rng.next_u32().to_string();
        let mut body = tracker.body(&id, epoch_id, &records).to_string().into_bytes();
        if rng.random_bool(0.25) {
            let encoding = Encoding::ALL.choose(&mut rng).copied().unwrap_or_default();
            body = encoding.encode(&body).expect("encodes");
        }
        let mut request;
        if rng.random_bool(0.75) {
            // An authentic body, mutated before it was signed.
            mutate(&mut rng, &mut body);
            request = head(&tracker, &body);
        } else {
            request = head(&tracker, &body);
            let blank = request.split_off(request.len() - 2);
            mutate(&mut rng, &mut request);
            request.extend_from_slice(&blank);
        }
        request.extend_from_slice(&body);
        let mut connection = gateway.connect();
        connection.send(&request);
        connection.end_sending();
        if let Some(answer) = connection.any_answer() {
            logged += check(&context, &body, &answer);
        }
    }
    logged
}

#[test]
fn ten_thousand_mutations_do_no_harm() {
    let gateway = Gateway::start();
    let logged: u64 = thread::scope(|scope| {
        let gateway = &gateway;
        let clients: Vec<_> = (0..THREADS).map(|seed| scope.spawn(move || client(gateway, seed))).collect();
        clients.into_iter().map(|client| client.join().expect("no client failed")).sum()
    });
    let found = gateway.store.verify(&mut |_, _| {}).expect("verify runs");
    assert_eq!(found.differences, Vec::<String>::new());
    assert_eq!(found.entries, logged, "every entry was told in an answer, and every answer is true");
    assert!(found.entries > 1000 && found.quarantined > 1000, "{found:?}");
    assert_eq!(gateway.get("/healthz").status, 200);
    gateway.stop();
}
