//! Publishing: events go to the log in one commit with the claim of their topic, and are replied to after it.
//! Must hold: a topic has one publisher; all events of a request are kept or none; the same id is kept once; a topic
//! whose claim is known costs no read, and the version that is known is expected by the commit.

use super::command::{Published, TopicCaller, check_topic_name};
use super::decision::Decided;
use crate::core::Core;
use crate::transaction::{DecisionStep, Facts, Need};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::topic::is_reserved;
use tavern_store::limits::ID_BYTES;
use tavern_store::{
    Append, Appended, Commit, Document, DocumentKey, Expect, Row, RowKey, StoreAnswer, StoreError, Versioned,
};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{KEY_ID, PublishedEvent};
use tavern_wire::record::{self, TOPIC, TopicRecord};

/// Claims remembered: enough for every busy topic.
const CLAIMS: usize = 10_000;

/// The claims of the topics that were published to from here. They may be stale: a commit expects their version.
#[derive(Default)]
pub(super) struct Claims(HashMap<Arc<str>, Versioned<TopicRecord>, RandomState>);

impl Claims {
    pub fn keep(&mut self, name: &Arc<str>, topic: Versioned<TopicRecord>) {
        if let Some(known) = self.0.get_mut(name) {
            *known = topic;
            return;
        }
        if self.0.len() >= CLAIMS {
            self.0.clear();
        }
        self.0.insert(name.clone(), topic);
    }

    pub fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }
}

/// The events of one request on their way into the log.
pub(super) struct Publication {
    pub topic: Arc<str>,
    appends: Vec<Append>,
    /// The claim as it is known here, until it was tried.
    known: Option<Versioned<TopicRecord>>,
}

impl Publication {
    pub fn new(
        topic: Arc<str>,
        caller: &TopicCaller,
        once: Option<&str>,
        events: Vec<PublishedEvent>,
        claims: &Claims,
    ) -> Result<Publication, Refusal> {
        check_topic_name(&topic)?;
        if is_reserved(&topic) {
            let message =
                "topics that begin with \"tavern.\" are published by the server alone; choose another name";
            return Err(Refusal::new(Code::NotAllowed, message));
        }
        // A claim that would refuse it, or has to be changed, is read as it is now.
        let own = |known: &&Versioned<TopicRecord>| known.row.publisher.as_deref() == Some(&*caller.id);
        let known = claims.0.get(&*topic).filter(own).cloned();
        let append = |(at, event): (usize, PublishedEvent)| {
            let id = event.id.or_else(|| once.map(|once| made_id(&caller.id, once, at)));
            Append { topic: topic.clone(), id: id.map(Into::into), body: event.body.into() }
        };
        let appends = events.into_iter().enumerate().map(append).collect();
        Ok(Publication { topic, appends, known })
    }

    pub fn decide(
        &mut self,
        core: &Core,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> DecisionStep<Result<Decided, Refusal>> {
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
        let key = DocumentKey::new(TOPIC, &self.topic);
        let topic = match (self.known.take(), facts.document(&key)) {
            (Some(known), _) => {
                commit.expects.push(Expect { key: RowKey::Document(key.clone()), version: known.version });
                Some(known)
            }
            (None, None) => return DecisionStep::Need(vec![Need::Document(key)]),
            (None, Some(None)) => None,
            (None, Some(Some(found))) => match record::read(&found.row.body) {
                Ok(row) => Some(Versioned { version: found.version, row }),
                Err(error) => {
                    let what = format!("the record of topic {:?}: {error}", self.topic);
                    return DecisionStep::Fail(StoreAnswer::Failed(StoreError::Corrupt {
                        what,
                        source: None,
                    }));
                }
            },
        };
        let version = topic.as_ref().map_or(0, |topic| topic.version);
        let row = match claim(caller, topic.as_ref().map(|topic| &topic.row), core.now.ms()) {
            Err(refused) => return DecisionStep::Done(Err(refused)),
            Ok(Some(claimed)) => {
                let body = record::write(&claimed).into();
                commit.puts.push(Row::Document(Document { key, body }));
                claimed
            }
            Ok(None) => match topic {
                Some(topic) => topic.row,
                None => unreachable!("a topic without a record is claimed"),
            },
        };
        // Kept for another try, and for the reply: the bodies are shared.
        commit.appends = self.appends.clone();
        DecisionStep::Commit { commit, outcome: Ok(Decided::Published(Versioned { version, row })) }
    }

    /// Counts what was added and what was known. The numbers are those of what was added, or of the first time.
    pub fn count(&self, appended: &[Appended]) -> Published {
        count(&self.appends, appended)
    }
}

/// The topic as it must become before this caller publishes to it; none when it is so already.
fn claim(
    caller: &TopicCaller,
    topic: Option<&TopicRecord>,
    now_ms: u64,
) -> Result<Option<TopicRecord>, Refusal> {
    let claimed = |created_at| TopicRecord { publisher: Some(caller.id.clone()), created_at };
    match topic {
        None => Ok(Some(claimed(now_ms))),
        Some(TopicRecord { publisher: None, created_at }) => Ok(Some(claimed(*created_at))),
        Some(TopicRecord { publisher: Some(publisher), .. }) if caller.owns(publisher) => Ok(None),
        Some(_) => {
            let message =
                "another key publishes to this topic; an admin can move it with PUT /v1/topics/{topic}";
            Err(Refusal::new(Code::Claimed, message))
        }
    }
}

/// What the log calls the event at this place of a request with an `Idempotency-Key`.
fn made_id(caller: &str, once: &str, at: usize) -> String {
    format!("{KEY_ID}{caller}:{once}:{at}")
}

/// How long an `Idempotency-Key` may be so that the ids made from it fit: two colons and a place below a thousand follow.
pub fn once_bytes(caller: &str) -> usize {
    ID_BYTES.saturating_sub(KEY_ID.len() + caller.len() + "::999".len())
}

/// Counts what was added and what was known. The numbers are those of what was added, or of the first time.
fn count(appends: &[Append], appended: &[Appended]) -> Published {
    let by_key = |append: &Append| append.id.as_ref().is_some_and(|id| id.starts_with(KEY_ID));
    // A request that was repeated with its key is answered as the first time.
    let repeated = appends.iter().zip(appended).any(|(append, appended)| by_key(append) && appended.again);
    let counts = |appended: &Appended| !appended.again || repeated;
    let duplicates = appended.iter().filter(|appended| !counts(appended)).count();
    let accepted = appended.len() - duplicates;
    let numbered = appended.iter().filter(|appended| accepted == 0 || counts(appended));
    let (mut first_seq, mut last_seq) = (u64::MAX, 0);
    for appended in numbered {
        first_seq = first_seq.min(appended.count);
        last_seq = last_seq.max(appended.count);
    }
    Published { first_seq, last_seq, accepted, duplicates }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ids: &[&str], counts: &[(u64, bool)], expected: (u64, u64, usize, usize)) {
        let append = |id: &&str| Append {
            topic: "t".into(),
            id: (!id.is_empty()).then(|| (*id).into()),
            body: Arc::from(*b"{}"),
        };
        let appends: Vec<Append> = ids.iter().map(append).collect();
        let appended: Vec<Appended> =
            counts.iter().map(|&(count, again)| Appended { position: count, count, again }).collect();
        let (first_seq, last_seq, accepted, duplicates) = expected;
        let published = Published { first_seq, last_seq, accepted, duplicates };
        assert_eq!(count(&appends, &appended), published, "{ids:?}");
    }

    #[test]
    fn new_ones_and_known_ones_are_counted() {
        check(&["", ""], &[(5, false), (6, false)], (5, 6, 2, 0));
        check(&["a", "b"], &[(2, true), (6, false)], (6, 6, 1, 1));
        check(&["a", "b"], &[(2, true), (3, true)], (2, 3, 0, 2));
    }

    #[test]
    fn a_request_that_comes_again_with_its_key_is_answered_as_the_first_time() {
        let id = |at| made_id("k", "once", at);
        check(&[&id(0), &id(1)], &[(4, true), (5, true)], (4, 5, 2, 0));
        check(&[&id(0), "b"], &[(4, true), (5, true)], (4, 5, 2, 0));
    }

    #[test]
    fn an_id_is_made_from_key_and_place() {
        assert_eq!(made_id("k", "once", 7), format!("{KEY_ID}k:once:7"));
        let longest = "x".repeat(once_bytes("admin"));
        assert_eq!(made_id("admin", &longest, 999).len(), ID_BYTES);
    }

    #[test]
    fn a_topic_has_one_publisher() {
        let caller = |id: &str| TopicCaller { id: id.into(), admin: true };
        let topic =
            |publisher: Option<&str>| TopicRecord { publisher: publisher.map(Into::into), created_at: 3 };
        let claimed = |topic: Option<&TopicRecord>| claim(&caller("a"), topic, 9).unwrap();
        assert_eq!(claimed(None), Some(TopicRecord { publisher: Some("a".into()), created_at: 9 }));
        assert_eq!(claimed(Some(&topic(None))), Some(topic(Some("a"))), "the first who publishes has it");
        assert_eq!(claimed(Some(&topic(Some("a")))), None);
        assert_eq!(claim(&caller("b"), Some(&topic(Some("a"))), 9).unwrap_err().code, Code::Claimed);
    }
}
