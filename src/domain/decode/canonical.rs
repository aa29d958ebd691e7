//! Canonical JSON: one spelling for equal values, so that comparing text compares values.
//!
//! Keys sorted by their bytes, no blanks, strings with only the escapes JSON demands, floats without a
//! fraction up to 2^53 as integers, −0 as 0. Integers keep all of their digits; a number too large for f64
//! stays as sent. A value of more than [`DEPTH_MAX`] levels is kept as a string that holds its text, and below
//! them nothing is sorted: recursion, re-ordering cost and what other parsers can read end somewhere, and no
//! measurement is that deep. The text is at most four times as long as the one read.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use super::fault::Fault;
use super::scalar::whole;
use super::walk::{Cursor, unescape, unescape_lossy};

/// Most levels of a value that is kept as a value, and within which keys are sorted and checked. In an answer a
/// value stands four levels deep (page, records, record, extra): together less than 64, the least default limit
/// of the usual JSON parsers (.NET 64, Ruby 100, `serde_json` 128, Python about 1000).
pub(super) const DEPTH_MAX: usize = 56;

/// A member of an object: its key, and the well-formed text of its value.
pub(super) type Member<'a> = (Cow<'a, str>, &'a str);

/// A member that is kept as other text than was sent: its key, and the canonical text of what stands for it.
pub(super) type Kept<'a> = (Cow<'a, str>, String);

/// How deep a value turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Depth {
    /// At most [`DEPTH_MAX`] levels.
    Bearable,
    /// More.
    Excessive,
}

/// What to do where a value has no one meaning (a lone surrogate, a key twice).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// It is a fault.
    Strict,
    /// Keep both members of a key; a lone surrogate is a fault. So nothing is lost.
    Lossless,
    /// Keep what can be kept: U+FFFD for the surrogate, both members.
    Lenient,
}

/// Writes members as one object, without those that are null (null and absent are the same). `None` where
/// nothing is left. A key twice among the members themselves is a fault in either mode. Sorts `members`. Where a
/// value is too deep, a string that holds its text stands for it: in `deep`, or else in the object itself.
pub(super) fn object<'a>(
    members: &mut [Member<'a>],
    mut deep: Option<&mut Vec<Kept<'a>>>,
    mode: Mode,
) -> Result<Option<Box<str>>, Fault> {
    members.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    if let Some(pair) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Fault::twice(&pair[0].0));
    }
    // Exact where everything is sent in its canonical spelling already: one allocation, none grown or shrunk.
    let present = members.iter().filter(|(_, raw)| *raw != "null");
    let mut text =
        String::with_capacity(present.map(|(key, raw)| key.len() + raw.len() + 4).sum::<usize>() + 1);
    for (key, raw) in members.iter().filter(|(_, raw)| *raw != "null") {
        let before = text.len();
        begin_member(key, &mut text);
        let value = text.len();
        if write_value(raw, &mut text, mode)? == Depth::Excessive {
            let held = string(&text[value..]);
            if let Some(deep) = &mut deep {
                deep.push((key.clone(), held));
                text.truncate(before);
            } else {
                text.truncate(value);
                text.push_str(&held);
            }
        }
    }
    Ok(end_object(text))
}

/// Writes members that were kept otherwise than sent, no two of one key, as one object; `None`: there are none.
pub(super) fn kept_object(mut kept: Vec<Kept<'_>>) -> Option<Box<str>> {
    kept.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    let mut text = String::with_capacity(kept.iter().map(|(key, value)| key.len() + value.len() + 4).sum());
    for (key, value) in &kept {
        begin_member(key, &mut text);
        text.push_str(value);
    }
    end_object(text)
}

fn begin_member(key: &str, text: &mut String) {
    text.push(if text.is_empty() { '{' } else { ',' });
    write_string(key, text);
    text.push(':');
}

fn end_object(mut text: String) -> Option<Box<str>> {
    if text.is_empty() {
        return None;
    }
    text.push('}');
    Some(text.into())
}

/// The canonical spelling of one well-formed value; where it is too deep, a string that holds that.
pub(super) fn kept(raw: &str) -> Result<String, Fault> {
    let mut text = String::new();
    Ok(match write_value(raw, &mut text, Mode::Strict)? {
        Depth::Bearable => text,
        Depth::Excessive => string(&text),
    })
}

/// Appends the canonical spelling of one well-formed value.
pub(super) fn write_value(raw: &str, out: &mut String, mode: Mode) -> Result<Depth, Fault> {
    let mut writer = Writer { cursor: Cursor::new(raw, 0), out, mode, depth: Depth::Bearable };
    writer.value(0)?;
    Ok(writer.depth)
}

/// Text as a JSON string.
pub(super) fn string(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    write_string(text, &mut out);
    out
}

/// Appends a string with its quotes.
pub(super) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut plain_from = 0;
    for (at, byte) in text.bytes().enumerate().filter(|(_, b)| matches!(b, b'"' | b'\\' | 0..0x20)) {
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x08 => out.push_str("\\b"),
            0x0c => out.push_str("\\f"),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            // Writing to a String cannot fail.
            other => drop(write!(out, "\\u{other:04x}")),
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

fn write_word(word: &str, out: &mut String) {
    let integer = word.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if integer || is_short_decimal(word) {
        out.push_str(if word == "-0" { "0" } else { word });
        return;
    }
    // Writing to a String cannot fail.
    match word.parse::<f64>().ok().filter(|x| x.is_finite()) {
        Some(x) => match whole(x) {
            Some(n) => drop(write!(out, "{n}")),
            // Debug, unlike Display, turns to exponents where the digits would run long.
            None => drop(write!(out, "{x:?}")),
        },
        None => out.push_str(word),
    }
}

/// Whether a number is already what writing its f64 would give, as measurements mostly are: any 15 digits
/// come back from an f64, and numbers from 0.1 are written without an exponent.
fn is_short_decimal(word: &str) -> bool {
    let Some((before, after)) = word.strip_prefix('-').unwrap_or(word).split_once('.') else {
        return false;
    };
    before.len() + after.len() <= 15
        && (before != "0" || !after.starts_with('0'))
        && !after.ends_with('0')
        && after.bytes().all(|b| b.is_ascii_digit())
}

struct Writer<'a, 'o> {
    cursor: Cursor<'a>,
    out: &'o mut String,
    mode: Mode,
    depth: Depth,
}

/// A member written to the output: its key, and where its text (key and value) stands.
type Written<'a> = (Cow<'a, str>, Range<usize>);

impl<'a> Writer<'a, '_> {
    fn value(&mut self, depth: usize) -> Result<(), Fault> {
        match self.cursor.peek() {
            Some(b'{' | b'[') if depth >= DEPTH_MAX => self.deep(),
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            _ => self.plain(),
        }
    }

    fn plain(&mut self) -> Result<(), Fault> {
        if self.cursor.peek() == Some(b'"') {
            let literal = self.cursor.literal();
            write_string(&self.unescape(literal)?, self.out);
        } else {
            write_word(self.cursor.word(), self.out);
        }
        Ok(())
    }

    fn unescape(&self, literal: &'a str) -> Result<Cow<'a, str>, Fault> {
        match self.mode {
            Mode::Strict | Mode::Lossless => unescape(literal).ok_or_else(Fault::text),
            Mode::Lenient => Ok(unescape_lossy(literal)),
        }
    }

    fn array(&mut self, depth: usize) -> Result<(), Fault> {
        self.cursor.step();
        self.out.push('[');
        let start = self.out.len();
        while self.cursor.next_element() {
            if self.out.len() > start {
                self.out.push(',');
            }
            self.value(depth + 1)?;
        }
        self.out.push(']');
        Ok(())
    }

    fn object(&mut self, depth: usize) -> Result<(), Fault> {
        self.cursor.step();
        self.out.push('{');
        let start = self.out.len();
        let mut members: Vec<Written<'a>> = Vec::new();
        while let Some(literal) = self.cursor.next_key() {
            if self.out.len() > start {
                self.out.push(',');
            }
            let key = self.unescape(literal)?;
            let from = self.out.len();
            write_string(&key, self.out);
            self.out.push(':');
            self.value(depth + 1)?;
            members.push((key, from..self.out.len()));
        }
        if !members.is_sorted_by(|(a, _), (b, _)| a < b) {
            self.sort(start, members)?;
        }
        self.out.push('}');
        Ok(())
    }

    /// Brings the members that were written from `start` on into the order of their keys.
    fn sort(&mut self, start: usize, mut members: Vec<Written<'a>>) -> Result<(), Fault> {
        // Stable: where the mode lets a key stand twice, both keep their order.
        members.sort_by(|(a, _), (b, _)| a.cmp(b));
        let twice = members.windows(2).find(|pair| pair[0].0 == pair[1].0);
        if let Some(pair) = twice.filter(|_| self.mode == Mode::Strict) {
            return Err(Fault::twice(&pair[0].0));
        }
        let mut sorted = String::with_capacity(self.out.len() - start);
        for (_, range) in members {
            if !sorted.is_empty() {
                sorted.push(',');
            }
            sorted.push_str(&self.out[range]);
        }
        self.out.truncate(start);
        self.out.push_str(&sorted);
        Ok(())
    }

    /// Writes a container below the levels that are sorted: canonical but for the order of its keys.
    fn deep(&mut self) -> Result<(), Fault> {
        self.depth = Depth::Excessive;
        let mut depth = 0_usize;
        loop {
            self.cursor.skip_blanks();
            match self.cursor.peek() {
                None => return Ok(()),
                Some(mark @ (b'{' | b'[' | b'}' | b']' | b',' | b':')) => {
                    self.out.push(char::from(mark));
                    self.cursor.step();
                    match mark {
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                }
                Some(_) => self.plain()?,
            }
            if depth == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::reason::Reason;

    fn canonical(raw: &str) -> String {
        let mut out = String::new();
        write_value(raw, &mut out, Mode::Strict).expect("no fault");
        out
    }

    #[test]
    fn equal_values_have_one_spelling() {
        for (raw, expected) in [
            (r#"{ "b" : 1 , "a" : [ 1 , { } , [ ] ] }"#, r#"{"a":[1,{},[]],"b":1}"#),
            (r#"{"b":{"d":1,"c":2},"a":null}"#, r#"{"a":null,"b":{"c":2,"d":1}}"#),
            (r#"{"\u0062":1,"a":2}"#, r#"{"a":2,"b":1}"#),
            (r#"["\u0041\/\u00e9\ud83d\ude00"]"#, r#"["A/é😀"]"#),
            (r#""a\u0000b\u001f\u0008\n""#, r#""a\u0000b\u001f\b\n""#),
            ("[1.0,1e3,-0.0,-0,0.1,1.50,-2e0,1E2]", "[1,1000,0,0,0.1,1.5,-2,100]"),
            ("[9007199254740993,18446744073709551615]", "[9007199254740993,18446744073709551615]"),
            (
                "[89441000301234567890123,-9223372036854775809]",
                "[89441000301234567890123,-9223372036854775809]",
            ),
            ("[9007199254740992.0,1e16,1e300,1e-7]", "[9007199254740992,1e16,1e300,1e-7]"),
            ("[1e400,-1E+400,1e-400]", "[1e400,-1E+400,0]"),
            ("[true,false,null]", "[true,false,null]"),
        ] {
            assert_eq!(canonical(raw), expected, "{raw}");
            assert_eq!(canonical(expected), expected, "idempotent");
        }
    }

    #[test]
    fn values_without_one_meaning() {
        for (raw, reason, lenient) in [
            (r#"{"a":2,"a":1}"#, Reason::DuplicateKey, r#"{"a":2,"a":1}"#),
            (r#"[{"b":1,"a":2,"\u0061":1}]"#, Reason::DuplicateKey, r#"[{"a":2,"a":1,"b":1}]"#),
            (r#"["\ud800"]"#, Reason::TextInvalid, "[\"\u{fffd}\"]"),
            (r#"{"\udc00":1}"#, Reason::TextInvalid, "{\"\u{fffd}\":1}"),
        ] {
            let mut out = String::new();
            let fault = write_value(raw, &mut out, Mode::Strict).expect_err("a fault");
            assert_eq!(fault.reason, reason, "{raw}");
            out.clear();
            let kept = write_value(raw, &mut out, Mode::Lossless).map_err(|fault| fault.reason);
            assert_eq!(kept.err(), (reason == Reason::TextInvalid).then_some(reason));
            assert!(kept.is_err() || out == lenient, "{out}");
            out.clear();
            write_value(raw, &mut out, Mode::Lenient).expect("no fault");
            assert_eq!(out, lenient);
        }
    }

    #[test]
    fn nulls_fall_away_at_the_top_only() {
        let mut members: Vec<Member<'_>> = vec![("b".into(), "null"), ("a".into(), r#"{"x":null}"#)];
        assert_eq!(object(&mut members, None, Mode::Strict), Ok(Some(r#"{"a":{"x":null}}"#.into())));
        assert_eq!(object(&mut [("b".into(), "null")], None, Mode::Strict), Ok(None));
        let twice = object(&mut [("b".into(), "null"), ("b".into(), "1")], None, Mode::Lenient);
        assert_eq!(twice.map_err(|fault| fault.reason), Err(Reason::DuplicateKey));
    }

    #[test]
    fn very_deep_values_are_kept() {
        let depth = 100_000;
        let deep =
            format!("{}{}", r#"[ {"b" : 1.0, "a":"#.repeat(depth), "}]".repeat(depth).replacen('}', "2}", 1));
        let text = canonical(&deep);
        assert!(text.starts_with(r#"[{"a":[{"a":"#) && text.ends_with(r#","b":1}]"#));
        assert!(text.contains(r#"[{"b":1,"a":[{"b":1,"a":"#), "not sorted that deep");
        assert_eq!(canonical(&text), text);
    }
    #[test]
    fn what_is_too_deep_becomes_a_string() {
        let nested = |levels: usize| format!("{}{}", "[ ".repeat(levels), "]".repeat(levels));
        let compact = |levels: usize| nested(levels).replace(' ', "");
        for (levels, depth) in [(DEPTH_MAX, Depth::Bearable), (DEPTH_MAX + 1, Depth::Excessive)] {
            assert_eq!(write_value(&nested(levels), &mut String::new(), Mode::Strict), Ok(depth), "{levels}");
        }
        let (most, more) = (nested(DEPTH_MAX), format!(r#"{{"k":{}}}"#, nested(DEPTH_MAX)));
        let mut members: Vec<Member<'_>> = vec![("c".into(), "1"), ("b".into(), &more), ("a".into(), &most)];
        let mut deep = Vec::new();
        let shallow = format!(r#"{{"a":{},"c":1}}"#, compact(DEPTH_MAX));
        assert_eq!(object(&mut members, Some(&mut deep), Mode::Strict), Ok(Some(shallow.into())));
        let text = format!(r#""{{\"k\":{}}}""#, compact(DEPTH_MAX));
        assert_eq!(deep, [("b".into(), text.clone())]);
        assert_eq!(kept(&more), Ok(text.clone()));
        deep.push(("a".into(), "1".to_owned()));
        assert_eq!(kept_object(deep), Some(format!(r#"{{"a":1,"b":{text}}}"#).into()));
        let alone = [("b".into(), more.as_str())];
        assert_eq!(object(&mut alone.clone(), Some(&mut vec![]), Mode::Strict), Ok(None));
        assert_eq!(
            object(&mut alone.clone(), None, Mode::Strict),
            Ok(Some(format!(r#"{{"b":{text}}}"#).into()))
        );
        assert_eq!(kept_object(vec![]), None);
    }
}
