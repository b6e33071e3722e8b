//! Wakes whoever waits for events: the courier, which is told of what; and those who pull, who look for themselves.
//! Must hold: nothing that was rung is missed; it is bounded by the number of names.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tavern_store::Deadline;
use tokio::sync::Notify;

#[derive(Default)]
pub struct Wakeups {
    rung: Mutex<Rung>,
    courier: Notify,
    pulls: Notify,
    /// How often each topic was rung for: who pulls looks only when one of its own was.
    heard: Mutex<HashMap<Arc<str>, u64>>,
}

/// Topics that are counted. With more, all begin anew, and everybody looks.
const HEARD: usize = 10_000;

/// What has happened since the courier looked last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Rung {
    /// Topics with new events.
    pub topics: BTreeSet<Arc<str>>,
    /// Subscriptions that were made, changed or removed, or whose progress somebody else has changed.
    pub subscriptions: BTreeSet<Arc<str>>,
    /// Subscriptions with events that another node has seen.
    pub nudged: BTreeSet<Arc<str>>,
    /// Subscriptions whose worker did not renew its deadline.
    pub overdue: BTreeSet<Deadline>,
}

impl Wakeups {
    /// To be rung after the commit.
    pub fn published(&self, topic: Arc<str>) {
        self.count(&topic);
        self.ring(|rung| {
            rung.topics.insert(topic);
        });
        self.pulls.notify_waiters();
    }

    /// To be rung after the commit.
    pub fn changed(&self, subscription: Arc<str>) {
        self.ring(|rung| {
            rung.subscriptions.insert(subscription);
        });
        self.pulls.notify_waiters();
    }

    /// Another node says that there are events for a subscription.
    pub fn nudged(&self, subscription: Arc<str>) {
        self.ring(|rung| {
            rung.nudged.insert(subscription);
        });
        self.pulls.notify_waiters();
    }

    /// Somebody must look whether a subscription has a worker.
    pub fn overdue(&self, deadline: Deadline) {
        self.ring(|rung| {
            rung.overdue.insert(deadline);
        });
    }

    fn ring(&self, note: impl FnOnce(&mut Rung)) {
        note(&mut self.rung.lock().unwrap_or_else(PoisonError::into_inner));
        self.courier.notify_one();
    }

    fn count(&self, topic: &Arc<str>) {
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        match heard.get_mut(topic) {
            Some(count) => *count += 1,
            None => {
                if heard.len() >= HEARD {
                    heard.clear();
                }
                heard.insert(topic.clone(), 1);
            }
        }
    }

    /// A number that changes when one of these topics is rung for.
    pub fn heard<'a>(&self, topics: impl Iterator<Item = &'a Arc<str>>) -> u64 {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        topics.filter_map(|topic| heard.get(topic)).sum()
    }

    /// Waits until it is rung; for the courier alone.
    pub async fn next(&self) -> Rung {
        loop {
            let rung = std::mem::take(&mut *self.rung.lock().unwrap_or_else(PoisonError::into_inner));
            if rung != Rung::default() {
                return rung;
            }
            self.courier.notified().await;
        }
    }

    /// To be made before one looks; then awaited.
    pub fn update(&self) -> tokio::sync::futures::Notified<'_> {
        self.pulls.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_pulls_hears_its_own_topics() {
        let wakeups = Wakeups::default();
        let topics: [Arc<str>; 2] = ["a".into(), "b".into()];
        let heard = || wakeups.heard(topics.iter());
        let before = heard();
        wakeups.published("c".into());
        assert_eq!(heard(), before);
        wakeups.published("b".into());
        assert_ne!(heard(), before);
    }

    #[tokio::test]
    async fn what_was_rung_before_and_meanwhile_is_told_once() {
        let wakeups = Arc::new(Wakeups::default());
        wakeups.published("a".into());
        wakeups.published("a".into());
        wakeups.changed("s".into());
        let rung = wakeups.next().await;
        assert_eq!((rung.topics.len(), rung.subscriptions.len()), (1, 1));
        let waiting = tokio::spawn({
            let wakeups = wakeups.clone();
            async move { wakeups.next().await }
        });
        tokio::task::yield_now().await;
        wakeups.published("b".into());
        assert!(waiting.await.unwrap().topics.contains("b"));
    }
}
