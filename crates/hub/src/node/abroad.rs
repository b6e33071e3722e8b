//! Words on their way between nodes: what goes beside the payload, and which shards must hear what arrives.
//! Must hold: what another node said is heard here as it was there; a note that cannot be read costs only the sender's name.

use super::Node;
use super::registry::Registry;
use crate::event::{Author, Origin, Space, Words};
use std::sync::Arc;
use tavern_domain::presence::{News, Rumour};
use tavern_domain::{Channel, ClientId};
use tavern_engine::{Interest, Parcel, Subject, Writer};
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

const JSON: u8 = 1;
const AUTHOR: u8 = 2;
const USER: u8 = 4;

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

    /// What arrived, and the shards that hear it. None: nobody does, or it is not for channels.
    pub fn unpack(&self, parcel: &Parcel) -> Option<(Space, Arc<Words>, u64)> {
        let (space, name) = match parcel.subject.channel() {
            Some(name) => (Space::Channel, name),
            None if parcel.subject.kind() == SHARD => (Space::Shard, parcel.subject.rest()?),
            None => return None,
        };
        // The server alone speaks there; whoever shares a folder with it is not the server.
        if parcel.from.is_outsider() && Channel::parse_redis(&name).is_ok_and(|channel| channel.is_reserved())
        {
            return None;
        }
        let mask = listening(&self.registry, space, &name);
        if mask == 0 {
            return None;
        }
        let (json, author) = read_note(&parcel.note);
        let Writer { node, epoch } = parcel.from.clone();
        let words = Words::new(space, &name, &parcel.payload, json, author);
        // Where outsiders have no numbers nothing can be known by them.
        let numbered = !parcel.from.is_outsider() || parcel.n > 0;
        let words = words.with_origin(numbered.then_some(Origin { node, epoch, n: parcel.n }));
        Some((space, Arc::new(words), mask))
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
        let (note, payload) = (Arc::from([]), Arc::from([]));
        if let Some(bus) = self.carrier.bus() {
            bus.publish(vec![Parcel { subject, from, n: self.carrier.number(0), note, payload }]);
        }
    }

    /// Tells the worker of a subscription that there are events for it; without a name, every node that subscriptions were
    /// changed.
    pub fn nudge(&self, subscription: &str) {
        let Ok(subject) = Subject::new(&self.settings.prefix, NUDGE, b"") else { return };
        let from = Writer { node: self.name.clone(), epoch: self.epoch() };
        let (note, payload) = (Arc::from([]), Arc::from(subscription.as_bytes()));
        if let Some(bus) = self.carrier.bus().filter(|bus| !bus.is_alone()) {
            bus.publish(vec![Parcel { subject, from, n: self.carrier.number(0), note, payload }]);
        }
    }

    /// The subscription for which another node has seen events.
    pub fn unpack_nudge(&self, parcel: &Parcel) -> Option<Arc<str>> {
        let known = parcel.subject.kind() == NUDGE && !parcel.from.is_outsider();
        known.then(|| std::str::from_utf8(&parcel.payload).ok().map(Arc::from))?
    }

    /// Whether another node says that it left something in the store.
    pub fn is_left(&self, parcel: &Parcel) -> bool {
        parcel.subject.kind() == LEFT && !parcel.from.is_outsider()
    }

    /// A letter that arrived: the shard of its session here, who wrote it, what it says.
    pub fn unpack_letter(&self, parcel: &Parcel) -> Option<(usize, Arc<str>, Letter)> {
        if !matches!(parcel.subject.kind(), NODE | SESSION) || parcel.from.is_outsider() {
            return None;
        }
        let letter = tavern_wire::bus::letter::decode(&parcel.payload)?;
        Some((letter.key.shard(self.settings.shards), parcel.from.node.clone(), letter))
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

    /// News that arrived, and the shards that watch the channel.
    pub fn unpack_news(&self, parcel: &Parcel) -> Option<(ChannelNews, u64)> {
        if parcel.subject.kind() != PRESENCE || parcel.from.is_outsider() {
            return None;
        }
        let channel = String::from_utf8(parcel.subject.rest()?).ok()?;
        let mask = self.registry.find(Space::Presence, channel.as_bytes())?.mask();
        let news = tavern_wire::bus::news::decode(&parcel.payload)?;
        Some((ChannelNews { channel: channel.into(), news: Arc::new(news) }, mask))
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

    /// A rumour that arrived, and the shards that want to hear it.
    pub fn unpack_rumour(&self, parcel: &Parcel) -> Option<(PersonNews, u64)> {
        if parcel.subject.kind() != PEOPLE || parcel.from.is_outsider() {
            return None;
        }
        let user = String::from_utf8(parcel.subject.rest()?).ok()?;
        let mask = self.registry.find(Space::People, user.as_bytes())?.mask();
        let rumour = tavern_wire::bus::people::decode(&parcel.payload)?;
        Some((PersonNews { user: user.into(), rumour: Arc::new(rumour) }, mask))
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

fn note(words: &Words) -> Vec<u8> {
    let mut flags = if words.is_json() { JSON } else { 0 };
    let Some(author) = words.author() else { return vec![flags] };
    flags |= AUTHOR;
    let mut note = Vec::with_capacity(32);
    note.push(flags);
    let mut client = String::new();
    author.client.write(&mut client);
    note.push(client.len() as u8);
    note.extend_from_slice(client.as_bytes());
    if let Some(user) = &author.user {
        note[0] |= USER;
        note.extend_from_slice(user.as_bytes());
    }
    note
}

/// Whether the payload is known to be JSON, and who sent it.
fn read_note(note: &[u8]) -> (bool, Option<Author>) {
    let Some((&flags, rest)) = note.split_first() else { return (false, None) };
    let author = || {
        let (&length, rest) = rest.split_first()?;
        let (client, user) = rest.split_at_checked(length as usize)?;
        let client = ClientId::parse(std::str::from_utf8(client).ok()?)?;
        let user = match flags & USER {
            0 => None,
            _ => Some(std::str::from_utf8(user).ok()?.into()),
        };
        Some(Author { user, client })
    };
    (flags & JSON != 0, if flags & AUTHOR != 0 { author() } else { None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_tells_who_spoke() {
        let client = ClientId::from_random(77);
        for user in [None, Some(Arc::from("anné"))] {
            let author = Author { user: user.clone(), client };
            let words = Words::new(Space::Channel, b"game#A", b"1", true, Some(author));
            let (json, author) = read_note(&note(&words));
            let author = author.unwrap();
            assert_eq!((json, author.user, author.client), (true, user, client));
        }
        let plain = Words::new(Space::Channel, b"a", b"\xff", false, None);
        assert!(matches!(read_note(&note(&plain)), (false, None)));
    }

    #[test]
    fn a_broken_note_costs_only_the_name() {
        for broken in [&b""[..], &[2], &[2, 200, 1], &[7, 1, b'?', 0xff], &[6, 0]] {
            assert!(read_note(broken).1.is_none(), "{broken:?}");
        }
    }
}
