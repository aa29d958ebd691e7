//! What a shutdown finishes and what it cuts.

use std::time::Duration;

use tidegate::domain::ids::DeviceId;

use super::harness::{Gateway, batch, upload};

#[test]
fn idle_connections_do_not_hold_it_up() {
    let gateway = Gateway::start_with(|http| http.drain = Duration::from_hours(1));
    let mut idle = gateway.connect();
    idle.send("GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(idle.answer().status, 200);
    gateway.stop();
    assert!(idle.is_closed());
}

#[test]
fn unfinished_bodies_are_cut_after_the_drain() {
    let gateway = Gateway::start_with(|http| http.drain = Duration::from_millis(1));
    let request = upload("a", &batch("a", "x", None, &[1]), "Expect: 100-continue\r\n");
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let mut client = gateway.connect();
    client.send(format!("{head}\r\n\r\n"));
    assert_eq!(client.answer().status, 100);
    client.send(&body[..10]);
    let (store, _folder) = gateway.stop();
    assert!(client.is_over());
    assert!(!store.has_devices().expect("readable"));
}

#[test]
fn an_upload_whose_client_left_is_committed() {
    let gateway = Gateway::start();
    for n in 0..20 {
        let id = format!("d{n}");
        let mut client = gateway.connect();
        client.send(upload(&id, &batch(&id, "x", None, &[1]), ""));
        // Leaves without waiting for the answer.
        drop(client);
    }
    while (0..20).any(|n| gateway.get(&format!("/v1/devices/d{n}")).status != 200) {
        std::thread::yield_now();
    }
    gateway.stop();
}

#[test]
fn whatever_was_read_is_answered() {
    let gateway = Gateway::start();
    let mut clients: Vec<_> = (0..50)
        .map(|n| {
            let id = format!("d{n}");
            let mut client = gateway.connect();
            let request = upload(&id, &batch(&id, "x", None, &[1]), "Expect: 100-continue\r\n");
            let (head, body) = request.split_once("\r\n\r\n").expect("a body");
            client.send(format!("{head}\r\n\r\n"));
            // The gateway is reading this body when the shutdown comes.
            assert_eq!(client.answer().status, 100);
            client.send(body);
            client
        })
        .collect();
    let (store, _folder) = gateway.stop();
    for (n, client) in clients.iter_mut().enumerate() {
        assert_eq!(client.answer().status, 200);
        let id = DeviceId::parse(&format!("d{n}")).expect("an id");
        assert!(store.lookup_device(&id).expect("readable").is_some());
    }
}
