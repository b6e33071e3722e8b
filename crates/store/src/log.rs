//! The log of topics: one list of events, append only, trimmed from the oldest. Must hold: positions count from 1 without
//! gaps and become visible in order; so do the counts of each topic.

use crate::page::Page;
use std::sync::Arc;
use tavern_domain::Time;

/// An event to append to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Append {
    pub topic: Arc<str>,
    /// Given by the publisher, for deduplication within the topic.
    pub id: Option<Arc<str>>,
    pub body: Arc<[u8]>,
}

/// The position of an event in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Appended {
    pub position: u64,
    /// Its number in its topic.
    pub count: u64,
    /// A duplicate: nothing was added, and this is the position of the first one.
    pub duplicate: bool,
}

/// An event in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    pub position: u64,
    pub topic: Arc<str>,
    pub count: u64,
    pub at: Time,
    pub id: Option<Arc<str>>,
    pub body: Arc<[u8]>,
}

/// Removes the oldest events. Topics keep their counts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trim {
    /// The first position that is kept.
    pub before: u64,
    /// Ids of events before this position are deleted. Ids may outlive their events.
    pub ids_before: u64,
}

/// The ends of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEnds {
    /// The oldest stored position; one above the head when there is none.
    pub first: u64,
    /// The last position.
    pub head: u64,
    /// Sum of all stored bodies.
    pub bytes: u64,
}

/// A page of events, and the ends of the log at the same moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LogPage {
    pub log: LogEnds,
    pub page: Page<LogEntry>,
}

/// How many events topics have had, and the ends of the log at the same moment.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicPage {
    pub log: LogEnds,
    pub page: Page<(Arc<str>, u64)>,
}
