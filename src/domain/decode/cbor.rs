//! CBOR (RFC 8949) as JSON text, so that every rule about a batch has one home: salvage, keys that stand twice,
//! what equals what. The text is written in one walk over the bytes, without recursion.
//!
//! What has no JSON of its own follows RFC 8949 section 6.1 and the proto3 mapping:
//!
//! | CBOR | JSON |
//! | --- | --- |
//! | half, single and double floats | the number they hold exactly: 3.82 as a single is 3.819999933242798 |
//! | NaN, Infinity, −Infinity | strings of these names, which are no numbers to any rule |
//! | undefined | null |
//! | other simple values | `"simple(n)"` |
//! | byte strings | `"base64url:…"`, which can be neither a number nor a name; 16 bytes under tag 37, or as `batch_id`, are a UUID |
//! | integers past 64 bits (tags 2, 3) | the number, up to 128 bits; else as bytes, `~` before those of a negative one |
//! | any other tag | what it stands before; so times are text (tag 0) or Unix seconds (tag 1) |
//! | keys that are numbers, bytes or simple values | their JSON as text: 1 is `"1"` |
//! | keys that are arrays or maps | text that is not Unicode: it costs the record it stands in |
//! | text that is not UTF-8 | the bytes as they are: likewise |
//!
//! A string in several chunks is their bytes joined, also where a character is split between them.

use std::borrow::Cow;
use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ciborium_ll::{Decoder, Error, Header, simple};
use uuid::Uuid;

use super::fault::Fault;
use super::scout::scout;
use super::{is_padding, unreadable};
use crate::domain::batch::Unreadable;
use crate::domain::reason::Reason;

/// Most containers open at once. Each takes 32 bytes here: together 2 MiB.
const OPEN_MAX: usize = 1 << 16;

/// Most bytes escaped before the limit is looked at: control characters grow six times as long.
const PIECE: usize = 4 << 10;

/// Tags that change what the bytes behind them mean.
const BIG: u64 = 2;
const BIG_NEGATIVE: u64 = 3;
const UUID: u64 = 37;

/// A key that is no text, so that no record that has it is usable.
const NO_TEXT: &[u8] = br#""\ud800?""#;

/// The JSON text of a body, at most `max` bytes, in time linear in the body.
pub(super) fn to_json(body: &[u8], max: usize) -> Result<Vec<u8>, Unreadable> {
    let mut walk = Walk { body, rest: body, out: Vec::new(), max, open: Vec::new(), names_batch: false };
    match walk.run() {
        Ok(()) => Ok(walk.out),
        Err(Fault { reason, detail }) => {
            let (device_id, batch_id) = scout(&String::from_utf8_lossy(&walk.out)).into_ids();
            Err(Unreadable { device_id, batch_id, ..unreadable(reason, detail) })
        }
    }
}

/// A container that has begun and not ended.
struct Open {
    kind: Kind,
    /// Items that are still to come, in maps keys and values; `None`: until the break.
    left: Option<u64>,
    /// Where its text starts, if it stands as a key.
    key_at: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Array { empty: bool },
    MapBeforeKey { empty: bool },
    MapBeforeValue,
}

struct Walk<'a> {
    body: &'a [u8],
    rest: &'a [u8],
    out: Vec<u8>,
    max: usize,
    open: Vec<Open>,
    /// Whether what comes is the value of the batch's `batch_id`.
    names_batch: bool,
}

impl<'a> Walk<'a> {
    /// Writes the first item; nothing but padding may stand behind it.
    fn run(&mut self) -> Result<(), Fault> {
        loop {
            let (tag, header) = self.header()?;
            if header == Header::Break {
                self.take_break(tag)?;
            } else {
                self.item(tag, header)?;
            }
            self.check_len()?;
            while self.open.last().is_some_and(|open| open.left == Some(0)) {
                self.close();
            }
            if self.open.is_empty() {
                break;
            }
        }
        if is_padding(self.rest) {
            return Ok(());
        }
        Err(invalid(format!("{} bytes follow the end of the CBOR body", self.rest.len())))
    }

    /// The next header that is no tag, and the tag straight before it.
    fn header(&mut self) -> Result<(Option<u64>, Header), Fault> {
        let mut tag = None;
        loop {
            // Two bytes for a simple value that one byte holds: the library lets it pass.
            if matches!(self.rest, [0xf8, 0..0x20, ..]) {
                return Err(self.malformed());
            }
            match Decoder::from(&mut self.rest).pull() {
                Ok(Header::Tag(found)) => tag = Some(found),
                Ok(header) => return Ok((tag, header)),
                Err(Error::Syntax(_)) => return Err(self.malformed()),
                Err(Error::Io(_)) => return Err(broken_off()),
            }
        }
    }

    fn item(&mut self, tag: Option<u64>, header: Header) -> Result<(), Fault> {
        let is_key = self.separate();
        let start = self.out.len();
        match header {
            Header::Array(len) => {
                let left = len.map(|len| len as u64);
                return self.begin(Kind::Array { empty: true }, left, is_key.then_some(start));
            }
            Header::Map(len) => {
                let left = len.map(|pairs| (pairs as u64).saturating_mul(2));
                return self.begin(Kind::MapBeforeKey { empty: true }, left, is_key.then_some(start));
            }
            other => self.plain(tag, other)?,
        }
        if is_key {
            if self.out.get(start) != Some(&b'"') {
                self.out.insert(start, b'"');
                self.out.push(b'"');
            }
            self.names_batch = self.open.len() == 1 && &self.out[start..] == br#""batch_id""#;
        }
        Ok(())
    }

    /// Writes what stands before the next item and counts it; whether it is a key.
    fn separate(&mut self) -> bool {
        let Some(open) = self.open.last_mut() else { return false };
        open.left = open.left.map(|left| left.saturating_sub(1));
        let (kind, before) = match open.kind {
            Kind::Array { empty } => (Kind::Array { empty: false }, if empty { "" } else { "," }),
            Kind::MapBeforeKey { empty } => (Kind::MapBeforeValue, if empty { "" } else { "," }),
            Kind::MapBeforeValue => (Kind::MapBeforeKey { empty: false }, ":"),
        };
        let is_key = kind == Kind::MapBeforeValue;
        open.kind = kind;
        self.out.extend_from_slice(before.as_bytes());
        is_key
    }

    fn begin(&mut self, kind: Kind, left: Option<u64>, key_at: Option<usize>) -> Result<(), Fault> {
        if self.open.len() == OPEN_MAX {
            return Err(invalid(format!("CBOR nested more than {OPEN_MAX} levels deep")));
        }
        self.names_batch = false;
        self.out.push(if matches!(kind, Kind::Array { .. }) { b'[' } else { b'{' });
        self.open.push(Open { kind, left, key_at });
        Ok(())
    }

    fn close(&mut self) {
        let Some(open) = self.open.pop() else { return };
        self.out.push(if matches!(open.kind, Kind::Array { .. }) { b']' } else { b'}' });
        if let Some(start) = open.key_at {
            self.out.truncate(start);
            self.out.extend_from_slice(NO_TEXT);
        }
    }

    /// A break ends a container of no stated length, not between a key and its value.
    fn take_break(&mut self, tag: Option<u64>) -> Result<(), Fault> {
        match self.open.last() {
            Some(Open { kind, left: None, .. }) if tag.is_none() && *kind != Kind::MapBeforeValue => {
                self.close();
                Ok(())
            }
            _ => Err(self.malformed()),
        }
    }

    fn plain(&mut self, tag: Option<u64>, header: Header) -> Result<(), Fault> {
        match header {
            Header::Positive(n) => self.write(n),
            Header::Negative(n) => self.write(-1 - i128::from(n)),
            Header::Float(x) if x.is_nan() => self.out.extend_from_slice(br#""NaN""#),
            Header::Float(x) if x.is_infinite() => {
                let name = if x > 0.0 { r#""Infinity""# } else { r#""-Infinity""# };
                self.out.extend_from_slice(name.as_bytes());
            }
            // Debug, unlike Display, turns to exponents where the digits would run long.
            Header::Float(x) => self.write(format_args!("{x:?}")),
            Header::Simple(simple::FALSE) => self.out.extend_from_slice(b"false"),
            Header::Simple(simple::TRUE) => self.out.extend_from_slice(b"true"),
            Header::Simple(simple::NULL | simple::UNDEFINED) => self.out.extend_from_slice(b"null"),
            Header::Simple(n) => self.write(format_args!("\"simple({n})\"")),
            Header::Text(len) => self.text(len)?,
            Header::Bytes(len) => self.bytes(tag, len)?,
            Header::Array(_) | Header::Map(_) | Header::Tag(_) | Header::Break => {
                return Err(self.malformed());
            }
        }
        self.names_batch = false;
        Ok(())
    }

    fn write(&mut self, shown: impl std::fmt::Display) {
        // Writing to a Vec cannot fail.
        drop(write!(self.out, "{shown}"));
    }

    fn text(&mut self, len: Option<usize>) -> Result<(), Fault> {
        self.out.push(b'"');
        if let Some(len) = len {
            let chunk = self.take(len)?;
            self.escaped(chunk)?;
        } else {
            while let Some(chunk) = self.chunk(|header| match header {
                Header::Text(len) => len,
                _ => None,
            })? {
                self.escaped(chunk)?;
            }
        }
        self.out.push(b'"');
        Ok(())
    }

    fn bytes(&mut self, tag: Option<u64>, len: Option<usize>) -> Result<(), Fault> {
        let bytes = if let Some(len) = len {
            Cow::Borrowed(self.take(len)?)
        } else {
            let mut whole = Vec::new();
            while let Some(chunk) = self.chunk(|header| match header {
                Header::Bytes(len) => len,
                _ => None,
            })? {
                whole.extend_from_slice(chunk);
            }
            Cow::Owned(whole)
        };
        self.check_room(bytes.len())?;
        match (tag, <[u8; 16]>::try_from(&*bytes)) {
            (Some(tag @ (BIG | BIG_NEGATIVE)), _) => self.big(tag == BIG_NEGATIVE, &bytes),
            (tag, Ok(uuid)) if tag == Some(UUID) || self.names_batch => {
                self.write(format_args!("\"{}\"", Uuid::from_bytes(uuid)));
            }
            _ => self.base64("", &bytes),
        }
        Ok(())
    }

    /// An integer past 64 bits: as a number where 128 bits hold it. A negative one is −1 less what is sent.
    fn big(&mut self, negative: bool, bytes: &[u8]) {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        let digits = &bytes[zeros..];
        let n = digits.iter().fold(0_u128, |n, byte| n << 8 | u128::from(*byte));
        match (negative, n.checked_add(1)) {
            _ if digits.len() > size_of_val(&n) => self.base64(if negative { "~" } else { "" }, bytes),
            (false, _) => self.write(n),
            (true, Some(n)) => self.write(format_args!("-{n}")),
            (true, None) => self.base64("~", bytes),
        }
    }

    fn base64(&mut self, sign: &str, bytes: &[u8]) {
        // Bare, the three bytes d7 6d f8 would be "1234", and that a number to every rule.
        self.write(format_args!("\"base64url:{sign}{}\"", URL_SAFE_NO_PAD.encode(bytes)));
    }

    /// The next chunk of a string of no stated length; `None` at its end. Chunks have a length and are of the
    /// string's own type.
    fn chunk(&mut self, len: impl Fn(Header) -> Option<usize>) -> Result<Option<&'a [u8]>, Fault> {
        match self.header()? {
            (None, Header::Break) => Ok(None),
            (None, header) => match len(header) {
                Some(len) => self.take(len).map(Some),
                None => Err(self.malformed()),
            },
            _ => Err(self.malformed()),
        }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or_else(broken_off)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Writes text with the escapes that JSON demands. Bytes that are not UTF-8 go as they are: the JSON passes
    /// know what to do with them.
    fn escaped(&mut self, text: &[u8]) -> Result<(), Fault> {
        for piece in text.chunks(PIECE) {
            let mut plain_from = 0;
            for (at, byte) in piece.iter().enumerate().filter(|(_, b)| matches!(b, b'"' | b'\\' | 0..0x20)) {
                self.out.extend_from_slice(&piece[plain_from..at]);
                plain_from = at + 1;
                self.write(format_args!("\\u{byte:04x}"));
            }
            self.out.extend_from_slice(&piece[plain_from..]);
            self.check_len()?;
        }
        Ok(())
    }

    fn check_len(&self) -> Result<(), Fault> {
        self.check_room(0)
    }

    /// Refuses what would make the text longer than the limit.
    fn check_room(&self, more: usize) -> Result<(), Fault> {
        if self.out.len().saturating_add(more) <= self.max {
            return Ok(());
        }
        let detail = format!("the JSON of the CBOR body is longer than {} bytes", self.max);
        Err(Fault::new(Reason::DecodedTooLarge, detail))
    }

    fn malformed(&self) -> Fault {
        invalid(format!("malformed CBOR at or before byte {}", self.body.len() - self.rest.len()))
    }
}

fn broken_off() -> Fault {
    invalid("the CBOR body breaks off".to_owned())
}

fn invalid(detail: String) -> Fault {
    Fault::new(Reason::EncodingInvalid, detail)
}

#[cfg(test)]
mod tests;
