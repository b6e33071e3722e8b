//! Applies deadlines that have passed. Must hold: a deadline at t has passed at t; deadlines are applied in their order,
//! and before anything else is done with a party.

use super::draft::{PartyDraft, PartyStep};
use super::leave::{end_if_empty, end_invite, remove_member};
use super::{Party, PartyReason, UserId, UserPresence, presence, ticket};
use crate::time::Time;

/// A deadline of a party.
enum PartyDeadline {
    Invite(UserId),
    Gathering,
    Away(UserId),
}

/// Loads a party and applies the deadlines that have passed. False: the party does not exist, or has ended.
pub(super) fn open(draft: &mut PartyDraft<'_>, id: u64) -> PartyStep<bool> {
    if draft.load(id)? {
        settle(draft, id)?;
    }
    Ok(draft.exists(id))
}

/// The party of a user, settled. A record that does not agree with the party is corrected.
pub(super) fn party_of(draft: &mut PartyDraft<'_>, user: &UserId) -> PartyStep<Option<u64>> {
    let Some(id) = draft.record(user)?.party else { return Ok(None) };
    if open(draft, id)? && draft.party(id).member(user).is_some() {
        return Ok(Some(id));
    }
    draft.record(user)?.party = None;
    Ok(None)
}

/// Applies the deadlines of a loaded party that have passed.
pub(super) fn settle(draft: &mut PartyDraft<'_>, id: u64) -> PartyStep {
    while draft.exists(id) {
        let Some(deadline) = first_passed(draft.party(id), draft.now) else { break };
        match deadline {
            PartyDeadline::Invite(user) => end_invite(draft, id, &user, PartyReason::Expired.into())?,
            PartyDeadline::Gathering => ticket::fail_gathering(draft, id, None),
            PartyDeadline::Away(user) => time_out(draft, id, &user)?,
        }
        end_if_empty(draft, id)?;
    }
    Ok(())
}

/// A member's grace period is over. They leave, unless they are back, or were back and disconnected again.
fn time_out(draft: &mut PartyDraft<'_>, id: u64, user: &UserId) -> PartyStep {
    // A logout also ends invites; that happens with the user's own next command or check.
    if draft.record(user)?.logged_out.is_some() {
        return remove_member(draft, id, user, PartyReason::Logout.into());
    }
    let since = draft.party(id).member(user).and_then(|member| member.away).map(|away| away.since);
    match draft.presence(user)? {
        UserPresence::Online { .. } => presence::come_back(draft, id, user),
        UserPresence::Lost { since: again, .. } if since.is_some_and(|since| since < *again) => {
            presence::lose_again(draft, id, user)?;
        }
        _ => return remove_member(draft, id, user, PartyReason::Timeout.into()),
    }
    Ok(())
}

fn first_passed(party: &Party, now: Time) -> Option<PartyDeadline> {
    let invites =
        party.pending.iter().map(|pending| (pending.expires, PartyDeadline::Invite(pending.user.clone())));
    let gathering = party.go.iter().filter_map(|go| Some((go.until?, PartyDeadline::Gathering)));
    let away = party.members.iter().filter_map(|member| {
        let until = member.away?.until;
        Some((until, PartyDeadline::Away(member.user.clone())))
    });
    let passed = invites.chain(gathering).chain(away).filter(|(at, _)| now >= *at);
    passed.min_by_key(|(at, _)| *at).map(|(_, deadline)| deadline)
}
