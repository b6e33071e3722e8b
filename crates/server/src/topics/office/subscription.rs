//! Making, changing and removing subscriptions. Must hold: a subscription has its settings, its marks and its progress, or
//! nothing; no event after a change of topics was sealed by the old ones: the commit that changes them expects the progress
//! from before the log was looked at, and writes it anew, so that no worker goes on with what it read earlier.

use super::ledger::{self, Edit, Kept, Tries, now_ms};
use super::queue::{self, Queue, version};
use super::settings::{Terms, Wanted, Wish};
use crate::topics::TopicsApi;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::delivery::{DeliveryProgress, LogMark};
use tavern_domain::topic::{SubscriptionMarks, is_reserved};
use tavern_hub::topics::{TopicCaller, unseal};
use tavern_store::TopicPage;
use tavern_wire::error::Refusal;
use tavern_wire::record::{
    self, DEAD, DELIVERY, MARKS, SUBSCRIPTION, SubscriptionSettings, TOPIC, TopicRecord,
};

/// Who publishes the server's own topics.
const SERVER: &str = "tavern";
/// Dead letters removed in one commit.
const SWEPT: u32 = 500;

/// A subscription that was put.
pub struct Put {
    pub subscription: SubscriptionSettings,
    pub created: bool,
    /// To be shown this once.
    pub secret: Option<String>,
}

pub async fn put(api: &TopicsApi, caller: &TopicCaller, name: &str, wish: Wish) -> Result<Put, Refusal> {
    queue::check_name(name)?;
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let before = Queue::find(api, name).await?;
        if let Some(before) = &before {
            queue::allow(caller, &before.subscription.row)?;
        }
        let (now, terms) = (now_ms(api), Terms::of(&api.config));
        let Wanted { subscription, made_secret } = match &before {
            None => wish.clone().begin(name, &caller.id, now, &terms)?,
            Some(before) => wish.clone().change(before.subscription.row.clone(), now, &terms)?,
        };
        let created = before.is_none();
        let mut edit = Edit::new(api);
        edit.expect(SUBSCRIPTION, name, version(before.as_ref().map(|before| &before.subscription)));
        edit.put(SUBSCRIPTION, name, record::write(&subscription));
        edit.raise();
        match &before {
            None => begin(api, &mut edit, &subscription).await?,
            Some(before) => follow(api, &mut edit, before, &subscription).await?,
        }
        if edit.commit(api).await?.is_some() {
            api.wakeups.changed(name.into());
            return Ok(Put { subscription, created, secret: made_secret });
        }
    }
}

/// It starts now.
async fn begin(api: &TopicsApi, edit: &mut Edit, subscription: &SubscriptionSettings) -> Result<(), Refusal> {
    let (name, topics) = (&subscription.name, &subscription.topics);
    found_topics(api, edit, topics.iter()).await?;
    let known = ledger::counts(api, topics.clone()).await?;
    let head = known.log.head;
    let known = by_name(known);
    let counts = topics.iter().map(|topic| (topic.clone(), known.get(topic).copied().unwrap_or(0)));
    let marks = SubscriptionMarks::begin(head, counts.collect());
    let progress = DeliveryProgress::starting(LogMark { seq: 0, position: head });
    edit.expect(MARKS, name, 0);
    edit.expect(DELIVERY, name, 0);
    edit.put(MARKS, name, record::write_marks(&marks));
    edit.put(DELIVERY, name, record::write_progress(&progress));
    Ok(())
}

/// What of a change concerns its marks and its progress.
async fn follow(
    api: &TopicsApi,
    edit: &mut Edit,
    before: &Queue,
    after: &SubscriptionSettings,
) -> Result<(), Refusal> {
    let old: BTreeSet<&Arc<str>> = before.subscription.row.topics.iter().collect();
    let new: BTreeSet<&Arc<str>> = after.topics.iter().collect();
    let loosens = after.pull && !before.delivery.row.batches.is_empty();
    if old == new && !loosens {
        return Ok(());
    }
    found_topics(api, edit, new.difference(&old).copied()).await?;
    let known = change_topics(api, edit, before, &after.topics).await?;
    let mut progress = before.delivery.row.clone();
    if loosens {
        unseal(&mut progress, known.log.first)?;
    }
    edit.expect(DELIVERY, &after.name, before.delivery.version);
    edit.put(DELIVERY, &after.name, record::write_progress(&progress));
    Ok(())
}

/// From now on it has these topics.
async fn change_topics(
    api: &TopicsApi,
    edit: &mut Edit,
    before: &Queue,
    topics: &[Arc<str>],
) -> Result<TopicPage, Refusal> {
    let name = before.name();
    let mut marks = SubscriptionMarks::clone(&before.marks.row);
    let names: BTreeSet<Arc<str>> = marks.topics().chain(topics).cloned().collect();
    let known = ledger::counts(api, names.into_iter().collect()).await?;
    marks.change(known.log.head, &by_name(known.clone()), topics);
    edit.expect(MARKS, name, before.marks.version);
    edit.put(MARKS, name, record::write_marks(&marks));
    Ok(known)
}

/// TopicPage that nobody has heard of are made, unclaimed. Those that exist must not end meanwhile.
async fn found_topics(
    api: &TopicsApi,
    edit: &mut Edit,
    names: impl Iterator<Item = &Arc<str>>,
) -> Result<(), Refusal> {
    for name in names {
        let known: Option<Kept<TopicRecord>> = ledger::record(api, TOPIC, name).await?;
        edit.expect(TOPIC, name, version(known.as_ref()));
        if known.is_none() {
            let publisher = is_reserved(name).then(|| SERVER.into());
            let topic = TopicRecord { publisher, created_at: now_ms(api) };
            edit.put(TOPIC, name, record::write(&topic));
        }
    }
    Ok(())
}

pub fn by_name(topics: TopicPage) -> BTreeMap<Arc<str>, u64> {
    topics.page.rows.into_iter().collect()
}

/// Takes a topic out of a subscription, which stays. False: it did not have it.
pub async fn without(api: &TopicsApi, name: &str, topic: &str) -> Result<bool, Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let Some(before) = Queue::find(api, name).await? else { return Ok(false) };
        let mut after = before.subscription.row.clone();
        after.topics.retain(|known| **known != *topic);
        if after.topics.len() == before.subscription.row.topics.len() {
            return Ok(false);
        }
        let mut edit = Edit::new(api);
        edit.expect(SUBSCRIPTION, name, before.subscription.version);
        edit.put(SUBSCRIPTION, name, record::write(&after));
        edit.raise();
        follow(api, &mut edit, &before, &after).await?;
        if edit.commit(api).await?.is_some() {
            api.wakeups.changed(name.into());
            return Ok(true);
        }
    }
}

/// Everything of it goes, unsent.
pub async fn remove(api: &TopicsApi, caller: &TopicCaller, name: &str) -> Result<(), Refusal> {
    let mut tries = Tries::default();
    loop {
        tries.another().await?;
        let queue = Queue::open(api, caller, name).await?;
        let mut edit = Edit::new(api);
        edit.expect(SUBSCRIPTION, name, queue.subscription.version);
        edit.expect(MARKS, name, queue.marks.version);
        // Whoever parks another dead letter writes the progress too.
        edit.expect(DELIVERY, name, queue.delivery.version);
        for batch in &queue.delivery.row.batches {
            edit.delete(record::COPY, &record::copy_name(name, batch.number));
        }
        let dead = sweep(api, name).await?;
        dead.iter().for_each(|letter| edit.delete(DEAD, letter));
        [SUBSCRIPTION, MARKS, DELIVERY].into_iter().for_each(|kind| edit.delete(kind, name));
        edit.raise();
        if edit.commit(api).await?.is_some() {
            api.wakeups.changed(name.into());
            return Ok(());
        }
    }
}

/// Removes dead letters until the rest fits into one commit, and names that rest.
async fn sweep(api: &TopicsApi, name: &str) -> Result<Vec<String>, Refusal> {
    let prefix = format!("{name}/");
    loop {
        let page = ledger::list(api, DEAD, &prefix, "", SWEPT).await?;
        let letters: Vec<String> = page.rows.iter().map(|row| row.row.key.name().to_owned()).collect();
        if !page.more {
            return Ok(letters);
        }
        let mut edit = Edit::new(api);
        letters.iter().for_each(|letter| edit.delete(DEAD, letter));
        // Nothing is expected of them, so nobody can be quicker.
        edit.commit(api).await?;
    }
}
