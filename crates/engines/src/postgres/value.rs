//! How times, numbers and texts are stored in columns.
//! Must hold: `Time::NEVER` is read back as itself although columns are signed.

use super::error::PostgresError;
use std::sync::Arc;
use tavern_domain::Time;
use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn time(value: Time) -> i64 {
    number(value.0)
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, PostgresError> {
    Ok(row.try_get(column)?)
}

pub(super) fn text<T: for<'a> From<&'a str>>(row: &Row, column: usize) -> Result<T, PostgresError> {
    Ok(get::<&str>(row, column)?.into())
}

pub(super) fn text_or_none(row: &Row, column: usize) -> Result<Option<Arc<str>>, PostgresError> {
    Ok(get::<Option<&str>>(row, column)?.map(Arc::from))
}

pub(super) fn read_number(row: &Row, column: usize) -> Result<u64, PostgresError> {
    u64::try_from(get::<i64>(row, column)?).map_err(|_| PostgresError::Unexpected("a number is negative"))
}

pub(super) fn read_time(row: &Row, column: usize) -> Result<Time, PostgresError> {
    let value = read_number(row, column)?;
    Ok(if value == i64::MAX as u64 { Time::NEVER } else { Time(value) })
}

pub(super) fn read_time_or_none(row: &Row, column: usize) -> Result<Option<Time>, PostgresError> {
    match get::<Option<i64>>(row, column)? {
        None => Ok(None),
        Some(_) => read_time(row, column).map(Some),
    }
}
