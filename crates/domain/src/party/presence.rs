//! How a member's presence changes their party. Must hold: a disconnected member keeps their seat for the grace period
//! of their presence and the party's own.

use super::draft::{PartyDraft, PartyStep};
use super::{MemberDisconnect, PartyEventKind, PartyReason, PartyState, UserId, UserPresence, ticket};
use crate::time::Time;

/// Applies a member's current presence.
pub(super) fn apply(draft: &mut PartyDraft<'_>, id: u64, user: &UserId) -> PartyStep {
    let away = draft.party(id).member(user).and_then(|member| member.away);
    let now = draft.now;
    match (draft.presence(user)?, away) {
        (UserPresence::Online { .. }, Some(_)) => come_back(draft, id, user),
        (UserPresence::Lost { since, until, node_down }, None) => {
            // A gathering fails when the server of a member stops; no user has cancelled it.
            if *node_down && draft.party(id).state() == PartyState::Gathering {
                ticket::fail_gathering(draft, id, Some(user));
            }
            go_away(draft, id, user, *since, *until);
        }
        (UserPresence::Lost { since, .. }, Some(away)) if away.since < *since => lose_again(draft, id, user)?,
        (UserPresence::Absent | UserPresence::Never, None) => go_away(draft, id, user, now, now),
        _ => {}
    }
    Ok(())
}

/// A member who was away reconnected and disconnected again since.
pub(super) fn lose_again(draft: &mut PartyDraft<'_>, id: u64, user: &UserId) -> PartyStep {
    if let UserPresence::Lost { since, until, .. } = draft.presence(user)? {
        come_back(draft, id, user);
        go_away(draft, id, user, *since, *until);
    }
    Ok(())
}

pub(super) fn come_back(draft: &mut PartyDraft<'_>, id: u64, user: &UserId) {
    draft.change(id).member_mut(user).away = None;
    let actor = draft.party(id).actor(user);
    draft.notify_members(id, &actor, &PartyEventKind::Online);
}

fn go_away(draft: &mut PartyDraft<'_>, id: u64, user: &UserId, since: Time, grace_ends: Time) {
    let actor = draft.party(id).actor(user);
    ticket::cancel(draft, id, &actor, PartyReason::Offline);
    let until = grace_ends + draft.rules.grace_ms;
    draft.change(id).member_mut(user).away = Some(MemberDisconnect { since, until });
    draft.notify_members(id, &actor, &PartyEventKind::Offline);
}
