//! Keeps each subscription within its own budget: counts the bytes that wait, and moves the cursor of one that has too
//! many.
//! Must hold: events of other subscriptions are not touched; a subscription without a budget costs nothing.

use super::announcement;
use super::backlog::Backlog;
use super::load::{Listing, SubscriptionRows, by_name, counts, parse_subscription, peek, read_on, version};
use super::outcome::{Edit, LostEvents, NextStep, Retained, TopicDecided, TopicOutcome, TopicStep};
use super::reading::LogReading;
use crate::transaction::{DecisionContext, Facts};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::delivery::LogMark;
use tavern_domain::topic::DELIVERIES;
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::record::{self, DELIVERY, EVENTS, SUBSCRIPTION, SUBSCRIPTIONS, TOPIC};

/// Pages counted for one subscription in one check: the rest is counted at the next.
const PAGES: u32 = 64;
/// The largest size of an event in the log: data and url at their largest, every character of the url escaped.
const EVENT_BYTES: u64 = 80 << 10;

/// Lists the subscriptions with a budget, if any subscription has changed.
#[derive(Clone)]
pub(super) struct ListBudgets {
    /// The version of all subscriptions when they were listed last.
    known: Option<u64>,
    listing: Listing,
    found: BTreeMap<Arc<str>, u64>,
}

impl ListBudgets {
    pub fn new(known: Option<u64>) -> ListBudgets {
        ListBudgets { known, listing: Listing::all(SUBSCRIPTION), found: BTreeMap::new() }
    }

    pub fn decide(&mut self, facts: &Facts) -> TopicDecided {
        let now = version(peek(facts, EVENTS, SUBSCRIPTIONS)?);
        if self.known == Some(now) {
            return Ok(TopicStep::Done(TopicOutcome::of(NextStep::Retain(Retained::Listed(None)))));
        }
        while let Some(page) = self.listing.next(facts)? {
            for found in &page {
                let one = parse_subscription(found)?.row;
                if one.max_backlog_bytes > 0 {
                    self.found.insert(one.name, one.max_backlog_bytes);
                }
            }
        }
        let listed = Some((now, std::mem::take(&mut self.found)));
        Ok(TopicStep::Done(TopicOutcome::of(NextStep::Retain(Retained::Listed(listed)))))
    }
}

/// Counts the bytes that wait for one subscription, and drops the excess.
#[derive(Clone)]
pub(super) struct CountBacklog {
    name: Arc<str>,
    budget: u64,
    known: Option<Backlog>,
    counting: Option<BacklogCount>,
}

#[derive(Clone)]
struct BacklogCount {
    backlog: Backlog,
    reading: LogReading,
    pages: u32,
    /// Everything was counted.
    done: bool,
    /// The log starts after a position from which it was read.
    cut: bool,
}

impl CountBacklog {
    pub fn new(name: Arc<str>, budget: u64, known: Option<Backlog>) -> CountBacklog {
        CountBacklog { name, budget, known, counting: None }
    }

    fn counted(&self, backlog: Option<Backlog>) -> TopicOutcome {
        TopicOutcome::of(NextStep::Retain(Retained::Counted(self.name.clone(), backlog)))
    }

    pub fn decide(&mut self, context: &DecisionContext<'_>, facts: &Facts) -> TopicDecided {
        let Some(rows) = SubscriptionRows::find(facts, &self.name)? else {
            return Ok(TopicStep::Done(self.counted(None)));
        };
        if rows.subscription.row.max_backlog_bytes != self.budget {
            // The limit was changed since the subscriptions were listed.
            return Ok(TopicStep::Done(self.counted(None)));
        }
        let (marks, progress) = (&rows.marks, &rows.delivery.row);
        let reached = progress.reached();
        let head = marks.row.seq_at_head(&by_name(counts(facts, rows.topics())?));
        if head.saturating_sub(reached.seq).saturating_mul(EVENT_BYTES) <= self.budget {
            // Even with events of the largest size: a subscription that keeps up needs no read.
            return Ok(TopicStep::Done(self.counted(None)));
        }
        let known = &self.known;
        let counting = self.counting.get_or_insert_with(|| {
            let mut backlog = known
                .clone()
                .filter(|known| known.continues(marks.version, reached))
                .unwrap_or_else(|| Backlog::new(marks.version, reached));
            backlog.reach(reached);
            let reading = LogReading::new(marks.row.clone(), backlog.counted());
            BacklogCount { backlog, reading, pages: 0, done: false, cut: false }
        });
        while !counting.done && counting.pages < PAGES {
            let begun = counting.reading.at();
            let Some((log, took)) = read_on(facts, &mut counting.reading, PAGE_ROWS)? else { break };
            counting.cut |= log.first > begun.position + 1;
            for (seq, entry) in &took.events {
                let at = LogMark { seq: *seq, position: entry.position };
                counting.backlog.count(at, entry.body.len() as u64, self.budget);
            }
            counting.pages += 1;
            counting.done = !took.more;
        }
        if counting.cut && version(peek(facts, DELIVERY, &self.name)?) != rows.delivery.version {
            // Its events were dropped during the count. Otherwise only others were.
            return Ok(TopicStep::Done(self.counted(None)));
        }
        let mut backlog = counting.backlog.clone();
        let Some(through) = backlog.over(reached, self.budget) else {
            return Ok(TopicStep::Done(self.counted(Some(backlog))));
        };
        let announces = peek(facts, TOPIC, DELIVERIES)?.is_some();
        let mut progress = progress.clone();
        let lost = progress.shed(context.now, through);
        let mut edit = Edit::new(context);
        edit.put(DELIVERY, &self.name, record::write_progress(&progress));
        if let (true, Some((first, last))) = (announces, lost) {
            edit.0.appends.push(announcement::shed(&self.name, first, last, context.now.ms()));
        }
        backlog.reach(through);
        let announced = !edit.0.appends.is_empty();
        let lost = lost.map(|(first, last)| LostEvents { name: self.name.clone(), first, last });
        let meaning = self.counted(Some(backlog)).changing(vec![self.name.clone()]).announcing(announced);
        edit.commit(TopicOutcome { lost: lost.into_iter().collect(), ..meaning })
    }
}
