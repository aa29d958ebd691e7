//! Bytes that are not UTF-8: made text in which they are lone surrogates, so that they cost one record.

use std::iter::Peekable;
use std::str::Utf8Chunks;

/// Stands for a run of bytes that are not UTF-8. The surrogate stays lone whatever stands around it (the `?`
/// keeps a following `\udc00` from pairing with it), and outside a string it is not JSON.
const STAND_IN: &str = "\\ud800?";
/// The same behind a backslash that escapes the first of the bytes: with another backslash the two would be
/// an escaped backslash, and the damage would pass as text.
const STAND_IN_ESCAPED: &str = "ud800?";

/// The text with each run of bytes that are not UTF-8 replaced; at most four times as long.
pub(super) fn repair(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() + STAND_IN.len());
    for piece in pieces(bytes) {
        text.push_str(piece.valid);
        text.push_str(piece.stand_in);
    }
    text
}

/// Maps offsets of the repaired text to the bytes it was made of.
pub(super) struct Origin<'a> {
    pieces: Pieces<'a>,
    /// Where the valid part of the current piece starts, in the text and in the bytes.
    starts: (usize, usize),
    piece: Option<Piece<'a>>,
}

impl<'a> Origin<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        let mut pieces = pieces(bytes);
        let piece = pieces.next();
        Self { pieces, starts: (0, 0), piece }
    }

    /// The offset in the bytes of an offset in the text that is no place within a stand-in. Offsets must not
    /// fall from call to call, so that all calls together walk the bytes once.
    pub(super) fn of(&mut self, at: usize) -> usize {
        while let Some(piece) = &self.piece {
            let valid = piece.valid.len();
            if at <= self.starts.0 + valid {
                break;
            }
            self.starts.0 += valid + piece.stand_in.len();
            self.starts.1 += valid + piece.invalid_len;
            self.piece = self.pieces.next();
        }
        self.starts.1 + at.saturating_sub(self.starts.0)
    }
}

struct Piece<'a> {
    valid: &'a str,
    invalid_len: usize,
    stand_in: &'static str,
}

struct Pieces<'a> {
    chunks: Peekable<Utf8Chunks<'a>>,
}

fn pieces(bytes: &[u8]) -> Pieces<'_> {
    Pieces { chunks: bytes.utf8_chunks().peekable() }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let chunk = self.chunks.next()?;
        let valid = chunk.valid();
        let mut invalid_len = chunk.invalid().len();
        // Nothing valid between: the same run.
        while let Some(more) = self.chunks.next_if(|next| next.valid().is_empty()) {
            invalid_len += more.invalid().len();
        }
        // What stands before this piece ends with a stand-in, never with a backslash.
        let backslashes = valid.bytes().rev().take_while(|b| *b == b'\\').count();
        let stand_in = match backslashes % 2 {
            _ if invalid_len == 0 => "",
            1 => STAND_IN_ESCAPED,
            _ => STAND_IN,
        };
        Some(Piece { valid, invalid_len, stand_in })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_always_a_lone_surrogate() {
        for (bytes, text) in [
            (&b"a\xffb"[..], r"a\ud800?b"),
            (b"\xff\xfe\xc3b", r"\ud800?b"),
            (b"a\\\xff", r"a\ud800?"),
            (b"a\\\\\xff", r"a\\\ud800?"),
            (b"\xe2\x82", r"\ud800?"),
            (b"\\\xff\xff\\\xff", r"\ud800?\ud800?"),
            ("é".as_bytes(), "é"),
            (b"", ""),
        ] {
            assert_eq!(repair(bytes), text, "{bytes:?}");
        }
    }

    #[test]
    fn offsets_lead_back() {
        let bytes = b"ab\xff\xffcd\xe2\x82ef";
        let text = repair(bytes);
        let mut origin = Origin::new(bytes);
        for (at, char) in text.char_indices().filter(|(_, c)| "abcef".contains(*c)) {
            assert_eq!(char::from(bytes[origin.of(at)]), char, "{at}");
        }
        assert_eq!(origin.of(text.len()), bytes.len());
    }
}
