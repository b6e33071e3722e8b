//! The in-process bus: the nodes that joined it and what each of them listens to.

use crate::bus::{BusPacket, BusReceiver};
use crate::interest::Interest;
use crate::subject::Subject;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

#[derive(Default)]
pub(super) struct BusSubscribers {
    joined: BTreeMap<u64, BusSubscriber>,
    next: u64,
}

struct BusSubscriber {
    node: Arc<str>,
    receiver: Arc<dyn BusReceiver>,
    exact: BTreeSet<Subject>,
    wide: BTreeSet<Interest>,
}

impl BusSubscribers {
    /// The node of that name will not get its own messages.
    pub fn join(&mut self, node: &str, receiver: Arc<dyn BusReceiver>) -> u64 {
        let id = self.next;
        self.next += 1;
        let (exact, wide) = (BTreeSet::new(), BTreeSet::new());
        self.joined.insert(id, BusSubscriber { node: node.into(), receiver, exact, wide });
        id
    }

    pub fn leave(&mut self, id: u64) {
        self.joined.remove(&id);
    }

    pub fn subscribe(&mut self, id: u64, interests: Vec<Interest>) {
        if let Some(subscriber) = self.joined.get_mut(&id) {
            for interest in interests {
                match interest.exact() {
                    Some(subject) => subscriber.exact.insert(subject.clone()),
                    None => subscriber.wide.insert(interest),
                };
            }
        }
    }

    pub fn unsubscribe(&mut self, id: u64, interests: &[Interest]) {
        if let Some(subscriber) = self.joined.get_mut(&id) {
            for interest in interests {
                match interest.exact() {
                    Some(subject) => subscriber.exact.remove(subject),
                    None => subscriber.wide.remove(interest),
                };
            }
        }
    }

    /// Whether it has subscribed to all of them.
    pub fn has(&self, id: u64, interests: &[Interest]) -> bool {
        let Some(subscriber) = self.joined.get(&id) else { return false };
        interests.iter().all(|interest| match interest.exact() {
            Some(subject) => subscriber.exact.contains(subject),
            None => subscriber.wide.contains(interest),
        })
    }

    pub fn receiver(&self, id: u64) -> Option<Arc<dyn BusReceiver>> {
        self.joined.get(&id).map(|subscriber| subscriber.receiver.clone())
    }

    pub fn node(&self, id: u64) -> Option<Arc<str>> {
        self.joined.get(&id).map(|subscriber| subscriber.node.clone())
    }

    /// Who gets the message. The sender does not.
    pub fn matching(&self, message: &BusPacket) -> Vec<(u64, Arc<str>)> {
        let others = self.joined.iter().filter(|(_, subscriber)| subscriber.node != message.from.node);
        others
            .filter(|(_, subscriber)| subscriber.matches(&message.subject))
            .map(|(id, subscriber)| (*id, subscriber.node.clone()))
            .collect()
    }
}

impl BusSubscriber {
    fn matches(&self, subject: &Subject) -> bool {
        self.exact.contains(subject) || self.wide.iter().any(|wide| wide.matches(subject))
    }
}
