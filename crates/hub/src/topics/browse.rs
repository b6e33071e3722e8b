//! The stored events of a topic, as they are in the log. Acknowledges nothing. Must hold: events of a deleted topic of
//! the same name are not shown.

use super::command::{TopicCaller, TopicReply};
use super::load::topic_page;
use super::outcome::{TopicDecided, TopicOutcome, TopicStep};
use super::position::behind;
use super::settings::check_topic_name;
use super::topic_admin::existing;
use crate::transaction::Facts;
use std::sync::Arc;
use tavern_domain::topic::{AUDIT, DELIVERIES, PARTIES, PRESENCE, is_reserved};
use tavern_store::limits::PAGE_ROWS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{BatchEvent, entry, shown_id};

#[derive(Clone)]
pub(super) struct BrowseTopic {
    pub topic: Arc<str>,
    /// The `seq` of an event, as it is shown.
    pub after: u64,
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
        let past_events = match &*self.topic {
            AUDIT => 0,
            _ => existing(facts, &self.topic)?.row.past_events,
        };
        let limit = self.limit.clamp(1, PAGE_ROWS);
        let after = behind(facts, &self.topic, past_events.saturating_add(self.after))?;
        let found = topic_page(facts, &self.topic, after, limit)?;
        let mut entries = Vec::new();
        for event in found.page.rows.iter().filter(|event| event.count > past_events) {
            if !entries.is_empty() {
                entries.push(b',');
            }
            let id = shown_id(event.id.as_deref(), event.position, event.at.ms());
            let shown = BatchEvent {
                seq: event.count - past_events,
                id: &id,
                topic: &event.topic,
                body: &event.body,
            };
            entry(&mut entries, shown);
        }
        let last = found.page.rows.last().filter(|_| found.page.more);
        let next = last.map(|last| last.count.saturating_sub(past_events));
        Ok(TopicStep::Done(TopicOutcome::reply(TopicReply::Browsed { entries, next })))
    }
}
