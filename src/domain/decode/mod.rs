//! Decoding with salvage: the bytes of a verified body become a batch, and one bad value never takes its
//! neighbours along.
//!
//! Two passes: `quick` reads a clean body straight into a [`Batch`]; whatever it refuses is read again by
//! `salvage`, record by record. Both apply the rules of `fields` and agree on every body that the quick pass
//! accepts.
//!
//! Bytes decide the form, never a header (`form`). One layer of compression is undone (`inflate`) and CBOR is
//! written out as JSON (`cbor`) before that, each within the limit, so that a batch says the same in every form.

mod canonical;
mod cbor;
mod fault;
mod fields;
mod form;
mod inflate;
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
use fault::Fault;
use form::Form;
use inflate::inflate;
pub use written::to_json;

/// UTF-8's byte-order mark.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Reads a verified body as a batch. Takes time linear in the decoded body (sorting keys apart) and memory of at
/// most a small multiple of it, whatever the bytes are.
pub fn decode(body: &[u8], limits: &Limits) -> Result<Batch, Unreadable> {
    let packing = match Form::of(body) {
        Form::Json => return read_json(body, limits),
        Form::Cbor => return read_json(&cbor::to_json(body, limits.decoded_bytes_max)?, limits),
        Form::Packed(packing) => packing,
    };
    let inner = inflate(packing, body, limits.decoded_bytes_max)
        .map_err(|Fault { reason, detail }| unreadable(reason, detail))?;
    match Form::of(&inner) {
        Form::Json => read_json(&inner, limits),
        Form::Cbor => {
            let json = cbor::to_json(&inner, limits.decoded_bytes_max)?;
            drop(inner);
            read_json(&json, limits)
        }
        Form::Packed(nested) => {
            Err(unreadable(Reason::UnsupportedEncoding, format!("the {packing} body holds {nested} again")))
        }
    }
}

fn read_json(body: &[u8], limits: &Limits) -> Result<Batch, Unreadable> {
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

/// The body without a byte-order mark in front and without NUL and white space behind.
fn bare(body: &[u8]) -> &[u8] {
    let body = body.strip_prefix(BYTE_ORDER_MARK).unwrap_or(body);
    let padding = body.iter().rev().take_while(|b| pads(**b)).count();
    &body[..body.len() - padding]
}

/// Whether there is nothing that counts.
fn is_padding(behind: &[u8]) -> bool {
    behind.iter().all(|byte| pads(*byte))
}

/// NUL and white space, which modems put behind a body.
const fn pads(byte: u8) -> bool {
    byte == 0 || byte.is_ascii_whitespace()
}

fn unreadable(reason: Reason, detail: String) -> Unreadable {
    Unreadable { reason, detail, device_id: None, batch_id: None }
}
