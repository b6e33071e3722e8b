//! The outcome of a decision about topics: a commit and its result, or only an answer.

use super::backlog::Backlog;
use super::command::{Pulled, TopicReply};
use super::id_marks::IdMarks;
use super::load::LoadStop;
use crate::transaction::DecisionContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::delivery::LogMark;
use tavern_store::{Commit, Document, DocumentKey, Expect, Row, RowKey, Versioned};
use tavern_wire::record::{EVENTS, SUBSCRIPTIONS, TopicRecord};

pub(super) type TopicDecided = Result<TopicStep, LoadStop>;

pub(super) enum TopicStep {
    Commit(Box<Commit>, TopicOutcome),
    Done(TopicOutcome),
}

/// The result of a decision after its commit.
pub(super) struct TopicOutcome {
    pub next: NextStep,
    /// Subscriptions that were created, changed or deleted, or whose progress was changed.
    pub changed: Vec<Arc<str>>,
    /// Something was published about deliveries.
    pub announced: bool,
    /// Events that will never be delivered.
    pub lost: Vec<LostEvents>,
}

/// The numbers of events that a subscription will not receive.
pub(super) struct LostEvents {
    pub name: Arc<str>,
    pub first: u64,
    pub last: u64,
}

pub(super) enum NextStep {
    Reply(TopicReply),
    /// Events were added.
    Publish {
        /// The claim of the topic: its version, unless the commit writes it first.
        claim: Versioned<TopicRecord>,
        /// The request was already processed, and its reply is not stored.
        repeats: bool,
    },
    /// Events for a client that pulls; may be empty.
    Pull(PulledPage),
    /// Only a part was done, because everything is too much for one commit: run the decision again.
    Repeat,
    Retain(Retained),
}

/// What must be done to the log.
#[derive(Clone)]
pub(super) struct TrimPlan {
    /// Everything before these positions must be dropped: events, and ids of events.
    pub before: u64,
    pub ids_before: u64,
    /// To be stored, if there is a new one.
    pub id_marks: Option<IdMarks>,
}

impl TrimPlan {
    pub fn is_empty(&self) -> bool {
        self.before == 0 && self.ids_before == 0 && self.id_marks.is_none()
    }
}

/// The result of a step of retention.
pub(super) enum Retained {
    Checked(TrimPlan),
    /// The log now starts here; this many subscriptions were behind it.
    Trimmed {
        from: u64,
        before: u64,
        subscriptions: usize,
    },
    SweptPresence,
    /// The subscriptions with their own budget, if they have changed: the version of the list, names and bytes.
    Listed(Option<(u64, BTreeMap<Arc<str>, u64>)>),
    /// The bytes that wait for a subscription. None: they must be counted again.
    Counted(Arc<str>, Option<Backlog>),
}

/// A page of a subscription's queue.
pub(super) struct PulledPage {
    pub pulled: Pulled,
    /// Its end position, by these marks.
    pub last: LogMark,
    pub marks_version: u64,
    /// The topics that new events would come from.
    pub topics: Vec<Arc<str>>,
}

impl TopicOutcome {
    pub fn of(next: NextStep) -> TopicOutcome {
        TopicOutcome { next, changed: Vec::new(), announced: false, lost: Vec::new() }
    }

    pub fn reply(reply: TopicReply) -> TopicOutcome {
        TopicOutcome::of(NextStep::Reply(reply))
    }

    pub fn changing(self, changed: Vec<Arc<str>>) -> TopicOutcome {
        TopicOutcome { changed, ..self }
    }

    pub fn announcing(self, announced: bool) -> TopicOutcome {
        TopicOutcome { announced, ..self }
    }
}

/// A commit that is built step by step.
pub(super) struct Edit(pub Commit);

impl Edit {
    pub fn new(context: &DecisionContext<'_>) -> Edit {
        Edit(context.commit())
    }

    /// For rows that were read in a page: documents that were loaded by name are expected anyway.
    pub fn expect(&mut self, kind: &str, name: &str, version: u64) {
        let key = RowKey::Document(DocumentKey::new(kind, name));
        self.0.expects.push(Expect { key, version });
    }

    pub fn put(&mut self, kind: &str, name: &str, body: impl Into<Arc<[u8]>>) {
        let document = Document { key: DocumentKey::new(kind, name), body: body.into() };
        self.0.puts.push(Row::Document(document));
    }

    pub fn delete(&mut self, kind: &str, name: &str) {
        self.0.deletes.push(RowKey::Document(DocumentKey::new(kind, name)));
    }

    /// Makes the delivery workers of all nodes read the subscriptions again.
    pub fn touch_subscriptions(&mut self) {
        self.put(EVENTS, SUBSCRIPTIONS, *b"{}");
    }

    pub fn commit(self, meaning: TopicOutcome) -> TopicDecided {
        Ok(TopicStep::Commit(Box::new(self.0), meaning))
    }
}
