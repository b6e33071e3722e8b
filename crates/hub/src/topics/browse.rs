//! The stored events of a topic, as they are in the log, with the key that published each. Acknowledges nothing. Must hold:
//! events of a deleted topic of the same name are not shown.

use super::command::{BrowseFrom, TopicCaller, TopicReply};
use super::load::{LoadStop, by_name, counts, topic_page};
use super::outcome::{TopicDecided, TopicOutcome, TopicStep};
use super::position::behind;
use super::settings::check_topic_name;
use super::topic_admin::existing;
use crate::transaction::Facts;
use std::sync::Arc;
use tavern_domain::topic::{AUDIT, DELIVERIES, PARTIES, PRESENCE, is_reserved};
use tavern_store::LogEntry;
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{BatchEvent, browsed_entry, shown_id};

#[derive(Clone)]
pub(super) struct BrowseTopic {
    pub topic: Arc<str>,
    pub from: BrowseFrom,
    pub limit: u32,
}

impl BrowseTopic {
    pub fn decide(&self, facts: &Facts, caller: &TopicCaller) -> TopicDecided {
        check_topic_name(&self.topic)?;
        let subscribable = [PRESENCE, PARTIES, DELIVERIES].contains(&&*self.topic);
        if is_reserved(&self.topic) && !subscribable && !caller.admin {
            let message = "only a key with the scope \"admin\" may read this topic of the server";
            return Err(Refusal::new(Code::NotAllowed, message).into());
        }
        // The audit trail is there without a subscription, and before its first event.
        let topic = match &*self.topic {
            AUDIT => None,
            _ => Some(existing(facts, &self.topic)?.row),
        };
        let past_events = topic.as_ref().map_or(0, |topic| topic.past_events);
        let Some((first, limit)) = self.range(facts, past_events)? else {
            return Ok(browsed(Vec::new(), None));
        };
        let after = behind(facts, &self.topic, past_events.saturating_add(first))?;
        let found = topic_page(facts, &self.topic, after, limit)?;
        let rows = found.page.rows.iter().filter(|event| event.count > past_events);
        let rows: Vec<&LogEntry> = match self.from {
            BrowseFrom::After(_) => rows.collect(),
            BrowseFrom::Before(_) => rows.rev().collect(),
        };
        let number = |event: &LogEntry| event.count - past_events;
        let more = match self.from {
            BrowseFrom::After(_) => found.page.more,
            // The log may begin later.
            BrowseFrom::Before(_) => {
                first > 0 && rows.last().is_some_and(|oldest| number(oldest) == first + 1)
            }
        };
        let next = rows.last().filter(|_| more).map(|last| number(last));
        let mut entries = Vec::new();
        for event in rows {
            if !entries.is_empty() {
                entries.push(b',');
            }
            let id = shown_id(event.id.as_deref(), event.position, event.at.ms());
            let shown = BatchEvent { seq: number(event), id: &id, topic: &event.topic, body: &event.body };
            let publisher = topic.as_ref().and_then(|topic| topic.publisher_at(event.at.ms()));
            browsed_entry(&mut entries, shown, publisher.map(|publisher| &**publisher));
        }
        Ok(browsed(entries, next))
    }

    /// After which event to read, and how many. None: there can be nothing.
    fn range(&self, facts: &Facts, past_events: u64) -> Result<Option<(u64, u32)>, LoadStop> {
        let limit = self.limit.clamp(1, PAGE_ROWS);
        let before = match self.from {
            BrowseFrom::After(after) => return Ok(Some((after, limit))),
            BrowseFrom::Before(before) => before,
        };
        let all = by_name(counts(facts, vec![self.topic.clone()])?).get(&self.topic).copied().unwrap_or(0);
        let last = (before - 1).min(all.saturating_sub(past_events));
        let first = last.saturating_sub(u64::from(limit));
        Ok((last > 0).then_some((first, (last - first) as u32)))
    }
}

fn browsed(entries: Vec<u8>, next: Option<u64>) -> TopicStep {
    TopicStep::Done(TopicOutcome::reply(TopicReply::Browsed { entries, next }))
}
