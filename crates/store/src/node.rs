//! Nodes as the store sees them. Must hold: an epoch is never used twice.

use std::fmt;
use std::sync::Arc;
use tavern_domain::{Epoch, Time};

/// One lifetime of a node: the writer of a commit. Every commit is fenced by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Writer {
    pub node: Arc<str>,
    pub epoch: Epoch,
}

/// A node as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    pub writer: Writer,
    pub opened_at: Time,
    pub lease_until: Time,
    /// Set once; the time at which its clients were lost.
    pub closed_at: Option<Time>,
    /// The node stopped cleanly: it closed the epoch itself.
    pub clean: bool,
}

impl Writer {
    /// An epoch of a node.
    pub fn new(node: &str, epoch: Epoch) -> Writer {
        Writer { node: node.into(), epoch }
    }

    /// The sender of messages from programs that are not nodes. It has no epoch and does not number its messages.
    pub fn outsider() -> Writer {
        Writer::new("", Epoch(0))
    }

    /// Whether it stands for programs that are not nodes.
    pub fn is_outsider(&self) -> bool {
        self.node.is_empty()
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.node, self.epoch.0)
    }
}
