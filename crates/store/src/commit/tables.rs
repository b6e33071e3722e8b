//! The operations of an engine's tables inside one transaction. The tables store; `apply` decides.

use crate::deadline::Deadline;
use crate::error::StoreError;
use crate::history::{HistoryLimits, HistoryMessage, HistoryPosition};
use crate::inbox::InboxMessage;
use crate::lease::Lease;
use crate::log::{LogEntry, Trim};
use crate::node::{NodeRow, Writer};
use crate::page::Versioned;
use crate::presence::PresenceKey;
use crate::row::{Row, RowKey};
use crate::social::LastSeenUpdate;
use std::sync::Arc;
use tavern_domain::Time;

/// The tables of one transaction, as the commit algorithm uses them.
pub trait Tables {
    /// 0: absent.
    fn version(&mut self, key: &RowKey) -> Result<u64, StoreError>;
    fn put(&mut self, row: &Row, version: u64) -> Result<(), StoreError>;
    fn delete(&mut self, key: &RowKey) -> Result<(), StoreError>;
    fn set_deadline(&mut self, deadline: &Deadline) -> Result<(), StoreError>;
    fn node(&mut self, node: &Writer) -> Result<Option<NodeRow>, StoreError>;
    /// Every epoch of that name, in order.
    fn epochs(&mut self, name: &str) -> Result<Vec<NodeRow>, StoreError>;
    fn put_node(&mut self, node: &NodeRow) -> Result<(), StoreError>;
    fn forget_node(&mut self, node: &Writer) -> Result<(), StoreError>;
    /// Version and number of users of a channel; zeros for an empty one.
    fn channel(&mut self, name: &Arc<str>) -> Result<(u64, u64), StoreError>;
    fn set_channel(&mut self, name: &Arc<str>, version: u64, now: Time) -> Result<(), StoreError>;
    fn forget_channel(&mut self, name: &Arc<str>) -> Result<(), StoreError>;
    /// Keeps the latest time; a user who is not stored yet gets the version.
    fn see(&mut self, seen: &LastSeenUpdate, version: u64) -> Result<(), StoreError>;
    /// The channels in which an app holds a user while they are in this one.
    fn held_with(&mut self, presence: &PresenceKey) -> Result<Vec<Arc<str>>, StoreError>;
    fn lease(&mut self, name: &Arc<str>) -> Result<Option<LeaseState>, StoreError>;
    /// The last position of the log; 0: nothing was ever appended.
    fn head(&mut self) -> Result<u64, StoreError>;
    /// How many events a topic has had.
    fn count(&mut self, topic: &Arc<str>) -> Result<u64, StoreError>;
    /// Position and count of the event that a publisher gave this id.
    fn known_event(&mut self, topic: &Arc<str>, id: &Arc<str>) -> Result<Option<(u64, u64)>, StoreError>;
    /// Appends at the head, and counts.
    fn append(&mut self, entry: &LogEntry) -> Result<(), StoreError>;
    fn trim(&mut self, trim: &Trim) -> Result<(), StoreError>;
    /// All zeros for an empty inbox.
    fn inbox(&mut self, user: &Arc<str>) -> Result<InboxCounts, StoreError>;
    fn add_message(&mut self, user: &Arc<str>, message: &InboxMessage) -> Result<(), StoreError>;
    /// Removes the messages up to this number.
    fn remove_messages(&mut self, user: &Arc<str>, through: u64) -> Result<RemovedMessages, StoreError>;
    fn remove_oldest(&mut self, user: &Arc<str>) -> Result<RemovedMessages, StoreError>;
    /// All zeros: deletes the row.
    fn set_inbox(&mut self, user: &Arc<str>, counts: &InboxCounts) -> Result<(), StoreError>;
    /// The end of a channel's history; all zeros: there is none.
    fn history(&mut self, channel: &Arc<str>) -> Result<HistoryHead, StoreError>;
    /// The offset of the stored message that a publisher gave this id.
    fn known_history(&mut self, channel: &Arc<str>, id: &Arc<str>) -> Result<Option<u64>, StoreError>;
    /// Adds the message, which is the new head. Until COMMIT, the oldest messages beyond the limits are removed.
    fn append_history(
        &mut self,
        channel: &Arc<str>,
        head: &HistoryHead,
        message: &HistoryMessage,
        keep: &HistoryLimits,
    ) -> Result<(), StoreError>;
    /// Removes all messages, and the head.
    fn clear_history(&mut self, channel: &Arc<str>) -> Result<(), StoreError>;
}

/// A stored lease, and whether the epoch of its holder is known to be open.
#[derive(Clone, Debug)]
pub struct LeaseState {
    pub lease: Versioned<Lease>,
    pub holder_is_open: bool,
}

/// The counters of an inbox that a change needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxCounts {
    /// The highest number so far; 0: it is empty and starts again.
    pub last: u64,
    /// The highest number that was dropped unread; 0: none.
    pub dropped: u64,
    pub messages: usize,
    /// Sum of all bodies.
    pub bytes: usize,
}

/// The state of a channel's history that an append needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryHead {
    /// The last message.
    pub position: HistoryPosition,
    /// Sum of all messages of this epoch, including removed ones: each message stores where it begins in this sum, so
    /// that the bytes between two messages are known without reading those in between.
    pub bytes: u64,
    /// When the last message is too old.
    pub expires_at: Time,
}

/// Which messages of a channel's history are kept. The limits only rise, so an engine may trim once for many appends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HistoryBounds {
    /// Messages up to this offset are too many.
    pub after_offset: u64,
    /// Messages that begin before this count of bytes are too large together.
    pub from_bytes: u64,
    /// Messages up to this time are too old.
    pub after_time: Time,
}

impl HistoryBounds {
    /// A message was appended and is now the head.
    pub fn raise(&mut self, head: &HistoryHead, keep: &HistoryLimits, now: Time) {
        let after_offset = head.position.offset.saturating_sub(keep.messages);
        let from_bytes = head.bytes.saturating_sub(keep.bytes);
        let after_time = Time(now.0.saturating_sub(keep.ttl_ms));
        self.after_offset = self.after_offset.max(after_offset);
        self.from_bytes = self.from_bytes.max(from_bytes);
        self.after_time = self.after_time.max(after_time);
    }

    /// Whether a message that starts at this count of bytes is kept. The head always is.
    pub fn keep(&self, head: &HistoryHead, offset: u64, begins_at: u64, at: Time) -> bool {
        offset == head.position.offset
            || (offset > self.after_offset && begins_at >= self.from_bytes && at > self.after_time)
    }
}

/// Messages that were removed from an inbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedMessages {
    /// The highest number among them; 0: there was none.
    pub through: u64,
    pub messages: usize,
    pub bytes: usize,
}

impl FromIterator<(u64, usize)> for RemovedMessages {
    /// Number and length of each, the oldest first.
    fn from_iter<T: IntoIterator<Item = (u64, usize)>>(messages: T) -> RemovedMessages {
        messages.into_iter().fold(RemovedMessages::default(), |removed, (n, bytes)| RemovedMessages {
            through: n,
            messages: removed.messages + 1,
            bytes: removed.bytes + bytes,
        })
    }
}
