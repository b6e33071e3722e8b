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
    /// Sum of all stored bodies.
    pub bytes: u64,
}

/// Channels with history, ordered by expiry, earliest first, and the bytes of all of them.
#[derive(Clone, Debug, PartialEq)]
pub struct HistoryList {
    pub bytes: u64,
    pub page: Page<HistorySummary>,
}
