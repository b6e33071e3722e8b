//! How times and numbers stand in columns, and what Postgres' errors mean to a caller.
//! Must hold: `Time::NEVER` comes back as itself although columns are signed.

use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::error::StoreError;
use tavern_store::limits;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::FromSql;
use tokio_postgres::{Error, Row};

/// What went wrong while talking to the server.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Server(#[from] Error),
    /// A column that does not hold what we write there.
    #[error("{0}")]
    Strange(&'static str),
    #[error("no answer in time")]
    Late,
    #[error("the connection cannot be made: {0}")]
    Connector(String),
    #[error("there is no connection to the database")]
    Down,
}

pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn time(value: Time) -> i64 {
    number(value.0)
}

pub(super) fn get<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T, Trouble> {
    Ok(row.try_get(column)?)
}

pub(super) fn text<T: for<'a> From<&'a str>>(row: &Row, column: usize) -> Result<T, Trouble> {
    Ok(get::<&str>(row, column)?.into())
}

pub(super) fn text_or_none(row: &Row, column: usize) -> Result<Option<Arc<str>>, Trouble> {
    Ok(get::<Option<&str>>(row, column)?.map(Arc::from))
}

pub(super) fn read_number(row: &Row, column: usize) -> Result<u64, Trouble> {
    u64::try_from(get::<i64>(row, column)?).map_err(|_| Trouble::Strange("a number is negative"))
}

pub(super) fn read_time(row: &Row, column: usize) -> Result<Time, Trouble> {
    let value = read_number(row, column)?;
    Ok(if value == i64::MAX as u64 { Time::NEVER } else { Time(value) })
}

pub(super) fn read_time_or_none(row: &Row, column: usize) -> Result<Option<Time>, Trouble> {
    match get::<Option<i64>>(row, column)? {
        None => Ok(None),
        Some(_) => read_time(row, column).map(Some),
    }
}

impl Trouble {
    /// Another transaction was in the way: the same again may go well.
    pub fn is_rivalry(&self) -> bool {
        let code = self.code();
        code == Some(&SqlState::T_R_DEADLOCK_DETECTED) || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
    }

    /// The fault of a value that somebody wants to write, not of the server.
    pub fn is_refused_value(&self) -> bool {
        let code = self.code();
        code.is_some_and(|code| code.code().starts_with("22"))
            || code == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED)
    }

    /// The connection is of no more use, or nobody knows what state it is in.
    pub fn ends_connection(&self) -> bool {
        match self {
            Trouble::Server(error) => {
                // Class 57P is the server's own end: shutdown, crash, an administrator's command. One that is read-only
                // is not the primary any more: the address may lead to another by now.
                let ended = |code: &SqlState| {
                    code.code().starts_with("57P")
                        || code.code().starts_with("08")
                        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
                };
                error.is_closed() || error.code().is_none_or(ended)
            }
            Trouble::Late | Trouble::Down | Trouble::Connector(_) => true,
            Trouble::Strange(_) => false,
        }
    }

    fn code(&self) -> Option<&SqlState> {
        match self {
            Trouble::Server(error) => error.code(),
            _ => None,
        }
    }
}

impl From<Trouble> for StoreError {
    fn from(trouble: Trouble) -> StoreError {
        let code = trouble.code();
        if code == Some(&SqlState::CHARACTER_NOT_IN_REPERTOIRE) {
            return StoreError::TooLarge { what: "zero bytes in a text", found: 1, limit: 0 };
        }
        if code == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) {
            // The keys of an index hold 2704 bytes.
            return StoreError::TooLarge { what: "bytes in the names of a row", found: 2705, limit: 2704 };
        }
        let what = match &trouble {
            Trouble::Strange(what) => Some(*what),
            _ if code == Some(&SqlState::UNDEFINED_TABLE) || code == Some(&SqlState::UNDEFINED_COLUMN) => {
                Some("a table of the database is not as it was made")
            }
            _ if code == Some(&SqlState::DATA_CORRUPTED) || code == Some(&SqlState::INDEX_CORRUPTED) => {
                Some("the database is damaged")
            }
            _ => None,
        };
        match what {
            Some(what) => StoreError::Corrupt { what: what.into(), source: Some(Arc::new(trouble)) },
            None => {
                StoreError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source: Arc::new(trouble) }
            }
        }
    }
}
