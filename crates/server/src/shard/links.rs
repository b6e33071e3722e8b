//! Everything attached to a shard, by link number: sockets, event streams, parked polls, waiting requests.
//! Must hold: a number is not reused in the turn in which it was released, so that no late effect of that turn
//! reaches another client.

use crate::connections::{AddressSlot, TransportSlot};
use crate::resp::RedisPeer;
use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::input::{
    CommandAnswer, DirectOutput, GatewayCommand, GatewayOutput, HttpCommand, HttpPoll, HttpStream,
};
use crate::unread_replies::ConnectionReplies;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tavern_domain::ClientId;
use tavern_hub::{Caller, LinkId, ListenerId, PollFlags};
use tavern_wire::error::Refusal;
use tavern_wire::json::ParsedCommand;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

pub enum LinkTarget {
    Socket(Box<Conn>),
    Stream(Box<StreamLink>),
    Gateway(Box<GatewayLink>),
    Poll(Box<PollLink>),
    /// A command over HTTP that waits.
    Request(Box<RequestLink>),
    /// A request whose session is looked up on other nodes.
    Seeking(Box<WaitingForSession>),
}

pub struct StreamLink {
    /// Runs the hello and the subscriptions that came with the URL.
    pub caller: Caller,
    /// Used once: the hello has its reply, or was refused.
    pub started: Option<oneshot::Sender<Result<LinkId, Refusal>>>,
    /// Subscriptions from the URL that have not started.
    pub subscriptions: VecDeque<ParsedCommand<'static>>,
    pub events: mpsc::Sender<bytes::Bytes>,
    /// Counts the pieces until they are sent.
    pub replies: Arc<ConnectionReplies>,
    pub blocked: bool,
    /// Shared with the body: set while the shard waits for room.
    pub wants_room: Arc<AtomicBool>,
    /// Milliseconds since the shard's start at which something was last written.
    pub written_ms: u32,
    pub _transport: TransportSlot,
}

pub struct GatewayLink {
    pub caller: Caller,
    /// Tells it from a later one with the same number.
    pub client: ClientId,
    /// Commands that have not begun.
    pub asked: VecDeque<GatewayCommand>,
    pub output: mpsc::Sender<GatewayOutput>,
    /// A reply that the queue had no room for; nothing overtakes it.
    pub reply: Option<Vec<u8>>,
    pub blocked: bool,
    /// Shared with the gateway: set while the shard waits for room.
    pub wants_room: Arc<AtomicBool>,
    pub direct: Option<DirectOutput>,
    /// It is in the list of connections with events.
    pub touched: bool,
}

pub struct PollLink {
    pub listener: ListenerId,
    pub flags: PollFlags,
    pub answer: oneshot::Sender<CommandAnswer>,
    pub _counted: Option<AddressSlot>,
    pub _transport: TransportSlot,
}

/// What to do when the lookup of the session has ended.
pub enum WaitingForSession {
    Command(HttpCommand),
    Poll(HttpPoll),
    Stream(HttpStream),
}

pub struct RequestLink {
    pub caller: Caller,
    pub answer: oneshot::Sender<CommandAnswer>,
}

#[derive(Default)]
pub struct Links {
    slots: Vec<Option<LinkTarget>>,
    free: Vec<u32>,
    retired: Vec<u32>,
}

impl Links {
    /// A number for a target that does not exist yet.
    pub fn reserve(&mut self) -> LinkId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        LinkId(index)
    }

    pub fn put(&mut self, link: LinkId, target: LinkTarget) {
        self.slots[link.0 as usize] = Some(target);
    }

    /// Removes a target to work on it; `put` it back, or `retire` its number.
    pub fn take(&mut self, link: LinkId) -> Option<LinkTarget> {
        self.slots.get_mut(link.0 as usize)?.take()
    }

    pub fn take_conn(&mut self, link: LinkId) -> Option<Box<Conn>> {
        match self.take(link)? {
            LinkTarget::Socket(conn) => Some(conn),
            other => {
                self.put(link, other);
                None
            }
        }
    }

    pub fn get_mut(&mut self, link: LinkId) -> Option<&mut LinkTarget> {
        self.slots.get_mut(link.0 as usize)?.as_mut()
    }

    pub fn conn_mut(&mut self, link: LinkId) -> Option<&mut Conn> {
        match self.get_mut(link)? {
            LinkTarget::Socket(conn) => Some(conn),
            _ => None,
        }
    }

    /// A Redis connection, unless the link was reused for another client.
    pub fn peer_mut(&mut self, link: LinkId, client: u64) -> Option<&mut RedisPeer> {
        match &mut self.conn_mut(link)?.protocol {
            SocketProtocol::Redis(peer) if peer.info.id == client => Some(peer),
            _ => None,
        }
    }

    /// Releases a number; it can be reused from the next turn on.
    pub fn retire(&mut self, link: LinkId) {
        self.slots[link.0 as usize] = None;
        self.retired.push(link.0);
    }

    pub fn end_turn(&mut self) {
        self.free.append(&mut self.retired);
    }

    pub fn span(&self) -> u32 {
        self.slots.len() as u32
    }

    pub fn conns(&self) -> Vec<LinkId> {
        let is_conn = |(index, slot): (usize, &Option<LinkTarget>)| {
            matches!(slot, Some(LinkTarget::Socket(_))).then_some(LinkId(index as u32))
        };
        self.slots.iter().enumerate().filter_map(is_conn).collect()
    }

    pub fn gateways(&self) -> Vec<LinkId> {
        let is_gateway = |(index, slot): (usize, &Option<LinkTarget>)| {
            matches!(slot, Some(LinkTarget::Gateway(_))).then_some(LinkId(index as u32))
        };
        self.slots.iter().enumerate().filter_map(is_gateway).collect()
    }

    /// Connections whose clients are not authenticated, the oldest first.
    pub fn oldest_unauthenticated(&self) -> Vec<LinkId> {
        let unauthenticated = |(index, slot): (usize, &Option<LinkTarget>)| match slot {
            Some(LinkTarget::Socket(conn)) if conn.counted.unauthenticated > 0 => {
                Some((conn.authenticated_ms, index as u32))
            }
            _ => None,
        };
        let mut links: Vec<(u32, u32)> = self.slots.iter().enumerate().filter_map(unauthenticated).collect();
        links.sort_unstable();
        links.into_iter().map(|(_, index)| LinkId(index)).collect()
    }
}

/// Puts something into the queue of a response, or asks its reader for a notice when there is room.
pub fn offer<T>(queue: &mpsc::Sender<T>, wants_room: &AtomicBool, item: T) -> Result<(), TrySendError<T>> {
    offer_by(|item| queue.try_send(item), wants_room, item)
}

fn offer_by<T>(
    mut try_send: impl FnMut(T) -> Result<(), TrySendError<T>>,
    wants_room: &AtomicBool,
    item: T,
) -> Result<(), TrySendError<T>> {
    match try_send(item) {
        Err(TrySendError::Full(item)) => {
            wants_room.store(true, Ordering::Release);
            // The reader may have emptied the queue before it could see the flag: it would never look again.
            try_send(item)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_queue_asks_its_reader_for_a_notice() {
        let (queue, mut reader) = mpsc::channel(1);
        let wants_room = AtomicBool::new(false);
        assert!(offer(&queue, &wants_room, 1).is_ok());
        assert!(!wants_room.load(Ordering::Acquire));
        assert!(matches!(offer(&queue, &wants_room, 2), Err(TrySendError::Full(2))));
        assert!(wants_room.load(Ordering::Acquire));
        assert_eq!(reader.try_recv(), Ok(1));
        assert!(offer(&queue, &wants_room, 2).is_ok());
    }

    #[test]
    fn queue_that_was_emptied_before_its_reader_was_asked_takes_the_item() {
        let (queue, mut reader) = mpsc::channel(1);
        let wants_room = AtomicBool::new(false);
        queue.try_send(1).unwrap();
        let send = |item| {
            let sent = queue.try_send(item);
            // The reader runs between the two attempts, and sees no flag at its only item.
            let _ = reader.try_recv();
            sent
        };
        assert!(offer_by(send, &wants_room, 2).is_ok());
    }
}
