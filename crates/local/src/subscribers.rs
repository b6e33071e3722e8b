//! The subscribers of this process, one per handle, with their mailboxes and routes.

use crate::mailbox::ProcessMailbox;
use crate::message::{Interest, InterestKind, Message, Publication};
use crate::options::Options;
use crate::routing::SubscriberRoutes;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

#[derive(Default)]
pub struct LocalSubscribers {
    pub routes: SubscriberRoutes,
    by_id: HashMap<u64, LocalSubscriber>,
    last_id: u64,
    /// How often a publisher has asked this process to narrow.
    narrow_requests: u64,
}

pub struct LocalSubscriber {
    mailbox: ProcessMailbox,
    pub interests: BTreeSet<Interest>,
    /// False: it does not receive what it publishes itself.
    echo: bool,
    interrupted: bool,
    /// The last request to narrow that it has seen.
    narrow_seen: u64,
}

impl LocalSubscriber {
    fn subscribes_to_everything(&self) -> bool {
        self.interests.iter().any(|interest| interest.kind == InterestKind::Everything)
    }
}

impl LocalSubscribers {
    pub fn add(&mut self, options: &Options) -> u64 {
        self.last_id += 1;
        let subscriber = LocalSubscriber {
            mailbox: ProcessMailbox::new(options.log_messages, options.log_bytes),
            interests: BTreeSet::new(),
            echo: options.echo,
            interrupted: false,
            narrow_seen: 0,
        };
        self.by_id.insert(self.last_id, subscriber);
        self.last_id
    }

    /// Removes a subscriber with its routes. True: it had subscriptions.
    pub fn remove(&mut self, id: u64) -> bool {
        let Some(gone) = self.by_id.remove(&id) else { return false };
        gone.interests.iter().for_each(|interest| self.routes.remove(id, interest));
        !gone.interests.is_empty()
    }

    pub fn get(&self, id: u64) -> Option<&LocalSubscriber> {
        self.by_id.get(&id)
    }

    pub fn get_mut(&mut self, id: u64) -> Option<&mut LocalSubscriber> {
        self.by_id.get_mut(&id)
    }

    /// How many subscriptions it has.
    pub fn count_of(&self, id: u64) -> usize {
        self.get(id).map_or(0, |subscriber| subscriber.interests.len())
    }

    /// Everything that is subscribed to, by subscriber.
    pub fn interests(&self) -> Vec<(u64, Vec<Interest>)> {
        let active = self.by_id.iter().filter(|(_, subscriber)| !subscriber.interests.is_empty());
        active.map(|(id, subscriber)| (*id, subscriber.interests.iter().cloned().collect())).collect()
    }

    /// Puts a message into the mailboxes of all its subscribers. `process` is the number of this process. True: a
    /// subscriber other than `reader` got something.
    pub fn deliver(&mut self, publication: &Arc<Publication>, process: i64, reader: u64) -> bool {
        let by_id = &mut self.by_id;
        let mut others = false;
        self.routes.route(publication, |id, message| {
            let Some(subscriber) = by_id.get_mut(&id) else { return };
            let is_own = publication.process == process && publication.subscriber == id;
            if !is_own || subscriber.echo {
                subscriber.mailbox.push(message);
                others |= id != reader;
            }
        });
        others
    }

    /// Puts a gap into the mailbox of every subscriber with a subscription.
    pub fn deliver_gap(&mut self, lost: u64) {
        let active = self.by_id.values_mut().filter(|subscriber| !subscriber.interests.is_empty());
        active.for_each(|subscriber| subscriber.mailbox.push_gap(lost));
    }

    /// The next message of a subscriber.
    pub fn take(&mut self, id: u64) -> Option<Message> {
        self.by_id.get_mut(&id)?.mailbox.take()
    }

    /// Whether a subscriber has nothing to read.
    pub fn is_empty(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|subscriber| subscriber.mailbox.is_empty())
    }

    pub fn interrupt(&mut self, id: u64) {
        if let Some(subscriber) = self.by_id.get_mut(&id) {
            subscriber.interrupted = true;
        }
    }

    /// A publisher asks for exact names instead of subscriptions to everything.
    pub fn request_narrow(&mut self) {
        self.narrow_requests += 1;
    }

    /// Requests made so far do not concern this subscriber.
    pub fn skip_narrow_requests(&mut self, id: u64) {
        let requests = self.narrow_requests;
        if let Some(subscriber) = self.by_id.get_mut(&id) {
            subscriber.narrow_seen = requests;
        }
    }

    /// Whether there was a request to narrow since the last call.
    pub fn take_narrow_request(&mut self, id: u64) -> bool {
        let requests = self.narrow_requests;
        let Some(subscriber) = self.by_id.get_mut(&id) else { return false };
        std::mem::replace(&mut subscriber.narrow_seen, requests) != requests
    }

    /// Whether a wait of this subscriber must end: it has a message, was interrupted, or is asked to narrow.
    pub fn must_wake(&self, id: u64) -> bool {
        self.by_id.get(&id).is_some_and(|subscriber| {
            !subscriber.mailbox.is_empty() || subscriber.interrupted || self.is_asked_to_narrow(subscriber)
        })
    }

    /// Whether a wait ends without a message: the subscriber was interrupted, is asked to narrow, or was closed. An
    /// interruption counts once.
    pub fn take_interruption(&mut self, id: u64) -> bool {
        let Some(subscriber) = self.by_id.get(&id) else { return true };
        let asked = self.is_asked_to_narrow(subscriber);
        let interrupted = self.by_id.get_mut(&id).is_some_and(|own| std::mem::take(&mut own.interrupted));
        interrupted || asked
    }

    fn is_asked_to_narrow(&self, subscriber: &LocalSubscriber) -> bool {
        subscriber.narrow_seen != self.narrow_requests && subscriber.subscribes_to_everything()
    }
}
