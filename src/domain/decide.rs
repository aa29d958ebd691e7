//! The one decision function.

/// Rules that configuration may choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// What a known batch id with new content does.
    pub reused_batch_id: ReusedBatchId,
    /// Most bytes of distinct bodies a device may have in quarantine.
    pub quarantine_bytes_max: u64,
    /// Days after which a guard falls by itself.
    pub guard_days: u32,
}

/// What a known batch id with new content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReusedBatchId {
    /// The body goes to quarantine.
    Quarantine,
    /// Its new records are let in.
    Ingest,
}

impl Default for Policy {
    fn default() -> Self {
        Self { reused_batch_id: ReusedBatchId::Quarantine, quarantine_bytes_max: 64 << 20, guard_days: 7 }
    }
}
