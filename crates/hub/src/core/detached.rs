//! Sessions without a connection share one log per channel, so that a message for ten thousand of them is kept once. A session
//! joins the logs of its channels when unread events pile up in its mailbox, and takes what it missed out of them before
//! anything reads its mailbox or adds to it.
//! Must hold: afterwards its mailbox is what it would be if each message had been put into it at once.

use super::Core;
use super::listener::{Listener, ListenerId};
use super::mailbox::MailboxLimits;
use super::routing::{ListenerIndex, RouteIndex};
use crate::event::{Event, Namespace};
use std::collections::VecDeque;
use std::rc::Rc;

/// The latest messages of one channel on this shard, bounded as a mailbox is.
#[derive(Debug, Default)]
pub struct DetachedLog {
    events: VecDeque<DetachedEvent>,
    /// The number of the oldest event kept, or of the next one when none is kept.
    first: u64,
    bytes: usize,
    /// The delivery whose event was dropped last.
    dropped_to: u64,
}

#[derive(Clone, Debug)]
struct DetachedEvent {
    /// The number of its delivery on this shard: the order of messages of different channels.
    stamp: u64,
    event: Rc<Event>,
}

impl DetachedLog {
    /// The number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds an event. A mailbox with the same bounds would drop what is dropped here, too.
    pub fn push(&mut self, stamp: u64, event: Rc<Event>, bounds: MailboxLimits) {
        self.bytes += event.size();
        self.events.push_back(DetachedEvent { stamp, event });
        while self.events.len() > bounds.events || (self.bytes > bounds.bytes && self.events.len() > 1) {
            self.drop_oldest();
        }
    }

    /// Frees the oldest events until at most `bytes` are left; returns how many.
    pub fn shrink_to(&mut self, bytes: usize) -> usize {
        let before = self.events.len();
        while self.bytes > bytes && !self.events.is_empty() {
            self.drop_oldest();
        }
        before - self.events.len()
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.events.pop_front() {
            self.first += 1;
            self.bytes -= oldest.event.size();
            self.dropped_to = oldest.stamp;
        }
    }
}

/// The logs that one session shares, and the number of the first event in each that it has not taken.
#[derive(Debug, Default)]
pub struct SharedLogs(Vec<(RouteIndex, u64)>);

impl SharedLogs {
    /// The session has left a channel.
    pub fn leave(&mut self, route: RouteIndex) {
        self.0.retain(|(shared, _)| *shared != route);
    }
}

/// Moves the sessions to the shared logs that have too many unread events and no connection.
pub(super) fn share_logs_of_idle(core: &mut Core) {
    for index in std::mem::take(&mut core.piling_up) {
        if let Some(id) = core.listeners.id_at(index) {
            share_logs(core, id);
        }
    }
}

/// A session that could not share its logs when unread events piled up is asked again after so many.
const ASKED_AGAIN: u64 = 64;

/// Whether unread events pile up in the mailbox of a listener without a connection.
pub(super) fn piles_up(listener: &Listener, unread_max: usize) -> bool {
    let unread = listener.mailbox.unread();
    let asks =
        unread == unread_max || (unread > unread_max && listener.mailbox.last().is_multiple_of(ASKED_AGAIN));
    asks && !listener.is_redis()
}

fn share_logs(core: &mut Core, id: ListenerId) {
    let Some(listener) = core.listeners.get(id) else { return };
    // By a pattern, messages arrive that are in no log of its channels, or in two ways. A session that came from another node
    // leaves out what it received there; one that recovers a history watches how full its mailbox is.
    let must_have_own = listener.counts[Namespace::Pattern as usize] > 0
        || listener.received_elsewhere.is_some()
        || listener.recovering;
    if must_have_own {
        return;
    }
    let mut routes: Vec<RouteIndex> = listener.subscriptions.keys().copied().collect();
    routes.retain(|&route| core.routing.place(route).space == Namespace::Channel);
    // Messages of a history leave a full mailbox first, and are read from the store again.
    if routes.iter().any(|&route| core.node.history_limits(&core.routing.place(route).entry.name).is_some()) {
        return;
    }
    collect(core, id);
    // Equal runs move them in the same order.
    routes.sort_unstable();
    for route in routes {
        let Some(listener) = core.listeners.get_mut(id) else { return };
        let Some(position) = listener.subscriptions.get(&route).copied().filter(|at| !at.is_in_log()) else {
            continue;
        };
        let moved = core.routing.move_to_log(route, position);
        listener.subscriptions.insert(route, moved.position);
        let end = core.routing.log(route).map_or(0, DetachedLog::end);
        listener.shared_logs.get_or_insert_default().0.push((route, end));
        core.listeners.note_moved(route, moved.other);
    }
}

/// Adds what the session missed to its mailbox. It goes on sharing the logs.
pub(crate) fn collect(core: &mut Core, id: ListenerId) {
    let Some(listener) = core.listeners.get_mut(id) else { return };
    let Some(shared) = &mut listener.shared_logs else { return };
    let (mut missed, mut gone) = (Vec::new(), 0);
    // The last delivery whose event was dropped.
    let mut dropped_to = None;
    for (route, start) in &mut shared.0 {
        let Some(log) = core.routing.log(*route) else { continue };
        if *start < log.first {
            gone += log.first - *start;
            dropped_to = dropped_to.max(Some(log.dropped_to));
        }
        let skip = start.saturating_sub(log.first) as usize;
        missed.extend(log.events.range(skip..).cloned());
        *start = log.end();
    }
    missed.sort_unstable_by_key(|logged| logged.stamp);
    let mut dropped = 0;
    if let Some(dropped_to) = dropped_to {
        // Whatever is older than a dropped event would be dropped, too: what other logs have, and the mailbox itself.
        let older = missed.partition_point(|logged| logged.stamp <= dropped_to);
        gone += older as u64;
        missed.drain(..older);
        dropped = listener.mailbox.unread() + gone as usize;
        listener.mailbox.skip(gone);
    }
    let settings = &core.node.settings;
    let bounds = MailboxLimits { events: settings.mailbox_events, bytes: settings.mailbox_bytes };
    for logged in missed {
        dropped += listener.mailbox.push(logged.event, bounds);
    }
    core.stats.dropped_full.add(dropped as u64);
}

/// The same for the listener at a number.
#[cold]
pub(super) fn collect_at(core: &mut Core, index: ListenerIndex) {
    if let Some(id) = core.listeners.id_at(index) {
        collect(core, id);
    }
}

/// From now on each message is put into the mailbox of this session at once.
pub(crate) fn leave_logs(core: &mut Core, id: ListenerId) {
    collect(core, id);
    let Some(listener) = core.listeners.get_mut(id) else { return };
    let shared = listener.shared_logs.take();
    for (route, _) in shared.into_iter().flat_map(|shared| shared.0) {
        let listener = core.listeners.at(id.index);
        let Some(position) = listener.subscriptions.get(&route).copied() else { continue };
        let moved = core.routing.move_from_log(route, position);
        listener.subscriptions.insert(route, moved.position);
        core.listeners.note_moved(route, moved.other);
    }
}
