//! Channel history: the last messages of a channel. Must hold: the offsets of one epoch count from 1 without holes,
//! whichever node appends; a history that starts again after it was cleared has a new epoch; an id is unique among
//! the stored messages.

use crate::page::Page;
use std::sync::Arc;
use tavern_domain::{ClientId, Time};
pub use tavern_domain::{HistoryLimits, HistoryPosition};

/// A message to append to the history of a channel, and how much the history may hold with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewHistoryMessage {
    pub channel: Arc<str>,
    /// Given by the publisher: while a message with this id is stored, another one is a duplicate.
    pub id: Option<Arc<str>>,
    pub sender: Option<HistorySender>,
    /// The body is known to be JSON.
    pub json: bool,
    pub body: Arc<[u8]>,
    pub keep: HistoryLimits,
}

/// What a message takes in a store beside what it contains: the position, times, lengths, its share of the indexes. Measured
/// with small messages: SQLite 36 to 103 bytes, Postgres 110 to 177, Redis 163 to 246, most with an id.
const OVERHEAD_BYTES: u64 = 160;

/// The publisher of a message, if it was a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySender {
    pub user: Option<Arc<str>>,
    pub client: ClientId,
}

/// A message in the history of a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryMessage {
    pub offset: u64,
    pub at: Time,
    pub id: Option<Arc<str>>,
    pub sender: Option<HistorySender>,
    pub json: bool,
    pub body: Arc<[u8]>,
}

impl HistoryMessage {
    /// What it counts against limits in bytes, on every engine.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(self.id.as_deref(), self.sender.as_ref(), &self.body)
    }
}

impl NewHistoryMessage {
    /// The same before it is stored.
    pub fn stored_bytes(&self) -> u64 {
        stored_bytes(self.id.as_deref(), self.sender.as_ref(), &self.body)
    }
}

fn stored_bytes(id: Option<&str>, sender: Option<&HistorySender>, body: &[u8]) -> u64 {
    let user = sender.and_then(|sender| sender.user.as_deref());
    let client = sender.map_or(0, |_| ClientId::CHARS);
    let content = body.len() + id.map_or(0, str::len) + user.map_or(0, str::len) + client;
    content as u64 + OVERHEAD_BYTES
}

/// The position that a message got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryAppended {
    pub position: HistoryPosition,
    /// A duplicate: nothing was added, and this is the position of the first one.
    pub duplicate: bool,
}

/// Removes the history of a channel. If it starts again, it has a new epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryClear {
    pub channel: Arc<str>,
    /// Only if nothing was appended since.
    pub only_at: Option<HistoryPosition>,
}

/// A page of a channel's history, the oldest message first, and the end of the history at the same moment.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryPage {
    /// The last offset; all zeros: there is no history.
    pub head: HistoryPosition,
    pub page: Page<HistoryMessage>,
}

/// The history of one channel, in a list of all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistorySummary {
    pub channel: Arc<str>,
    pub head: HistoryPosition,
    /// When its newest message is too old.
    pub expires_at: Time,
    /// Sum of all stored messages.
    pub bytes: u64,
}

/// Channels with history, ordered by expiry, earliest first, and the bytes of all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryList {
    pub bytes: u64,
    pub page: Page<HistorySummary>,
}
