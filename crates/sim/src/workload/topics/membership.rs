//! Which topics each subscription has, as administrators were told. Must hold: an event that is added to a topic is
//! queued for the subscriptions that have the topic, and for no other.

use crate::workload::Outcome;
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;

/// By subscription and topic.
#[derive(Default)]
pub struct Memberships(BTreeMap<(Arc<str>, usize), TopicMembership>);

/// Since when a subscription may have a topic or not. Settled: it was told.
struct TopicMembership {
    changes_at: Time,
    settled: Option<bool>,
}

impl Memberships {
    /// A change is under way.
    pub fn unsettle(&mut self, now: Time, subscription: &str, topic: usize) {
        let changed = TopicMembership { changes_at: now, settled: None };
        self.0.insert((subscription.into(), topic), changed);
    }

    /// A change was acknowledged.
    pub fn settle(&mut self, subscription: &str, topic: usize, member: bool) {
        if let Some(known) = self.0.get_mut(&(subscription.into(), topic)) {
            known.settled = Some(member);
        }
    }

    /// An event is added to the topic; the subscription has the topic in the store, or not.
    pub fn judge(&self, subscription: &str, topic: usize, stored: bool) -> Outcome {
        let known = self.0.get(&(subscription.into(), topic)).and_then(|known| known.settled);
        match (known, stored) {
            (Some(true), false) => Err(format!("{subscription} lacks topic {topic}, which it was given")),
            (Some(false), true) => Err(format!("{subscription} still has topic {topic}, which it lost")),
            _ => Ok(()),
        }
    }

    /// Whether an event of that time may be added to the subscription or removed from it.
    pub fn may_change(&self, subscription: &str, topic: usize, at: Time) -> bool {
        self.0.get(&(subscription.into(), topic)).is_none_or(|known| known.changes_at <= at)
    }
}
