//! Beyond Redis: TAVERN.MODE, TAVERN.POLL, TAVERN.WAIT. A connection in poll mode gets no pushes; it polls its
//! messages. A RESP2 connection in poll mode may run every command while it is subscribed. Must hold: a message is
//! either pushed or polled, never both.

use super::{RedisCall, pubsub, text};
use crate::resp::RedisNext;
use tavern_domain::Time;
use tavern_wire::resp as reply;

const NEEDS_POLL: &str = "ERR the connection is in push mode; send TAVERN.MODE poll first";
const NO_SUBSCRIPTION: &str = "ERR the connection has no subscription, so no message can arrive";

pub fn mode(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let polls = match call.args.at(1).to_ascii_lowercase().as_slice() {
        b"poll" => true,
        b"push" => false,
        _ => return call.error("ERR the modes are poll and push"),
    };
    call.peer.state.polls = polls;
    if let Some(id) = call.peer.listener {
        // Messages queued since then are written after this reply.
        tavern_hub::core::redis::set_pushing(&mut call.context.hub.core, id, !polls);
    }
    call.ok()
}

pub fn poll(call: &mut RedisCall<'_, '_>) -> RedisNext {
    if call.args.len() > 2 {
        return call.error(text::SYNTAX);
    }
    let count = match count(call, 1) {
        Ok(count) => count,
        Err(error) => return call.error(error),
    };
    if !call.peer.state.polls {
        return call.error(NEEDS_POLL);
    }
    answer(call, count)
}

pub fn wait(call: &mut RedisCall<'_, '_>) -> RedisNext {
    let (ms, count) = match (timeout(call), count(call, 2)) {
        _ if call.args.len() > 3 => return call.error(text::SYNTAX),
        (Ok(ms), Ok(count)) => (ms, count),
        (Err(error), _) | (_, Err(error)) => return call.error(error),
    };
    if !call.peer.state.polls {
        return call.error(NEEDS_POLL);
    }
    let now = call.context.now;
    let listener = call.peer.listener.filter(|id| call.context.hub.core.listener(*id).is_some());
    let queued =
        listener.and_then(|id| call.context.hub.core.listener(id)).is_some_and(|l| l.mailbox.has_unread());
    let over = call.peer.waiting_until.is_some_and(|until| now >= until);
    // Nothing can wait inside EXEC.
    if queued || over || call.in_exec {
        call.peer.waiting_until = None;
        if let Some(id) = listener {
            tavern_hub::core::redis::set_waiting(&mut call.context.hub.core, id, false);
        }
        return answer(call, count);
    }
    let Some(id) = listener.filter(|_| pubsub::is_subscribed(call.peer, call.context.hub)) else {
        return call.error(NO_SUBSCRIPTION);
    };
    let until = if ms == 0 { Time::NEVER } else { now + ms };
    call.peer.waiting_until.get_or_insert(until);
    tavern_hub::core::redis::set_waiting(&mut call.context.hub.core, id, true);
    RedisNext::Stall
}

fn answer(call: &mut RedisCall<'_, '_>, count: usize) -> RedisNext {
    let format = call.peer.format();
    let mut messages = Vec::new();
    let taken = call.peer.listener.map_or(0, |id| {
        tavern_hub::core::render::take_messages(&mut call.context.hub.core, id, count, format, &mut messages)
    });
    reply::array(call.out, taken);
    call.out.extend_from_slice(&messages);
    RedisNext::Go
}

fn timeout(call: &RedisCall<'_, '_>) -> Result<u64, &'static str> {
    let ms = text::integer(call.args.at(1)).ok_or("ERR timeout is not an integer or out of range")?;
    u64::try_from(ms).map_err(|_| "ERR timeout is negative")
}

/// The largest number of messages to take; all without it.
fn count(call: &RedisCall<'_, '_>, index: usize) -> Result<usize, &'static str> {
    if index >= call.args.len() {
        return Ok(usize::MAX);
    }
    let count = text::integer(call.args.at(index)).ok_or(text::NOT_AN_INTEGER)?;
    usize::try_from(count).ok().filter(|&n| n > 0).ok_or("ERR value is out of range, must be positive")
}
