//! The receiver of bus messages: what other nodes say goes to the shards that listen; what the bus confirms or has lost goes
//! to those it concerns. Holds no rule. Must hold: messages keep their order on their way into a shard.

use crate::shard::Shards;
use crate::shard::input::ShardInput;
use crate::supervisor::fault;
use crate::topics::Wakeups;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tavern_hub::node::registry::shards_of;
use tavern_hub::{LinkId, Node, ReceivedMessage, ShardEvent, ShardMessage as Words};
use tavern_store::{BusError, BusLoss, BusPacket, BusReceiver, Interest, Ticket};
use tokio::sync::Notify;

pub struct BusDispatcher {
    pub node: Arc<Node>,
    pub shards: Shards,
    /// Notified when another node has left sessions in the store.
    pub adoption: Arc<Notify>,
    /// Told of topics with events for a subscription.
    pub wakeups: Arc<Wakeups>,
}

/// A full shard is looked at again after this long.
const RETRY: Duration = Duration::from_millis(1);

impl BusDispatcher {
    /// Waits until the shard takes it: the bus keeps the rest meanwhile, as far as its bounds go.
    fn put(&self, shard: usize, words: Vec<Words>) {
        if words.is_empty() {
            return;
        }
        let queue = self.shards.queue(shard);
        while queue.is_full() && !queue.is_closed() {
            std::thread::sleep(RETRY);
        }
        queue.force(ShardInput::Packets(words));
    }
}

impl BusReceiver for BusDispatcher {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        if let Err(error) = &outcome {
            tracing::warn!(%error, "bus subscription failed");
        }
        let mut ready: BTreeMap<usize, Vec<LinkId>> = BTreeMap::new();
        for (shard, link) in self.node.carrier.confirmed(ticket, outcome) {
            ready.entry(shard).or_default().push(link);
        }
        for (shard, links) in ready {
            self.shards.force(shard, ShardInput::Hub(ShardEvent::BusReady(links)));
        }
    }

    fn messages(&self, packets: Vec<BusPacket>) {
        fault::strikes("bus");
        let mut heard: Vec<Vec<Words>> = (0..self.shards.len()).map(|_| Vec::new()).collect();
        for packet in &packets {
            match self.node.receive(packet) {
                Some(ReceivedMessage::Words { space, words, mask }) => {
                    shards_of(mask)
                        .for_each(|shard| heard[shard].push(Words { space, words: words.clone() }));
                }
                Some(ReceivedMessage::Presence { told, mask }) => {
                    shards_of(mask).for_each(|shard| {
                        self.shards.force(shard, ShardInput::Hub(ShardEvent::Presence(told.clone())))
                    });
                }
                Some(ReceivedMessage::Person { told, mask }) => {
                    shards_of(mask).for_each(|shard| {
                        self.shards.force(shard, ShardInput::Hub(ShardEvent::Status(told.clone())))
                    });
                }
                Some(ReceivedMessage::Session { shard, from, request }) => {
                    // Messages that came before it are handed over before it.
                    self.put(shard, std::mem::take(&mut heard[shard]));
                    self.shards.force(shard, ShardInput::Hub(ShardEvent::Migration { from, request }));
                }
                Some(ReceivedMessage::NodeLeft) => self.adoption.notify_one(),
                Some(ReceivedMessage::Subscription(name)) => self.wakeups.nudged(name),
                None => {}
            }
        }
        for (shard, words) in heard.into_iter().enumerate() {
            self.put(shard, words);
        }
    }

    fn lost(&self, lost: BusLoss) {
        let channel = match &lost {
            BusLoss::Everything => None,
            BusLoss::On(subject) => match subject.channel() {
                Some(name) => Some(Arc::<[u8]>::from(name)),
                // Not a channel: its subscribers read again by themselves.
                None => return,
            },
        };
        tracing::warn!("bus messages lost");
        self.shards.force_all(|| ShardInput::Hub(ShardEvent::BusLost(channel.clone())));
    }

    fn interests(&self) -> Vec<Interest> {
        self.node.needs()
    }
}
