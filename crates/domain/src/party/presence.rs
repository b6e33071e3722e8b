//! How a member's presence changes their party. Must hold: a disconnected member keeps their seat for the grace period
//! of their presence and the party's own.

use super::draft::{PartyDraft, Step};
use super::{Away, Reason, Standing, State, User, Word, ticket};
use crate::time::Time;

/// Applies a member's current presence.
pub(super) fn apply(draft: &mut PartyDraft<'_>, id: u64, user: &User) -> Step {
    let away = draft.party(id).member(user).and_then(|member| member.away);
    let now = draft.now;
    match (draft.standing(user)?, away) {
        (Standing::Online { .. }, Some(_)) => come_back(draft, id, user),
        (Standing::Lost { since, until, node_down }, None) => {
            // A gathering fails with the server of a member; no user has cancelled it.
            if *node_down && draft.party(id).state() == State::Gathering {
                ticket::fail_gathering(draft, id, Some(user));
            }
            go_away(draft, id, user, *since, *until);
        }
        (Standing::Lost { since, .. }, Some(away)) if away.since < *since => lose_again(draft, id, user)?,
        (Standing::Absent | Standing::Never, None) => go_away(draft, id, user, now, now),
        _ => {}
    }
    Ok(())
}

/// A member who was away came back and disconnected again meanwhile.
pub(super) fn lose_again(draft: &mut PartyDraft<'_>, id: u64, user: &User) -> Step {
    if let Standing::Lost { since, until, .. } = draft.standing(user)? {
        come_back(draft, id, user);
        go_away(draft, id, user, *since, *until);
    }
    Ok(())
}

pub(super) fn come_back(draft: &mut PartyDraft<'_>, id: u64, user: &User) {
    draft.change(id).member_mut(user).away = None;
    let actor = draft.party(id).actor(user);
    draft.tell_members(id, &actor, &Word::Online);
}

fn go_away(draft: &mut PartyDraft<'_>, id: u64, user: &User, since: Time, grace_ends: Time) {
    let actor = draft.party(id).actor(user);
    ticket::cancel(draft, id, &actor, Reason::Offline);
    let until = grace_ends + draft.rules.grace_ms;
    draft.change(id).member_mut(user).away = Some(Away { since, until });
    draft.tell_members(id, &actor, &Word::Offline);
}
