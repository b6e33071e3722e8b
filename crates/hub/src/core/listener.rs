//! A listener on this shard: a session of the JSON protocol, or a Redis connection that subscribed. It has a mailbox
//! and its subscriptions. A session outlives its connections; a Redis listener does not.

use crate::connection::Link;
use crate::core::ReceivedElsewhere;
use crate::core::detached::SharedLogs;
use crate::core::mailbox::Mailbox;
use crate::core::routing::{ListenerIndex, Position, RouteIndex, Subscriptions};
use crate::core::session::Session;
use crate::event::SPACES;

/// A listener's number. Numbers are reused; the generation tells the old listener from the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    pub(crate) index: u32,
    generation: u32,
}

#[derive(Debug)]
pub enum ListenerKind {
    Session(Box<Session>),
    Redis {
        /// False after `TAVERN.MODE poll`: the client polls, nothing is pushed.
        pushing: bool,
        /// It waits (`TAVERN.WAIT`): the next event must wake the server.
        waiting: bool,
    },
}

#[derive(Debug)]
pub struct Listener {
    generation: u32,
    pub kind: ListenerKind,
    pub link: Option<Link>,
    /// When it got its link: what was published before waited for the client, and is no latency of the server.
    pub(crate) linked_us: u64,
    /// It is in the list of listeners to be written to.
    pub dirty: bool,
    /// The last delivery to it, so that a message that matches both a name and a pattern is one event.
    pub stamp: u64,
    pub mailbox: Mailbox,
    pub subscriptions: Subscriptions,
    /// The messages it has received on another node, while some of them may still arrive here.
    pub received_elsewhere: Option<Box<ReceivedElsewhere>>,
    /// Without a connection: the logs from which it takes what it missed.
    pub(crate) shared_logs: Option<Box<SharedLogs>>,
    /// More of the messages that it missed are sent as it reads.
    pub recovering: bool,
    /// Subscriptions by namespace: channels, patterns, shard channels, watched channels.
    pub counts: [u32; SPACES],
}

impl Listener {
    pub fn session(&self) -> Option<&Session> {
        match &self.kind {
            ListenerKind::Session(session) => Some(session),
            ListenerKind::Redis { .. } => None,
        }
    }

    pub fn session_mut(&mut self) -> Option<&mut Session> {
        match &mut self.kind {
            ListenerKind::Session(session) => Some(session),
            ListenerKind::Redis { .. } => None,
        }
    }

    pub fn is_redis(&self) -> bool {
        matches!(self.kind, ListenerKind::Redis { .. })
    }

    /// Whether a new event should be written at the end of the turn.
    pub fn wants_writing(&self) -> bool {
        self.link.is_some() && !matches!(self.kind, ListenerKind::Redis { pushing: false, waiting: false })
    }
}

/// The listeners of one shard.
#[derive(Debug, Default)]
pub struct Listeners {
    slots: Vec<ListenerSlot>,
    free: Vec<u32>,
    len: usize,
}

#[derive(Debug)]
enum ListenerSlot {
    Free { next_generation: u32 },
    Used(Listener),
}

impl Listeners {
    pub fn insert(&mut self, who: ListenerKind, link: Option<Link>) -> ListenerId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(ListenerSlot::Free { next_generation: 0 });
            (self.slots.len() - 1) as u32
        });
        let ListenerSlot::Free { next_generation: generation } = self.slots[index as usize] else {
            unreachable!("a free slot is free")
        };
        self.slots[index as usize] = ListenerSlot::Used(Listener {
            generation,
            kind: who,
            link,
            linked_us: 0,
            dirty: false,
            stamp: 0,
            mailbox: Mailbox::default(),
            subscriptions: Subscriptions::default(),
            received_elsewhere: None,
            shared_logs: None,
            recovering: false,
            counts: [0; SPACES],
        });
        self.len += 1;
        ListenerId { index, generation }
    }

    pub fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        self.get(id)?;
        let next_generation = id.generation.wrapping_add(1);
        let slot =
            std::mem::replace(&mut self.slots[id.index as usize], ListenerSlot::Free { next_generation });
        self.free.push(id.index);
        self.len -= 1;
        match slot {
            ListenerSlot::Used(listener) => Some(listener),
            ListenerSlot::Free { .. } => None,
        }
    }

    pub fn get(&self, id: ListenerId) -> Option<&Listener> {
        match self.slots.get(id.index as usize) {
            Some(ListenerSlot::Used(listener)) if listener.generation == id.generation => Some(listener),
            _ => None,
        }
    }

    pub fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        match self.slots.get_mut(id.index as usize) {
            Some(ListenerSlot::Used(listener)) if listener.generation == id.generation => Some(listener),
            _ => None,
        }
    }

    /// For numbers from a routing list: these listeners exist.
    pub fn at(&mut self, index: u32) -> &mut Listener {
        match &mut self.slots[index as usize] {
            ListenerSlot::Used(listener) => listener,
            ListenerSlot::Free { .. } => panic!("a routing list names a removed listener"),
        }
    }

    /// Another listener has left the list of a route, and this one has its position now.
    pub(crate) fn note_moved(&mut self, route: RouteIndex, moved: Option<(ListenerIndex, Position)>) {
        if let Some((listener, to)) = moved {
            self.at(listener).subscriptions.insert(route, to);
        }
    }

    /// The listener at a number, if there is one; for sweeps over all of them.
    pub fn id_at(&self, index: u32) -> Option<ListenerId> {
        match self.slots.get(index as usize) {
            Some(ListenerSlot::Used(listener)) => Some(ListenerId { index, generation: listener.generation }),
            _ => None,
        }
    }

    pub fn ids(&self) -> impl Iterator<Item = ListenerId> {
        (0..self.slots.len() as u32).filter_map(|index| self.id_at(index))
    }

    /// All numbers in use are below this.
    pub fn span(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reused_number_is_another_listener() {
        let mut listeners = Listeners::default();
        let first = listeners.insert(ListenerKind::Redis { pushing: true, waiting: false }, None);
        assert!(listeners.remove(first).is_some());
        let second = listeners.insert(ListenerKind::Redis { pushing: true, waiting: false }, None);
        assert_eq!(first.index, second.index);
        assert!(listeners.get(first).is_none());
        assert!(listeners.remove(first).is_none());
        assert!(listeners.get(second).is_some());
        assert_eq!(listeners.len(), 1);
    }
}
