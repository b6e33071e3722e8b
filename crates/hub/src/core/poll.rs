//! Long-polls: a poll is answered at once or parked; a parked poll is answered by the next event, or empty at its
//! timeout.

use super::Core;
use crate::connection::{EventFormat, Link, LinkId};
use crate::core::attach::acting_identity;
use crate::core::listener::ListenerId;
use tavern_domain::{Identity, SessionKey, limits};

/// The result of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// There are events, or the client did not want to wait: answer with `render_poll`.
    Ready { reset: bool },
    /// It is parked; the link is named in `Effects` when there are events or at its timeout.
    Parked,
    /// There is no such session, or it belongs to another user.
    Unknown,
    /// The session was opened with a token or an API key, and the poll has none.
    Unproved,
}

/// Handles a long-poll: its cursor acknowledges events, then it is answered or parked.
pub(crate) fn arrive(
    core: &mut Core,
    key: SessionKey,
    identity: Option<&Identity>,
    link: LinkId,
    cursor: Option<u64>,
    timeout_ms: u64,
) -> Poll {
    let now = core.now;
    let Some(id) = core.find_session(key) else { return Poll::Unknown };
    let is_proved = identity.is_some();
    let Some(identity) = acting_identity(core, id, identity) else {
        return if is_proved { Poll::Unknown } else { Poll::Unproved };
    };
    let link = Link { id: link, format: EventFormat::Poll };
    let Some(attached) = core.attach(key, &identity, link, cursor) else { return Poll::Unknown };
    let timeout_ms = jittered(core, timeout_ms.min(limits::POLL_PARK_MAX_MS));
    let Some(listener) = core.listeners.get_mut(id) else { return Poll::Unknown };
    let pending = listener.mailbox.has_unread();
    if pending || attached.reset || timeout_ms == 0 {
        // It is answered now, not at the end of the turn.
        listener.dirty = false;
        core.effects.dirty.retain(|dirty| *dirty != id);
        return Poll::Ready { reset: attached.reset };
    }
    let until = now + timeout_ms;
    if let Some(session) = listener.session_mut() {
        session.parked_until = Some(until);
    }
    core.agenda.set_session(until, id);
    Poll::Parked
}

/// Ten percent jitter, so that many polls do not return together.
fn jittered(core: &mut Core, ms: u64) -> u64 {
    let tenth = ms / 10;
    if tenth == 0 {
        return ms;
    }
    ms - tenth + (core.rng.next() % (2 * tenth as u128 + 1)) as u64
}

pub(crate) fn is_due(core: &mut Core, id: ListenerId) {
    let now = core.now;
    let Some(listener) = core.listeners.get_mut(id) else { return };
    let Some(session) = listener.session_mut() else { return };
    // The timer may belong to an earlier poll of this session.
    if session.parked_until.is_some_and(|until| until <= now) && !listener.dirty {
        listener.dirty = true;
        core.effects.dirty.push(id);
    }
}

/// The poll was answered: the session waits for the next one.
pub(crate) fn answered(core: &mut Core, id: ListenerId) {
    let now = core.now;
    if let Some(listener) = core.listeners.get_mut(id) {
        listener.link = None;
        listener.dirty = false;
        if let Some(session) = listener.session_mut() {
            session.parked_until = None;
            session.active_at = now;
            session.polling = true;
        }
    }
    super::attach::note_idle(core, id);
    core.schedule_loss(id);
}
