//! Messages between nodes: the header of a payload, and which shards get a received message.
//! Must hold: a message arrives as it was published; if its header cannot be decoded, only the sender's name is lost.

use super::Node;
use super::registry::Registry;
use crate::event::{Author, Message, MessageId, Namespace};
use std::sync::Arc;
use tavern_domain::Channel;
use tavern_domain::presence::{PresenceUpdate, UserUpdate};
use tavern_store::{BusPacket, Interest, Subject, Writer};
use tavern_wire::bus::BusMessage;
use tavern_wire::bus::control::{self, ControlReply, ControlRequest, NodeCounts, PusherCount};
use tavern_wire::bus::header::{self as channel_header, ChannelHeader};
use tavern_wire::bus::load::{LoadAnswer, LoadQuestion};
use tavern_wire::bus::migration::MigrationRequest;

/// A presence change of one channel, for the shards and nodes that watch it.
#[derive(Clone, Debug)]
pub struct ChannelUpdate {
    pub channel: Arc<str>,
    pub update: Arc<PresenceUpdate>,
}

/// A fact about a user, for the shards and nodes that have their sessions or their followers.
#[derive(Clone, Debug)]
pub struct UserNotice {
    pub user: Arc<str>,
    pub update: Arc<UserUpdate>,
}

/// An order about a user, or what a shard has done about it, and the node that sends it.
#[derive(Clone, Debug)]
pub enum ControlMessage {
    Request { from: Arc<str>, request: ControlRequest },
    Reply { from: Arc<str>, reply: ControlReply },
}

/// The subject kind of the Redis protocol's shard channels.
const SHARD: &str = "_shard";

/// The subject kind of a channel's presence changes.
const PRESENCE: &str = "_presence";

/// The subject kind of updates about a user.
const PEOPLE: &str = "_people";

/// The subject kind of status changes for other services. No channel has it.
const FOLLOWERS: &str = "followersof";

/// The subject kinds of migration requests: to one node by name, and to all nodes.
pub(crate) const NODE: &str = "_node";
pub(crate) const SESSION: &str = "_session";

/// The subject kind by which a stopping node announces that it has stored its sessions.
const LEFT: &str = "_left";

/// The subject kind that wakes the delivery worker of a subscription.
const NUDGE: &str = "_nudge";

/// The kind of subject of orders about users, of the counts of nodes and of Pusher channels, and of questions about load.
const CONTROL: &str = "_control";

/// A message from another node, and the shards that need it.
#[derive(Debug)]
pub enum ReceivedMessage {
    /// A channel message, for the shards with listeners.
    Message {
        space: Namespace,
        message: Arc<Message>,
        mask: u64,
    },
    /// For the shards that watch the channel.
    Presence {
        update: ChannelUpdate,
        mask: u64,
    },
    /// For the shards with the user's sessions or followers.
    Person {
        update: UserNotice,
        mask: u64,
    },
    /// For the shard of the session, from this node.
    Session {
        shard: usize,
        from: Arc<str>,
        request: MigrationRequest,
    },
    /// A stopping node has left sessions in the store.
    NodeLeft,
    /// A subscription has events to deliver.
    Subscription(Arc<str>),
    /// For all shards, or for one of them.
    Control {
        shard: Option<usize>,
        message: ControlMessage,
    },
    /// A server starts under the name of this node: `answer_name` tells it that the name is taken.
    NameQuestion {
        asker: Arc<str>,
    },
    /// A node asks for the load of this one, or answers.
    LoadQuestion {
        from: Arc<str>,
        question: LoadQuestion,
    },
    LoadAnswer {
        from: Arc<str>,
        answer: Box<LoadAnswer>,
    },
    /// The subscriptions to a channel of a Pusher app have changed.
    PusherCount(PusherCount),
}

impl Node {
    /// A packet for the other nodes.
    pub(crate) fn packet(&self, space: Namespace, message: &Message) -> Option<BusPacket> {
        let settings = &self.settings;
        Some(BusPacket {
            subject: subject(&settings.prefix, space, message.channel())?,
            from: Writer { node: self.name.clone(), epoch: self.epoch() },
            n: message.origin().map_or(0, |origin| origin.n),
            header: note(message).into(),
            payload: message.payload().into(),
        })
    }

    /// Decodes a message from the bus. `None`: no shard needs it, or this release does not understand it.
    pub fn receive(&self, packet: &BusPacket) -> Option<ReceivedMessage> {
        if let Some(name) = packet.subject.channel() {
            return self.receive_message(packet, Namespace::Channel, name);
        }
        if packet.subject.kind() == SHARD {
            return self.receive_message(packet, Namespace::Shard, packet.subject.rest()?);
        }
        if packet.from.is_outsider() {
            return None;
        }
        let rest = || String::from_utf8(packet.subject.rest()?).ok();
        Some(match BusMessage::decode(&packet.payload)? {
            BusMessage::Presence(update) => {
                let channel = rest()?;
                let mask = self.registry.find(Namespace::Presence, channel.as_bytes())?.mask();
                let update = ChannelUpdate { channel: channel.into(), update: Arc::new(update) };
                ReceivedMessage::Presence { update, mask }
            }
            BusMessage::Person(update) => {
                let user = rest()?;
                let mask = self.registry.find(Namespace::People, user.as_bytes())?.mask();
                let update = UserNotice { user: user.into(), update: Arc::new(update) };
                ReceivedMessage::Person { update, mask }
            }
            BusMessage::Session(request) => {
                let shard = request.key.shard(self.settings.shards);
                ReceivedMessage::Session { shard, from: packet.from.node.clone(), request }
            }
            BusMessage::NodeLeft => ReceivedMessage::NodeLeft,
            BusMessage::Subscription(name) => ReceivedMessage::Subscription(name),
            BusMessage::Control(request) => {
                let message = ControlMessage::Request { from: packet.from.node.clone(), request };
                ReceivedMessage::Control { shard: None, message }
            }
            BusMessage::ControlReply(reply) => {
                let shard = Some(reply.to_shard as usize).filter(|shard| *shard < self.settings.shards)?;
                let message = ControlMessage::Reply { from: packet.from.node.clone(), reply };
                ReceivedMessage::Control { shard: Some(shard), message }
            }
            BusMessage::NameQuestion(asker) => ReceivedMessage::NameQuestion { asker },
            BusMessage::NameAnswer(_) => return None,
            BusMessage::LoadQuestion(question) => {
                ReceivedMessage::LoadQuestion { from: packet.from.node.clone(), question }
            }
            BusMessage::LoadAnswer(answer) => {
                ReceivedMessage::LoadAnswer { from: packet.from.node.clone(), answer }
            }
            BusMessage::PusherCount(count) => ReceivedMessage::PusherCount(count),
            BusMessage::Counts(counts) => {
                self.population.receive(&packet.from.node, counts, &self.other_nodes());
                return None;
            }
        })
    }

    fn receive_message(
        &self,
        packet: &BusPacket,
        space: Namespace,
        name: Vec<u8>,
    ) -> Option<ReceivedMessage> {
        // Only servers publish there; another process on the same folder is not a server.
        if packet.from.is_outsider() && Channel::parse_redis(&name).is_ok_and(|channel| channel.is_reserved())
        {
            return None;
        }
        let mask = listening(&self.registry, space, &name);
        if mask == 0 {
            return None;
        }
        let header = channel_header::decode(&packet.header);
        let author = header.client.map(|client| Author { user: header.user.map(Into::into), client });
        let Writer { node, epoch } = packet.from.clone();
        let message = Message::new(space, &name, &packet.payload, header.json, author);
        // A message without a number, from a process that is not a node, cannot be deduplicated.
        let numbered = !packet.from.is_outsider() || packet.n > 0;
        let message = message.with_origin(numbered.then_some(MessageId { node, epoch, n: packet.n }));
        // Only nodes store messages.
        let history = header.history.filter(|_| !packet.from.is_outsider());
        if history.is_some() {
            self.note_retained();
        }
        let is_numbered = history.is_some() && self.history_limits(&name).is_some();
        let message = message.with_history(history, is_numbered);
        Some(ReceivedMessage::Message { space, message: Arc::new(message), mask })
    }

    /// The id of the next message that a shard publishes.
    pub(crate) fn origin(&self, shard: usize) -> MessageId {
        MessageId { node: self.name.clone(), epoch: self.epoch(), n: self.bus_interests.number(shard) }
    }

    /// Subscribes to migration requests. Call it when the bus is open.
    pub fn listen(&self) {
        self.bus_interests.subscribe_node(self.migration_interests());
    }

    /// The subjects that this node needs in any case.
    fn migration_interests(&self) -> Vec<Interest> {
        let prefix = &self.settings.prefix;
        let own = Subject::new(prefix, NODE, self.name.as_bytes());
        let all = [SESSION, LEFT, NUDGE, CONTROL].map(|kind| Subject::new(prefix, kind, b""));
        own.into_iter().chain(all.into_iter().flatten()).map(Interest::Subject).collect()
    }

    /// Every subject that this node needs now.
    pub fn needs(&self) -> Vec<Interest> {
        let mut needs = self.bus_interests.needs(&self.registry);
        needs.extend(self.migration_interests());
        needs
    }

    /// A migration request to one node, or to all of them.
    pub(crate) fn migration_packet(&self, to: &str, request: &MigrationRequest) -> Option<BusPacket> {
        let subject = Subject::new(&self.settings.prefix, NODE, to.as_bytes()).ok()?;
        Some(self.own_packet(subject, tavern_wire::bus::migration::encode(request)))
    }

    /// An order about a user, for all other nodes.
    pub(crate) fn control_packet(&self, request: &ControlRequest) -> Option<BusPacket> {
        let subject = Subject::new(&self.settings.prefix, CONTROL, b"").ok()?;
        Some(self.own_packet(subject, control::encode_request(request)))
    }

    /// What a shard has done about an order, for the node that asked.
    pub(crate) fn control_reply_packet(&self, to: &str, reply: &ControlReply) -> Option<BusPacket> {
        let subject = Subject::new(&self.settings.prefix, NODE, to.as_bytes()).ok()?;
        Some(self.own_packet(subject, control::encode_reply(reply)))
    }

    /// Tells the other nodes how much this one has.
    pub fn share_counts(&self, counts: &NodeCounts) {
        self.send(None, control::encode_counts(counts));
    }

    /// Tells the other nodes how many subscriptions a channel of a Pusher app has.
    pub fn share_pusher_count(&self, count: &PusherCount) {
        self.send(None, control::encode_pusher_count(count));
    }

    /// Sends a question about load, or an answer, to one node or to all others.
    pub fn send_load(&self, to: Option<&str>, payload: Vec<u8>) {
        self.send(to, payload);
    }

    /// To one node or to all others.
    fn send(&self, to: Option<&str>, payload: Vec<u8>) {
        let prefix = &self.settings.prefix;
        let subject = match to {
            Some(node) => Subject::new(prefix, NODE, node.as_bytes()),
            None => Subject::new(prefix, CONTROL, b""),
        };
        if let (Ok(subject), Some(bus)) = (subject, self.bus_interests.bus())
            && !bus.is_alone()
        {
            bus.publish(vec![self.own_packet(subject, payload)]);
        }
    }

    /// Tells a server that starts under the name of this node where this node is.
    pub fn answer_name(&self, asker: &str, address: &str) {
        let Ok(subject) = Subject::new(&self.settings.prefix, NODE, asker.as_bytes()) else { return };
        if let Some(bus) = self.bus_interests.bus() {
            bus.publish(vec![self.own_packet(subject, tavern_wire::bus::name_answer(address))]);
        }
    }

    fn own_packet(&self, subject: Subject, payload: Vec<u8>) -> BusPacket {
        let from = Writer { node: self.name.clone(), epoch: self.epoch() };
        let (n, header) = (self.bus_interests.number(0), Arc::from([]));
        BusPacket { subject, from, n, header, payload: payload.into() }
    }

    /// Announces that this node stops and has stored its sessions.
    pub fn announce_departure(&self) {
        let Ok(subject) = Subject::new(&self.settings.prefix, LEFT, b"") else { return };
        if let Some(bus) = self.bus_interests.bus() {
            bus.publish(vec![self.own_packet(subject, tavern_wire::bus::node_left())]);
        }
    }

    /// Wakes the delivery worker of a subscription because it has new events; without a name, wakes the workers of
    /// all nodes because subscriptions were changed.
    pub fn nudge(&self, subscription: &str) {
        let Ok(subject) = Subject::new(&self.settings.prefix, NUDGE, b"") else { return };
        if let Some(bus) = self.bus_interests.bus().filter(|bus| !bus.is_alone()) {
            bus.publish(vec![self.own_packet(subject, tavern_wire::bus::subscription(subscription))]);
        }
    }
}

impl Node {
    /// A presence change for the other nodes.
    pub(crate) fn presence_packet(&self, channel_update: &ChannelUpdate) -> Option<BusPacket> {
        if !self.bus_interests.reaches_others() {
            return None;
        }
        Some(BusPacket {
            subject: subject(&self.settings.prefix, Namespace::Presence, channel_update.channel.as_bytes())?,
            from: Writer { node: self.name.clone(), epoch: self.epoch() },
            n: self.bus_interests.number(0),
            header: Arc::from([]),
            payload: tavern_wire::bus::presence::encode(&channel_update.update).into(),
        })
    }
}

impl Node {
    /// An update about a user for the other nodes.
    pub(crate) fn user_packet(&self, notice: &UserNotice) -> Option<BusPacket> {
        if !self.bus_interests.reaches_others() {
            return None;
        }
        Some(BusPacket {
            subject: subject(&self.settings.prefix, Namespace::People, notice.user.as_bytes())?,
            from: Writer { node: self.name.clone(), epoch: self.epoch() },
            n: self.bus_interests.number(0),
            header: Arc::from([]),
            payload: tavern_wire::bus::people::encode(&notice.update).into(),
        })
    }

    /// A status change for other services.
    pub(crate) fn service_packet(&self, user: &str, payload: Vec<u8>) -> Option<BusPacket> {
        Some(BusPacket {
            subject: Subject::new(&self.settings.prefix, FOLLOWERS, user.as_bytes()).ok()?,
            from: Writer::outsider(),
            n: 0,
            header: Arc::from([]),
            payload: payload.into(),
        })
    }
}

/// The subject to subscribe to on the bus for a name with listeners.
pub(crate) fn interest(prefix: &Arc<str>, space: Namespace, name: &[u8]) -> Option<Interest> {
    match space {
        Namespace::Pattern => Some(Interest::Channels { prefix: prefix.clone(), glob: name.into() }),
        _ => subject(prefix, space, name).map(Interest::Subject),
    }
}

fn subject(prefix: &str, space: Namespace, name: &[u8]) -> Option<Subject> {
    match space {
        Namespace::Shard => Subject::new(prefix, SHARD, name).ok(),
        Namespace::Presence => Subject::new(prefix, PRESENCE, name).ok(),
        Namespace::People => Subject::new(prefix, PEOPLE, name).ok(),
        _ => Subject::of_channel(prefix, name).ok(),
    }
}

/// The shards with a listener for a name, by the name itself or by a pattern.
fn listening(registry: &Registry, space: Namespace, name: &[u8]) -> u64 {
    let mut mask = registry.find(space, name).map_or(0, |entry| entry.mask());
    if space == Namespace::Channel && registry.has_patterns() {
        mask = registry.matching(name).iter().fold(mask, |mask, entry| mask | entry.mask());
    }
    mask
}

/// The header of a channel message.
fn note(message: &Message) -> Vec<u8> {
    let author = message.author();
    let client = author.map(|author| author.client);
    let user = author.and_then(|author| author.user.as_deref());
    let history = message.history();
    channel_header::encode(ChannelHeader { json: message.is_json(), client, user, history })
}
