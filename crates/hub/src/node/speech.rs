//! Which shards have said something that the bus does not have yet. Shared by all shards of a node.
//! Must hold: whoever listens in the registry and then sees a shard silent hears everything that shard says from then on;
//! what was said before is on the bus ahead of whatever the listener writes next.

use std::sync::atomic::{AtomicU64, Ordering, fence};

pub(crate) struct Speech {
    /// Odd: begun, and not on the bus yet.
    turns: Box<[AtomicU64]>,
}

/// What was unsaid at a moment: shards and their turns.
pub(crate) type Unsaid = Vec<(usize, u64)>;

impl Speech {
    pub fn new(shards: usize) -> Speech {
        Speech { turns: (0..shards).map(|_| AtomicU64::new(0)).collect() }
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
    pub fn unsaid(&self, but: usize) -> Unsaid {
        fence(Ordering::SeqCst);
        let turns = self.turns.iter().map(|turn| turn.load(Ordering::SeqCst)).enumerate();
        turns.filter(|(shard, turn)| *shard != but && turn % 2 == 1).collect()
    }

    /// Whether all of it is on the bus by now.
    pub fn is_said(&self, unsaid: &Unsaid) -> bool {
        unsaid.iter().all(|(shard, turn)| self.turns[*shard].load(Ordering::SeqCst) != *turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_shard_has_begun_is_unsaid_until_it_ends() {
        let speech = Speech::new(3);
        assert_eq!(speech.unsaid(0), []);
        speech.begin(1);
        speech.begin(0);
        let unsaid = speech.unsaid(0);
        assert_eq!(unsaid, [(1, 1)], "what it says itself is in its own order");
        assert!(!speech.is_said(&unsaid));
        speech.end(1);
        speech.begin(1);
        assert!(speech.is_said(&unsaid), "what it says next it says to whoever listens by now");
    }
}
