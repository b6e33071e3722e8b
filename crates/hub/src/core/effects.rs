//! What the server must carry out after calling a shard.

use crate::connection::{Goodbye, LinkId};
use crate::core::authorize::Question;
use crate::core::listener::ListenerId;
use crate::core::replies::Reply;
use crate::event::{Space, Words};
use crate::node::{ChannelNews, PersonNews};
use std::sync::Arc;
use tavern_engine::{Ticket, Work};

/// Buffers are reused: drain them, keep them.
#[derive(Debug, Default)]
pub struct Effects {
    /// Listeners with something to write.
    pub dirty: Vec<ListenerId>,
    /// Transports to close, after what was written to them.
    pub closes: Vec<(LinkId, Goodbye)>,
    /// Messages for the other shards, by shard number.
    pub parcels: Vec<Vec<Parcel>>,
    /// Messages for the other nodes.
    pub abroad: Vec<tavern_engine::Parcel>,
    /// What the store must do.
    pub work: Vec<(Ticket, Work)>,
    /// Presence changes for other shards, by shard number.
    pub news: Vec<(usize, ChannelNews)>,
    /// Status updates for other shards, by shard number.
    pub rumours: Vec<(usize, PersonNews)>,
    /// Replies to commands of apps, by their numbers.
    pub orders: Vec<(u64, Reply)>,
    /// The server's own topics to which events were added.
    pub topics: Vec<&'static str>,
    /// Questions for the authorize hook.
    pub questions: Vec<Question>,
    /// Transports whose waiting command can run again.
    pub ready: Vec<LinkId>,
}

impl Effects {
    pub fn new(shards: usize) -> Effects {
        Effects { parcels: (0..shards).map(|_| Vec::new()).collect(), ..Effects::default() }
    }
}

/// A message from one shard to another.
#[derive(Clone, Debug)]
pub struct Parcel {
    pub space: Space,
    pub words: Arc<Words>,
}
