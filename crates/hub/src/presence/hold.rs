//! What an app says about a user: he is in a channel, for as long as it says so, carried by his clients in another
//! channel, or by himself until a time. Must hold: nobody is there without a client that carries him, or a time that
//! still runs; who carries him takes him along when it leaves, is lost and comes back, on whichever node.

use super::Presence;
use super::step::commit_of;
use super::task::{Act, Step, Task};
use crate::core::{Claim, Core, Feature, Timer, refusal};
use crate::rows::{HOLD, hold_deadline_key, remove_hold};
use tavern_domain::presence::{Attendance, Change, Departure, Home, Input, Loss};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_engine::{
    Answer, Commit, Deadline, Expect, Found, Hold, Person, Presence as PresenceRow, PresenceKey, Read,
    Receipt, Row, RowKey, StoreError, Versioned, Work,
};

/// Changes of mind in a row after which an order gives up.
const TRIES: u8 = 32;

/// A hold on its way into the store.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    hold: Hold,
    claim: Claim,
    tries: u8,
}

/// Who vouches for somebody whom an app put somewhere by himself: no node.
fn nowhere() -> Home {
    Home { node: "".into(), epoch: Epoch(0) }
}

impl Presence {
    /// Nobody is there: what an app said about him goes all the same.
    pub(super) fn forget_hold(&mut self, core: &mut Core, key: &PresenceKey) {
        let mut commit = Commit { writer: Some(core.writer()), ..Commit::default() };
        remove_hold(&mut commit, key);
        core.submit(Feature::None, Work::Commit(commit));
    }

    /// An app puts somebody into a channel.
    pub(crate) fn hold(&mut self, core: &mut Core, hold: Hold, claim: Claim) {
        self.read_hold(core, Holding { hold, claim, tries: 0 });
    }

    fn read_hold(&mut self, core: &mut Core, holding: Holding) {
        let read = Read::Hold(holding.hold.key.clone());
        self.submit(core, Task::Holding(holding), Work::Read(read));
    }

    /// An app takes somebody out of a channel.
    pub(crate) fn release(&mut self, core: &mut Core, key: PresenceKey, claim: Claim) {
        let step = Step { claim: Some(claim), ..Step::of(key, Act::Release) };
        self.begin_step(core, step);
    }

    pub(super) fn hold_answered(&mut self, core: &mut Core, holding: Holding, answer: Answer) {
        match answer {
            Answer::Read(Found::Hold(known)) => self.keep_hold(core, holding, known),
            Answer::Committed(_) => {
                let Holding { hold, claim, .. } = holding;
                if let Some(until) = hold.until {
                    core.agenda.set(until, Timer::HoldEnds(hold.key.clone()));
                }
                let ride = Act::Ride { gone: Vec::new() };
                self.begin_step(core, Step { claim: Some(claim), ..Step::of(hold.key, ride) });
            }
            Answer::Failed(StoreError::Conflict { .. }) if holding.tries < TRIES => {
                self.read_hold(core, Holding { tries: holding.tries + 1, ..holding });
            }
            answer => core.finish(holding.claim, Err(refusal(&answer))),
        }
    }

    fn keep_hold(&mut self, core: &mut Core, holding: Holding, known: Option<Versioned<Hold>>) {
        let hold = &holding.hold;
        let key = RowKey::Hold(hold.key.clone());
        let deadline = hold.key.to_string();
        let version = known.as_ref().map_or(0, |row| row.version);
        let mut commit = Commit {
            writer: Some(core.writer()),
            expects: vec![Expect { key, version }],
            puts: vec![Row::Hold(hold.clone())],
            ..Commit::default()
        };
        match hold.until {
            Some(until) => commit.deadlines.push(Deadline::new(until, HOLD, &deadline)),
            None => commit.deletes.push(hold_deadline_key(&hold.key)),
        }
        self.submit(core, Task::Holding(holding), Work::Commit(commit));
    }

    /// Reads what a ride depends on: the hold, then the user wherever he is.
    pub(super) fn read_ride(&mut self, core: &mut Core, step: Step) {
        let work = Work::Read(Read::Hold(step.key.clone()));
        self.submit(core, Task::Ride(step, None), work);
    }

    pub(super) fn ride_read(
        &mut self,
        core: &mut Core,
        step: Step,
        hold: Option<Versioned<Hold>>,
        answer: Answer,
    ) -> Option<(Step, Answer)> {
        match answer {
            Answer::Read(Found::Hold(None)) => self.end_step(core, &step, Ok(Vec::new())),
            Answer::Read(Found::Hold(Some(hold))) => {
                let read = Read::People { users: vec![step.key.user.clone()], viewer: None };
                self.submit(core, Task::Ride(step, Some(hold)), Work::Read(read));
            }
            Answer::Read(Found::People(mut people)) => match (people.pop(), hold) {
                (Some(person), Some(hold)) => self.decide_ride(core, step, &hold, &person),
                _ => self.end_step(core, &step, Ok(Vec::new())),
            },
            answer => return Some((step, answer)),
        }
        None
    }

    /// Brings somebody who is held to where his carriers are.
    fn decide_ride(&mut self, core: &mut Core, mut step: Step, hold: &Versioned<Hold>, person: &Person) {
        let now = core.now;
        let Act::Ride { gone } = &step.act else { return };
        let at = |channel: &str| person.presences.iter().find(|row| *row.row.key.channel == *channel);
        let carrier = hold.row.carrier.as_deref().and_then(at);
        let own = at(&step.key.channel);
        let over = hold.row.until.is_some_and(|until| now >= until);
        let before = own.map(|row| row.row.attendance.clone()).unwrap_or_default();
        let mut attendance = before.clone();
        let mut changes = Vec::new();
        if over {
            expire(now, &mut attendance, carrier, &mut changes);
        } else {
            let grace_ms = core.grace_ms(&step.key.channel);
            let by_himself = hold.row.carrier.is_none().then(|| ClientId::from_random(core.dice.roll()));
            arrive(now, &mut attendance, carrier, by_himself, &mut changes);
            depart(now, &mut attendance, carrier, gone, grace_ms, &mut changes);
        }
        let known = own.or(carrier).map(|row| &row.row);
        step.name = known.and_then(|row| row.name.clone());
        step.visibility = Some(person.known.as_ref().map(|row| row.row.visibility).unwrap_or_default());
        let version = own.map_or(0, |row| row.version);
        if attendance == before && changes.is_empty() {
            if over {
                let (key, deadline) = (RowKey::Hold(step.key.clone()), hold_deadline_key(&step.key));
                let expects = vec![Expect { key: key.clone(), version: hold.version }];
                let deletes = vec![key, deadline];
                let commit = Commit { writer: Some(core.writer()), expects, deletes, ..Commit::default() };
                core.submit(Feature::None, Work::Commit(commit));
            }
            return self.end_step(core, &step, Ok(Vec::new()));
        }
        let mut commit = commit_of(core, &step, core.home(), version, &before, attendance.clone(), &changes);
        // If the app or a carrier changes its mind meanwhile, all of this is decided again.
        commit.expects.push(Expect { key: RowKey::Hold(step.key.clone()), version: hold.version });
        if let Some(channel) = &hold.row.carrier {
            let key = PresenceKey { channel: channel.clone(), user: step.key.user.clone() };
            commit
                .expects
                .push(Expect { key: RowKey::Presence(key), version: carrier.map_or(0, |row| row.version) });
        }
        if over {
            remove_hold(&mut commit, &step.key);
        }
        self.submit_commit(core, step, &attendance, changes, commit);
    }

    /// Who carries somebody has moved: he moves along.
    pub(super) fn move_riders(
        &mut self,
        core: &mut Core,
        step: &Step,
        changes: &[Change],
        receipt: &Receipt,
    ) {
        for held in &receipt.held {
            // Who came there by itself stays by itself.
            let session = step.listener.and_then(|id| core.listeners.get(id)?.session());
            let stays = session.is_some_and(|session| session.present.has(&held.channel));
            let gone = changes.iter().filter_map(|change| match change {
                Change::ClientOffline { client, reason } if !stays => Some((*client, *reason)),
                _ => None,
            });
            let key = PresenceKey { channel: held.channel.clone(), user: held.carrier.user.clone() };
            let ride = Act::Ride { gone: gone.collect() };
            self.begin_step(core, Step::of(key, ride));
        }
    }

    /// Brings what is held in a channel to where its carrier is.
    pub(crate) fn ride(&mut self, core: &mut Core, key: PresenceKey) {
        self.begin_step(core, Step::of(key, Act::Ride { gone: Vec::new() }));
    }
}

/// Everybody who carries him is there, and he himself if nobody has to.
fn arrive(
    now: Time,
    attendance: &mut Attendance,
    carrier: Option<&Versioned<PresenceRow>>,
    by_himself: Option<ClientId>,
    changes: &mut Vec<Change>,
) {
    let carriers = carrier.into_iter().flat_map(|row| row.row.attendance.living());
    for client in carriers {
        let input = Input::Join { client: client.client, home: client.home.clone(), state: None };
        attendance.handle(now, input, changes);
    }
    let there = attendance.living().any(|client| client.home == nowhere());
    if let Some(client) = by_himself.filter(|_| !there) {
        attendance.handle(now, Input::Join { client, home: nowhere(), state: None }, changes);
    }
}

/// Those who carried him and are gone take him along.
fn depart(
    now: Time,
    attendance: &mut Attendance,
    carrier: Option<&Versioned<PresenceRow>>,
    gone: &[(ClientId, Departure)],
    grace_ms: u64,
    changes: &mut Vec<Change>,
) {
    let clients = carrier.map_or(&[][..], |row| row.row.attendance.clients());
    for (client, reason) in gone {
        let client = *client;
        match clients.iter().find(|known| known.client == client) {
            Some(known) if known.lost.is_none() => {}
            Some(known) => {
                let at = known.lost.map_or(now, |lost| lost.at);
                let reason = if reason.is_explicit() { Departure::Lost } else { *reason };
                attendance.handle(now, Input::Lose { client, loss: Loss { at, grace_ms, reason } }, changes);
            }
            None if reason.is_explicit() => {
                attendance.handle(now, Input::Leave { client, reason: *reason }, changes);
            }
            None => {
                let loss = Loss { at: now, grace_ms, reason: *reason };
                attendance.handle(now, Input::Lose { client, loss }, changes);
            }
        }
    }
}

/// The time of a hold is over: whoever was there because of it goes.
fn expire(
    now: Time,
    attendance: &mut Attendance,
    carrier: Option<&Versioned<PresenceRow>>,
    changes: &mut Vec<Change>,
) {
    let carriers =
        carrier.into_iter().flat_map(|row| row.row.attendance.living()).map(|client| client.client);
    let himself = attendance.living().filter(|client| client.home == nowhere()).map(|client| client.client);
    let riders: Vec<ClientId> = carriers.chain(himself).collect();
    for client in riders {
        attendance.handle(now, Input::Leave { client, reason: Departure::Expired }, changes);
    }
}
