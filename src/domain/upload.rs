//! One verified upload on its way to the store.

use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::batch::{Batch, Limits, Unreadable};
use super::decode;
use super::ids::{BatchId, DeviceId};
use super::reason::Reason;
use super::signature::{KeyFingerprint, Signer, VerifiedBody};
use super::time::Timestamp;

/// First 16 bytes of SHA-256: tells one body from another. Whoever could make two bodies collide holds the
/// key that signs them, and would deceive only their own device.
pub type BodyHash = [u8; 16];

/// Hashes a body, or the bytes of one record, for the quarantine and the duplicate check.
pub fn body_hash(bytes: &[u8]) -> BodyHash {
    let mut hash = BodyHash::default();
    hash.copy_from_slice(&Sha256::digest(bytes)[..16]);
    hash
}

/// A verified upload, read: all that the decision needs and the store keeps.
#[derive(Clone, Debug)]
pub struct Upload {
    /// Whose upload this is: the signer; with the shared fleet key the device the body names. `None` only
    /// where that key signed a body that names no device.
    pub device_id: Option<DeviceId>,
    /// Which fleet key signed.
    pub key: KeyFingerprint,
    /// When its last byte arrived.
    pub received_at: Timestamp,
    /// The body as sent.
    pub body: Bytes,
    /// Its hash.
    pub body_hash: BodyHash,
    /// What the body says.
    pub content: Result<Batch, Unreadable>,
    #[expect(dead_code, reason = "it is there so that nothing else can build an upload")]
    proof: Proof,
}

/// Makes sure that only this module builds uploads, and so only from verified bodies.
#[derive(Clone, Copy, Debug)]
struct Proof;

impl Upload {
    /// Reads a verified body. Never fails: what cannot be read becomes an [`Unreadable`] content.
    pub fn read(body: VerifiedBody, received_at: Timestamp, limits: &Limits) -> Self {
        let content = decode::decode(body.bytes(), limits);
        let named = match &content {
            Ok(batch) => Some(&batch.device_id),
            Err(unreadable) => unreadable.device_id.as_ref(),
        };
        let (device_id, content) = match body.signer() {
            Signer::Fleet => (named.cloned(), content),
            Signer::Device(signer) if named.is_some_and(|named| named != signer) && !is_broken(&content) => {
                (Some(signer.clone()), Err(mismatch(&content, signer)))
            }
            Signer::Device(signer) => (Some(signer.clone()), content),
        };
        Self::new(body, device_id, received_at, content)
    }

    /// A verified body on whose decoding the gateway itself failed: it goes to quarantine whole.
    pub fn failed(body: VerifiedBody, received_at: Timestamp, detail: String) -> Self {
        let device_id = match body.signer() {
            Signer::Device(device_id) => Some(device_id.clone()),
            Signer::Fleet => None,
        };
        let content = Err(internal_error(detail, device_id.clone(), None));
        Self::new(body, device_id, received_at, content)
    }

    /// This upload as one on which the gateway itself failed later: it goes to quarantine whole.
    #[must_use]
    pub fn into_internal_error(mut self, detail: String) -> Self {
        let batch_id = self.batch_id().cloned();
        self.content = Err(internal_error(detail, self.device_id.clone(), batch_id));
        self
    }

    fn new(
        body: VerifiedBody,
        device_id: Option<DeviceId>,
        received_at: Timestamp,
        content: Result<Batch, Unreadable>,
    ) -> Self {
        let key = body.key();
        let body = body.into_bytes();
        Self { device_id, key, received_at, body_hash: body_hash(&body), body, content, proof: Proof }
    }

    /// An upload with any content, for tests of the rules behind the signature.
    #[cfg(test)]
    pub(crate) fn unverified(
        device_id: Option<DeviceId>,
        received_at: Timestamp,
        body: Bytes,
        content: Result<Batch, Unreadable>,
    ) -> Self {
        let key = KeyFingerprint([0; 4]);
        Self { device_id, key, received_at, body_hash: body_hash(&body), body, content, proof: Proof }
    }

    /// About how many bytes of memory it takes, body and content together. Ten thousand records of a few bytes
    /// each take fifty times what was sent: whoever bounds waiting uploads must count these bytes.
    pub fn weight(&self) -> usize {
        let len = |text: &Option<Box<str>>| text.as_ref().map_or(0, |text| text.len());
        let content = self.content.as_ref().map_or(0, |batch| {
            let records: usize =
                batch.records.iter().map(|record| len(&record.extra) + len(&record.raw)).sum();
            let unusable: usize = batch.unusable.iter().map(|one| one.detail.len() + one.bytes.len()).sum();
            records
                + unusable
                + size_of_val(batch.records.as_slice())
                + size_of_val(batch.unusable.as_slice())
                + len(&batch.extra)
        });
        self.body.len() + content
    }

    /// The batch id, where one could be read.
    pub fn batch_id(&self) -> Option<&BatchId> {
        match &self.content {
            Ok(batch) => Some(&batch.batch_id),
            Err(unreadable) => unreadable.batch_id.as_ref(),
        }
    }
}

/// Whether the body is no whole object, so that the device it seems to name says little.
fn is_broken(content: &Result<Batch, Unreadable>) -> bool {
    use Reason::{DecodedTooLarge, DuplicateKey, EncodingInvalid, InvalidJson};
    let reason = content.as_ref().err().map(|unreadable| unreadable.reason);
    matches!(reason, Some(InvalidJson | DuplicateKey | EncodingInvalid | DecodedTooLarge))
}

fn internal_error(detail: String, device_id: Option<DeviceId>, batch_id: Option<BatchId>) -> Unreadable {
    Unreadable { reason: Reason::InternalError, detail, device_id, batch_id }
}

fn mismatch(content: &Result<Batch, Unreadable>, signer: &DeviceId) -> Unreadable {
    let (named, batch_id) = match content {
        Ok(batch) => (Some(batch.device_id.clone()), Some(batch.batch_id.clone())),
        Err(unreadable) => (unreadable.device_id.clone(), unreadable.batch_id.clone()),
    };
    let detail = named
        .as_ref()
        .map_or_else(String::new, |named| format!("the body names device {named}, signed has {signer}"));
    Unreadable { reason: Reason::DeviceMismatch, detail, device_id: named, batch_id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::batch::UnusableRecord;
    use crate::domain::record::Record;
    use crate::domain::signature::{FleetKey, read_signatures, sign, verify};

    fn weight(body: &str) -> usize {
        let (key, device) = (FleetKey::new(&[7; 32]), DeviceId::parse("d").expect("an id"));
        let signature = sign(&key.derive(&device), body.as_bytes());
        let offered = read_signatures([signature.as_bytes()]);
        let body = Bytes::copy_from_slice(body.as_bytes());
        let body = verify(&[key], Some(&device), false, &offered, body).expect("the signature holds");
        Upload::read(body, Timestamp::EPOCH, &Limits::default()).weight()
    }

    #[test]
    fn many_small_records_weigh_what_they_take_in_memory() {
        let body = |records: &str| format!(r#"{{"device_id":"d","batch_id":"b","records":[{records}]}}"#);
        let none = weight(&body(""));
        assert_eq!(none, body("").len());
        let usable = vec![r#"{"seq":1}"#; 1000].join(",");
        assert!(weight(&body(&usable)) - none >= 1000 * size_of::<Record>() + usable.len());
        let unusable = vec!["{}"; 1000].join(",");
        assert!(weight(&body(&unusable)) - none >= 1000 * (size_of::<UnusableRecord>() + 2) + unusable.len());
        let text = "x".repeat(5000);
        let large = weight(&body(&format!(r#"{{"seq":1,"note":"{text}"}}"#)));
        assert!(large - none > 2 * text.len(), "the body and the record each hold it");
        assert_eq!(weight("{rubbish"), 8);
    }
}
