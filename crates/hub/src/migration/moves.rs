//! The book of one shard about sessions that move: which come, which leave, what was heard so far, what is due.
//! Must hold: everything in it ends by itself at a time, whatever the other nodes say or do not say.

use super::coming::Coming;
use super::leaving::{Leaving, Parted};
use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{Core, Feature, Watched};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tavern_domain::{ClientId, SessionKey};
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
pub(crate) struct Migration {
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
    under_way: HashMap<Ticket, (u64, u64, Errand), RandomState>,
    /// The node stops: it takes no sessions of others any more.
    pub(crate) leaves: bool,
    /// How long its sessions then have to be resumed elsewhere.
    pub(super) drain_ms: u64,
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

impl Migration {
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

impl Migration {
    /// A letter of another node about a session that moves.
    pub(crate) fn letter(&mut self, core: &mut Core, watched: &dyn Watched, from: &Arc<str>, letter: Letter) {
        let Letter { key, number, says } = letter;
        match says {
            Says::Ask { claim, gentle } => self.asked(core, from, key, number, &claim, gentle),
            Says::Give { versions } => self.give(core, watched, from, key, number, versions),
            Says::Taken => self.taken(core, from, key, number),
            Says::Offer { names } => self.offered(core, watched, from, key, number, names),
            Says::Here { names } => self.found(core, watched, from, key, number, names),
            Says::Given { client, version } => self.given(core, from, key, number, client, version),
            Says::No | Says::Moving | Says::Refused | Says::Attached => {
                self.not_found(core, from, key, number, &says);
                if says == Says::No {
                    self.declined(core, from, key, number);
                }
            }
        }
    }

    pub(super) fn write_letter(
        &mut self,
        core: &mut Core,
        to: Option<&str>,
        key: SessionKey,
        number: u64,
        says: Says,
    ) {
        let letter = Letter { key, number, says };
        core.effects.abroad.extend(core.node.letter_parcel(to, &letter));
    }

    pub(super) fn run_errand(&mut self, core: &mut Core, half: u64, number: u64, errand: Errand, work: Work) {
        let ticket = core.submit(Feature::Migration, work);
        self.under_way.insert(ticket, (half, number, errand));
    }

    /// The store has answered something that was asked for a session that moves.
    pub(crate) fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: Answer) {
        let Some((half, number, errand)) = self.under_way.remove(&ticket) else { return };
        match errand {
            Errand::Put => self.laid_down(core, half, number, answer),
            Errand::Reclaim => self.reclaimed(core, half, number, answer),
            Errand::Fetch => self.fetched(core, half, number, answer),
            Errand::Take => self.took(core, half, number, answer),
        }
    }

    /// Whether a waiting link is no transport but a session that waits for the bus.
    pub(crate) fn is_waiting(link: LinkId) -> bool {
        link.0 & COMING != 0
    }

    /// The bus carries, or refused, what a session waited for.
    pub(crate) fn bus_ready(&mut self, core: &mut Core, watched: &dyn Watched, link: LinkId) {
        if let Some(half) = self.waits.get(&(link.0 & !COMING)).copied() {
            self.listen_ahead(core, watched, half);
        }
    }

    /// A session on its way is due: messages that were not answered, sessions that were not taken.
    pub(crate) fn is_due(&mut self, core: &mut Core, watched: &dyn Watched, half: u64) {
        self.coming_is_due(core, half);
        self.leaving_is_due(core, watched, half);
    }

    /// Sessions that left a while ago: does their new node vouch for the client?
    pub(crate) fn check_departed(&mut self, core: &mut Core) {
        while let Some(parted) = self.parted.pop_front_if(|parted| parted.until <= core.now) {
            self.look_after(core, parted);
        }
    }
}
