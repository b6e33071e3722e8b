//! Invites: sending, cancelling, accepting and declining them, and blocking a user's invites.
//! Must hold: an invite takes a seat when it is sent; a user who accepts has no other party afterwards and sees no other
//! invite; an inviter does not learn that they are blocked.

use super::CommandHandler;
use crate::limits;
use crate::party::draft::{PartyStep, PartyStop};
use crate::party::leave::{InviteEnd, dissolve, end_if_empty, end_invite};
use crate::party::logout::{apply_logout, end_invites, open_invites};
use crate::party::settle::{open, party_of};
use crate::party::{
    Party, PartyEventKind, PartyInvite, PartyMember, PartyNeed, PartyReason, PartyRefusal, PartyReply,
    PartyTopicEvent, UserId, UserPresence, presence,
};
use crate::time::Time;
use alloc::sync::Arc;
use alloc::vec::Vec;

impl CommandHandler<'_, '_> {
    pub(super) fn invite(&mut self, target: &UserId) -> PartyStep<PartyReply> {
        // The target's logout may end the caller's party too.
        apply_logout(self.draft, target)?;
        let own = party_of(self.draft, self.user)?;
        let repeated = own.filter(|id| self.draft.party(*id).invite_of(target).is_some());
        if repeated.is_none() {
            self.check_rate(target, own)?;
        }
        if own.is_some() || self.call.party.is_some() {
            let id = self.led_party()?;
            self.check_no_ticket(id)?;
        } else {
            self.check_version(0)?;
        }
        if let Some(id) = repeated {
            return Ok(PartyReply::Invited { party_id: id });
        }
        self.check_not_self(target)?;
        let name = match self.draft.presence(target)? {
            UserPresence::Never => return Err(PartyRefusal::NoSuchUser.into()),
            UserPresence::Online { .. } if self.draft.invited_hides() => {
                return Err(PartyRefusal::UserNotLogged.into());
            }
            UserPresence::Online { name } => name.clone(),
            UserPresence::Lost { .. } | UserPresence::Absent => {
                return Err(PartyRefusal::UserNotLogged.into());
            }
        };
        if let Some(theirs) = party_of(self.draft, target)? {
            if own == Some(theirs) {
                return Err(PartyRefusal::AlreadyMember.into());
            }
            if self.draft.party(theirs).members.len() > 1 {
                return Err(PartyRefusal::UserInParty.into());
            }
        }
        if let Some(id) = own {
            let party = self.draft.party(id);
            if party.members.len() + party.pending.len() >= self.draft.rules.max_members as usize {
                return Err(PartyRefusal::PartyFull.into());
            }
        }
        self.send_invite(own, target, name)
    }

    fn send_invite(
        &mut self,
        own: Option<u64>,
        target: &UserId,
        name: Option<Arc<str>>,
    ) -> PartyStep<PartyReply> {
        let dark = self.draft.record(target)?.blocks.contains(self.user);
        let expires = self.draft.now + self.draft.rules.invite_ms;
        let by = self.user.clone();
        let pending = PartyInvite { user: target.clone(), name: name.clone(), by, expires, hidden: dark };
        let id = match own {
            Some(id) => id,
            None => {
                // The caller's presence is applied to the new party below: load both in one round trip.
                self.draft.require([PartyNeed::Id, PartyNeed::Presence(self.user.clone())])?;
                self.draft.new_id()?
            }
        };
        self.draft.begin_command();
        match own {
            Some(id) => self.draft.change(id).pending.push(pending),
            None => self.create_party(id, pending)?,
        }
        let now = self.draft.now;
        self.draft.record(self.user)?.sent.push(now);
        let actor = self.caller(id);
        if !dark {
            self.draft.record(target)?.invites.push(id);
            self.draft.notify(id, target, &actor, PartyEventKind::Invite { expires });
        }
        self.draft.notify_members(
            id,
            &actor,
            &PartyEventKind::Invited { user: target.clone(), name, expires },
        );
        if own.is_none() {
            presence::apply(self.draft, id, self.user)?;
        }
        Ok(PartyReply::Invited { party_id: id })
    }

    fn create_party(&mut self, id: u64, pending: PartyInvite) -> PartyStep {
        let user = self.user.clone();
        let leader = PartyMember {
            user: user.clone(),
            name: self.call.name.clone(),
            since: self.draft.now,
            away: None,
        };
        let members = Vec::from([leader]);
        let pending = Vec::from([pending]);
        self.draft.create(Party { id, version: 1, members, pending, go: None, data: None });
        self.draft.record(self.user)?.party = Some(id);
        self.draft.changes.entered.push((id, user.clone()));
        self.draft.changes.topic_events.push(PartyTopicEvent::Created { id, leader: user });
        Ok(())
    }

    fn check_rate(&mut self, target: &UserId, own: Option<u64>) -> PartyStep {
        let (now, rules) = (self.draft.now, self.draft.rules);
        let refused =
            |until: Time| Err(PartyStop::Refused(PartyRefusal::RateLimited, Some(until.since(now).max(1))));
        let record = self.draft.record(self.user)?;
        record.prune(now);
        let (sent, first) = (record.sent.len(), record.sent.first().copied());
        let declined =
            record.declined.iter().find(|(declined, _)| declined == target).map(|(_, until)| *until);
        if sent >= rules.invites_per_minute as usize {
            return refused(first.unwrap_or(now) + limits::PARTY_MINUTE_MS);
        }
        let open = own.map(|id| &self.draft.party(id).pending[..]).unwrap_or_default();
        let open = open.iter().filter(|pending| pending.by == *self.user);
        let expiries: Vec<Time> = open.map(|pending| pending.expires).collect();
        if expiries.len() >= rules.max_pending as usize {
            return refused(expiries.into_iter().min().unwrap_or(now));
        }
        if let Some(until) = declined {
            return refused(until);
        }
        // Also for a blocked inviter: a different reply would reveal the block.
        if self.draft.record(target)?.invites.len() >= limits::PARTY_INCOMING {
            return refused(now + rules.invite_ms);
        }
        Ok(())
    }

    pub(super) fn cancel_invite(&mut self, target: &UserId) -> PartyStep<PartyReply> {
        let id = self.led_party()?;
        self.check_not_self(target)?;
        if self.draft.party(id).invite_of(target).is_none() {
            self.check_known(target)?;
            return Err(PartyRefusal::NoInvite.into());
        }
        self.draft.begin_command();
        let end = InviteEnd { reason: PartyReason::Cancelled, message: None, by: Some(self.user.clone()) };
        end_invite(self.draft, id, target, end)?;
        end_if_empty(self.draft, id)?;
        Ok(PartyReply::Nothing)
    }

    /// The caller must see an invite to this party, and not be a member of it.
    fn check_invited(&mut self, id: u64) -> PartyStep {
        match self.draft.party(id).invite_of(self.user) {
            Some(pending) if !pending.hidden => Ok(()),
            _ => Err(PartyRefusal::NoInvite.into()),
        }
    }

    fn check_not_own(&mut self, id: u64) -> PartyStep {
        if !open(self.draft, id)? {
            return Err(PartyRefusal::NoSuchParty.into());
        }
        match self.draft.party(id).member(self.user) {
            Some(_) => Err(PartyRefusal::AlreadyMember.into()),
            None => Ok(()),
        }
    }

    pub(super) fn accept(&mut self, id: u64) -> PartyStep<PartyReply> {
        let own = party_of(self.draft, self.user)?;
        self.check_not_own(id)?;
        if own.is_some_and(|own| self.draft.party(own).members.len() > 1) {
            return Err(PartyRefusal::UserInParty.into());
        }
        self.check_invited(id)?;
        open_invites(self.draft, self.user)?;
        self.draft.begin_command();
        self.join(id)?;
        // They may have disconnected while the command was in flight, and no later check would find it.
        presence::apply(self.draft, id, self.user)?;
        end_invites(self.draft, self.user, PartyReason::JoinedOtherParty)?;
        if let Some(own) = own.filter(|own| self.draft.exists(*own)) {
            let actor = self.caller(own);
            let (user, reason) = (self.user.clone(), PartyReason::JoinedOtherParty);
            self.draft.changes.topic_events.push(PartyTopicEvent::Left { id: own, user, reason });
            dissolve(self.draft, own, &actor, PartyReason::JoinedOtherParty, PartyReason::Empty, None)?;
        }
        self.draft.record(self.user)?.party = Some(id);
        Ok(PartyReply::of(self.draft.party(id)))
    }

    fn join(&mut self, id: u64) -> PartyStep {
        self.draft.record(self.user)?.invites.retain(|invite| *invite != id);
        let actor = self.caller(id);
        let (user, since) = (self.user.clone(), self.draft.now);
        let party = self.draft.change(id);
        let pending = party.take_invite(&user);
        let host = party.host_of(&pending);
        let others = party.users();
        party.members.push(PartyMember { user: user.clone(), name: actor.name.clone(), since, away: None });
        for other in others {
            let what = if other == host { PartyEventKind::Accept } else { PartyEventKind::Join };
            self.draft.notify(id, &other, &actor, what);
        }
        self.draft.changes.entered.push((id, user.clone()));
        self.draft.changes.topic_events.push(PartyTopicEvent::Joined { id, user });
        Ok(())
    }

    pub(super) fn decline(&mut self, id: u64, message: Option<Arc<str>>) -> PartyStep<PartyReply> {
        self.check_not_own(id)?;
        self.check_invited(id)?;
        self.draft.begin_command();
        let inviter = self.draft.party(id).invite_of(self.user).map(|pending| pending.by.clone());
        let inviter = inviter.expect("they are invited");
        let end = InviteEnd { reason: PartyReason::Declined, message, by: Some(self.user.clone()) };
        end_invite(self.draft, id, self.user, end)?;
        let (now, until) = (self.draft.now, self.draft.now + self.draft.rules.reinvite_ms);
        self.draft.record(&inviter)?.was_declined(now, self.user.clone(), until);
        end_if_empty(self.draft, id)?;
        Ok(PartyReply::Nothing)
    }

    /// Blocks a user's invites. Those sent before stay, and may be declined.
    pub(super) fn block(&mut self, target: &UserId) -> PartyStep<PartyReply> {
        let blocks = &self.draft.record(self.user)?.blocks;
        let (full, blocked) = (blocks.len() >= limits::PARTY_BLOCKS, blocks.contains(target));
        if full && !blocked {
            return Err(PartyRefusal::BadRequest.into());
        }
        self.check_not_self(target)?;
        if !blocked {
            self.check_known(target)?;
            self.draft.record(self.user)?.blocks.push(target.clone());
        }
        Ok(PartyReply::Nothing)
    }

    /// Ends a block. Invites that were sent during the block stay hidden.
    pub(super) fn unblock(&mut self, target: &UserId) -> PartyStep<PartyReply> {
        self.draft.record(self.user)?.blocks.retain(|blocked| blocked != target);
        Ok(PartyReply::Nothing)
    }
}
