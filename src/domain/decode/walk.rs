//! Walking JSON text that `serde_json` has already found well-formed.
//!
//! Why not `serde_json` again: it refuses lone surrogates in keys, forgets duplicate keys and cannot say where
//! a value stood. This walker checks no grammar; on text that is not well-formed it stops early or yields
//! nonsense, but never panics and always advances. It does not recurse.

use std::borrow::Cow;

/// A place in JSON text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    /// Starts at byte `at` of `text`.
    pub(super) const fn new(text: &'a str, at: usize) -> Self {
        Self { text, at }
    }

    /// Byte offset in the text.
    pub(super) const fn at(&self) -> usize {
        self.at
    }

    /// The byte at this place; `None` at the end.
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Steps over one byte, if there is one.
    pub(super) fn step(&mut self) {
        self.at = self.text.len().min(self.at + 1);
    }

    /// Steps over white space.
    pub(super) fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Steps over a string and gives what stands between its quotes, escapes and all.
    pub(super) fn literal(&mut self) -> &'a str {
        let from = self.at + 1;
        self.step();
        loop {
            match self.peek() {
                Some(b'\\') => {
                    self.step();
                    self.step();
                }
                Some(b'"') | None => break,
                Some(_) => self.at += 1,
            }
        }
        let literal = self.text.get(from..self.at).unwrap_or_default();
        self.step();
        literal
    }

    /// Steps over a number, `true`, `false` or `null`.
    pub(super) fn word(&mut self) -> &'a str {
        let from = self.at;
        // The first byte goes whatever it is, so that every caller advances.
        self.step();
        while !matches!(self.peek(), None | Some(b',' | b']' | b'}' | b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.text.get(from..self.at).unwrap_or_default()
    }

    /// Steps over a whole value and gives its text.
    pub(super) fn value(&mut self) -> &'a str {
        let from = self.at;
        match self.peek() {
            Some(b'"') => {
                self.literal();
            }
            Some(b'{' | b'[') => self.skip_container(),
            _ => {
                self.word();
            }
        }
        self.text.get(from..self.at).unwrap_or_default()
    }

    fn skip_container(&mut self) {
        let mut depth = 0_usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'"' => {
                    self.literal();
                    continue;
                }
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return;
            }
        }
    }

    /// Inside an object: steps to the next value and gives its key as it was spelled; `None` past the end.
    pub(super) fn next_key(&mut self) -> Option<&'a str> {
        if !self.next_element() || self.peek() != Some(b'"') {
            return None;
        }
        let key = self.literal();
        self.skip_blanks();
        self.step();
        self.skip_blanks();
        Some(key)
    }

    /// Inside an array: steps to the next element; `false` past the end.
    pub(super) fn next_element(&mut self) -> bool {
        self.skip_blanks();
        if self.peek() == Some(b',') {
            self.step();
            self.skip_blanks();
        }
        let ended = matches!(self.peek(), None | Some(b']' | b'}'));
        if ended {
            self.step();
        }
        !ended
    }
}

/// The text that a string literal spells; `None` where it holds a lone surrogate.
pub(super) fn unescape(literal: &str) -> Option<Cow<'_, str>> {
    unescape_with(literal, None)
}

/// The same with U+FFFD in place of each lone surrogate.
pub(super) fn unescape_lossy(literal: &str) -> Cow<'_, str> {
    unescape_with(literal, Some(char::REPLACEMENT_CHARACTER)).unwrap_or_default()
}

/// `None` at the first lone surrogate, unless something is to stand in for it.
fn unescape_with(literal: &str, stand_in: Option<char>) -> Option<Cow<'_, str>> {
    let Some(mut parts) = literal.split_once('\\') else {
        return Some(Cow::Borrowed(literal));
    };
    let mut text = String::with_capacity(literal.len());
    loop {
        let (plain, escape) = parts;
        text.push_str(plain);
        let (char, rest) = read_escape(escape);
        text.push(char.or(stand_in)?);
        let Some(next) = rest.split_once('\\') else {
            text.push_str(rest);
            return Some(Cow::Owned(text));
        };
        parts = next;
    }
}

/// Reads what follows a backslash: the character (`None`: a lone surrogate) and the text behind it.
fn read_escape(escape: &str) -> (Option<char>, &str) {
    let mut chars = escape.chars();
    let char = match chars.next() {
        Some('b') => '\u{8}',
        Some('f') => '\u{c}',
        Some('n') => '\n',
        Some('r') => '\r',
        Some('t') => '\t',
        Some('u') => return read_unicode(chars.as_str()),
        Some(itself) => itself,
        None => return (None, escape),
    };
    (Some(char), chars.as_str())
}

fn read_unicode(digits: &str) -> (Option<char>, &str) {
    let Some((unit, behind)) = read_hex4(digits) else {
        return (None, digits);
    };
    if !(0xd800..0xdc00).contains(&unit) {
        return (char::from_u32(unit), behind);
    }
    match behind.strip_prefix("\\u").and_then(read_hex4) {
        Some((low, behind)) if (0xdc00..0xe000).contains(&low) => {
            (char::from_u32(0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00)), behind)
        }
        _ => (None, behind),
    }
}

fn read_hex4(text: &str) -> Option<(u32, &str)> {
    let (digits, behind) = text.split_at_checked(4)?;
    u32::from_str_radix(digits, 16).ok().map(|unit| (unit, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unescapes_as_serde_json_does() {
        for literal in
            [r"plain é", r#"\"\\\/\b\f\n\r\t"#, r"\u0041\u00e9\u0000", r"a\ud83d\ude00b", r"\\ud800"]
        {
            let expected: String = serde_json::from_str(&format!("\"{literal}\"")).expect("a string");
            assert_eq!(unescape(literal).as_deref(), Some(expected.as_str()), "{literal}");
        }
    }

    #[test]
    fn lone_surrogates_are_no_text() {
        for (literal, lossy) in [
            (r"a\ud800", "a\u{fffd}"),
            (r"\udc00b", "\u{fffd}b"),
            (r"\ud800A", "\u{fffd}A"),
            (r"\ud800\ud800\udc00", "\u{fffd}\u{10000}"),
            (r"\ud800\n", "\u{fffd}\n"),
        ] {
            assert_eq!(unescape(literal), None, "{literal}");
            assert_eq!(unescape_lossy(literal), lossy);
        }
    }

    #[test]
    fn walks_members_and_elements() {
        let mut object = Cursor::new(r#" { "a" : [1,{"x":"]}"}] , "b\"":-1.5e3,"c":"\\" } "#, 1);
        object.step();
        let mut seen = Vec::new();
        while let Some(key) = object.next_key() {
            seen.push((key, object.value()));
        }
        assert_eq!(seen, [("a", r#"[1,{"x":"]}"}]"#), ("b\\\"", "-1.5e3"), ("c", r#""\\""#)]);
    }
}
