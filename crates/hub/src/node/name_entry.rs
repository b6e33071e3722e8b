//! One name that shards of this node listen to: how many subscriptions it has, and on which shards.
//! Must hold: a shard sets its bit before its subscriber gets the reply, and only that shard changes its bit.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::Arc;

#[derive(Debug)]
pub struct NameEntry {
    pub name: Arc<[u8]>,
    total: AtomicU32,
    mask: AtomicU64,
    /// Shards that have a route for this name. Changed under the registry's lock only.
    holders: AtomicU32,
}

impl NameEntry {
    pub(super) fn new(name: &[u8]) -> NameEntry {
        NameEntry {
            name: name.into(),
            total: AtomicU32::new(0),
            mask: AtomicU64::new(0),
            holders: AtomicU32::new(0),
        }
    }

    /// Subscriptions on this node.
    pub fn total(&self) -> u32 {
        self.total.load(Ordering::Acquire)
    }

    /// Shards with a listener.
    pub fn mask(&self) -> u64 {
        self.mask.load(Ordering::Acquire)
    }

    /// True: this is the first subscription on this node.
    pub fn added(&self, shard: usize, first: bool) -> bool {
        if first {
            self.mask.fetch_or(1 << shard, Ordering::AcqRel);
        }
        self.total.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// True: this was the last subscription on this node.
    pub fn removed(&self, shard: usize, last: bool) -> bool {
        if last {
            self.mask.fetch_and(!(1 << shard), Ordering::AcqRel);
        }
        let before = self.total.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "more subscriptions ended than began");
        before == 1
    }

    /// One more shard has a route for this name.
    pub(super) fn hold(&self) {
        self.holders.fetch_add(1, Ordering::Relaxed);
    }

    /// True: the last shard released its route.
    pub(super) fn release(&self) -> bool {
        self.holders.fetch_sub(1, Ordering::Relaxed) == 1
    }
}
