//! The rules of section 1 of the contract, edge by edge.

use super::canonical::DEPTH_MAX;
use super::{bare, decode, quick};
use crate::domain::batch::{Batch, Limits, Unreadable};
use crate::domain::ids::{BatchId, DeviceId, EpochId};
use crate::domain::reason::Reason;
use crate::domain::record::{Fix, Record};

fn read(body: impl AsRef<[u8]>) -> Result<Batch, Unreadable> {
    decode(body.as_ref(), &Limits::default())
}

fn batch(records: &str) -> Batch {
    read(format!(r#"{{"device_id":"d","batch_id":"b","records":[{records}]}}"#)).expect("a batch")
}

fn record(members: &str) -> Record {
    let mut batch = batch(&format!(r#"{{"seq":1,{members}}}"#));
    assert_eq!(batch.unusable, [], "{members}");
    batch.records.remove(0)
}

fn fault(element: &str) -> Reason {
    let batch = batch(&format!(r#"{{"seq":7}},{element},{{"seq":8}}"#));
    assert_eq!(batch.records.iter().map(|r| r.seq.get()).collect::<Vec<_>>(), [7, 8], "{element}");
    let [unusable] = &batch.unusable[..] else { panic!("{element}: {:?}", batch.unusable) };
    assert_eq!((unusable.index, &unusable.bytes[..]), (1, element.as_bytes()));
    assert!(!unusable.detail.is_empty() && unusable.detail.len() < 400, "{}", unusable.detail);
    unusable.reason
}

#[test]
fn a_clean_body_takes_the_quick_pass() {
    let body = r#"{"device_id":"track-exp-084","batch_id":"b9f2c8d4-53c1-4828-98e6-71d3df85223a","epoch_id":3,
        "fw":"1.2","records":[{"seq":10420,"recorded_at":"2026-03-31T04:12:00Z","lat":21.3069,
        "lon":-157.8583,"battery":3.82,"speed":1.0,"course":null}]}"#;
    let batch = quick::read(body, &Limits::default()).expect("clean");
    assert_eq!(Ok(batch.clone()), read(body));
    assert_eq!(batch.device_id.as_str(), "track-exp-084");
    assert!(matches!(batch.batch_id, BatchId::Uuid(_)));
    assert_eq!(batch.epoch_id, EpochId::new(3));
    assert_eq!(batch.extra.as_deref(), Some(r#"{"fw":"1.2"}"#));
    let record = &batch.records[0];
    assert_eq!(record.seq.get(), 10420);
    assert_eq!(record.fix, Some(Fix { lat: 21.3069, lon: -157.8583 }));
    assert_eq!(record.battery, Some(3.82));
    assert_eq!(record.recorded_at.expect("a time").to_string(), "2026-03-31T04:12:00Z");
    assert_eq!(record.extra.as_deref(), Some(r#"{"speed":1}"#));
    assert_eq!(record.raw, None);
}

#[test]
fn first_bytes_decide() {
    let limits = Limits { decoded_bytes_max: 8, ..Limits::default() };
    for (body, reason) in [
        (&b""[..], Reason::InvalidJson),
        (b"\xef\xbb\xbf", Reason::InvalidJson),
        (b"\0\0 \n", Reason::InvalidJson),
        (b"\x1f\x8b..", Reason::EncodingInvalid),
        (b"\x28\xb5\x2f\xfd", Reason::EncodingInvalid),
        (b"\x78\x9c", Reason::EncodingInvalid),
        (b"\x78\x01.........", Reason::EncodingInvalid),
        (b"\xa4", Reason::EncodingInvalid),
        (b"\xbf", Reason::EncodingInvalid),
        (b"\xa0", Reason::DeviceIdInvalid),
        (b"\xd9\xd9\xf7\xa0", Reason::DeviceIdInvalid),
        (b"\xd9\xd9\xf7\x80", Reason::InvalidJson),
        (b"{       }", Reason::DecodedTooLarge),
        (b"{      }", Reason::DeviceIdInvalid),
    ] {
        assert_eq!(decode(body, &limits).expect_err("unreadable").reason, reason, "{body:?}");
    }
    assert_eq!(bare(b"\xef\xbb\xbf {}\0 \r\n\0"), b" {}");
}

#[test]
fn what_is_no_batch() {
    use Reason as R;
    for (body, reason) in [
        ("nul", R::InvalidJson),
        ("null", R::InvalidJson),
        (r#"["d","b",null,[]]"#, R::InvalidJson),
        (r#"{"device_id":"d","batch_id":"b","records":[{"seq":1},]}"#, R::InvalidJson),
        (r#"{"device_id":"d","batch_id":"b","records":[{"seq":nan}]}"#, R::InvalidJson),
        (r#"{"device_id":"d","batch_id":"b","records":[{"seq":1}]}x"#, R::InvalidJson),
        (r#"{"device_id":"d","batch_id":"b","records":[]}{}"#, R::InvalidJson),
        (r#"{"device_id":"d","batch_id":"b","records":[{"seq":01}]}"#, R::InvalidJson),
        (r#"{"device_id":"d","batch_id":"b","epoch_id":-1,"records":[],"x":1,"\u0078":2}"#, R::DuplicateKey),
        (r#"{"device_id":"d","batch_id":"b","records":[],"records":[]}"#, R::DuplicateKey),
        (r#"{"device_id":"d","batch_id":"b","records":[],"batch\u005fid":null}"#, R::DuplicateKey),
        (r#"{"batch_id":"","records":[]}"#, R::DeviceIdInvalid),
        (r#"{"device_id":7,"batch_id":"b","records":[]}"#, R::DeviceIdInvalid),
        (r#"{"device_id":"a b","batch_id":"b","records":[]}"#, R::DeviceIdInvalid),
        (r#"{"device_id":"\ud800","batch_id":"b","records":[]}"#, R::DeviceIdInvalid),
        (r#"{"device_id":"d","epoch_id":"x","records":[]}"#, R::BatchIdInvalid),
        (r#"{"device_id":"d","batch_id":17,"records":[]}"#, R::BatchIdInvalid),
        (r#"{"device_id":"d","batch_id":"b","epoch_id":-1}"#, R::EpochInvalid),
        (r#"{"device_id":"d","batch_id":"b","epoch_id":1.5,"records":[]}"#, R::EpochInvalid),
        (r#"{"device_id":"d","batch_id":"b","epoch_id":[1],"records":[]}"#, R::EpochInvalid),
        (r#"{"device_id":"d","batch_id":"b","epoch_id":9223372036854775808,"records":[]}"#, R::EpochInvalid),
        (r#"{"device_id":"d","batch_id":"b"}"#, R::RecordsInvalid),
        (r#"{"device_id":"d","batch_id":"b","records":null}"#, R::RecordsInvalid),
        (r#"{"device_id":"d","batch_id":"b","records":{"seq":1}}"#, R::RecordsInvalid),
        (r#"{"device_id":"d","batch_id":"b","records":"[]"}"#, R::RecordsInvalid),
    ] {
        let unreadable = read(body).expect_err("unreadable");
        assert_eq!(unreadable.reason, reason, "{body}: {}", unreadable.detail);
        let named = unreadable.device_id.map(|d| d.to_string());
        let ambiguous = reason == R::DeviceIdInvalid || !body.starts_with(r#"{"device_id":"d""#);
        assert_eq!(named.as_deref(), (!ambiguous).then_some("d"), "{body}");
    }
}

#[test]
fn ids_are_named_only_where_they_are_sure() {
    for (body, device_id, batch_id) in [
        (r#"{"device_id":"d","device_id":"d","batch_id":"b"}"#, None, Some("b")),
        (r#"{"device_id":"d","batch_id":"b","batch_id":"c"}"#, Some("d"), None),
        (r#"{"batch_id":"b","records":[}"#, None, Some("b")),
        (r#"{"device_id":"d","device_id":"e","records":[}"#, None, None),
        (r#"{"batch_id":"b","records":[]}"#, None, Some("b")),
    ] {
        let unreadable = read(body).expect_err("unreadable");
        assert_eq!(unreadable.device_id.as_ref().map(DeviceId::as_str), device_id, "{body}");
        assert_eq!(unreadable.batch_id, batch_id.and_then(BatchId::parse), "{body}");
    }
}

#[test]
fn the_place_of_a_fault_is_told() {
    let unreadable = read("{\"device_id\":\"d\",\n nan}").expect_err("unreadable");
    assert!(unreadable.detail.contains("line 2 column 2"), "{}", unreadable.detail);
    let unreadable = read(b"{\"device_id\":\xff}").expect_err("unreadable");
    assert!(unreadable.detail.contains("byte at 13 is not UTF-8"), "{}", unreadable.detail);
    let long = format!(r#"{{"device_id":"{}"}}"#, "é".repeat(1000));
    assert!(read(long).expect_err("unreadable").detail.chars().count() < 150);
}

#[test]
fn a_bad_record_costs_itself_only() {
    for (element, reason) in [
        ("7", Reason::RecordInvalid),
        ("null", Reason::RecordInvalid),
        ("[1,2]", Reason::RecordInvalid),
        (r#""x""#, Reason::RecordInvalid),
        ("{}", Reason::SeqInvalid),
        (r#"{"seq":null}"#, Reason::SeqInvalid),
        (r#"{"seq":-1}"#, Reason::SeqInvalid),
        (r#"{"seq":9223372036854775808}"#, Reason::SeqInvalid),
        (r#"{"seq":true}"#, Reason::SeqInvalid),
        (r#"{"seq":{"a":[]}}"#, Reason::SeqInvalid),
        (r#"{"seq":2,"lat":1}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":null,"lon":1}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":"48,489790","lon":"2,1"}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":"","lon":""}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":90.000001,"lon":1}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":1,"lon":-180.5}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":91,"lon":1}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":1e400,"lon":1}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"lat":[1],"lon":{}}"#, Reason::PositionInvalid),
        (r#"{"seq":2,"seq":3}"#, Reason::DuplicateKey),
        (r#"{"seq":2,"s\u0065q":2}"#, Reason::DuplicateKey),
        (r#"{"seq":2,"battery":null,"battery":null}"#, Reason::DuplicateKey),
        (r#"{"seq":2,"x":null,"x":1}"#, Reason::DuplicateKey),
        (r#"{"seq":2,"x":[{"y":1,"z":0,"\u0079":1}]}"#, Reason::DuplicateKey),
        (r#"{"seq":2,"battery":{"y":1,"y":1}}"#, Reason::DuplicateKey),
        (r#"{"seq":2,"name":"\ud83c"}"#, Reason::TextInvalid),
        (r#"{"seq":2,"\udc00":1}"#, Reason::TextInvalid),
        (r#"{"seq":2,"x":{"y":["\ud800\ud800"]}}"#, Reason::TextInvalid),
        (r#"{"seq":2,"battery":"\ud800"}"#, Reason::TextInvalid),
        (r#"{"seq":2, "x" : "\ud800" , "y":{} }"#, Reason::TextInvalid),
    ] {
        assert_eq!(fault(element), reason, "{element}");
    }
}

#[test]
fn bytes_that_are_not_utf8_cost_one_record() {
    for damaged in [
        &b"{\"seq\":2,\"x\":\"\xff\xfe\"}"[..],
        b"{\"seq\":2,\"x\":\"a\\\xff\"}",
        b"{\"seq\":2,\"x\":\"\xff\\udc00\"}",
        b"{\"seq\":2,\"\xe2\x82\":[\"\xc3\"],\"y\":\"\xc3\xa9\"}",
    ] {
        let body = [
            b"\xef\xbb\xbf{\"note\":\"\xfd\",\"device_id\":\"d\",\"batch_id\":\"b\",\"records\":[{\"seq\":1},",
            damaged,
            b",{\"seq\":3},7]}",
        ];
        let batch = read(body.concat()).expect("a batch");
        assert_eq!(batch.records.iter().map(|r| r.seq.get()).collect::<Vec<_>>(), [1, 3]);
        let found: Vec<_> = batch.unusable.iter().map(|u| (u.index, u.reason, &u.bytes[..])).collect();
        assert_eq!(found, [(1, Reason::TextInvalid, damaged), (3, Reason::RecordInvalid, b"7")]);
        assert_eq!(batch.extra.as_deref(), Some("{\"note\":\"\u{fffd}?\"}"));
    }
    let broken = read(b"{\"device_id\":\"d\",\"batch_id\":\"b\",\"records\":[{\"seq\":\xff}]}");
    assert_eq!(broken.expect_err("unreadable").reason, Reason::InvalidJson);
    let id = read(b"{\"device_id\":\"d\xff\",\"batch_id\":\"b\",\"records\":[]}");
    assert_eq!(id.expect_err("unreadable").reason, Reason::DeviceIdInvalid);
}

#[test]
fn no_fix() {
    for members in [
        r#""lat":null,"lon":null"#,
        r#""lat":null"#,
        r#""battery":1"#,
        r#""lat":0,"lon":0"#,
        r#""lat":-0.0,"lon":"0""#,
        r#""lat":91,"lon":181"#,
        r#""lat":"91.0","lon":1.81e2"#,
    ] {
        assert_eq!(record(members).fix, None, "{members}");
    }
    let body = r#"{"device_id":"d","batch_id":"b","records":[{"seq":1,"lat":-0.0,"lon":0}]}"#;
    let limits = Limits { zero_position: true, ..Limits::default() };
    let fix = decode(body.as_bytes(), &limits).expect("a batch").records[0].fix.expect("a fix");
    assert!(fix.lat.is_sign_positive() && fix.lat == 0.0 && fix.lon == 0.0);
    for (members, lat, lon) in [
        (r#""lat":90,"lon":-180"#, 90.0, -180.0),
        (r#""lat":-90,"lon":180"#, -90.0, 180.0),
        (r#""lat":"0.1","lon":0"#, 0.1, 0.0),
    ] {
        assert_eq!(record(members).fix, Some(Fix { lat, lon }), "{members}");
    }
}

#[test]
fn wrong_optional_values_are_kept_raw() {
    for (members, raw) in [
        (r#""battery":"n/a""#, Some(r#"{"battery":"n/a"}"#)),
        (r#""battery":1e400"#, Some(r#"{"battery":1e400}"#)),
        (r#""battery":{"v": 3.0, "a":[ ]}"#, Some(r#"{"battery":{"a":[],"v":3}}"#)),
        (r#""battery":false"#, Some(r#"{"battery":false}"#)),
        (r#""battery":null,"recorded_at":null"#, None),
        (r#""recorded_at":"0000-00-00""#, Some(r#"{"recorded_at":"0000-00-00"}"#)),
        (r#""recorded_at":1.50"#, Some(r#"{"recorded_at":1.5}"#)),
        (r#""recorded_at":99999999999999999999"#, Some(r#"{"recorded_at":99999999999999999999}"#)),
        (r#""recorded_at":"","battery":"""#, Some(r#"{"battery":"","recorded_at":""}"#)),
    ] {
        let record = record(members);
        assert_eq!(record.raw.as_deref(), raw, "{members}");
        assert_eq!((record.recorded_at, record.battery), (None, None), "{members}");
    }
    let leap = record(r#""recorded_at":"2016-12-31T23:59:60Z""#);
    assert_eq!(leap.recorded_at.expect("a time").to_string(), "2016-12-31T23:59:59Z");
    assert_eq!(leap.raw.as_deref(), Some(r#"{"recorded_at":"2016-12-31T23:59:60Z"}"#));
}

#[test]
fn everything_else_is_extra() {
    for (members, extra) in [
        (r#""b":1.0,"a":"x\u0000\/y""#, Some(r#"{"a":"x\u0000/y","b":1}"#)),
        (r#""raw":1,"extra":{"z":null}"#, Some(r#"{"extra":{"z":null},"raw":1}"#)),
        (r#""Lat":1,"a":null"#, Some(r#"{"Lat":1}"#)),
        (r#""a":null"#, None),
        (r#""x":1e400"#, Some(r#"{"x":1e400}"#)),
    ] {
        assert_eq!(record(members).extra.as_deref(), extra, "{members}");
    }
}

#[test]
fn what_is_nested_too_deep_is_kept_as_a_string() {
    let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    let (most, more) = (nested(DEPTH_MAX), nested(DEPTH_MAX + 1));
    let members = format!(r#""b":{more},"a":{most},"battery":{more},"recorded_at":"soon","z":" {more}""#);
    let record = record(&members);
    assert_eq!(record.extra, Some(format!(r#"{{"a":{most},"z":" {more}"}}"#).into()));
    let raw = format!(r#"{{"b":"{more}","battery":"{more}","recorded_at":"soon"}}"#);
    assert_eq!(record.raw, Some(raw.into()));
    for more in [more.clone(), format!(r#"["\ud800",{more}]"#)] {
        let body = format!(r#"{{"device_id":"d","batch_id":"b","records":[],"b":{more},"a":{most}}}"#);
        let held = more.replace('"', "\\\"").replace("\\ud800", "\u{fffd}");
        assert_eq!(
            read(body).expect("a batch").extra,
            Some(format!(r#"{{"a":{most},"b":"{held}"}}"#).into())
        );
    }
}

#[test]
fn unknown_fields_of_the_batch_never_cost_it() {
    let body =
        r#"{"device_id":"d","batch_id":"b","records":[],"m":{"b":1,"a":1,"b":2},"t":"\ud800","n":null}"#;
    let batch = read(body).expect("a batch");
    assert_eq!(batch.extra.as_deref(), Some("{\"m\":{\"a\":1,\"b\":1,\"b\":2},\"t\":\"\u{fffd}\"}"));
}

#[test]
fn records_are_counted() {
    let limits = Limits { records_max: 2, ..Limits::default() };
    let body = |records| format!(r#"{{"device_id":"d","batch_id":"b","records":[{records}]}}"#);
    assert_eq!(decode(body(r#"{"seq":1},7"#).as_bytes(), &limits).map(|b| b.unusable.len()), Ok(1));
    for records in [r#"{"seq":1},{"seq":2},{"seq":3}"#, "7,7,7"] {
        let unreadable = decode(body(records).as_bytes(), &limits).expect_err("unreadable");
        assert_eq!(unreadable.reason, Reason::TooManyRecords);
        assert_eq!(unreadable.batch_id, BatchId::parse("b"));
    }
}

#[test]
fn hostile_shapes_are_answered() {
    let open = "[".repeat(1 << 20);
    assert_eq!(read(&open).expect_err("unreadable").reason, Reason::InvalidJson);
    let closed = format!("{}{}", "[".repeat(1 << 19), "]".repeat(1 << 19));
    assert_eq!(read(&closed).expect_err("unreadable").reason, Reason::InvalidJson);
    for member in ["x", "battery", "recorded_at"] {
        let record = record(&format!(r#""{member}":{closed}"#));
        assert!(record.extra.or(record.raw).is_some_and(|text| text.len() > closed.len()));
    }
    assert_eq!(fault(&format!(r#"{{"seq":{closed}}}"#)), Reason::SeqInvalid);
    assert_eq!(fault(&closed), Reason::RecordInvalid);
    let nested = format!("{}1{}", r#"{"b":1,"a":"#.repeat(80_000), "}".repeat(80_000));
    assert!(record(&format!(r#""x":{nested}"#)).raw.is_some());
    let damaged = b"{\"device_id\":\"d\",\"x\":\"".iter().copied().chain(b"a\xff\\\xff".repeat(1 << 18));
    assert_eq!(read(damaged.collect::<Vec<_>>()).expect_err("unreadable").reason, Reason::InvalidJson);
    let many = vec![r#"{"seq":1,"x":"\ud800"}"#; 10_000].join(",");
    assert_eq!(batch(&many).unusable.len(), 10_000);
}
