//! Events of topics: what publishers send, what the log stores, what subscribers get.
//! Must hold: an event's own bytes are made once, when it is accepted; a batch is these bytes with a frame around them, so the
//! same batch has the same bytes at every attempt.

use super::encode::string as quote;
use super::field::{self, Raw, moment, need, present, refuse, text};
use super::scan::{check_portable, skip_space};
use crate::error::{Code, Refusal};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use tavern_domain::trace::{TRACEPARENT_BYTES, TraceContext};

/// Events in one request.
pub const LIST_MAX: usize = 1_000;
pub const TYPE_BYTES: usize = 64;
pub const ID_BYTES: usize = 128;
pub const URL_BYTES: usize = 2_048;
pub const DATA_BYTES: usize = 65_536;
/// The prefix of ids that the server gives to events without one.
pub const MADE_ID: &str = "evt-";
/// The prefix of stored ids that were made from an `Idempotency-Key`. Subscribers do not see them.
pub const KEY_ID: &str = "idempotency-key:";
/// Before stored ids of a topic that was created anew.
const SCOPE: char = '\u{1}';
/// Bytes that `stored_id` adds at most.
pub const SCOPE_BYTES: usize = 22;
/// The type of a gap entry: events that were dropped.
pub const GAP: &str = "tavern.gap";

/// An event as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedEvent {
    pub id: Option<String>,
    /// As it is stored in the log: `{"type":…,"url":…,"time":…,"traceparent":…,"data":…}`, the trace only if there is one.
    pub body: Vec<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present", rename = "type")]
    kind: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    url: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    time: Raw<'a>,
}

/// Parses one event, or a list of them. An event without a time gets the current one; all get the trace of the request.
pub fn parse_events(
    body: &[u8],
    now_ms: u64,
    trace: Option<TraceContext>,
) -> Result<Vec<PublishedEvent>, Refusal> {
    if body.get(skip_space(body, 0)) != Some(&b'[') {
        return Ok(vec![parse_event(body, now_ms, trace)?]);
    }
    check_portable(body).map_err(|found| refuse(found.to_string()))?;
    let list: Vec<&RawValue> =
        serde_json::from_slice(body).map_err(|error| refuse(format!("not valid JSON: {error}")))?;
    if list.is_empty() || list.len() > LIST_MAX {
        return Err(refuse(format!("a list must have 1 to {LIST_MAX} events, this one has {}", list.len())));
    }
    let each = list.iter().enumerate().map(|(at, event)| {
        parse_event(event.get().as_bytes(), now_ms, trace).map_err(|refused| {
            Refusal::new(refused.code, format!("event {at} of the list: {}", refused.message))
        })
    });
    each.collect()
}

fn parse_event(json: &[u8], now_ms: u64, trace: Option<TraceContext>) -> Result<PublishedEvent, Refusal> {
    let fields: EventFields<'_> = field::object(json)?;
    let bounded = |name: &'static str, text: &str, max: usize| match text.len() <= max {
        true => Ok(()),
        false => {
            let message = format!("`{name}` has {} bytes, at most {max} are allowed", text.len());
            Err(Refusal::new(Code::TooLarge, message))
        }
    };
    let id = text("id", fields.id)?;
    if let Some(id) = &id {
        bounded("id", id, ID_BYTES)?;
        if id.is_empty() || id.chars().any(char::is_control) || id.starts_with(KEY_ID) {
            let message = format!("`id` must have no control characters and must not start with {KEY_ID:?}");
            return Err(refuse(message));
        }
    }
    let kind = need("type", text("type", fields.kind)?)?;
    bounded("type", &kind, TYPE_BYTES)?;
    if kind.is_empty() || kind.contains('\0') {
        return Err(refuse("`type` must not be empty or contain a NUL character"));
    }
    let url = text("url", fields.url)?;
    bounded("url", url.as_deref().unwrap_or_default(), URL_BYTES)?;
    let data = fields.data.map_or("null", RawValue::get);
    bounded("data", data, DATA_BYTES)?;
    let time = moment("time", fields.time)?.unwrap_or(now_ms);
    let body = traced(&kind, url.as_deref(), time, trace, data);
    Ok(PublishedEvent { id: id.map(Cow::into_owned), body })
}

/// An event as it is stored in the log. `data` is JSON.
pub fn stored(kind: &str, url: Option<&str>, time_ms: u64, data: &str) -> Vec<u8> {
    traced(kind, url, time_ms, None, data)
}

fn traced(kind: &str, url: Option<&str>, time_ms: u64, trace: Option<TraceContext>, data: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(data.len() + kind.len() + url.map_or(0, str::len) + 64);
    body.extend_from_slice(b"{\"type\":");
    quote(&mut body, kind);
    body.extend_from_slice(b",\"url\":");
    match url {
        Some(url) => quote(&mut body, url),
        None => body.extend_from_slice(b"null"),
    }
    body.extend_from_slice(b",\"time\":");
    body.extend_from_slice(itoa::Buffer::new().format(time_ms).as_bytes());
    if let Some(trace) = trace {
        body.extend_from_slice(TRACEPARENT);
        body.extend_from_slice(trace.traceparent().as_bytes());
        body.push(b'"');
    }
    body.extend_from_slice(DATA);
    body.extend_from_slice(data.as_bytes());
    body.push(b'}');
    body
}

/// Before the trace and the data of a stored event. A text before them cannot contain these bytes: quotes are escaped.
const TRACEPARENT: &[u8] = b",\"traceparent\":\"";
const DATA: &[u8] = b",\"data\":";

/// The trace of the request with which an event was published, from its stored body.
pub fn trace_of(body: &[u8]) -> Option<TraceContext> {
    let head = &body[..memmem::find(body, DATA)?];
    let at = memmem::find(head, TRACEPARENT)? + TRACEPARENT.len();
    let text = head.get(at..at + TRACEPARENT_BYTES)?;
    TraceContext::parse(std::str::from_utf8(text).ok()?)
}

/// An event of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchEvent<'a> {
    pub seq: u64,
    pub id: &'a str,
    pub topic: &'a str,
    /// As it is stored in the log.
    pub body: &'a [u8],
}

/// The format of batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BatchFormat {
    #[default]
    Standard,
    Routemaster,
    /// The data of the events, in the form of Pusher's webhooks.
    Pusher,
}

impl BatchFormat {
    /// The largest size of an event in a batch, with its separator.
    pub fn bytes_of(self, id: &str, topic: &str, body: &[u8]) -> usize {
        match self {
            BatchFormat::Standard => body.len() + 6 * id.len() + topic.len() + 64,
            BatchFormat::Routemaster => body.len() + topic.len() + 64,
            BatchFormat::Pusher => body.len(),
        }
    }

    /// The size of a batch without events.
    pub fn envelope_bytes(self, subscription: &str) -> usize {
        match self {
            BatchFormat::Standard => subscription.len() + 128,
            BatchFormat::Routemaster => 2,
            BatchFormat::Pusher => 64,
        }
    }

    pub fn batch<'a>(self, subscription: &str, pieces: &[BatchEntry<'a>]) -> Vec<u8> {
        match self {
            BatchFormat::Standard => standard(subscription, pieces),
            BatchFormat::Routemaster => routemaster(pieces),
            BatchFormat::Pusher => pusher(pieces),
        }
    }
}

/// One entry of a batch.
#[derive(Clone, Copy, Debug)]
pub enum BatchEntry<'a> {
    Event(BatchEvent<'a>),
    /// Events that were dropped.
    Gap {
        first: u64,
        last: u64,
    },
}

fn standard(subscription: &str, pieces: &[BatchEntry<'_>]) -> Vec<u8> {
    let bytes = |piece: &BatchEntry<'_>| match piece {
        BatchEntry::Event(event) => event.body.len() + event.id.len() + event.topic.len() + 64,
        BatchEntry::Gap { .. } => 128,
    };
    let mut out = Vec::with_capacity(pieces.iter().map(bytes).sum::<usize>() + subscription.len() + 128);
    let first = pieces.first().map_or(0, |piece| match piece {
        BatchEntry::Event(event) => event.seq,
        BatchEntry::Gap { first, .. } => *first,
    });
    let last = pieces.last().map_or(0, |piece| match piece {
        BatchEntry::Event(event) => event.seq,
        BatchEntry::Gap { last, .. } => *last,
    });
    out.extend_from_slice(b"{\"subscription\":");
    quote(&mut out, subscription);
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(b",\"first_seq\":");
    out.extend_from_slice(digits.format(first).as_bytes());
    out.extend_from_slice(b",\"last_seq\":");
    out.extend_from_slice(digits.format(last).as_bytes());
    out.extend_from_slice(b",\"events\":[");
    for (at, piece) in pieces.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        match piece {
            BatchEntry::Event(event) => entry(&mut out, *event),
            BatchEntry::Gap { first, last } => gap_entry(&mut out, *first, *last),
        }
    }
    out.extend_from_slice(b"]}");
    out
}

/// One event as subscribers see it.
pub fn entry(out: &mut Vec<u8>, event: BatchEvent<'_>) {
    out.extend_from_slice(b"{\"seq\":");
    out.extend_from_slice(itoa::Buffer::new().format(event.seq).as_bytes());
    out.extend_from_slice(b",\"id\":");
    quote(out, event.id);
    out.extend_from_slice(b",\"topic\":");
    quote(out, event.topic);
    out.push(b',');
    out.extend_from_slice(event.body.get(1..).unwrap_or(b"}"));
}

/// One event as an operator sees it, with the key that published it.
pub fn browsed_entry(out: &mut Vec<u8>, event: BatchEvent<'_>, publisher: Option<&str>) {
    out.extend_from_slice(b"{\"publisher\":");
    match publisher {
        Some(key) => quote(out, key),
        None => out.extend_from_slice(b"null"),
    }
    let at = out.len();
    entry(out, event);
    // In place of its brace.
    out[at] = b',';
}

/// The id that subscribers see: the publisher's, or one made from the position in the log and the time of acceptance, so
/// that it is no other server's either.
pub fn shown_id(id: Option<&str>, position: u64, accepted_ms: u64) -> Cow<'_, str> {
    match id.map(unscoped).filter(|id| !id.starts_with(KEY_ID)) {
        Some(id) => Cow::Borrowed(id),
        None => Cow::Owned(format!("{MADE_ID}{position}-{accepted_ms:x}")),
    }
}

/// An id as the log stores it: events of a deleted topic of the same name are not duplicates. `past_events`: how many that
/// topic had.
pub fn stored_id(past_events: u64, id: &str) -> String {
    match past_events {
        0 => id.to_owned(),
        // Publishers cannot give ids with control characters.
        _ => format!("{SCOPE}{past_events}:{id}"),
    }
}

fn unscoped(id: &str) -> &str {
    let scoped = id.strip_prefix(SCOPE).and_then(|rest| rest.split_once(':'));
    scoped.map_or(id, |(_, id)| id)
}

/// A gap entry in place of events that were dropped.
pub fn gap_entry(out: &mut Vec<u8>, first: u64, last: u64) {
    let text = format!(
        "{{\"seq\":{first},\"type\":\"{GAP}\",\"data\":{{\"first_seq\":{first},\"last_seq\":{last}}}}}"
    );
    out.extend_from_slice(text.as_bytes());
}

#[derive(Deserialize)]
struct LoggedEvent<'a> {
    #[serde(borrow, rename = "type")]
    kind: &'a RawValue,
    #[serde(borrow)]
    url: &'a RawValue,
    #[serde(borrow)]
    time: &'a RawValue,
    #[serde(borrow)]
    data: &'a RawValue,
}

fn routemaster(pieces: &[BatchEntry<'_>]) -> Vec<u8> {
    let mut out = vec![b'['];
    for piece in pieces {
        if out.len() > 1 {
            out.push(b',');
        }
        match piece {
            BatchEntry::Event(event) => classic_entry(&mut out, *event),
            BatchEntry::Gap { first, last } => {
                let data = format!("{{\"first_seq\":{first},\"last_seq\":{last}}}");
                out.extend_from_slice(
                    format!("{{\"topic\":\"{GAP}\",\"type\":\"noop\",\"data\":{data}}}").as_bytes(),
                );
            }
        }
    }
    out.push(b']');
    out
}

/// The time is that of the last event: the same at every attempt. Dropped events leave no trace: the format has none for them.
fn pusher<'a>(pieces: &[BatchEntry<'a>]) -> Vec<u8> {
    let read = |piece: &BatchEntry<'a>| match piece {
        BatchEntry::Event(event) => serde_json::from_slice::<LoggedEvent<'a>>(event.body).ok(),
        BatchEntry::Gap { .. } => None,
    };
    let events: Vec<LoggedEvent<'_>> = pieces.iter().filter_map(read).collect();
    let mut out = b"{\"time_ms\":".to_vec();
    out.extend_from_slice(events.last().map_or("0", |event| event.time.get()).as_bytes());
    out.extend_from_slice(b",\"events\":[");
    for (at, event) in events.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        out.extend_from_slice(event.data.get().as_bytes());
    }
    out.extend_from_slice(b"]}");
    out
}

fn classic_entry(out: &mut Vec<u8>, event: BatchEvent<'_>) {
    // The server wrote it; anything else is shown unchanged.
    let Ok(kept) = serde_json::from_slice::<LoggedEvent<'_>>(event.body) else {
        return out.extend_from_slice(event.body);
    };
    out.extend_from_slice(b"{\"topic\":");
    quote(out, event.topic);
    let members = [(",\"type\":", kept.kind), (",\"url\":", kept.url), (",\"t\":", kept.time)];
    for (name, value) in members {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(value.get().as_bytes());
    }
    if kept.data.get() != "null" {
        out.extend_from_slice(b",\"data\":");
        out.extend_from_slice(kept.data.get().as_bytes());
    }
    out.push(b'}');
}

/// The data of a `tavern.presence` event: a user came, or left (when they were last seen, and why).
pub fn transition(user: &str, name: Option<&str>, left: Option<(u64, &str)>) -> Vec<u8> {
    let mut data = b"{\"user\":".to_vec();
    super::string(&mut data, user);
    if let Some(name) = name {
        data.extend_from_slice(b",\"name\":");
        super::string(&mut data, name);
    }
    if let Some((last_seen, reason)) = left {
        data.extend_from_slice(format!(",\"last_seen\":{last_seen},\"reason\":\"{reason}\"").as_bytes());
    }
    data.push(b'}');
    data
}

#[cfg(test)]
#[path = "event_tests.rs"]
mod tests;
