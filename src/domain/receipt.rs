//! The receipt: what the gateway decided for one upload, and so the body of the answer.

use serde::Serialize;

use super::ids::{EpochId, Seq};
use super::reason::{NotApplied, Reason};

/// The first word of a receipt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// The batch was taken.
    Processed,
    /// The batch was known and brought nothing new.
    Duplicate,
    /// The body is kept for a person; nothing of it was applied.
    Quarantined,
}

impl Status {
    /// The word in answers and metrics.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Duplicate => "duplicate",
            Self::Quarantined => "quarantined",
        }
    }
}

/// How many records went which way. `accepted + repeated + conflicts + quarantined` = records sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Newly logged, the held and void ones among them.
    pub accepted: u64,
    /// Exact repeats of an entry.
    #[serde(skip_serializing_if = "is_zero")]
    pub repeated: u64,
    /// Stored beside an earlier entry of the same key.
    #[serde(skip_serializing_if = "is_zero")]
    pub conflicts: u64,
    /// Of the accepted ones: those that wait behind a guard.
    #[serde(skip_serializing_if = "is_zero")]
    pub held: u64,
    /// Records that went to quarantine.
    #[serde(skip_serializing_if = "is_zero")]
    pub quarantined: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde calls")]
fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// Why a state did not move, or why a body went to quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Why {
    /// Stored, state not moved.
    NotApplied(NotApplied),
    /// Kept for a person.
    Quarantined(Reason),
}

/// What was decided for one upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Taken, known, or kept for a person.
    pub status: Status,
    /// Records by outcome; absent where the body was not read as a batch.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub counts: Option<Counts>,
    /// Whether the state or the position moved; absent where the body was not read as a batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<bool>,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<Why>,
    /// Epoch of the device's state after the commit; absent while it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_id: Option<EpochId>,
    /// Seq of the device's state after the commit; absent while it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<Seq>,
}
