//! Decoding with salvage: the bytes of a verified body become a batch, and one bad value never takes its
//! neighbours along.
//!
//! Two passes: `quick` reads a clean body straight into a [`Batch`]; whatever it refuses is read again by
//! `salvage`, record by record. Both apply the rules of `fields` and agree on every body that the quick pass
//! accepts. Bytes decide the format, never a header. Compressed bodies and CBOR are recognised, not read.

mod canonical;
mod fault;
mod fields;
mod quick;
mod repair;
mod salvage;
mod scalar;
mod scout;
mod walk;
mod when;
mod written;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

use super::batch::{Batch, Limits, Unreadable};
use super::reason::Reason;
pub use written::to_json;

/// UTF-8's byte-order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a verified body as a batch. Takes time linear in the body (sorting keys apart) and memory of at most
/// a small multiple of it, whatever the bytes are.
pub fn decode(body: &[u8], limits: &Limits) -> Result<Batch, Unreadable> {
    if let Some(encoding) = foreign_encoding(body) {
        return Err(unreadable(Reason::UnsupportedEncoding, format!("the body is {encoding}")));
    }
    if body.len() > limits.decoded_bytes_max {
        let detail = format!("{} bytes, at most {} are taken", body.len(), limits.decoded_bytes_max);
        return Err(unreadable(Reason::DecodedTooLarge, detail));
    }
    let json = bare(body);
    if json.is_empty() {
        return Err(unreadable(Reason::InvalidJson, "the body is empty".to_owned()));
    }
    let quick = std::str::from_utf8(json).ok().and_then(|text| quick::read(text, limits));
    quick.map_or_else(|| salvage::read(json, limits), Ok)
}

/// What the first bytes say the body is, where that is not JSON.
fn foreign_encoding(body: &[u8]) -> Option<&'static str> {
    match body {
        [0x1f, 0x8b, ..] => Some("gzip"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some("zstd"),
        [0x78, 0x01 | 0x5e | 0x9c | 0xda, ..] => Some("zlib"),
        // A map, or the tag that only says "this is CBOR". Neither can begin a JSON text.
        [0xa0..=0xbf, ..] | [0xd9, 0xd9, 0xf7, ..] => Some("CBOR"),
        _ => None,
    }
}

/// The body without a byte-order mark in front and without NUL and white space behind.
fn bare(body: &[u8]) -> &[u8] {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let padding = body.iter().rev().take_while(|b| **b == 0 || b.is_ascii_whitespace()).count();
    &body[..body.len() - padding]
}

fn unreadable(reason: Reason, detail: String) -> Unreadable {
    Unreadable { reason, detail, device_id: None, batch_id: None }
}
