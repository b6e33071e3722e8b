//! A subscription as its owner sees it: settings, queue, health, and waiting events.

use super::command::{SubscriptionDetails, SubscriptionState, TopicCaller, TopicReply};
use super::dead_letters::DeadLetterCount;
use super::load::{
    Listing, LoadStop, SubscriptionRows, all_counts, by_name, counts, parse_subscription, read_on,
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

/// The part of a report that needs no further read.
fn brief(rows: SubscriptionRows, counts: &TopicPage) -> SubscriptionState {
    let seq = rows.marks.row.seq_at_head(&by_name(counts));
    SubscriptionState { subscription: rows.subscription.row, progress: rows.delivery.row, seq, details: None }
}

/// Settings and state.
#[derive(Clone)]
pub(super) struct ShowSubscription {
    name: Arc<str>,
    letters: DeadLetterCount,
    oldest: Option<LogReading>,
}

impl ShowSubscription {
    pub fn new(name: Arc<str>) -> ShowSubscription {
        ShowSubscription { name, letters: DeadLetterCount::default(), oldest: None }
    }

    pub fn decide(&mut self, facts: &Facts, caller: &TopicCaller) -> TopicDecided {
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        let counts = counts(facts, rows.topics())?;
        let dead_letters = self.letters.of(facts, &self.name)?;
        let oldest = self.oldest(facts, &rows)?;
        let details = Some(SubscriptionDetails { oldest, dead_letters });
        let state = SubscriptionState { details, ..brief(rows, counts) };
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Subscription(Box::new(state)))))
    }

    /// When the oldest waiting event was accepted.
    fn oldest(&mut self, facts: &Facts, rows: &SubscriptionRows) -> Result<Option<Time>, LoadStop> {
        let progress = &rows.delivery.row;
        let sealed = progress.batches.iter().map(|batch| batch.accepted).min();
        if let Some(at) = sealed.or(progress.dropped.map(|shed| shed.at)) {
            return Ok(Some(at));
        }
        let reading =
            self.oldest.get_or_insert_with(|| LogReading::new(rows.marks.row.clone(), progress.sealed));
        while let Some((_, took)) = read_on(facts, reading, 1)? {
            if let Some((_, first)) = took.events.first() {
                return Ok(Some(first.at));
            }
            if !took.more {
                break;
            }
        }
        Ok(None)
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
            self.described.extend(rows.into_iter().zip(counts).map(|(rows, counts)| brief(rows, counts)));
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
