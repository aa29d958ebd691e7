use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::domain::batch::Limits;
use crate::domain::decode;
use crate::domain::receipt::Status;
use crate::fleet::Ledger;

const BAD: Rates = Rates { loss: 0.3, duplicate: 0.3, reorder: 0.3 };
const FINE: Rates = Rates { loss: 0.0, duplicate: 0.0, reorder: 0.0 };
const JSON: Encodings = Encodings::One(Encoding { cbor: false, compression: None });

fn script(seed: u64, index: u32, rates: Rates, encodings: Encodings) -> Script {
    let device_id = DeviceId::parse(&format!("buoy-{index}")).expect("an id");
    Script::new(seed, index, device_id, rates, encodings, 12)
}

/// So many steps, then what is left.
fn whole(script: &mut Script, steps: usize) -> Vec<Delivery> {
    let mut all: Vec<_> = (0..steps).map(|_| script.next(None).expect("goes on")).collect();
    script.close();
    all.extend(std::iter::from_fn(|| script.next(None)));
    assert_eq!((script.backlog(), script.next(None)), (0, None));
    all
}

fn keys(delivery: &Delivery) -> impl Iterator<Item = Key> {
    let epoch_id = delivery.parcel.epoch_id.unwrap_or(EpochId::ZERO);
    let records = delivery.parcel.readings.iter().filter_map(Reading::record);
    records.map(move |record| Key { epoch_id, seq: record.seq })
}

#[test]
fn the_same_seed_gives_the_same_script() {
    let run = |seed, index| whole(&mut script(seed, index, BAD, Encodings::Mix), 300);
    assert_eq!(run(7, 3), run(7, 3));
    assert_ne!(run(7, 3), run(8, 3));
    assert_ne!(run(7, 3), run(7, 4));
}

#[test]
fn everything_that_is_made_arrives_and_is_acknowledged() {
    for (index, rates) in
        (0..20).flat_map(|index| [(index, BAD), (index, FINE), (index, Rates { loss: 1.0, ..BAD })])
    {
        let mut script = script(11, index, rates, JSON);
        let device_id = script.device_id().clone();
        let all = whole(&mut script, 400);
        let mut ledger = Ledger::new(device_id);
        let mut unsettled = BTreeMap::new();
        for delivery in &all {
            let Delivery { parcel, fate, .. } = delivery;
            if fate.arrives() {
                ledger.receive(parcel);
            }
            // A lost parcel is settled by a retry, or by others with its records.
            for key in keys(delivery) {
                let acknowledged = matches!(fate, Fate::Delivered | Fate::Cut { .. });
                let settled = unsettled.entry(key).or_insert(false);
                *settled |= acknowledged;
            }
        }
        let lost: Vec<_> = unsettled.iter().filter(|(_, settled)| !**settled).collect();
        assert!(lost.is_empty(), "{index} {rates:?}: {lost:?}");
        assert_eq!(ledger.keys(), unsettled.len());
        if index % 2 == 0 {
            // Without an epoch two lives may measure the very same.
            assert_eq!(ledger.contents(), script.records(), "{index} {rates:?}");
        }
    }
}

fn words(fate: Fate, role: Role) -> [&'static str; 2] {
    let fate = match fate {
        Fate::Delivered => "delivered",
        Fate::NeverSent => "never sent",
        Fate::HeaderBroken => "broken header",
        Fate::BodyBroken { .. } => "broken body",
        Fate::AnswerLost => "lost answer",
        Fate::Cut { .. } => "cut",
    };
    let role = match role {
        Role::First => "first",
        Role::Retry => "retry",
        Role::Copy => "copy",
    };
    [fate, role]
}

#[test]
fn every_fault_happens() {
    let mut seen = BTreeSet::new();
    for index in 0..10 {
        let mut script = script(3, index, BAD, JSON);
        let mut ledger = Ledger::new(script.device_id().clone());
        let explicit = index % 2 == 0;
        let mut last_epoch = None;
        let mut contents = BTreeMap::new();
        for delivery in whole(&mut script, 500) {
            let Delivery { parcel, role, fate, held_back } = &delivery;
            assert_eq!(parcel.epoch_id.is_some(), explicit, "always or never");
            let former = contents.insert(parcel.batch_id.to_string(), Arc::clone(parcel));
            let respelled = former.as_ref().is_some_and(|former| former.body != parcel.body);
            assert!(former.is_none_or(|former| former.readings == parcel.readings), "one name, one content");
            seen.extend(words(*fate, *role));
            if !fate.arrives() {
                continue;
            }
            let before = ledger.state_key();
            let account = ledger.receive(parcel);
            let greatest = keys(&delivery).max();
            for (what, happened) in [
                ("held back", *held_back && greatest < before),
                ("late epoch", greatest.map(|key| key.epoch_id) < last_epoch),
                ("epoch raised", last_epoch.is_some() && greatest.map(|key| key.epoch_id) > last_epoch),
                ("spelled anew", respelled && account.status == Status::Duplicate),
                ("duplicate", account.status == Status::Duplicate),
                ("overlap", account.accepted > 0 && account.repeated > 0),
                ("all repeated", account.accepted == 0 && account.repeated > 1),
                (
                    "newest repeated",
                    account.repeated == 1 && greatest == before && parcel.readings.len() == 1,
                ),
                ("newest contradicted", account.conflicts == 1 && greatest == before),
                ("counter restarted", !explicit && account.conflicts > 1),
                ("quarantined", account.quarantined > 0),
                ("heartbeat", parcel.readings.is_empty()),
                ("stale", account.accepted > 0 && !account.applied),
            ] {
                if happened {
                    seen.insert(what);
                }
            }
            last_epoch = last_epoch.max(greatest.map(|key| key.epoch_id));
        }
    }
    let all = [
        "all repeated",
        "broken body",
        "broken header",
        "copy",
        "counter restarted",
        "cut",
        "delivered",
        "duplicate",
        "epoch raised",
        "first",
        "heartbeat",
        "held back",
        "late epoch",
        "lost answer",
        "never sent",
        "newest contradicted",
        "newest repeated",
        "overlap",
        "quarantined",
        "retry",
        "spelled anew",
        "stale",
    ];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all);
}

#[test]
fn a_link_without_faults_delivers_each_parcel_when_it_is_made() {
    for index in 0..4 {
        for delivery in whole(&mut script(5, index, FINE, JSON), 300) {
            assert_eq!((delivery.fate, delivery.held_back), (Fate::Delivered, false));
            assert_ne!(delivery.role, Role::Retry);
        }
    }
}

#[test]
fn plain_bodies_are_read_as_the_readings_they_hold() {
    for delivery in whole(&mut script(9, 1, BAD, JSON), 300) {
        let Parcel { batch_id, epoch_id, readings, body } = &*delivery.parcel;
        let batch = decode::decode(body, &Limits::default()).expect("a batch");
        assert_eq!((&batch.batch_id, &batch.epoch_id), (batch_id, epoch_id));
        let records: Vec<_> = readings.iter().filter_map(Reading::record).cloned().collect();
        assert_eq!(batch.records, records);
        assert_eq!(batch.records.len() + batch.unusable.len(), readings.len());
        assert!(readings.len() <= 12);
    }
}

#[test]
fn a_mixed_fleet_packs_in_every_form() {
    let first = |delivery: &Delivery| delivery.parcel.body[0];
    let seen: BTreeSet<u8> = whole(&mut script(9, 0, FINE, Encodings::Mix), 200).iter().map(first).collect();
    // `{`, gzip, zlib, zstd, and a CBOR map of four pairs.
    assert!([b'{', 0x1f, 0x78, 0x28, 0xa4].iter().all(|first| seen.contains(first)), "{seen:x?}");
    let one = Encodings::One("cbor+zstd".parse().expect("a name"));
    assert!(whole(&mut script(9, 0, FINE, one), 50).iter().all(|delivery| first(delivery) == 0x28));
}

#[test]
fn live_records_are_measured_up_to_now() {
    let now = Timestamp::from_micros(1_800_000_000_750_000).expect("in range");
    let mut script = script(2, 0, FINE, JSON);
    let (mut right, mut all) = (0, 0);
    for step in 0..200 {
        let now = now.plus_seconds(10 * step);
        let delivery = script.next(Some(now)).expect("goes on");
        let batch = decode::decode(&delivery.parcel.body, &Limits::default()).expect("a batch");
        let records: Vec<_> = delivery.parcel.readings.iter().filter_map(Reading::record).cloned().collect();
        assert_eq!(batch.records, records, "whatever the style");
        for at in delivery.parcel.readings.iter().filter_map(|reading| reading.record()?.recorded_at) {
            all += 1;
            let age = (now.to_micros() - at.to_micros()) / 1_000_000;
            right += i32::from((0..2000).contains(&age));
        }
    }
    assert!(all > 400 && right * 2 > all, "{right} of {all}");
}

#[test]
fn a_past_that_is_made_up_ends_now() {
    let now = Timestamp::from_seconds(1_796_000_000).expect("a time");
    // Clocks that are wrong say 1970 or 2099.
    let sane =
        |at: &Timestamp| at.to_micros() > 1_700_000_000_000_000 && at.to_micros() < 4_000_000_000_000_000;
    let mut measured = 0;
    for index in 0..20 {
        let mut script = script(9, index, FINE, JSON).begun_at(now.plus_seconds(-36_000), 600, now);
        while script.in_the_past() {
            let delivery = script.next(None).expect("goes on");
            let records = delivery.parcel.readings.iter().filter_map(Reading::record);
            for at in records.filter_map(|record| record.recorded_at).filter(sane) {
                assert!(at <= now, "{at} is after {now}");
                measured += 1;
            }
        }
    }
    assert!(measured > 500, "{measured}");
}
