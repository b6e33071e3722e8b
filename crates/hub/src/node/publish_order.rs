//! Which shards have said something that the bus does not have yet. Shared by all shards of a node.
//! Must hold: whoever listens in the registry and then sees a shard silent hears everything that shard says from then on;
//! what was said before is on the bus ahead of whatever the listener writes next.

use std::sync::atomic::{AtomicU64, Ordering, fence};

pub(crate) struct PublishOrder {
    /// Odd: begun, and not on the bus yet.
    turns: Box<[AtomicU64]>,
}

/// What was unsaid at a moment: shards and their turns.
pub(crate) type PendingPublishes = Vec<(usize, u64)>;

impl PublishOrder {
    pub fn new(shards: usize) -> PublishOrder {
        PublishOrder { turns: (0..shards).map(|_| AtomicU64::new(0)).collect() }
    }

    /// To be called before a shard looks who listens to what it is about to say.
    pub fn begin(&self, shard: usize) {
        self.turns[shard].fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The bus has everything that the shard said.
    pub fn end(&self, shard: usize) {
        self.turns[shard].fetch_add(1, Ordering::SeqCst);
    }

    /// To be called by a shard after it has begun to listen: what the others may be saying without having seen that.
    pub fn unsaid(&self, but: usize) -> PendingPublishes {
        fence(Ordering::SeqCst);
        let turns = self.turns.iter().map(|turn| turn.load(Ordering::SeqCst)).enumerate();
        turns.filter(|(shard, turn)| *shard != but && turn % 2 == 1).collect()
    }

    /// Whether all of it is on the bus by now.
    pub fn is_said(&self, unsaid: &PendingPublishes) -> bool {
        unsaid.iter().all(|(shard, turn)| self.turns[*shard].load(Ordering::SeqCst) != *turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_shard_has_begun_is_unsaid_until_it_ends() {
        let publish_order = PublishOrder::new(3);
        assert_eq!(publish_order.unsaid(0), []);
        publish_order.begin(1);
        publish_order.begin(0);
        let unsaid = publish_order.unsaid(0);
        assert_eq!(unsaid, [(1, 1)], "what it says itself is in its own order");
        assert!(!publish_order.is_said(&unsaid));
        publish_order.end(1);
        publish_order.begin(1);
        assert!(publish_order.is_said(&unsaid), "what it says next it says to whoever listens by now");
    }
}
