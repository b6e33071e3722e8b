//! What an app says about a user: he is in a channel, for as long as it says so, carried by his clients in another
//! channel, or by himself until a time. Must hold: nobody is there without a client that carries him, or a time that
//! still runs; who carries him takes him along when it leaves, is lost and comes back, on whichever node.

use super::task::{Act, Step, Task};
use super::{Claim, refusal};
use crate::shard::Shard;
use std::sync::Arc;
use tavern_domain::presence::{Attendance, Change, Departure, Home, Input, Loss};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_engine::{
    Answer, Commit, Deadline, Expect, Found, Hold, Person, Presence, PresenceKey, Read, Receipt, Row, RowKey,
    StoreError, Versioned, Work,
};

/// The kind of deadline under which the end of a hold is kept.
const HOLD: &str = "hold";
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

impl Shard {
    /// Nobody is there: what an app said about him goes all the same.
    pub(super) fn forget_hold(&mut self, key: &PresenceKey) {
        let mut commit = Commit { writer: Some(self.writer()), ..Commit::default() };
        let_go(&mut commit, key);
        self.submit(Task::Tidy, Work::Commit(commit));
    }

    /// An app puts somebody into a channel.
    pub(crate) fn hold(&mut self, hold: Hold, claim: Claim) {
        self.read_hold(Holding { hold, claim, tries: 0 });
    }

    fn read_hold(&mut self, holding: Holding) {
        let read = Read::Hold(holding.hold.key.clone());
        self.submit(Task::Holding(holding), Work::Read(read));
    }

    /// An app takes somebody out of a channel.
    pub(crate) fn release(&mut self, now: Time, key: PresenceKey, claim: Claim) {
        let step = Step { claim: Some(claim), ..Step::of(key, Act::Release) };
        self.begin_step(now, step);
    }

    pub(super) fn hold_answered(&mut self, now: Time, holding: Holding, answer: Answer) {
        match answer {
            Answer::Read(Found::Hold(known)) => self.keep_hold(holding, known),
            Answer::Committed(_) => {
                let Holding { hold, claim, .. } = holding;
                if let Some(until) = hold.until {
                    self.presences.holds.insert((until, hold.key.clone()));
                }
                let ride = Act::Ride { gone: Vec::new() };
                self.begin_step(now, Step { claim: Some(claim), ..Step::of(hold.key, ride) });
            }
            Answer::Failed(StoreError::Conflict { .. }) if holding.tries < TRIES => {
                self.read_hold(Holding { tries: holding.tries + 1, ..holding });
            }
            answer => self.finish(holding.claim, Err(refusal(&answer))),
        }
    }

    fn keep_hold(&mut self, holding: Holding, known: Option<Versioned<Hold>>) {
        let hold = &holding.hold;
        let key = RowKey::Hold(hold.key.clone());
        let deadline = hold.key.to_string();
        let version = known.as_ref().map_or(0, |row| row.version);
        let mut commit = Commit {
            writer: Some(self.writer()),
            expects: vec![Expect { key, version }],
            puts: vec![Row::Hold(hold.clone())],
            ..Commit::default()
        };
        match hold.until {
            Some(until) => commit.deadlines.push(Deadline::new(until, HOLD, &deadline)),
            None => commit.deletes.push(deadline_of(&hold.key)),
        }
        self.submit(Task::Holding(holding), Work::Commit(commit));
    }

    /// Reads what a ride depends on: the hold, then the user wherever he is.
    pub(super) fn read_ride(&mut self, step: Step) {
        let work = Work::Read(Read::Hold(step.key.clone()));
        self.submit(Task::Ride(step, None), work);
    }

    pub(super) fn ride_read(
        &mut self,
        now: Time,
        step: Step,
        hold: Option<Versioned<Hold>>,
        answer: Answer,
    ) -> Option<(Step, Answer)> {
        match answer {
            Answer::Read(Found::Hold(None)) => self.end_step(&step, Ok(Vec::new())),
            Answer::Read(Found::Hold(Some(hold))) => {
                let read = Read::People { users: vec![step.key.user.clone()], viewer: None };
                self.submit(Task::Ride(step, Some(hold)), Work::Read(read));
            }
            Answer::Read(Found::People(mut people)) => match (people.pop(), hold) {
                (Some(person), Some(hold)) => self.decide_ride(now, step, &hold, &person),
                _ => self.end_step(&step, Ok(Vec::new())),
            },
            answer => return Some((step, answer)),
        }
        None
    }

    /// Brings somebody who is held to where his carriers are.
    fn decide_ride(&mut self, now: Time, mut step: Step, hold: &Versioned<Hold>, person: &Person) {
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
            let grace_ms = self.grace_ms(&step.key.channel);
            let by_himself = hold.row.carrier.is_none().then(|| ClientId::from_random(self.dice.roll()));
            arrive(now, &mut attendance, carrier, by_himself, &mut changes);
            depart(now, &mut attendance, carrier, gone, grace_ms, &mut changes);
        }
        let known = own.or(carrier).map(|row| &row.row);
        step.name = known.and_then(|row| row.name.clone());
        step.visibility = Some(person.known.as_ref().map(|row| row.row.visibility).unwrap_or_default());
        let version = own.map_or(0, |row| row.version);
        if attendance == before && changes.is_empty() {
            if over {
                let (key, deadline) = (RowKey::Hold(step.key.clone()), deadline_of(&step.key));
                let expects = vec![Expect { key: key.clone(), version: hold.version }];
                let deletes = vec![key, deadline];
                let commit = Commit { writer: Some(self.writer()), expects, deletes, ..Commit::default() };
                self.submit(Task::Tidy, Work::Commit(commit));
            }
            return self.end_step(&step, Ok(Vec::new()));
        }
        let mut commit = self.commit_of(&step, self.home(), version, &before, attendance.clone(), &changes);
        // If the app or a carrier changes its mind meanwhile, all of this is decided again.
        commit.expects.push(Expect { key: RowKey::Hold(step.key.clone()), version: hold.version });
        if let Some(channel) = &hold.row.carrier {
            let key = PresenceKey { channel: channel.clone(), user: step.key.user.clone() };
            commit
                .expects
                .push(Expect { key: RowKey::Presence(key), version: carrier.map_or(0, |row| row.version) });
        }
        if over {
            let_go(&mut commit, &step.key);
        }
        self.submit_commit(now, step, &attendance, changes, commit);
    }

    /// Who carries somebody has moved: he moves along.
    pub(super) fn move_riders(&mut self, now: Time, step: &Step, changes: &[Change], receipt: &Receipt) {
        for held in &receipt.held {
            // Who came there by itself stays by itself.
            let session = step.listener.and_then(|id| self.listeners.get(id)?.session());
            let stays = session.is_some_and(|session| session.present.has(&held.channel));
            let gone = changes.iter().filter_map(|change| match change {
                Change::ClientOffline { client, reason } if !stays => Some((*client, *reason)),
                _ => None,
            });
            let key = PresenceKey { channel: held.channel.clone(), user: held.carrier.user.clone() };
            let ride = Act::Ride { gone: gone.collect() };
            self.begin_step(now, Step::of(key, ride));
        }
    }

    /// Holds whose time is over.
    pub(super) fn end_holds(&mut self, now: Time) {
        while let Some((due, key)) = self.presences.holds.first().cloned()
            && due <= now
        {
            self.presences.holds.remove(&(due, key.clone()));
            self.begin_step(now, Step::of(key, Act::Ride { gone: Vec::new() }));
        }
    }
}

/// When a hold is looked at.
pub(crate) fn hold_deadline(due: Time, key: &PresenceKey) -> Deadline {
    Deadline::new(due, HOLD, &key.to_string())
}

pub(super) fn is_hold(deadline: &Deadline) -> bool {
    &*deadline.kind == HOLD
}

/// What else goes when an app takes somebody out.
pub(super) fn let_go(commit: &mut Commit, key: &PresenceKey) {
    commit.deletes.insert(0, RowKey::Hold(key.clone()));
    commit.deletes.insert(0, deadline_of(key));
}

fn deadline_of(key: &PresenceKey) -> RowKey {
    RowKey::Deadline { kind: HOLD.into(), name: key.to_string().into() }
}

/// Everybody who carries him is there, and he himself if nobody has to.
fn arrive(
    now: Time,
    attendance: &mut Attendance,
    carrier: Option<&Versioned<Presence>>,
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
    carrier: Option<&Versioned<Presence>>,
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
    carrier: Option<&Versioned<Presence>>,
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

/// What an order to hold somebody asks for.
pub(crate) fn hold_of(
    now: Time,
    channel: &Arc<str>,
    user: &Arc<str>,
    with: Option<Arc<str>>,
    ttl_ms: Option<u64>,
) -> Hold {
    // All of his clients carry him if nothing is said.
    let carrier = with.or_else(|| ttl_ms.is_none().then(|| crate::people::own_channel(user)));
    Hold {
        key: PresenceKey { channel: channel.clone(), user: user.clone() },
        carrier,
        until: ttl_ms.map(|ttl_ms| now + ttl_ms),
    }
}
