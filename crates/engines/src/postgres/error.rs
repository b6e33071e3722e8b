//! What can go wrong while talking to Postgres, and what it means to a caller.

use std::sync::Arc;
use tavern_store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// What went wrong while talking to the server.
#[derive(Debug, thiserror::Error)]
pub(super) enum PostgresError {
    #[error(transparent)]
    Server(#[from] Error),
    /// A column does not hold what this program writes there.
    #[error("{0}")]
    Unexpected(&'static str),
    #[error("the request timed out")]
    Timeout,
    #[error("cannot connect: {0}")]
    Connector(String),
    #[error(
        "a transaction pooler is between this server and Postgres: connect to Postgres itself, or to a pool in session mode"
    )]
    Pooler,
    #[error("not connected to the database")]
    NotConnected,
}

impl PostgresError {
    /// Another transaction conflicted: a retry may succeed.
    pub fn is_contention(&self) -> bool {
        let code = self.code();
        code == Some(&SqlState::T_R_DEADLOCK_DETECTED) || code == Some(&SqlState::T_R_SERIALIZATION_FAILURE)
    }

    /// The server took too long: sent again, it would take as long again.
    pub fn is_timeout(&self) -> bool {
        matches!(self, PostgresError::Timeout) || self.code() == Some(&SqlState::QUERY_CANCELED)
    }

    /// A value of a commit is invalid; the server is fine.
    pub fn is_refused_value(&self) -> bool {
        let code = self.code();
        code.is_some_and(|code| code.code().starts_with("22"))
            || code == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED)
    }

    /// The connection is unusable, or its state is unknown.
    pub fn ends_connection(&self) -> bool {
        match self {
            PostgresError::Server(error) => {
                // Class 57P: shutdown, crash or an administrator's command. A read-only server is no longer the
                // primary: the address may now lead to another server.
                let is_fatal = |code: &SqlState| {
                    code.code().starts_with("57P")
                        || code.code().starts_with("08")
                        || *code == SqlState::READ_ONLY_SQL_TRANSACTION
                };
                error.is_closed() || error.code().is_none_or(is_fatal)
            }
            PostgresError::Timeout | PostgresError::NotConnected | PostgresError::Connector(_) => true,
            PostgresError::Unexpected(_) | PostgresError::Pooler => false,
        }
    }

    fn code(&self) -> Option<&SqlState> {
        match self {
            PostgresError::Server(error) => error.code(),
            _ => None,
        }
    }
}

impl From<PostgresError> for StoreError {
    fn from(error: PostgresError) -> StoreError {
        let code = error.code();
        if code == Some(&SqlState::CHARACTER_NOT_IN_REPERTOIRE) {
            return StoreError::TooLarge { what: "zero bytes in a text", found: 1, limit: 0 };
        }
        if code == Some(&SqlState::PROGRAM_LIMIT_EXCEEDED) {
            // The keys of an index hold 2704 bytes.
            return StoreError::TooLarge { what: "bytes in the names of a row", found: 2705, limit: 2704 };
        }
        if code == Some(&SqlState::DATA_CORRUPTED) || code == Some(&SqlState::INDEX_CORRUPTED) {
            let what = "a table or an index of the database cannot be read";
            return StoreError::Damaged { what, source: Arc::new(error) };
        }
        let what = match &error {
            PostgresError::Unexpected(what) => Some(*what),
            _ if code == Some(&SqlState::UNDEFINED_TABLE) || code == Some(&SqlState::UNDEFINED_COLUMN) => {
                Some("a table of the database was changed")
            }
            _ => None,
        };
        match what {
            Some(what) => StoreError::Corrupt { what: what.into(), source: Some(Arc::new(error)) },
            None => StoreError::unavailable(error),
        }
    }
}
