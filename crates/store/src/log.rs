//! The log of topics: one list of events, append only, removed from its old end. Must hold: positions count from 1 without
//! holes and become visible in their order; so do the counts of each topic.

use crate::row::Page;
use std::sync::Arc;
use tavern_domain::Time;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub topic: Arc<str>,
    /// Given by the publisher: the same in one topic is taken once.
    pub id: Option<Arc<str>>,
    pub body: Arc<[u8]>,
}

/// Where an event stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub position: u64,
    /// Its number in its topic.
    pub count: u64,
    /// Its id was known: nothing was added, and this is where the first one stands.
    pub again: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub position: u64,
    pub topic: Arc<str>,
    pub count: u64,
    pub at: Time,
    pub id: Option<Arc<str>>,
    pub body: Arc<[u8]>,
}

/// Removes the oldest stretch. Topics keep their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trim {
    /// The first position that stays.
    pub before: u64,
    /// Ids of events before this position are forgotten. They may outlive their events.
    pub ids_before: u64,
}

/// A part of the log, with its ends at the same moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The oldest position that is kept; one above the head when nothing is.
    pub first: u64,
    /// The last position ever given.
    pub head: u64,
    /// The bodies of what is kept.
    pub bytes: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    pub log: Log,
    pub page: Page<Entry>,
}

/// How many events topics have had, and the log at the same moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Topics {
    pub log: Log,
    pub page: Page<(Arc<str>, u64)>,
}
