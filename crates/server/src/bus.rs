//! The receiver of bus messages: passes messages of other nodes to the shards that subscribed, and confirmations and
//! losses to the shards that need them. Has no rules. Must hold: a shard gets messages in the order in which they
//! were received.

use crate::load::ClusterLoad;
#[cfg(feature = "pusher")]
use crate::pusher::PusherServer;
use crate::shard::Shards;
use crate::shard::input::ShardInput;
use crate::supervisor::fault;
use crate::topics::Wakeups;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tavern_hub::node::registry::shards_of;
use tavern_hub::{LinkId, Node, ReceivedMessage, ShardEvent, ShardMessage};
use tavern_store::{BusError, BusLoss, BusPacket, BusReceiver, Interest, Ticket};
use tokio::sync::Notify;

pub struct BusDispatcher {
    pub node: Arc<Node>,
    pub shards: Shards,
    /// Notified when another node has left sessions in the store.
    pub adoption: Arc<Notify>,
    /// Woken for topics that have events for a subscription.
    pub wakeups: Arc<Wakeups>,
    pub load: Arc<ClusterLoad>,
    #[cfg(feature = "pusher")]
    pub pusher: Option<Arc<PusherServer>>,
    /// Where this node is, for a server that starts under the same name.
    pub address: String,
}

/// The pause before a full shard queue is tried again.
const RETRY: Duration = Duration::from_millis(1);

impl BusDispatcher {
    /// Waits until the shard accepts it (backpressure): the bus buffers the rest, within its limits.
    fn put(&self, shard: usize, messages: Vec<ShardMessage>) {
        if messages.is_empty() {
            return;
        }
        let queue = self.shards.queue(shard);
        while queue.is_full() && !queue.is_closed() {
            std::thread::sleep(RETRY);
        }
        queue.force(ShardInput::Packets(messages));
    }
}

impl BusReceiver for BusDispatcher {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        if let Err(error) = &outcome {
            tracing::warn!(%error, "bus subscription failed");
        }
        let mut ready: BTreeMap<usize, Vec<LinkId>> = BTreeMap::new();
        for (shard, link) in self.node.bus_interests.confirmed(ticket, outcome) {
            ready.entry(shard).or_default().push(link);
        }
        for (shard, links) in ready {
            self.shards.force(shard, ShardInput::Hub(ShardEvent::BusReady(links)));
        }
    }

    fn messages(&self, packets: Vec<BusPacket>) {
        fault::strikes("bus");
        let mut received: Vec<Vec<ShardMessage>> = (0..self.shards.len()).map(|_| Vec::new()).collect();
        for packet in &packets {
            match self.node.receive(packet) {
                Some(ReceivedMessage::Message { space, message, mask }) => {
                    shards_of(mask).for_each(|shard| {
                        received[shard].push(ShardMessage { namespace: space, message: message.clone() })
                    });
                }
                Some(ReceivedMessage::Presence { update, mask }) => {
                    shards_of(mask).for_each(|shard| {
                        self.shards.force(shard, ShardInput::Hub(ShardEvent::Presence(update.clone())))
                    });
                }
                Some(ReceivedMessage::Person { update, mask }) => {
                    shards_of(mask).for_each(|shard| {
                        self.shards.force(shard, ShardInput::Hub(ShardEvent::Status(update.clone())))
                    });
                }
                Some(ReceivedMessage::Session { shard, from, request }) => {
                    // Messages received before it are passed on first.
                    self.put(shard, std::mem::take(&mut received[shard]));
                    self.shards.force(shard, ShardInput::Hub(ShardEvent::Migration { from, request }));
                }
                Some(ReceivedMessage::Control { shard: Some(shard), message }) => {
                    self.shards.force(shard, ShardInput::Hub(ShardEvent::Control(message)));
                }
                Some(ReceivedMessage::Control { shard: None, message }) => {
                    self.shards.force_all(|| ShardInput::Hub(ShardEvent::Control(message.clone())));
                }
                Some(ReceivedMessage::NodeLeft) => self.adoption.notify_one(),
                Some(ReceivedMessage::NameQuestion { asker }) => {
                    self.node.answer_name(&asker, &self.address);
                }
                Some(ReceivedMessage::Subscription(name)) => self.wakeups.nudged(name),
                Some(ReceivedMessage::LoadQuestion { from, question }) => self.load.asked(&from, question),
                Some(ReceivedMessage::LoadAnswer { from, answer }) => self.load.answered(from, *answer),
                #[cfg(feature = "pusher")]
                Some(ReceivedMessage::PusherCount(count)) => {
                    if let Some(pusher) = &self.pusher {
                        pusher.counted(&count);
                    }
                }
                #[cfg(not(feature = "pusher"))]
                Some(ReceivedMessage::PusherCount(_)) => {}
                None => {}
            }
        }
        for (shard, messages) in received.into_iter().enumerate() {
            self.put(shard, messages);
        }
    }

    fn lost(&self, lost: BusLoss) {
        let channel = match &lost {
            BusLoss::Everything => None,
            BusLoss::On(subject) => match subject.channel() {
                Some(name) => Some(Arc::<[u8]>::from(name)),
                // Not a channel: its subscribers read it again on their own.
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
