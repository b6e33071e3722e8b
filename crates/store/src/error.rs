//! What can go wrong in a store. A variant names the caller's next move.

use crate::limits;
use crate::node::Writer;
use crate::row::RowKey;
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;
use tavern_domain::{Epoch, Time};

/// The error of an engine, for logs. It never reaches a client.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Why work was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Read again and decide again.
    #[error("{key} is at version {found}, expected {expected}")]
    Conflict { key: RowKey, expected: u64, found: u64 },
    /// Open a new epoch and announce the live clients again.
    #[error("epoch {} of node {node} is closed", epoch.0)]
    Fenced { node: Arc<str>, epoch: Epoch },
    /// Do not take over that node.
    #[error("node {node} has a lease until {}", until.0)]
    Leased { node: Writer, until: Time },
    /// An unknown node is not a dead node: nothing to take over.
    #[error("node {node} is unknown")]
    UnknownNode { node: Writer },
    /// Another node does this work; try again when the lease has ended.
    #[error("the lease {name} is held by {by} until {}", until.0)]
    LeaseHeld { name: Arc<str>, by: Writer, until: Time },
    /// Try again later. The outcome of a commit is unknown: expectations make a retry safe.
    #[error("the store is not available")]
    Unavailable { retry_after_ms: u64, source: Cause },
    /// Do not retry.
    #[error("{what}: {found}, at most {limit}")]
    TooLarge { what: &'static str, found: usize, limit: usize },
    /// An operator must fix it.
    #[error("the store cannot be read: {what}")]
    Corrupt { what: String, source: Option<Cause> },
    /// An operator must restore a backup: nothing that is read can be trusted.
    #[error("the store is damaged: {what}")]
    Damaged { what: &'static str, source: Cause },
    /// Choose another folder or repair it.
    #[error("the data folder {} cannot be used: {reason}", path.display())]
    Folder { path: PathBuf, reason: String, source: Option<Cause> },
    /// Start the program that wrote it, or use another store.
    #[error(
        "the store has schema version {found}, this program uses {known}: start the tavern version that wrote it, or choose an empty store"
    )]
    SchemaVersion { found: u64, known: u64 },
    #[error("no store of kind {kind:?}: use memory:, sqlite:FOLDER, redis://… or postgres://…")]
    Address { kind: String },
    /// Correct the address. The message does not repeat it: it may contain a password.
    #[error("the address of the store cannot be parsed: {what}")]
    Malformed { what: &'static str },
}

/// Why a store is unavailable for a reason of its own.
#[derive(Debug, thiserror::Error)]
pub enum Outage {
    #[error("the store has stopped")]
    Stopped,
    #[error("the queue of the store is full")]
    Full,
    #[error("the request timed out")]
    Timeout,
    #[error("a fault was injected")]
    Injected,
}

impl From<Outage> for StoreError {
    fn from(outage: Outage) -> StoreError {
        StoreError::unavailable(outage)
    }
}

impl StoreError {
    /// With the default delay before a retry.
    pub fn unavailable(cause: impl Error + Send + Sync + 'static) -> StoreError {
        StoreError::Unavailable { retry_after_ms: limits::RETRY_AFTER_MS, source: Arc::new(cause) }
    }

    /// For a caller that stopped waiting: the outcome is unknown.
    pub fn timeout() -> StoreError {
        Outage::Timeout.into()
    }

    /// A refusal concerns one commit; anything else is a failure of the engine.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            StoreError::Conflict { .. }
                | StoreError::Fenced { .. }
                | StoreError::Leased { .. }
                | StoreError::UnknownNode { .. }
                | StoreError::LeaseHeld { .. }
                | StoreError::TooLarge { .. }
        )
    }
}
