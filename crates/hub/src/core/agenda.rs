//! The timers of a shard, ordered by the time they are due.
//! Must hold: nothing fires early; a timer that was set fires once unless it is cancelled.

use crate::connection::LinkId;
use crate::core::Feature;
use crate::core::listener::ListenerId;
use crate::core::wheel::Wheel;
use crate::event::Namespace;
use std::collections::BTreeSet;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_store::PresenceKey;

/// A timer. It may be stale: its handler checks the current state.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    /// The grace period of a lost client ends.
    GraceEnds(PresenceKey),
    /// The time limit of a hold (by an app or a party) ends.
    HoldEnds(PresenceKey),
    /// The collected presence changes of a channel are sent to its watchers.
    PresenceTick(Arc<str>),
    /// Presence changes that the store did not accept are retried.
    RetryPresence,
    /// A copy of stored rows must be looked at: an update is missing, a read failed, or nobody uses it.
    Replica(Feature, Arc<str>),
    /// A deadline of a party: an invite, a gathering ticket, the grace period of a member.
    PartyDue(u64),
    /// A party command that waits for a user to come online is retried.
    RetryParty(u64),
    /// A reply has waited long enough for the snapshot of the user's party; the number of the request.
    SnapshotTimeout(LinkId, u64),
    /// The delay before followers see a disconnect is over.
    DisconnectShown(Arc<str>),
    /// Status changes are published for other services.
    ServiceFeed,
    /// A session on its way to or from another node.
    Migration(u64),
    /// A session migrated away: check that its client is present under the new node.
    Departed,
    /// A waiting pull checks its queue again.
    Pull(u64),
    /// Retention checks the topic log for events that are too old or too many.
    Retention,
    /// Messages were published to channels with history in this turn: store them.
    HistoryCommit,
    /// It is not known whether messages of a channel with history were stored: compare with the store.
    HistoryCheck(Arc<str>),
    /// A client has read its mailbox: send more of the messages that it missed.
    HistoryFeed(ListenerId),
    /// A subscriber of a channel with history has its answer: messages follow.
    HistoryBegins(ListenerId, Arc<str>),
    /// Expired history is removed.
    HistorySweep,
    /// An order about a user is not answered by every shard.
    Control(u64),
    /// A name is released on the bus, unless it has a listener again.
    NameUnused(Namespace, Arc<[u8]>),
}

pub(crate) struct Agenda {
    timers: BTreeSet<(Time, Timer)>,
    /// Parked polls and lost connections: one of these for each session, so setting them must be cheap.
    sessions: Wheel<ListenerId>,
}

impl Agenda {
    pub fn new(now: Time) -> Agenda {
        Agenda { timers: BTreeSet::new(), sessions: Wheel::new(now) }
    }

    pub fn set(&mut self, due: Time, timer: Timer) {
        self.timers.insert((due, timer));
    }

    pub fn cancel(&mut self, due: Time, timer: Timer) {
        self.timers.remove(&(due, timer));
    }

    /// Sets the timer of a session: when its parked poll times out, or when its client counts as lost.
    pub fn set_session(&mut self, due: Time, id: ListenerId) {
        self.sessions.set(due, id);
    }

    /// The earliest time at which a timer may be due.
    pub fn next_wake(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(due, _)| *due);
        [timer, self.sessions.next_wake()].into_iter().flatten().min()
    }

    /// Takes the next timer that is due.
    pub fn take_due(&mut self, now: Time) -> Option<Timer> {
        let (due, _) = self.timers.first()?;
        if *due > now {
            return None;
        }
        self.timers.pop_first().map(|(_, timer)| timer)
    }

    /// Takes the sessions whose timer is due.
    pub fn take_due_sessions(&mut self, now: Time) -> Vec<ListenerId> {
        let mut due = Vec::new();
        self.sessions.expire(now, &mut due);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_not_early() {
        let mut agenda = Agenda::new(Time(0));
        agenda.set(Time(20), Timer::Retention);
        agenda.set(Time(10), Timer::PartyDue(7));
        agenda.set(Time(10), Timer::PartyDue(7));
        assert_eq!(agenda.next_wake(), Some(Time(10)));
        assert_eq!(agenda.take_due(Time(9)), None);
        assert_eq!(agenda.take_due(Time(15)), Some(Timer::PartyDue(7)));
        assert_eq!(agenda.take_due(Time(15)), None);
        agenda.cancel(Time(20), Timer::Retention);
        assert_eq!(agenda.next_wake(), None);
    }
}
