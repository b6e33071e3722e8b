//! People on one shard: the users with a session here, whom they follow, and what they are told of them.
//! What somebody does is told once, on a subject of his own; whoever follows him here keeps what is known of him, so nobody
//! looks up followers when something changes. The rules are in `tavern-domain`.
//! Must hold: every session of a follower hears every change once; after `unfollow` nothing more is heard; whom somebody
//! hides from sees him offline.

mod command;
mod herald;
mod load;
mod moved;
mod order;
mod rumour;
mod seen;

use crate::listener::{LinkId, ListenerId};
use crate::presence::Claim;
use crate::registry::Entry;
use crate::shard::Shard;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
pub(crate) use load::Task;
pub use order::Order;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::presence::{Fact, Followee, Rumour, State, Viewer, Visibility};
use tavern_domain::{Channel, Time};

/// Something about a user, for the shards and nodes that have his sessions or his followers.
#[derive(Clone, Debug)]
pub struct PersonNews {
    pub user: Arc<str>,
    pub rumour: Arc<Rumour>,
}

/// What waits for the bus on behalf of people and not of a transport.
pub const PEOPLE_LINK: LinkId = LinkId(u32::MAX);

pub struct People {
    /// Users with a session here.
    here: BTreeMap<Arc<str>, Box<Here>>,
    /// Those whom they follow.
    followees: BTreeMap<Arc<str>, Box<Known>>,
    /// Disconnects that are held back.
    wakes: BTreeSet<(Time, Arc<str>)>,
    /// Whose subject the bus does not carry yet; true: one of ours, not only followed.
    uncarried: BTreeSet<(Arc<str>, bool)>,
    /// The bus did not take something: it is asked again.
    refused: bool,
    /// What the store did not answer, and when to ask again.
    retries: Vec<(Time, load::Load)>,
    /// When it is next written down who is there.
    seen_at: Time,
    /// The last one that was compared with the store.
    looked_at: Option<Arc<str>>,
    /// The last one with a session here that was compared.
    own_looked_at: Option<Arc<str>>,
    herald: herald::Herald,
}

/// A user with a session here.
struct Here {
    sessions: Vec<ListenerId>,
    entry: Arc<Entry>,
    /// None: not known yet.
    visibility: Option<Visibility>,
    shown_version: u64,
    following: HashMap<Arc<str>, Edge, RandomState>,
    /// Whom he stopped following lately, so that an older word does not bring it back.
    unfollowed: Vec<(Arc<str>, u64, Time)>,
    /// Everybody whom he follows is in the list.
    listed: bool,
    /// The list is being read.
    listing: bool,
    /// How often the reading of the whole list began.
    round: u32,
    /// Those in the list of whom nothing is known yet.
    missing: usize,
    /// Arrivals in channels that wait until it is known to whom he shows himself.
    put_off: Vec<PutOff>,
    /// Sessions that asked for the status of everybody he follows.
    wants: Vec<ListenerId>,
    /// Sessions that came from another node, and what they were told there.
    moved: Vec<(ListenerId, moved::Told)>,
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    version: u64,
    mutual: bool,
    /// The last reading of the whole list in which it was found, or during which or after which it began.
    round: u32,
    /// His sessions were told what the followee does when it began. Not so for what the first reading of the list found:
    /// one that began just then is greeted when the word of it comes.
    greeted: bool,
}

struct PutOff {
    listener: ListenerId,
    channel: Arc<str>,
    state: Option<State>,
    claim: Option<Claim>,
}

/// Somebody whom a user here follows.
struct Known {
    followee: Followee,
    entry: Arc<Entry>,
    followers: Vec<Arc<str>>,
    /// He was read at least once.
    read: bool,
    /// He is being read.
    reading: Option<Box<Reading>>,
}

/// Somebody who is being read.
#[derive(Default)]
struct Reading {
    /// Readings that were not answered yet: what is heard is kept until the last of them.
    open: u32,
    /// What is heard meanwhile.
    heard: Vec<Fact>,
    /// Who began to follow him just now and is told what he does.
    greets: Vec<Arc<str>>,
}

/// The channel of one user's own, in which each of his sessions is by itself.
pub fn own_channel(user: &str) -> Arc<str> {
    format!("{OWN_KIND}#{user}").into()
}

const OWN_KIND: &str = "user";

pub fn is_own_channel(channel: &str) -> bool {
    channel.strip_prefix(OWN_KIND).is_some_and(|rest| rest.starts_with('#'))
}

/// Whether this can be the name of a user.
pub fn is_user(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= tavern_domain::limits::USER_BYTES
        && Channel::parse(&own_channel(name)).is_ok()
}

impl Here {
    /// In their order: whatever happens to all of them happens in the same order everywhere.
    fn followees(&self) -> Vec<Arc<str>> {
        let mut followees: Vec<Arc<str>> = self.following.keys().cloned().collect();
        followees.sort();
        followees
    }
}

impl People {
    pub fn new(now: Time) -> People {
        People {
            here: BTreeMap::new(),
            followees: BTreeMap::new(),
            wakes: BTreeSet::new(),
            uncarried: BTreeSet::new(),
            refused: false,
            retries: Vec::new(),
            seen_at: now,
            looked_at: None,
            own_looked_at: None,
            herald: herald::Herald::default(),
        }
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        let held = self.wakes.first().map(|(due, _)| *due);
        let retry = self.retries.iter().map(|(due, _)| *due).min();
        let seen = (!self.here.is_empty()).then_some(self.seen_at);
        [held, retry, seen, self.herald.next_wake()].into_iter().flatten().min()
    }

    /// To whom a user shows himself, as far as it is known here.
    pub(crate) fn visibility(&self, user: &str) -> Option<Visibility> {
        self.here.get(user).and_then(|here| here.visibility)
    }

    /// Whether somebody may see a user who shows himself so.
    pub(crate) fn sees(&self, viewer: Option<&str>, user: &str, visibility: Visibility) -> bool {
        let viewer = match viewer {
            Some(viewer) if viewer == user => Viewer::Himself,
            Some(viewer) => Viewer::Other { mutual: self.is_mutual(viewer, user) },
            None => Viewer::Other { mutual: false },
        };
        visibility.shows(viewer)
    }

    fn is_mutual(&self, follower: &str, followee: &str) -> bool {
        let edge = self.here.get(follower).and_then(|here| here.following.get(followee));
        edge.is_some_and(|edge| edge.mutual)
    }

    /// The sessions that a user has here.
    pub(crate) fn sessions(&self, user: &str) -> &[ListenerId] {
        self.here.get(user).map_or(&[][..], |here| &here.sessions)
    }

    pub(crate) fn follows(&self, follower: &str, followee: &str) -> bool {
        self.here.get(follower).is_some_and(|here| here.following.contains_key(followee))
    }

    /// The sessions here of a user himself and of those who follow him: everybody to whom he may be more than others see.
    pub(crate) fn sessions_close_to<'a>(
        &'a self,
        user: &'a str,
    ) -> impl Iterator<Item = ListenerId> + use<'a> {
        let followers = self.followees.get(user).map_or(&[][..], |known| &known.followers);
        let users = followers.iter().map(|name| &**name).chain([user]);
        users.filter_map(|name| self.here.get(name)).flat_map(|here| here.sessions.iter().copied())
    }

    fn concerns(&self, user: &str) -> bool {
        self.here.contains_key(user) || self.followees.contains_key(user)
    }
}

impl Shard {
    /// A session of a user begins here.
    pub(crate) fn people_come(&mut self, _now: Time, id: ListenerId) {
        let Some(user) = self.user_of(id) else { return };
        if let Some(here) = self.people.here.get_mut(&user) {
            here.sessions.push(id);
            self.mail_came(&user);
            return self.party_changed(&user);
        }
        let here = Here {
            sessions: vec![id],
            entry: self.hold_person(&user),
            visibility: None,
            shown_version: 0,
            following: HashMap::default(),
            unfollowed: Vec::new(),
            listed: false,
            listing: false,
            round: 0,
            missing: 0,
            put_off: Vec::new(),
            wants: Vec::new(),
            moved: Vec::new(),
        };
        self.people.here.insert(user.clone(), Box::new(here));
        for user in self.carry_people(vec![user], true) {
            self.load_own(&user);
        }
    }

    /// A session of a user ends here. With the last one goes what was known for him.
    pub(crate) fn people_go(&mut self, id: ListenerId) {
        let Some(user) = self.user_of(id) else { return };
        let Some(here) = self.people.here.get_mut(&user) else { return };
        here.sessions.retain(|other| *other != id);
        if !here.sessions.is_empty() {
            return;
        }
        if let Some(here) = self.people.here.remove(&user) {
            for followee in here.followees() {
                self.unwatch(&user, &followee);
            }
            self.release_person(&user, &here.entry);
        }
        self.forget_view(&user);
    }

    pub(crate) fn user_of(&self, id: ListenerId) -> Option<Arc<str>> {
        self.listeners.get(id)?.session()?.identity.user.clone()
    }

    /// Each session is in its user's own channel by itself.
    pub(crate) fn join_own(&mut self, now: Time, id: ListenerId) {
        let Some(user) = self.user_of(id) else { return };
        let channel = own_channel(&user);
        if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
            session.present.enter(&channel, None);
        }
        self.join(now, id, &channel, None, None);
    }

    /// An arrival waits until it is known to whom its user shows himself. Gives it back when it need not.
    pub(crate) fn put_off(
        &mut self,
        id: ListenerId,
        channel: &str,
        state: Option<State>,
        claim: Option<Claim>,
    ) -> Option<(Option<State>, Option<Claim>)> {
        let here = self.user_of(id).and_then(|user| self.people.here.get_mut(&user));
        match here.filter(|here| here.visibility.is_none()) {
            Some(here) => {
                here.put_off.push(PutOff { listener: id, channel: channel.into(), state, claim });
                None
            }
            None => Some((state, claim)),
        }
    }

    /// What is said about a user comes to this shard from now on.
    fn hold_person(&mut self, user: &str) -> Arc<Entry> {
        let entry = self.node.registry.intern(crate::event::Space::People, user.as_bytes());
        entry.added(self.index, true);
        entry
    }

    fn release_person(&mut self, user: &str, entry: &Arc<Entry>) {
        let unheard = entry.removed(self.index, !self.people.concerns(user));
        self.node.registry.forget(crate::event::Space::People, entry);
        if unheard {
            self.linger(crate::event::Space::People, entry.name.clone());
        }
    }
}
