//! The commands: checks in the order of `PartyRefusal`, then changes. A command is refused before it changes anything.

mod go;
mod invite;
mod lead;

use super::draft::{PartyDraft, PartyStep};
use super::event::Actor;
use super::logout::{apply_logout, check};
use super::settle::{open, party_of};
use super::{PartyCommand, PartyNeed, PartyRefusal, PartyReply, PartyRequest, UserId};
use alloc::vec::Vec;

/// One command of a user.
struct CommandHandler<'d, 'a> {
    draft: &'d mut PartyDraft<'a>,
    user: &'d UserId,
    call: &'d PartyRequest,
}

/// Decides a command of a user.
pub(super) fn of_user(
    draft: &mut PartyDraft<'_>,
    user: &UserId,
    call: &PartyRequest,
) -> PartyStep<PartyReply> {
    apply_logout(draft, user)?;
    let mut handler = CommandHandler { draft, user, call };
    match &call.command {
        PartyCommand::Get => handler.get(),
        PartyCommand::Invite { user: target } => handler.invite(target),
        PartyCommand::CancelInvite { user: target } => handler.cancel_invite(target),
        PartyCommand::Accept { party_id } => handler.accept(*party_id),
        PartyCommand::Decline { party_id, message } => handler.decline(*party_id, message.clone()),
        PartyCommand::Kick { user: target, message } => handler.kick(target, message.clone()),
        PartyCommand::Leave { message } => handler.leave(message.clone()),
        PartyCommand::Promote { user: target } => handler.promote(target),
        PartyCommand::Disband { message } => handler.disband(message.clone()),
        PartyCommand::SetData { data } => handler.set_data(data),
        PartyCommand::Go { params } => handler.go(params.clone()),
        PartyCommand::CancelGo => handler.cancel_go(),
        PartyCommand::Ready { go_id } => handler.ready(*go_id),
        PartyCommand::Block { user: target } => handler.block(target),
        PartyCommand::Unblock { user: target } => handler.unblock(target),
        PartyCommand::Wake { .. } | PartyCommand::Check { .. } | PartyCommand::Answer { .. } => {
            Err(PartyRefusal::BadRequest.into())
        }
    }
}

/// Decides a command of the server or of an app.
pub(super) fn of_server(draft: &mut PartyDraft<'_>, call: &PartyRequest) -> PartyStep<PartyReply> {
    match &call.command {
        PartyCommand::Get => {
            let id = call.party.ok_or(PartyRefusal::BadRequest)?;
            match open(draft, id)? {
                true => Ok(PartyReply::of(draft.party(id))),
                false => Err(PartyRefusal::NoSuchParty.into()),
            }
        }
        PartyCommand::Wake { party } => open(draft, *party).map(|_| PartyReply::Nothing),
        PartyCommand::Check { user } => check(draft, user).map(|()| PartyReply::Nothing),
        PartyCommand::Answer { party, go_id, matched, details } => {
            go::answer(draft, *party, *go_id, *matched, details.clone())
        }
        _ => Err(PartyRefusal::BadRequest.into()),
    }
}

/// Everything that a command of a user is known to need, so that it is loaded in one round trip.
pub(super) fn prefetch(user: &UserId, call: &PartyRequest) -> Vec<PartyNeed> {
    let mut needs = Vec::from([PartyNeed::Membership(user.clone())]);
    match &call.command {
        PartyCommand::Invite { user: target } => {
            needs.extend([PartyNeed::Membership(target.clone()), PartyNeed::Presence(target.clone())]);
        }
        PartyCommand::Accept { party_id } => {
            needs.extend([PartyNeed::Party(*party_id), PartyNeed::Presence(user.clone())]);
        }
        PartyCommand::Decline { party_id, .. } => needs.push(PartyNeed::Party(*party_id)),
        PartyCommand::CancelInvite { user: target } => needs.push(PartyNeed::Membership(target.clone())),
        _ => {}
    }
    needs.extend(call.party.map(PartyNeed::Party));
    needs
}

impl CommandHandler<'_, '_> {
    fn get(&mut self) -> PartyStep<PartyReply> {
        match self.call.party {
            Some(_) => self.own_party().map(|id| PartyReply::of(self.draft.party(id))),
            None => {
                let id = party_of(self.draft, self.user)?;
                Ok(PartyReply::Party(id.map(|id| self.draft.party(id).clone().into())))
            }
        }
    }

    /// The caller's party; if they named one, it must be that one.
    fn own_party(&mut self) -> PartyStep<u64> {
        let own = party_of(self.draft, self.user)?;
        if let Some(named) = self.call.party.filter(|named| own != Some(*named)) {
            let why =
                if open(self.draft, named)? { PartyRefusal::NotMember } else { PartyRefusal::NoSuchParty };
            return Err(why.into());
        }
        own.ok_or(PartyRefusal::NotMember.into())
    }

    /// The caller's party, if they lead it and have seen its current version.
    fn led_party(&mut self) -> PartyStep<u64> {
        let id = self.own_party()?;
        if self.draft.party(id).leader().user != *self.user {
            return Err(PartyRefusal::NotLeader.into());
        }
        self.check_version(self.draft.party(id).version)?;
        Ok(id)
    }

    fn check_version(&self, version: u64) -> PartyStep {
        match self.call.if_version {
            Some(seen) if seen != version => Err(PartyRefusal::VersionConflict.into()),
            _ => Ok(()),
        }
    }

    /// The caller, with the display name they have now.
    fn caller(&self, id: u64) -> Actor {
        let known = self.draft.party(id).actor(self.user);
        Actor { name: self.call.name.clone().or(known.name), ..known }
    }
}
