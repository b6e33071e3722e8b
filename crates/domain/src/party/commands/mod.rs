//! The commands: checks in the order of `Refusal`, then changes. A command is refused before it changes anything.

mod go;
mod invite;
mod lead;

use super::draft::{PartyDraft, Step};
use super::event::Actor;
use super::goodbye::{apply_logout, check};
use super::settle::{open, party_of};
use super::{Call, Command, Need, Refusal, Reply, User};
use alloc::vec::Vec;

/// One command of a user.
struct CommandHandler<'d, 'a> {
    draft: &'d mut PartyDraft<'a>,
    user: &'d User,
    call: &'d Call,
}

/// Decides a command of a user.
pub(super) fn of_user(draft: &mut PartyDraft<'_>, user: &User, call: &Call) -> Step<Reply> {
    apply_logout(draft, user)?;
    let mut handler = CommandHandler { draft, user, call };
    match &call.command {
        Command::Get => handler.get(),
        Command::Invite { user: target } => handler.invite(target),
        Command::CancelInvite { user: target } => handler.cancel_invite(target),
        Command::Accept { party_id } => handler.accept(*party_id),
        Command::Decline { party_id, message } => handler.decline(*party_id, message.clone()),
        Command::Kick { user: target, message } => handler.kick(target, message.clone()),
        Command::Leave { message } => handler.leave(message.clone()),
        Command::Promote { user: target } => handler.promote(target),
        Command::Disband { message } => handler.disband(message.clone()),
        Command::SetData { data } => handler.set_data(data),
        Command::Go { params } => handler.go(params.clone()),
        Command::CancelGo => handler.cancel_go(),
        Command::Ready { go_id } => handler.ready(*go_id),
        Command::Block { user: target } => handler.block(target),
        Command::Unblock { user: target } => handler.unblock(target),
        Command::Wake { .. } | Command::Check { .. } | Command::Answer { .. } => {
            Err(Refusal::BadRequest.into())
        }
    }
}

/// Decides a command of the server or of an app.
pub(super) fn of_server(draft: &mut PartyDraft<'_>, call: &Call) -> Step<Reply> {
    match &call.command {
        Command::Get => {
            let id = call.party.ok_or(Refusal::BadRequest)?;
            match open(draft, id)? {
                true => Ok(Reply::of(draft.party(id))),
                false => Err(Refusal::NoSuchParty.into()),
            }
        }
        Command::Wake { party } => open(draft, *party).map(|_| Reply::Nothing),
        Command::Check { user } => check(draft, user).map(|()| Reply::Nothing),
        Command::Answer { party, go_id, matched, details } => {
            go::answer(draft, *party, *go_id, *matched, details.clone())
        }
        _ => Err(Refusal::BadRequest.into()),
    }
}

/// Everything that a command of a user is known to need, so that it is loaded in one round trip.
pub(super) fn prefetch(draft: &PartyDraft<'_>, user: &User, call: &Call) -> Vec<Need> {
    let mut needs = Vec::from([Need::Guest(user.clone())]);
    match &call.command {
        Command::Invite { user: target } => {
            needs.extend([Need::Guest(target.clone()), Need::Standing(target.clone())]);
        }
        Command::Accept { party_id } => {
            needs.extend([Need::Party(*party_id), Need::Standing(user.clone())]);
        }
        Command::Decline { party_id, .. } => needs.push(Need::Party(*party_id)),
        _ => {}
    }
    needs.extend(draft.known_party_of(user).map(Need::Party));
    needs.extend(call.party.map(Need::Party));
    needs
}

impl CommandHandler<'_, '_> {
    fn get(&mut self) -> Step<Reply> {
        match self.call.party {
            Some(_) => self.own_party().map(|id| Reply::of(self.draft.party(id))),
            None => {
                let id = party_of(self.draft, self.user)?;
                Ok(Reply::Party(id.map(|id| self.draft.party(id).clone().into())))
            }
        }
    }

    /// The caller's party; if they named one, it must be that one.
    fn own_party(&mut self) -> Step<u64> {
        let own = party_of(self.draft, self.user)?;
        if let Some(named) = self.call.party.filter(|named| own != Some(*named)) {
            let why = if open(self.draft, named)? { Refusal::NotMember } else { Refusal::NoSuchParty };
            return Err(why.into());
        }
        own.ok_or(Refusal::NotMember.into())
    }

    /// The caller's party, if they lead it and have seen its current version.
    fn led_party(&mut self) -> Step<u64> {
        let id = self.own_party()?;
        if self.draft.party(id).leader().user != *self.user {
            return Err(Refusal::NotLeader.into());
        }
        self.check_version(self.draft.party(id).version)?;
        Ok(id)
    }

    fn check_version(&self, version: u64) -> Step {
        match self.call.if_version {
            Some(seen) if seen != version => Err(Refusal::VersionConflict.into()),
            _ => Ok(()),
        }
    }

    /// The caller, with the display name they have now.
    fn caller(&self, id: u64) -> Actor {
        let known = self.draft.party(id).actor(self.user);
        Actor { name: self.call.name.clone().or(known.name), ..known }
    }
}
