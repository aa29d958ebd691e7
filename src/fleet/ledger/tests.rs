use serde_json::{Value, json};

use super::*;
use crate::domain::ids::Seq;
use crate::domain::record::Fix;
use crate::domain::time::Timestamp;
use crate::fleet::{Encoding, Style};

fn device() -> DeviceId {
    DeviceId::parse("buoy").expect("an id")
}

fn record(seq: u64, lat: Option<f64>, battery: f64) -> Record {
    Record {
        seq: Seq::new(seq).expect("in range"),
        recorded_at: Timestamp::from_seconds(1_774_930_320),
        fix: lat.map(|lat| Fix { lat, lon: -30.5 }),
        battery: Some(battery),
        extra: None,
        raw: None,
    }
}

fn parcel(name: &str, epoch_id: u64, records: &[Record]) -> Parcel {
    let readings = records.iter().cloned().map(Reading::Usable).collect();
    let (batch_id, epoch_id) = (BatchId::parse(name).expect("an id"), EpochId::new(epoch_id));
    Parcel::pack(&device(), batch_id, epoch_id, readings, Style::Plain, Encoding::default()).expect("packs")
}

/// Two epochs, a conflict on the newest key, a newest record without a position.
fn books() -> Ledger {
    let mut ledger = Ledger::new(device());
    ledger.receive(&parcel("a", 1, &[record(7, Some(10.0), 3.7), record(8, Some(10.5), 3.6)]));
    ledger.receive(&parcel("b", 2, &[record(0, Some(20.0), 4.0), record(1, None, 3.9)]));
    ledger.receive(&parcel("c", 2, &[record(1, Some(50.0), 3.1)]));
    ledger
}

fn state() -> Value {
    json!({
        "device_id": "buoy", "epoch_id": 2, "last_seq": 1, "battery": 3.9, "recorded_at": "2026-03-31T04:12:00Z",
        "position_epoch_id": 2, "position_seq": 0, "lat": 20.0, "lon": -30.5,
        "position_recorded_at": "2026-03-31T04:12:00.000Z", "current_epoch_id": 2, "held": 0, "conflicts": 1,
        "quarantined": 0,
    })
}

fn track() -> Vec<Value> {
    let at = "2026-03-31T04:12:00Z";
    vec![
        json!({"epoch_id": 1, "seq": 7, "recorded_at": at, "lat": 10.0, "lon": -30.5, "battery": 3.7}),
        json!({"epoch_id": 1, "seq": 8, "recorded_at": at, "lat": 10.5, "lon": -30.5, "battery": 3.6}),
        json!({"epoch_id": 2, "seq": 0, "recorded_at": at, "lat": 20, "lon": -30.5, "battery": 4.0}),
        json!({"epoch_id": 2, "seq": 1, "recorded_at": at, "battery": 3.9, "conflicts": 1}),
    ]
}

fn differences(track: &[Value]) -> Vec<String> {
    let (ledger, mut told) = (books(), Vec::new());
    let mut check = ledger.check_track();
    for record in track {
        check.record(record, &mut |why| told.push(why));
    }
    check.end(&mut |why| told.push(why));
    told
}

#[test]
fn accounts_follow_the_contract() {
    let mut ledger = Ledger::new(device());
    let counts = |account: Account| {
        let Account { accepted, repeated, conflicts, quarantined, .. } = account;
        (
            [accepted, repeated, conflicts, quarantined],
            account.applied,
            account.state.map(|key| key.seq.get()),
        )
    };
    let heartbeat = parcel("h", 1, &[]);
    assert_eq!(counts(ledger.receive(&heartbeat)), ([0; 4], false, None));
    let first = parcel("a", 1, &[record(7, Some(1.0), 3.0), record(8, None, 3.0)]);
    assert_eq!(counts(ledger.receive(&first)), ([2, 0, 0, 0], true, Some(8)));
    let again = ledger.receive(&first);
    assert_eq!((again.status, counts(again)), (Status::Duplicate, ([0; 4], false, Some(8))));
    let overlap =
        parcel("b", 1, &[record(8, None, 3.0), record(8, Some(2.0), 3.0), record(6, Some(2.0), 3.0)]);
    assert_eq!(counts(ledger.receive(&overlap)), ([1, 1, 1, 0], false, Some(8)), "equal does not win");
    let conflict_repeated = parcel("c", 1, &[record(8, Some(2.0), 3.0)]);
    assert_eq!(counts(ledger.receive(&conflict_repeated)), ([0, 1, 0, 0], false, Some(8)));
    let old_epoch = parcel("d", 0, &[record(900, Some(3.0), 3.0)]);
    assert_eq!(counts(ledger.receive(&old_epoch)), ([1, 0, 0, 0], false, Some(8)), "epochs order first");
    let mut spoiled = parcel("e", 1, &[record(9, None, 3.0)]);
    spoiled.readings.push(Reading::Unusable("{}".to_owned()));
    assert_eq!(counts(ledger.receive(&spoiled)), ([1, 0, 0, 1], true, Some(9)));
    assert_eq!(ledger.keys(), 5);
}

#[test]
fn a_true_state_and_track_have_no_differences() {
    assert_eq!(books().check_state(&state()), Vec::<String>::new());
    assert_eq!(differences(&track()), Vec::<String>::new());
    let nothing =
        json!({"device_id": "buoy", "current_epoch_id": 0, "held": 0, "conflicts": 0, "quarantined": 0});
    assert_eq!(Ledger::new(device()).check_state(&nothing), Vec::<String>::new(), "a state of nulls");
}

#[test]
fn every_field_of_a_state_is_compared() {
    let fields: Vec<String> = state().as_object().expect("an object").keys().cloned().collect();
    for field in fields {
        let mut wrong = state();
        wrong[&field] = if wrong[&field].is_string() { json!("2001-01-01T00:00:00Z") } else { json!(42) };
        let told = books().check_state(&wrong);
        assert_eq!(told.len(), 1, "{field}: {told:?}");
        assert!(told[0].starts_with(&format!("device buoy at epoch 2 seq 1: {field} is ")), "{}", told[0]);
        let mut gone = state();
        gone[&field] = Value::Null;
        assert_eq!(books().check_state(&gone).len(), 1, "{field} gone");
    }
}

#[test]
fn every_field_of_a_track_is_compared() {
    for (place, record) in track().iter().enumerate() {
        for field in ["recorded_at", "lat", "lon", "battery", "extra", "raw", "conflicts"] {
            let mut wrong = track();
            wrong[place][field] = match field {
                "recorded_at" => json!("2026-03-31T06:12:00+02:00"),
                "extra" | "raw" => json!({"speed": 4}),
                _ => json!(42),
            };
            let told = differences(&wrong);
            let key =
                format!("device buoy at epoch {} seq {}: {field} is", record["epoch_id"], record["seq"]);
            assert!(told.len() == 1 && told[0].starts_with(&key), "{told:?}");
        }
        let mut short = track();
        short.remove(place);
        let told = differences(&short);
        assert!(told.len() == 1 && told[0].ends_with("missing from the track"), "{told:?}");
    }
}

#[test]
fn what_does_not_belong_into_a_track_is_told() {
    let with = |place: usize, record: Value| {
        let mut track = track();
        track.insert(place, record);
        differences(&track)
    };
    for (told, expected) in [
        (
            with(2, json!({"epoch_id": 1, "seq": 9})),
            "device buoy at epoch 1 seq 9: stands in the track, but was never sent",
        ),
        (
            with(1, track()[0].clone()),
            "device buoy at epoch 1 seq 7: stands twice in the track, or out of order",
        ),
        (with(4, json!({"seq": 9})), "device buoy: the track has a record without a key: {\"seq\":9}"),
    ] {
        assert_eq!(told, [expected]);
    }
}

#[test]
fn receipts_are_compared() {
    let mut ledger = Ledger::new(device());
    let first = parcel("a", 1, &[record(7, Some(1.0), 3.0)]);
    let account = ledger.receive(&first);
    let receipt =
        json!({"status": "processed", "accepted": 1, "applied": true, "epoch_id": 1, "last_seq": 7});
    let duplicate =
        json!({"status": "duplicate", "accepted": 0, "applied": false, "epoch_id": 1, "last_seq": 7});
    assert_eq!(ledger.check_receipt(&account, &receipt, false), None);
    assert_eq!(ledger.check_receipt(&account, &duplicate, true), None, "perhaps it had arrived before");
    assert!(ledger.check_receipt(&account, &duplicate, false).is_some());
    for (field, value) in [
        ("status", json!("quarantined")),
        ("accepted", json!(2)),
        ("repeated", json!(1)),
        ("held", json!(1)),
        ("applied", json!(false)),
        ("last_seq", json!(8)),
        ("epoch_id", Value::Null),
    ] {
        let mut wrong = receipt.clone();
        wrong[field] = value;
        for perhaps in [false, true] {
            let told = ledger.check_receipt(&account, &wrong, perhaps);
            assert!(told.is_some_and(|told| told.contains("epoch 1 seq 7")), "{field}");
        }
    }
    let again = ledger.receive(&first);
    assert_eq!(ledger.check_receipt(&again, &duplicate, false), None);
    assert!(
        ledger.check_receipt(&again, &receipt, true).is_some(),
        "a duplicate must not be processed again"
    );
}
