//! The node's ear at the bus: what other nodes say goes to the shards that hear it; what the bus confirms or has lost is
//! told to those it concerns. Holds no rule. Must hold: words keep their order on their way into a shard.

use crate::shard::inbox::Inbox;
use crate::shard::mail::Mail;
use crate::supervisor::fault;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tavern_hub::node::registry::shards_of;
use tavern_hub::{LinkId, Node, Parcel as Words};
use tavern_store::{BusError, BusInbox, Interest, Lost, Parcel, Ticket};
use tokio::sync::Notify;

pub struct Ear {
    node: Arc<Node>,
    inboxes: Vec<Arc<Inbox>>,
    /// Rung when another node has left sessions in the store.
    left: Arc<Notify>,
    bell: Arc<crate::events::Bell>,
}

/// A shard that has too much to do is asked again after this long.
const BUSY: Duration = Duration::from_millis(1);

impl Ear {
    pub fn new(
        node: Arc<Node>,
        inboxes: Vec<Arc<Inbox>>,
        left: Arc<Notify>,
        bell: Arc<crate::events::Bell>,
    ) -> Arc<Ear> {
        Arc::new(Ear { node, inboxes, left, bell })
    }

    /// Waits until the shard takes it: the bus keeps the rest meanwhile, as far as its bounds go.
    fn put(&self, shard: usize, words: Vec<Words>) {
        if words.is_empty() {
            return;
        }
        let inbox = &self.inboxes[shard];
        while inbox.is_full() && !inbox.is_closed() {
            std::thread::sleep(BUSY);
        }
        inbox.force(Mail::Parcels(words));
    }
}

impl BusInbox for Ear {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        if let Err(error) = &outcome {
            tracing::warn!(%error, "the bus did not take a subscription");
        }
        let mut ready: BTreeMap<usize, Vec<LinkId>> = BTreeMap::new();
        for (shard, link) in self.node.carrier.confirmed(ticket, outcome) {
            ready.entry(shard).or_default().push(link);
        }
        for (shard, links) in ready {
            self.inboxes[shard].force(Mail::Ready(links));
        }
    }

    fn words(&self, parcels: Vec<Parcel>) {
        fault::strikes("bus");
        let mut heard: Vec<Vec<Words>> = self.inboxes.iter().map(|_| Vec::new()).collect();
        for parcel in &parcels {
            if let Some((told, mask)) = self.node.unpack_rumour(parcel) {
                shards_of(mask).for_each(|shard| self.inboxes[shard].force(Mail::Rumour(told.clone())));
            } else if self.node.is_left(parcel) {
                self.left.notify_one();
            } else if let Some(subscription) = self.node.unpack_nudge(parcel) {
                self.bell.nudged(subscription);
            } else if let Some((shard, from, letter)) = self.node.unpack_letter(parcel) {
                // What was said before it was written is heard before it is read.
                self.put(shard, std::mem::take(&mut heard[shard]));
                self.inboxes[shard].force(Mail::Letter(from, Box::new(letter)));
            } else if let Some((told, mask)) = self.node.unpack_news(parcel) {
                shards_of(mask).for_each(|shard| self.inboxes[shard].force(Mail::News(told.clone())));
            } else if let Some((space, words, mask)) = self.node.unpack(parcel) {
                shards_of(mask).for_each(|shard| heard[shard].push(Words { space, words: words.clone() }));
            }
        }
        for (shard, words) in heard.into_iter().enumerate() {
            self.put(shard, words);
        }
    }

    fn lost(&self, lost: Lost) {
        let channel = match &lost {
            Lost::Everything => None,
            Lost::On(subject) => match subject.channel() {
                Some(name) => Some(name),
                // Not a channel's: whoever follows that subject reads again by itself.
                None => return,
            },
        };
        tracing::warn!("messages of other processes were lost on their way here");
        for inbox in &self.inboxes {
            inbox.force(Mail::Lost(channel.clone()));
        }
    }

    fn needs(&self) -> Vec<Interest> {
        self.node.needs()
    }
}
