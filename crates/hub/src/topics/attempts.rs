//! The stored attempts of a subscription, the newest first.

use super::command::{TopicCaller, TopicReply};
use super::load::{Listing, SubscriptionRows, parse};
use super::outcome::{TopicDecided, TopicOutcome, TopicStep};
use crate::transaction::{DecisionContext, Facts};
use std::sync::Arc;
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::record::{self, ATTEMPT, AttemptRecord};

/// Which attempts are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttemptFilter {
    /// Only those with a smaller number.
    pub before: Option<u64>,
    /// Only those that did not deliver the whole batch.
    pub failed: bool,
    pub limit: usize,
}

#[derive(Clone)]
pub(super) struct ListAttempts {
    name: Arc<str>,
    filter: AttemptFilter,
    listing: Listing,
    found: Vec<AttemptRecord>,
}

impl ListAttempts {
    pub fn new(name: Arc<str>, filter: AttemptFilter) -> ListAttempts {
        let listing = Listing::new(ATTEMPT, format!("{name}/"), String::new(), PAGE_ROWS);
        ListAttempts { name, filter, listing, found: Vec::new() }
    }

    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        let last = SubscriptionRows::open(facts, caller, &self.name)?.delivery.row.attempted();
        // More were kept before the configuration was changed.
        let kept = context.settings.topics.attempts_kept;
        let wanted = |attempt: &AttemptRecord| {
            attempt.number + kept > last
                && self.filter.before.is_none_or(|before| attempt.number < before)
                && !(self.filter.failed && &*attempt.outcome == "delivered")
        };
        while let Some(page) = self.listing.next(facts)? {
            for row in &page {
                let attempt = parse(row, |bytes| record::read(bytes))?.row;
                self.found.extend(Some(attempt).filter(wanted));
            }
        }
        let mut attempts = std::mem::take(&mut self.found);
        attempts.sort_unstable_by_key(|attempt| std::cmp::Reverse(attempt.number));
        let more = attempts.len() > self.filter.limit;
        attempts.truncate(self.filter.limit);
        let next = attempts.last().filter(|_| more).map(|last| last.number);
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Attempts { attempts, next })))
    }
}
