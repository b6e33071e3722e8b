//! The lease of a worker on one subscription, and the deadline in the store that lets any node take over from a
//! worker that stopped: it is later than the end of the lease and of any retry the worker waits for; a node that
//! finds it overdue checks the subscription. Must hold: an active subscription has a deadline; one without work has
//! none, or one that the next node to check deletes; no worker deletes the deadline of another one.

use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Deadline, Expect, Receipt, RowKey, TakeLease};

/// The kind of these deadlines; their names are those of the subscriptions.
pub const DELIVERY: &str = "delivery";

#[derive(Default)]
pub(super) struct HeldLease {
    /// Its number, and when it expires.
    held: Option<(u64, Time)>,
    /// The deadline at which other nodes check.
    watched: Option<Time>,
    /// A commit for the lease alone is in progress.
    pub taking: bool,
}

impl HeldLease {
    /// Not held yet; an earlier worker has left this deadline behind.
    pub fn new(watched: Option<Time>) -> HeldLease {
        HeldLease { held: None, watched, taking: false }
    }

    pub fn is_held(&self, now: Time) -> bool {
        self.held.is_some_and(|(_, until)| now < until)
    }

    pub fn ends(&self) -> Option<Time> {
        self.held.map(|(_, until)| until)
    }

    /// Whether more than two thirds of it remain.
    pub fn is_fresh(&self, now: Time, lease_ms: u64) -> bool {
        self.ends().is_some_and(|until| until.since(now) > lease_ms / 3 * 2)
    }

    pub fn expect(&self, name: &str) -> Option<Expect> {
        self.held.map(|(number, _)| Expect { key: RowKey::Lease(lease_name(name)), version: number })
    }

    /// The store has granted it. True: it was not held before.
    pub fn granted(&mut self, receipt: &Receipt, lease_ms: u64) -> Option<bool> {
        let number = receipt.taken.first()?;
        Some(self.held.replace((*number, receipt.time + lease_ms)).is_none())
    }

    /// The deadline that is stored with a lease taken now; a queue that waits for a retry lets its lease expire.
    pub fn watch(&mut self, name: &str, lease_ends: Time, next_wake: Option<Time>) -> Deadline {
        let due = next_wake.map_or(lease_ends, |wake| wake.max(lease_ends));
        self.watched = Some(due);
        Deadline::new(due, DELIVERY, name)
    }

    /// Whether this time is after the stored deadline.
    pub fn is_beyond(&self, time: Time) -> bool {
        self.watched.is_none_or(|due| time > due)
    }

    /// Whether no later deadline is stored than this one.
    pub fn is_last(&self, due: Time) -> bool {
        self.watched.is_none_or(|known| known <= due)
    }

    pub fn deadline(&self, name: &str) -> Option<Deadline> {
        self.watched.map(|due| Deadline::new(due, DELIVERY, name))
    }
}

pub(super) fn take(name: &str, lease_ms: u64) -> TakeLease {
    TakeLease { name: lease_name(name), lease_ms }
}

fn lease_name(name: &str) -> Arc<str> {
    format!("delivery/{name}").into()
}
