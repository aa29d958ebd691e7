//! Domain values as SQLite columns, and back. A column that holds what no writer of ours wrote is an error.

use rusqlite::ToSql;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSqlOutput, ValueRef};

use crate::domain::ids::{DeviceId, EpochId, Seq};
use crate::domain::reason::{Mark, Reason};
use crate::domain::signature::KeyFingerprint;
use crate::domain::time::Timestamp;

macro_rules! integer_column {
    ($type:ty, $to:ident, $from:expr) => {
        impl ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::from(self.$to()))
            }
        }

        impl FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                let integer = value.as_i64()?;
                $from(integer).ok_or(FromSqlError::OutOfRange(integer))
            }
        }
    };
}

integer_column!(Seq, to_i64, Seq::from_i64);
integer_column!(EpochId, to_i64, EpochId::from_i64);
integer_column!(Timestamp, to_micros, Timestamp::from_micros);

macro_rules! code_column {
    ($type:ty) => {
        impl ToSql for $type {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                Ok(ToSqlOutput::from(self.code()))
            }
        }

        impl FromSql for $type {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                <$type>::from_code(value.as_str()?).ok_or(FromSqlError::InvalidType)
            }
        }
    };
}

code_column!(Mark);
code_column!(Reason);

impl ToSql for DeviceId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.as_str()))
    }
}

impl FromSql for DeviceId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Self::parse(value.as_str()?).ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for KeyFingerprint {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.0.as_slice()))
    }
}

impl FromSql for KeyFingerprint {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value.as_blob()?.try_into().map(Self).map_err(|_| FromSqlError::InvalidType)
    }
}

/// A count as a signed column holds it.
pub(super) fn count_to_sql(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
