//! Fresh device ids for every run: a gateway that has seen a device before rightly answers otherwise.
//!
//! An id keeps what a case may be about (leading zeros, case, being told apart from another) and gets the run's tag
//! behind it; one near the longest gets it in place of its end. Where a body cannot be encoded anew with other ids (the
//! bytes themselves are the subject), all ids of that case keep their length, since CBOR counts it, and are replaced as
//! they stand. Where they do not even stand there, the ids stay as written, and the run asks the gateway first
//! whether it knows them.

use serde_json::Value;

use super::case::{Case, Content, Ids, Step, Upload};
use crate::domain::ids::{DEVICE_ID_LEN_MAX, DeviceId};
use crate::fleet;

/// What stays of an id whose end gives way to the tag, at least.
const STEM_LEN_MIN: usize = 3;

/// A case as it will be run.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) case: Case,
    /// Ids that stayed as written, and so must be new to the gateway.
    pub(super) kept: Vec<String>,
}

/// Gives the devices of a case the ids of this run.
pub(super) fn name(case: &Case, tag: &str, keep: bool) -> Named {
    let ids = ids_of(case);
    let renamed = if keep || case.ids == Ids::AsWritten {
        None
    } else {
        [false, true].into_iter().find_map(|same_length| rename(case, &ids, tag, same_length))
    };
    match renamed {
        Some(renamed) => Named { case: renamed, kept: Vec::new() },
        None => Named { case: case.clone(), kept: ids },
    }
}

/// Every valid id that a case names.
fn ids_of(case: &Case) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    let mut add = |id: &str| {
        if DeviceId::parse(id).is_some() && !ids.iter().any(|known| known == id) {
            ids.push(id.to_owned());
        }
    };
    for step in &case.steps {
        match step {
            Step::State { device, .. } | Step::Track { device, .. } | Step::Reset { device, .. } => {
                add(device);
            }
            Step::Upload(upload) => {
                add(&upload.signer);
                device_lines(upload).for_each(|line| add(line));
                if let Some(named) = named_in(upload) {
                    add(&named);
                }
            }
        }
    }
    ids
}

fn device_lines(upload: &Upload) -> impl Iterator<Item = &String> {
    let lines = upload.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("x-device-id"));
    lines.flat_map(|(_, lines)| lines)
}

/// The device that a body names, where it is JSON.
fn named_in(upload: &Upload) -> Option<String> {
    let bytes = match &upload.content {
        Content::Text(text) => text.as_bytes(),
        Content::Bytes(bytes) => bytes,
    };
    let value: Value = serde_json::from_slice(bytes).ok()?;
    value.get("device_id")?.as_str().map(str::to_owned)
}

/// Whether nobody can put another id of any length into this body.
fn is_opaque(upload: &Upload) -> bool {
    matches!(&upload.content, Content::Bytes(bytes) if std::str::from_utf8(bytes).is_err())
}

/// `None` where the ids cannot be changed, of any length or (`same_length`) of the same one.
fn rename(case: &Case, ids: &[String], tag: &str, same_length: bool) -> Option<Case> {
    let mut pairs = Vec::new();
    for id in ids {
        let fresh = fresh(id, tag, same_length)?;
        if pairs.iter().any(|(_, known)| *known == fresh) {
            return None;
        }
        pairs.push((id.clone(), fresh));
    }
    let mut renamed = case.clone();
    for step in &mut renamed.steps {
        rename_step(step, &pairs, same_length, case.ids == Ids::Fresh)?;
    }
    Some(renamed)
}

fn fresh(id: &str, tag: &str, same_length: bool) -> Option<String> {
    let room = id.len() + 1 + tag.len();
    if !same_length && room <= DEVICE_ID_LEN_MAX {
        return Some(format!("{id}-{tag}"));
    }
    let stem = id.get(..id.len().checked_sub(tag.len() + 1)?)?;
    (stem.len() >= STEM_LEN_MIN).then(|| format!("{stem}-{tag}"))
}

/// `None` where the step's body would no longer say what it said.
fn rename_step(step: &mut Step, pairs: &[(String, String)], same_length: bool, trusted: bool) -> Option<()> {
    match step {
        Step::State { device, expect, .. } => {
            rename_text(device, pairs);
            rename_value(expect, pairs);
        }
        Step::Track { device, .. } => rename_text(device, pairs),
        Step::Reset { device, expect, .. } => {
            rename_text(device, pairs);
            rename_value(&mut expect.body, pairs);
        }
        Step::Upload(upload) => {
            let before = named_in(upload);
            rename_text(&mut upload.signer, pairs);
            let named =
                upload.headers.iter_mut().filter(|(name, _)| name.eq_ignore_ascii_case("x-device-id"));
            named.flat_map(|(_, lines)| lines).for_each(|line| rename_text(line, pairs));
            let found = rename_content(upload, pairs, same_length);
            if trusted {
                return Some(());
            }
            let expected = before.map(|mut named| {
                rename_text(&mut named, pairs);
                named
            });
            // A body that names its device in a spelling of its own, or where nobody can see it, names another now.
            if expected != named_in(upload) || (is_opaque(upload) && !found) {
                return None;
            }
        }
    }
    Some(())
}

/// Replaces an id that is the whole text.
fn rename_text(text: &mut String, pairs: &[(String, String)]) {
    if let Some((_, fresh)) = pairs.iter().find(|(id, _)| id == text) {
        text.clone_from(fresh);
    }
}

fn rename_value(value: &mut Value, pairs: &[(String, String)]) {
    match value {
        Value::String(text) => rename_text(text, pairs),
        Value::Object(members) => members.values_mut().for_each(|value| rename_value(value, pairs)),
        _ => {}
    }
}

/// Replaces the ids where the body names them. Whether it does.
fn rename_content(upload: &mut Upload, pairs: &[(String, String)], same_length: bool) -> bool {
    let opaque = is_opaque(upload);
    match &mut upload.content {
        Content::Bytes(bytes) if opaque && same_length => pairs
            .iter()
            .fold(false, |found, (id, fresh)| replace(bytes, id.as_bytes(), fresh.as_bytes()) | found),
        Content::Bytes(bytes) => match fleet::rename(bytes, pairs) {
            Some((renamed, found)) => {
                *bytes = renamed;
                found
            }
            None => false,
        },
        Content::Text(text) => match fleet::rename(text.as_bytes(), pairs) {
            Some((renamed, found)) => {
                *text = String::from_utf8(renamed).unwrap_or_default();
                found
            }
            None => false,
        },
    }
}

fn replace(bytes: &mut Vec<u8>, from: &[u8], to: &[u8]) -> bool {
    let mut at = 0;
    let mut found = false;
    while let Some(next) = bytes[at..].windows(from.len()).position(|window| window == from) {
        let start = at + next;
        bytes.splice(start..start + from.len(), to.iter().copied());
        at = start + to.len();
        found = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::conform::case::read;

    const TAG: &str = "0a1b2c3d";

    fn named(ids: &str, steps: &str) -> Named {
        let text = format!(r#"[{{"name":"n","source":"s","ids":"{ids}","steps":[{steps}]}}]"#);
        name(&read(&text).expect("a case")[0], TAG, false)
    }

    fn body(named: &Named, at: usize) -> Vec<u8> {
        match &named.case.steps[at] {
            Step::Upload(upload) => upload.body(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_place_gets_the_same_fresh_id() {
        let done = named(
            "judged",
            r#"{"upload":{"device_id":"007","batch_id":"7"},"as":"007","headers":{"X-Device-Id":"007"},"expect":{"status":200}},
               {"raw":"{\"device_id\" : \"007\"}","as":"7","expect":{"status":202}},
               {"state":"007","expect":{"device_id":"007","label":"x"}},{"track":"7","expect":{"keys":[]}}"#,
        );
        assert!(done.kept.is_empty());
        assert_eq!(body(&done, 0), br#"{"batch_id":"7-0a1b2c3d","device_id":"007-0a1b2c3d"}"#);
        assert_eq!(body(&done, 1), br#"{"device_id" : "007-0a1b2c3d"}"#);
        let text = format!("{:?}", done.case);
        assert!(!text.contains(r#""007""#) && !text.contains(r#""7""#), "{text}");
        assert!(text.contains(r#"device: "7-0a1b2c3d""#), "{text}");
    }

    #[test]
    fn the_longest_ids_keep_their_length_and_stay_apart() {
        let long = "x".repeat(60);
        let done = named("judged", &format!(r#"{{"state":"{long}abcd","expect":{{}}}}"#));
        let Step::State { device, .. } = &done.case.steps[0] else { panic!("{done:?}") };
        assert_eq!(*device, format!("{}-{TAG}", "x".repeat(55)));
        let two = format!(r#"{{"state":"{long}aaaa","expect":{{}}}},{{"state":"{long}aaab","expect":{{}}}}"#);
        assert_eq!(named("judged", &two).kept, [format!("{long}aaaa"), format!("{long}aaab")]);
    }

    #[test]
    fn encoded_bodies_are_renamed_where_that_changes_nothing_else() {
        let upload = |bytes: &[u8], id: &str| {
            use base64::Engine as _;
            let coded = base64::engine::general_purpose::STANDARD.encode(bytes);
            format!(r#"{{"raw_b64":"{coded}","as":"{id}","expect":{{"status":200}}}}"#)
        };
        let done = named("judged", &upload(b"\xa1\x69device_id\x62d1", "d1"));
        assert_eq!(body(&done, 0), b"\xa1\x69device_id\x6bd1-0a1b2c3d");
        // Of no stated length: bytes that our encoder would not make again.
        let done = named("judged", &upload(b"\xbf\x69device_id\x6econform-cbor-1\xff", "conform-cbor-1"));
        assert_eq!(body(&done, 0), b"\xbf\x69device_id\x6econfo-0a1b2c3d\xff");
        assert!(done.kept.is_empty());
        for (bytes, id) in [(&b"\xbf\x69device_id\x62d1\xff"[..], "d1"), (b"\x1f\x8bxyz", "conform-gzip-1")] {
            assert_eq!(named("judged", &upload(bytes, id)).kept, [id]);
        }
        assert!(named("fresh", &upload(b"\x1f\x8bxyz", "conform-gzip-1")).kept.is_empty());
        assert_eq!(named("as_written", r#"{"state":"d","expect":{}}"#).kept, ["d"]);
    }

    #[test]
    fn an_id_in_a_spelling_of_its_own_is_not_taken_for_another() {
        let escaped = r#"{"raw":"{\"device_id\":\"\\u0064\"}","as":"d","expect":{"status":200}}"#;
        assert_eq!(named("judged", escaped).kept, ["d"]);
        // Names no device at all.
        let form = r#"{"raw":"id=1","as":"d","expect":{"status":202}}"#;
        assert!(named("judged", form).kept.is_empty());
    }
}
