//! What a logout or a lost presence means for a user's party and for the invites to them.
//! Must hold: a logout ends the membership and the invites, even if the user has reconnected since; a disconnected
//! user keeps their seat and their invites for a while; an absent user keeps only their seat.

use super::draft::{PartyDraft, PartyStep};
use super::leave::{end_if_empty, end_invite, remove_member};
use super::settle::{open, party_of, settle};
use super::{PartyNeed, PartyReason, UserId, UserPresence, presence};
use alloc::vec::Vec;

/// A user's presence has changed.
pub(super) fn check(draft: &mut PartyDraft<'_>, user: &UserId) -> PartyStep {
    draft.require([PartyNeed::Membership(user.clone()), PartyNeed::Presence(user.clone())])?;
    apply_logout(draft, user)?;
    if let Some(id) = party_of(draft, user)? {
        presence::apply(draft, id, user)?;
        settle(draft, id)?;
    }
    if matches!(draft.presence(user)?, UserPresence::Absent | UserPresence::Never) {
        end_invites(draft, user, PartyReason::Logout)?;
    }
    Ok(())
}

/// Applies a logout that the user's party and their inviters do not know of yet.
pub(super) fn apply_logout(draft: &mut PartyDraft<'_>, user: &UserId) -> PartyStep {
    if draft.record(user)?.logged_out.is_none() {
        return Ok(());
    }
    // Deadlines come first, and may remove the user.
    let party = party_of(draft, user)?;
    draft.record(user)?.logged_out = None;
    end_invites(draft, user, PartyReason::Logout)?;
    match party {
        Some(id) => remove_member(draft, id, user, PartyReason::Logout.into()),
        None => Ok(()),
    }
}

/// Ends every invite that a user sees.
pub(super) fn end_invites(draft: &mut PartyDraft<'_>, user: &UserId, reason: PartyReason) -> PartyStep {
    for id in open_invites(draft, user)? {
        end_invite(draft, id, user, reason.into())?;
        end_if_empty(draft, id)?;
    }
    Ok(())
}

/// The parties whose invites a user sees, settled.
pub(super) fn open_invites(draft: &mut PartyDraft<'_>, user: &UserId) -> PartyStep<Vec<u64>> {
    let listed = draft.record(user)?.invites.clone();
    draft.require(listed.iter().map(|id| PartyNeed::Party(*id)))?;
    for id in &listed {
        open(draft, *id)?;
    }
    let sees = |id: &u64| {
        draft.exists(*id) && draft.party(*id).invite_of(user).is_some_and(|pending| !pending.hidden)
    };
    let open: Vec<u64> = listed.into_iter().filter(sees).collect();
    draft.record(user)?.invites.clone_from(&open);
    Ok(open)
}
