//! An upload that fails half-way is quarantined, and its neighbours in the group go on.

use tidegate::domain::ids::BatchId;
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
    let poisoned = BatchId::parse("poisoned").expect("printable").to_key();
    assert_eq!(poisoned, b"\0poisoned");
    let trigger = "CREATE TRIGGER refuse BEFORE INSERT ON log_spans \
                   WHEN NEW.batch_id = CAST(char(0) || 'poisoned' AS BLOB) BEGIN SELECT RAISE(ABORT, 'refused'); END";
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

/// Written back into the database, the log starts again from the front: it does not grow with what is stored.
#[test]
fn the_write_ahead_log_is_written_back() {
    let mut bed = Bed::sqlite();
    bed.options.checkpoint_pages = 64;
    let StoreUrl::Sqlite(path) = bed.url.clone();
    let wal = path.with_extension("db-wal");
    let tracker = Tracker::new("t");
    let store = bed.store();
    let mut largest = 0;
    for n in 0..200 {
        let upload =
            tracker.upload(&tracker.body(&n.to_string(), None, &records(n * 20, n * 20 + 19)), at(0));
        assert!(store.commit_uploads(&[upload]).iter().all(Result::is_ok));
        store.maintain().expect("a checkpoint");
        largest = largest.max(std::fs::metadata(&wal).expect("the log").len());
    }
    let database = std::fs::metadata(&path).expect("the database").len();
    // A page and its frame's header, 64 of them and the pages of one more group.
    assert!(largest < (64 + 32) * (4096 + 24), "{largest}");
    assert!(database > 200 * 20 * 40, "the records are in the database itself: {database}");
    drop(store);
    bed.verify();
}
