//! Effects: the work that the server does after a call to a shard.

use crate::connection::{CloseReason, LinkId};
use crate::core::authorize::AuthorizeQuery;
use crate::core::listener::ListenerId;
use crate::core::replies::CommandReply;
use crate::event::{Message, Namespace};
use crate::node::{ChannelUpdate, ControlMessage, UserNotice};
use std::sync::Arc;
use tavern_domain::trace::TraceContext;
use tavern_store::{Ticket, Work};

/// The buffers are reused: drain them, do not replace them.
#[derive(Debug, Default)]
pub struct Effects {
    /// Listeners with unread events to write.
    pub dirty: Vec<ListenerId>,
    /// Connections to close after flushing what was written to them.
    pub closes: Vec<(LinkId, CloseReason)>,
    /// Messages for the other shards, by shard number.
    pub shard_messages: Vec<Vec<ShardMessage>>,
    /// Messages for the other nodes.
    pub bus_messages: Vec<tavern_store::BusPacket>,
    /// Work for the store.
    pub work: Vec<(Ticket, Work)>,
    /// Commits among them that belong to a trace.
    pub commit_traces: Vec<(Ticket, TraceContext)>,
    /// Presence changes for other shards, by shard number.
    pub channel_updates: Vec<(usize, ChannelUpdate)>,
    /// Status updates for other shards, by shard number.
    pub user_updates: Vec<(usize, UserNotice)>,
    /// Orders about users and replies to them, by shard number; this shard is one of them.
    pub control: Vec<(usize, ControlMessage)>,
    /// Replies to commands of apps, by command number.
    pub service_replies: Vec<(u64, CommandReply)>,
    /// The server's own topics to which events were added.
    pub topics: Vec<Arc<str>>,
    /// Queries for the authorize hook.
    pub authorize_queries: Vec<AuthorizeQuery>,
    /// Connections whose waiting command can continue.
    pub ready: Vec<LinkId>,
}

impl Effects {
    pub fn new(shards: usize) -> Effects {
        Effects { shard_messages: (0..shards).map(|_| Vec::new()).collect(), ..Effects::default() }
    }
}

/// A message from one shard to another.
#[derive(Clone, Debug)]
pub struct ShardMessage {
    pub namespace: Namespace,
    pub message: Arc<Message>,
}
