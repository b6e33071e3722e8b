//! How a ticket ends early. Must hold: a ticket ends before its members change, so no ticket names a user who has left.

use super::draft::PartyDraft;
use super::event::Actor;
use super::{Reason, Told, User, Word};

pub(super) fn cancel(draft: &mut PartyDraft<'_>, id: u64, actor: &Actor, reason: Reason) {
    let Some(go_id) = draft.party(id).go.as_ref().map(|go| go.id) else { return };
    let go = draft.change(id).go.take().expect("it was there");
    draft.tell_members(id, actor, &Word::GoCancel { go_id, reason });
    if go.until.is_none() {
        draft.changes.told.push(Told::GoCancelled { id, go_id });
    }
}

/// Some members were not ready in time, or the one who is `lost` has disconnected.
pub(super) fn fail_gathering(draft: &mut PartyDraft<'_>, id: u64, lost: Option<&User>) {
    let leader = draft.party(id).actor(&draft.party(id).leader().user);
    let go = draft.change(id).go.take().expect("it was gathering");
    let is_missing = |user: &&User| !go.ready.contains(user) || lost == Some(user);
    let missing = go.members.iter().filter(is_missing).cloned().collect();
    draft.tell_members(id, &leader, &Word::GoFailed { go_id: go.id, missing, details: None });
}
