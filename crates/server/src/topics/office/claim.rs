//! Topics as a whole: the list, who publishes, and the end of one. Must hold: a topic that is gone is in no subscription;
//! subscriptions that had it stay as they are otherwise, and what they were owed comes.

use super::ledger::{self, Edit, Kept, Tries, now_ms};
use super::subscription::{by_name, without};
use crate::topics::TopicsApi;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use tavern_domain::topic::is_reserved;
use tavern_hub::topics::{TopicCaller, check_topic_name};
use tavern_store::Versioned;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{
    self, EVENTS, SUBSCRIPTION, SUBSCRIPTIONS, SubscriptionSettings, TOPIC, TopicRecord,
};

const PUBLISHER_BYTES: usize = 64;

/// By name.
pub async fn topics(api: &TopicsApi, after: &str, limit: usize) -> Result<Value, Refusal> {
    let limit = u32::try_from(limit).unwrap_or(u32::MAX);
    let page = ledger::list(api, TOPIC, "", after, limit).await?;
    let next = page.rows.last().filter(|_| page.more).map(|last| last.row.key.name().to_owned());
    let mut found = Vec::with_capacity(page.rows.len());
    for row in page.rows {
        let name: Arc<str> = row.row.key.name().into();
        let topic = ledger::found(Some(row), |bytes| record::read::<TopicRecord>(bytes))?;
        found.extend(topic.map(|topic| (name, topic.row)));
    }
    Ok(json!({"topics": shown(api, found).await?, "next": next}))
}

pub async fn topic(api: &TopicsApi, name: &str) -> Result<Value, Refusal> {
    let topic = existing(api, name).await?;
    let mut shown = shown(api, vec![(name.into(), topic.row)]).await?;
    shown.pop().ok_or_else(ledger::unexpected)
}

async fn existing(api: &TopicsApi, name: &str) -> Result<Kept<TopicRecord>, Refusal> {
    check_topic_name(name)?;
    let topic: Option<Kept<TopicRecord>> = ledger::record(api, TOPIC, name).await?;
    topic.ok_or_else(|| {
        let message =
            format!("there is no topic {name:?}: it begins with its first event or its first subscription");
        Refusal::new(Code::NotFound, message)
    })
}

async fn shown(api: &TopicsApi, topics: Vec<(Arc<str>, TopicRecord)>) -> Result<Vec<Value>, Refusal> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    let names = topics.iter().map(|(name, _)| name.clone()).collect();
    let counts = by_name(ledger::counts(api, names).await?);
    let mut subscribed: HashMap<Arc<str>, u64> = HashMap::new();
    for (_, subscription) in subscriptions(api).await? {
        for topic in subscription.topics {
            *subscribed.entry(topic).or_default() += 1;
        }
    }
    let one = |(name, topic): (Arc<str>, TopicRecord)| {
        json!({
            "topic": &*name,
            "publisher": topic.publisher.as_deref(),
            "events": counts.get(&name).copied().unwrap_or(0),
            "subscriptions": subscribed.get(&name).copied().unwrap_or(0),
            "created_at": topic.created_at,
        })
    };
    Ok(topics.into_iter().map(one).collect())
}

async fn subscriptions(api: &TopicsApi) -> Result<Vec<(String, SubscriptionSettings)>, Refusal> {
    let mut all = Vec::new();
    for row in ledger::all(api, SUBSCRIPTION).await? {
        let name = row.row.key.name().to_owned();
        let read = ledger::found(Some(row), |bytes| record::read::<SubscriptionSettings>(bytes))?;
        all.extend(read.map(|subscription| (name, subscription.row)));
    }
    Ok(all)
}

/// Gives the claim to another key, or to whoever publishes next.
pub async fn assign(api: &TopicsApi, name: &str, publisher: Option<Arc<str>>) -> Result<Value, Refusal> {
    check_topic_name(name)?;
    if is_reserved(name) {
        return Err(servers());
    }
    let good =
        |id: &str| (1..=PUBLISHER_BYTES).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic());
    if publisher.as_deref().is_some_and(|id| !good(id)) {
        let message = "`publisher` is the id of a key, as `tavern key list` shows it, or null";
        return Err(Refusal::new(Code::BadRequest, message));
    }
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let known: Option<Kept<TopicRecord>> = ledger::record(api, TOPIC, name).await?;
        let created_at = known.as_ref().map_or_else(|| now_ms(api), |known| known.row.created_at);
        let topic = TopicRecord { publisher: publisher.clone(), created_at };
        let mut edit = Edit::new(api);
        edit.expect(TOPIC, name, known.map_or(0, |known| known.version));
        edit.put(TOPIC, name, record::write(&topic));
        if edit.commit(api).await?.is_some() {
            return self::topic(api, name).await;
        }
    }
}

/// Takes it out of every subscription, then ends it.
pub async fn end(api: &TopicsApi, caller: &TopicCaller, name: &str) -> Result<(), Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let topic = existing(api, name).await?;
        if is_reserved(name) {
            return Err(servers());
        }
        if !caller.admin && topic.row.publisher.as_deref().is_none_or(|publisher| !caller.owns(publisher)) {
            let message = "only the key that publishes to a topic, or an admin's, may delete it";
            return Err(Refusal::new(Code::NotAllowed, message));
        }
        // Whoever subscribes from here on is noticed by the version.
        let version = ledger::document(api, EVENTS, SUBSCRIPTIONS)
            .await?
            .map_or(0, |Versioned { version, .. }| version);
        let mut changed = false;
        for (subscription, settings) in subscriptions(api).await? {
            if settings.topics.iter().any(|topic| **topic == *name) {
                changed |= without(api, &subscription, name).await?;
            }
        }
        if changed {
            // The changes raised the version: look once more.
            continue;
        }
        let mut edit = Edit::new(api);
        edit.expect(TOPIC, name, topic.version);
        edit.expect(EVENTS, SUBSCRIPTIONS, version);
        edit.delete(TOPIC, name);
        if edit.commit(api).await?.is_some() {
            return Ok(());
        }
    }
}

fn servers() -> Refusal {
    Refusal::new(Code::NotAllowed, "topics that begin with \"tavern.\" belong to the server")
}
