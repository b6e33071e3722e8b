//! What an engine's tables can do inside one transaction. The tables store; `apply` decides.

use crate::deadline::Deadline;
use crate::error::StoreError;
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
    /// Keeps the latest time; a user who is not known yet gets the version.
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
    /// At the head, and counted.
    fn append(&mut self, entry: &LogEntry) -> Result<(), StoreError>;
    fn trim(&mut self, trim: &Trim) -> Result<(), StoreError>;
    /// All zeros for an empty inbox.
    fn inbox(&mut self, user: &Arc<str>) -> Result<InboxCounts, StoreError>;
    fn add_message(&mut self, user: &Arc<str>, message: &InboxMessage) -> Result<(), StoreError>;
    /// Removes the messages up to this number.
    fn remove_messages(&mut self, user: &Arc<str>, through: u64) -> Result<RemovedMessages, StoreError>;
    fn remove_oldest(&mut self, user: &Arc<str>) -> Result<RemovedMessages, StoreError>;
    /// All zeros: there is nothing left to know, and no row.
    fn set_inbox(&mut self, user: &Arc<str>, counts: &InboxCounts) -> Result<(), StoreError>;
}

/// A lease as it is found, and whether the epoch of its holder is known to be open.
#[derive(Clone, Debug)]
pub struct LeaseState {
    pub lease: Versioned<Lease>,
    pub holder_is_open: bool,
}

/// What must be known of an inbox to change it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InboxCounts {
    /// The highest number given; 0: it is empty and begins anew.
    pub last: u64,
    /// The highest number that was dropped unread; 0: none.
    pub dropped: u64,
    pub messages: usize,
    /// Of all bodies.
    pub bytes: usize,
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
