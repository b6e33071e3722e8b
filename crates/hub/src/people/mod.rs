//! People on one shard: the users with a session here, whom they follow, and what they are told of them.
//! What somebody does is told once, on a subject of his own; whoever follows him here keeps what is known of him, so nobody
//! looks up followers when something changes. The rules are in `tavern-domain`.
//! Must hold: every session of a follower hears every change once; after `unfollow` nothing more is heard; whom somebody
//! hides from sees him offline.

mod command;
mod herald;
mod load;
mod moved;
mod rumour;
mod seen;

use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Notice, Timer};
use crate::event::Space;
use crate::node::registry::Entry;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use load::Task;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Fact, Followee};
use tavern_engine::{Ticket, Work};

/// What waits for the bus on behalf of people and not of a transport.
pub const PEOPLE_LINK: LinkId = LinkId(u32::MAX);

pub struct People {
    under_way: HashMap<Ticket, Task, RandomState>,
    /// What is being loaded for the users with a session here.
    here: BTreeMap<Arc<str>, Box<Here>>,
    /// Those whom they follow.
    followees: BTreeMap<Arc<str>, Box<Known>>,
    /// Whose subject the bus does not carry yet; true: one of ours, not only followed.
    uncarried: BTreeSet<(Arc<str>, bool)>,
    /// The bus did not take something: it is asked again.
    refused: bool,
    /// What the store did not answer, and when to ask again.
    retries: Vec<(Time, load::Load)>,
    /// The timer that writes down who is there is set.
    notes_seen: bool,
    /// The last one that was compared with the store.
    looked_at: Option<Arc<str>>,
    /// The last one with a session here that was compared.
    own_looked_at: Option<Arc<str>>,
    herald: herald::Herald,
}

/// A user with a session here.
struct Here {
    entry: Arc<Entry>,
    /// The version of the visibility that is known.
    shown_version: u64,
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
    /// Sessions that asked for the status of everybody he follows.
    wants: Vec<ListenerId>,
    /// Sessions that came from another node, and what they were told there.
    moved: Vec<(ListenerId, moved::Told)>,
}

/// Somebody whom a user here follows.
struct Known {
    followee: Followee,
    entry: Arc<Entry>,
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

impl People {
    pub fn new() -> People {
        People {
            under_way: HashMap::default(),
            here: BTreeMap::new(),
            followees: BTreeMap::new(),
            uncarried: BTreeSet::new(),
            refused: false,
            retries: Vec::new(),
            notes_seen: false,
            looked_at: None,
            own_looked_at: None,
            herald: herald::Herald::default(),
        }
    }

    fn concerns(&self, user: &str) -> bool {
        self.here.contains_key(user) || self.followees.contains_key(user)
    }
}

impl People {
    /// A session of a user begins here.
    pub(crate) fn session_opened(&mut self, core: &mut Core, id: ListenerId) {
        let Some(user) = core.user_of(id) else { return };
        if self.here.contains_key(&user) {
            return core.notify(Notice::InboxChanged { user });
        }
        let here = Here {
            entry: self.hold_person(core, &user),
            shown_version: 0,
            unfollowed: Vec::new(),
            listed: false,
            listing: false,
            round: 0,
            missing: 0,
            wants: Vec::new(),
            moved: Vec::new(),
        };
        self.here.insert(user.clone(), Box::new(here));
        if !std::mem::replace(&mut self.notes_seen, true) {
            core.agenda.set(core.now + core.node.settings.last_seen_ms, Timer::LastSeen);
        }
        for user in self.carry_people(core, vec![user], true) {
            self.load_own(core, &user);
        }
    }

    /// The last session of a user here has ended: what was known for them is forgotten.
    pub(crate) fn user_left(&mut self, core: &mut Core, user: &Arc<str>) {
        let Some(here) = self.here.remove(user) else { return };
        let followees = core.users.get(user).map(|local| local.followees()).unwrap_or_default();
        for followee in followees {
            self.unwatch(core, user, &followee);
        }
        self.release_person(core, user, &here.entry);
    }

    /// What is said about a user comes to this shard from now on.
    fn hold_person(&mut self, core: &mut Core, user: &str) -> Arc<Entry> {
        let entry = core.node.registry.intern(Space::People, user.as_bytes());
        entry.added(core.index, true);
        entry
    }

    fn release_person(&mut self, core: &mut Core, user: &str, entry: &Arc<Entry>) {
        let unheard = entry.removed(core.index, !self.concerns(user));
        core.node.registry.forget(Space::People, entry);
        if unheard {
            core.linger(Space::People, entry.name.clone());
        }
    }

    fn ask_people(&mut self, core: &mut Core, task: Task, work: Work) {
        self.under_way.insert(core.submit(Feature::People, work), task);
    }
}
