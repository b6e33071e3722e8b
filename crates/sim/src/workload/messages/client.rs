//! A client that does not wait for answers: a session, its current connection, the promises to it.

use crate::cluster::ConnectionId;
use crate::workload::promise::Promise;
use std::collections::BTreeMap;
use tavern_domain::Time;

/// The ids of commands encode what their answers are for: `PUBLISH` and the channel, `SUBSCRIBE`, the channel and in
/// steps of `STRIDE` how often the channel was left before.
pub const PUBLISH: u64 = 10;
pub const SUBSCRIBE: u64 = 100;
const STRIDE: u64 = 1_000;

pub struct MessagesClient {
    pub user: String,
    /// The secret from hello.
    pub session: Option<String>,
    pub transport: SimTransport,
    pub promise: Promise,
    /// Its current publisher number: a new connection is a new publisher.
    pub publisher: usize,
    /// Hello was answered over this connection.
    pub greeted: bool,
    /// Its network accepts any number of bytes.
    pub reads: bool,
    /// When its session was last known to be alive.
    alive_at: Time,
    /// How often each channel was left: a subscription that was sent before no longer exists.
    left: BTreeMap<usize, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimTransport {
    None,
    Socket(ConnectionId),
    /// A parked poll.
    Poll(ConnectionId),
}

impl MessagesClient {
    pub fn new(number: usize) -> MessagesClient {
        MessagesClient {
            user: format!("user{number}"),
            session: None,
            transport: SimTransport::None,
            promise: Promise::default(),
            publisher: 0,
            greeted: false,
            reads: true,
            alive_at: Time(0),
            left: BTreeMap::new(),
        }
    }

    pub fn is_detached(&self) -> bool {
        self.transport == SimTransport::None
    }

    /// The connection is closed; a session that was confirmed on it was alive until now.
    pub fn detach(&mut self, now: Time) -> SimTransport {
        let transport = std::mem::replace(&mut self.transport, SimTransport::None);
        let alive = match transport {
            SimTransport::None => false,
            SimTransport::Socket(_) => self.greeted,
            SimTransport::Poll(_) => true,
        };
        if alive {
            self.alive_at = now;
        }
        self.greeted = false;
        transport
    }

    pub fn heard_of(&mut self, now: Time) {
        self.alive_at = now;
    }

    /// How long ago the session was last known to be alive.
    pub fn silent_ms(&self, now: Time) -> u64 {
        now.since(self.alive_at)
    }

    pub fn subscribe_id(&self, channel: usize) -> u64 {
        SUBSCRIBE + channel as u64 + STRIDE * self.left.get(&channel).copied().unwrap_or(0)
    }

    /// The channel that an answer confirms the subscription of, unless it was left since.
    pub fn subscribed_by(&self, id: u64) -> Option<usize> {
        let channel = (id % STRIDE).checked_sub(SUBSCRIBE)? as usize;
        (self.subscribe_id(channel) == id).then_some(channel)
    }

    pub fn unsubscribed(&mut self, channel: usize) {
        *self.left.entry(channel).or_default() += 1;
        self.promise.unsubscribed(channel);
    }
}
