//! Administration of topics: list, change the publisher, delete. Must hold: a deleted topic is in no subscription;
//! subscriptions that had it are otherwise unchanged, and still get the events they have not received.

use super::command::{TopicCaller, TopicReply, TopicState};
use super::load::{
    Listing, LoadStop, SubscriptionRows, all_counts, by_name, counts, document, parse, parse_subscription,
    past_events, topic,
};
use super::outcome::{Edit, NextStep, TopicDecided, TopicOutcome, TopicStep};
use super::settings::check_topic_name;
use super::subscriptions::follow;
use crate::transaction::{DecisionContext, Facts};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::topic::is_reserved;
use tavern_store::Versioned;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{self, DELETED_TOPICS, EVENTS, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC, TopicRecord};

const PUBLISHER_BYTES: usize = 64;
/// Subscriptions that lose a topic in one commit: each is a few rows.
const CHANGED: usize = 100;

/// How many subscriptions each topic has.
#[derive(Clone)]
struct SubscriptionCounts {
    listing: Listing,
    counts: BTreeMap<Arc<str>, u64>,
}

impl SubscriptionCounts {
    fn new() -> SubscriptionCounts {
        SubscriptionCounts { listing: Listing::all(SUBSCRIPTION), counts: BTreeMap::new() }
    }

    fn load(&mut self, facts: &Facts) -> Result<&BTreeMap<Arc<str>, u64>, LoadStop> {
        while let Some(page) = self.listing.next(facts)? {
            for found in &page {
                for topic in parse_subscription(found)?.row.topics {
                    *self.counts.entry(topic).or_default() += 1;
                }
            }
        }
        Ok(&self.counts)
    }

    fn describe(
        &mut self,
        facts: &Facts,
        topics: Vec<(Arc<str>, TopicRecord)>,
    ) -> Result<Vec<TopicState>, LoadStop> {
        if topics.is_empty() {
            return Ok(Vec::new());
        }
        let subscriptions = self.load(facts)?;
        let events = by_name(counts(facts, topics.iter().map(|(name, _)| name.clone()).collect())?);
        let one = |(name, topic): (Arc<str>, TopicRecord)| TopicState {
            publisher: topic.publisher,
            events: events.get(&name).map_or(0, |events| events.saturating_sub(topic.past_events)),
            subscriptions: subscriptions.get(&name).copied().unwrap_or(0),
            created_at: topic.created_at,
            name,
        };
        Ok(topics.into_iter().map(one).collect())
    }
}

/// Topics by name, and the name after which the next page begins.
type NamedTopics = (Vec<(Arc<str>, TopicRecord)>, Option<Arc<str>>);

/// A page of all topics, by name.
#[derive(Clone)]
pub(super) struct ListTopics {
    after: String,
    limit: u32,
    page: Option<NamedTopics>,
    subscriptions: SubscriptionCounts,
}

impl ListTopics {
    pub fn new(after: String, limit: u32) -> ListTopics {
        ListTopics { after, limit, page: None, subscriptions: SubscriptionCounts::new() }
    }

    pub fn decide(&mut self, facts: &Facts) -> TopicDecided {
        let (found, next) = match &self.page {
            Some(page) => page.clone(),
            None => {
                let mut listing = Listing::new(TOPIC, String::new(), self.after.clone(), self.limit);
                let mut topics = Vec::new();
                for row in listing.next(facts)?.unwrap_or_default() {
                    let topic = parse(&row, |bytes| record::read(bytes))?.row;
                    topics.push((Arc::from(row.row.key.name()), topic));
                }
                let next = topics.last().filter(|_| !listing.is_done()).map(|(name, _)| Arc::clone(name));
                self.page.insert((topics, next)).clone()
            }
        };
        let topics = self.subscriptions.describe(facts, found)?;
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Topics { topics, next })))
    }
}

#[derive(Clone)]
pub(super) struct ShowTopic {
    topic: Arc<str>,
    subscriptions: SubscriptionCounts,
}

impl ShowTopic {
    pub fn new(topic: Arc<str>) -> ShowTopic {
        ShowTopic { topic, subscriptions: SubscriptionCounts::new() }
    }

    pub fn decide(&mut self, facts: &Facts) -> TopicDecided {
        let found = existing(facts, &self.topic)?;
        let mut topics = self.subscriptions.describe(facts, vec![(self.topic.clone(), found.row)])?;
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Topic(topics.remove(0)))))
    }
}

pub(super) fn existing(facts: &Facts, name: &Arc<str>) -> Result<Versioned<TopicRecord>, LoadStop> {
    check_topic_name(name)?;
    topic(facts, name)?.ok_or_else(|| {
        let message =
            format!("there is no topic {name:?}; it is created by its first event or its first subscription");
        Refusal::new(Code::NotFound, message).into()
    })
}

/// Transfers the claim to another key, or to the next publisher.
#[derive(Clone)]
pub(super) struct AssignTopic {
    topic: Arc<str>,
    publisher: Option<Arc<str>>,
    subscriptions: SubscriptionCounts,
}

impl AssignTopic {
    pub fn new(topic: Arc<str>, publisher: Option<Arc<str>>) -> AssignTopic {
        AssignTopic { topic, publisher, subscriptions: SubscriptionCounts::new() }
    }

    pub fn decide(&mut self, context: &DecisionContext<'_>, facts: &Facts) -> TopicDecided {
        check_topic_name(&self.topic)?;
        if is_reserved(&self.topic) {
            return Err(reserved());
        }
        let good =
            |id: &str| (1..=PUBLISHER_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
        if self.publisher.as_deref().is_some_and(|id| !good(id)) {
            let message = "`publisher` must be the id of an API key (see `tavern key list`), or null";
            return Err(Refusal::new(Code::BadRequest, message).into());
        }
        let (publisher, now_ms) = (self.publisher.clone(), context.now.ms());
        let known = topic(facts, &self.topic)?;
        let created = known.is_none();
        let topic = match known {
            Some(known) => known.row.assigned(publisher, now_ms),
            None => TopicRecord::new(publisher, now_ms, past_events(facts, &self.topic)?),
        };
        let mut described = self.subscriptions.describe(facts, vec![(self.topic.clone(), topic.clone())])?;
        let mut edit = Edit::new(context);
        edit.put(TOPIC, &self.topic, record::write(&topic));
        let reply = TopicReply::Assigned { topic: described.remove(0), created };
        edit.commit(TopicOutcome::reply(reply))
    }
}

/// Removes a topic from every subscription, then deletes it.
#[derive(Clone)]
pub(super) struct DeleteTopic {
    topic: Arc<str>,
    listing: Listing,
    /// Subscriptions that have it.
    subscribers: Vec<Arc<str>>,
}

impl DeleteTopic {
    pub fn new(topic: Arc<str>) -> DeleteTopic {
        DeleteTopic { topic, listing: Listing::all(SUBSCRIPTION), subscribers: Vec::new() }
    }

    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        let topic = existing(facts, &self.topic)?;
        if is_reserved(&self.topic) {
            return Err(reserved());
        }
        if !caller.admin && topic.row.publisher.as_deref().is_none_or(|publisher| !caller.owns(publisher)) {
            let message = "only the key that publishes to a topic, or an admin key, may delete it";
            return Err(Refusal::new(Code::NotAllowed, message).into());
        }
        // Before the subscriptions: a concurrent change of one is then a conflict.
        document(facts, EVENTS, SUBSCRIPTIONS)?;
        while self.subscribers.len() < CHANGED
            && let Some(page) = self.listing.next(facts)?
        {
            for found in &page {
                let subscription = parse_subscription(found)?.row;
                if subscription.topics.contains(&self.topic) {
                    self.subscribers.push(subscription.name);
                }
            }
        }
        let all = self.listing.is_done() && self.subscribers.len() <= CHANGED;
        let part = &self.subscribers[..self.subscribers.len().min(CHANGED)];
        let mut edit = Edit::new(context);
        self.remove_topic(context, facts, part, &mut edit)?;
        let next = if all {
            edit.delete(TOPIC, &self.topic);
            edit.put(EVENTS, DELETED_TOPICS, *b"{}");
            NextStep::Reply(TopicReply::Done)
        } else {
            NextStep::Repeat
        };
        edit.commit(TopicOutcome::of(next).changing(part.to_vec()))
    }

    fn remove_topic(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        names: &[Arc<str>],
        edit: &mut Edit,
    ) -> Result<(), LoadStop> {
        if names.is_empty() {
            return Ok(());
        }
        let rows: Vec<SubscriptionRows> =
            SubscriptionRows::find_all(facts, names)?.into_iter().flatten().collect();
        // Loads in one round trip what `follow` would load one by one.
        all_counts(facts, rows.iter().map(SubscriptionRows::topics).collect())?;
        for before in rows {
            let mut after = before.subscription.row.clone();
            after.topics.retain(|known| *known != self.topic);
            edit.put(SUBSCRIPTION, &after.name, record::write(&after));
            follow(context, facts, edit, &before, &after)?;
        }
        edit.touch_subscriptions();
        Ok(())
    }
}

fn reserved() -> LoadStop {
    Refusal::new(Code::NotAllowed, "topics that start with \"tavern.\" belong to the server").into()
}
