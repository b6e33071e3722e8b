//! What lets any node follow a worker that sleeps: a deadline in the store, beyond the end of its lease and of what it waits for. Whoever
//! finds it overdue looks at the subscription. Must hold: a subscription that is worked on has a deadline; one whose work is
//! done has none, or one that whoever looks takes away; nobody takes away another's.

use super::courier::{Asked, Courier, LINGER_MS};
use super::line::{Line, State};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_engine::{Commit, Deadline, Expect, Work};

/// The kind of these deadlines; their names are those of the subscriptions.
pub const DELIVERY: &str = "delivery";

impl Courier {
    /// The deadline that goes along with a lease that is taken now.
    pub(super) fn watch(&mut self, now: Time, name: &Arc<str>) -> Option<Deadline> {
        let lease_ends = now + self.rules.lease_ms;
        let active = self.lines.get_mut(name).and_then(Line::active)?;
        // Who waits for a retry has no lease meanwhile.
        let due = active.machine.next_wake().map_or(lease_ends, |wake| wake.max(lease_ends));
        active.watched = Some(due);
        Some(Deadline::new(due, DELIVERY, name))
    }

    /// How long what is known of a subscription is kept after its last work: not until others look after it.
    pub(super) fn linger_ms(&self) -> u64 {
        LINGER_MS.min(self.rules.lease_ms / 2)
    }

    /// Its work is done: nobody need look.
    pub(super) fn unwatch(&mut self, name: &Arc<str>, due: Time) {
        let deadline = Deadline::new(due, DELIVERY, name);
        let expects = vec![Expect { key: deadline.key(), version: due.ms() }];
        let deletes = vec![deadline.key()];
        let commit = Commit { writer: Some(self.writer()), expects, deletes, ..Commit::default() };
        // Somebody else may have moved it, and looks after it then.
        self.ask(Asked::Unwatch, Work::Commit(commit));
    }

    /// Nobody has renewed the deadline of a subscription: its worker sleeps, or has left it behind.
    pub fn overdue(&mut self, now: Time, deadline: &Deadline) {
        let (name, due) = (&deadline.name, deadline.due);
        if self.listed.is_none() || self.is_stopping() {
            return;
        }
        let Some(line) = self.lines.get_mut(name).filter(|line| !line.subscription.pull) else {
            return self.unwatch(name, due);
        };
        match &mut line.state {
            State::Active(active) => {
                if active.watched.is_none_or(|known| known <= due) {
                    // It is worked on here, without a lease: while it waits for its endpoint, or rests.
                    self.rearm(now, name, due);
                }
            }
            State::Waits | State::Loads(_) => line.overdue = Some(due),
            State::Idle | State::Elsewhere => {
                (line.state, line.hungry, line.overdue) = (State::Idle, true, Some(due));
                self.queue(name);
            }
        }
    }

    fn rearm(&mut self, now: Time, name: &Arc<str>, due: Time) {
        let Some(deadline) = self.watch(now, name) else { return };
        let expects = vec![Expect { key: deadline.key(), version: due.ms() }];
        let commit =
            Commit { writer: Some(self.writer()), expects, deadlines: vec![deadline], ..Commit::default() };
        self.ask(Asked::Unwatch, Work::Commit(commit));
    }
}
