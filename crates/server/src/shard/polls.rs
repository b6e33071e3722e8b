//! Long-polls: a poll is answered at once, or parked under a link until there is an event or it times out. Those of
//! HTTP/2 and TLS connections are here; those of other connections are in `poll_socket`.

use crate::connections::ClientTransport;
use crate::shard::input::{HttpPoll, SessionPoll};
use crate::shard::links::{LinkTarget, PollLink, WaitingForSession};
use crate::shard::requests::{session_ended, unproved};
use crate::shard::state::ShardState;
use tavern_hub::{CloseReason, LinkId, ListenerId, LookupResult, Poll, PollFlags};
use tavern_wire::error::{Code, Refusal};

/// How a poll begins.
pub enum PollStart {
    /// Its session is looked up on other nodes; the link is named in `Effects` when that has ended.
    Seeking(SessionPoll),
    Refused(Refusal),
    /// It is answered now.
    Ready(ListenerId, PollFlags),
    /// It waits for an event or its timeout.
    Parked(ListenerId, PollFlags),
}

/// Finds or opens the session of a poll, and parks it there if there is nothing to answer.
pub fn start(state: &mut ShardState, link: LinkId, mut poll: SessionPoll) -> PollStart {
    let (name, identity) = (poll.session.as_ref(), poll.identity.as_ref());
    let is_here = name.is_some_and(|name| state.hub.core.find_session(name.key).is_some());
    if !is_here && poll.admitted.is_none() {
        poll.admitted = match state.hub.admit(state.now, identity) {
            Ok(admitted) => admitted,
            Err(refusal) => return PollStart::Refused(refusal),
        };
    }
    match name.map(|name| state.look_up(name, identity, false, link)) {
        Some(LookupResult::Wait) => return PollStart::Seeking(poll),
        Some(LookupResult::Ended) => return PollStart::Refused(session_ended()),
        _ => {}
    }
    let SessionPoll { session, named, identity, address, cursor, timeout_ms, admitted: _admitted } = poll;
    let session = session.map(|name| name.key);
    let outcome = match session {
        Some(key) => state.hub.poll(state.now, key, identity.as_ref(), link, cursor, timeout_ms),
        None => Poll::Unknown,
    };
    let flags = |reset| PollFlags { reset, superseded: false };
    let listener = session.and_then(|key| state.hub.core.find_session(key));
    match (outcome, listener, identity) {
        (Poll::Ready { reset }, Some(listener), _) => PollStart::Ready(listener, flags(reset)),
        (Poll::Parked, Some(listener), _) => PollStart::Parked(listener, flags(false)),
        (Poll::Unproved, _, _) => PollStart::Refused(unproved()),
        // The first poll, or the first after the session was lost: a new session, whose numbers start again.
        (_, _, Some(identity)) => match state.hub.open_session(state.now, identity, address, None) {
            Ok(listener) => PollStart::Ready(listener, flags(named)),
            Err(refusal) => PollStart::Refused(refusal),
        },
        (_, _, None) => PollStart::Refused(session_ended()),
    }
}

pub fn open(state: &mut ShardState, poll: HttpPoll) {
    let link = state.new_link();
    begin(state, link, poll);
}

pub fn begin(state: &mut ShardState, link: LinkId, poll: HttpPoll) {
    let HttpPoll { poll, counted, answer } = poll;
    let (listener, flags, is_ready) = match start(state, link, poll) {
        PollStart::Seeking(poll) => {
            let waiting = WaitingForSession::Poll(HttpPoll { poll, counted, answer });
            return state.links.put(link, LinkTarget::Seeking(Box::new(waiting)));
        }
        PollStart::Refused(refusal) => {
            state.links.retire(link);
            let _ = answer.send(Err(refusal));
            return;
        }
        PollStart::Ready(listener, flags) => (listener, flags, true),
        PollStart::Parked(listener, flags) => (listener, flags, false),
    };
    let transport = state.context.resp.connections.count_transport(ClientTransport::Poll);
    let poll = Box::new(PollLink { listener, flags, answer, _counted: counted, _transport: transport });
    match is_ready {
        true => send(state, link, poll),
        false => state.links.put(link, LinkTarget::Poll(poll)),
    }
}

fn send(state: &mut ShardState, link: LinkId, poll: Box<PollLink>) {
    let mut body = Vec::with_capacity(256);
    if !state.hub.render_poll(state.now, poll.listener, link, poll.flags, &mut body) {
        return state.links.put(link, LinkTarget::Poll(poll));
    }
    state.links.retire(link);
    // If the client has disconnected, its next poll gets the same events.
    let _ = poll.answer.send(Ok((None, body)));
}

/// There is an event for a parked poll, it timed out, or the snapshot for its answer was read.
pub fn answer(state: &mut ShardState, link: LinkId) {
    match state.links.take(link) {
        Some(LinkTarget::Poll(poll)) => send(state, link, poll),
        Some(other) => state.links.put(link, other),
        None => {}
    }
}

/// How a parked poll ends from our side.
pub enum PollEnd {
    /// With the events of its session and these flags.
    Answer(PollFlags),
    Refuse(Refusal),
}

pub fn end_of(state: &ShardState, reason: &CloseReason) -> PollEnd {
    PollEnd::Refuse(match reason {
        CloseReason::Superseded => {
            return PollEnd::Answer(PollFlags { superseded: true, ..PollFlags::default() });
        }
        CloseReason::Closing => state.stopping(),
        CloseReason::TokenExpired | CloseReason::KeyRevoked => {
            Refusal::new(Code::Unauthenticated, format!("the {}", reason.reason()))
        }
        CloseReason::Disconnected { .. } | CloseReason::Banned { .. } => state.ended(reason),
        _ => session_ended(),
    })
}

/// Ends a parked poll from our side.
pub fn end(state: &mut ShardState, link: LinkId, reason: CloseReason) {
    let Some(LinkTarget::Poll(mut poll)) = state.links.take(link) else { return };
    state.hub.release_link(link);
    match end_of(state, &reason) {
        PollEnd::Answer(flags) => {
            poll.flags = flags;
            send(state, link, poll);
        }
        PollEnd::Refuse(refusal) => {
            state.links.retire(link);
            let _ = poll.answer.send(Err(refusal));
        }
    }
}

/// Ends a parked poll whose client has disconnected.
pub fn drop_if_closed(state: &mut ShardState, link: LinkId) {
    let Some(LinkTarget::Poll(poll)) = state.links.get_mut(link) else { return };
    if poll.answer.is_closed() {
        let listener = poll.listener;
        state.links.retire(link);
        state.hub.detach(state.now, listener, link);
    }
}
