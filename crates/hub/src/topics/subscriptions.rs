//! Creating, changing and deleting subscriptions. Must hold: a subscription has its settings, its marks and its progress,
//! or none of them; no event after a change of topics was sealed by the old ones: the commit that changes them expects
//! the progress from before the log was read, and writes it again, so that no worker continues with what it read earlier.

use super::command::{TopicCaller, TopicReply};
use super::load::{
    Listing, LoadStop, SubscriptionRows, allow, by_name, counts, document, expect_no_deletion, topics,
};
use super::outcome::{Edit, NextStep, TopicDecided, TopicOutcome};
use super::progress::unseal;
use super::settings::{ChangedSettings, SubscriptionChange};
use crate::transaction::{DecisionContext, Facts};
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::delivery::{DeliveryProgress, LogMark};
use tavern_domain::topic::{SubscriptionMarks, is_for_admins, is_reserved};
use tavern_store::TopicPage;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{
    self, ATTEMPT, COPY, DEAD, DELIVERY, EVENTS, LOG, MARKS, SUBSCRIPTION, SubscriptionSettings, TOPIC,
    TopicRecord,
};

/// The publisher of the server's own topics.
const SERVER: &str = "tavern";
/// Dead letters, and attempts, deleted in one commit.
const ROWS_DELETED: u32 = 500;

#[derive(Clone)]
pub(super) struct PutSubscription {
    pub name: Arc<str>,
    pub change: Box<SubscriptionChange>,
}

impl PutSubscription {
    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        let before = SubscriptionRows::find(facts, &self.name)?;
        let (now, rotation_ms) = (context.now.ms(), context.settings.topics.rotation_ms);
        let ChangedSettings { subscription, made_secret } = match &before {
            None => self.change.create(&self.name, &caller.id, now, rotation_ms)?,
            Some(before) => {
                let before = &before.subscription.row;
                allow(caller, before)?;
                self.change.apply(before.clone(), now, rotation_ms)?
            }
        };
        let kept_out = subscription.topics.iter().find(|topic| is_for_admins(topic));
        if let Some(topic) = kept_out.filter(|_| !caller.admin && !caller.owns(SERVER)) {
            let message = format!("only a key with the scope \"admin\" may subscribe to {topic}");
            return Err(Refusal::new(Code::NotAllowed, message).into());
        }
        let mut edit = Edit::new(context);
        edit.put(SUBSCRIPTION, &self.name, record::write(&subscription));
        edit.touch_subscriptions();
        match &before {
            None => begin(context, facts, &mut edit, &subscription)?,
            Some(before) => follow(context, facts, &mut edit, before, &subscription)?,
        }
        let reply = TopicReply::Put {
            subscription: Box::new(subscription),
            created: before.is_none(),
            secret: made_secret,
        };
        edit.commit(TopicOutcome::reply(reply).changing(vec![self.name.clone()]))
    }
}

/// Starts at the current end of the log.
fn begin(
    context: &DecisionContext<'_>,
    facts: &Facts,
    edit: &mut Edit,
    subscription: &SubscriptionSettings,
) -> Result<(), LoadStop> {
    let (name, topics) = (&subscription.name, &subscription.topics);
    expect_no_trim(facts, edit)?;
    let known = create_topics(context, facts, edit, topics, topics.clone())?;
    let head = known.log.head;
    let known = by_name(known);
    let counts = topics.iter().map(|topic| (topic.clone(), known.get(topic).copied().unwrap_or(0)));
    let marks = SubscriptionMarks::begin(head, counts.collect());
    let progress = DeliveryProgress::starting(LogMark { seq: 0, position: head });
    edit.put(MARKS, name, record::write_marks(&marks));
    edit.put(DELIVERY, name, record::write_progress(&progress));
    Ok(())
}

/// Before the end of the log is read: a concurrent trim, which could drop the events after it, is then a conflict.
fn expect_no_trim(facts: &Facts, edit: &mut Edit) -> Result<(), LoadStop> {
    document(facts, EVENTS, LOG)?;
    edit.put(EVENTS, LOG, *b"{}");
    Ok(())
}

/// The part of a change that affects its marks and its progress.
pub(super) fn follow(
    context: &DecisionContext<'_>,
    facts: &Facts,
    edit: &mut Edit,
    before: &SubscriptionRows,
    after: &SubscriptionSettings,
) -> Result<(), LoadStop> {
    let old: BTreeSet<&Arc<str>> = before.subscription.row.topics.iter().collect();
    let new: BTreeSet<&Arc<str>> = after.topics.iter().collect();
    // Batches that a worker seals later are the concern of the next pull, not of every other change.
    let becomes_pulled =
        after.pull && !before.subscription.row.pull && !before.delivery.row.batches.is_empty();
    if old == new && !becomes_pulled {
        return Ok(());
    }
    let mut marks = SubscriptionMarks::clone(&before.marks.row);
    let counted: BTreeSet<Arc<str>> = marks.topics().chain(&after.topics).cloned().collect();
    let added: Vec<Arc<str>> = new.difference(&old).map(|topic| Arc::clone(topic)).collect();
    if !added.is_empty() {
        expect_no_trim(facts, edit)?;
    }
    let known = create_topics(context, facts, edit, &added, counted.into_iter().collect())?;
    marks.change(known.log.head, &by_name(known), &after.topics);
    let mut progress = before.delivery.row.clone();
    if becomes_pulled {
        unseal(&mut progress, known.log.first)?;
    }
    edit.put(MARKS, &after.name, record::write_marks(&marks));
    edit.put(DELIVERY, &after.name, record::write_progress(&progress));
    Ok(())
}

/// Creates topics that do not exist, without a publisher. Existing ones must not be deleted before the commit. Then
/// reads from the log how many events these topics have had.
fn create_topics<'a>(
    context: &DecisionContext<'_>,
    facts: &'a Facts,
    edit: &mut Edit,
    names: &[Arc<str>],
    counted: Vec<Arc<str>>,
) -> Result<&'a TopicPage, LoadStop> {
    let found = topics(facts, names)?;
    if found.iter().any(Option::is_none) {
        expect_no_deletion(facts)?;
    }
    let known = counts(facts, counted)?;
    let events = by_name(known);
    for (name, _) in names.iter().zip(found).filter(|(_, found)| found.is_none()) {
        let publisher = is_reserved(name).then(|| SERVER.into());
        let past_events = events.get(name).copied().unwrap_or(0);
        let topic = TopicRecord::new(publisher, context.now.ms(), past_events);
        edit.put(TOPIC, name, record::write(&topic));
    }
    Ok(known)
}

/// A new secret signs at once; the previous one still signs for a while.
#[derive(Clone)]
pub(super) struct RotateSecret {
    pub name: Arc<str>,
    pub secret: String,
}

impl RotateSecret {
    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        let before = SubscriptionRows::open(facts, caller, &self.name)?.subscription.row;
        let (now, rotation_ms) = (context.now.ms(), context.settings.topics.rotation_ms);
        let change =
            SubscriptionChange { secret: Some(self.secret.clone()), ..SubscriptionChange::default() };
        let subscription = change.apply(before, now, rotation_ms)?.subscription;
        let mut edit = Edit::new(context);
        edit.put(SUBSCRIPTION, &self.name, record::write(&subscription));
        edit.touch_subscriptions();
        let (subscription, secret) = (Box::new(subscription), Some(self.secret.clone()));
        let reply = TopicReply::Put { subscription, created: false, secret };
        edit.commit(TopicOutcome::reply(reply).changing(vec![self.name.clone()]))
    }
}

/// Deletes a subscription with everything that it has not delivered.
#[derive(Clone)]
pub(super) struct DeleteSubscription {
    name: Arc<str>,
    letters: OwnedRows,
    attempts: OwnedRows,
}

/// The documents of one kind that a subscription has, as many as one commit deletes.
#[derive(Clone)]
struct OwnedRows {
    listing: Listing,
    names: Option<Vec<String>>,
}

impl OwnedRows {
    fn new(kind: &'static str, subscription: &str) -> OwnedRows {
        let listing = Listing::new(kind, format!("{subscription}/"), String::new(), ROWS_DELETED);
        OwnedRows { listing, names: None }
    }

    fn load(&mut self, facts: &Facts) -> Result<(), LoadStop> {
        if self.names.is_none() {
            let page = self.listing.next(facts)?.unwrap_or_default();
            self.names = Some(page.iter().map(|found| found.row.key.name().to_owned()).collect());
        }
        Ok(())
    }

    fn delete(&self, edit: &mut Edit, kind: &str) {
        self.names.iter().flatten().for_each(|name| edit.delete(kind, name));
    }
}

impl DeleteSubscription {
    pub fn new(name: Arc<str>) -> DeleteSubscription {
        let (letters, attempts) = (OwnedRows::new(DEAD, &name), OwnedRows::new(ATTEMPT, &name));
        DeleteSubscription { name, letters, attempts }
    }

    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        // A writer that parks another dead letter or stores an attempt also writes the progress, which this expects.
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        self.letters.load(facts)?;
        self.attempts.load(facts)?;
        let name = &self.name;
        let mut edit = Edit::new(context);
        self.letters.delete(&mut edit, DEAD);
        self.attempts.delete(&mut edit, ATTEMPT);
        if !self.letters.listing.is_done() || !self.attempts.listing.is_done() {
            return edit.commit(TopicOutcome::of(NextStep::Repeat));
        }
        for batch in &rows.delivery.row.batches {
            edit.delete(COPY, &record::copy_name(name, batch.number));
        }
        [SUBSCRIPTION, MARKS, DELIVERY].into_iter().for_each(|kind| edit.delete(kind, name));
        edit.touch_subscriptions();
        edit.commit(TopicOutcome::reply(TopicReply::Done).changing(vec![name.clone()]))
    }
}
