//! A simulated client: a session, the transport it has at the moment, what it was promised.

use crate::promise::Promise;
use tavern_hub::{Caller, LinkId};

#[derive(Debug)]
pub struct Client {
    pub user: String,
    /// The secret from hello.
    pub session: Option<String>,
    pub transport: Transport,
    pub promise: Promise,
    /// Which publisher it is at present: a new attachment is a new publisher.
    pub publisher: usize,
    /// Bytes that came and are not yet a whole frame.
    pub inbox: Vec<u8>,
    /// It does not read: nothing of what is written reaches it.
    pub stalled: bool,
    /// It has heard the answer to its hello over this transport.
    pub greeted: bool,
    /// When it last knew that its session lived.
    pub alive_at: u64,
}

#[derive(Debug)]
pub enum Transport {
    None,
    Socket(Socket),
    /// A parked poll.
    Poll {
        link: LinkId,
        shard: usize,
    },
}

#[derive(Debug)]
pub struct Socket {
    pub caller: Caller,
    pub shard: usize,
    /// Written by the shard and not yet taken by the network.
    pub out: Vec<u8>,
}

impl Client {
    pub fn new(number: usize) -> Client {
        Client {
            user: format!("user{number}"),
            session: None,
            transport: Transport::None,
            promise: Promise::default(),
            publisher: 0,
            inbox: Vec::new(),
            stalled: false,
            greeted: false,
            alive_at: 0,
        }
    }

    /// The transport is gone; the session was alive until now if there was one to speak of.
    pub fn detach(&mut self, now: u64) -> Transport {
        let transport = std::mem::replace(&mut self.transport, Transport::None);
        let sure = match transport {
            Transport::None => false,
            Transport::Socket(_) => self.greeted,
            Transport::Poll { .. } => true,
        };
        if sure {
            self.alive_at = now;
        }
        self.greeted = false;
        self.inbox.clear();
        transport
    }

    pub fn is_detached(&self) -> bool {
        matches!(self.transport, Transport::None)
    }
}
