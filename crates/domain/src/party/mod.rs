//! Parties: who is in one, who is invited, who leads, and how a whole group goes into a match. Rules only; where the
//! documents are kept and how letters arrive is not known here.
//!
//! One call of `run` is one command. It is given the documents that were read, and answers with the documents it lacks,
//! or with a reply and everything that must be written in one commit. It changes nothing of what it was given.
//! Must hold: a user is in at most one party, and what is kept of him agrees with the members; members and open invites
//! are no more than the rules allow, and nobody is both; no living party has one member and no invite; every invite ends
//! once, and whoever did not end it himself is told once; a ticket names exactly the members; a refused command changes
//! nothing.

mod call;
mod check;
mod desk;
mod document;
mod go;
mod guest;
mod invite;
mod lead;
mod letter;
mod settle;
mod table;

pub use call::{Call, Command, Refusal, Reply};
pub use document::{Away, Go, Member, Party, Pending, State};
pub use guest::{Done, Guest};
pub use letter::{Letter, Reason, Told, Word};
pub use table::{Need, Standing, Table};

use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;
use desk::{Desk, Stop};

/// The id of a user.
pub type User = Arc<str>;

/// What the configuration says about parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Members and open invites together, 2 to 64.
    pub max_members: u32,
    pub invite_ms: u64,
    /// How long members may take to say that they are ready.
    pub gather_ms: u64,
    /// How long a member who was lost stays after the grace of his presence.
    pub grace_ms: u64,
    /// How long somebody who declined is not invited again by the same user.
    pub reinvite_ms: u64,
    pub invites_per_minute: u32,
    /// Open invites of one user.
    pub max_pending: u32,
    /// Members say themselves that they are ready; else whoever is online is.
    pub require_ready: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules {
            max_members: 5,
            invite_ms: 60_000,
            gather_ms: 10_000,
            grace_ms: 30_000,
            reinvite_ms: 30_000,
            invites_per_minute: 20,
            max_pending: 8,
            require_ready: false,
        }
    }
}

/// What must be written in one commit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    /// `None` is a party that is destroyed.
    pub parties: Vec<(u64, Option<Party>)>,
    /// An empty guest is to be deleted.
    pub guests: Vec<(User, Guest)>,
    /// In the order in which they are told.
    pub letters: Vec<Letter>,
    pub told: Vec<Told>,
    pub entered: Vec<(u64, User)>,
    pub left: Vec<(u64, User)>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        *self == Changes::default()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Read these, put them on the table and run again from the beginning. Never empty.
    Need(Vec<Need>),
    Answered {
        reply: Reply,
        changes: Changes,
    },
}

/// Runs one command on what was read.
pub fn run(now: Time, rules: &Rules, table: &Table, call: &Call) -> Turn {
    assert!((2..=64).contains(&rules.max_members), "a party has 2 to 64 seats");
    let mut desk = Desk::new(now, rules, table);
    let answered = desk.answer(call);
    match desk.conclude(call, answered) {
        Ok((reply, changes)) => Turn::Answered { reply, changes },
        Err(needs) => Turn::Need(needs),
    }
}

impl Desk<'_> {
    fn answer(&mut self, call: &Call) -> Result<Reply, Stop> {
        if let Some(reply) = self.answered_before(call)? {
            return Err(Stop::Again(reply));
        }
        if !call.is_sound() {
            return Err(Refusal::BadRequest.into());
        }
        let Some(user) = call.user.clone() else {
            return self.serve(call);
        };
        self.prefetch(&user, call)?;
        self.farewell(&user)?;
        match &call.command {
            Command::Get => self.get(&user, call),
            Command::Invite { user: target } => self.invite(&user, target, call),
            Command::CancelInvite { user: target } => self.cancel_invite(&user, target, call),
            Command::Accept { party_id } => self.accept(&user, *party_id, call),
            Command::Decline { party_id, message } => self.decline(&user, *party_id, message.clone()),
            Command::Kick { user: target, message } => self.kick(&user, target, message.clone(), call),
            Command::Leave { message } => self.leave(&user, message.clone(), call),
            Command::Promote { user: target } => self.promote(&user, target, call),
            Command::Disband { message } => self.disband(&user, message.clone(), call),
            Command::SetData { data } => self.set_data(&user, data, call),
            Command::Go { params } => self.go(&user, params.clone(), call),
            Command::CancelGo => self.withdraw(&user, call),
            Command::Ready { go_id } => self.ready(&user, *go_id, call),
            Command::Block { user: target } => self.block(&user, target),
            Command::Unblock { user: target } => self.unblock(&user, target),
            Command::Wake { .. } | Command::Check { .. } | Command::Answer { .. } => {
                Err(Refusal::BadRequest.into())
            }
        }
    }

    /// What the server, or an app, asks for itself.
    fn serve(&mut self, call: &Call) -> Result<Reply, Stop> {
        match &call.command {
            Command::Get => {
                let id = call.party.ok_or(Refusal::BadRequest)?;
                match self.open(id)? {
                    true => Ok(Reply::of(self.party(id))),
                    false => Err(Refusal::NoSuchParty.into()),
                }
            }
            Command::Wake { party } => self.open(*party).map(|_| Reply::Nothing),
            Command::Check { user } => self.check(user),
            Command::Answer { party, go_id, matched, details } => {
                self.matchmaker_says(*party, *go_id, *matched, details.clone())
            }
            _ => Err(Refusal::BadRequest.into()),
        }
    }

    fn get(&mut self, user: &User, call: &Call) -> Result<Reply, Stop> {
        match call.party {
            Some(_) => self.own(user, call).map(|id| Reply::of(self.party(id))),
            None => Ok(Reply::Party(self.seat(user)?.map(|id| self.party(id).clone().into()))),
        }
    }
}
