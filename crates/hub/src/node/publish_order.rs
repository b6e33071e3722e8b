//! Which shards are publishing something that is not on the bus yet. Shared by all shards of a node; lock-free,
//! because every publish uses it. Must hold, for a shard that adds itself to a name's listeners and then calls
//! `pending`: it receives everything that a shard not in the result publishes from then on; what a shard in the
//! result publishes is on the bus once `is_published` is true.

use crate::sync::{AtomicU64, Ordering, fence};

pub(crate) struct PublishOrder {
    /// One counter per shard. Odd: a publish has started and is not on the bus yet.
    counters: Box<[AtomicU64]>,
}

/// The publishes in progress at one moment: shards and their counters.
pub(crate) type PendingPublishes = Vec<(usize, u64)>;

impl PublishOrder {
    pub fn new(shards: usize) -> PublishOrder {
        PublishOrder { counters: (0..shards).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Call before reading who listens to what is published.
    pub fn begin(&self, shard: usize) {
        self.counters[shard].fetch_add(1, Ordering::SeqCst);
        // The listeners must be read after the counter is seen as odd.
        fence(Ordering::SeqCst);
    }

    /// Call when everything that the shard published is on the bus.
    pub fn end(&self, shard: usize) {
        self.counters[shard].fetch_add(1, Ordering::SeqCst);
    }

    /// Call after adding a listener: the other shards that may be publishing without having seen it.
    pub fn pending(&self, own_shard: usize) -> PendingPublishes {
        // The counters must be read after the listener is visible.
        fence(Ordering::SeqCst);
        let counters = self.counters.iter().map(|counter| counter.load(Ordering::SeqCst)).enumerate();
        counters.filter(|(shard, counter)| *shard != own_shard && counter % 2 == 1).collect()
    }

    /// Whether all of them are on the bus by now.
    pub fn is_published(&self, pending: &PendingPublishes) -> bool {
        pending.iter().all(|(shard, counter)| self.counters[*shard].load(Ordering::SeqCst) != *counter)
    }
}
