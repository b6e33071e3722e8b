//! The working copies of one command: documents are taken from the table, changed here, and handed back at the end.
//! Must hold: the table is never changed; a party that differs from what was read has a later version; a party is
//! settled, by the present time, before anything else is done with it.

use super::letter::Actor;
use super::{
    Call, Changes, Command, Guest, Letter, Need, Party, Reason, Refusal, Reply, Rules, Standing, Table, Told,
    User, Word,
};
use crate::time::Time;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// Why a command went no further.
pub(super) enum Stop {
    /// Something is not on the table.
    Need,
    Refused(Refusal, Option<u64>),
    /// The request was answered before.
    Again(Reply),
}

impl From<Refusal> for Stop {
    fn from(why: Refusal) -> Stop {
        Stop::Refused(why, None)
    }
}

pub(super) type Step<T = ()> = Result<T, Stop>;

pub(super) struct Desk<'a> {
    pub now: Time,
    pub rules: &'a Rules,
    pub table: &'a Table,
    needs: Vec<Need>,
    parties: BTreeMap<u64, Option<Party>>,
    guests: BTreeMap<User, Guest>,
    pub changes: Changes,
    /// Where the letters of the command itself begin, after those of what was due.
    begun: usize,
}

impl<'a> Desk<'a> {
    pub fn new(now: Time, rules: &'a Rules, table: &'a Table) -> Desk<'a> {
        Desk {
            now,
            rules,
            table,
            needs: Vec::new(),
            parties: BTreeMap::new(),
            guests: BTreeMap::new(),
            changes: Changes::default(),
            begun: 0,
        }
    }

    /// Asks for everything of which is known from the beginning that it is needed, so that it is read at once.
    pub fn prefetch(&mut self, user: &User, call: &Call) -> Step {
        let mut wanted = alloc::vec![Need::Guest(user.clone())];
        match &call.command {
            Command::Invite { user: target } => {
                wanted.extend([Need::Guest(target.clone()), Need::Standing(target.clone())]);
            }
            Command::Accept { party_id } => {
                wanted.extend([Need::Party(*party_id), Need::Standing(user.clone())]);
            }
            Command::Decline { party_id, .. } => wanted.push(Need::Party(*party_id)),
            _ => {}
        }
        if let Some(guest) = self.table.guest(user) {
            wanted.extend(guest.party.map(Need::Party));
        }
        wanted.extend(call.party.map(Need::Party));
        self.want(wanted)
    }

    /// Stops unless all of these are on the table.
    pub fn want(&mut self, wanted: Vec<Need>) -> Step {
        for need in wanted {
            let there = match &need {
                Need::Party(id) => self.table.party(*id).is_some(),
                Need::Guest(user) => self.table.guest(user).is_some(),
                Need::Standing(user) => self.table.standing(user).is_some(),
                Need::Id => self.table.id.is_some(),
            };
            if !there && !self.needs.contains(&need) {
                self.needs.push(need);
            }
        }
        if self.needs.is_empty() { Ok(()) } else { Err(Stop::Need) }
    }

    pub fn guest(&mut self, user: &User) -> Step<&mut Guest> {
        if !self.guests.contains_key(user) {
            self.want(alloc::vec![Need::Guest(user.clone())])?;
            let kept = self.table.guest(user).expect("it is on the table").clone();
            self.guests.insert(user.clone(), kept);
        }
        Ok(self.guests.get_mut(user).expect("it was put there"))
    }

    pub fn standing(&mut self, user: &User) -> Step<&'a Standing> {
        self.want(alloc::vec![Need::Standing(user.clone())])?;
        Ok(self.table.standing(user).expect("it is on the table"))
    }

    pub fn fresh_id(&mut self) -> Step<u64> {
        self.want(alloc::vec![Need::Id])?;
        Ok(self.table.id.expect("it is on the table"))
    }

    /// Whether a party exists, after everything that is due in it has happened.
    pub fn open(&mut self, id: u64) -> Step<bool> {
        if !self.parties.contains_key(&id) {
            self.want(alloc::vec![Need::Party(id)])?;
            let kept = self.table.party(id).expect("it is on the table").cloned();
            self.parties.insert(id, kept);
            self.settle(id)?;
        }
        Ok(self.lives(id))
    }

    pub fn lives(&self, id: u64) -> bool {
        self.parties.get(&id).is_some_and(Option::is_some)
    }

    pub fn party(&self, id: u64) -> &Party {
        self.parties.get(&id).and_then(Option::as_ref).expect("the party is open and lives")
    }

    /// One change of a party: the letters that follow are about it.
    pub fn change(&mut self, id: u64) -> &mut Party {
        let party = self.parties.get_mut(&id).and_then(Option::as_mut);
        let party = party.expect("the party is open and lives");
        party.version += 1;
        party
    }

    pub fn found(&mut self, party: Party) {
        let id = party.id;
        let before = self.parties.insert(id, Some(party));
        assert!(before.flatten().is_none(), "the id of a party is not used twice");
    }

    pub fn remove(&mut self, id: u64) {
        self.parties.insert(id, None);
    }

    /// The party of a user, settled. What is kept of him and does not agree with the party counts for nothing.
    pub fn seat(&mut self, user: &User) -> Step<Option<u64>> {
        let Some(id) = self.guest(user)?.party else { return Ok(None) };
        if self.open(id)? && self.party(id).member(user).is_some() {
            return Ok(Some(id));
        }
        self.guest(user)?.party = None;
        Ok(None)
    }

    /// The caller's party, which he may have named.
    pub fn own(&mut self, user: &User, call: &Call) -> Step<u64> {
        let seat = self.seat(user)?;
        if let Some(named) = call.party.filter(|named| seat != Some(*named)) {
            let why = if self.open(named)? { Refusal::NotMember } else { Refusal::NoSuchParty };
            return Err(why.into());
        }
        seat.ok_or(Refusal::NotMember.into())
    }

    /// The caller's party, if he leads it and it is the one he has seen.
    pub fn led(&mut self, user: &User, call: &Call) -> Step<u64> {
        let id = self.own(user, call)?;
        if self.party(id).leader().user != *user {
            return Err(Refusal::NotLeader.into());
        }
        self.is_version(call, self.party(id).version)?;
        Ok(id)
    }

    pub fn is_version(&self, call: &Call, version: u64) -> Step {
        match call.if_version {
            Some(seen) if seen != version => Err(Refusal::VersionConflict.into()),
            _ => Ok(()),
        }
    }

    /// Everything that was due has happened, and every check has passed: from here on it is the command.
    pub fn begin(&mut self) {
        self.begun = self.changes.letters.len();
    }

    pub fn tell(&mut self, id: u64, to: &User, actor: &Actor, what: Word) {
        let version = self.party(id).version;
        let Actor { user, name } = actor.clone();
        let letter = Letter { to: to.clone(), party_id: id, version, at: self.now, actor: user, name, what };
        self.changes.letters.push(letter);
    }

    pub fn tell_members(&mut self, id: u64, actor: &Actor, what: &Word) {
        for user in self.party(id).users() {
            self.tell(id, &user, actor, what.clone());
        }
    }

    /// The caller, by the name he has now.
    pub fn caller(&self, id: u64, user: &User, call: &Call) -> Actor {
        let known = self.party(id).actor(user);
        Actor { name: call.name.clone().or(known.name), ..known }
    }

    /// A ticket ends before anything happens to its members: there is never one with somebody who has left.
    pub fn cancel_go(&mut self, id: u64, actor: &Actor, reason: Reason) {
        let Some(go_id) = self.party(id).go.as_ref().map(|go| go.id) else { return };
        let go = self.change(id).go.take().expect("it was there");
        self.tell_members(id, actor, &Word::GoCancel { go_id, reason });
        if go.until.is_none() {
            self.changes.told.push(Told::GoCancelled { id, go_id });
        }
    }

    /// What the request was answered before, if it was.
    pub fn answered_before(&mut self, call: &Call) -> Step<Option<Reply>> {
        let (Some(user), Some(rid)) = (&call.user, &call.rid) else { return Ok(None) };
        self.want(alloc::vec![Need::Guest(user.clone())])?;
        let guest = self.table.guest(user).expect("it is on the table");
        Ok(guest.answered(self.now, rid).cloned())
    }

    /// The reply with everything that must be written, or what must be read.
    pub fn conclude(
        mut self,
        call: &Call,
        answered: Result<Reply, Stop>,
    ) -> Result<(Reply, Changes), Vec<Need>> {
        match self.finish(call, answered) {
            Ok(reply) => Ok((reply, self.changes)),
            Err(_) => {
                assert!(!self.needs.is_empty(), "only what is lacking stops a reply");
                Err(self.needs)
            }
        }
    }

    fn finish(&mut self, call: &Call, answered: Result<Reply, Stop>) -> Step<Reply> {
        let reply = match answered {
            Ok(reply) => {
                self.remember(call, &reply)?;
                self.collect();
                return Ok(reply);
            }
            Err(Stop::Need) => return Err(Stop::Need),
            Err(Stop::Again(reply)) => {
                let party = self.kept_party(call)?;
                return Ok(reply.with_party(party));
            }
            Err(Stop::Refused(why, retry_after_ms)) => {
                Reply::Refused { why, retry_after_ms, party: self.kept_party(call)? }
            }
        };
        // What was due is forgotten too: it happens when its own time is looked at.
        self.parties.clear();
        self.guests.clear();
        self.changes = Changes::default();
        self.remember(call, &reply)?;
        self.collect();
        Ok(reply)
    }

    /// What is kept of the caller's party, whatever else would be due in it: later letters fold over this.
    fn kept_party(&mut self, call: &Call) -> Step<Option<Box<Party>>> {
        let Some(user) = &call.user else { return Ok(None) };
        self.want(alloc::vec![Need::Guest(user.clone())])?;
        let Some(id) = self.table.guest(user).and_then(|guest| guest.party) else { return Ok(None) };
        self.want(alloc::vec![Need::Party(id)])?;
        let party = self.table.party(id).flatten().filter(|party| party.member(user).is_some());
        Ok(party.cloned().map(Box::new))
    }

    /// A request with an id is done once. One that was never taken up may be tried again under the same id, and a flood
    /// of them writes nothing.
    fn remember(&mut self, call: &Call, reply: &Reply) -> Step {
        let (Some(user), Some(rid)) = (&call.user, &call.rid) else { return Ok(()) };
        let taken_up = match reply {
            Reply::Refused { why, .. } => !matches!(why, Refusal::BadRequest | Refusal::RateLimited),
            _ => call.command != Command::Get,
        };
        if taken_up {
            let now = self.now;
            self.guest(user)?.remember(now, Arc::clone(rid), reply.without_party());
        }
        Ok(())
    }

    fn collect(&mut self) {
        // The end of a party is told last, and what was due before what the command did.
        let begun = self.begun.min(self.changes.letters.len());
        self.changes.letters[begun..].sort_by_key(|letter| matches!(letter.what, Word::Disband { .. }));
        for (id, party) in core::mem::take(&mut self.parties) {
            let before = self.table.party(id).flatten();
            if party.as_ref() != before {
                let older = before.map_or(0, |before| before.version);
                assert!(party.as_ref().is_none_or(|party| party.version > older), "a change has a version");
                self.changes.parties.push((id, party));
            }
        }
        for (user, mut guest) in core::mem::take(&mut self.guests) {
            if self.table.guest(&user) != Some(&guest) {
                guest.prune(self.now);
                self.changes.guests.push((user, guest));
            }
        }
    }
}
