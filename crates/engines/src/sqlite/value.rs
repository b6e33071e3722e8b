//! How times and numbers stand in columns, and what SQLite's errors mean to a caller.
//! Must hold: `Time::NEVER` comes back as itself although columns are signed.

use rusqlite::types::Type;
use rusqlite::{Error, ErrorCode, Row};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::error::StoreError;
use tavern_store::limits;

pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn time(value: Time) -> i64 {
    number(value.0)
}

pub(super) fn read_number(row: &Row<'_>, column: usize) -> Result<u64, Error> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| Error::IntegralValueOutOfRange(column, value))
}

pub(super) fn read_time(row: &Row<'_>, column: usize) -> Result<Time, Error> {
    let value = read_number(row, column)?;
    Ok(if value == i64::MAX as u64 { Time::NEVER } else { Time(value) })
}

pub(super) fn read_time_or_none(row: &Row<'_>, column: usize) -> Result<Option<Time>, Error> {
    match row.get_ref(column)?.data_type() {
        Type::Null => Ok(None),
        _ => read_time(row, column).map(Some),
    }
}

/// A column whose text is not what we write there.
pub(super) fn strange(column: usize, what: &str) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, what.into())
}

pub(super) fn fault(error: Error) -> StoreError {
    let what = match &error {
        Error::SqliteFailure(failure, _) => match failure.code {
            ErrorCode::NotADatabase => Some("tavern.db is no database"),
            ErrorCode::DatabaseCorrupt => Some("tavern.db is damaged"),
            _ => None,
        },
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => Some("a row of tavern.db is not as it was written"),
        _ => None,
    };
    match what {
        Some(what) => StoreError::Corrupt { what: what.into(), source: Some(Arc::new(error)) },
        None => unavailable(error),
    }
}

pub(super) fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source: Arc::new(error) }
}
