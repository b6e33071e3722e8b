//! Status changes for other services: the whole status of a user, on a subject that any client of the bus can read.
//! Published by the node that committed the change, from a read of the store a moment later. Must hold: when changes
//! stop, the last published status is the current one; a hidden user is offline here; a burst of changes costs one
//! read.

use super::person::followee_of;
use crate::core::{Core, Feature, Timer};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Status, StatusCause, UserFact, UserUpdate, Visibility};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{Found, Read, StoreAnswer, Ticket, UserSnapshot, Work};
use tavern_wire::bus::service::{self, StatusEvent};

/// Users in one read.
const BATCH: usize = 500;

#[derive(Default)]
pub(super) struct ServiceFeed {
    /// Changes to publish now, by user: the last one wins.
    ready: BTreeMap<Arc<str>, StatusChange>,
    /// Disconnects, which may only be a page change, and changes whose users could not be read.
    delayed: BTreeMap<(Time, Arc<str>), StatusChange>,
    reading: Option<ServiceRead>,
}

/// The read in progress, and the changes it is for.
struct ServiceRead {
    ticket: Ticket,
    changes: Vec<(Arc<str>, StatusChange)>,
}

/// A change, and its channel.
struct StatusChange {
    turn: StatusCause,
    channel: Option<Arc<str>>,
}

impl ServiceFeed {
    pub fn owns(&self, ticket: Ticket) -> bool {
        self.reading.as_ref().is_some_and(|reading| reading.ticket == ticket)
    }

    /// An update about a user was committed on this shard.
    pub fn status_changed(&mut self, core: &mut Core, user: &Arc<str>, update: &UserUpdate) {
        let UserUpdate::Fact(fact) = update else { return };
        if !core.node.bus_interests.bus().is_some_and(|bus| bus.reaches_services()) {
            return;
        }
        let change = match fact {
            UserFact::Channel { channel, presence: stay, .. } => {
                let turn = core.node.settings.activities.cause(channel, stay.is_some());
                StatusChange { turn, channel: Some(channel.clone()) }
            }
            UserFact::Shown { .. } => StatusChange { turn: StatusCause::None, channel: None },
        };
        if change.turn == StatusCause::Disconnected {
            let due = core.now + core.node.settings.disconnect_ms;
            self.delayed.insert((due, user.clone()), change);
            core.agenda.set(due, Timer::ServiceFeed);
        } else {
            self.ready.insert(user.clone(), change);
            core.agenda.set(core.now, Timer::ServiceFeed);
        }
    }

    /// Reads the users whose changes are due. Changes that are due during a read wait for its end.
    pub fn read_due(&mut self, core: &mut Core) {
        if self.reading.is_some() {
            return;
        }
        let changes = self.take_due(core.now);
        if changes.is_empty() {
            return;
        }
        let users = changes.iter().map(|(user, _)| user.clone()).collect();
        let ticket = core.submit(Feature::People, Work::Read(Read::People { users, viewer: None }));
        self.reading = Some(ServiceRead { ticket, changes });
    }

    pub fn answered(&mut self, core: &mut Core, answer: StoreAnswer) {
        let Some(ServiceRead { changes, .. }) = self.reading.take() else { return };
        let StoreAnswer::Read(Found::People(people)) = answer else {
            let due = core.now + RETRY_AFTER_MS;
            self.delayed.extend(changes.into_iter().map(|(user, change)| ((due, user), change)));
            return core.agenda.set(due, Timer::ServiceFeed);
        };
        if let Some(due) = self.next_due(core.now) {
            core.agenda.set(due, Timer::ServiceFeed);
        }
        for ((_, change), person) in changes.into_iter().zip(&people) {
            publish(core, &change, person);
        }
    }

    fn next_due(&self, now: Time) -> Option<Time> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        if self.ready.is_empty() { delayed } else { Some(now) }
    }

    fn take_due(&mut self, now: Time) -> Vec<(Arc<str>, StatusChange)> {
        while let Some(due) = self.delayed.first_entry().filter(|due| due.key().0 <= now) {
            let ((_, user), change) = due.remove_entry();
            self.ready.entry(user).or_insert(change);
        }
        let mut taken = Vec::new();
        while taken.len() < BATCH
            && let Some(next) = self.ready.pop_first()
        {
            taken.push(next);
        }
        taken
    }
}

fn publish(core: &mut Core, change: &StatusChange, person: &UserSnapshot) {
    let followee = followee_of(core.now, person);
    // Any service may read this, so only what everyone may see is published.
    let visible = followee.visibility == Visibility::Everyone;
    let status = match visible {
        true => followee.status(&core.node.settings.activities),
        false => Status::default(),
    };
    let activity = service::encode(&StatusEvent {
        user: &person.user,
        turn: if visible { change.turn.clone() } else { StatusCause::Disconnected },
        channel: change.channel.as_deref().filter(|_| visible),
        name: followee.name.as_deref().filter(|_| visible),
        status: &status,
    });
    core.effects.bus_messages.extend(core.node.service_packet(&person.user, activity));
}
