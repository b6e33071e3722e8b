//! A subscription as its owner sees it: settings, queue, health, and waiting events.

use super::command::{SubscriptionState, TopicCaller, TopicReply};
use super::dead_letters::DeadLetterCount;
use super::load::{
    Listing, LoadStop, SubscriptionRows, all_counts, by_name, counts, log_read, parse_subscription,
};
use super::outcome::{TopicDecided, TopicOutcome, TopicStep};
use super::reading::LogReading;
use crate::transaction::Facts;
use std::collections::VecDeque;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::TopicPage;
use tavern_wire::record::SUBSCRIPTION;

/// Subscriptions that are loaded in one round trip.
const LOADED: usize = 100;

/// The report of each, in as few round trips as possible.
fn describe(
    facts: &Facts,
    found: &[SubscriptionRows],
    counts: &[&TopicPage],
) -> Result<Vec<SubscriptionState>, LoadStop> {
    let (mut states, mut missing) = (Vec::new(), Vec::new());
    for (rows, counts) in found.iter().zip(counts) {
        let seq = rows.marks.row.seq_at_head(&by_name(counts));
        match oldest(facts, rows, seq) {
            Ok(oldest) => states.push(SubscriptionState {
                subscription: rows.subscription.row.clone(),
                progress: rows.delivery.row.clone(),
                seq,
                oldest,
                dead_letters: None,
            }),
            Err(LoadStop::Need(needs)) => missing.extend(needs),
            Err(stop) => return Err(stop),
        }
    }
    if missing.is_empty() { Ok(states) } else { Err(LoadStop::Need(missing)) }
}

/// When the oldest waiting event was accepted. The log is read only for those that are in no batch yet.
fn oldest(facts: &Facts, rows: &SubscriptionRows, seq: u64) -> Result<Option<Time>, LoadStop> {
    let progress = &rows.delivery.row;
    let sealed = progress.batches.iter().map(|batch| batch.accepted).min();
    if let Some(at) = sealed.or(progress.dropped.map(|shed| shed.at)) {
        return Ok(Some(at));
    }
    if progress.queued(seq) == 0 {
        return Ok(None);
    }
    let mut reading = LogReading::new(rows.marks.row.clone(), progress.sealed);
    while let Some(read) = reading.read(1) {
        let took = reading.take(log_read(facts, read)?.clone());
        if let Some((_, first)) = took.events.first() {
            return Ok(Some(first.at));
        }
        if !took.more {
            break;
        }
    }
    Ok(None)
}

/// Settings and state.
#[derive(Clone)]
pub(super) struct ShowSubscription {
    name: Arc<str>,
    letters: DeadLetterCount,
}

impl ShowSubscription {
    pub fn new(name: Arc<str>) -> ShowSubscription {
        ShowSubscription { name, letters: DeadLetterCount::default() }
    }

    pub fn decide(&mut self, facts: &Facts, caller: &TopicCaller) -> TopicDecided {
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        let counts = counts(facts, rows.topics())?;
        let dead_letters = self.letters.of(facts, &self.name)?;
        let state = describe(facts, &[rows], &[counts])?.remove(0);
        let state = SubscriptionState { dead_letters: Some(dead_letters), ..state };
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Subscription(Box::new(state)))))
    }
}

/// The caller's own subscriptions, or all for an admin, by name.
#[derive(Clone)]
pub(super) struct ListSubscriptions {
    limit: usize,
    listing: Listing,
    /// Those that are loaded next.
    names: VecDeque<Arc<str>>,
    described: Vec<SubscriptionState>,
}

impl ListSubscriptions {
    pub fn new(after: String, limit: u32) -> ListSubscriptions {
        ListSubscriptions {
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            listing: Listing::new(SUBSCRIPTION, String::new(), after, u32::MAX),
            names: VecDeque::new(),
            described: Vec::new(),
        }
    }

    pub fn decide(&mut self, facts: &Facts, caller: &TopicCaller) -> TopicDecided {
        // One more than requested shows whether there is a next page.
        while self.described.len() <= self.limit {
            if self.names.is_empty() {
                let Some(page) = self.listing.next(facts)? else { break };
                for found in &page {
                    let subscription = parse_subscription(found)?.row;
                    if caller.may(&subscription.owner) {
                        self.names.push_back(subscription.name);
                    }
                }
                continue;
            }
            let names: Vec<Arc<str>> = self.names.iter().take(LOADED).cloned().collect();
            let rows: Vec<SubscriptionRows> =
                SubscriptionRows::find_all(facts, &names)?.into_iter().flatten().collect();
            let counts = all_counts(facts, rows.iter().map(SubscriptionRows::topics).collect())?;
            self.described.extend(describe(facts, &rows, &counts)?);
            self.names.drain(..names.len());
        }
        let mut subscriptions = std::mem::take(&mut self.described);
        let more = subscriptions.len() > self.limit;
        subscriptions.truncate(self.limit);
        let last = subscriptions.last().map(|last| last.subscription.name.clone());
        let next = last.filter(|_| more);
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Subscriptions { subscriptions, next })))
    }
}
