//! Presence on one shard: what its sessions asked of the store and what came back, who is watched, what is due.
//! The rules are in `tavern-domain`; this carries them out: read, decide, commit with the version that was read, and
//! on a conflict read and decide again. Must hold: one command, at most one commit; news go out only when committed.

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

use crate::core::listener::ListenerId;
use crate::core::{Claim, Core, Feature, Watched};
use crate::node::registry::Entry;
use crowd::WatchedRoom;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use task::{Step, Task};
use tavern_domain::Time;
use tavern_domain::presence::State;
use tavern_engine::{Ticket, Work};
use watch::Reading;
pub use watch::members_of;

#[derive(Default)]
pub(crate) struct Presence {
    under_way: HashMap<Ticket, Task, RandomState>,
    /// How many steps of a session are under way.
    steps: HashMap<ListenerId, u32, RandomState>,
    /// Steps that wait for a step of the same user in the same channel.
    lines: line::Lines,
    /// The channels that somebody on this shard watches.
    rooms: HashMap<Arc<str>, WatchedRoom, RandomState>,
    /// Channels that are being read before they can be watched.
    reading: BTreeMap<Arc<str>, Reading>,
    /// Channels without a watcher whose news come here: they are being read for one.
    held: HashMap<Arc<str>, Arc<Entry>, RandomState>,
    /// Channels that are further in the store than here, and how far.
    behind: BTreeMap<Arc<str>, u64>,
    /// Steps that the store did not take and that nobody else would repeat.
    later: VecDeque<(Time, Step)>,
    /// Joins that wait until the visibility of their user is known.
    put_off: BTreeMap<Arc<str>, Vec<PutOff>>,
}

/// A join that waits until the visibility of its user is known.
struct PutOff {
    listener: ListenerId,
    channel: Arc<str>,
    state: Option<State>,
    claim: Option<Claim>,
}

impl Presence {
    /// The last local watcher of a channel is gone: what is known of it would go stale.
    pub(crate) fn forget_room(&mut self, core: &Core, channel: &str) {
        if !self.is_watched(core, channel) {
            self.rooms.remove(channel);
        }
    }

    /// The last session of a user here has ended: nothing waits for their visibility any more.
    pub(crate) fn user_left(&mut self, user: &str) {
        self.put_off.remove(user);
    }

    fn submit(&mut self, core: &mut Core, task: Task, work: Work) {
        let ticket = core.submit(Feature::Presence, work);
        self.add(ticket, task);
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
}

impl Watched for Presence {
    fn told(&self, channel: &str) -> Option<u64> {
        self.rooms.get(channel).map(|watched| watched.room.version())
    }

    fn base(&self, channel: &str) -> Option<u64> {
        self.rooms.get(channel).map(WatchedRoom::base)
    }

    fn is_busy(&self, id: ListenerId) -> bool {
        self.steps.contains_key(&id) || self.lines.has(id)
    }
}
