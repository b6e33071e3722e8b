//! Publishing: events are appended to the log in one commit with the claim of their topic, and acknowledged after it.
//! Must hold: a topic has one publisher; all events of a request are stored or none; events are deduplicated by id; a
//! topic whose claim is cached costs no read, and the commit expects the cached version.

use super::command::{PublishResult, TopicCaller, TopicReply};
use super::load::{LoadStop, document, documents, parse, past_events, topic};
use super::outcome::{Edit, NextStep, TopicDecided, TopicOutcome, TopicStep};
use super::settings::check_topic_name;
use crate::core::{Core, Feature};
use crate::rows::KEYED_PUBLISH;
use crate::transaction::{DecisionContext, Facts};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;
use tavern_domain::topic::is_reserved;
use tavern_store::limits::ID_BYTES;
use tavern_store::{Append, Appended, Commit, Deadline, DocumentKey, Expect, RowKey, Versioned, Work};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{KEY_ID, PublishedEvent, SCOPE_BYTES, stored_id};
use tavern_wire::record::{self, KeyedPublish, TOPIC, TopicRecord};

/// How long an `Idempotency-Key` is kept.
const KEY_MS: u64 = 24 * 3_600_000;
/// Claims cached: enough for every busy topic.
const CLAIMS: usize = 10_000;

/// The claims of the topics that were published to on this shard. They may be stale: a commit expects their version.
#[derive(Default)]
pub(super) struct TopicClaims(HashMap<Arc<str>, Versioned<TopicRecord>, RandomState>);

impl TopicClaims {
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

/// The events of one publish in progress.
#[derive(Clone)]
pub(super) struct Publish {
    pub topic: Arc<str>,
    events: Vec<NewLogEvent>,
    once: Option<IdempotencyKey>,
    /// The cached claim, for the first attempt.
    known: Option<Versioned<TopicRecord>>,
}

#[derive(Clone)]
struct NewLogEvent {
    id: Option<Arc<str>>,
    body: Arc<[u8]>,
}

/// The `Idempotency-Key` of a request.
#[derive(Clone)]
struct IdempotencyKey {
    key: String,
    /// The document that records the request.
    name: String,
}

impl Publish {
    pub fn new(
        topic: Arc<str>,
        caller: &TopicCaller,
        once: Option<String>,
        events: Vec<PublishedEvent>,
        claims: &TopicClaims,
    ) -> Result<Publish, Refusal> {
        check_topic_name(&topic)?;
        if is_reserved(&topic) {
            let message =
                "only the server publishes to topics that start with \"tavern.\"; choose another name";
            return Err(Refusal::new(Code::NotAllowed, message));
        }
        // A claim that would refuse the publish, or must be changed, is read again first.
        let own = |known: &&Versioned<TopicRecord>| known.row.publisher.as_deref() == Some(&*caller.id);
        let known = claims.0.get(&*topic).filter(own).cloned();
        let once = once.map(|key| IdempotencyKey { name: format!("{topic}/{}/{key}", caller.id), key });
        let event =
            |event: PublishedEvent| NewLogEvent { id: event.id.map(Into::into), body: event.body.into() };
        let events = events.into_iter().map(event).collect();
        Ok(Publish { topic, events, once, known })
    }

    pub fn decide(&self, context: &DecisionContext<'_>, facts: &Facts, caller: &TopicCaller) -> TopicDecided {
        let known = self.known.as_ref().filter(|_| !facts.is_retry()).cloned();
        let once = self.once.as_ref().map(|once| DocumentKey::new(KEYED_PUBLISH, &once.name));
        let topic_key = known.is_none().then(|| DocumentKey::new(TOPIC, &self.topic));
        documents(facts, topic_key.into_iter().chain(once))?;
        let mut edit = Edit::new(context);
        let found = match known {
            Some(known) => {
                edit.expect(TOPIC, &self.topic, known.version);
                Some(known)
            }
            None => topic(facts, &self.topic)?,
        };
        let version = found.as_ref().map_or(0, |topic| topic.version);
        let claimed = claim(caller, found.as_ref().map(|topic| &topic.row), context.now.ms())?;
        let row = match (&claimed, found) {
            (Some(claimed), Some(_)) => claimed.clone(),
            (Some(claimed), None) => {
                let past_events = past_events(facts, &self.topic)?;
                TopicRecord { past_events, ..claimed.clone() }
            }
            (None, Some(topic)) => topic.row,
            (None, None) => unreachable!("a topic without a record is claimed"),
        };
        if claimed.is_some() {
            edit.put(TOPIC, &self.topic, record::write(&row));
        }
        let kept = self.earlier(facts, &row)?;
        if let Some(reply) = kept.as_ref().and_then(|kept| kept.reply) {
            return Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Published(reply))));
        }
        edit.0.appends = self.appends(caller, &row, kept.as_ref());
        if edit.0.appends.is_empty() {
            let message = "a request with this Idempotency-Key was processed, but its reply is not stored; \
                           send the same events again";
            return Err(Refusal::new(Code::Conflict, message).into());
        }
        if let (None, Some(once)) = (&kept, &self.once) {
            let ids = self.events.iter().map(|event| event.id.clone()).collect();
            let kept = KeyedPublish { past_events: row.past_events, ids, reply: None };
            edit.put(KEYED_PUBLISH, &once.name, record::write(&kept));
            edit.0.deadlines.push(Deadline::new(context.now + KEY_MS, KEYED_PUBLISH, &once.name));
        }
        let next = NextStep::Publish { claim: Versioned { version, row }, repeats: kept.is_some() };
        edit.commit(TopicOutcome::of(next))
    }

    /// The stored request, if it was already processed.
    fn earlier(&self, facts: &Facts, topic: &TopicRecord) -> Result<Option<KeyedPublish>, LoadStop> {
        let Some(once) = &self.once else { return Ok(None) };
        let Some(found) = document(facts, KEYED_PUBLISH, &once.name)? else { return Ok(None) };
        let kept: KeyedPublish = parse(found, |bytes| record::read(bytes))?.row;
        Ok(Some(kept).filter(|kept| kept.past_events == topic.past_events))
    }

    /// The appends. For a request that was already processed, only the events it had then: the log deduplicates them.
    fn appends(&self, caller: &TopicCaller, topic: &TopicRecord, kept: Option<&KeyedPublish>) -> Vec<Append> {
        let had = |at: usize, event: &NewLogEvent| match kept {
            None => true,
            Some(kept) if event.id.is_some() => kept.ids.contains(&event.id),
            Some(kept) => kept.ids.get(at) == Some(&None),
        };
        let append = |(at, event): (usize, &NewLogEvent)| {
            let made = || self.once.as_ref().map(|once| made_id(&caller.id, &once.key, at));
            let id = event.id.as_deref().map(str::to_owned).or_else(made);
            let id = id.map(|id| stored_id(topic.past_events, &id).into());
            // The bodies are shared: a retry may need them.
            Append { topic: self.topic.clone(), id, body: event.body.clone() }
        };
        let events = self.events.iter().enumerate();
        events.filter(|(at, event)| had(*at, event)).map(append).collect()
    }

    /// The last step of a request with an `Idempotency-Key`: its reply is stored before it is sent.
    pub fn remember(self, published: PublishResult, past_events: u64) -> Option<RememberReply> {
        Some(RememberReply { name: self.once?.name, published, past_events })
    }
}

/// Stores the reply to a request with an `Idempotency-Key`.
#[derive(Clone)]
pub(super) struct RememberReply {
    name: String,
    pub published: PublishResult,
    past_events: u64,
}

impl RememberReply {
    pub fn decide(&self, context: &DecisionContext<'_>) -> TopicDecided {
        let kept =
            KeyedPublish { past_events: self.past_events, ids: Vec::new(), reply: Some(self.published) };
        let mut edit = Edit::new(context);
        edit.put(KEYED_PUBLISH, &self.name, record::write(&kept));
        edit.commit(TopicOutcome::reply(TopicReply::Published(self.published)))
    }
}

/// The `Idempotency-Key` of a request has expired.
pub(super) fn forget(core: &mut Core, deadline: &Deadline) {
    let key = RowKey::Document(DocumentKey::new(KEYED_PUBLISH, &deadline.name));
    let expects = vec![Expect { key: deadline.key(), version: deadline.due.ms() }];
    let deletes = vec![key, deadline.key()];
    let commit = Commit { writer: Some(core.writer()), expects, deletes, ..Commit::default() };
    core.submit(Feature::None, Work::Commit(commit));
}

/// The claim as it must be before this caller publishes; None: no change is needed.
fn claim(
    caller: &TopicCaller,
    topic: Option<&TopicRecord>,
    now_ms: u64,
) -> Result<Option<TopicRecord>, Refusal> {
    let publisher = Some(caller.id.clone());
    match topic {
        None => Ok(Some(TopicRecord::new(publisher, now_ms, 0))),
        Some(topic @ TopicRecord { publisher: None, .. }) => {
            Ok(Some(topic.clone().assigned(publisher, now_ms)))
        }
        Some(TopicRecord { publisher: Some(publisher), .. }) if caller.owns(publisher) => Ok(None),
        Some(_) => {
            let message =
                "this topic belongs to another key; an admin can transfer it with PUT /v1/topics/{topic}";
            Err(Refusal::new(Code::Claimed, message))
        }
    }
}

/// The id derived for the event at this index of a request with an `Idempotency-Key`.
fn made_id(caller: &str, once: &str, at: usize) -> String {
    format!("{KEY_ID}{caller}:{once}:{at}")
}

/// The maximum length of an `Idempotency-Key`, so that the ids derived from it fit: two colons and an index below a
/// thousand are added.
pub fn once_bytes(caller: &str) -> usize {
    ID_BYTES.saturating_sub(SCOPE_BYTES + KEY_ID.len() + caller.len() + "::999".len())
}

/// Counts added events and duplicates. The numbers are those of the added events, or of the first time, in this topic:
/// those of a deleted topic of the same name do not count. A request that `repeats` another gets the reply of the first
/// time.
pub(super) fn count(appended: &[Appended], past_events: u64, repeats: bool) -> PublishResult {
    let counts = |appended: &Appended| !appended.duplicate || repeats;
    let duplicates = appended.iter().filter(|appended| !counts(appended)).count();
    let accepted = appended.len() - duplicates;
    let numbered = appended.iter().filter(|appended| accepted == 0 || counts(appended));
    let (mut first_seq, mut last_seq) = (u64::MAX, 0);
    for appended in numbered {
        first_seq = first_seq.min(appended.count);
        last_seq = last_seq.max(appended.count);
    }
    let own = |seq: u64| seq.saturating_sub(past_events);
    PublishResult { first_seq: own(first_seq), last_seq: own(last_seq), accepted, duplicates }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counts: &[(u64, bool)], repeats: bool, expected: (u64, u64, usize, usize)) {
        let appended: Vec<Appended> =
            counts.iter().map(|&(count, duplicate)| Appended { position: count, count, duplicate }).collect();
        let (first_seq, last_seq, accepted, duplicates) = expected;
        let published = PublishResult { first_seq, last_seq, accepted, duplicates };
        assert_eq!(count(&appended, 0, repeats), published, "{counts:?}");
    }

    #[test]
    fn new_and_duplicate_events_are_counted() {
        check(&[(5, false), (6, false)], false, (5, 6, 2, 0));
        check(&[(2, true), (6, false)], false, (6, 6, 1, 1));
        check(&[(2, true), (3, true)], false, (2, 3, 0, 2));
        check(&[(4, true), (5, true)], true, (4, 5, 2, 0));
        let after_seven = count(&[Appended { position: 9, count: 9, duplicate: false }], 7, false);
        assert_eq!(
            (after_seven.first_seq, after_seven.last_seq),
            (2, 2),
            "a topic of this name had seven events"
        );
    }

    #[test]
    fn an_id_is_made_from_key_and_place() {
        assert_eq!(made_id("k", "once", 7), format!("{KEY_ID}k:once:7"));
        let longest = "x".repeat(once_bytes("admin"));
        assert_eq!(stored_id(u64::MAX, &made_id("admin", &longest, 999)).len(), ID_BYTES);
    }

    #[test]
    fn a_topic_has_one_publisher() {
        let caller = |id: &str| TopicCaller { id: id.into(), admin: true };
        let topic = |publisher: Option<&str>| TopicRecord::new(publisher.map(Into::into), 3, 2);
        let claimed = |topic: Option<&TopicRecord>| claim(&caller("a"), topic, 9).unwrap();
        assert_eq!(claimed(None), Some(TopicRecord::new(Some("a".into()), 9, 0)));
        let first = topic(None).assigned(Some("a".into()), 9);
        assert_eq!(claimed(Some(&topic(None))), Some(first), "the first who publishes has it");
        assert_eq!(claimed(Some(&topic(Some("a")))), None);
        assert_eq!(claim(&caller("b"), Some(&topic(Some("a"))), 9).unwrap_err().code, Code::Claimed);
    }
}
