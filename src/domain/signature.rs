//! Signatures of uploads: fleet keys, the device keys derived from them, the header grammar.
//!
//! Key derivation is that of Azure DPS enrolment groups: base64 of HMAC-SHA256(group key, registration id).
//! No key is kept here as it was given: a [`FleetKey`] holds HMAC's state after the key, which signs and
//! derives, and which nothing prints.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_PAD_INDIFFERENT, URL_SAFE_PAD_INDIFFERENT};
use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;
use thiserror::Error;

use super::ids::DeviceId;

/// Bytes of a signature, and of a device's key: an HMAC-SHA256.
pub const SIGNATURE_LEN: usize = 32;
/// Most tokens of all `X-Signature` lines together that are looked at: what a hostile header can cost.
pub const TOKENS_MAX: usize = 16;
/// Fewest bytes of a secret.
pub const SECRET_LEN_MIN: usize = 16;

const SECRET_PREFIX: &str = "whsec_";

/// First 4 bytes of SHA-256 of a key: names a key in logs and tables without giving it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyFingerprint(pub [u8; 4]);

impl KeyFingerprint {
    /// The fingerprint of a secret's bytes.
    pub fn of(secret: &[u8]) -> Self {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let [a, b, c, d, ..] = digest;
        Self([a, b, c, d])
    }
}

impl std::fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Who signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signer {
    /// A device, with the key derived for it.
    Device(DeviceId),
    /// The fleet key itself (`shared_fleet_key`), no device named outside the body.
    Fleet,
}

/// A body whose signature holds. Nothing downstream can be built without one, and only this module makes them.
#[derive(Clone, Debug)]
pub struct VerifiedBody {
    bytes: Bytes,
    signer: Signer,
    key: KeyFingerprint,
}

impl VerifiedBody {
    /// The body as sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whose key it was.
    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Which fleet key it was, or was derived from.
    pub fn key(&self) -> KeyFingerprint {
        self.key
    }

    /// Gives up the proof for the bytes.
    pub fn into_bytes(self) -> Bytes {
        self.bytes
    }
}

/// A live fleet key: every device's key is derived from it.
#[derive(Clone)]
pub struct FleetKey {
    /// HMAC with the key already taken in: two of the four compressions of a short message are done once.
    keyed: Hmac<Sha256>,
    fingerprint: KeyFingerprint,
}

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FleetKey({})", self.fingerprint())
    }
}

impl FleetKey {
    /// Takes the secret's bytes.
    pub fn new(secret: &[u8]) -> Self {
        Self { keyed: keyed(secret), fingerprint: KeyFingerprint::of(secret) }
    }

    /// Names this key without giving it away.
    pub fn fingerprint(&self) -> KeyFingerprint {
        self.fingerprint
    }

    /// HMAC-SHA256 of the device id under this key: the 32 bytes a tracker signs with. What is given out is
    /// [`spell_key`] of it.
    pub fn derive(&self, device_id: &DeviceId) -> [u8; SIGNATURE_LEN] {
        self.mac(device_id.as_str().as_bytes())
    }

    /// HMAC-SHA256 of a body under the fleet key itself (`shared_fleet_key`).
    pub fn mac(&self, body: &[u8]) -> [u8; SIGNATURE_LEN] {
        finish(self.keyed.clone(), body)
    }
}

fn keyed(secret: &[u8]) -> Hmac<Sha256> {
    // RFC 2104 hashes a long key and pads a short one.
    Hmac::new_from_slice(secret).expect("HMAC takes a key of any length")
}

fn finish(keyed: Hmac<Sha256>, body: &[u8]) -> [u8; SIGNATURE_LEN] {
    keyed.chain_update(body).finalize().into_bytes().into()
}

/// HMAC-SHA256 of a message under a key of any length.
pub fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; SIGNATURE_LEN] {
    finish(keyed(key), message)
}

/// Signs a body as a tracker does: HMAC-SHA256 in 64 lower-case hex digits, without `sha256=`.
pub fn sign(key: &[u8; SIGNATURE_LEN], body: &[u8]) -> String {
    hex(&hmac_sha256(key, body))
}

/// Bytes in lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A device's key as it is given out: standard base64 with padding.
pub fn spell_key(key: &[u8; SIGNATURE_LEN]) -> String {
    STANDARD.encode(key)
}

/// Reads a device's key; base64 in either alphabet, padded or not. `None` unless it is 32 bytes.
pub fn read_key(text: &str) -> Option<[u8; SIGNATURE_LEN]> {
    read_base64(text.as_bytes())
}

/// Why a text is no secret. The message never holds the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretFault {
    /// Nothing there.
    #[error("is empty")]
    Empty,
    /// Fewer than [`SECRET_LEN_MIN`] bytes (after decoding).
    #[error("is too short: at least 16 bytes are needed")]
    Short,
    /// `whsec_` and then no base64.
    #[error("starts with whsec_ but is not base64 behind it")]
    BadBase64,
}

/// Reads a secret: `whsec_<base64>` (either alphabet, padded or not) decoded, or else the text's own bytes.
pub fn parse_secret(text: &str) -> Result<Vec<u8>, SecretFault> {
    let bytes = match text.strip_prefix(SECRET_PREFIX) {
        Some(coded) => STANDARD_PAD_INDIFFERENT
            .decode(coded)
            .or_else(|_| URL_SAFE_PAD_INDIFFERENT.decode(coded))
            .map_err(|_| SecretFault::BadBase64)?,
        None => text.as_bytes().to_vec(),
    };
    match bytes.len() {
        0 => Err(SecretFault::Empty),
        1..SECRET_LEN_MIN => Err(SecretFault::Short),
        _ => Ok(bytes),
    }
}

/// Writes a secret so that [`parse_secret`] reads it back: `whsec_` and standard base64.
pub fn spell_secret(secret: &[u8]) -> String {
    format!("{SECRET_PREFIX}{}", STANDARD.encode(secret))
}

/// The signatures offered by the `X-Signature` lines of a request: at most 16 tokens, those of 32 bytes kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered(Vec<[u8; SIGNATURE_LEN]>);

/// Reads all header lines, in order. Never fails: what is no signature is skipped, and none offered matches none.
///
/// Lines are split at blanks and commas. The first [`TOKENS_MAX`] tokens of all lines together are looked at,
/// a bare `v1` (as in `v1,<base64>`) being a token like any other that is no signature. `sha256=` and `v1=`
/// are stripped in exactly this spelling: only hex digits have a case that does not matter.
pub fn read_signatures<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Offered {
    let tokens = lines.into_iter().flat_map(|line| line.split(|b| matches!(b, b' ' | b'\t' | b',')));
    Offered(tokens.filter(|token| !token.is_empty()).take(TOKENS_MAX).filter_map(read_signature).collect())
}

fn read_signature(token: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
    let bare = token.strip_prefix(b"sha256=").or_else(|| token.strip_prefix(b"v1=")).unwrap_or(token);
    if bare.len() == 2 * SIGNATURE_LEN { read_hex(bare) } else { read_base64(bare) }
}

fn read_hex(digits: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    let mut bytes = [0; SIGNATURE_LEN];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let [high, low] = pair else { return None };
        *byte = nibble(*high)? << 4 | nibble(*low)?;
    }
    Some(bytes)
}

/// 32 bytes are 43 characters, 44 with the padding. One alphabet a token, and bits beyond the last byte must
/// be zero: each alphabet spells a signature in exactly one way.
fn read_base64(text: &[u8]) -> Option<[u8; SIGNATURE_LEN]> {
    if !matches!(text.len(), 43 | 44) {
        return None;
    }
    let mut room = [0; SIGNATURE_LEN + 1];
    let read = STANDARD_PAD_INDIFFERENT
        .decode_slice(text, &mut room)
        .or_else(|_| URL_SAFE_PAD_INDIFFERENT.decode_slice(text, &mut room))
        .ok()?;
    room.get(..read)?.try_into().ok()
}

impl Offered {
    /// Whether nothing was offered that could match: the body need not be read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares with every offered signature, without stopping at the first that matches.
    fn holds(&self, expected: &[u8; SIGNATURE_LEN]) -> bool {
        self.0.iter().fold(subtle::Choice::from(0), |any, offered| any | offered.ct_eq(expected)).into()
    }
}

/// Checks a body against what was offered under every live fleet key. `None`: no match.
///
/// With a `device_id` the key derived for it must have signed, or, with `shared_fleet_key`, the fleet key
/// itself; the signer is that device. Without one only the fleet key itself can have signed, where
/// `shared_fleet_key` allows it. Each key's HMAC over the body is computed once, and neither a match nor its
/// place shortens the work.
pub fn verify(
    keys: &[FleetKey],
    device_id: Option<&DeviceId>,
    shared_fleet_key: bool,
    offered: &Offered,
    body: Bytes,
) -> Option<VerifiedBody> {
    let mut matching = None;
    for key in keys {
        let by_device = device_id.map(|id| finish(keyed(&key.derive(id)), &body));
        let by_fleet = shared_fleet_key.then(|| key.mac(&body));
        for expected in [by_device, by_fleet].into_iter().flatten() {
            let holds = offered.holds(&expected);
            matching = matching.or(holds.then_some(key.fingerprint));
        }
    }
    let signer = device_id.map_or(Signer::Fleet, |id| Signer::Device(id.clone()));
    matching.map(|key| VerifiedBody { bytes: body, signer, key })
}

#[cfg(test)]
mod tests;
