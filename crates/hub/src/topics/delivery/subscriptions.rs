//! The list of subscriptions: all of them are read when their common document has a new version, a single one when
//! its name is given.

use super::post::DeliveryNotice;
use super::queue::{DeliveryQueue, DeliveryState};
use super::shared::DeliveryRequest;
use super::worker::DeliveryWorker;
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::topic::DELIVERIES;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Document, DocumentKey, Found, Read, Row, RowKey, RowKind, StoreAnswer, Versioned, Work};
use tavern_wire::record::{self, EVENTS, SUBSCRIPTION, SUBSCRIPTIONS, SubscriptionSettings};

impl DeliveryWorker {
    pub(super) fn check_list(&mut self) {
        if !std::mem::replace(&mut self.checking_list, true) {
            let key = DocumentKey::new(EVENTS, SUBSCRIPTIONS);
            self.shared.ask(DeliveryRequest::ListVersion, Work::Read(Read::Document(key)));
        }
    }

    pub(super) fn list_checked(&mut self, answer: StoreAnswer) {
        self.checking_list = false;
        let StoreAnswer::Read(Found::Document(found)) = answer else { return };
        let version = found.map_or(0, |found| found.version);
        if self.listed != Some(version) {
            self.checking_list = true;
            // Sorts before every name that a subscription may have.
            self.list(version, BTreeSet::new(), DocumentKey::new(SUBSCRIPTION, ""));
        }
    }

    fn list(&mut self, version: u64, names: BTreeSet<Arc<str>>, after: DocumentKey) {
        let after = Some(RowKey::Document(after));
        let read = Read::Rows { kind: RowKind::Document, after, limit: PAGE_ROWS };
        self.shared.ask(DeliveryRequest::List { version, names }, Work::Read(read));
    }

    pub(super) fn list_read(
        &mut self,
        now: Time,
        version: u64,
        mut names: BTreeSet<Arc<str>>,
        answer: StoreAnswer,
    ) {
        let StoreAnswer::Read(Found::Rows(page)) = answer else {
            self.checking_list = false;
            return;
        };
        let mut last = None;
        for Versioned { version, row } in page.rows {
            let Row::Document(document) = row else { continue };
            if document.key.kind() != SUBSCRIPTION {
                last = None;
                break;
            }
            names.insert(document.key.name().into());
            self.learn(now, &Versioned { version, row: document.clone() });
            last = page.more.then_some(document.key);
        }
        if let Some(last) = last {
            return self.list(version, names, last);
        }
        self.checking_list = false;
        let first = self.listed.replace(version).is_none();
        let gone: Vec<Arc<str>> = self.queues.keys().filter(|name| !names.contains(*name)).cloned().collect();
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
        match answer {
            StoreAnswer::Read(Found::Document(Some(found))) => {
                self.learn(now, &found);
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
            _ => self.listed = None,
        }
    }

    fn learn(&mut self, now: Time, found: &Versioned<Document>) {
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
        if self.listed.is_some()
            && let Some(queue) = self.queues.get_mut(&name)
        {
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
