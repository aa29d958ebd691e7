//! A decoded record as JSON again: its own bytes are not kept, and where it must be shown to a person as it
//! came, this says the same.

use std::fmt::Write as _;

use super::fields::Field;
use super::walk::{Cursor, unescape_lossy};
use crate::domain::record::Record;

/// The record as one JSON object that decodes to an equal record. Equal records give equal text.
pub fn to_json(record: &Record) -> String {
    let Record { seq, recorded_at, fix, battery, extra, raw } = record;
    let mut out = Members(format!("{{\"seq\":{seq}"));
    let mut kept = Kept::default();
    if let Some(raw) = raw {
        kept.read(raw, &mut out);
    }
    if let Some(time) = recorded_at.filter(|_| !kept.recorded_at) {
        out.add("recorded_at", format_args!("\"{time}\""));
    }
    if let Some(fix) = fix {
        out.add("lat", format_args!("{:?}", fix.lat));
        out.add("lon", format_args!("{:?}", fix.lon));
    }
    if let Some(volts) = battery.filter(|_| !kept.battery) {
        out.add("battery", format_args!("{volts:?}"));
    }
    if let Some(members) = extra.as_deref().and_then(|extra| extra.strip_prefix('{')) {
        out.0.push(',');
        out.0.push_str(members);
        return out.0;
    }
    out.0.push('}');
    out.0
}

/// An object being written.
struct Members(String);

impl Members {
    fn add(&mut self, literal: &str, value: impl std::fmt::Display) {
        // Writing to a String cannot fail.
        let _done = write!(self.0, ",\"{literal}\":{value}");
    }
}

/// Which named fields stand under `raw`: what was sent says more than what was read of it.
#[derive(Default)]
struct Kept {
    recorded_at: bool,
    battery: bool,
}

impl Kept {
    /// Writes the members of `raw` as they were sent.
    fn read(&mut self, raw: &str, out: &mut Members) {
        let mut cursor = Cursor::new(raw, 0);
        cursor.step();
        while let Some(literal) = cursor.next_key() {
            let value = cursor.value();
            match Field::named(literal) {
                Some(Field::RecordedAt) => self.recorded_at = true,
                Some(Field::Battery) => self.battery = true,
                // A field of the device's own, too deep to stand under `extra`: its text is in the string.
                _ => {
                    let text = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
                    out.add(literal, unescape_lossy(text.unwrap_or_default()));
                    continue;
                }
            }
            out.add(literal, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::batch::Limits;
    use crate::domain::decode::canonical::DEPTH_MAX;
    use crate::domain::decode::decode;

    /// What a record reads as when it is written out again. That this decodes to the same is a property.
    fn again(record: &str) -> String {
        let limits = Limits { zero_position: true, ..Limits::default() };
        let read = |record: &str| {
            let body = format!(r#"{{"device_id":"d","batch_id":"b","records":[{record}]}}"#);
            decode(body.as_bytes(), &limits).expect("a batch").records.remove(0)
        };
        let text = to_json(&read(record));
        assert_eq!(read(&text), read(record), "{text}");
        text
    }

    #[test]
    fn says_what_was_sent() {
        let deep = "[".repeat(DEPTH_MAX + 1) + &"]".repeat(DEPTH_MAX + 1);
        for (sent, written) in [
            (r#"{"battery":null,"x":null,"seq":"7"}"#, r#"{"seq":7}"#),
            (
                r#"{"seq":1,"recorded_at":0,"lat":"-0","lon":1e-7,"battery":"3.82"}"#,
                r#"{"seq":1,"recorded_at":"1970-01-01T00:00:00Z","lat":0.0,"lon":1e-7,"battery":3.82}"#,
            ),
            (r#"{"seq":1,"lat":0,"lon":0}"#, r#"{"seq":1,"lat":0.0,"lon":0.0}"#),
            (
                r#"{"seq":1,"recorded_at":"2016-12-31T23:59:60Z","battery":"n/a"}"#,
                r#"{"seq":1,"battery":"n/a","recorded_at":"2016-12-31T23:59:60Z"}"#,
            ),
            (
                r#"{"seq":1,"recorded_at":[1.0],"battery":1e400,"z":-1e400,"a":{"n":null}}"#,
                r#"{"seq":1,"battery":1e400,"recorded_at":[1],"a":{"n":null},"z":-1e400}"#,
            ),
            (
                r#"{"seq":1,"a\u0022":"\u0000","raw":1,"extra":2}"#,
                r#"{"seq":1,"a\"":"\u0000","extra":2,"raw":1}"#,
            ),
            (
                &format!(r#"{{"seq":1,"d\u0022":{{"k\u0022":{deep}}},"a":1}}"#),
                &format!(r#"{{"seq":1,"d\"":{{"k\"":{deep}}},"a":1}}"#),
            ),
            (
                &format!(r#"{{"seq":1,"battery":{deep}}}"#),
                // The same to every rule: no number either way, and kept as this string.
                &format!(r#"{{"seq":1,"battery":"{deep}"}}"#),
            ),
        ] {
            assert_eq!(again(sent), written, "{sent}");
        }
    }
}
