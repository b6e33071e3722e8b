//! The stored records of topics, subscriptions and parties, as JSON that an operator can read.
//! Must hold: what was written is read back the same; invalid bytes are an error.

mod ban;
mod party;
mod progress;

pub use ban::{BAN, BANS, BANS_ALL, read_ban, read_ban_count, write_ban, write_ban_count};
pub use party::{
    MEMBERSHIP, NEXT, PARTIES, PARTY, read_membership, read_party, write_membership, write_party,
};
pub use progress::{StoredRange, read_progress, write_progress};

use crate::json::event::BatchFormat;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use tavern_domain::delivery::LogMark;
use tavern_domain::topic;

/// The kinds of documents.
pub const TOPIC: &str = "topic";
pub const SUBSCRIPTION: &str = "subscription";
pub const MARKS: &str = "marks";
pub const DELIVERY: &str = "delivery";
/// Dead letters; a name is the subscription, `/`, the number.
pub const DEAD: &str = "dead";
/// Events of an unsettled batch that the log may have dropped; a name is the subscription, `/`, the number of the batch.
pub const COPY: &str = "copy";
/// Attempts to deliver; a name is the subscription, `/`, the slot: the number of the attempt modulo those that are kept.
pub const ATTEMPT: &str = "attempt";
/// One document whose version grows with every change of a subscription, under the name `subscriptions`.
pub const EVENTS: &str = "events";
pub const SUBSCRIPTIONS: &str = "subscriptions";
/// Another one, whose version grows whenever the log is trimmed.
pub const LOG: &str = "log";
/// Another one, whose version grows whenever a topic is deleted.
pub const DELETED_TOPICS: &str = "deleted_topics";
/// And one that notes which ids of events are how old.
pub const EVENT_IDS: &str = "ids";

/// The name of the document of a dead letter. Names sort by number.
pub fn dead_name(subscription: &str, seq: u64) -> String {
    format!("{subscription}/{seq:020}")
}

/// The name of the document that holds the events of a batch.
pub fn copy_name(subscription: &str, batch: u64) -> String {
    format!("{subscription}/{batch:020}")
}

/// The name of the document of an attempt.
pub fn attempt_name(subscription: &str, slot: u64) -> String {
    format!("{subscription}/{slot:04}")
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicRecord {
    /// The id of the key that publishes. `None`: the first key that does.
    pub publisher: Option<Arc<str>>,
    pub created_at: u64,
    /// Events that a deleted topic of this name has had. Their ids do not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub past_events: u64,
    /// Who had the topic since when, the last ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub publishers: Vec<(u64, Arc<str>)>,
}

/// Publishers of a topic that are remembered.
const PUBLISHERS_KEPT: usize = 16;

impl TopicRecord {
    pub fn new(publisher: Option<Arc<str>>, now_ms: u64, past_events: u64) -> TopicRecord {
        let bare = TopicRecord { created_at: now_ms, past_events, ..TopicRecord::default() };
        bare.assigned(publisher, now_ms)
    }

    /// The topic has this publisher from now on.
    #[must_use]
    pub fn assigned(mut self, publisher: Option<Arc<str>>, now_ms: u64) -> TopicRecord {
        let last = self.publishers.last().map(|(_, last)| last);
        if let Some(next) = publisher.clone().filter(|next| last != Some(next)) {
            self.publishers.push((now_ms, next));
            let forgotten = self.publishers.len().saturating_sub(PUBLISHERS_KEPT);
            self.publishers.drain(..forgotten);
        }
        TopicRecord { publisher, ..self }
    }

    /// Who published an event that was accepted then. None: it is no longer known.
    pub fn publisher_at(&self, at_ms: u64) -> Option<&Arc<str>> {
        let had = self.publishers.iter().rev().find(|(since, _)| *since <= at_ms);
        // The clock of the node that noted it may have been ahead of the store's.
        let first = || self.publishers.first().filter(|_| self.publishers.len() < PUBLISHERS_KEPT);
        had.or_else(first).map(|(_, publisher)| publisher)
    }
}

/// A request to publish with an `Idempotency-Key`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyedPublish {
    /// Of the topic: a deleted one of the same name does not count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub past_events: u64,
    /// The ids that its events were given, until the reply is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ids: Vec<Option<Arc<str>>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<PublishReply>,
}

/// What a request to publish was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishReply {
    pub first_seq: u64,
    pub last_seq: u64,
    pub accepted: usize,
    pub duplicates: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionSettings {
    pub name: Arc<str>,
    /// The id of the key that created it.
    pub owner: Arc<str>,
    pub topics: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Arc<str>>,
    pub timeout_ms: u64,
    pub max_events: u32,
    pub max_bytes: u64,
    /// Bytes of queued events; above it the oldest become a gap. 0: only the log as a whole is limited.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub max_backlog_bytes: u64,
    pub format: BatchFormat,
    pub concurrency: u32,
    #[serde(default)]
    pub pull: bool,
    /// The user name in the `routemaster` format.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<Arc<str>>,
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The newest first.
    pub secrets: Vec<SigningSecretRecord>,
    pub created_at: u64,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A signing secret. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigningSecretRecord {
    /// `whsec_…`
    pub text: String,
    /// Until when an older secret also signs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
}

impl fmt::Debug for SigningSecretRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("until", &self.until).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct StoredMarks {
    changes: Vec<StoredChange>,
    /// Number and position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    notes: Vec<(u64, u64)>,
}

#[derive(Serialize, Deserialize)]
struct StoredChange {
    position: u64,
    seq: u64,
    topics: BTreeMap<Arc<str>, u64>,
}

/// A dead letter: an event that the subscriber refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadLetterRecord {
    pub seq: u64,
    /// It is a gap up to this number: there is no event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_through: Option<u64>,
    /// The number and the position after which it is read from the log.
    pub after: (u64, u64),
    pub id: Arc<str>,
    pub topic: Arc<str>,
    pub parked_at: u64,
    pub reason: Arc<str>,
    /// As it was in the log, as text.
    pub event: Arc<str>,
}

/// An event of an unsettled batch, stored outside the log: a document of `COPY` is a list of them, by number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiedEvent {
    pub seq: u64,
    pub id: Arc<str>,
    pub topic: Arc<str>,
    /// As it was in the log, as text.
    pub event: Arc<str>,
}

/// One attempt to deliver a batch, as it is stored and as the API shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    /// Attempts of a subscription are numbered from 1; 0: a test.
    pub number: u64,
    /// When it began, in milliseconds since 1970.
    pub at: u64,
    pub duration_ms: u64,
    /// Scheme, host and path; a query may contain a secret.
    pub url: Arc<str>,
    pub outcome: Arc<str>,
    pub status: Option<u16>,
    pub error: Option<Arc<str>>,
    /// The number of the batch, which attempt of it this is, and why it was sent.
    pub batch: u64,
    pub attempt: u32,
    pub reason: Arc<str>,
    pub events: u64,
    pub first_seq: u64,
    pub last_seq: u64,
    /// Headers of the response that help to find a fault.
    pub headers: BTreeMap<String, String>,
    /// The beginning of the response.
    pub body: String,
    pub body_truncated: bool,
    #[serde(default)]
    pub request: SentRequest,
}

/// The most of the body of a request that is shown.
const SHOWN_BODY_BYTES: usize = 16 * 1024;

/// What an attempt sent. Its body is not stored but rebuilt from the log, when one attempt is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentRequest {
    /// Without the values that may be credentials.
    pub headers: BTreeMap<String, String>,
    pub format: BatchFormat,
    /// The size of the body.
    pub bytes: u64,
    /// The entries of the body; only in the store.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<StoredRange>,
    /// The beginning of the body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
}

impl SentRequest {
    /// Shows the beginning of the body.
    pub fn show_body(&mut self, body: &[u8]) {
        self.body = Some(String::from_utf8_lossy(&body[..body.len().min(SHOWN_BODY_BYTES)]).into_owned());
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("a record in the store is not valid JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("the marks of a subscription are not in order")]
    Marks,
    #[error("a record in the store has an unknown value")]
    Word,
    #[error("a record in the store has an invalid range of events")]
    Run,
    #[error("a party in the store has no members")]
    Empty,
}

pub fn write<T: Serialize>(record: &T) -> Vec<u8> {
    // Maps with string keys, numbers and strings: serialising them cannot fail.
    serde_json::to_vec(record).unwrap_or_default()
}

pub fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, RecordError> {
    Ok(serde_json::from_slice(bytes)?)
}

pub fn write_marks(marks: &topic::SubscriptionMarks) -> Vec<u8> {
    let change = |change: &topic::TopicsChange| StoredChange {
        position: change.position,
        seq: change.seq,
        topics: change.counts.clone(),
    };
    let notes = marks.notes().iter().map(|note| (note.seq, note.position));
    write(&StoredMarks { changes: marks.changes().iter().map(change).collect(), notes: notes.collect() })
}

pub fn read_marks(bytes: &[u8]) -> Result<topic::SubscriptionMarks, RecordError> {
    let marks: StoredMarks = read(bytes)?;
    let change = |stored: StoredChange| topic::TopicsChange {
        position: stored.position,
        seq: stored.seq,
        counts: stored.topics,
    };
    let notes = marks.notes.into_iter().map(|(seq, position)| LogMark { seq, position });
    let changes = marks.changes.into_iter().map(change).collect();
    topic::SubscriptionMarks::restore(changes, notes.collect()).ok_or(RecordError::Marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_back_and_unordered_ones_are_refused() {
        let mut marks = topic::SubscriptionMarks::begin(3, [("a".into(), 1)].into());
        marks.change(9, &[("a".into(), 4)].into(), &["b".into()]);
        assert_eq!(read_marks(&write_marks(&marks)).unwrap(), marks);
        for bad in ["[]", "{}", r#"[{"position":5,"seq":1,"topics":{}},{"position":4,"seq":1,"topics":{}}]"#]
        {
            assert!(read_marks(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_topic_knows_who_published_when() {
        let topic = TopicRecord::new(None, 5, 0).assigned(Some("a".into()), 10);
        let topic = topic.assigned(None, 20).assigned(Some("a".into()), 21).assigned(Some("b".into()), 30);
        let topic: TopicRecord = read(&write(&topic)).unwrap();
        let at = |ms| topic.publisher_at(ms).map(|publisher| &**publisher);
        assert_eq!([at(9), at(10), at(29), at(30), at(99)], ["a", "a", "a", "b", "b"].map(Some));
        assert_eq!(TopicRecord::new(None, 5, 0).publisher_at(6), None);
        let many = |topic: TopicRecord, n: u64| topic.assigned(Some(n.to_string().into()), n);
        let topic = (0..100).fold(TopicRecord::default(), many);
        assert_eq!((topic.publishers.len(), topic.publisher_at(3)), (PUBLISHERS_KEPT, None));
    }

    #[test]
    fn a_subscription_is_read_back_and_debug_hides_its_secrets() {
        let subscription = SubscriptionSettings {
            name: "s".into(),
            owner: "k1".into(),
            topics: vec!["a".into()],
            callback: Some("https://x/".into()),
            timeout_ms: 500,
            max_events: 100,
            max_bytes: 1 << 20,
            max_backlog_bytes: 1 << 24,
            format: BatchFormat::Routemaster,
            concurrency: 1,
            pull: false,
            uuid: None,
            headers: BTreeMap::new(),
            secrets: vec![SigningSecretRecord { text: "whsec_abc".into(), until: None }],
            created_at: 5,
        };
        let bytes = write(&subscription);
        assert_eq!(read::<SubscriptionSettings>(&bytes).unwrap(), subscription);
        assert!(!format!("{subscription:?}").contains("whsec"));
    }
}
