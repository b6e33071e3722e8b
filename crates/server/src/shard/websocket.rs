//! The WebSocket transport: frames into commands, replies into frames. Knows no rules.
//! Must hold: a message that is not JSON or too large gets an error and the connection stays open; a broken frame,
//! and one that is far too large, closes it with a reason; no more replies are produced than the connection may hold
//! unread.

use crate::shard::conn::Conn;
use crate::traces::{ActiveSpan, SpanDetails, SpanKind, Tracer};
use tavern_domain::Time;
use tavern_hub::{Caller, CloseReason, Flow, Scratch, Shard};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::{BadRequest, ParsedCommand};
use tavern_wire::{json, ws};

/// The largest message before `hello`: a token of the largest size fits.
const UNAUTHENTICATED_FRAME_BYTES: usize = 16 * 1024;
/// A message over the limit is skipped and refused; one that is larger by this factor closes the connection.
const SKIPPED_TIMES: usize = 16;
/// How much of a message that is too large is searched for its id.
const ID_SEARCH_BYTES: usize = 1024;

/// The state of one WebSocket beside its socket.
pub struct WebSocket {
    pub caller: Caller,
    fragmented: Option<Box<Fragmented>>,
    /// Remaining bytes of a refused frame.
    skipped: usize,
    /// The span of a command that waits.
    span: Option<Box<ActiveSpan>>,
}

/// A message that continues in more frames.
#[derive(Debug)]
struct Fragmented {
    opcode: ws::Opcode,
    /// What has arrived of it.
    kept: Vec<u8>,
    /// How many bytes have arrived, kept or discarded.
    bytes: usize,
    /// It is too large and was refused: the rest is discarded.
    refused: bool,
}

impl Fragmented {
    fn new(opcode: ws::Opcode) -> Box<Fragmented> {
        Box::new(Fragmented { opcode, kept: Vec::new(), bytes: 0, refused: false })
    }
}

/// What the loop must do with the connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketNext {
    Go,
    /// A command waits; read no more until it has run.
    Stall,
    /// The client has to read its replies before more commands run.
    Full,
    Close(CloseReason),
    /// The peer broke the protocol, or closed: answer with this code.
    End(u16, &'static str),
    Move(usize),
}

impl WebSocket {
    pub fn new(caller: Caller) -> WebSocket {
        WebSocket { caller, fragmented: None, skipped: 0, span: None }
    }

    /// Memory of unfinished input.
    pub fn held_bytes(&self) -> usize {
        self.fragmented.as_ref().map_or(0, |message| size_of::<Fragmented>() + message.kept.capacity())
    }
}

/// The parts of the shard that the protocol uses.
pub struct WebSocketContext<'a> {
    pub now: Time,
    pub hub: &'a mut Shard,
    pub scratch: &'a mut Scratch,
    pub reply: &'a mut Vec<u8>,
    /// The largest message.
    pub frame_bytes: usize,
    /// Unread replies above which no more commands run.
    pub unread_bytes: usize,
    pub tracer: Option<&'a Tracer>,
}

impl WebSocketContext<'_> {
    fn frame_limit(&self, socket: &WebSocket) -> usize {
        match socket.caller.listener {
            Some(_) => self.frame_bytes,
            None => self.frame_bytes.min(UNAUTHENTICATED_FRAME_BYTES),
        }
    }
}

/// Reads all complete frames; returns how many bytes they used and what to do next. Commands behind one that waits
/// are kept in `stalled`.
pub fn consume(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    input: &mut [u8],
) -> (usize, WebSocketNext) {
    let mut at = 0;
    loop {
        let skipped = socket.skipped.min(input.len() - at);
        socket.skipped -= skipped;
        at += skipped;
        if conn.out.len() > context.unread_bytes {
            return (at, WebSocketNext::Full);
        }
        let limit = context.frame_limit(socket);
        let head = match ws::read_head(&input[at..], ws::Role::Server, limit.saturating_mul(SKIPPED_TIMES)) {
            Ok(Some(head)) => head,
            Ok(None) => return (at, WebSocketNext::Go),
            Err(ws::WsError::TooLarge) => {
                return (input.len(), WebSocketNext::End(1009, "message too large"));
            }
            Err(error) => return (input.len(), WebSocketNext::End(error.close_code(), "broken frame")),
        };
        let begin = at + head.head_len;
        if !head.opcode.is_control() {
            let before = socket.fragmented.as_ref().map_or(0, |message| message.bytes);
            if before + head.payload_len > limit.saturating_mul(SKIPPED_TIMES) {
                return (input.len(), WebSocketNext::End(1009, "message too large"));
            }
            if before + head.payload_len > limit {
                let searched = head.payload_len.min(ID_SEARCH_BYTES);
                if input.len() < begin + searched {
                    return (at, WebSocketNext::Go);
                }
                let next = refuse_large(conn, socket, context, &head, &input[begin..begin + searched]);
                at = begin;
                if next != WebSocketNext::Go {
                    return (at, next);
                }
                continue;
            }
        }
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

/// A frame makes its message too large: it is skipped, and the message is refused once, with its id if that is among
/// the first bytes.
fn refuse_large(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    head: &ws::Head,
    first: &[u8],
) -> WebSocketNext {
    if let Some(broken) = order_error(socket, head) {
        return broken;
    }
    let limit = context.frame_limit(socket);
    let mut message = socket.fragmented.take().unwrap_or_else(|| Fragmented::new(head.opcode));
    message.bytes += head.payload_len;
    let was_refused = std::mem::replace(&mut message.refused, true);
    let mut beginning = std::mem::take(&mut message.kept);
    if !was_refused && beginning.is_empty() {
        beginning.extend_from_slice(first);
        ws::unmask(&mut beginning, head.mask.unwrap_or_default());
    }
    socket.skipped = head.payload_len;
    socket.fragmented = (!head.fin).then_some(message);
    if was_refused {
        return WebSocketNext::Go;
    }
    // An id at the end may be cut off and is not echoed.
    let cut = beginning.len().saturating_sub(1);
    let id = json::find_id(&beginning).filter(|id| json::find_id(&beginning[..cut]) == Some(*id));
    let message = format!("the message is larger than {limit} bytes");
    let refusal = Refusal::new(Code::TooLarge, message);
    context.reply.clear();
    let refused = Err(BadRequest { id: id.map(Into::into), refusal });
    let flow = context.hub.parsed_command(context.now, &mut socket.caller, refused, context.reply);
    follow(conn, socket, context, flow)
}

/// Frames of two messages must not be interleaved.
fn order_error(socket: &WebSocket, head: &ws::Head) -> Option<WebSocketNext> {
    match (head.opcode, &socket.fragmented) {
        (ws::Opcode::Text | ws::Opcode::Binary, Some(_)) => {
            Some(WebSocketNext::End(1002, "a new message started before the last frame of another one"))
        }
        (ws::Opcode::Continuation, None) => {
            Some(WebSocketNext::End(1002, "a continuation frame without a message"))
        }
        _ => None,
    }
}

fn take_frame(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    head: &ws::Head,
    payload: &[u8],
) -> WebSocketNext {
    if let Some(broken) = order_error(socket, head) {
        return broken;
    }
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
        opcode @ (ws::Opcode::Text | ws::Opcode::Binary) if head.fin => {
            run_message(conn, socket, context, opcode, payload)
        }
        ws::Opcode::Text | ws::Opcode::Binary | ws::Opcode::Continuation => {
            let mut message = socket.fragmented.take().unwrap_or_else(|| Fragmented::new(head.opcode));
            message.bytes += payload.len();
            if !message.refused {
                message.kept.extend_from_slice(payload);
            }
            if !head.fin {
                socket.fragmented = Some(message);
                return WebSocketNext::Go;
            }
            match message.refused {
                true => WebSocketNext::Go,
                false => run_message(conn, socket, context, message.opcode, &message.kept),
            }
        }
    }
}

fn run_message(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    opcode: ws::Opcode,
    message: &[u8],
) -> WebSocketNext {
    if opcode == ws::Opcode::Text && std::str::from_utf8(message).is_err() {
        return WebSocketNext::End(1007, "the text is not UTF-8");
    }
    let (next, rest) = run_commands(conn, socket, context, json::commands(message));
    if matches!(next, WebSocketNext::Stall | WebSocketNext::Move(_) | WebSocketNext::Full) {
        conn.keep_stalled(rest);
    }
    next
}

/// Runs commands until one must wait, or until the client has to read first. Returns the rest.
pub fn run_commands<'a>(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    mut commands: json::FrameCommands<'a>,
) -> (WebSocketNext, &'a [u8]) {
    loop {
        if conn.out.len() > context.unread_bytes && !commands.rest().is_empty() {
            return (WebSocketNext::Full, commands.rest());
        }
        let Some(command) = commands.next() else { return (WebSocketNext::Go, &[]) };
        let next = run(conn, socket, context, command);
        if next != WebSocketNext::Go {
            return (next, commands.rest());
        }
    }
}

/// Runs one command; its reply follows the events before it.
fn run(
    conn: &mut Conn,
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    command: &[u8],
) -> WebSocketNext {
    context.reply.clear();
    let span = context.tracer.and_then(|tracer| tracer.begin(None));
    context.hub.core.trace = span.map(|span| span.context);
    let flow = context.hub.command(context.now, &mut socket.caller, command, context.reply);
    end_span(socket, context, span, &flow);
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

/// Continues the waiting command, if there is one.
pub fn resume(conn: &mut Conn, socket: &mut WebSocket, context: &mut WebSocketContext<'_>) -> WebSocketNext {
    if !socket.caller.is_waiting() {
        return WebSocketNext::Go;
    }
    context.reply.clear();
    let span = socket.span.take().map(|span| *span);
    context.hub.core.trace = span.map(|span| span.context);
    let flow = context.hub.resume(context.now, &mut socket.caller, context.reply);
    end_span(socket, context, span, &flow);
    follow(conn, socket, context, flow)
}

/// A command has run, or waits.
fn end_span(
    socket: &mut WebSocket,
    context: &mut WebSocketContext<'_>,
    span: Option<ActiveSpan>,
    flow: &Flow,
) {
    let (Some(tracer), Some(span)) = (context.tracer, span) else { return };
    let core = &mut context.hub.core;
    core.trace = None;
    if *flow == Flow::Wait {
        socket.span = Some(Box::new(span));
        return;
    }
    let mut attributes = vec![("tavern.op", core.traced_op.into())];
    if let Some(code) = core.refused_with {
        attributes.push(("tavern.error_code", code.as_str().into()));
    }
    let details = SpanDetails { attributes, ..SpanDetails::default() };
    tracer.end(span, format!("command {}", core.traced_op), SpanKind::Server, details);
}

/// Writes the replies of pipelined commands that have arrived.
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

/// Writes unread events before a reply: after "unsubscribed" no event of that channel may follow.
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
