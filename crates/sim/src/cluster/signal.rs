//! Signals of the cluster to clients and judges. The cluster reports; it judges nothing.

use super::socket::ConnectionId;
use serde_json::Value;
use std::sync::Arc;
use tavern_domain::{ClientId, Time};
use tavern_hub::CloseReason;
use tavern_hub::topics::TopicReply;
use tavern_hub::topics::delivery::AttemptRequest;

#[derive(Clone, Debug)]
pub enum Signal {
    /// A frame reached a client: a reply or an event.
    Received {
        client: usize,
        connection: ConnectionId,
        frame: Value,
    },
    /// A poll was answered, or its session is not known. None: the answer was lost.
    Polled {
        client: usize,
        answer: Option<Value>,
    },
    PollUnknown {
        client: usize,
    },
    /// A service command was answered, or refused with a code. A process that has ended does not answer.
    Ordered {
        number: u64,
        reply: Result<Value, String>,
    },
    /// A command about topics was answered, or refused with a code. A process that has ended does not answer.
    TopicAnswered {
        number: u64,
        reply: Arc<Result<TopicReply, String>>,
    },
    /// A process posts a batch to an endpoint and waits for the response.
    Posted {
        node: usize,
        process: u64,
        post: Box<AttemptRequest>,
    },
    /// The connection is closed, by either side. Pending answers will not arrive.
    Closed {
        client: usize,
        connection: ConnectionId,
        why: Ended,
    },
    /// The node knows that a session has no connection, since this moment of its own clock.
    Detached {
        session: ClientId,
        local: Time,
    },
    /// The store has changed. Handled before anything else happens.
    Committed,
    /// A process runs, with the sessions that the previous one of its name left.
    Started {
        node: usize,
        adopted: Vec<ClientId>,
    },
    /// A process adopted a session that a stopped node left.
    Adopted {
        node: usize,
        session: ClientId,
    },
    /// A process has ended.
    Ended {
        node: usize,
        how: Exit,
    },
    /// The level of faults has changed, or a node was put to sleep, cut off, or restored.
    Disturbed,
    /// The harness itself failed.
    Broken(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// By the client itself.
    Client,
    /// By the node, with a reason.
    Node(CloseReason),
    /// With its process.
    Process,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Crash,
    /// It could not start, or not stop cleanly: the store failed.
    StoreFailed,
    /// All its sessions are in the store or on other nodes.
    Clean,
}
