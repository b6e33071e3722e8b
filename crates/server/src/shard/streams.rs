//! SSE streams: the events of a session in pieces, as long as the response has room.
//! Must hold: an event counts as sent when the response has accepted its piece.

use crate::connections::ClientTransport;
use crate::shard::input::HttpStream;
use crate::shard::links::{LinkTarget, StreamLink, WaitingForSession, offer};
use crate::shard::requests::{session_ended, unproved};
use crate::shard::state::ShardState;
use tavern_domain::{Identity, SessionKey};
use tavern_hub::core::attach::acting_identity;
use tavern_hub::{Caller, CallerHello, CloseReason, EventFormat, Flow, Link, LinkId, LookupResult};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::{json, sse};
use tokio::sync::mpsc::error::TrySendError;

/// Bytes collected for one piece of an event stream.
const PIECE_BYTES: usize = 32 * 1024;

pub fn open(state: &mut ShardState, request: HttpStream) {
    let link = state.new_link();
    begin(state, link, request);
}

pub fn begin(state: &mut ShardState, id: LinkId, mut request: HttpStream) {
    let (name, identity) = (request.session.as_ref(), request.identity.as_ref());
    if request.admitted.is_none() {
        request.admitted = match state.hub.admit(state.now, identity) {
            Ok(admitted) => admitted,
            Err(refusal) => {
                state.links.retire(id);
                let _ = request.started.send(Err(refusal));
                return;
            }
        };
    }
    match name.map(|name| state.look_up(name, identity, false, id)) {
        Some(LookupResult::Wait) => {
            return state.links.put(id, LinkTarget::Seeking(Box::new(WaitingForSession::Stream(request))));
        }
        Some(LookupResult::Ended) => {
            state.links.retire(id);
            let _ = request.started.send(Err(session_ended()));
            return;
        }
        _ => {}
    }
    let HttpStream {
        session,
        admitted,
        hello,
        identity,
        address,
        channels,
        last,
        since,
        events,
        replies,
        started,
        wants_room,
    } = request;
    let identity = match identity_of(state, session.map(|name| name.key), identity) {
        Ok(identity) => identity,
        Err(refusal) => {
            state.links.retire(id);
            let _ = started.send(Err(refusal));
            return;
        }
    };
    let mut caller = Caller::new(Link { id, format: EventFormat::Sse }, Some(identity)).from_address(address);
    caller.looked_up = true;
    caller.hello = admitted.map(|hello| Box::new(CallerHello::Admitted(hello)));
    let mut since = since.into_iter();
    let subscribe = |channel| json::subscribe_command(channel, last, since.next());
    let subscriptions = std::iter::once(hello).chain(channels.into_iter().map(subscribe)).collect();
    let written_ms = state.since_start();
    let started = Some(started);
    let _transport = state.context.resp.connections.count_transport(ClientTransport::Sse);
    let stream = StreamLink {
        caller,
        started,
        subscriptions,
        events,
        replies,
        blocked: false,
        wants_room,
        written_ms,
        _transport,
    };
    state.links.put(id, LinkTarget::Stream(Box::new(stream)));
    go_on(state, id);
}

/// Without a token the stream acts as the session's user, if the session was also opened without one.
fn identity_of(
    state: &ShardState,
    session: Option<SessionKey>,
    identity: Option<Identity>,
) -> Result<Identity, Refusal> {
    let known = session.and_then(|key| state.hub.core.find_session(key));
    match (identity, known) {
        (Some(identity), _) => Ok(identity),
        (None, Some(id)) => acting_identity(&state.hub.core, id, None).ok_or_else(unproved),
        (None, None) if session.is_some() => Err(session_ended()),
        (None, None) => Err(Refusal::new(Code::Unauthenticated, "a token is needed")),
    }
}

/// Runs the hello of a stream and the subscriptions of a client that can only open a URL, until one must wait. The
/// replies are part of the stream, before all events of their channels.
pub fn go_on(state: &mut ShardState, link: LinkId) {
    loop {
        let Some(LinkTarget::Stream(stream)) = state.links.get_mut(link) else { return };
        state.reply.clear();
        let flow = match stream.caller.is_waiting() {
            true => state.hub.resume(state.now, &mut stream.caller, &mut state.reply),
            false => {
                let Some(command) = stream.subscriptions.pop_front() else { break };
                state.hub.parsed_command(state.now, &mut stream.caller, Ok(command), &mut state.reply)
            }
        };
        if flow == Flow::Wait {
            return;
        }
        if let Some(started) = stream.started.take() {
            if flow != Flow::Greeted {
                let code = state.hub.core.refused_with.unwrap_or(Code::Gone);
                state.links.retire(link);
                let _ = started.send(Err(Refusal::from(code)));
                return;
            }
            let _ = started.send(Ok(link));
        }
        let mut piece = Vec::new();
        sse::event(&mut piece, None, &state.reply);
        // A stream holds more pieces than a URL can name channels; a closed one is detected at its next event.
        let _ = stream.events.try_send(stream.replies.count(piece.into()));
    }
    write(state, link);
}

/// Writes unread events to a stream, as long as it has room.
pub fn write(state: &mut ShardState, link: LinkId) {
    loop {
        let now_ms = state.since_start();
        let Some(LinkTarget::Stream(stream)) = state.links.get_mut(link) else { return };
        if stream.blocked {
            return;
        }
        let Some(id) = stream.caller.listener.filter(|_| stream.started.is_none()) else { return };
        state.scratch.clear();
        let more = state.scratch.fill(&mut state.hub.core, id, link, PIECE_BYTES);
        if state.scratch.bytes.is_empty() {
            return;
        }
        let piece = stream.replies.count(state.scratch.bytes.clone().into());
        match offer(&stream.events, &stream.wants_room, piece) {
            Ok(()) => {
                stream.written_ms = now_ms;
                state.hub.core.note_activity(state.now, id);
                let all = state.scratch.bytes.len();
                state.scratch.settle(&mut state.hub.core, id, all);
            }
            Err(TrySendError::Full(_)) => {
                stream.blocked = true;
                return;
            }
            Err(TrySendError::Closed(_)) => return drop_stream(state, link),
        }
        if !more {
            return;
        }
    }
}

pub fn has_room(state: &mut ShardState, link: LinkId) {
    if let Some(LinkTarget::Stream(stream)) = state.links.get_mut(link) {
        stream.blocked = false;
        write(state, link);
    }
}

/// The client has disconnected: its session is detached.
fn drop_stream(state: &mut ShardState, link: LinkId) {
    if let Some(LinkTarget::Stream(stream)) = state.links.take(link) {
        state.links.retire(link);
        if let Some(id) = stream.caller.listener {
            state.hub.detach(state.now, id, link);
        }
        state.hub.abandon(state.now, &stream.caller);
    }
}

/// Ends a stream from our side, with the reason as its last event.
pub fn end(state: &mut ShardState, link: LinkId, reason: CloseReason) {
    let reconnect_after_ms = state.reconnect_after_ms();
    let Some(LinkTarget::Stream(stream)) = state.links.take(link) else { return };
    state.links.retire(link);
    let mut event = Vec::new();
    match reason {
        CloseReason::Superseded => json::superseded(&mut event),
        CloseReason::Closing => json::closing(&mut event, reconnect_after_ms),
        CloseReason::TokenExpired | CloseReason::KeyRevoked => {
            let refusal = Refusal::new(Code::Unauthenticated, format!("the {}", reason.reason()));
            json::reply_error(&mut event, None, &refusal);
        }
        reason => json::reply_error(&mut event, None, &state.ended(&reason)),
    }
    let mut piece = Vec::new();
    sse::event(&mut piece, None, &event);
    // Dropping the sender ends the response.
    let _ = stream.events.try_send(stream.replies.count(piece.into()));
}

/// Writes a comment to a silent stream; drops one whose client has disconnected.
pub fn keep_alive(state: &mut ShardState, link: LinkId) {
    let now_ms = state.since_start();
    let heartbeat_ms = state.context.limits.heartbeat_ms;
    let Some(LinkTarget::Stream(stream)) = state.links.get_mut(link) else { return };
    if stream.events.is_closed() {
        drop_stream(state, link);
    } else if now_ms.saturating_sub(stream.written_ms) >= heartbeat_ms && !stream.blocked {
        stream.written_ms = now_ms;
        let mut comment = Vec::new();
        sse::comment(&mut comment);
        // A full stream has been written to recently or is stalled; a comment would add nothing.
        let sent = stream.events.try_send(stream.replies.count(comment.into()));
        if let (Ok(()), Some(id)) = (sent, stream.caller.listener) {
            state.hub.core.note_activity(state.now, id);
        }
    }
}
