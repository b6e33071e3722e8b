//! The timers of a shard: each goes to the feature that set it.

use super::Shard;
use crate::core::{Feature, Timer, poll, refusal, sweep};
use tavern_domain::Time;
use tavern_store::{StoreAnswer, StoreError};

impl Shard {
    /// The earliest time at which the shard has work.
    pub fn next_wake(&self) -> Option<Time> {
        sweep::next_wake(&self.core)
    }

    /// Runs the timers that are due.
    pub fn wake(&mut self, now: Time) {
        self.core.now = now;
        for claim in self.core.replies.take_late(now) {
            // The command may still be carried out.
            self.core.finish(claim, Err(refusal(&StoreAnswer::Failed(StoreError::timeout()))));
        }
        let mut unused = Vec::new();
        while let Some(timer) = self.core.agenda.take_due(now) {
            match timer {
                Timer::NameUnused(space, name) => unused.push((space, name)),
                timer => self.timer(timer),
            }
            self.route();
        }
        if !unused.is_empty() {
            self.core.node.bus_interests.release_unused(&self.core.node.registry, &unused);
        }
        for id in self.core.agenda.take_due_sessions(now) {
            poll::is_due(&mut self.core, id);
            self.presence.loss_is_due(&mut self.core, id);
        }
        if sweep::is_due(&self.core) {
            sweep::next_piece(&mut self.core);
        }
        self.route();
    }

    fn timer(&mut self, timer: Timer) {
        let core = &mut self.core;
        match timer {
            Timer::GraceEnds(key) => self.presence.end_grace(core, key),
            Timer::HoldEnds(key) => self.presence.sync_held(core, key),
            Timer::PresenceTick(channel) => self.presence.rooms().tick(core, &channel),
            Timer::RetryPresence => self.presence.retry(core),
            Timer::Replica(Feature::Presence, name) => self.presence.rooms().replica_is_due(core, &name),
            Timer::Replica(Feature::Inbox, name) => self.inbox.replica_is_due(core, &name),
            Timer::Replica(Feature::Party, name) => self.party.replica_is_due(core, &name),
            Timer::Replica(Feature::People, name) => self.people.replica_is_due(core, &name),
            Timer::Replica(Feature::History, name) => self.history.replica_is_due(core, &name),
            Timer::Replica(Feature::Control, name) => self.control.replica_is_due(core, &name),
            Timer::PartyDue(party) => self.party.wake_party(core, party),
            Timer::RetryParty(number) => self.party.retry(core, number),
            Timer::SnapshotTimeout(link, number) => self.party.snapshot_timeout(core, link, number),
            Timer::DisconnectShown(user) => self.people.show_disconnect(core, &user),
            Timer::ServiceFeed => self.people.publish_to_services(core),
            Timer::Migration(half) => self.migration.is_due(core, &self.presence, half),
            Timer::Departed => self.migration.check_departed(core),
            Timer::Pull(number) => self.topics.pull_is_due(core, number),
            Timer::Retention => self.topics.retention_is_due(core),
            Timer::HistoryCommit => self.history.commit(core),
            Timer::HistoryCheck(channel) => self.history.check(core, &channel),
            Timer::HistoryBegins(id, channel) => self.history.begins(core, id, &channel),
            Timer::HistoryFeed(id) => self.history.feed(core, id),
            Timer::HistorySweep => self.history.sweep_is_due(core),
            Timer::Control(number) => self.control.repeat(core, number),
            Timer::Replica(..) | Timer::NameUnused(..) => {}
        }
    }
}
