//! What must hold for any batch in any form, and for any damage to it.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::form::{Form, Packing};
use super::super::walk::unescape;
use super::super::{bare, cbor, inflate};
use super::{Cursor, body_of, checked, decode, json, object, record};
use crate::domain::batch::{Batch, Limits, Unreadable};
use crate::domain::reason::Reason;
use crate::domain::record::Record;
use crate::domain::upload::BodyHash;

const PACKINGS: [Option<Packing>; 4] = [None, Some(Packing::Gzip), Some(Packing::Zlib), Some(Packing::Zstd)];

fn pack(packing: Option<Packing>, bytes: &[u8]) -> Vec<u8> {
    match packing {
        None => bytes.to_vec(),
        Some(Packing::Gzip) => {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
        Some(Packing::Zlib) => {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory")
        }
        Some(Packing::Zstd) => zstd::encode_all(bytes, 1).expect("memory"),
    }
}

/// How an encoder of CBOR may choose.
#[derive(Clone, Copy, Debug)]
struct Choices {
    /// Containers without a stated length, strings in chunks.
    indefinite: bool,
    /// Floats as singles where they hold the value.
    single: bool,
}

fn choices() -> impl Strategy<Value = Choices> {
    any::<(bool, bool)>().prop_map(|(indefinite, single)| Choices { indefinite, single })
}

/// JSON text as CBOR, without a library that would sort keys or round numbers. `None` where CBOR has no such
/// value: half a surrogate pair, a number past f64.
struct Encoder<'a> {
    cursor: Cursor<'a>,
    out: Vec<u8>,
    choices: Choices,
}

impl Encoder<'_> {
    fn head(&mut self, major: u8, n: u64) {
        self.out.push(major << 5 | 0x1b);
        self.out.extend_from_slice(&n.to_be_bytes());
    }

    fn value(&mut self) -> Option<()> {
        self.cursor.skip_blanks();
        match self.cursor.peek()? {
            b'{' => self.container(5),
            b'[' => self.container(4),
            b'"' => {
                let text = unescape(self.cursor.literal())?;
                self.string(3, text.as_bytes());
                Some(())
            }
            _ => self.word(),
        }
    }

    fn container(&mut self, major: u8) -> Option<()> {
        let at = self.out.len();
        if self.choices.indefinite {
            self.out.push(major << 5 | 0x1f);
        } else {
            self.head(major, 0);
        }
        self.cursor.step();
        let mut items = 0_u64;
        loop {
            if major == 5 {
                let Some(key) = self.cursor.next_key() else { break };
                self.string(3, unescape(key)?.as_bytes());
            } else if !self.cursor.next_element() {
                break;
            }
            self.value()?;
            items += 1;
        }
        if self.choices.indefinite {
            self.out.push(0xff);
        } else {
            self.out[at + 1..at + 9].copy_from_slice(&items.to_be_bytes());
        }
        Some(())
    }

    /// In chunks that cut characters in two.
    fn string(&mut self, major: u8, bytes: &[u8]) {
        if !self.choices.indefinite {
            self.head(major, bytes.len() as u64);
            self.out.extend_from_slice(bytes);
            return;
        }
        self.out.push(major << 5 | 0x1f);
        for chunk in bytes.chunks(3) {
            self.head(major, chunk.len() as u64);
            self.out.extend_from_slice(chunk);
        }
        self.out.push(0xff);
    }

    fn word(&mut self) -> Option<()> {
        let word = self.cursor.word();
        match word {
            "null" => self.out.push(0xf6),
            "true" => self.out.push(0xf5),
            "false" => self.out.push(0xf4),
            _ if word.contains(['.', 'e', 'E']) => self.float(word.parse().ok()?)?,
            _ => match word.parse::<i128>().ok()? {
                n @ 0.. => self.integer(0, n.unsigned_abs()),
                n => self.integer(1, n.unsigned_abs() - 1),
            },
        }
        Some(())
    }

    fn integer(&mut self, major: u8, n: u128) {
        if let Ok(n) = u64::try_from(n) {
            self.head(major, n);
        } else {
            self.out.push(0xc2 + major);
            self.string(2, &n.to_be_bytes());
        }
    }

    fn float(&mut self, x: f64) -> Option<()> {
        #[expect(clippy::cast_possible_truncation, reason = "used only where nothing is lost")]
        let single = x as f32;
        if self.choices.single && f64::from(single).to_bits() == x.to_bits() {
            self.out.push(0xfa);
            self.out.extend_from_slice(&single.to_be_bytes());
        } else {
            self.out.push(0xfb);
            self.out.extend_from_slice(&x.to_be_bytes());
        }
        x.is_finite().then_some(())
    }
}

fn encode(json: &str, choices: Choices) -> Option<Vec<u8>> {
    let mut encoder = Encoder { cursor: Cursor::new(json, 0), out: Vec::new(), choices };
    encoder.value()?;
    Some(encoder.out)
}

/// What a body says, without what only shows how it was spelled.
type Said = Result<(Batch, Vec<(usize, Reason, BodyHash)>), (Reason, Option<String>, Option<String>)>;

fn said(decoded: Result<Batch, Unreadable>) -> Said {
    let name = |unreadable: Unreadable| {
        let device_id = unreadable.device_id.map(|id| id.to_string());
        (unreadable.reason, device_id, unreadable.batch_id.map(|id| id.to_string()))
    };
    decoded.map_err(name).map(|mut batch| {
        let unusable = std::mem::take(&mut batch.unusable);
        (batch, unusable.into_iter().map(|one| (one.index, one.reason, one.hash)).collect())
    })
}

fn read(body: &[u8]) -> Result<Batch, Unreadable> {
    decode(body, &Limits::default())
}

proptest! {
    #[test]
    fn a_batch_says_the_same_in_every_form(
        elements in vec(prop_oneof![6 => record(), 1 => json()], 0..5),
        choices in choices(),
    ) {
        let body = body_of(&elements);
        let plain = said(checked(body.as_bytes()));
        let cbor = encode(&body, choices);
        for packing in PACKINGS {
            let packed = pack(packing, body.as_bytes());
            prop_assert_eq!(read(&packed), read(body.as_bytes()), "{:?}", packing);
            if let Some(cbor) = &cbor {
                prop_assert_eq!(&said(read(&pack(packing, cbor))), &plain, "CBOR, {:?}", packing);
            }
        }
    }

    #[test]
    fn any_object_says_the_same_in_every_form(
        members in vec(("device_id|batch_id|epoch_id|records|x", json()), 0..5),
        choices in choices(),
    ) {
        let body = object(&members);
        if let Some(cbor) = encode(&body, choices) {
            prop_assert_eq!(said(read(&cbor)), said(read(body.as_bytes())));
        }
    }

    #[test]
    fn damage_never_panics_and_stays_in_bounds(
        elements in vec(record(), 0..4),
        choices in choices(),
        packing in 0..4_usize,
        as_cbor: bool,
        hits in vec((any::<prop::sample::Index>(), any::<u8>(), 0..4_u8), 1..4),
        max in 0..600_usize,
    ) {
        let json = body_of(&elements);
        let inner = encode(&json, choices).filter(|_| as_cbor).unwrap_or_else(|| json.into_bytes());
        let mut body = pack(PACKINGS[packing], &inner);
        for (at, byte, how) in hits {
            let at = at.index(body.len().max(1));
            match how {
                0 if at < body.len() => body[at] = byte,
                1 if at < body.len() => body[at] ^= 1 << (byte % 8),
                2 if at < body.len() => drop(body.remove(at)),
                _ => body.insert(at.min(body.len()), byte),
            }
            let limits = Limits { decoded_bytes_max: max, ..Limits::default() };
            if let Ok(batch) = decode(&body, &limits) {
                // A record takes two bytes at least.
                prop_assert!(2 * batch.records.len() <= max);
                let bytes = |record: &Record| record.extra.as_ref().map_or(0, |text| text.len());
                prop_assert!(batch.records.iter().map(bytes).sum::<usize>() <= 4 * max);
            }
            match Form::of(&body) {
                Form::Packed(packing) => {
                    let inner = inflate::inflate(packing, &body, max);
                    prop_assert!(inner.is_err() || inner.is_ok_and(|inner| inner.len() <= max));
                }
                Form::Cbor => {
                    if let Ok(json) = cbor::to_json(&body, max) {
                        prop_assert!(json.len() <= max);
                        let text = String::from_utf8_lossy(bare(&json)).into_owned();
                        prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok(), "{}", text);
                    }
                }
                Form::Json => {}
            }
        }
    }

    #[test]
    fn any_cbor_becomes_json(mut body in vec(any::<u8>(), 1..60)) {
        if let Ok(json) = cbor::to_json(&body, 1 << 16) {
            let text = String::from_utf8_lossy(&json).into_owned();
            prop_assert!(serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok(), "{}", text);
        }
        body[0] = 0xbf;
        let _answer = read(&body);
    }
}
