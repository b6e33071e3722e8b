//! Shards: one thread each, with its own sockets, sessions and mailboxes. Everything else reaches them by their queues.

pub mod conn;
mod effects;
mod gateways;
pub mod input;
mod keepalive;
mod links;
pub mod poll_socket;
mod polls;
pub mod queue;
mod report;
mod requests;
mod shards;
pub mod shared_output;
mod socket_reader;
mod socket_writer;
mod state;
mod streams;
pub mod websocket;
pub mod worker;

pub use shards::Shards;

use crate::authorize::AuthorizeHook;
use crate::byte_budget::ByteBudget;
use crate::clock::NodeClock;
use crate::resp::RespServer;
use crate::store_client::StoreClient;
use crate::topics::{TopicCounters, Wakeups};
use crate::traces::Tracer;
use std::sync::Arc;
use std::time::Instant;
use tavern_hub::Node;

/// The parts of the server that a shard uses.
pub struct ShardContext {
    pub node: Arc<Node>,
    pub shards: Shards,
    pub clock: Arc<NodeClock>,
    pub store: Arc<StoreClient>,
    pub resp: Arc<RespServer>,
    pub authorize: Option<Arc<AuthorizeHook>>,
    /// Notified of topics that the hub has published to.
    pub wakeups: Arc<Wakeups>,
    pub counters: Arc<TopicCounters>,
    pub unauthenticated: Arc<ByteBudget>,
    /// The zero of the clock by which latencies are measured.
    pub started: Instant,
    pub tracer: Option<Arc<Tracer>>,
    pub limits: ShardLimits,
}

#[derive(Clone, Copy, Debug)]
pub struct ShardLimits {
    /// The largest JSON message of a client.
    pub json_frame_bytes: usize,
    /// Unfinished input of all connections of one shard.
    pub partial_bytes: usize,
    /// Unread replies of one connection before no more of its commands run.
    pub unread_bytes: usize,
    /// Unread replies of all connections of one shard.
    pub unread_total_bytes: usize,
    pub heartbeat_ms: u32,
    /// How long an HTTP connection may take to send its next poll.
    pub http_header_ms: u32,
}
