//! Gateways: tasks beside the shards that serve clients of another protocol. Each has a session here, gives it commands one
//! after the other, and gets replies and events through one queue, in order. Messages that are the same bytes for all clients are
//! written here, where the gateway allows it: with many listeners, a task need not be woken for each delivery.
//! Must hold: the session of a gateway ends with it, at once; what the queue does not take stays in the mailbox.

use crate::shard::input::{GatewayCommand, GatewayOutput, OpenGateway};
use crate::shard::links::{GatewayLink, LinkTarget, offer};
use crate::shard::shared_output::SharedWrite;
use crate::shard::state::ShardState;
use std::sync::atomic::Ordering;
use tavern_domain::ClientId;
use tavern_hub::{Caller, CallerHello, CloseReason, EventFormat, Flow, Link, LinkId, ShardEvent};
use tavern_wire::json;
use tokio::sync::mpsc::error::TrySendError;

/// Bytes of events in one piece.
const PIECE_BYTES: usize = 64 * 1024;
/// Commands that wait. A gateway has one under way; more is a mistake of ours.
const ASKED_MAX: usize = 4;

pub fn open(state: &mut ShardState, request: OpenGateway) {
    let OpenGateway { protocol, identity, address, client, output, wants_room, direct, opened } = request;
    let id = state.new_link();
    let mut caller = Caller::new(Link { id, format: EventFormat::Gateway(protocol) }, Some(identity))
        .from_address(address);
    caller.hello = Some(Box::new(CallerHello::Client(client)));
    let asked = [GatewayCommand::Run(json::hello_command(None, None))].into();
    let (reply, blocked, touched) = (None, false, false);
    let link = GatewayLink { caller, client, asked, output, reply, blocked, wants_room, direct, touched };
    state.links.put(id, LinkTarget::Gateway(Box::new(link)));
    match opened.send(id) {
        Ok(()) => go_on(state, id),
        // The client went away.
        Err(_) => drop_gateway(state, id),
    }
}

pub fn command(state: &mut ShardState, link: LinkId, client: ClientId, command: GatewayCommand) {
    let Some(gateway) = own(state, link, client) else { return };
    if gateway.asked.len() >= ASKED_MAX {
        return drop_gateway(state, link);
    }
    gateway.asked.push_back(command);
    if !gateway.caller.is_waiting() {
        go_on(state, link);
    }
}

/// The queue of a gateway has room again.
pub fn has_room(state: &mut ShardState, link: LinkId, client: ClientId) {
    if let Some(gateway) = own(state, link, client) {
        gateway.blocked = false;
        if send_reply(gateway) {
            go_on(state, link);
        }
    }
}

/// The client went away.
pub fn close(state: &mut ShardState, link: LinkId, client: ClientId) {
    if own(state, link, client).is_some() {
        drop_gateway(state, link);
    }
}

/// The gateway under a link, unless the link was given to another client meanwhile.
fn own(state: &mut ShardState, link: LinkId, client: ClientId) -> Option<&mut GatewayLink> {
    match state.links.get_mut(link)? {
        LinkTarget::Gateway(gateway) if gateway.client == client => Some(gateway),
        _ => None,
    }
}

/// Runs the commands of a gateway, as far as nothing has to be waited for.
pub fn go_on(state: &mut ShardState, link: LinkId) {
    loop {
        let Some(LinkTarget::Gateway(gateway)) = state.links.get_mut(link) else { return };
        if gateway.reply.is_some() {
            break;
        }
        state.reply.clear();
        let flow = match gateway.caller.is_waiting() {
            true => state.hub.resume(state.now, &mut gateway.caller, &mut state.reply),
            false => match gateway.asked.pop_front() {
                None => break,
                Some(GatewayCommand::Run(command)) => {
                    state.hub.parsed_command(state.now, &mut gateway.caller, Ok(command), &mut state.reply)
                }
                Some(GatewayCommand::Lose(channel)) => {
                    if let Some(session) = gateway.caller.listener {
                        state.hub.handle(state.now, ShardEvent::LosePresence { session, channel });
                    }
                    json::reply_ok(&mut state.reply, None, b"{}");
                    Flow::Done
                }
            },
        };
        if flow == Flow::Wait {
            return;
        }
        gateway.reply = Some(state.reply.clone());
        if matches!(flow, Flow::Close(_)) {
            send_reply(gateway);
            return drop_gateway(state, link);
        }
        if !send_reply(gateway) {
            return;
        }
    }
    write(state, link);
}

/// False: the queue is full, and the reply waits.
fn send_reply(gateway: &mut GatewayLink) -> bool {
    let Some(reply) = gateway.reply.take() else { return true };
    match put(gateway, GatewayOutput::Reply(reply)) {
        Err(TrySendError::Full(GatewayOutput::Reply(reply))) => {
            gateway.reply = Some(reply);
            gateway.blocked = true;
            false
        }
        // One that is closed is noticed at its next event.
        _ => true,
    }
}

/// Puts something into the queue of a gateway, which has it under way until it has written what follows from it.
fn put(gateway: &GatewayLink, output: GatewayOutput) -> Result<(), TrySendError<GatewayOutput>> {
    if let Some(direct) = &gateway.direct {
        direct.socket.begin();
    }
    let done = offer(&gateway.output, &gateway.wants_room, output);
    if let (Err(_), Some(direct)) = (&done, &gateway.direct) {
        direct.socket.finish(1);
    }
    done
}

/// A gateway has events. Those that are written here wait for their turn, as those of sockets do.
pub fn touch(state: &mut ShardState, link: LinkId) {
    match state.links.get_mut(link) {
        Some(LinkTarget::Gateway(gateway)) if gateway.direct.is_some() => state.touch(link),
        _ => write(state, link),
    }
}

/// Writes messages to the socket of a gateway's client. True: what is left is for its task.
fn write_direct(state: &mut ShardState, link: LinkId) -> bool {
    let Some(LinkTarget::Gateway(gateway)) = state.links.get_mut(link) else { return false };
    let (Some(direct), Some(id)) = (&gateway.direct, gateway.caller.listener) else { return true };
    if !direct.socket.is_free() {
        gateway.wants_room.store(true, Ordering::SeqCst);
        // The task may have finished before it could see the flag: it would never look again.
        if !direct.socket.is_free() {
            gateway.blocked = true;
            return false;
        }
    }
    let form = (direct.render, &*direct.name);
    let filled = state.scratch.fill_frames(&mut state.hub.core, (id, link), PIECE_BYTES, form);
    if filled.last > 0 {
        let written = match state.scratch.bytes.is_empty() {
            true => SharedWrite::Written,
            false => direct.socket.write_now(&state.scratch.bytes),
        };
        match written {
            SharedWrite::Written | SharedWrite::Kept => {}
            SharedWrite::Closed => {
                drop_gateway(state, link);
                return false;
            }
        }
        state.scratch.settle_frames(&mut state.hub.core, id, filled.last);
    }
    if filled.more {
        state.touch(link);
    }
    filled.rest && !filled.more
}

/// Gives a gateway its reply and what is unread, as long as its queue has room.
pub fn write(state: &mut ShardState, link: LinkId) {
    loop {
        let Some(LinkTarget::Gateway(gateway)) = state.links.get_mut(link) else { return };
        gateway.touched = false;
        if gateway.blocked || !send_reply(gateway) || !write_direct(state, link) {
            return;
        }
        let Some(LinkTarget::Gateway(gateway)) = state.links.get_mut(link) else { return };
        let Some(id) = gateway.caller.listener else { return };
        state.scratch.clear();
        let more = state.scratch.fill(&mut state.hub.core, id, link, PIECE_BYTES);
        if state.scratch.bytes.is_empty() {
            return;
        }
        let events = GatewayOutput::Events(state.scratch.bytes.clone());
        match put(gateway, events) {
            Ok(()) => {
                let all = state.scratch.bytes.len();
                state.scratch.settle(&mut state.hub.core, id, all);
            }
            Err(TrySendError::Full(_)) => {
                gateway.blocked = true;
                return;
            }
            Err(TrySendError::Closed(_)) => return drop_gateway(state, link),
        }
        if !more {
            return;
        }
    }
}

/// The client is lost at once: its session cannot be resumed.
fn drop_gateway(state: &mut ShardState, link: LinkId) {
    if let Some(LinkTarget::Gateway(gateway)) = state.links.take(link) {
        state.links.retire(link);
        if let Some(id) = gateway.caller.listener {
            state.hub.end(id);
        }
        state.hub.abandon(state.now, &gateway.caller);
    }
}

/// Ends a gateway from our side.
pub fn end(state: &mut ShardState, link: LinkId, reason: CloseReason) {
    let Some(LinkTarget::Gateway(gateway)) = state.links.get_mut(link) else { return };
    // Dropping the sender ends the gateway too, without the reason.
    let _ = put(gateway, GatewayOutput::Ended(reason));
    drop_gateway(state, link);
}

/// The server stops: the clients are lost here, and come back to another node with new sessions.
pub fn end_all(state: &mut ShardState) {
    for link in state.links.gateways() {
        end(state, link, CloseReason::Closing);
    }
}

/// Drops a gateway whose task has ended.
pub fn drop_if_closed(state: &mut ShardState, link: LinkId) {
    let Some(LinkTarget::Gateway(gateway)) = state.links.get_mut(link) else { return };
    if gateway.output.is_closed() {
        drop_gateway(state, link);
    } else if let Some(id) = gateway.caller.listener {
        // Its connection is pinged where it is served.
        state.hub.core.note_activity(state.now, id);
    }
}
