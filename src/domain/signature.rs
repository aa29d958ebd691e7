//! Signatures of uploads: fleet keys, the device keys derived from them, the header grammar.

use bytes::Bytes;

use super::ids::DeviceId;

/// First 4 bytes of SHA-256 of a key: names a key in logs and tables without giving it away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyFingerprint(pub [u8; 4]);

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
    secret: Box<[u8]>,
}

impl std::fmt::Debug for FleetKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FleetKey({})", self.fingerprint())
    }
}

impl std::fmt::Display for KeyFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FleetKey {
    /// Takes the secret's bytes.
    pub fn new(secret: &[u8]) -> Self {
        Self { secret: secret.into() }
    }

    /// Names this key without giving it away.
    pub fn fingerprint(&self) -> KeyFingerprint {
        unreachable!("{:?}", self.secret.len())
    }

    /// HMAC-SHA256 of the device id under this key: the 32 bytes a tracker signs with.
    pub fn derive(&self, _device_id: &DeviceId) -> [u8; 32] {
        unreachable!()
    }
}

/// The signatures offered by the `X-Signature` lines of a request: at most 16 tokens, those of 32 bytes kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offered(Vec<[u8; 32]>);

/// Reads all header lines, in order. Never fails: what is no signature is skipped, and none offered matches none.
pub fn read_signatures<'a>(_lines: impl IntoIterator<Item = &'a [u8]>) -> Offered {
    unreachable!()
}

impl Offered {
    /// Whether nothing was offered that could match: the body need not be read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Checks a body against what was offered under every live fleet key, derived for `device_id`, or under the
/// fleet keys themselves when no device was named (the caller decides whether that is allowed). `None`: no match.
pub fn verify(
    _keys: &[FleetKey],
    _device_id: Option<&DeviceId>,
    _offered: &Offered,
    _body: Bytes,
) -> Option<VerifiedBody> {
    unreachable!()
}
