//! Leases: who alone works on something, for a while. Must hold: one holder at a time; the number of a lease grows with
//! every new holder, so what a late holder writes can be told by the number it expects.

use crate::row::Writer;
use std::sync::Arc;
use tavern_domain::Time;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub name: Arc<str>,
    pub holder: Writer,
    /// By the store's time. An ended lease that nobody took is still its holder's.
    pub until: Time,
}

/// Takes a lease that is free, has ended, or whose holder's epoch is closed; prolongs one's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    pub name: Arc<str>,
    pub lease_ms: u64,
}
