//! An upload that fails half-way is quarantined, and its neighbours in the group go on.

use tidegate::domain::reason::Reason;
use tidegate::domain::receipt::{Status, Why};
use tidegate::store::{StoreUrl, open};

use crate::support::bed::Bed;
use crate::support::tracker::{Tracker, records};
use crate::support::{at, device};

#[test]
fn an_upload_that_fails_half_way_fails_alone() {
    let mut bed = Bed::sqlite();
    drop(open::open(&bed.url, &bed.options).expect("the store opens"));
    // The database itself refuses one span, when the batch id and the rows of its upload are written already.
    let StoreUrl::Sqlite(path) = &bed.url;
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON log_spans WHEN CAST(substr(NEW.batch_id, 2) AS TEXT) = 'poisoned' \
                   BEGIN SELECT RAISE(ABORT, 'refused'); END";
    rusqlite::Connection::open(path).expect("opens").execute_batch(trigger).expect("a trigger");

    let upload = |id: &str, batch_id: &str, from, second| {
        let tracker = Tracker::new(id);
        tracker.upload(&tracker.body(batch_id, None, &records(from, from + 4)), at(second))
    };
    let group = vec![
        upload("a", "first", 1, 0),
        upload("b", "poisoned", 1, 1),
        upload("a", "second", 6, 2),
        upload("b", "third", 1, 3),
    ];
    let receipts: Vec<_> =
        bed.commit_group(&group).into_iter().map(|result| result.expect("a receipt")).collect();
    let statuses: Vec<_> = receipts.iter().map(|receipt| receipt.status).collect();
    assert_eq!(
        statuses,
        [Status::Processed, Status::Quarantined, Status::Processed, Status::Processed],
        "the neighbours go on"
    );
    assert_eq!(receipts[1].reason, Some(Why::Quarantined(Reason::InternalError)));
    for (id, last_seq, quarantined) in [("a", 10, 0), ("b", 5, 1)] {
        let found = bed.store().lookup_device(&device(id)).expect("reads").expect("is known");
        assert_eq!(found.state.map(|state| state.key.seq.get()), Some(last_seq), "{id}");
        assert_eq!(found.quarantined, quarantined, "{id}");
    }
}
