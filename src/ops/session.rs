//! Sessions of browsers: a cookie's value that stands for a bearer token until it expires.
//!
//! Nothing is stored. A value holds when it expires, a random nonce, a mark of the token, and an HMAC-SHA256
//! over these under a key derived from a seal key. So a session survives a restart and holds on every gateway
//! with the same secrets, and it ends with its token. The mark is an HMAC of the token's digest, not a piece of
//! the digest: whoever steals a cookie must not be able to try guesses of the token on it.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;

use super::secrets::{Secret, Secrets};
use super::tokens::{Caller, TokenDigest};
use crate::domain::signature::{SIGNATURE_LEN, hmac_sha256};
use crate::domain::time::Timestamp;

/// How long a session lasts: a working day, and none overnight.
pub const SECONDS: i64 = 12 * 3600;
/// Bytes of the random part.
pub const NONCE_LEN: usize = 16;

const EXPIRY_LEN: usize = 8;
const MARK_LEN: usize = 16;
const CLAIM_LEN: usize = EXPIRY_LEN + NONCE_LEN + MARK_LEN;
const SEALED_LEN: usize = CLAIM_LEN + SIGNATURE_LEN;
/// Characters of a value: base64url without padding, and 72 bytes leave no bits over, so that each value has
/// one spelling.
const VALUE_LEN: usize = SEALED_LEN / 3 * 4;
/// Most ended sessions that are remembered. At 24 bytes each they take less than a megabyte.
const ENDED_MAX: usize = 10_000;

/// What the derived keys are for: neither MAC can stand for the other, nor for anything else made of a seal key.
const SEALING: &[u8] = b"tidegate session";
const MARKING: &[u8] = b"tidegate session token";

/// Names one session. Orders by expiry.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId {
    expires_at: Timestamp,
    nonce: [u8; NONCE_LEN],
}

/// A session that holds.
pub struct Session {
    /// Its name, to end it by.
    pub id: SessionId,
    /// Whose it is, as the token that it was given for is configured now.
    pub caller: Caller,
}

/// Makes the value of a new session for the holder of a token. `None` if there is no seal key, which no
/// gateway starts without.
pub fn issue(
    seal_keys: &[Secret],
    token: &TokenDigest,
    expires_at: Timestamp,
    nonce: [u8; NONCE_LEN],
) -> Option<String> {
    let key = seal_keys.first()?;
    let claim = [&expires_at.to_micros().to_be_bytes()[..], &nonce, &mark(key, token)].concat();
    Some(URL_SAFE_NO_PAD.encode([&claim[..], &seal(key, &claim)].concat()))
}

/// Checks a presented value: sealed under a live seal key, not expired, its token still configured. Whether the
/// session was ended is not known here, see [`Ended`].
pub fn check(secrets: &Secrets, value: &[u8], now: Timestamp) -> Option<Session> {
    let sealed = decode(value)?;
    let (claim, offered) = sealed.split_first_chunk::<CLAIM_LEN>()?;
    let key = sealing_key(&secrets.seal_keys, claim, offered)?;
    let (expiry, rest) = claim.split_first_chunk::<EXPIRY_LEN>()?;
    let (nonce, offered_mark) = rest.split_first_chunk::<NONCE_LEN>()?;
    let expires_at = Timestamp::from_micros(i64::from_be_bytes(*expiry)).filter(|end| now < *end)?;
    let caller = secrets.tokens.find(|token| mark(key, token).ct_eq(offered_mark))?;
    Some(Session { id: SessionId { expires_at, nonce: *nonce }, caller })
}

fn decode(value: &[u8]) -> Option<[u8; SEALED_LEN]> {
    let mut sealed = [0; SEALED_LEN];
    let fits = value.len() == VALUE_LEN;
    let read = if fits { URL_SAFE_NO_PAD.decode_slice(value, &mut sealed).ok()? } else { 0 };
    (read == SEALED_LEN).then_some(sealed)
}

/// The seal key under which the claim was sealed. All are tried, whichever it is.
fn sealing_key<'a>(keys: &'a [Secret], claim: &[u8], offered: &[u8]) -> Option<&'a Secret> {
    keys.iter().fold(None, |found, key| {
        let holds = bool::from(seal(key, claim).ct_eq(offered));
        found.or(holds.then_some(key))
    })
}

fn seal(key: &Secret, claim: &[u8]) -> [u8; SIGNATURE_LEN] {
    hmac_sha256(&hmac_sha256(key.bytes(), SEALING), claim)
}

fn mark(key: &Secret, token: &TokenDigest) -> [u8; MARK_LEN] {
    let whole = hmac_sha256(&hmac_sha256(key.bytes(), MARKING), token.bytes());
    let mut mark = [0; MARK_LEN];
    mark.copy_from_slice(&whole[..MARK_LEN]);
    mark
}

/// Sessions that were ended before they expire, as far as this process knows. Bounded: when it is full, those
/// that expire first anyway are forgotten.
#[derive(Default)]
pub struct Ended(Mutex<BTreeSet<SessionId>>);

impl std::fmt::Debug for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ended({})", self.ids().len())
    }
}

impl Ended {
    /// Remembers that a session has ended, and forgets those that have expired.
    pub fn add(&self, id: SessionId, now: Timestamp) {
        let mut ids = self.ids();
        ids.insert(id);
        while ids.first().is_some_and(|first| ids.len() > ENDED_MAX || first.expires_at <= now) {
            ids.pop_first();
        }
    }

    /// Whether the session was ended.
    pub fn contains(&self, id: &SessionId) -> bool {
        self.ids().contains(id)
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<SessionId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
