//! Ends sessions whose user was disconnected or banned.

use super::Shard;
use crate::connection::CloseReason;
use crate::core::listener::ListenerId;
use crate::core::{Core, Notice};
use tavern_domain::presence::OfflineReason;

/// Ends a session at once: its client is not waited for, and does not get it back.
pub(super) fn block_session(shard: &mut Shard, id: ListenerId, reason: CloseReason) {
    let core = &mut shard.core;
    let Some(listener) = core.listener(id) else { return };
    let link = listener.link;
    let Some(half) = listener.session().filter(|session| !session.frozen).map(|known| known.key.half())
    else {
        return;
    };
    core.effects.closes.extend(link.map(|link| (link.id, reason)));
    core.ended.add(core.now, half);
    shard.presence.leave_all(core, id, OfflineReason::Removed);
    shard.end_session(id);
}

/// A session came to this node after its user was disconnected or banned.
pub(super) fn block_if_ordered(core: &mut Core, id: ListenerId) {
    let Some(session) = core.session(id) else { return };
    let user = session.identity.user.as_deref();
    if let Some(reason) = core.node.blocks.end_of(user, Some(session.client), session.since, core.now) {
        core.notify(Notice::SessionBlocked { id, reason });
    }
}
