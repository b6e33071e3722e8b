//! When the faults have ended, every event of a subscription is delivered, a dead letter, or reported as lost, and no
//! worker is active.

use super::{TopicsWorkload, is_poison};
use crate::cluster::Cluster;
use crate::workload::Outcome;
use std::collections::BTreeSet;
use tavern_domain::Time;
use tavern_store::{Found, Read, Row, RowKind};
use tavern_wire::record::{self, DeadLetterRecord};

impl TopicsWorkload {
    pub(super) fn check_deliveries(&mut self, cluster: &Cluster) -> Outcome {
        let mut letters = 0;
        for endpoint in &self.endpoints {
            let dead = dead_letters(cluster, &endpoint.name)?;
            letters += dead.len() as u64;
            let events = self.log.queue_len(&endpoint.name);
            endpoint.check_end(events, &dead).map_err(|error| format!("{}: {error}", endpoint.name))?;
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

/// The numbers of the events that a subscription has as dead letters.
pub fn dead_letters(cluster: &Cluster, subscription: &str) -> Result<BTreeSet<u64>, String> {
    let read = Read::Rows { kind: RowKind::Document, after: None, limit: 1000 };
    let Found::Rows(page) = cluster.peek(read) else { return Err("no documents".into()) };
    let mut dead = BTreeSet::new();
    for row in page.rows {
        let Row::Document(document) = row.row else { continue };
        let own = document.key.name().strip_prefix(subscription).is_some_and(|rest| rest.starts_with('/'));
        if document.key.kind() == record::DEAD && own {
            let letter: DeadLetterRecord = record::read(&document.body).map_err(|error| error.to_string())?;
            if !letter.id.parse().is_ok_and(is_poison) {
                return Err(format!("{subscription} never refused {letter:?}"));
            }
            dead.insert(letter.seq);
        }
    }
    Ok(dead)
}
