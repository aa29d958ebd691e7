//! What every backend must do, whether or not it was closed and opened again in between.

use serde_json::json;
use tidegate::domain::batch::Unreadable;
use tidegate::domain::decide::{QUARANTINE_ENTRY_BYTES, ReusedBatchId};
use tidegate::domain::ids::{Key, Seq};
use tidegate::domain::reason::{NotApplied, Reason};
use tidegate::domain::receipt::{Counts, Receipt, Status, Why};
use tidegate::domain::signature::KeyFingerprint;
use tidegate::store::{Device, Entry, StoreErrorKind, TimeRange, TrackQuery};

use crate::support::bed::Bed;
use crate::support::tracker::{Tracker, record, records};
use crate::support::{at, device, key};

/// Commits records under a batch id.
fn send(bed: &mut Bed, id: &str, batch_id: &str, epoch_id: Option<u64>, from: u64, to: u64) -> Receipt {
    let tracker = Tracker::new(id);
    let body = tracker.body(batch_id, epoch_id, &records(from, to));
    bed.commit(tracker.upload(&body, at(0))).expect("stored")
}

fn state_of(bed: &mut Bed, id: &str) -> Device {
    bed.store().lookup_device(&device(id)).expect("read").expect("known")
}

fn everything(limit: usize) -> TrackQuery {
    TrackQuery {
        from: key(0, 0),
        to: key(i64::MAX.unsigned_abs(), i64::MAX.unsigned_abs()),
        recorded: TimeRange::default(),
        received: TimeRange::default(),
        limit,
    }
}

fn track(bed: &mut Bed, id: &str, query: &TrackQuery) -> Vec<Entry> {
    let page = bed.store().list_track(&device(id), query).expect("read").expect("known");
    assert_eq!(page.next, None);
    page.entries
}

fn keys(bed: &mut Bed, id: &str) -> Vec<Key> {
    track(bed, id, &everything(100_000)).iter().map(Entry::key).collect()
}

fn counts(receipt: &Receipt) -> Counts {
    receipt.counts.expect("a batch")
}

pub(super) fn a_device_nobody_knows_is_none(bed: &mut Bed) {
    assert_eq!(bed.store().lookup_device(&device("nobody")).expect("read"), None);
    assert_eq!(bed.store().list_track(&device("nobody"), &everything(1)).expect("read"), None);
    assert!(!bed.store().has_devices().expect("read"));
    send(bed, "t", "a", None, 1, 1);
    assert!(bed.store().has_devices().expect("read"));
    assert_eq!(bed.store().lookup_device(&device("nobody")).expect("read"), None);
}

pub(super) fn a_batch_is_stored_whole_and_read_back(bed: &mut Bed) {
    let receipt = send(bed, "t", "a", None, 10_420, 10_439);
    assert_eq!(receipt.status, Status::Processed);
    assert_eq!(counts(&receipt), Counts { accepted: 20, ..Counts::default() });
    assert_eq!((receipt.applied, receipt.reason), (Some(true), None));
    assert_eq!(receipt.last_seq, Seq::new(10_439));
    let stored = state_of(bed, "t");
    let state = stored.state.expect("a state");
    assert_eq!((state.key, state.received_at), (key(0, 10_439), at(0)));
    assert_eq!((stored.revision, stored.last_contact_at), (1, at(0)));
    assert_eq!(keys(bed, "t"), (10_420..=10_439).map(|seq| key(0, seq)).collect::<Vec<_>>());
}

pub(super) fn every_field_of_a_record_reads_back(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    let sent = json!([
        {"seq": 9_223_372_036_854_775_807_u64, "recorded_at": "3236-01-12T23:59:48.5Z", "lat": -0.1, "lon": 179.999_999_9,
         "battery": "n/a", "note": "a\u{0}b", "n": 9_007_199_254_740_993_i64},
        {"seq": 0},
    ]);
    let upload = tracker.upload(&tracker.body("a", None, &sent), at(1));
    let expected: Vec<_> = upload.content.as_ref().expect("a batch").records.iter().rev().cloned().collect();
    bed.commit(upload).expect("stored");
    let entries = track(bed, "t", &everything(10));
    assert_eq!(entries.iter().map(|entry| entry.record.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(entries[1].record.raw.as_deref(), Some(r#"{"battery":"n/a"}"#));
    assert_eq!(entries[1].record.extra.as_deref(), Some(r#"{"n":9007199254740993,"note":"a\u0000b"}"#));
    assert!(entries.iter().all(|entry| entry.received_at == at(1)));
}

pub(super) fn a_retry_is_a_duplicate_and_writes_nothing(bed: &mut Bed) {
    send(bed, "t", "b9f2c8d4-53c1-4828-98e6-71d3df85223a", None, 1, 3);
    let before = state_of(bed, "t");
    let tracker = Tracker::new("t");
    let body = tracker.body("{B9F2C8D453C1482898E671D3DF85223A}", None, &records(1, 3));
    let again = bed.commit(tracker.upload(&body, at(60))).expect("answered");
    assert_eq!((again.status, again.last_seq), (Status::Duplicate, Seq::new(3)));
    let after = state_of(bed, "t");
    assert_eq!(after, Device { last_contact_at: at(60), ..before });
    assert_eq!(keys(bed, "t").len(), 3);
}

pub(super) fn one_batch_id_on_two_devices_is_two_batches(bed: &mut Bed) {
    for id in ["000270", "270"] {
        assert_eq!(send(bed, id, "a", None, 1, 2).status, Status::Processed);
    }
    assert_eq!((keys(bed, "000270").len(), keys(bed, "270").len()), (2, 2));
}

pub(super) fn a_group_sees_its_own_uploads_in_order(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    let upload =
        |batch_id: &str, from, to| tracker.upload(&tracker.body(batch_id, None, &records(from, to)), at(0));
    let group = vec![upload("a", 1, 5), upload("a", 1, 5), upload("b", 4, 7), upload("c", 2, 3)];
    let results = bed.commit_group(&group);
    let receipts: Vec<Receipt> = results.into_iter().map(|result| result.expect("stored")).collect();
    assert_eq!(receipts[1].status, Status::Duplicate);
    assert_eq!((counts(&receipts[2]).accepted, counts(&receipts[2]).repeated), (2, 2));
    assert_eq!(receipts[3].reason, Some(Why::NotApplied(NotApplied::Repeated)));
    assert_eq!(receipts[3].last_seq, Seq::new(7));
}

pub(super) fn the_state_never_moves_backwards(bed: &mut Bed) {
    send(bed, "t", "a", None, 20, 21);
    let before = state_of(bed, "t");
    let late = send(bed, "t", "b", None, 1, 19);
    assert_eq!((late.applied, late.reason), (Some(false), Some(Why::NotApplied(NotApplied::Stale))));
    assert_eq!(state_of(bed, "t"), before, "neither the state nor its revision");
    assert_eq!(keys(bed, "t").len(), 21);
}

pub(super) fn the_position_has_a_key_of_its_own(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    let mut one = |batch_id: &str, record: serde_json::Value| {
        bed.commit(tracker.upload(&tracker.body(batch_id, None, &json!([record])), at(0))).expect("stored")
    };
    one("a", json!({"seq": 10, "lat": 10, "lon": 20}));
    assert_eq!(one("b", json!({"seq": 12, "battery": 3.1})).applied, Some(true));
    assert_eq!(one("c", json!({"seq": 9, "lat": 9, "lon": 20})).applied, Some(false));
    assert_eq!(one("d", json!({"seq": 11, "lat": 11, "lon": 20})).applied, Some(true));
    let stored = state_of(bed, "t");
    let state = stored.state.expect("a state");
    let position = state.position.expect("a position");
    assert_eq!((state.key, state.battery, position.key), (key(0, 12), Some(3.1), key(0, 11)));
    assert_eq!((position.fix.lat.to_string(), stored.revision), ("11".to_owned(), 3));
}

pub(super) fn a_conflict_stands_beside_the_first(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    for (batch_id, lat) in [("a", 11), ("b", 44), ("c", 55), ("d", 44)] {
        let body = tracker.body(batch_id, None, &json!([{"seq": 1, "lat": lat, "lon": 20}]));
        let receipt = bed.commit(tracker.upload(&body, at(0))).expect("stored");
        let (conflicts, repeated) = (counts(&receipt).conflicts, counts(&receipt).repeated);
        assert_eq!(
            (conflicts, repeated),
            match batch_id {
                "a" => (0, 0),
                "d" => (0, 1),
                _ => (1, 0),
            }
        );
    }
    let entries = track(bed, "t", &everything(10));
    assert_eq!((entries.len(), entries[0].conflicts), (1, 2));
    assert_eq!(entries[0].record.fix.map(|fix| fix.lat.to_string()).as_deref(), Some("11"));
    assert_eq!(state_of(bed, "t").conflicts, 2);
}

pub(super) fn overlapping_batches_store_each_record_once(bed: &mut Bed) {
    let mut accepted = 0;
    for (batch_id, from, to) in [("a", 100, 1500), ("b", 1, 120), ("c", 1400, 3000), ("d", 50, 2999)] {
        accepted += counts(&send(bed, "t", batch_id, None, from, to)).accepted;
    }
    assert_eq!(accepted, 3000);
    assert_eq!(keys(bed, "t"), (1..=3000).map(|seq| key(0, seq)).collect::<Vec<_>>());
}

pub(super) fn a_reused_batch_id_is_kept_as_evidence(bed: &mut Bed) {
    send(bed, "t", "a", None, 1, 2);
    let receipt = send(bed, "t", "a", None, 3, 4);
    assert_eq!(receipt.reason, Some(Why::Quarantined(Reason::InconsistentDuplicate)));
    assert_eq!((receipt.status, receipt.last_seq), (Status::Quarantined, Seq::new(2)));
    let stored = state_of(bed, "t");
    assert_eq!((stored.batch_id_reused_at, stored.quarantined), (Some(at(0)), 1));
    assert_eq!(keys(bed, "t").len(), 2);
}

pub(super) fn a_reused_batch_id_may_be_let_in(bed: &mut Bed) {
    bed.options.policy.reused_batch_id = ReusedBatchId::Ingest;
    send(bed, "t", "a", None, 1, 2);
    let receipt = send(bed, "t", "a", None, 2, 4);
    assert_eq!((receipt.status, counts(&receipt).accepted), (Status::Processed, 2));
    assert_eq!(send(bed, "t", "a", None, 2, 4).status, Status::Duplicate);
    assert_eq!(state_of(bed, "t").batch_id_reused_at, Some(at(0)));
    let bare = Tracker::new("t").upload(&Tracker::new("t").body("a", None, &json!([{"seq": 5}])), at(0));
    assert_eq!(bed.commit(bare.clone()).expect("stored").status, Status::Processed);
    send(bed, "t", "b", Some(1), 0, 0);
    assert_eq!(bed.commit(bare).expect("known").status, Status::Duplicate, "also in a later epoch");
}

pub(super) fn identical_rubbish_is_one_entry_with_a_count(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    for second in 0..3 {
        let receipt = bed.commit(tracker.upload_raw(b"{rubbish", at(second))).expect("kept");
        assert_eq!(receipt.reason, Some(Why::Quarantined(Reason::InvalidJson)));
        assert_eq!((receipt.epoch_id, receipt.last_seq), (None, None));
    }
    bed.commit(tracker.upload_raw(b"{other rubbish", at(3))).expect("kept");
    let stored = state_of(bed, "t");
    assert_eq!((stored.quarantined, stored.state, stored.last_contact_at), (2, None, at(3)));
    assert_eq!(keys(bed, "t"), []);
}

pub(super) fn a_full_quarantine_refuses_more_and_keeps_what_it_has(bed: &mut Bed) {
    bed.options.policy.quarantine_bytes_max = 10 + QUARANTINE_ENTRY_BYTES;
    let tracker = Tracker::new("t");
    bed.commit(tracker.upload_raw(b"{rubbish", at(0))).expect("kept");
    let more = bed.commit(tracker.upload_raw(b"{other rubbish", at(1))).expect_err("no room");
    assert_eq!((more.kind(), more.retryable()), (StoreErrorKind::QuarantineFull, true));
    let mixed = tracker.body("a", None, &json!([record(1), {"seq": "x"}]));
    assert!(
        bed.commit(tracker.upload(&mixed, at(2))).is_err(),
        "the good record must not be acknowledged alone"
    );
    assert_eq!(keys(bed, "t"), []);
    bed.commit(tracker.upload_raw(b"{rubbish", at(3))).expect("counted");
    send(bed, "t", "b", None, 1, 2);
    assert_eq!(state_of(bed, "t").quarantined, 1);
}

pub(super) fn an_epoch_opened_by_the_device_raises_a_guard(bed: &mut Bed) {
    send(bed, "t", "a", None, 10_400, 10_420);
    send(bed, "t", "b", Some(1), 0, 2);
    let held = send(bed, "t", "c", None, 10_421, 10_425);
    assert_eq!(held.reason, Some(Why::NotApplied(NotApplied::Held)));
    assert_eq!((counts(&held).accepted, counts(&held).held), (5, 5));
    let retry = send(bed, "t", "d", None, 10_419, 10_421);
    assert_eq!((counts(&retry).repeated, counts(&retry).accepted), (3, 0), "two of the old epoch, one held");
    let stored = state_of(bed, "t");
    assert_eq!(stored.state.map(|state| state.key), Some(key(1, 2)));
    assert_eq!(
        (stored.held, stored.current_epoch_id, stored.guard_old),
        (5, key(1, 0).epoch_id, Seq::new(10_420))
    );
    let guard = stored.guard.expect("a guard");
    assert_eq!((guard.window, guard.next_seq, guard.raised_at), (1000, Seq::ZERO, at(0)));
    assert_eq!(keys(bed, "t").len(), 24, "held entries are not shown");
}

pub(super) fn a_lifted_mark_lets_entries_count(bed: &mut Bed) {
    send(bed, "t", "a", None, 10_420, 10_420);
    send(bed, "t", "b", Some(1), 0, 0);
    send(bed, "t", "c", None, 9_000, 9_010);
    let lifted = send(bed, "t", "d", Some(1), 9_004, 9_005);
    assert_eq!((counts(&lifted).repeated, lifted.applied), (2, Some(true)));
    assert_eq!(lifted.last_seq, Seq::new(9_005));
    let stored = state_of(bed, "t");
    assert_eq!((stored.held, stored.state.map(|state| state.key)), (9, Some(key(1, 9_005))));
    assert_eq!(keys(bed, "t"), [key(0, 10_420), key(1, 0), key(1, 9_004), key(1, 9_005)]);
    let spans = |bed: &mut Bed| bed.store().verify(&mut |_, _| {}).expect("verify runs").spans;
    assert_eq!(spans(bed), 5, "neighbours are lifted together: their span is cut in three");
    send(bed, "t", "e", Some(1), 9_000, 9_010);
    assert_eq!((state_of(bed, "t").held, keys(bed, "t").len(), spans(bed)), (0, 13, 5));
}

pub(super) fn a_lifted_entry_may_displace_the_position(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    let send = |bed: &mut Bed, id: &str, epoch_id: Option<u64>, records: serde_json::Value| {
        bed.commit(tracker.upload(&tracker.body(id, epoch_id, &records), at(0))).expect("stored")
    };
    let position = |bed: &mut Bed| {
        let position = state_of(bed, "t").state.expect("a state").position;
        position.map(|position| (position.key, position.fix.lat))
    };
    let fix = |seq: u64, lat: f64| json!({"seq": seq, "lat": lat, "lon": 1.0});
    send(bed, "a", None, json!([fix(20_000, 1.0)]));
    send(bed, "b", Some(1), json!([fix(3, 2.0)]));
    send(bed, "c", None, json!([{"seq": 9_000}, {"seq": 9_001, "battery": 3.0}, fix(9_002, 3.0)]));
    send(bed, "d", Some(1), json!([fix(9_000, 4.0), fix(9_001, 5.0)]));
    assert_eq!(position(bed), Some((key(1, 9_001), 5.0)));
    send(bed, "e", Some(1), json!([{"seq": 9_000}]));
    assert_eq!(position(bed), Some((key(1, 9_001), 5.0)), "that was not the position's key");
    send(bed, "f", Some(1), json!([{"seq": 9_001, "battery": 3.0}]));
    assert_eq!(position(bed), Some((key(1, 3), 2.0)), "what came first has no fix: an older one holds");
    assert_eq!(state_of(bed, "t").state.and_then(|state| state.battery), Some(3.0));
    send(bed, "g", Some(1), json!([fix(9_002, 3.0)]));
    assert_eq!(position(bed), Some((key(1, 9_002), 3.0)));
}

pub(super) fn devices_are_listed_in_pages_by_id(bed: &mut Bed) {
    for id in ["b", "a", "B", "10", "9"] {
        send(bed, id, "a", None, 1, 1);
    }
    let page = bed.store().list_devices(None, 3).expect("read");
    let ids = |page: &tidegate::store::DevicePage| {
        page.devices.iter().map(|device| device.device_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!((ids(&page), page.more, page.cursor), (vec!["10".into(), "9".into(), "B".into()], true, 5));
    let rest = bed.store().list_devices(Some(&device("B")), 3).expect("read");
    assert_eq!((ids(&rest), rest.more), (vec!["a".into(), "b".into()], false));
}

pub(super) fn a_track_is_read_in_pages_by_key(bed: &mut Bed) {
    send(bed, "t", "a", Some(2), 1, 10);
    send(bed, "t", "b", Some(5), 1, 2);
    send(bed, "t", "c", Some(2), 5_000_000, 5_000_001);
    let mut query = everything(4);
    let mut found = Vec::new();
    loop {
        let page = bed.store().list_track(&device("t"), &query).expect("read").expect("known");
        assert!(page.entries.len() <= 4);
        found.extend(page.entries.iter().map(Entry::key));
        let Some(next) = page.next else { break };
        query.from = next;
    }
    let mut expected: Vec<Key> = (1..=10).map(|seq| key(2, seq)).collect();
    expected.extend([key(2, 5_000_000), key(2, 5_000_001), key(5, 1), key(5, 2)]);
    assert_eq!(found, expected);
}

pub(super) fn a_track_is_narrowed_by_key_and_time(bed: &mut Bed) {
    send(bed, "t", "a", Some(1), 1, 10);
    send(bed, "t", "b", Some(2), 1, 10);
    let tracker = Tracker::new("t");
    let untimed = tracker.body("c", Some(2), &json!([{"seq": 11}]));
    bed.commit(tracker.upload(&untimed, at(9))).expect("stored");
    let some = |from, to| TrackQuery { from, to, ..everything(100) };
    let found =
        |bed: &mut Bed, query: &TrackQuery| track(bed, "t", query).iter().map(Entry::key).collect::<Vec<_>>();
    assert_eq!(found(bed, &some(key(1, 9), key(2, 2))), [key(1, 9), key(1, 10), key(2, 1), key(2, 2)]);
    assert_eq!(found(bed, &some(key(1, 11), key(1, 99))), []);
    let recorded = TimeRange { from: Some(at(120)), to: Some(at(180)) };
    let by_time = TrackQuery { recorded, ..everything(100) };
    assert_eq!(found(bed, &by_time), [key(1, 2), key(1, 3), key(2, 2), key(2, 3)]);
    let received = TimeRange { from: Some(at(1)), to: None };
    assert_eq!(found(bed, &TrackQuery { received, ..everything(100) }), [key(2, 11)]);
}

pub(super) fn sparse_and_huge_seqs_are_found_again(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    let seqs: Vec<u64> =
        vec![0, 1, 1023, 1024, 1025, 5000, 1 << 40, i64::MAX.unsigned_abs() - 1, i64::MAX.unsigned_abs()];
    let sent: Vec<_> = seqs.iter().map(|seq| record(*seq)).collect();
    let body = tracker.body("a", None, &json!(sent));
    assert_eq!(counts(&bed.commit(tracker.upload(&body, at(0))).expect("stored")).accepted, 9);
    let again = tracker.body("b", None, &json!(sent));
    assert_eq!(counts(&bed.commit(tracker.upload(&again, at(0))).expect("stored")).repeated, 9);
    assert_eq!(keys(bed, "t"), seqs.iter().map(|seq| key(0, *seq)).collect::<Vec<_>>());
}

pub(super) fn large_records_make_short_pages(bed: &mut Bed) {
    let tracker = Tracker::new("t");
    let note = "x".repeat(600 << 10);
    for seq in 0..5 {
        let body = tracker.body(&format!("b{seq}"), None, &json!([{"seq": seq, "note": note}]));
        bed.commit(tracker.upload(&body, at(0))).expect("stored");
    }
    let (mut from, mut pages) = (Some(key(0, 0)), Vec::new());
    while let Some(start) = from {
        let query = TrackQuery { from: start, ..everything(100) };
        let page = bed.store().list_track(&device("t"), &query).expect("read").expect("known");
        pages.push(page.entries.iter().map(|entry| entry.record.seq.get()).collect::<Vec<_>>());
        from = page.next;
    }
    assert_eq!(pages, [vec![0, 1], vec![2, 3], vec![4]], "a page is bounded in bytes too");
}

pub(super) fn fleet_keys_are_remembered(bed: &mut Bed) {
    let [one, two, three] = [1, 2, 3].map(|n| KeyFingerprint([n; 4]));
    assert!(bed.store().adopt_fleet_keys(&[one]).expect("read"), "a fresh store takes any");
    assert!(bed.store().adopt_fleet_keys(&[two, one]).expect("read"), "rotation: one is known");
    assert!(bed.store().adopt_fleet_keys(&[two]).expect("read"));
    assert!(bed.store().adopt_fleet_keys(&[three]).expect("read"), "nobody is there to be locked out");
    send(bed, "t", "a", None, 1, 1);
    assert!(bed.store().adopt_fleet_keys(&[three]).expect("read"));
    let four = KeyFingerprint([4; 4]);
    assert!(!bed.store().adopt_fleet_keys(&[four]).expect("read"), "the fleet would be locked out");
    assert!(!bed.store().adopt_fleet_keys(&[four]).expect("read"), "and was not remembered");
    assert!(state_of(bed, "t").fleet_key.is_some());
}

pub(super) fn a_body_that_names_no_device_is_kept(bed: &mut Bed) {
    bed.options.policy.quarantine_bytes_max = 100 + QUARANTINE_ENTRY_BYTES;
    let mut unnamed = |body: &'static [u8]| {
        let mut upload = Tracker::new("t").upload_raw(body, at(0));
        upload.device_id = None;
        assert!(matches!(&upload.content, Err(Unreadable { device_id: None, .. })));
        bed.commit(upload)
    };
    for _ in 0..2 {
        assert_eq!(unnamed(b"rubbish").expect("kept").status, Status::Quarantined);
    }
    assert_eq!(unnamed(b"more rubbish").expect_err("no room").kind(), StoreErrorKind::QuarantineFull);
    assert!(!bed.store().has_devices().expect("read"));
}
