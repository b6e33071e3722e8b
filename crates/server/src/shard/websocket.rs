//! The WebSocket transport: frames into commands, replies into frames. Knows no rules.
//! Must hold: a message that is not JSON gets an error and the connection stays; a broken frame ends it with a reason.

use crate::shard::conn::Conn;
use tavern_domain::Time;
use tavern_hub::{Caller, CloseReason, Flow, Scratch, Shard};
use tavern_wire::json::ParsedCommand;
use tavern_wire::{json, ws};

/// The state of one WebSocket beside its socket.
pub struct WebSocket {
    pub caller: Caller,
    /// A message that came in several frames, so far.
    fragments: Vec<u8>,
    fragmented: bool,
}

/// What the loop must do with the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketNext {
    Go,
    /// A command waits; read no more until it has run.
    Stall,
    Close(CloseReason),
    /// The peer broke the protocol, or closed: answer with this code.
    End(u16, &'static str),
    Move(usize),
}

impl WebSocket {
    pub fn new(caller: Caller) -> WebSocket {
        WebSocket { caller, fragments: Vec::new(), fragmented: false }
    }
}

/// What the transport needs of its shard.
pub struct WebSocketContext<'a> {
    pub now: Time,
    pub hub: &'a mut Shard,
    pub scratch: &'a mut Scratch,
    pub reply: &'a mut Vec<u8>,
    /// The largest message.
    pub frame_bytes: usize,
}

/// Reads as many frames as are complete; returns how many bytes they took and what comes next. Frames behind a command that waits are kept in
/// `stalled`.
pub fn consume(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    input: &mut [u8],
) -> (usize, WebSocketNext) {
    let mut at = 0;
    loop {
        let head = match ws::read_head(&input[at..], ws::Role::Server, context.frame_bytes) {
            Ok(Some(head)) => head,
            Ok(None) => return (at, WebSocketNext::Go),
            Err(error) => return (input.len(), WebSocketNext::End(error.close_code(), "broken frame")),
        };
        let begin = at + head.head_len;
        let end = begin + head.payload_len;
        if end > input.len() {
            return (at, WebSocketNext::Go);
        }
        let payload = &mut input[begin..end];
        if let Some(mask) = head.mask {
            ws::unmask(payload, mask);
        }
        at = end;
        let next = take_frame(conn, socket, context, &head, &input[begin..end]);
        if next != WebSocketNext::Go {
            return (at, next);
        }
    }
}

fn take_frame(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    head: &ws::Head,
    payload: &[u8],
) -> WebSocketNext {
    match head.opcode {
        ws::Opcode::Ping => {
            ws::write_head(&mut conn.out, ws::Opcode::Pong, payload.len());
            conn.out.extend_from_slice(payload);
            WebSocketNext::Go
        }
        ws::Opcode::Pong => WebSocketNext::Go,
        ws::Opcode::Close => match ws::parse_close(payload) {
            Ok(_) => WebSocketNext::End(1000, ""),
            Err(error) => WebSocketNext::End(error.close_code(), "broken close frame"),
        },
        ws::Opcode::Text | ws::Opcode::Binary if socket.fragmented => {
            WebSocketNext::End(1002, "a message inside a message")
        }
        ws::Opcode::Text | ws::Opcode::Binary if head.fin => run_message(conn, socket, context, payload),
        ws::Opcode::Continuation if !socket.fragmented => WebSocketNext::End(1002, "nothing to continue"),
        ws::Opcode::Text | ws::Opcode::Binary | ws::Opcode::Continuation => {
            if socket.fragments.len() + payload.len() > context.frame_bytes {
                return WebSocketNext::End(1009, "message too large");
            }
            socket.fragmented = !head.fin;
            socket.fragments.extend_from_slice(payload);
            if !head.fin {
                return WebSocketNext::Go;
            }
            let message = std::mem::take(&mut socket.fragments);
            run_message(conn, socket, context, &message)
        }
    }
}

fn run_message(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    message: &[u8],
) -> WebSocketNext {
    let mut commands = json::commands(message);
    while let Some(command) = commands.next() {
        match run(conn, socket, context, command) {
            WebSocketNext::Go => {}
            next @ (WebSocketNext::Stall | WebSocketNext::Move(_)) => {
                let stalled = conn.stalled.get_or_insert_default();
                stalled.frames.extend(commands.map(<[u8]>::to_vec));
                return next;
            }
            next => return next,
        }
    }
    WebSocketNext::Go
}

/// Runs one command; its reply comes after the events before it.
pub fn run(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    command: &[u8],
) -> WebSocketNext {
    context.reply.clear();
    let flow = context.hub.command(context.now, &mut socket.caller, command, context.reply);
    follow(conn, socket, context, flow)
}

/// Runs a command that did not come in a frame.
pub fn run_parsed(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    command: ParsedCommand<'_>,
) -> WebSocketNext {
    context.reply.clear();
    let flow = context.hub.parsed_command(context.now, &mut socket.caller, Ok(command), context.reply);
    follow(conn, socket, context, flow)
}

/// Goes on with the command that waits, if there is one.
pub fn resume(conn: &mut Conn, socket: &mut WebSocket, context: &mut WebSocketContext<'_>) -> WebSocketNext {
    if !socket.caller.is_waiting() {
        return WebSocketNext::Go;
    }
    context.reply.clear();
    let flow = context.hub.resume(context.now, &mut socket.caller, context.reply);
    follow(conn, socket, context, flow)
}

/// Writes the replies of pipelined commands, as far as they are there.
pub fn reply(conn: &mut Conn, socket: &mut WebSocket, context: &mut WebSocketContext<'_>) -> WebSocketNext {
    loop {
        context.reply.clear();
        let Some(flow) = context.hub.next_reply(&mut socket.caller, context.reply) else {
            return WebSocketNext::Go;
        };
        let next = follow(conn, socket, context, flow);
        if next != WebSocketNext::Go {
            return next;
        }
    }
}

fn follow(
    conn: &mut Conn,
    socket: &WebSocket,
    context: &mut WebSocketContext<'_>,
    flow: Flow,
) -> WebSocketNext {
    if !context.reply.is_empty() {
        if flow != Flow::Greeted {
            append_events(conn, context, &socket.caller);
        }
        ws::write_head(&mut conn.out, ws::Opcode::Text, context.reply.len());
        conn.out.extend_from_slice(context.reply);
    }
    match flow {
        Flow::Done | Flow::Greeted | Flow::Begun => WebSocketNext::Go,
        Flow::Wait => WebSocketNext::Stall,
        Flow::Close(reason) => WebSocketNext::Close(reason),
        Flow::Move(shard) => WebSocketNext::Move(shard),
    }
}

/// Writes unread events in front of a reply: after "unsubscribed" nothing of that channel may follow.
fn append_events(conn: &mut Conn, context: &mut WebSocketContext<'_>, caller: &Caller) {
    let Some(id) = caller.listener else { return };
    if !context.hub.core.listener(id).is_some_and(|listener| listener.mailbox.has_unread()) {
        return;
    }
    context.scratch.clear();
    context.scratch.fill(&mut context.hub.core, id, caller.link.id, usize::MAX);
    let all = context.scratch.bytes.len();
    context.scratch.settle(&mut context.hub.core, id, all);
    conn.out.extend_from_slice(&context.scratch.bytes);
}

/// The frames that close a connection from our side.
pub fn write_close(out: &mut Vec<u8>, reason: CloseReason, reconnect_after_ms: u64) {
    let mut event = Vec::new();
    match reason {
        CloseReason::Superseded => json::superseded(&mut event),
        CloseReason::Closing => json::closing(&mut event, reconnect_after_ms),
        _ => {}
    }
    if !event.is_empty() {
        ws::write_head(out, ws::Opcode::Text, event.len());
        out.extend_from_slice(&event);
    }
    ws::write_close(out, reason.code(), reason.reason());
}
