//! The closed list of reasons, with their stable codes. They are the words of receipts, of the quarantine
//! table and of the metrics; a code never changes its meaning.

use serde::{Serialize, Serializer};

macro_rules! reasons {
    ($(#[$outer:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $code:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every reason, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable code.
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code),+ }
            }

            /// The reason of a code; `None` if there is none.
            pub fn from_code(code: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|r| r.code() == code)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.code())
            }
        }
    };
}

reasons! {
    /// Why an upload, or one record of it, went to quarantine.
    Reason {
        /// The body is not one JSON object.
        InvalidJson = "invalid_json",
        /// A key stands twice: at the top level the batch cannot be read, in a record that record.
        DuplicateKey = "duplicate_key",
        /// `device_id` is missing or not 1–64 of the allowed characters.
        DeviceIdInvalid = "device_id_invalid",
        /// `batch_id` is missing or not 1–128 printable ASCII characters.
        BatchIdInvalid = "batch_id_invalid",
        /// `epoch_id` is there and not an integer 0 … 2^63−1.
        EpochInvalid = "epoch_invalid",
        /// `records` is missing or no array.
        RecordsInvalid = "records_invalid",
        /// The body names another device than the one that signed.
        DeviceMismatch = "device_mismatch",
        /// A known batch id with new content.
        InconsistentDuplicate = "inconsistent_duplicate",
        /// More records than the limit.
        TooManyRecords = "too_many_records",
        /// More bytes after decompression than the limit.
        DecodedTooLarge = "decoded_too_large",
        /// A compression or format the gateway does not take.
        UnsupportedEncoding = "unsupported_encoding",
        /// Compressed data or CBOR that is damaged, breaks off, or has other bytes behind it.
        EncodingInvalid = "encoding_invalid",
        /// The gateway itself failed on this body; nothing is wrong with its neighbours.
        InternalError = "internal_error",
        /// An element of `records` is no object.
        RecordInvalid = "record_invalid",
        /// A record's `seq` is missing or not an integer 0 … 2^63−1.
        SeqInvalid = "seq_invalid",
        /// A record's `lat` or `lon` is no number, out of range, or stands alone.
        PositionInvalid = "position_invalid",
        /// A record holds text that is not Unicode (a lone surrogate, bytes that are not UTF-8).
        TextInvalid = "text_invalid",
        /// As many contents of a record's key are stored as are taken, and it has yet another one.
        TooManyConflicts = "too_many_conflicts",
    }
}

reasons! {
    /// Why a stored batch did not move the state.
    NotApplied {
        /// No record was newer than the state.
        Stale = "stale",
        /// The records wait behind the guard of a new epoch.
        Held = "held",
        /// The records belong to an epoch that ops voided.
        Void = "void",
        /// Every record was known.
        Repeated = "repeated",
        /// No record was usable.
        Quarantined = "quarantined",
        /// There was no record: a heartbeat.
        Empty = "empty",
    }
}

reasons! {
    /// Why a log entry does not count.
    Mark {
        /// It waits behind a guard.
        Held = "held",
        /// Ops voided it.
        Void = "void",
        /// It was taken into a later epoch.
        Adopted = "adopted",
    }
}
