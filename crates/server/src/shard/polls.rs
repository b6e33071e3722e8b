//! Long-polls: a poll is answered at once, or parked under a link until there is an event or it times out.

use crate::connections::{ClientTransport, TransportSlot};
use crate::shard::input::{CommandAnswer, HttpPoll};
use crate::shard::links::{LinkTarget, PollLink, WaitingForSession};
use crate::shard::requests::{session_ended, unproved};
use crate::shard::state::ShardState;
use tavern_hub::{CloseReason, LinkId, ListenerId, LookupResult, Poll, PollFlags};
use tavern_wire::error::{Code, Refusal};
use tokio::sync::oneshot;

pub fn open(state: &mut ShardState, poll: HttpPoll) {
    let link = state.new_link();
    begin(state, link, poll);
}

pub fn begin(state: &mut ShardState, link: LinkId, poll: HttpPoll) {
    let (name, identity) = (poll.session.as_ref(), poll.identity.as_ref());
    match name.map(|name| state.look_up(name, identity, false, link)) {
        Some(LookupResult::Wait) => {
            return state.links.put(link, LinkTarget::Seeking(Box::new(WaitingForSession::Poll(poll))));
        }
        Some(LookupResult::Ended) => {
            state.links.retire(link);
            let _ = poll.answer.send(Err(session_ended()));
            return;
        }
        _ => {}
    }
    let HttpPoll { session, named, identity, address, cursor, timeout_ms, answer } = poll;
    let session = session.map(|name| name.key);
    let mut outcome = match session {
        Some(key) => state.hub.poll(state.now, key, identity.as_ref(), link, cursor, timeout_ms),
        None => Poll::Unknown,
    };
    if outcome == Poll::Unproved {
        state.links.retire(link);
        let _ = answer.send(Err(unproved()));
        return;
    }
    let mut listener = session.and_then(|key| state.hub.core.find_session(key));
    if outcome == Poll::Unknown {
        let Some(identity) = identity else {
            state.links.retire(link);
            let _ = answer.send(Err(session_ended()));
            return;
        };
        // The first poll, or the first after the session was lost: a new session, whose numbers start again.
        match state.hub.open_session(state.now, identity, address, None) {
            Ok(opened) => listener = Some(opened),
            Err(refusal) => {
                state.links.retire(link);
                let _ = answer.send(Err(refusal));
                return;
            }
        }
        outcome = Poll::Ready { reset: named };
    }
    let reset = outcome == Poll::Ready { reset: true };
    let flags = PollFlags { reset, superseded: false };
    let transport = state.context.resp.connections.count_transport(ClientTransport::Poll);
    state.links.put(link, LinkTarget::Poll(PollLink { listener, flags, answer: Some(answer), transport }));
    if outcome != Poll::Parked {
        self::answer(state, link);
    }
}

fn send(
    state: &mut ShardState,
    link: LinkId,
    id: ListenerId,
    flags: PollFlags,
    answer: oneshot::Sender<CommandAnswer>,
    transport: TransportSlot,
) {
    let mut body = Vec::with_capacity(256);
    if !state.hub.render_poll(state.now, id, link, flags, &mut body) {
        let poll = PollLink { listener: Some(id), flags, answer: Some(answer), transport };
        return state.links.put(link, LinkTarget::Poll(poll));
    }
    state.links.retire(link);
    // If the client has disconnected, its next poll gets the same events.
    let _ = answer.send(Ok((None, body)));
}

/// There is an event for a parked poll, it timed out, or the snapshot for its answer was read.
pub fn answer(state: &mut ShardState, link: LinkId) {
    match state.links.take(link) {
        Some(LinkTarget::Poll(PollLink { listener: Some(id), flags, answer: Some(answer), transport })) => {
            send(state, link, id, flags, answer, transport);
        }
        Some(other) => state.links.put(link, other),
        None => {}
    }
}

/// Ends a parked poll from our side.
pub fn end(state: &mut ShardState, link: LinkId, reason: CloseReason) {
    let Some(LinkTarget::Poll(PollLink { listener, answer: Some(answer), transport, .. })) =
        state.links.take(link)
    else {
        return;
    };
    state.hub.release_link(link);
    let refusal = match (&reason, listener) {
        (CloseReason::Superseded, Some(id)) => {
            let flags = PollFlags { superseded: true, ..PollFlags::default() };
            return send(state, link, id, flags, answer, transport);
        }
        (CloseReason::Closing, _) => {
            let refusal = Refusal::new(Code::Unavailable, "the server is stopping");
            refusal.retry_after(state.reconnect_after_ms())
        }
        (CloseReason::TokenExpired | CloseReason::KeyRevoked, _) => {
            Refusal::new(Code::Unauthenticated, format!("the {}", reason.reason()))
        }
        (CloseReason::Disconnected { .. } | CloseReason::Banned { .. }, _) => state.ended(&reason),
        _ => session_ended(),
    };
    state.links.retire(link);
    let _ = answer.send(Err(refusal));
}

/// Ends a parked poll whose client has disconnected.
pub fn drop_if_closed(state: &mut ShardState, link: LinkId) {
    let Some(LinkTarget::Poll(poll)) = state.links.get_mut(link) else { return };
    if poll.answer.as_ref().is_some_and(|answer| answer.is_closed()) {
        let listener = poll.listener;
        state.links.retire(link);
        if let Some(id) = listener {
            state.hub.detach(state.now, id, link);
        }
    }
}
