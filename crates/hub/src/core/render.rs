//! Renders events into bytes, for each transport. Events that a socket does not accept stay in the mailbox as references.
//! Must hold: an event is marked as sent only when all of its bytes were accepted, or the caller keeps the rest.

use crate::connection::{EventFormat, LinkId};
use crate::core::listener::{Listener, ListenerId};
use crate::core::{Core, has_read, poll};
use crate::event::FrameRenderer;
use tavern_domain::limits;
use tavern_wire::json::reply::{self, PollTail};
use tavern_wire::{json, sse, ws};

/// A reused buffer, and where each event ends in it.
#[derive(Debug, Default)]
pub struct Scratch {
    pub bytes: Vec<u8>,
    /// Bytes of the transport itself (replies, frame headers) before the first event.
    own: usize,
    /// (end in `bytes`, number of the event).
    ends: Vec<(usize, u64)>,
    /// When the oldest of the events was published, if the client was there.
    oldest_us: Option<u64>,
    body: Vec<u8>,
}

/// What `Scratch::fill_frames` has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilledFrames {
    /// The number of the last event in the buffer, or zero.
    pub last: u64,
    /// There are more frames than fit.
    pub more: bool,
    /// What comes next is no frame.
    pub rest: bool,
}

impl Scratch {
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.own = 0;
        self.oldest_us = None;
    }

    /// Starts with the transport's own bytes.
    pub fn begin(&mut self, own: &[u8]) {
        self.clear();
        self.bytes.extend_from_slice(own);
        self.own = own.len();
    }

    /// How many bytes at the front are the transport's own.
    pub fn own(&self) -> usize {
        self.own
    }

    /// Appends unread events until the buffer has about `room` bytes. Only for the connection that is attached now: a
    /// superseded one that does not know it yet gets nothing. `settle` reports how many bytes were written. Returns
    /// whether there are more events.
    pub fn fill(&mut self, core: &mut Core, id: ListenerId, to: LinkId, room: usize) -> bool {
        let Some(listener) = core.listeners.get_mut(id) else { return false };
        let Some(link) = listener.link.filter(|link| link.id == to) else { return false };
        listener.dirty = false;
        self.oldest_us = oldest_us(listener);
        match link.format {
            EventFormat::Resp2 | EventFormat::Resp3 => {
                for event in listener.mailbox.events() {
                    if self.bytes.len() >= room {
                        return true;
                    }
                    append_resp(&mut self.bytes, event.resp_frame().unwrap_or_default(), link.format);
                    self.ends.push((self.bytes.len(), 0));
                }
                false
            }
            EventFormat::WebSocket | EventFormat::Sse | EventFormat::Poll | EventFormat::Gateway(_) => {
                if let Some((from, to)) = listener.mailbox.gap() {
                    self.body.clear();
                    json::gap_tail(&mut self.body, from, to);
                    append_json(&mut self.bytes, to, &self.body, link.format);
                    self.ends.push((self.bytes.len(), to));
                }
                for (seq, event) in listener.mailbox.unread_events() {
                    if self.bytes.len() >= room {
                        return true;
                    }
                    append_json(&mut self.bytes, seq, event.json_tail(), link.format);
                    self.ends.push((self.bytes.len(), seq));
                }
                false
            }
        }
    }

    /// Appends the frames of unread messages for the client `name` of a gateway, until the buffer has about `room` bytes or an
    /// event comes that is no frame. `settle_frames` reports that they are on their way.
    pub fn fill_frames(
        &mut self,
        core: &mut Core,
        (id, to): (ListenerId, LinkId),
        room: usize,
        (render, name): (FrameRenderer, &str),
    ) -> FilledFrames {
        self.clear();
        let Some(listener) = core.listeners.get_mut(id) else { return FilledFrames::default() };
        if listener.link.is_none_or(|link| link.id != to) {
            return FilledFrames::default();
        }
        listener.dirty = false;
        self.oldest_us = oldest_us(listener);
        let mut filled = FilledFrames { rest: listener.mailbox.gap().is_some(), ..FilledFrames::default() };
        if filled.rest {
            return filled;
        }
        for (seq, event) in listener.mailbox.unread_events() {
            filled.more = self.bytes.len() >= room;
            if filled.more {
                break;
            }
            let Some(frame) = event.gateway_frame(render) else {
                filled.rest = true;
                break;
            };
            if frame.except.as_deref() != Some(name) {
                self.bytes.extend_from_slice(&frame.bytes);
            }
            filled.last = seq;
        }
        filled
    }

    /// The frames are written, or will be before anything else.
    pub fn settle_frames(&self, core: &mut Core, id: ListenerId, last: u64) {
        self.observe_latency(core);
        if let Some(listener) = core.listeners.get_mut(id) {
            listener.mailbox.mark_sent(last);
            has_read(core, id);
        }
    }

    fn observe_latency(&self, core: &mut Core) {
        if let Some(oldest_us) = self.oldest_us {
            let latency_us = core.event_memory.now_us().saturating_sub(oldest_us);
            core.stats.message_delivery.observe(latency_us);
        }
    }

    /// The first `written` bytes of the buffer were written. Events with at least one written byte count as sent;
    /// returns where the last of them ends, so that the caller keeps `written..end` for later. The others stay
    /// unread.
    pub fn settle(&self, core: &mut Core, id: ListenerId, written: usize) -> usize {
        // An event counts once its first byte was written: count those that start before `written`.
        let begun = match self.ends.iter().position(|(end, _)| *end >= written) {
            _ if written <= self.own => 0,
            Some(index) => index + 1,
            None => self.ends.len(),
        };
        if begun == 0 {
            return written;
        }
        let (end, seq) = self.ends[begun - 1];
        self.observe_latency(core);
        match core.listeners.get_mut(id) {
            Some(listener) if listener.is_redis() => listener.mailbox.take_many(begun),
            Some(listener) => {
                listener.mailbox.mark_sent(seq);
                has_read(core, id);
            }
            None => {}
        }
        end.max(written)
    }
}

/// When the oldest unread event was published. None: before the client was there.
fn oldest_us(listener: &Listener) -> Option<u64> {
    let oldest = match listener.is_redis() {
        true => listener.mailbox.events().next()?.published_us,
        false => listener.mailbox.unread_events().next()?.1.published_us,
    };
    (oldest > 0 && oldest >= listener.linked_us).then_some(oldest)
}

/// The flags of a poll's reply that depend on the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollFlags {
    pub reset: bool,
    pub superseded: bool,
}

/// The body of a poll's reply, with the events up to `last`. Events are freed when a later cursor covers them, not
/// now. A superseded poll gets no events, and a cursor that skips none: the newer connection may have been sent some.
pub(crate) fn render_poll(
    core: &mut Core,
    id: ListenerId,
    flags: PollFlags,
    last: u64,
    party: Option<&str>,
    out: &mut Vec<u8>,
) {
    let node = &core.node;
    let Some(listener) = core.listeners.get(id) else { return };
    let Some(session) = listener.session() else { return };
    reply::poll_head(out, &session_text(session.key, &node.settings.node));
    let begin = out.len();
    let PollFlags { reset, superseded } = flags;
    if superseded {
        let cursor = listener.mailbox.first() - 1;
        return reply::poll_tail(out, &PollTail { cursor, superseded, ..PollTail::default() });
    }
    let mut cursor = listener.mailbox.sent();
    let (mut count, mut more) = (0, false);
    let mut body = Vec::new();
    let gap = listener.mailbox.gap();
    if let Some((from, to)) = gap {
        json::gap_tail(&mut body, from, to);
        append_json(out, to, &body, EventFormat::Poll);
        (cursor, count) = (to, 1);
    }
    for (seq, event) in listener.mailbox.unread_events() {
        let tail = event.json_tail();
        // One event larger than the limit is sent alone.
        let full = count >= limits::POLL_EVENTS
            || (count > 0 && out.len() - begin + tail.len() > limits::POLL_BYTES);
        if full || seq > last {
            more = true;
            break;
        }
        append_json(out, seq, tail, EventFormat::Poll);
        (cursor, count) = (seq, count + 1);
    }
    if let Some(oldest_us) = oldest_us(listener) {
        core.stats.poll_wakeup.observe(core.event_memory.now_us().saturating_sub(oldest_us));
    }
    let tail = PollTail { cursor, more, gap: gap.is_some(), reset, superseded, party };
    reply::poll_tail(out, &tail);
    if let Some(listener) = core.listeners.get_mut(id) {
        listener.mailbox.mark_handed(cursor);
    }
    poll::answered(core, id);
}

/// Removes messages for a Redis client that polls (`TAVERN.POLL`); appends them as pushes, returns how many.
pub fn take_messages(
    core: &mut Core,
    id: ListenerId,
    max: usize,
    format: EventFormat,
    out: &mut Vec<u8>,
) -> usize {
    let Some(listener) = core.listeners.get_mut(id) else { return 0 };
    let mut taken = 0;
    while taken < max
        && let Some(event) = listener.mailbox.take()
    {
        append_resp(out, event.resp_frame().unwrap_or_default(), format);
        taken += 1;
    }
    taken
}

fn append_resp(out: &mut Vec<u8>, frame: &[u8], format: EventFormat) {
    let at = out.len();
    out.extend_from_slice(frame);
    if format == EventFormat::Resp3 && !frame.is_empty() {
        out[at] = b'>';
    }
}

fn append_json(out: &mut Vec<u8>, seq: u64, tail: &[u8], format: EventFormat) {
    match format {
        EventFormat::WebSocket => {
            ws::write_event(out, seq, tail);
        }
        EventFormat::Sse => {
            // Through a small buffer: SSE rewrites raw newlines.
            let mut event = Vec::with_capacity(tail.len() + 32);
            json::seq_head(&mut event, seq);
            event.extend_from_slice(tail);
            sse::event(out, Some(seq), &event);
        }
        EventFormat::Poll | EventFormat::Gateway(_) => {
            json::seq_head(out, seq);
            out.extend_from_slice(tail);
            out.push(b',');
        }
        EventFormat::Resp2 | EventFormat::Resp3 => unreachable!("a JSON event on a Redis connection"),
    }
}

/// The session secret as the client gets it; it contains the name of the node.
pub(crate) fn session_text(key: tavern_domain::SessionKey, node: &str) -> String {
    let mut text = String::with_capacity(32 + node.len());
    key.write(&mut text);
    text.push('~');
    text.push_str(node);
    text
}

/// Parses a session secret into its key and the name of its node.
pub fn read_session(text: &str) -> Option<(tavern_domain::SessionKey, &str)> {
    let (key, node) = text.split_once('~')?;
    Some((tavern_domain::SessionKey::parse(key)?, node))
}
