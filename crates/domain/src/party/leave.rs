//! How members and invites leave a party, and how it ends, for every cause.
//! Must hold: each side of an invite that did not end it is notified once; a party with one member and no invite ends.

use super::draft::{PartyDraft, PartyStep};
use super::event::Actor;
use super::{PartyEventKind, PartyReason, PartyTopicEvent, UserId, ticket};
use alloc::sync::Arc;

/// How an invite ends.
pub(super) struct InviteEnd {
    pub reason: PartyReason,
    pub message: Option<Arc<str>>,
    /// The user who ended it by a command about this invite; the reply to that command is their notice.
    pub by: Option<UserId>,
}

impl From<PartyReason> for InviteEnd {
    fn from(reason: PartyReason) -> InviteEnd {
        InviteEnd { reason, message: None, by: None }
    }
}

/// How a member leaves.
pub(super) struct MemberDeparture {
    pub reason: PartyReason,
    /// The leader who kicked them.
    pub by: Option<UserId>,
    pub message: Option<Arc<str>>,
}

impl From<PartyReason> for MemberDeparture {
    fn from(reason: PartyReason) -> MemberDeparture {
        MemberDeparture { reason, by: None, message: None }
    }
}

pub(super) fn end_invite(draft: &mut PartyDraft<'_>, id: u64, user: &UserId, end: InviteEnd) -> PartyStep {
    let pending = draft.change(id).take_invite(user);
    let host = draft.party(id).host_of(&pending);
    let InviteEnd { reason, message, by } = end;
    let invitee = Actor { user: user.clone(), name: pending.name.clone() };
    if !pending.hidden {
        draft.record(user)?.invites.retain(|invite| *invite != id);
        if by.as_ref() != Some(user) {
            let actor = draft.party(id).actor(by.as_ref().unwrap_or(&pending.by));
            draft.notify(id, user, &actor, PartyEventKind::InviteCancel { reason });
        }
    }
    for member in draft.party(id).users() {
        let what = match member == host && by.as_ref() != Some(&host) {
            true => PartyEventKind::Decline { reason, message: message.clone() },
            false => PartyEventKind::Uninvited { reason },
        };
        draft.notify(id, &member, &invitee, what);
    }
    Ok(())
}

/// Removes a member. After a leader the next online member leads, or the next one if none is online.
pub(super) fn remove_member(
    draft: &mut PartyDraft<'_>,
    id: u64,
    user: &UserId,
    departure: MemberDeparture,
) -> PartyStep {
    let MemberDeparture { reason, by, message } = departure;
    let actor = draft.party(id).actor(user);
    draft.changes.topic_events.push(PartyTopicEvent::Left { id, user: user.clone(), reason });
    if draft.party(id).members.len() == 1 {
        return dissolve(draft, id, &actor, PartyReason::Disbanded, PartyReason::Empty, None);
    }
    ticket::cancel(draft, id, &actor, reason);
    draft.record(user)?.party = None;
    let led = draft.party(id).leader().user == *user;
    draft.change(id).members.retain(|member| member.user != *user);
    draft.changes.left.push((id, user.clone()));
    if let Some(by) = &by {
        let leader = draft.party(id).actor(by);
        draft.notify(id, user, &leader, PartyEventKind::Kick { message: message.clone() });
    }
    let leave = PartyEventKind::Leave { reason, by, message };
    if matches!(reason, PartyReason::Timeout | PartyReason::Logout) {
        // They did not ask to leave, and may have reconnected: a logout can be stored after the next login.
        draft.notify(id, user, &actor, leave.clone());
    }
    draft.notify_members(id, &actor, &leave);
    if led {
        let party = draft.party(id);
        let next = party.members.iter().find(|member| member.away.is_none()).unwrap_or(party.leader());
        let next = next.user.clone();
        make_leader(draft, id, &next, None);
    }
    end_if_empty(draft, id)
}

pub(super) fn make_leader(draft: &mut PartyDraft<'_>, id: u64, user: &UserId, by: Option<UserId>) {
    draft.change(id).put_first(user);
    let actor = draft.party(id).actor(user);
    draft.notify_members(id, &actor, &PartyEventKind::Leader { by });
}

/// Ends a party that has one member and no invite.
pub(super) fn end_if_empty(draft: &mut PartyDraft<'_>, id: u64) -> PartyStep {
    if !draft.exists(id) || draft.party(id).members.len() > 1 || !draft.party(id).pending.is_empty() {
        return Ok(());
    }
    let last = draft.party(id).actor(&draft.party(id).leader().user);
    end(draft, id, &last, PartyReason::Empty, None)
}

/// Ends the ticket and the invites for one reason, and then the party for another.
pub(super) fn dissolve(
    draft: &mut PartyDraft<'_>,
    id: u64,
    actor: &Actor,
    invites: PartyReason,
    reason: PartyReason,
    message: Option<Arc<str>>,
) -> PartyStep {
    ticket::cancel(draft, id, actor, invites);
    while let Some(pending) = draft.party(id).pending.first() {
        let user = pending.user.clone();
        end_invite(draft, id, &user, invites.into())?;
    }
    end(draft, id, actor, reason, message)
}

fn end(
    draft: &mut PartyDraft<'_>,
    id: u64,
    actor: &Actor,
    reason: PartyReason,
    message: Option<Arc<str>>,
) -> PartyStep {
    let users = draft.party(id).users();
    draft.change(id);
    draft.notify_members(id, actor, &PartyEventKind::Disband { reason, message });
    for user in users {
        draft.record(&user)?.party = None;
        draft.changes.left.push((id, user));
    }
    draft.changes.topic_events.push(PartyTopicEvent::Disbanded { id, reason });
    draft.remove(id);
    Ok(())
}
