//! The stored attempts of a subscription: a list of them, the newest first, and one with the body that it sent, as far as its
//! events are still in the log.

use super::command::{TopicCaller, TopicReply};
use super::delivery::{AttemptEntry, batch_body};
use super::load::{Listing, LoadStop, SubscriptionRows, parse, peek, read_on};
use super::outcome::{TopicDecided, TopicOutcome, TopicStep};
use super::reading::LogReading;
use crate::transaction::{DecisionContext, Facts};
use std::sync::Arc;
use tavern_domain::delivery::EntryRange;
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::record::{self, ATTEMPT, AttemptRecord, StoredRange};

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
                let mut attempt: AttemptRecord = parse(row, |bytes| record::read(bytes))?.row;
                attempt.request.ranges.clear();
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

#[derive(Clone)]
pub(super) struct ShowAttempt {
    name: Arc<str>,
    number: u64,
    /// The entries that were read so far, and where reading continues in the range behind them.
    entries: Vec<AttemptEntry>,
    done: usize,
    reading: Option<LogReading>,
}

impl ShowAttempt {
    pub fn new(name: Arc<str>, number: u64) -> ShowAttempt {
        ShowAttempt { name, number, entries: Vec::new(), done: 0, reading: None }
    }

    pub fn decide(
        &mut self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        caller: &TopicCaller,
    ) -> TopicDecided {
        let rows = SubscriptionRows::open(facts, caller, &self.name)?;
        let mut attempt = self.find(context, facts, rows.delivery.row.attempted())?;
        let ranges = std::mem::take(&mut attempt.request.ranges);
        if self.read(facts, &rows, &ranges)? {
            let body = batch_body(&self.name, attempt.request.format, &self.entries);
            attempt.request.show_body(&body);
        }
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Attempt(Box::new(attempt)))))
    }

    fn find(
        &self,
        context: &DecisionContext<'_>,
        facts: &Facts,
        last: u64,
    ) -> Result<AttemptRecord, LoadStop> {
        let kept = context.settings.topics.attempts_kept;
        let slot = self.number % kept.max(1);
        let found = match peek(facts, ATTEMPT, &record::attempt_name(&self.name, slot))? {
            Some(row) => Some(parse(row, |bytes| record::read::<AttemptRecord>(bytes))?.row),
            None => None,
        };
        let is_kept = |found: &AttemptRecord| found.number == self.number && found.number + kept > last;
        found.filter(is_kept).ok_or_else(|| {
            let message = format!(
                "attempt {} of {:?} is not kept: only the last {kept} attempts are (events.attempts_kept)",
                self.number, self.name
            );
            Refusal::new(Code::NotFound, message).into()
        })
    }

    /// Reads the entries of the body. False: the log no longer has all of them.
    fn read(
        &mut self,
        facts: &Facts,
        rows: &SubscriptionRows,
        ranges: &[StoredRange],
    ) -> Result<bool, LoadStop> {
        while let Some(range) = ranges.get(self.done) {
            let Ok(range) = range.range() else { return Ok(false) };
            if range.gap {
                self.entries.push(AttemptEntry::Gap { first: range.first, last: range.last });
            } else if !self.read_range(facts, rows, range)? {
                return Ok(false);
            }
            (self.done, self.reading) = (self.done + 1, None);
        }
        Ok(!ranges.is_empty())
    }

    fn read_range(
        &mut self,
        facts: &Facts,
        rows: &SubscriptionRows,
        range: EntryRange,
    ) -> Result<bool, LoadStop> {
        let reading =
            self.reading.get_or_insert_with(|| LogReading::new(rows.marks.row.clone(), range.after));
        while reading.at().seq < range.last {
            let begun = reading.at();
            let limit = u32::try_from(range.last - begun.seq).unwrap_or(PAGE_ROWS).min(PAGE_ROWS);
            let Some((log, took)) = read_on(facts, reading, limit)? else { return Ok(false) };
            // The first event in the log would get the number of one that was dropped.
            if log.first > begun.position + 1 || (!took.more && reading.at().seq < range.last) {
                return Ok(false);
            }
            let events = took.events.into_iter().filter(|(seq, _)| *seq >= range.first);
            self.entries.extend(events.map(|(seq, entry)| AttemptEntry::Event { seq, entry }));
        }
        Ok(true)
    }
}
