//! An event on its way to mailboxes: kept once per shard, encoded at most once per wire format, shared by reference.
//! `Message` is what was published; it crosses shards. `Event` is one shard's view of it.
//! Must hold: a payload is copied once, when it is published; the bytes of an event never change.

use crate::settings::SlowReader;
use std::cell::{Cell, OnceCell};
use std::rc::Rc;
use std::sync::Arc;
use tavern_domain::{ClientId, Epoch, HistoryPosition, HistoryStamp, Time};
use tavern_wire::json::{self, MessageSender, Payload};
use tavern_wire::resp;

/// The bit at which the number of the shard begins in the number of a message.
pub(crate) const SHARD_BITS: u32 = 56;

/// The publisher, as JSON listeners see it.
#[derive(Clone, Debug)]
pub struct Author {
    pub user: Option<Arc<str>>,
    pub client: ClientId,
}

/// The id of a message among all nodes, by which a duplicate is recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageId {
    pub node: Arc<str>,
    pub epoch: Epoch,
    /// Grows with the messages of one shard; the shard is in its top bits.
    pub n: u64,
}

impl MessageId {
    pub(crate) fn shard(&self) -> u8 {
        (self.n >> SHARD_BITS) as u8
    }
}

/// A published message, stored as the frame that a RESP2 subscriber gets. Every other form refers to that copy of the
/// payload.
#[derive(Debug)]
pub struct Message {
    frame: Box<[u8]>,
    channel_at: u32,
    channel_len: u32,
    payload_at: u32,
    payload_len: u32,
    /// The payload is known to be valid JSON (it came through the JSON protocol).
    json: bool,
    author: Option<Author>,
    /// None: no other node can receive it.
    origin: Option<MessageId>,
    /// Its position in the history of its channel.
    history: Option<HistoryStamp>,
    is_numbered: bool,
    /// When it was published on this node, by the clock of `EventMemory`. Zero: elsewhere.
    published_us: u64,
}

impl Message {
    pub fn new(
        space: Namespace,
        channel: &[u8],
        payload: &[u8],
        json: bool,
        author: Option<Author>,
    ) -> Message {
        let kind = if space == Namespace::Shard { "smessage" } else { "message" };
        let mut frame = Vec::new();
        let (channel_at, payload_at) = resp::message_frame(&mut frame, kind, channel, payload);
        Message {
            frame: frame.into_boxed_slice(),
            channel_at: channel_at as u32,
            channel_len: channel.len() as u32,
            payload_at: payload_at as u32,
            payload_len: payload.len() as u32,
            json,
            author,
            origin: None,
            history: None,
            is_numbered: false,
            published_us: 0,
        }
    }

    #[inline]
    pub fn with_time(mut self, published_us: u64) -> Message {
        self.published_us = published_us;
        self
    }

    /// `is_numbered`: its place is shown; a retained message of a channel without history has one, but only the last is kept.
    #[inline]
    pub fn with_history(mut self, history: Option<HistoryStamp>, is_numbered: bool) -> Message {
        (self.history, self.is_numbered) = (history, is_numbered);
        self
    }

    pub fn history(&self) -> Option<HistoryStamp> {
        self.history
    }

    #[inline]
    pub fn with_origin(mut self, origin: Option<MessageId>) -> Message {
        self.origin = origin;
        self
    }

    pub fn origin(&self) -> Option<&MessageId> {
        self.origin.as_ref()
    }

    pub fn channel(&self) -> &[u8] {
        &self.frame[self.channel_at as usize..][..self.channel_len as usize]
    }

    pub fn payload(&self) -> &[u8] {
        &self.frame[self.payload_at as usize..][..self.payload_len as usize]
    }

    /// The payload came through the JSON protocol.
    pub fn is_json(&self) -> bool {
        self.json
    }

    pub fn author(&self) -> Option<&Author> {
        self.author.as_ref()
    }

    /// The RESP2 push; RESP3 differs in its first byte, `>`.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    fn json_tail(&self) -> Box<[u8]> {
        let mut out = Vec::with_capacity(96 + self.channel().len() + self.payload().len());
        let payload = if self.json { Payload::Json(self.payload()) } else { Payload::Bytes(self.payload()) };
        let mut client = String::new();
        let sender = self.author.as_ref().map(|author| {
            author.client.write(&mut client);
            MessageSender { user: author.user.as_deref(), client: Some(client.as_str()) }
        });
        // A JSON listener can only have named this channel if it is UTF-8; patterns skip the others.
        let channel = String::from_utf8_lossy(self.channel());
        json::message_tail(&mut out, &channel, payload, sender, self.history.filter(|_| self.is_numbered));
        out.into_boxed_slice()
    }
}

/// The namespaces of names that can be listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Namespace {
    Channel,
    Pattern,
    /// Shard channels of the Redis protocol: a separate namespace with the same names.
    Shard,
    /// The presence of a channel, for its watchers.
    Presence,
    /// Updates about a user, for their own sessions and their followers'.
    People,
}

/// How many namespaces there are.
pub const SPACES: usize = 5;

/// Physical bytes of all live events on one shard, each counted once, no matter how many mailboxes hold it.
#[derive(Debug, Default)]
pub struct EventMemory {
    bytes: Cell<usize>,
    /// Monotonic microseconds; the same clock on all shards of a node. Stays zero where latencies are not measured.
    now_us: Cell<u64>,
}

impl EventMemory {
    pub fn bytes(&self) -> usize {
        self.bytes.get()
    }

    pub fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    pub fn set_now_us(&self, now_us: u64) {
        self.now_us.set(now_us);
    }
}

#[derive(Debug)]
enum EventBody {
    Message(Arc<Message>),
    /// The same message for a Redis connection that subscribed by pattern.
    Pattern {
        pattern: Arc<[u8]>,
        message: Arc<Message>,
        frame: OnceCell<Box<[u8]>>,
    },
    /// Everything after `{"seq":N` of an event that only JSON sessions get.
    Json,
    /// Messages of a channel with history are missing.
    HistoryGap {
        channel: Arc<str>,
    },
    /// The same of a message that a session brought from another node.
    Brought {
        channel: Arc<str>,
        stamp: HistoryStamp,
    },
}

/// The versions of a watched channel that an event covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchedVersion {
    pub channel: Arc<str>,
    /// The version that it follows.
    pub from: u64,
    pub version: u64,
}

/// A message in the form of a gateway's protocol, the same for all of its clients.
#[derive(Debug)]
pub struct GatewayFrame {
    /// What a client is sent, as one WebSocket frame.
    pub bytes: Box<[u8]>,
    /// The client that does not get it, by the name that it has in that protocol.
    pub except: Option<Box<str>>,
}

/// Makes the frame of a message from its JSON form after `{"seq":N`. None: the gateway's task must see it.
pub type FrameRenderer = fn(&[u8]) -> Option<GatewayFrame>;

#[derive(Debug)]
pub struct Event {
    body: EventBody,
    covers: Option<WatchedVersion>,
    json: OnceCell<Box<[u8]>>,
    /// One gateway makes frames, so there is one form.
    gateway: OnceCell<Option<Box<GatewayFrame>>>,
    pub at: Time,
    pub slow_reader: SlowReader,
    size: u32,
    /// When it was published, for the latency of its delivery.
    pub published_us: u64,
    pool: Rc<EventMemory>,
}

/// The memory of an event besides its bytes: the struct itself and its entry in a mailbox.
const OVERHEAD: usize = 128;

impl Event {
    pub fn message(
        message: Arc<Message>,
        at: Time,
        slow_reader: SlowReader,
        pool: &Rc<EventMemory>,
    ) -> Rc<Event> {
        let size = message.frame.len() + OVERHEAD;
        Event::new(EventBody::Message(message), OnceCell::new(), at, slow_reader, size, pool)
    }

    pub fn by_pattern(
        pattern: Arc<[u8]>,
        message: Arc<Message>,
        at: Time,
        pool: &Rc<EventMemory>,
    ) -> Rc<Event> {
        let size = message.frame.len() + pattern.len() + OVERHEAD;
        let body = EventBody::Pattern { pattern, message, frame: OnceCell::new() };
        Event::new(body, OnceCell::new(), at, SlowReader::Close, size, pool)
    }

    /// An event for JSON sessions only, given as everything after `{"seq":N`.
    pub fn json(tail: Box<[u8]>, at: Time, slow_reader: SlowReader, pool: &Rc<EventMemory>) -> Rc<Event> {
        let size = tail.len() + OVERHEAD;
        Event::new(EventBody::Json, OnceCell::from(tail), at, slow_reader, size, pool)
    }

    /// Messages of a channel with history are missing: `tail` is everything after `{"seq":N`.
    pub fn history_gap(tail: Box<[u8]>, at: Time, channel: Arc<str>, pool: &Rc<EventMemory>) -> Rc<Event> {
        let size = tail.len() + OVERHEAD;
        let body = EventBody::HistoryGap { channel };
        Event::new(body, OnceCell::from(tail), at, SlowReader::Gap, size, pool)
    }

    /// A message of a channel with history that a session received on another node, given as everything after `{"seq":N`.
    pub fn brought(
        tail: Box<[u8]>,
        at: Time,
        (channel, position): (Arc<str>, HistoryPosition),
        pool: &Rc<EventMemory>,
    ) -> Rc<Event> {
        let size = tail.len() + OVERHEAD;
        let body = EventBody::Brought { channel, stamp: HistoryStamp { position, at } };
        Event::new(body, OnceCell::from(tail), at, SlowReader::Gap, size, pool)
    }

    /// An event for the watchers of a channel.
    pub fn presence(tail: Box<[u8]>, at: Time, covers: WatchedVersion, pool: &Rc<EventMemory>) -> Rc<Event> {
        let size = tail.len() + OVERHEAD;
        pool.bytes.set(pool.bytes.get() + size);
        let (json, covers) = (OnceCell::from(tail), Some(covers));
        let (slow_reader, published_us, pool) = (SlowReader::Gap, pool.now_us(), pool.clone());
        let (body, size, gateway) = (EventBody::Json, size as u32, OnceCell::new());
        Rc::new(Event { body, covers, json, gateway, at, slow_reader, size, published_us, pool })
    }

    fn new(
        body: EventBody,
        json: OnceCell<Box<[u8]>>,
        at: Time,
        slow_reader: SlowReader,
        size: usize,
        pool: &Rc<EventMemory>,
    ) -> Rc<Event> {
        pool.bytes.set(pool.bytes.get() + size);
        let published_us = match &body {
            EventBody::Message(message) | EventBody::Pattern { message, .. } if message.published_us > 0 => {
                message.published_us
            }
            _ => pool.now_us(),
        };
        let (size, pool) = (size as u32, pool.clone());
        let gateway = OnceCell::new();
        Rc::new(Event { body, covers: None, json, gateway, at, slow_reader, size, published_us, pool })
    }

    /// The id of the message, if it can reach several nodes.
    pub fn origin(&self) -> Option<&MessageId> {
        match &self.body {
            EventBody::Message(message) | EventBody::Pattern { message, .. } => message.origin(),
            EventBody::Json | EventBody::HistoryGap { .. } | EventBody::Brought { .. } => None,
        }
    }

    /// The channel of the message.
    pub fn channel(&self) -> Option<&[u8]> {
        match &self.body {
            EventBody::Message(message) | EventBody::Pattern { message, .. } => Some(message.channel()),
            EventBody::Brought { channel, .. } => Some(channel.as_bytes()),
            EventBody::Json | EventBody::HistoryGap { .. } => None,
        }
    }

    /// The channel of whose history messages are missing.
    pub fn gap_channel(&self) -> Option<&str> {
        match &self.body {
            EventBody::HistoryGap { channel } => Some(channel),
            _ => None,
        }
    }

    /// The position of the message in the history of its channel.
    pub fn history(&self) -> Option<HistoryStamp> {
        match &self.body {
            EventBody::Message(message) | EventBody::Pattern { message, .. } => message.history(),
            EventBody::Brought { stamp, .. } => Some(*stamp),
            EventBody::Json | EventBody::HistoryGap { .. } => None,
        }
    }

    /// The versions of a watched channel that it covers.
    pub fn watched_version(&self) -> Option<&WatchedVersion> {
        self.covers.as_ref()
    }

    /// Logical bytes, as a mailbox counts them.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// The JSON form after `{"seq":N`.
    pub fn json_tail(&self) -> &[u8] {
        self.json.get_or_init(|| match &self.body {
            EventBody::Message(message) | EventBody::Pattern { message, .. } => message.json_tail(),
            EventBody::Json | EventBody::HistoryGap { .. } | EventBody::Brought { .. } => {
                unreachable!("made with its tail")
            }
        })
    }

    /// The form of a gateway. None: it is not a message, or the gateway's task must see it.
    pub fn gateway_frame(&self, render: FrameRenderer) -> Option<&GatewayFrame> {
        let EventBody::Message(_) = &self.body else { return None };
        self.gateway.get_or_init(|| render(self.json_tail()).map(Box::new)).as_deref()
    }

    /// The RESP2 form; RESP3 differs in its first byte. None: Redis connections do not get such events.
    pub fn resp_frame(&self) -> Option<&[u8]> {
        match &self.body {
            EventBody::Message(message) => Some(&message.frame),
            EventBody::Pattern { pattern, message, frame } => Some(frame.get_or_init(|| {
                let mut out = Vec::with_capacity(96 + pattern.len() + message.frame.len());
                resp::pmessage_frame(&mut out, pattern, message.channel(), message.payload());
                out.into_boxed_slice()
            })),
            EventBody::Json | EventBody::HistoryGap { .. } | EventBody::Brought { .. } => None,
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.pool.bytes.set(self.pool.bytes.get() - self.size as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(message: Message) -> String {
        let pool = Rc::new(EventMemory::default());
        let event = Event::message(Arc::new(message), Time(1), SlowReader::Gap, &pool);
        String::from_utf8(event.json_tail().to_vec()).unwrap()
    }

    #[test]
    fn message_finds_its_channel_and_payload_in_its_frame() {
        for payload in [&b""[..], b"x", b"{\"a\":1}", &[b'y'; 12_345]] {
            let message = Message::new(Namespace::Channel, b"game#A", payload, false, None);
            assert_eq!(message.channel(), b"game#A");
            assert_eq!(message.payload(), payload);
        }
        let shard = Message::new(Namespace::Shard, b"", b"z", false, None);
        assert!(shard.frame().starts_with(b"*3\r\n$8\r\nsmessage\r\n$0\r\n\r\n"));
    }

    #[test]
    fn a_redis_payload_is_json_when_it_can_be() {
        let json = Message::new(Namespace::Channel, b"game#A", b"{\"a\":1}", false, None);
        assert_eq!(tail(json), r#","event":"message","channel":"game#A","data":{"a":1}}"#);
        let text = Message::new(Namespace::Channel, b"game#A", b"hi", false, None);
        assert_eq!(tail(text), r#","event":"message","channel":"game#A","data":"hi"}"#);
    }

    #[test]
    fn event_memory_counts_an_event_once_until_its_last_reader_drops_it() {
        let pool = Rc::new(EventMemory::default());
        let message = Arc::new(Message::new(Namespace::Channel, b"a", b"b", false, None));
        let event = Event::message(message, Time(1), SlowReader::Gap, &pool);
        let other = event.clone();
        assert_eq!(pool.bytes(), event.size());
        drop(event);
        assert_eq!(pool.bytes(), other.size());
        drop(other);
        assert_eq!(pool.bytes(), 0);
    }
}
