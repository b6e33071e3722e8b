//! What happens in the cluster that clients and judges see. The cluster reports; it judges nothing.

use super::socket::ConnectionId;
use serde_json::Value;
use tavern_domain::{ClientId, Time};
use tavern_hub::CloseReason;

#[derive(Clone, Debug)]
pub enum Signal {
    /// A frame reached a client: a reply or an event.
    Heard {
        client: usize,
        connection: ConnectionId,
        frame: Value,
    },
    /// A poll was answered, or its session is not known. None: the answer was lost on its way.
    Polled {
        client: usize,
        answer: Option<Value>,
    },
    PollUnknown {
        client: usize,
    },
    /// A command of a service was answered, or refused with a code. A process that ends answers no more.
    Ordered {
        number: u64,
        reply: Result<Value, String>,
    },
    /// The transport is gone, whoever ended it. Its answers will not come any more.
    Closed {
        client: usize,
        connection: ConnectionId,
        why: Ended,
    },
    /// The node knows that a session has no transport, since this moment of its own clock.
    Detached {
        session: ClientId,
        local: Time,
    },
    /// The store has changed. Seen before anything else happens.
    Committed,
    /// A process runs, with the sessions that the last one of its name left.
    Started {
        node: usize,
        adopted: Vec<ClientId>,
    },
    /// A process took up a session that a stopped node left.
    Adopted {
        node: usize,
        session: ClientId,
    },
    /// A process has ended.
    Ended {
        node: usize,
        how: Exit,
    },
    /// The level of faults has changed, or a node was put to sleep, cut off, or is back.
    Disturbed,
    /// The harness itself could not go on.
    Broken(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By the client itself.
    Client,
    /// The node said why.
    Node(CloseReason),
    /// With its process.
    Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Crash,
    /// It could not start, or not stop cleanly: the store failed.
    StoreFailed,
    /// All its sessions are in the store or with other nodes.
    Clean,
}
