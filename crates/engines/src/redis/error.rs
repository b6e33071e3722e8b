//! What can go wrong while talking to Redis, and what it means to a caller.

use std::io;
use std::sync::Arc;
use tavern_store::StoreError;

/// What went wrong while talking to the server.
#[derive(Debug, thiserror::Error)]
pub(super) enum RedisError {
    #[error("the connection failed: {0}")]
    Connection(#[from] io::Error),
    /// In the server's own arguments.
    #[error("{0}")]
    Refused(String),
    /// A row or an answer is not as this program writes it.
    #[error("{0}")]
    Unexpected(&'static str),
    #[error("the request timed out")]
    Timeout,
    #[error("the connection was lost")]
    Lost,
    #[error("not connected to Redis")]
    NotConnected,
    #[error("written to {found} of {wanted} replicas")]
    NotReplicated { found: u64, wanted: u64 },
}

impl RedisError {
    /// The code of an error reply: its first word.
    pub fn code(&self) -> &str {
        match self {
            RedisError::Refused(text) => text.split(' ').next().unwrap_or(""),
            _ => "",
        }
    }

    /// Nothing was done; a retry, or another server, may succeed.
    pub fn is_transient(&self) -> bool {
        matches!(
            self.code(),
            "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "READONLY" | "NOSCRIPT" | "MASTERDOWN"
        )
    }

    pub fn ends_connection(&self) -> bool {
        matches!(
            self,
            RedisError::Connection(_) | RedisError::Timeout | RedisError::Lost | RedisError::NotConnected
        ) || matches!(self.code(), "READONLY" | "NOAUTH")
    }
}

impl From<RedisError> for StoreError {
    fn from(error: RedisError) -> StoreError {
        match &error {
            RedisError::Unexpected(what) => {
                StoreError::Corrupt { what: (*what).into(), source: Some(Arc::new(error)) }
            }
            RedisError::Refused(_) if error.code() == "WRONGTYPE" => StoreError::Corrupt {
                what: "a key of the store has the wrong type".into(),
                source: Some(Arc::new(error)),
            },
            _ => StoreError::unavailable(error),
        }
    }
}
