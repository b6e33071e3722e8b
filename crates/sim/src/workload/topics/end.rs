//! When the faults have ended, every acknowledged event is delivered or a dead letter, in publish order, and no
//! worker is active.

use super::publisher::SentEvent;
use super::{TopicsWorkload, dead_letters, is_poison};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use std::collections::BTreeMap;
use tavern_domain::Time;
use tavern_store::{Found, Read};

impl TopicsWorkload {
    pub(super) fn check_deliveries(&mut self, cluster: &Cluster) -> Outcome {
        let mut letters = 0;
        for endpoint in &self.endpoints {
            let dead = dead_letters(cluster, &endpoint.name)?;
            letters += dead.len() as u64;
            let places: BTreeMap<u64, u64> =
                endpoint.events.iter().map(|(seq, number)| (*number, *seq)).collect();
            let last = endpoint.events.keys().chain(&dead).max().copied().unwrap_or(0);
            let hole = (1..=last).find(|seq| !endpoint.events.contains_key(seq) && !dead.contains(seq));
            if let Some(hole) = hole {
                return Err(format!("{} never got {hole} of {last}", endpoint.name));
            }
            if let Some(number) = places.keys().find(|number| self.publisher.is_stolen(**number)) {
                return Err(format!("{} got {number}, which was refused", endpoint.name));
            }
            let own =
                self.publisher.accepted.iter().filter(|(_, event)| endpoint.topics.contains(&event.topic));
            let own: Vec<(u64, SentEvent)> = own.map(|(number, event)| (*number, *event)).collect();
            let poison = own.iter().filter(|(number, _)| is_poison(*number)).count();
            if dead.len() < poison {
                return Err(format!("{} has {} dead letters of {poison}", endpoint.name, dead.len()));
            }
            check_order(&own, &places).map_err(|error| format!("{}: {error}", endpoint.name))?;
        }
        self.counts.insert("dead letters", letters);
        Ok(())
    }

    /// No post is in flight, and no deadline is left.
    pub(super) fn check_rest(&self, cluster: &Cluster) -> Outcome {
        if let Some((due, answer)) = self.posts.first() {
            return Err(format!("{} is still posted to, until {}", answer.subscription, due.ms()));
        }
        let read = Read::DueDeadlines { by: Time::NEVER, after: None, limit: 10 };
        if let Found::Deadlines(page) = cluster.peek(read)
            && let Some(deadline) = page.rows.first()
        {
            return Err(format!("a deadline is left: {deadline:?}"));
        }
        Ok(())
    }
}

/// Each event was delivered, after the events that were acknowledged before it was sent.
fn check_order(own: &[(u64, SentEvent)], places: &BTreeMap<u64, u64>) -> Outcome {
    let taken = own.iter().filter(|(number, _)| !is_poison(*number));
    let mut events = Vec::new();
    for (number, event) in taken {
        let seq = places.get(number).ok_or_else(|| format!("event {number} never came"))?;
        events.push((*number, *event, *seq));
    }
    for (one, first, place) in &events {
        let later = events.iter().filter(|(_, event, _)| event.topic == first.topic);
        for (two, _, other) in later.filter(|(_, event, _)| first.accepted_at < event.sent_at) {
            if other < place {
                return Err(format!("event {one} was answered before {two} was sent, and came after it"));
            }
        }
    }
    Ok(())
}
