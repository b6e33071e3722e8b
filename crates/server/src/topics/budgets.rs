//! Keeps each subscription within the budget of its own: counts what waits, and moves the cursor of one that has too much. Of
//! several nodes one does it, that of the least name; if two do, the store arbitrates. Must hold: nobody else's events
//! are touched; a subscription without a budget costs nothing.

use super::keeper::{Behind, is_heard, tell};
use super::office::queue::{Queue, version};
use super::office::subscription::by_name;
use super::office::{ledger, place};
use crate::topics::TopicsApi;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_hub::topics::{Backlog, Reading};
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::error::Refusal;
use tavern_wire::record::{self, EVENTS, SUBSCRIPTION, SUBSCRIPTIONS, SubscriptionSettings};

/// Pages that are counted of one subscription in one look: the rest comes at the next.
const PAGES: u32 = 64;
/// No event is larger as the log keeps it: data and url at their largest, every sign of the url escaped.
const EVENT_BYTES: u64 = 80 << 10;

#[derive(Default)]
pub struct Budgets {
    /// Of the document that every change of a subscription raises, when they were read.
    listed: Option<u64>,
    /// The subscriptions that have a budget, with what was counted.
    bounded: BTreeMap<Arc<str>, (u64, Option<Backlog>)>,
}

impl Budgets {
    /// One look at all of them.
    pub async fn attend(&mut self, api: &TopicsApi) -> Result<(), Refusal> {
        let own = api.config.node.as_str();
        if api.node.other_nodes().iter().any(|name| **name < *own) {
            self.bounded.values_mut().for_each(|(_, counted)| *counted = None);
            return Ok(());
        }
        self.list(api).await?;
        for (name, (budget, counted)) in &mut self.bounded {
            let found = Queue::find(api, name).await?;
            *counted = match found {
                Some(queue) => attend_one(api, &queue, *budget, counted.take()).await?,
                None => None,
            };
        }
        Ok(())
    }

    async fn list(&mut self, api: &TopicsApi) -> Result<(), Refusal> {
        let now = version(ledger::document(api, EVENTS, SUBSCRIPTIONS).await?.as_ref());
        if self.listed == Some(now) {
            return Ok(());
        }
        let mut before = std::mem::take(&mut self.bounded);
        for found in ledger::all(api, SUBSCRIPTION).await? {
            let read = ledger::found(Some(found), |bytes| record::read::<SubscriptionSettings>(bytes))?;
            if let Some(one) = read.map(|kept| kept.row).filter(|one| one.max_backlog_bytes > 0) {
                let counted = before
                    .remove(&one.name)
                    .filter(|(budget, _)| *budget == one.max_backlog_bytes)
                    .and_then(|(_, counted)| counted);
                self.bounded.insert(one.name, (one.max_backlog_bytes, counted));
            }
        }
        self.listed = Some(now);
        Ok(())
    }
}

/// Counts on, and drops what is too much. None: to be counted anew.
async fn attend_one(
    api: &TopicsApi,
    queue: &Queue,
    budget: u64,
    counted: Option<Backlog>,
) -> Result<Option<Backlog>, Refusal> {
    let (marks, progress) = (&queue.marks, &queue.delivery.row);
    let reached = progress.reached();
    let topics = marks.row.topics().cloned().collect();
    let head = marks.row.seq_at_head(&by_name(ledger::counts(api, topics).await?));
    if head.saturating_sub(reached.seq).saturating_mul(EVENT_BYTES) <= budget {
        // However large they are: nothing is read for those who keep up.
        return Ok(None);
    }
    let mut backlog = counted
        .filter(|counted| counted.continues(marks.version, reached))
        .unwrap_or_else(|| Backlog::new(marks.version, reached));
    backlog.reach(reached);
    let mut reading = Reading::new(marks.row.clone(), backlog.counted());
    for _ in 0..PAGES {
        let begun = reading.at();
        let Some((log, took)) = place::step(api, &mut reading, PAGE_ROWS).await? else { break };
        if log.first > begun.position + 1 {
            // The log was cut meanwhile: the progress of this subscription is another now.
            return Ok(None);
        }
        for (seq, entry) in &took.events {
            let at = tavern_domain::delivery::LogMark { seq: *seq, position: entry.position };
            backlog.count(at, entry.body.len() as u64, budget);
        }
        if !took.more {
            break;
        }
    }
    let Some(through) = backlog.over(reached, budget) else { return Ok(Some(backlog)) };
    let mut progress = progress.clone();
    let lost = progress.shed(api.now(), through);
    let name = queue.name().clone();
    let behind = Behind { name, version: queue.delivery.version, progress, lost, copies: Vec::new() };
    if tell(api, &[behind], is_heard(api).await?, None).await? {
        backlog.reach(through);
    }
    // Whoever was quicker has changed it: what was counted may still count at the next look.
    Ok(Some(backlog))
}
