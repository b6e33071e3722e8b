//! Presence on one shard: what its sessions asked of the store and what came back, who is watched, what is due.
//! The rules are in `tavern-domain`; this carries them out: read, decide, commit with the version that was read, and
//! on a conflict read and decide again. Must hold: one command, at most one commit; news go out only when committed.

mod ahead;
mod astray;
mod command;
mod crowd;
mod doubt;
mod hold;
mod life;
mod line;
mod step;
mod task;
mod transition;
mod watch;

use crate::listener::{LinkId, ListenerId};
use crate::registry::Entry;
pub use astray::Astray;
use crowd::Watched;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
pub(crate) use hold::{hold_deadline, hold_of};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
pub(crate) use step::refusal;
pub(crate) use task::{Act, Step, Task};
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
    /// How many steps of a session are under way.
    steps: HashMap<ListenerId, u32, RandomState>,
    /// What transports wait for.
    claims: HashMap<LinkId, u64, RandomState>,
    /// Answers for transports whose command waits; found when the command runs again.
    outcomes: HashMap<LinkId, Outcome, RandomState>,
    /// Answers for transports whose commands run ahead of their replies.
    ahead: ahead::Ahead,
    /// Steps that wait for a step of the same user in the same channel.
    lines: line::Lines,
    /// The channels that somebody on this shard watches.
    rooms: HashMap<Arc<str>, Watched, RandomState>,
    /// Channels that are being read before they can be watched.
    reading: BTreeMap<Arc<str>, Reading>,
    /// Channels without a watcher whose news come here: they are being read for one.
    held: HashMap<Arc<str>, Arc<Entry>, RandomState>,
    /// Graces that this shard wrote down; it looks after them first.
    deadlines: BTreeSet<(Time, PresenceKey)>,
    /// When what an app said about somebody ends.
    holds: BTreeSet<(Time, PresenceKey)>,
    /// When the sum of a channel's changes is told.
    ticks: BTreeSet<(Time, Arc<str>)>,
    /// Channels that are further in the store than here, and how far.
    behind: BTreeMap<Arc<str>, u64>,
    /// When to read a channel again whose news have a hole.
    holes: BTreeSet<(Time, Arc<str>)>,
    /// Steps that the store did not take and that nobody else would repeat.
    later: VecDeque<(Time, Step)>,
}

/// A claim to an answer: a transport's, whose numbers are used again while a claim's is not, or an order's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Link { link: LinkId, number: u64 },
    Order(u64),
}

/// News of one channel, for the shards and nodes that watch it.
#[derive(Clone, Debug)]
pub struct ChannelNews {
    pub channel: Arc<str>,
    pub news: Arc<News>,
}

impl Presences {
    pub(crate) fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(crate) fn next_wake(&self) -> Option<Time> {
        let deadline = self.deadlines.first().map(|(due, _)| *due);
        let later = self.later.front().map(|(due, _)| *due);
        let hole = self.holes.first().map(|(due, _)| *due);
        let tick = self.ticks.first().map(|(due, _)| *due);
        let hold = self.holds.first().map(|(due, _)| *due);
        [deadline, later, hole, tick, hold].into_iter().flatten().min()
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

    /// Whether something that a session does is not decided yet.
    pub(crate) fn is_busy(&self, id: ListenerId) -> bool {
        self.steps.contains_key(&id) || self.lines.has(id)
    }

    fn add(&mut self, ticket: Ticket, task: Task) {
        if let Some(id) = task.listener() {
            *self.steps.entry(id).or_default() += 1;
        }
        self.under_way.insert(ticket, task);
    }

    fn take(&mut self, ticket: Ticket) -> Option<Task> {
        let task = self.under_way.remove(&ticket)?;
        if let Some(id) = task.listener()
            && let Some(count) = self.steps.get_mut(&id)
        {
            *count -= 1;
            if *count == 0 {
                self.steps.remove(&id);
            }
        }
        Some(task)
    }

    /// How far this shard knows a watched channel.
    pub(crate) fn known(&self, channel: &str) -> Option<u64> {
        self.rooms.get(channel).map(|watched| watched.room.version())
    }

    /// The version from which a new watcher of a channel is told on; of an empty one, from the beginning.
    pub(crate) fn base(&self, channel: &str) -> Option<u64> {
        self.rooms.get(channel).map(Watched::base)
    }

    /// The transport is gone: nobody waits for its answer.
    pub(crate) fn forget_link(&mut self, link: LinkId) {
        self.claims.remove(&link);
        self.outcomes.remove(&link);
    }

    /// The number of the transport may be used again.
    pub(crate) fn release_link(&mut self, link: LinkId) {
        self.forget_link(link);
        self.ahead.forget(link);
    }

    pub(crate) fn claim(&mut self, link: LinkId) -> Claim {
        self.tickets += 1;
        self.claims.insert(link, self.tickets);
        Claim::Link { link, number: self.tickets }
    }

    /// Keeps an answer for whoever still waits for it. False: nobody does, or an earlier answer must come first.
    fn keep(&mut self, link: LinkId, number: u64, outcome: Outcome) -> bool {
        let mut outcome = Some(outcome);
        if let Some(first) = self.ahead.keep(link, number, &mut outcome) {
            return first;
        }
        let waits = self.claims.get(&link) == Some(&number);
        if waits {
            self.claims.remove(&link);
            self.outcomes.extend(outcome.map(|outcome| (link, outcome)));
        }
        waits
    }
}
