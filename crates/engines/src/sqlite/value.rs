//! How times and numbers are stored in columns, the clock of the store, and what SQLite's errors mean to a caller.
//! Must hold: `Time::NEVER` is read back as itself although columns are signed.

use rusqlite::types::Type;
use rusqlite::{Connection, Error, ErrorCode, Row};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::commit::VersionClock;
use tavern_store::{StoreError, StoreTotals};

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

/// A column does not hold what this program writes there.
pub(super) fn unexpected(column: usize, what: &str) -> Error {
    Error::FromSqlConversionFailure(column, Type::Text, what.into())
}

pub(super) fn fault(error: Error) -> StoreError {
    let damage = match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => Some("tavern.db is not a SQLite database"),
        Some(ErrorCode::DatabaseCorrupt) => Some("tavern.db cannot be read, run tavern doctor"),
        _ => None,
    };
    if let Some(what) = damage {
        return StoreError::Damaged { what, source: Arc::new(error) };
    }
    let what = match &error {
        Error::FromSqlConversionFailure(..)
        | Error::IntegralValueOutOfRange(..)
        | Error::InvalidColumnType(..)
        | Error::Utf8Error(..) => Some("a row of tavern.db was changed"),
        _ => None,
    };
    match what {
        Some(what) => StoreError::Corrupt { what: what.into(), source: Some(Arc::new(error)) },
        None => StoreError::unavailable(error),
    }
}

pub(super) fn read_clock(connection: &Connection) -> Result<VersionClock, Error> {
    let read = |row: &Row<'_>| {
        let totals = StoreTotals { users: row.get(2)?, presences: row.get(3)?, parties: row.get(4)? };
        Ok(VersionClock { time: read_time(row, 0)?, floor: read_number(row, 1)?, totals })
    };
    let sql = "SELECT time_ms, floor, users, presences, parties FROM store_clock";
    connection.prepare_cached(sql)?.query_row([], read)
}

pub(super) fn write_clock(connection: &Connection, clock: VersionClock) -> Result<(), Error> {
    let sql = "UPDATE store_clock SET time_ms = ?1, floor = ?2, users = ?3, presences = ?4, parties = ?5";
    let StoreTotals { users, presences, parties } = clock.totals;
    let values = (time(clock.time), number(clock.floor), users, presences, parties);
    connection.prepare_cached(sql)?.execute(values).map(drop)
}
