//! How a ticket ends early. Must hold: a ticket ends before its members change, so no ticket names a user who has left.

use super::draft::PartyDraft;
use super::event::Actor;
use super::{PartyEventKind, PartyReason, PartyTopicEvent, UserId};

pub(super) fn cancel(draft: &mut PartyDraft<'_>, id: u64, actor: &Actor, reason: PartyReason) {
    let Some(go_id) = draft.party(id).go.as_ref().map(|go| go.id) else { return };
    let go = draft.change(id).go.take().expect("it was there");
    draft.notify_members(id, actor, &PartyEventKind::GoCancel { go_id, reason });
    if go.until.is_none() {
        draft.changes.topic_events.push(PartyTopicEvent::GoCancelled { id, go_id });
    }
}

/// Some members were not ready in time, or `lost` has disconnected.
pub(super) fn fail_gathering(draft: &mut PartyDraft<'_>, id: u64, lost: Option<&UserId>) {
    let leader = draft.party(id).actor(&draft.party(id).leader().user);
    let go = draft.change(id).go.take().expect("it was gathering");
    let is_missing = |user: &&UserId| !go.ready.contains(user) || lost == Some(user);
    let missing = go.members.iter().filter(is_missing).cloned().collect();
    draft.notify_members(id, &leader, &PartyEventKind::GoFailed { go_id: go.id, missing, details: None });
}
