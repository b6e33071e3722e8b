//! The book of one shard about sessions that move: which come, which leave, what was heard so far, what is due.
//! Must hold: everything in it ends by itself at a time, whatever the other nodes say or do not say.

use super::coming::Coming;
use super::leaving::{Leaving, Parted};
use crate::event::{Event, Origin};
use crate::listener::{LinkId, ListenerId};
use crate::people::PEOPLE_LINK;
use crate::shard::Shard;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use tavern_domain::{ClientId, Epoch, SessionKey, Time};
use tavern_engine::body::Stream;
use tavern_engine::{Answer, Ticket, Work};
use tavern_wire::bus::letter::{Letter, Says};

/// Letters that were not answered are written again after this long, then after twice as long, and so on: who does not
/// answer may have too many of them.
pub(super) const RETRY_MS: u64 = 250;
/// How long the other nodes have to say that they have a session.
pub(super) const ASK_MS: u64 = 1_000;

/// Waiting links with this bit are no transports: a session that comes waits for the bus.
const COMING: u32 = 1 << 31;

#[derive(Default)]
pub struct Moves {
    /// By half of the key, as sessions are.
    pub(super) leavings: BTreeMap<u64, Leaving>,
    pub(super) comings: BTreeMap<u64, Coming>,
    /// The node stops: these are offered next.
    pub(super) queue: VecDeque<ListenerId>,
    /// Sessions that left, in the order in which they are forgotten.
    pub(super) parted: VecDeque<Parted>,
    /// What became of the session that a transport asked for, until it has asked again.
    outcomes: HashMap<LinkId, (u64, Sought), RandomState>,
    /// Adopted watchers, and how far they were told, until their channel is known here.
    pub(super) unread: BTreeMap<Arc<str>, Vec<(ListenerId, u64)>>,
    waits: HashMap<u32, u64, RandomState>,
    waited: u32,
    due: BTreeSet<(Time, u64)>,
    under_way: HashMap<Ticket, (u64, u64, Errand), RandomState>,
    heard: HashMap<Arc<str>, Vec<(u8, Epoch, u64)>, RandomState>,
}

/// What became of a session that a client asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sought {
    /// It lives here.
    Here,
    /// Other nodes are asked; the link is named in `Effects::ready`.
    Wait,
    Nowhere,
    /// It has a transport on this node, which a single command does not take from it.
    Elsewhere(Arc<str>),
}

/// What the store was asked for a session that moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// The old node lays the session down.
    Put,
    /// The old node takes it back.
    Reclaim,
    /// The new node reads it.
    Fetch,
    /// The new node takes it.
    Take,
}

/// What a session has heard on another node: it must not hear it again here.
#[derive(Clone, Debug, Default)]
pub struct Marks {
    pub streams: Vec<Stream>,
    pub told: Vec<(Arc<str>, u64)>,
    /// Until when something of it may still be under way.
    pub until: Time,
}

impl Marks {
    pub(crate) fn covers(&self, event: &Event) -> bool {
        if let Some(told) = event.told() {
            return self
                .told
                .iter()
                .any(|(channel, version)| *channel == told.channel && told.version <= *version);
        }
        let Some(origin) = event.origin() else { return false };
        self.streams.iter().any(|stream| {
            stream.node == origin.node
                && stream.shard == origin.shard()
                && (origin.epoch, origin.n) <= (stream.epoch, stream.n)
        })
    }
}

impl Moves {
    /// A word was heard on this shard.
    pub(crate) fn hear(&mut self, origin: &Origin) {
        let Some(streams) = self.heard.get_mut(&*origin.node) else {
            self.heard.insert(origin.node.clone(), vec![(origin.shard(), origin.epoch, origin.n)]);
            return;
        };
        let shard = origin.shard();
        match streams.iter_mut().find(|(of, ..)| *of == shard) {
            Some((_, epoch, n)) => (*epoch, *n) = (*epoch, *n).max((origin.epoch, origin.n)),
            None => streams.push((shard, origin.epoch, origin.n)),
        }
    }

    /// The last word that was heard of each stream, here or where the session was before.
    pub(super) fn streams(&self, before: Option<&Marks>) -> Vec<Stream> {
        let own = self.heard.iter().flat_map(|(node, streams)| {
            let stream =
                |&(shard, epoch, n): &(u8, Epoch, u64)| Stream { node: node.clone(), epoch, shard, n };
            streams.iter().map(stream)
        });
        let mut last: BTreeMap<(Arc<str>, u8), Stream> = BTreeMap::new();
        for stream in own.chain(before.into_iter().flat_map(|marks| marks.streams.iter().cloned())) {
            let known = last.entry((stream.node.clone(), stream.shard)).or_insert_with(|| stream.clone());
            if (known.epoch, known.n) < (stream.epoch, stream.n) {
                *known = stream;
            }
        }
        last.into_values().collect()
    }

    /// A number by which the bus names a session that waits for it.
    pub(super) fn wait(&mut self, half: u64) -> LinkId {
        self.waited = self.waited.wrapping_add(1) & !COMING;
        self.waits.insert(self.waited, half);
        LinkId(self.waited | COMING)
    }

    pub(super) fn end_wait(&mut self, wait: LinkId) {
        self.waits.remove(&(wait.0 & !COMING));
    }

    /// Whether a client went to another node a moment ago.
    pub(crate) fn has_parted(&self, client: ClientId) -> bool {
        self.parted.iter().any(|parted| parted.client == client)
    }

    pub(super) fn set_due(&mut self, due: Time, half: u64) {
        self.due.insert((due, half));
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        let parted = self.parted.front().map(|parted| parted.until);
        [self.due.first().map(|(due, _)| *due), parted].into_iter().flatten().min()
    }

    pub(super) fn outcome(&self, link: LinkId, half: u64) -> Option<Sought> {
        self.outcomes.get(&link).filter(|(of, _)| *of == half).map(|(_, sought)| sought.clone())
    }

    pub(super) fn keep_outcome(&mut self, link: LinkId, half: u64, sought: Sought) {
        self.outcomes.insert(link, (half, sought));
    }

    /// The transport is gone, or says something new.
    pub(crate) fn forget_link(&mut self, link: LinkId) {
        if !self.outcomes.is_empty() {
            self.outcomes.remove(&link);
        }
    }
}

impl Shard {
    /// A letter of another node about a session that moves.
    pub fn letter(&mut self, now: Time, from: &Arc<str>, letter: Letter) {
        let Letter { key, number, says } = letter;
        match says {
            Says::Ask { claim, gentle } => self.asked(now, from, key, number, &claim, gentle),
            Says::Give { versions } => self.give(now, from, key, number, versions),
            Says::Taken => self.taken(now, from, key, number),
            Says::Offer { names } => self.offered(now, from, key, number, names),
            Says::Here { names } => self.found(now, from, key, number, names),
            Says::Given { client, version } => self.given(from, key, number, client, version),
            Says::No | Says::Moving | Says::Refused | Says::Attached => {
                self.not_found(now, from, key, number, &says);
                if says == Says::No {
                    self.declined(now, from, key, number);
                }
            }
        }
    }

    pub(super) fn write_letter(&mut self, to: Option<&str>, key: SessionKey, number: u64, says: Says) {
        let letter = Letter { key, number, says };
        self.effects.abroad.extend(self.node.letter_parcel(to, &letter));
    }

    pub(super) fn run_errand(&mut self, half: u64, number: u64, errand: Errand, work: Work) {
        let ticket = self.presences.ticket();
        self.moves.under_way.insert(ticket, (half, number, errand));
        self.effects.work.push((ticket, work));
    }

    /// The store has answered something that was asked for a session that moves.
    pub(crate) fn errand_answered(&mut self, now: Time, ticket: Ticket, answer: Answer) {
        let Some((half, number, errand)) = self.moves.under_way.remove(&ticket) else { return };
        match errand {
            Errand::Put => self.laid_down(now, half, number, answer),
            Errand::Reclaim => self.reclaimed(now, half, number, answer),
            Errand::Fetch => self.fetched(now, half, number, answer),
            Errand::Take => self.took(now, half, number, answer),
        }
    }

    /// The bus carries, or refused, what these waited for: transports run their command again.
    pub fn ready(&mut self, now: Time, links: impl IntoIterator<Item = LinkId>) {
        for link in links {
            if link == PEOPLE_LINK {
                self.people_carried();
            } else if link.0 & COMING == 0 {
                self.effects.ready.push(link);
            } else if let Some(half) = self.moves.waits.get(&(link.0 & !COMING)).copied() {
                self.listen_ahead(now, half);
            }
        }
    }

    /// What is due by now: letters that were not answered, sessions that nobody took.
    pub(crate) fn settle_moves(&mut self, now: Time) {
        while let Some((due, half)) = self.moves.due.first().copied()
            && due <= now
        {
            self.moves.due.remove(&(due, half));
            self.coming_is_due(now, half);
            self.leaving_is_due(now, half);
        }
        while self.moves.parted.front().is_some_and(|parted| parted.until <= now) {
            if let Some(parted) = self.moves.parted.pop_front() {
                self.look_after(now, parted);
            }
        }
    }
}
