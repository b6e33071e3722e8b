//! The lease of a worker on one subscription, and the deadline in the store that lets any node follow a worker that
//! stopped: it lies beyond the end of the lease and of what the worker waits for; who finds it overdue looks at the
//! subscription. Must hold: a subscription that is worked on has a deadline; one whose work is done has none, or one
//! that the next node to look deletes; nobody deletes the deadline of another worker.

use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::{Deadline, Expect, Receipt, RowKey, TakeLease};

/// The kind of these deadlines; their names are those of the subscriptions.
pub const DELIVERY: &str = "delivery";

#[derive(Default)]
pub(super) struct HeldLease {
    /// Its number, and until when it is held.
    held: Option<(u64, Time)>,
    /// The deadline by which others look.
    watched: Option<Time>,
    /// A commit for the lease alone is under way.
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

    /// Whether more than two thirds of it are left.
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

    /// The deadline that goes along with a lease taken now; a queue that waits for a retry has no lease meanwhile.
    pub fn watch(&mut self, name: &str, lease_ends: Time, next_wake: Option<Time>) -> Deadline {
        let due = next_wake.map_or(lease_ends, |wake| wake.max(lease_ends));
        self.watched = Some(due);
        Deadline::new(due, DELIVERY, name)
    }

    /// Whether this time lies beyond the deadline that others know.
    pub fn is_beyond(&self, time: Time) -> bool {
        self.watched.is_none_or(|due| time > due)
    }

    /// Whether no later deadline is known than this one.
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
