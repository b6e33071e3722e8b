//! Invites: sending, taking back, accepting, declining, and not wanting to see them.
//! Must hold: an invite takes a seat when it is sent; whoever accepts has no other party afterwards and sees no other
//! invite; the inviter cannot tell whether he is blocked.

use super::desk::{Desk, Step, Stop};
use super::settle::End;
use super::{Call, Member, Party, Pending, Reason, Refusal, Reply, Standing, Told, User, Word};
use crate::limits;
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

impl Desk<'_> {
    pub fn invite(&mut self, user: &User, target: &User, call: &Call) -> Step<Reply> {
        // His goodbye may end the caller's party too.
        self.farewell(target)?;
        let seat = self.seat(user)?;
        let open = seat.filter(|id| self.party(*id).invite_of(target).is_some());
        if open.is_none() {
            self.is_within_limits(user, target, seat)?;
        }
        if seat.is_some() || call.party.is_some() {
            let id = self.led(user, call)?;
            self.is_free(id)?;
        } else {
            self.is_version(call, 0)?;
        }
        if let Some(id) = open {
            return Ok(Reply::Invited { party_id: id });
        }
        self.is_other(user, target)?;
        let name = match self.standing(target)? {
            Standing::Never => return Err(Refusal::NoSuchUser.into()),
            Standing::Online { name } => name.clone(),
            Standing::Lost { .. } | Standing::Absent => return Err(Refusal::UserNotLogged.into()),
        };
        if let Some(theirs) = self.seat(target)? {
            if seat == Some(theirs) {
                return Err(Refusal::AlreadyMember.into());
            }
            if self.party(theirs).members.len() > 1 {
                return Err(Refusal::UserInParty.into());
            }
        }
        if let Some(id) = seat {
            let party = self.party(id);
            if party.members.len() + party.pending.len() >= self.rules.max_members as usize {
                return Err(Refusal::PartyFull.into());
            }
        }
        self.send(user, seat, (target, name), call)
    }

    fn send(
        &mut self,
        user: &User,
        seat: Option<u64>,
        (target, name): (&User, Option<Arc<str>>),
        call: &Call,
    ) -> Step<Reply> {
        let dark = self.guest(target)?.blocks.contains(user);
        let expires = self.now + self.rules.invite_ms;
        let pending = Pending { user: target.clone(), name: name.clone(), by: user.clone(), expires, dark };
        let id = match seat {
            Some(id) => id,
            None => self.fresh_id()?,
        };
        self.begin();
        match seat {
            Some(id) => self.change(id).pending.push(pending),
            None => self.create(id, user, pending, call)?,
        }
        let now = self.now;
        self.guest(user)?.sent.push(now);
        let actor = self.caller(id, user, call);
        if !dark {
            self.guest(target)?.invites.push(id);
            self.tell(id, target, &actor, Word::Invite { expires });
        }
        self.tell_members(id, &actor, &Word::Invited { user: target.clone(), name, expires });
        if seat.is_none() {
            self.notice(id, user)?;
        }
        Ok(Reply::Invited { party_id: id })
    }

    fn create(&mut self, id: u64, user: &User, pending: Pending, call: &Call) -> Step {
        let leader = Member { user: user.clone(), name: call.name.clone(), since: self.now, away: None };
        let members = Vec::from([leader]);
        self.found(Party { id, version: 1, members, pending: Vec::from([pending]), go: None, data: None });
        self.guest(user)?.party = Some(id);
        self.changes.entered.push((id, user.clone()));
        self.changes.told.push(Told::Created { id, leader: user.clone() });
        Ok(())
    }

    fn is_within_limits(&mut self, user: &User, target: &User, seat: Option<u64>) -> Step {
        let now = self.now;
        let refused = |until: Time| Err(Stop::Refused(Refusal::RateLimited, Some(until.since(now).max(1))));
        let guest = self.guest(user)?;
        guest.prune(now);
        let (sent, first) = (guest.sent.len(), guest.sent.first().copied());
        let declined =
            guest.declined.iter().find(|(declined, _)| declined == target).map(|(_, until)| *until);
        if sent >= self.rules.invites_per_minute as usize {
            return refused(first.unwrap_or(now) + limits::PARTY_MINUTE_MS);
        }
        let mine = seat.map(|id| self.party(id).pending.iter().filter(|pending| pending.by == *user));
        let mine: Vec<Time> = mine.into_iter().flatten().map(|pending| pending.expires).collect();
        if mine.len() >= self.rules.max_pending as usize {
            return refused(mine.into_iter().min().unwrap_or(now));
        }
        if let Some(until) = declined {
            return refused(until);
        }
        // Whoever blocks the inviter is counted too, or he could tell.
        if self.guest(target)?.invites.len() >= limits::PARTY_INCOMING {
            return refused(now + self.rules.invite_ms);
        }
        Ok(())
    }

    pub fn cancel_invite(&mut self, user: &User, target: &User, call: &Call) -> Step<Reply> {
        let id = self.led(user, call)?;
        self.is_other(user, target)?;
        if self.party(id).invite_of(target).is_none() {
            self.is_known(target)?;
            return Err(Refusal::NoInvite.into());
        }
        self.begin();
        let end = End { reason: Reason::Cancelled, message: None, by: Some(user.clone()) };
        self.end_invite(id, target, end)?;
        self.end_if_empty(id)?;
        Ok(Reply::Nothing)
    }

    /// The invite of a caller, if he sees one.
    fn is_invited(&mut self, user: &User, id: u64) -> Step {
        match self.party(id).invite_of(user) {
            Some(pending) if !pending.dark => Ok(()),
            _ => Err(Refusal::NoInvite.into()),
        }
    }

    fn is_not_own(&mut self, user: &User, id: u64) -> Step {
        if !self.open(id)? {
            return Err(Refusal::NoSuchParty.into());
        }
        match self.party(id).member(user) {
            Some(_) => Err(Refusal::AlreadyMember.into()),
            None => Ok(()),
        }
    }

    pub fn accept(&mut self, user: &User, id: u64, call: &Call) -> Step<Reply> {
        let seat = self.seat(user)?;
        self.is_not_own(user, id)?;
        if seat.is_some_and(|own| self.party(own).members.len() > 1) {
            return Err(Refusal::UserInParty.into());
        }
        self.is_invited(user, id)?;
        self.open_invites(user)?;
        self.begin();
        self.join(user, id, call)?;
        // He may be lost while his command is under way, and nobody would look at him again.
        self.notice(id, user)?;
        self.close_invites(user, Reason::JoinedOtherParty)?;
        if let Some(own) = seat.filter(|own| self.lives(*own)) {
            let actor = self.caller(own, user, call);
            self.changes.told.push(Told::Left {
                id: own,
                user: user.clone(),
                reason: Reason::JoinedOtherParty,
            });
            self.dissolve(own, &actor, Reason::JoinedOtherParty, Reason::Empty, None)?;
        }
        self.guest(user)?.party = Some(id);
        Ok(Reply::of(self.party(id)))
    }

    fn join(&mut self, user: &User, id: u64, call: &Call) -> Step {
        self.guest(user)?.invites.retain(|invite| *invite != id);
        let actor = self.caller(id, user, call);
        let since = self.now;
        let party = self.change(id);
        let at = party.pending.iter().position(|pending| pending.user == *user).expect("he is invited");
        let pending = party.pending.remove(at);
        let host = party.host_of(&pending);
        let others = party.users();
        party.members.push(Member { user: user.clone(), name: actor.name.clone(), since, away: None });
        for other in others {
            let what = if other == host { Word::Accept } else { Word::Join };
            self.tell(id, &other, &actor, what);
        }
        self.changes.entered.push((id, user.clone()));
        self.changes.told.push(Told::Joined { id, user: user.clone() });
        Ok(())
    }

    pub fn decline(&mut self, user: &User, id: u64, message: Option<Arc<str>>) -> Step<Reply> {
        self.is_not_own(user, id)?;
        self.is_invited(user, id)?;
        self.begin();
        let inviter = self.party(id).invite_of(user).map(|pending| pending.by.clone());
        let inviter = inviter.expect("he is invited");
        self.end_invite(id, user, End { reason: Reason::Declined, message, by: Some(user.clone()) })?;
        let (now, until) = (self.now, self.now + self.rules.reinvite_ms);
        self.guest(&inviter)?.was_declined(now, user.clone(), until);
        self.end_if_empty(id)?;
        Ok(Reply::Nothing)
    }

    /// What was sent before stays, and may be declined.
    pub fn block(&mut self, user: &User, target: &User) -> Step<Reply> {
        let blocks = &self.guest(user)?.blocks;
        let (full, blocked) = (blocks.len() >= limits::PARTY_BLOCKS, blocks.contains(target));
        if full && !blocked {
            return Err(Refusal::BadRequest.into());
        }
        self.is_other(user, target)?;
        if !blocked {
            self.is_known(target)?;
            self.guest(user)?.blocks.push(target.clone());
        }
        Ok(Reply::Nothing)
    }

    /// What was sent in the dark stays there.
    pub fn unblock(&mut self, user: &User, target: &User) -> Step<Reply> {
        self.guest(user)?.blocks.retain(|blocked| blocked != target);
        Ok(Reply::Nothing)
    }
}
