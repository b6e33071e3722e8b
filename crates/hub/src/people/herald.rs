//! What a user does, told to other services: the whole status, on a subject that anybody on the server of the bus can hear.
//! Told by the node on which it changed, from what the store says a moment later. Must hold: what is told last is true when
//! nothing changes any more; somebody who hides is offline here; a burst of changes costs one reading.

use super::People;
use super::load::{Task, followee_of};
use crate::core::{Core, Timer};
use std::collections::BTreeMap;
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::presence::{Fact, Rumour, Status, Turn, Visibility};
use tavern_engine::limits::RETRY_AFTER_MS;
use tavern_engine::{Answer, Found, Person, Read, Work};
use tavern_wire::bus::service::{self, Told};

/// Users in one reading.
const BATCH: usize = 500;

/// What waits to be told.
#[derive(Default)]
pub(super) struct Herald {
    /// At once, by user: the last change counts.
    now: BTreeMap<Arc<str>, Word>,
    /// Disconnects, which may turn out to be a change of pages.
    later: BTreeMap<(Time, Arc<str>), Word>,
    /// The store is being asked.
    reading: bool,
}

/// What changed, and where.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    turn: Turn,
    channel: Option<Arc<str>>,
}

impl Herald {
    /// When something waits to be told; now, if it does not wait for a time.
    fn next_due(&self, now: Time) -> Option<Time> {
        let later = self.later.first_key_value().map(|((due, _), _)| *due);
        if self.now.is_empty() { later } else { Some(now) }
    }

    fn take(&mut self, now: Time) -> Vec<(Arc<str>, Word)> {
        while let Some(due) = self.later.first_entry().filter(|due| due.key().0 <= now) {
            let ((_, user), word) = due.remove_entry();
            self.now.entry(user).or_insert(word);
        }
        let mut taken = Vec::new();
        while taken.len() < BATCH
            && let Some(next) = self.now.pop_first()
        {
            taken.push(next);
        }
        taken
    }
}

impl People {
    /// Something about a user has changed by what was done here.
    pub(super) fn herald(&mut self, core: &mut Core, user: &Arc<str>, rumour: &Rumour) {
        let now = core.now;
        let Rumour::Fact(fact) = rumour else { return };
        if !core.node.carrier.bus().is_some_and(|bus| bus.reaches_services()) {
            return;
        }
        let word = match fact {
            Fact::Place { channel, stay, .. } => {
                let turn = core.node.settings.activities.turn(channel, stay.is_some());
                Word { turn, channel: Some(channel.clone()) }
            }
            Fact::Shown { .. } => Word { turn: Turn::None, channel: None },
        };
        let herald = &mut self.herald;
        if word.turn == Turn::Disconnected {
            let due = now + core.node.settings.disconnect_ms;
            herald.later.insert((due, user.clone()), word);
            core.agenda.set(due, Timer::ServiceFeed);
        } else {
            herald.now.insert(user.clone(), word);
            core.agenda.set(core.now, Timer::ServiceFeed);
        }
    }

    pub(crate) fn tell_services(&mut self, core: &mut Core) {
        let now = core.now;
        if self.herald.reading {
            return;
        }
        let told = self.herald.take(now);
        if told.is_empty() {
            return;
        }
        self.herald.reading = true;
        let users = told.iter().map(|(user, _)| user.clone()).collect();
        self.ask_people(core, Task::Herald(told), Work::Read(Read::People { users, viewer: None }));
    }

    pub(super) fn heralds_read(&mut self, core: &mut Core, told: Vec<(Arc<str>, Word)>, answer: Answer) {
        let now = core.now;
        self.herald.reading = false;
        let Answer::Read(Found::People(people)) = answer else {
            let herald = &mut self.herald;
            let again = told.into_iter().map(|(user, word)| ((now + RETRY_AFTER_MS, user), word));
            herald.later.extend(again);
            return core.agenda.set(now + RETRY_AFTER_MS, Timer::ServiceFeed);
        };
        if let Some(due) = self.herald.next_due(now) {
            core.agenda.set(due, Timer::ServiceFeed);
        }
        for ((user, word), person) in told.into_iter().zip(&people) {
            self.tell_service(core, &user, &word, person);
        }
    }

    fn tell_service(&mut self, core: &mut Core, user: &Arc<str>, word: &Word, person: &Person) {
        let now = core.now;
        let followee = followee_of(now, person);
        // Who listens is not known, so only what everybody may see is said.
        let shown = followee.visibility == Visibility::Everyone;
        let hidden = Status::default();
        let status = if shown { followee.status(&core.node.settings.activities) } else { hidden };
        let activity = service::encode(&Told {
            user,
            turn: if shown { word.turn.clone() } else { Turn::Disconnected },
            channel: word.channel.as_deref().filter(|_| shown),
            name: followee.name.as_deref().filter(|_| shown),
            status: &status,
        });
        core.effects.abroad.extend(core.node.service_parcel(user, activity));
    }
}
