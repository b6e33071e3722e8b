//! Leases: exclusive work for a limited time. Must hold: one holder at a time; the version of a lease grows with every new
//! holder and is its fencing token: a late holder that expects the old one is refused.

use crate::node::Writer;
use std::sync::Arc;
use tavern_domain::Time;

/// Exclusive work, held by one epoch of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub name: Arc<str>,
    pub holder: Writer,
    /// By the store's time. An ended lease stays with its holder until another node takes it.
    pub until: Time,
}

/// Takes a lease that is free, has ended, or whose holder's epoch is closed; extends the writer's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TakeLease {
    pub name: Arc<str>,
    pub lease_ms: u64,
}
