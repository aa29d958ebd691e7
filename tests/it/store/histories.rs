//! Random histories against a real store: the law and the books hold after every commit, nothing is lost, and
//! the store says the same as the decision's own in-memory ledger would (which has its own tests).

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate::domain::receipt::Status;

use crate::support::at;
use crate::support::bed::Bed;
use crate::support::tracker::Tracker;

#[derive(Clone, Debug)]
struct Sent {
    device: u8,
    batch: u8,
    epoch_id: Option<u64>,
    records: Vec<(u64, u8)>,
}

fn any_sent() -> impl Strategy<Value = Sent> {
    let epoch_id = prop_oneof![3 => Just(None), 1 => (0_u64..4).prop_map(Some)];
    let seqs = prop_oneof![4 => 0_u64..40, 1 => 1_000_u64..1_040, 1 => 9_000_u64..9_020, 1 => Just(1 << 62)];
    let records = proptest::collection::vec((seqs, 0_u8..4), 0..8);
    (0_u8..2, 0_u8..16, epoch_id, records).prop_map(|(device, batch, epoch_id, records)| Sent {
        device,
        batch,
        epoch_id,
        records,
    })
}

/// Content 0 has neither time nor fix, 3 cannot be used.
fn record((seq, content): &(u64, u8)) -> Value {
    match content {
        0 => json!({"seq": seq}),
        3 => json!({"seq": seq, "lat": 912, "lon": 1}),
        n => json!({"seq": seq, "recorded_at": n, "lat": n, "lon": 1}),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn the_books_balance_after_every_commit(groups in proptest::collection::vec(proptest::collection::vec(any_sent(), 1..4), 1..8)) {
        let mut bed = Bed::sqlite();
        let mut second = 0;
        for group in groups {
            let uploads = group.iter().map(|sent| {
                second += 1;
                let tracker = Tracker::new(&format!("t{}", sent.device));
                let records: Vec<Value> = sent.records.iter().map(record).collect();
                tracker.upload(&tracker.body(&sent.batch.to_string(), sent.epoch_id, &json!(records)), at(second))
            });
            let uploads: Vec<_> = uploads.collect();
            for (sent, result) in group.iter().zip(bed.commit_group(&uploads)) {
                let receipt = result.expect("stored");
                if receipt.status == Status::Processed {
                    let counts = receipt.counts.expect("a batch");
                    let all = counts.accepted + counts.repeated + counts.conflicts + counts.quarantined;
                    prop_assert_eq!(all, sent.records.len() as u64);
                }
            }
        }
    }
}
