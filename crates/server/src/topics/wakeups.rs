//! Wakes what waits for events: the delivery worker, with the names of topics and subscriptions; and the shards whose
//! clients pull. Must hold: no wake-up is lost; the memory is bounded by the number of names.

use super::TopicShards;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use tavern_hub::Node;
use tavern_store::Deadline;
use tokio::sync::Notify;

pub struct Wakeups {
    node: Arc<Node>,
    shards: Arc<dyn TopicShards>,
    update: Mutex<GrownTopics>,
    worker: Notify,
}

/// The wake-ups since the delivery worker took them last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GrownTopics {
    /// Topics with new events.
    pub topics: BTreeSet<Arc<str>>,
    /// Subscriptions that were created, changed or deleted, or whose progress was changed by a command.
    pub subscriptions: BTreeSet<Arc<str>>,
    /// Subscriptions with events that another node has seen.
    pub nudged: BTreeSet<Arc<str>>,
    /// Subscriptions whose worker did not renew its deadline.
    pub overdue: BTreeSet<Deadline>,
}

impl Wakeups {
    pub fn new(node: Arc<Node>, shards: Arc<dyn TopicShards>) -> Wakeups {
        Wakeups { node, shards, update: Mutex::default(), worker: Notify::new() }
    }

    /// Call this after the commit.
    pub fn published(&self, topic: Arc<str>) {
        for shard in (0..self.node.settings.shards).filter(|shard| self.node.has_pulls(*shard)) {
            self.shards.topic_grew(shard, topic.clone());
        }
        self.note(|update| {
            update.topics.insert(topic);
        });
    }

    /// Call this after the commit.
    pub fn changed(&self, subscription: Arc<str>) {
        self.note(|update| {
            update.subscriptions.insert(subscription);
        });
    }

    /// Another node reports events for a subscription.
    pub fn nudged(&self, subscription: Arc<str>) {
        self.note(|update| {
            update.nudged.insert(subscription);
        });
    }

    /// Check whether a subscription has a worker.
    pub fn overdue(&self, deadline: Deadline) {
        self.note(|update| {
            update.overdue.insert(deadline);
        });
    }

    fn note(&self, note: impl FnOnce(&mut GrownTopics)) {
        note(&mut self.update.lock().unwrap_or_else(PoisonError::into_inner));
        self.worker.notify_one();
    }

    /// Waits for wake-ups; for the delivery worker alone.
    pub async fn next(&self) -> GrownTopics {
        loop {
            let update = std::mem::take(&mut *self.update.lock().unwrap_or_else(PoisonError::into_inner));
            if update != GrownTopics::default() {
                return update;
            }
            self.worker.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topics::TopicRequest;
    use tavern_domain::{Identity, Time};
    use tavern_hub::{Settings, TokenVerifier};
    use tavern_wire::error::{Code, Refusal};

    struct NoTokens;

    impl TokenVerifier for NoTokens {
        fn verify(&self, _: &str, _: Time) -> Result<Identity, Refusal> {
            Err(Refusal::from(Code::Unauthenticated))
        }
    }

    struct NoShards;

    impl TopicShards for NoShards {
        fn run(&self, _: TopicRequest) -> bool {
            false
        }

        fn topic_grew(&self, shard: usize, _: Arc<str>) {
            panic!("no client of shard {shard} pulls");
        }
    }

    #[tokio::test]
    async fn updates_from_before_and_during_a_read_are_sent_once() {
        let node = Node::new(Settings::default(), Box::new(NoTokens));
        let wakeups = Arc::new(Wakeups::new(node, Arc::new(NoShards)));
        wakeups.published("a".into());
        wakeups.published("a".into());
        wakeups.changed("s".into());
        let update = wakeups.next().await;
        assert_eq!((update.topics.len(), update.subscriptions.len()), (1, 1));
        let waiting = tokio::spawn({
            let wakeups = wakeups.clone();
            async move { wakeups.next().await }
        });
        tokio::task::yield_now().await;
        wakeups.published("b".into());
        assert!(waiting.await.unwrap().topics.contains("b"));
    }
}
