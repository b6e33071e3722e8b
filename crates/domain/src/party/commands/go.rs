//! The whole group goes into a match: the ticket, who is ready, and the matchmaker's answer.
//! Must hold: the members are frozen into the ticket in the commit that creates it; other services are told of a ticket
//! once, when every member is ready; an answer for an old ticket is ignored.

use super::CommandHandler;
use crate::party::draft::{PartyDraft, Step};
use crate::party::leave::end_invite;
use crate::party::settle::open;
use crate::party::{Go, Need, Reason, Refusal, Reply, State, Told, Word, ticket};
use alloc::sync::Arc;
use alloc::vec::Vec;

impl CommandHandler<'_, '_> {
    pub(super) fn go(&mut self, params: Option<Arc<str>>) -> Step<Reply> {
        let id = self.led_party()?;
        if self.draft.party(id).state() != State::Idle {
            return Err(Refusal::Busy.into());
        }
        let members = self.draft.party(id).users();
        self.draft.require(members.iter().cloned().map(Need::Standing))?;
        self.draft.begin_command();
        let actor = self.caller(id);
        let mut missing = Vec::new();
        for member in &members {
            if !self.draft.standing(member)?.is_online() {
                missing.push(member.clone());
            }
        }
        if !missing.is_empty() {
            // The failed attempt gets a number of its own; otherwise the party stays as it is.
            self.draft.change(id);
            let go_id = self.draft.party(id).version;
            self.draft.tell_members(id, &actor, &Word::GoFailed { go_id, missing, details: None });
            return Ok(Reply::Gone { go_id });
        }
        while let Some(pending) = self.draft.party(id).pending.first() {
            let invitee = pending.user.clone();
            end_invite(self.draft, id, &invitee, Reason::PartyQueued.into())?;
        }
        let queued = !self.draft.rules.require_ready;
        let until = (!queued).then_some(self.draft.now + self.draft.rules.gather_ms);
        let ready = if queued { members.clone() } else { Vec::new() };
        let party = self.draft.change(id);
        let go_id = party.version;
        party.go = Some(Go { id: go_id, members: members.clone(), params: params.clone(), ready, until });
        self.draft.tell_members(id, &actor, &Word::PartyGo { go_id, members, params, queued });
        if queued {
            self.announce_go(id);
        }
        Ok(Reply::Gone { go_id })
    }

    pub(super) fn ready(&mut self, go_id: u64) -> Step<Reply> {
        let id = self.own_party()?;
        let Some(go) = self.draft.party(id).go.as_ref().filter(|go| go.id == go_id) else {
            return Err(Refusal::NoSuchGo.into());
        };
        if go.ready.contains(self.user) {
            return Ok(Reply::Nothing);
        }
        self.draft.begin_command();
        let go = self.draft.change(id).go.as_mut().expect("it was there");
        go.ready.push(self.user.clone());
        let queued = go.ready.len() == go.members.len();
        if queued {
            go.until = None;
        }
        let actor = self.caller(id);
        self.draft.tell_members(id, &actor, &Word::Ready { go_id, queued });
        if queued {
            self.announce_go(id);
        }
        Ok(Reply::Nothing)
    }

    pub(super) fn cancel_go(&mut self) -> Step<Reply> {
        let id = self.led_party()?;
        if self.draft.party(id).go.is_none() {
            return Err(Refusal::NoSuchGo.into());
        }
        self.draft.begin_command();
        let actor = self.caller(id);
        ticket::cancel(self.draft, id, &actor, Reason::Cancelled);
        Ok(Reply::Nothing)
    }

    fn announce_go(&mut self, id: u64) {
        let go = self.draft.party(id).go.clone().expect("it is queued");
        let Go { id: go_id, members, params, .. } = go;
        self.draft.changes.told.push(Told::Go { id, go_id, members, params });
    }
}

/// The matchmaker's answer to a ticket.
pub(super) fn answer(
    draft: &mut PartyDraft<'_>,
    id: u64,
    go_id: u64,
    matched: bool,
    details: Option<Arc<str>>,
) -> Step<Reply> {
    if !open(draft, id)? {
        return Err(Refusal::NoSuchParty.into());
    }
    let party = draft.party(id);
    if party.state() != State::Queued || party.go.as_ref().is_none_or(|go| go.id != go_id) {
        return Err(Refusal::NoSuchGo.into());
    }
    draft.begin_command();
    let leader = draft.party(id).actor(&draft.party(id).leader().user);
    draft.change(id).go = None;
    let what = match matched {
        true => Word::PartyMatched { go_id, details },
        false => Word::GoFailed { go_id, missing: Vec::new(), details },
    };
    draft.tell_members(id, &leader, &what);
    Ok(Reply::Nothing)
}
