//! More contents of one key than are logged.

use std::collections::HashMap;

use super::*;

/// Contents of one key, told apart by the numbers of a range.
fn versions(n: u64, contents: std::ops::Range<u32>) -> Vec<Record> {
    contents.map(|content| record(n, content)).collect()
}

/// The same batch in as many spellings as there are notes.
fn spelled(id: &str, epoch_id: Option<u64>, records: &[Record], note: &str) -> Upload {
    let extra = Some(format!("{{\"note\":\"{note}\"}}").into());
    upload(Ok(Batch { extra, ..batch(id, epoch_id, records.to_vec()) }), 1_000)
}

fn ingest(ledger: &mut Ledger, upload: &Upload) -> Receipt {
    let receipt = ledger.ingest(upload).expect("room");
    ledger.check();
    receipt
}

const MAX: u32 = 256;

#[test]
fn a_stuck_counter_fills_its_key_and_then_the_quarantine() {
    let mut ledger = Ledger::default();
    for (id, (sent, expected)) in [
        // Contents sent: accepted, repeated, conflicts, quarantined; entries of the quarantine afterwards.
        (1..2, (1, 0, 0, 0, 0)),
        (1..101, (0, 1, 99, 0, 0)),
        (100..MAX, (0, 1, 155, 0, 0)),
        (MAX..MAX + 2, (0, 0, 1, 1, 1)),
        (MAX..MAX + 1, (0, 1, 0, 0, 1)),
        (1..MAX + 1, (0, 256, 0, 0, 1)),
        (MAX..MAX + 4, (0, 1, 0, 3, 3)),
        (1..MAX + 5, (0, 256, 0, 4, 4)),
    ]
    .into_iter()
    .enumerate()
    {
        let receipt = ingest(&mut ledger, &spelled(&id.to_string(), None, &versions(7, sent.clone()), ""));
        let counts = counts(&receipt);
        let kept = ledger.quarantined.len();
        let found = (counts.accepted, counts.repeated, counts.conflicts, counts.quarantined, kept);
        assert_eq!((receipt.status, found), (Status::Processed, expected), "{sent:?}");
    }
    assert_eq!((ledger.entries.len(), ledger.conflicts), (256, 255));
}

#[test]
fn one_batch_may_bring_too_many_and_its_neighbours_go_on() {
    let mut ledger = Ledger::default();
    // Out of order, one content twice among those logged and one among those too many.
    let records = [
        versions(9, 1..2),
        versions(7, 1..MAX + 3),
        versions(7, 5..6),
        versions(7, MAX + 2..MAX + 3),
        versions(8, 1..3),
    ];
    let first = ingest(&mut ledger, &spelled("a", None, &records.concat(), ""));
    let expected = Counts { accepted: 3, repeated: 1, conflicts: 256, held: 0, quarantined: 3 };
    assert_eq!((counts(&first), first.last_seq), (expected, Some(seq(9))));
    let bytes = ledger.facts().quarantined_bytes;
    assert_eq!((ledger.quarantined.len(), bytes > 2 * QUARANTINE_ENTRY_BYTES), (2, true));
    let again = ingest(&mut ledger, &spelled("b", None, &records.concat(), ""));
    let expected = Counts { accepted: 0, repeated: 260, conflicts: 0, held: 0, quarantined: 3 };
    assert_eq!(
        (counts(&again), ledger.facts().quarantined_bytes),
        (expected, bytes),
        "counted, not kept again"
    );
}

#[test]
fn a_batch_whose_surplus_is_in_quarantine_brings_nothing_new() {
    for (policy, other) in
        [(ReusedBatchId::Quarantine, Status::Quarantined), (ReusedBatchId::Ingest, Status::Processed)]
    {
        let policy = Policy { reused_batch_id: policy, ..Policy::default() };
        let mut ledger = Ledger { policy, ..Ledger::default() };
        let records = versions(7, 1..MAX + 10);
        ingest(&mut ledger, &spelled("a", None, &records, ""));
        let again = ingest(&mut ledger, &spelled("a", None, &records, "another spelling"));
        assert_eq!((again.status, ledger.quarantined.len(), ledger.reused), (Status::Duplicate, 9, false));
        let more = ingest(&mut ledger, &spelled("a", None, &versions(7, 1..MAX + 11), ""));
        assert_eq!((more.status, ledger.quarantined.len(), ledger.reused), (other, 10, true));
    }
}

#[test]
fn a_full_quarantine_takes_no_surplus_either() {
    let mut ledger = Ledger::default();
    ingest(&mut ledger, &spelled("a", None, &versions(7, 1..MAX + 2), ""));
    ledger.policy.quarantine_bytes_max = ledger.facts().quarantined_bytes;
    let mixed = [versions(7, MAX + 2..MAX + 3), versions(8, 1..2)].concat();
    assert_eq!(ledger.ingest(&spelled("b", None, &mixed, "")), Err(QuarantineFull));
    assert_eq!(ledger.entries.len(), 256, "the good record must not be acknowledged alone");
    let known = ingest(&mut ledger, &spelled("c", None, &versions(7, MAX + 1..MAX + 2), ""));
    assert_eq!(counts(&known).quarantined, 1, "it was there");
    assert_eq!(known.reason, Some(Why::NotApplied(NotApplied::Quarantined)));
}

#[test]
fn surplus_records_are_written_out_with_their_place() {
    let unusable = |index: usize| UnusableRecord {
        index,
        reason: Reason::RecordInvalid,
        detail: String::new(),
        bytes: index.to_string().into_bytes(),
        hash: body_hash(index.to_string().as_bytes()),
    };
    // In the array: 256 logged ones with an unusable one among them, a surplus, an unusable, two surplus ones.
    let records = versions(7, 1..MAX + 4);
    let body = Batch { unusable: vec![unusable(3), unusable(258)], ..batch("a", Some(4), records.clone()) };
    let sent = upload(Ok(body), 1_000);
    let plan = decide(&sent, &Snapshot::unseen(epoch(4)), &Policy::default()).expect("room");
    let surplus: Vec<_> = plan.quarantine.iter().filter(|q| q.reason == Reason::TooManyConflicts).collect();
    let places: Vec<_> = surplus.iter().map(|q| q.index).collect();
    assert_eq!((plan.quarantine.len(), places), (5, vec![Some(257), Some(259), Some(260)]));
    for (entry, record) in surplus.iter().zip(&records[256..]) {
        let text = to_json(record).into_bytes();
        assert_eq!((entry.hash, entry.len), (body_hash(&text), text.len() as u64));
        assert_eq!((&entry.bytes, entry.epoch_id), (&QuarantinedBytes::Written(text), epoch(4)));
    }
}

#[test]
fn marked_versions_take_up_room_and_are_lifted_all_the_same() {
    let mut ledger = Ledger::default();
    send(&mut ledger, "a", None, &[10_420]);
    send(&mut ledger, "b", Some(1), &[0]);
    let held = ingest(&mut ledger, &spelled("c", None, &versions(9_000, 1..MAX + 2), ""));
    let expected = Counts { accepted: 256, held: 256, quarantined: 1, ..Counts::default() };
    assert_eq!(counts(&held), expected);
    let lifted = ingest(&mut ledger, &spelled("d", Some(1), &versions(9_000, MAX - 1..MAX + 2), ""));
    assert_eq!((counts(&lifted).repeated, counts(&lifted).quarantined, lifted.applied), (2, 1, Some(true)));
    assert_eq!((ledger.held, ledger.conflicts), (254, 1));
}

#[test]
fn nothing_is_asked_for_where_no_key_can_have_too_many() {
    let stored = |n, row| StoredEntry { row, seq: seq(n), record: None, mark: None };
    let run = |n: u64, many: i64| (0..many).map(move |row| stored(n, row));
    for (sent, same_key, expected) in [
        (versions(7, 1..257), vec![], 0),
        (versions(7, 1..258), vec![], 1),
        ((0..2_000).map(|n| record(n, 1)).collect(), vec![], 0),
        ((0..2_000).rev().map(|n| record(n, 1)).collect(), vec![], 0),
        ((0..300).map(|n| record(n, 1)).collect(), run(7, 255).collect(), 0),
        (vec![record(7, 1)], run(7, 256).collect(), 1),
        (vec![record(7, 1)], run(6, 200).chain(run(7, 200)).collect(), 0),
        (vec![record(7, 1), record(8, 1)], run(6, 256).chain(run(7, 256)).collect(), 1),
    ] {
        let snapshot = Snapshot { same_key, ..Snapshot::unseen(epoch(0)) };
        let sent = upload(Ok(batch("a", None, sent)), 1_000);
        let found = surplus_candidates(&sent, &snapshot, &Policy::default());
        assert_eq!(found.len(), expected, "{} stored", snapshot.same_key.len());
    }
}

proptest! {
    /// Whatever comes: no key has more versions than are taken, and every record is in the log or in quarantine.
    #[test]
    fn no_key_grows_without_bound(
        batches in proptest::collection::vec((0_u8..3, 0_u64..3, 1_u32..400, 1_u32..300), 1..6),
    ) {
        let mut ledger = Ledger::default();
        for (note, (id, n, first, many)) in batches.into_iter().enumerate() {
            let mut records = versions(n, first..first + many);
            records.push(record(1, first));
            let receipt = ingest(&mut ledger, &spelled(&id.to_string(), None, &records, &note.to_string()));
            let mut of_key = HashMap::new();
            ledger.entries.iter().for_each(|entry| *of_key.entry(entry.record.seq).or_insert(0) += 1);
            prop_assert!(of_key.values().all(|versions| *versions <= VERSIONS_MAX));
            if receipt.status == Status::Processed {
                let counts = counts(&receipt);
                let sum = counts.accepted + counts.repeated + counts.conflicts + counts.quarantined;
                prop_assert_eq!(sum, records.len() as u64);
            }
            if receipt.status != Status::Quarantined {
                let kept = |record| (body_hash(to_json(record).as_bytes()), Reason::TooManyConflicts);
                let logged = |record: &Record| ledger.entries.iter().any(|entry| entry.record == *record);
                prop_assert!(records.iter().all(|record| logged(record) || ledger.quarantined.contains(&kept(record))));
            }
        }
    }
}
