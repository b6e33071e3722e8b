//! Presence on one shard: what its sessions asked of the store and what came back, who is watched, what is due.
//! The rules are in `tavern-domain`; this carries them out: read, decide, commit with the version that was read, and
//! on a conflict read and decide again. Must hold: one command, at most one commit; news go out only when committed.

mod command;
mod crowd;
mod lane;
mod life;
mod step;
mod watch;

use crate::listener::{LinkId, ListenerId};
use crate::registry::Entry;
use crowd::Watched;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use step::{Step, Task};
use tavern_domain::Time;
use tavern_domain::presence::News;
use tavern_engine::{PresenceKey, Ticket};
use tavern_wire::error::Refusal;
use watch::Reading;
pub use watch::members_of;

/// What a finished command answers: the body of its reply, or why not.
pub type Outcome = Result<Vec<u8>, Refusal>;

#[derive(Default)]
pub struct Presences {
    tickets: u64,
    under_way: HashMap<Ticket, Task, RandomState>,
    /// Steps that wait for an earlier one of the same session in the same channel. There while one is under way.
    lanes: HashMap<(ListenerId, Arc<str>), VecDeque<Step>, RandomState>,
    /// What transports wait for.
    claims: HashMap<LinkId, u64, RandomState>,
    /// Answers for transports whose command waits; found when the command runs again.
    outcomes: HashMap<LinkId, Outcome, RandomState>,
    /// The channels that somebody on this shard watches.
    rooms: HashMap<Arc<str>, Watched, RandomState>,
    /// Channels that are being read before they can be watched.
    reading: BTreeMap<Arc<str>, Reading>,
    /// Channels without a watcher whose news come here: they are being read for one.
    held: HashMap<Arc<str>, Arc<Entry>, RandomState>,
    /// Graces that this shard wrote down; it looks after them first.
    deadlines: BTreeSet<(Time, PresenceKey)>,
    /// When the sum of a channel's changes is told.
    ticks: BTreeSet<(Time, Arc<str>)>,
    /// Channels that are further in the store than here, and how far.
    behind: BTreeMap<Arc<str>, u64>,
    /// When to read a channel again whose news have a hole.
    holes: BTreeSet<(Time, Arc<str>)>,
    /// Steps that the store did not take and that nobody else would repeat.
    later: VecDeque<(Time, Step)>,
}

/// A transport's claim to an answer. Numbers of transports are used again; a claim is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub link: LinkId,
    number: u64,
}

/// News of one channel, for the shards and nodes that watch it.
#[derive(Clone, Debug)]
pub struct ChannelNews {
    pub channel: Arc<str>,
    pub news: Arc<News>,
}

impl Presences {
    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|(due, _)| *due);
        let later = self.later.front().map(|(due, _)| *due);
        let hole = self.holes.first().map(|(due, _)| *due);
        let tick = self.ticks.first().map(|(due, _)| *due);
        [deadline, later, hole, tick].into_iter().flatten().min()
    }

    /// The answer to a transport's command, if it is there.
    pub(crate) fn take_outcome(&mut self, link: LinkId) -> Option<Outcome> {
        self.outcomes.remove(&link)
    }

    /// Nobody here watches a channel any more: what is known of it would grow old.
    pub(crate) fn forget_room(&mut self, channel: &[u8]) {
        if let Ok(channel) = std::str::from_utf8(channel) {
            self.rooms.remove(channel);
        }
    }

    /// The transport is gone: nobody waits for its answer.
    pub(crate) fn forget_link(&mut self, link: LinkId) {
        self.claims.remove(&link);
        self.outcomes.remove(&link);
    }

    pub(crate) fn claim(&mut self, link: LinkId) -> Claim {
        self.tickets += 1;
        self.claims.insert(link, self.tickets);
        Claim { link, number: self.tickets }
    }

    /// Keeps an answer for whoever still waits for it. False: nobody does.
    fn keep(&mut self, claim: Claim, outcome: Outcome) -> bool {
        let waits = self.claims.get(&claim.link) == Some(&claim.number);
        if waits {
            self.claims.remove(&claim.link);
            self.outcomes.insert(claim.link, outcome);
        }
        waits
    }
}
