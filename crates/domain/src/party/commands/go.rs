//! The whole group goes into a match: the ticket, who is ready, and the matchmaker's answer.
//! Must hold: the members are frozen into the ticket in the commit that creates it; other services get a ticket
//! once, when every member is ready; an answer for an old ticket is ignored.

use super::CommandHandler;
use crate::party::draft::{PartyDraft, PartyStep};
use crate::party::leave::end_invite;
use crate::party::settle::open;
use crate::party::{
    MatchTicket, PartyEventKind, PartyNeed, PartyReason, PartyRefusal, PartyReply, PartyState,
    PartyTopicEvent, ticket,
};
use alloc::sync::Arc;
use alloc::vec::Vec;

impl CommandHandler<'_, '_> {
    pub(super) fn go(&mut self, params: Option<Arc<str>>) -> PartyStep<PartyReply> {
        let id = self.led_party()?;
        if self.draft.party(id).state() != PartyState::Idle {
            return Err(PartyRefusal::Busy.into());
        }
        let members = self.draft.party(id).users();
        self.draft.require(members.iter().cloned().map(PartyNeed::Presence))?;
        self.draft.begin_command();
        let actor = self.caller(id);
        let mut missing = Vec::new();
        for member in &members {
            if !self.draft.presence(member)?.is_online() {
                missing.push(member.clone());
            }
        }
        if !missing.is_empty() {
            // The failed attempt gets a number of its own; otherwise the party stays as it is.
            self.draft.change(id);
            let go_id = self.draft.party(id).version;
            self.draft.notify_members(
                id,
                &actor,
                &PartyEventKind::GoFailed { go_id, missing, details: None },
            );
            return Ok(PartyReply::Gone { go_id });
        }
        while let Some(pending) = self.draft.party(id).pending.first() {
            let invitee = pending.user.clone();
            end_invite(self.draft, id, &invitee, PartyReason::PartyQueued.into())?;
        }
        let queued = !self.draft.rules.require_ready;
        let until = (!queued).then_some(self.draft.now + self.draft.rules.gather_ms);
        let ready = if queued { members.clone() } else { Vec::new() };
        let party = self.draft.change(id);
        let go_id = party.version;
        party.go =
            Some(MatchTicket { id: go_id, members: members.clone(), params: params.clone(), ready, until });
        self.draft.notify_members(id, &actor, &PartyEventKind::PartyGo { go_id, members, params, queued });
        if queued {
            self.announce_go(id);
        }
        Ok(PartyReply::Gone { go_id })
    }

    pub(super) fn ready(&mut self, go_id: u64) -> PartyStep<PartyReply> {
        let id = self.own_party()?;
        let Some(go) = self.draft.party(id).go.as_ref().filter(|go| go.id == go_id) else {
            return Err(PartyRefusal::NoSuchGo.into());
        };
        if go.ready.contains(self.user) {
            return Ok(PartyReply::Nothing);
        }
        self.draft.begin_command();
        let go = self.draft.change(id).go.as_mut().expect("it was there");
        go.ready.push(self.user.clone());
        let queued = go.ready.len() == go.members.len();
        if queued {
            go.until = None;
        }
        let actor = self.caller(id);
        self.draft.notify_members(id, &actor, &PartyEventKind::Ready { go_id, queued });
        if queued {
            self.announce_go(id);
        }
        Ok(PartyReply::Nothing)
    }

    pub(super) fn cancel_go(&mut self) -> PartyStep<PartyReply> {
        let id = self.led_party()?;
        if self.draft.party(id).go.is_none() {
            return Err(PartyRefusal::NoSuchGo.into());
        }
        self.draft.begin_command();
        let actor = self.caller(id);
        ticket::cancel(self.draft, id, &actor, PartyReason::Cancelled);
        Ok(PartyReply::Nothing)
    }

    fn announce_go(&mut self, id: u64) {
        let go = self.draft.party(id).go.clone().expect("it is queued");
        let MatchTicket { id: go_id, members, params, .. } = go;
        self.draft.changes.topic_events.push(PartyTopicEvent::Go { id, go_id, members, params });
    }
}

/// The matchmaker's answer to a ticket.
pub(super) fn answer(
    draft: &mut PartyDraft<'_>,
    id: u64,
    go_id: u64,
    matched: bool,
    details: Option<Arc<str>>,
) -> PartyStep<PartyReply> {
    if !open(draft, id)? {
        return Err(PartyRefusal::NoSuchParty.into());
    }
    let party = draft.party(id);
    if party.state() != PartyState::Queued || party.go.as_ref().is_none_or(|go| go.id != go_id) {
        return Err(PartyRefusal::NoSuchGo.into());
    }
    draft.begin_command();
    let leader = draft.party(id).actor(&draft.party(id).leader().user);
    draft.change(id).go = None;
    let what = match matched {
        true => PartyEventKind::PartyMatched { go_id, details },
        false => PartyEventKind::GoFailed { go_id, missing: Vec::new(), details },
    };
    draft.notify_members(id, &leader, &what);
    Ok(PartyReply::Nothing)
}
