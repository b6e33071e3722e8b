//! Words on their way between nodes: what goes beside the payload, and which shards must hear what arrives.
//! Must hold: what another node said is heard here as it was there; a header that cannot be read costs only the sender's name.

use super::Node;
use super::registry::Registry;
use crate::event::{Author, Origin, Space, Words};
use std::sync::Arc;
use tavern_domain::Channel;
use tavern_domain::presence::{News, Rumour};
use tavern_engine::{Interest, Parcel, Subject, Writer};
use tavern_wire::bus::BusMessage;
use tavern_wire::bus::header::{self, Header};
use tavern_wire::bus::letter::Letter;

/// A presence change of one channel, for the shards and nodes that watch it.
#[derive(Clone, Debug)]
pub struct ChannelNews {
    pub channel: Arc<str>,
    pub news: Arc<News>,
}

/// Something about a user, for the shards and nodes that have their sessions or their followers.
#[derive(Clone, Debug)]
pub struct PersonNews {
    pub user: Arc<str>,
    pub rumour: Arc<Rumour>,
}

/// The kind of subject of the Redis protocol's shard channels.
const SHARD: &str = "_shard";

/// The kind of subject of the news of a channel's presence.
const PRESENCE: &str = "_presence";

/// The kind of subject of what is told about a user.
const PEOPLE: &str = "_people";

/// The kind of subject of what other services hear about a user. No channel has it.
const FOLLOWERS: &str = "followersof";

/// The kinds of subject of letters about sessions that move: to one node by name, and to all of them.
pub(crate) const NODE: &str = "_node";
pub(crate) const SESSION: &str = "_session";

/// The kind of subject by which a node that stops says that it left something in the store.
const LEFT: &str = "_left";

/// The kind of subject by which a node says that a subscription has events, to whoever works on it.
const NUDGE: &str = "_nudge";

/// A message from another node, and whom it concerns here.
#[derive(Debug)]
pub enum Incoming {
    /// A channel message, for the shards with listeners.
    Words { space: Space, words: Arc<Words>, mask: u64 },
    /// For the shards that watch the channel.
    Presence { told: ChannelNews, mask: u64 },
    /// For the shards with the user's sessions or followers.
    Person { told: PersonNews, mask: u64 },
    /// For the shard of the session, from this node.
    Session { shard: usize, from: Arc<str>, letter: Letter },
    /// A node that stops has left sessions in the store.
    NodeLeft,
    /// A subscription has events to deliver.
    Subscription(Arc<str>),
}

impl Node {
    /// A parcel for the other nodes.
    pub(crate) fn parcel(&self, space: Space, words: &Words) -> Option<Parcel> {
        let settings = &self.settings;
        Some(Parcel {
            subject: subject(&settings.prefix, space, words.channel())?,
            from: Writer { node: self.name.clone(), epoch: self.epoch() },
            n: words.origin().map_or(0, |origin| origin.n),
            note: note(words).into(),
            payload: words.payload().into(),
        })
    }

    /// A message from the bus. `None`: it concerns nothing here, or this release does not understand it.
    pub fn receive(&self, parcel: &Parcel) -> Option<Incoming> {
        if let Some(name) = parcel.subject.channel() {
            return self.receive_words(parcel, Space::Channel, name);
        }
        if parcel.subject.kind() == SHARD {
            return self.receive_words(parcel, Space::Shard, parcel.subject.rest()?);
        }
        if parcel.from.is_outsider() {
            return None;
        }
        let rest = || String::from_utf8(parcel.subject.rest()?).ok();
        Some(match BusMessage::decode(&parcel.payload)? {
            BusMessage::Presence(news) => {
                let channel = rest()?;
                let mask = self.registry.find(Space::Presence, channel.as_bytes())?.mask();
                let told = ChannelNews { channel: channel.into(), news: Arc::new(news) };
                Incoming::Presence { told, mask }
            }
            BusMessage::Person(rumour) => {
                let user = rest()?;
                let mask = self.registry.find(Space::People, user.as_bytes())?.mask();
                let told = PersonNews { user: user.into(), rumour: Arc::new(rumour) };
                Incoming::Person { told, mask }
            }
            BusMessage::Session(letter) => {
                let shard = letter.key.shard(self.settings.shards);
                Incoming::Session { shard, from: parcel.from.node.clone(), letter }
            }
            BusMessage::NodeLeft => Incoming::NodeLeft,
            BusMessage::Subscription(name) => Incoming::Subscription(name),
        })
    }

    fn receive_words(&self, parcel: &Parcel, space: Space, name: Vec<u8>) -> Option<Incoming> {
        // The server alone speaks there; whoever shares a folder with it is not the server.
        if parcel.from.is_outsider() && Channel::parse_redis(&name).is_ok_and(|channel| channel.is_reserved())
        {
            return None;
        }
        let mask = listening(&self.registry, space, &name);
        if mask == 0 {
            return None;
        }
        let header = header::decode(&parcel.note);
        let author = header.client.map(|client| Author { user: header.user.map(Into::into), client });
        let Writer { node, epoch } = parcel.from.clone();
        let words = Words::new(space, &name, &parcel.payload, header.json, author);
        // Where outsiders have no numbers nothing can be known by them.
        let numbered = !parcel.from.is_outsider() || parcel.n > 0;
        let words = words.with_origin(numbered.then_some(Origin { node, epoch, n: parcel.n }));
        Some(Incoming::Words { space, words: Arc::new(words), mask })
    }

    /// The name of the next word that a shard says.
    pub(crate) fn origin(&self, shard: usize) -> Origin {
        Origin { node: self.name.clone(), epoch: self.epoch(), n: self.carrier.number(shard) }
    }

    /// Begins to hear the letters of other nodes. To be called when the bus is open.
    pub fn listen(&self) {
        self.carrier.listen(self.letter_interests());
    }

    /// What this node hears whoever listens here.
    fn letter_interests(&self) -> Vec<Interest> {
        let prefix = &self.settings.prefix;
        let own = Subject::new(prefix, NODE, self.name.as_bytes());
        let all = [SESSION, LEFT, NUDGE].map(|kind| Subject::new(prefix, kind, b""));
        own.into_iter().chain(all.into_iter().flatten()).map(Interest::Subject).collect()
    }

    /// Everything that the bus must carry here at this moment.
    pub fn needs(&self) -> Vec<Interest> {
        let mut needs = self.carrier.needs(&self.registry);
        needs.extend(self.letter_interests());
        needs
    }

    /// A letter to one node, or to all of them.
    pub(crate) fn letter_parcel(&self, to: Option<&str>, letter: &Letter) -> Option<Parcel> {
        let prefix = &self.settings.prefix;
        let subject = match to {
            Some(node) => Subject::new(prefix, NODE, node.as_bytes()),
            None => Subject::new(prefix, SESSION, b""),
        };
        Some(Parcel {
            subject: subject.ok()?,
            from: Writer { node: self.name.clone(), epoch: self.epoch() },
            n: self.carrier.number(0),
            note: Arc::from([]),
            payload: tavern_wire::bus::letter::encode(letter).into(),
        })
    }

    /// Tells the others that this node stops and has left sessions in the store.
    pub fn say_left(&self) {
        let Ok(subject) = Subject::new(&self.settings.prefix, LEFT, b"") else { return };
        let from = Writer { node: self.name.clone(), epoch: self.epoch() };
        let (note, payload) = (Arc::from([]), tavern_wire::bus::node_left().into());
        if let Some(bus) = self.carrier.bus() {
            bus.publish(vec![Parcel { subject, from, n: self.carrier.number(0), note, payload }]);
        }
    }

    /// Tells the worker of a subscription that there are events for it; without a name, every node that subscriptions were
    /// changed.
    pub fn nudge(&self, subscription: &str) {
        let Ok(subject) = Subject::new(&self.settings.prefix, NUDGE, b"") else { return };
        let from = Writer { node: self.name.clone(), epoch: self.epoch() };
        let (note, payload) = (Arc::from([]), tavern_wire::bus::subscription(subscription).into());
        if let Some(bus) = self.carrier.bus().filter(|bus| !bus.is_alone()) {
            bus.publish(vec![Parcel { subject, from, n: self.carrier.number(0), note, payload }]);
        }
    }
}

impl Node {
    /// News for the other nodes.
    pub(crate) fn news_parcel(&self, told: &ChannelNews) -> Option<Parcel> {
        if !self.carrier.reaches_others() {
            return None;
        }
        Some(Parcel {
            subject: subject(&self.settings.prefix, Space::Presence, told.channel.as_bytes())?,
            from: Writer { node: self.name.clone(), epoch: self.epoch() },
            n: self.carrier.number(0),
            note: Arc::from([]),
            payload: tavern_wire::bus::news::encode(&told.news).into(),
        })
    }
}

impl Node {
    /// A rumour for the other nodes.
    pub(crate) fn rumour_parcel(&self, told: &PersonNews) -> Option<Parcel> {
        if !self.carrier.reaches_others() {
            return None;
        }
        Some(Parcel {
            subject: subject(&self.settings.prefix, Space::People, told.user.as_bytes())?,
            from: Writer { node: self.name.clone(), epoch: self.epoch() },
            n: self.carrier.number(0),
            note: Arc::from([]),
            payload: tavern_wire::bus::people::encode(&told.rumour).into(),
        })
    }

    /// Something for other services.
    pub(crate) fn service_parcel(&self, user: &str, payload: Vec<u8>) -> Option<Parcel> {
        Some(Parcel {
            subject: Subject::new(&self.settings.prefix, FOLLOWERS, user.as_bytes()).ok()?,
            from: Writer::outsider(),
            n: 0,
            note: Arc::from([]),
            payload: payload.into(),
        })
    }
}

/// What the bus must carry here for a name that somebody listens to.
pub(crate) fn interest(prefix: &Arc<str>, space: Space, name: &[u8]) -> Option<Interest> {
    match space {
        Space::Pattern => Some(Interest::Channels { prefix: prefix.clone(), glob: name.into() }),
        _ => subject(prefix, space, name).map(Interest::Subject),
    }
}

fn subject(prefix: &str, space: Space, name: &[u8]) -> Option<Subject> {
    match space {
        Space::Shard => Subject::new(prefix, SHARD, name).ok(),
        Space::Presence => Subject::new(prefix, PRESENCE, name).ok(),
        Space::People => Subject::new(prefix, PEOPLE, name).ok(),
        _ => Subject::of_channel(prefix, name).ok(),
    }
}

/// The shards with a listener for a name, by the name itself or by a pattern.
fn listening(registry: &Registry, space: Space, name: &[u8]) -> u64 {
    let mut mask = registry.find(space, name).map_or(0, |entry| entry.mask());
    if space == Space::Channel && registry.has_patterns() {
        mask = registry.matching(name).iter().fold(mask, |mask, entry| mask | entry.mask());
    }
    mask
}

/// What goes beside the payload of a channel message.
fn note(words: &Words) -> Vec<u8> {
    let author = words.author();
    let client = author.map(|author| author.client);
    let user = author.and_then(|author| author.user.as_deref());
    header::encode(Header { json: words.is_json(), client, user })
}
