//! The list of subscriptions: all of them are read when their common document has a new version, a single one when
//! its name is given.

use super::post::DeliveryNotice;
use super::queue::{DeliveryQueue, DeliveryState};
use super::shared::{DeliveryRequest, DeliveryShared};
use super::worker::DeliveryWorker;
use crate::replica::{DocumentList, PageLoad, Replica};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::topic::DELIVERIES;
use tavern_store::{Document, DocumentKey, Found, Read, StoreAnswer, Ticket, Versioned, Work};
use tavern_wire::record::{self, EVENTS, SUBSCRIPTION, SUBSCRIPTIONS, SubscriptionSettings};

/// The name of the only list: no subscription is called so.
pub(super) const ALL_SUBSCRIPTIONS: &str = "";

/// The subscriptions as they are stored. What they are delivered with is in the queues.
pub(super) struct SubscriptionReplica(DocumentList);

impl Default for SubscriptionReplica {
    fn default() -> SubscriptionReplica {
        SubscriptionReplica(DocumentList::new(SUBSCRIPTION, DocumentKey::new(EVENTS, SUBSCRIPTIONS)))
    }
}

impl SubscriptionReplica {
    pub fn is_loaded(&self) -> bool {
        self.0.is_loaded()
    }
}

impl Replica for SubscriptionReplica {
    type Host = DeliveryShared;
    type Update = ();
    type Waiter = ();

    fn begin(&mut self, _: &mut DeliveryShared, _: &Arc<str>) -> Option<Read> {
        Some(self.0.begin())
    }

    fn load(&mut self, _: &mut DeliveryShared, _: &Arc<str>, found: Found) -> PageLoad {
        self.0.load(found)
    }

    fn is_used(&self, _: &DeliveryShared, _: &Arc<str>) -> bool {
        true
    }
}

impl DeliveryWorker {
    pub(super) fn check_list(&mut self) {
        self.list.refresh(&mut self.shared, &ALL_SUBSCRIPTIONS.into());
    }

    pub(super) fn list_answered(&mut self, now: Time, ticket: Ticket, answer: StoreAnswer) {
        let Some(read) = self.list.answered(&mut self.shared, ticket, answer) else { return };
        // What the list says about them may be older. The next read has them: their change was one of the list, too.
        let newer = std::mem::take(&mut self.read_since);
        let Some(list) = self.list.get_mut(&read.name).filter(|_| read.failed.is_none()) else { return };
        let first = !list.is_loaded();
        let Some(mut documents) = list.0.take() else { return };
        documents.retain(|found| !newer.contains(found.row.key.name()));
        // The first time all of them are checked below.
        documents.iter().for_each(|found| self.learn(now, found, !first));
        let names: BTreeSet<&str> = documents.iter().map(|found| found.row.key.name()).collect();
        let is_listed = |name: &str| names.contains(name) || newer.contains(name);
        let gone: Vec<Arc<str>> = self.queues.keys().filter(|name| !is_listed(name)).cloned().collect();
        gone.iter().for_each(|name| self.forget(name));
        if first {
            self.check_all(now);
        }
    }

    /// This subscription, or its progress, was changed.
    pub fn changed(&mut self, name: &Arc<str>) {
        let key = DocumentKey::new(SUBSCRIPTION, name);
        self.shared.ask(DeliveryRequest::One(name.clone()), Work::Read(Read::Document(key)));
    }

    pub(super) fn one_read(&mut self, now: Time, name: &Arc<str>, answer: StoreAnswer) {
        if self.list.is_reading(ALL_SUBSCRIPTIONS) {
            self.read_since.insert(name.clone());
        }
        match answer {
            StoreAnswer::Read(Found::Document(Some(found))) => {
                self.learn(now, &found, self.is_ready());
                let Some(queue) = self.queues.get_mut(name) else { return };
                match &mut queue.state {
                    // The read in progress may be older than the change.
                    DeliveryState::Loads(load) => load.stale = true,
                    DeliveryState::Active(_) => queue.check(&mut self.shared),
                    _ => queue.feed(&mut self.shared, now),
                }
            }
            StoreAnswer::Read(_) => self.forget(name),
            // The next check finds out.
            _ => {
                if let Some(list) = self.list.get_mut(ALL_SUBSCRIPTIONS) {
                    list.0.forget();
                }
            }
        }
    }

    /// `feeds`: it is checked whether there is something to deliver.
    fn learn(&mut self, now: Time, found: &Versioned<Document>, feeds: bool) {
        let name: Arc<str> = found.row.key.name().into();
        if self.queues.get(&name).is_some_and(|queue| queue.version == found.version) {
            return;
        }
        let subscription: SubscriptionSettings = match record::read(&found.row.body) {
            Ok(subscription) => subscription,
            Err(error) => return self.shared.failure(&name, error.to_string()),
        };
        let subscription = Arc::new(subscription);
        let before = self.queues.get(&name).map(|queue| queue.subscription.clone());
        before.iter().for_each(|before| self.unlist(before));
        for topic in &subscription.topics {
            self.topics.entry(topic.clone()).or_default().insert(name.clone());
        }
        self.shared.announces = self.topics.contains_key(DELIVERIES);
        match self.queues.get_mut(&name) {
            Some(queue) => queue.change(&mut self.shared, now, subscription, found.version),
            None => {
                let queue = DeliveryQueue::new(subscription, found.version);
                self.queues.insert(name.clone(), queue);
            }
        }
        if feeds && let Some(queue) = self.queues.get_mut(&name) {
            queue.feed(&mut self.shared, now);
        }
    }

    fn forget(&mut self, name: &Arc<str>) {
        let Some(queue) = self.queues.remove(name) else { return };
        self.shared.notify(DeliveryNotice::Deleted { subscription: name.clone() });
        if matches!(queue.state, DeliveryState::Loads(_)) {
            self.shared.loading -= 1;
        }
        self.unlist(&queue.subscription);
    }

    fn unlist(&mut self, subscription: &SubscriptionSettings) {
        for topic in &subscription.topics {
            if let Some(names) = self.topics.get_mut(topic) {
                names.remove(&subscription.name);
                if names.is_empty() {
                    self.topics.remove(topic);
                }
            }
        }
        self.shared.announces = self.topics.contains_key(DELIVERIES);
    }
}
