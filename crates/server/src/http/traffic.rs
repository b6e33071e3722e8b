//! `GET /v1/traffic`: the messages and commands of this node as they happen, a JSON object in each line, for operators.
//! Must hold: a watcher costs bounded memory and CPU, however busy the node is; what it asked for is chosen before the bound
//! counts. It ends with its key, when the server stops, and after an hour. While nobody watches, nothing is done.

use super::api::HttpApi;
use super::body::{HttpResponse, ResponseBody, whole};
use super::request::Query;
use super::routes;
use crate::clock::NodeClock;
use crate::health::NodeHealth;
use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tavern_domain::limits::{CHANNEL_BYTES, USER_BYTES};
use tavern_domain::{Identity, pattern};
use tavern_hub::{Node, Traffic, TrafficKind, TrafficObserver};
use tavern_store::Clock;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{TrafficData, TrafficLine, encode, raw};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

/// Each of them runs on the shards for every message.
const WATCHERS_MAX: usize = 8;
/// What a person can follow is far below it; more are counted.
const LINES_PER_SECOND: u32 = 200;
/// Lines that the client has not read.
const LINES_WAITING: usize = 256;
/// Of the data of a message.
const DATA_BYTES: usize = 1024;
const STATUS_EVERY: Duration = Duration::from_secs(1);
/// Who wants to watch for longer asks again, which the audit trail shows.
const LONGEST: Duration = Duration::from_secs(3600);

/// What a watcher wants to see.
struct TrafficFilter {
    /// A pattern of channels; of commands, what they are about.
    channel: Option<String>,
    /// The user who caused it.
    sender: Option<String>,
    only: Option<LineKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LineKind {
    Messages,
    Commands,
    Refused,
}

impl TrafficFilter {
    fn of(parts: &Parts) -> Result<TrafficFilter, Refusal> {
        let query = Query::of(parts)?;
        let text = |name: &'static str, max: usize| -> Result<Option<String>, Refusal> {
            let given = query.one(name)?.filter(|given| !given.is_empty());
            if given.is_some_and(|given| given.len() > max) {
                let message = format!("the parameter `{name}` has at most {max} bytes");
                return Err(Refusal::new(Code::BadRequest, message));
            }
            Ok(given.map(str::to_owned))
        };
        let only = match query.one("only")? {
            None | Some("") => None,
            Some("messages") => Some(LineKind::Messages),
            Some("commands") => Some(LineKind::Commands),
            Some("refused") => Some(LineKind::Refused),
            Some(other) => {
                let message =
                    format!("the parameter `only` must be messages, commands or refused, not {other:?}");
                return Err(Refusal::new(Code::BadRequest, message));
            }
        };
        Ok(TrafficFilter {
            channel: text("channel", CHANNEL_BYTES)?,
            sender: text("sender", USER_BYTES)?,
            only,
        })
    }

    fn wants(&self, traffic: &Traffic<'_>) -> bool {
        let (kind, target) = match traffic.what {
            TrafficKind::Message { channel, .. } => (LineKind::Messages, Some(channel)),
            TrafficKind::Command { target, .. } => (LineKind::Commands, target.map(str::as_bytes)),
            TrafficKind::Refused { target, .. } => (LineKind::Refused, target.map(str::as_bytes)),
        };
        let user = traffic.author.and_then(|author| author.user.as_deref());
        self.only.is_none_or(|only| only == kind)
            && self.sender.as_deref().is_none_or(|wanted| user == Some(wanted))
            && self
                .channel
                .as_ref()
                .is_none_or(|wanted| target.is_some_and(|target| pattern::matches(wanted.as_bytes(), target)))
    }
}

/// One watcher, on the side of the shards.
struct TrafficWatch {
    filter: TrafficFilter,
    clock: Arc<NodeClock>,
    lines: mpsc::Sender<Bytes>,
    /// The second that is counted, and its lines.
    window: Mutex<(u64, u32)>,
    seen: AtomicU64,
    skipped: AtomicU64,
}

impl TrafficWatch {
    fn new(filter: TrafficFilter, clock: Arc<NodeClock>, lines: mpsc::Sender<Bytes>) -> TrafficWatch {
        TrafficWatch { filter, clock, lines, window: Mutex::default(), seen: 0.into(), skipped: 0.into() }
    }

    fn admits(&self, now_ms: u64) -> bool {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        if window.0 != now_ms / 1000 {
            *window = (now_ms / 1000, 0);
        }
        window.1 += 1;
        window.1 <= LINES_PER_SECOND
    }
}

impl TrafficObserver for TrafficWatch {
    fn see(&self, traffic: Traffic<'_>) {
        if !self.filter.wants(&traffic) {
            return;
        }
        self.seen.fetch_add(1, Ordering::Relaxed);
        let now_ms = self.clock.now().ms();
        match self.admits(now_ms).then(|| self.lines.try_reserve()) {
            Some(Ok(room)) => room.send(line(now_ms, &traffic)),
            _ => drop(self.skipped.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

fn line(at: u64, traffic: &Traffic<'_>) -> Bytes {
    let client = traffic.author.map(|author| author.client.to_string());
    let user = traffic.author.and_then(|author| author.user.as_deref());
    let encoded = match traffic.what {
        TrafficKind::Message { channel, payload, json, receivers } => {
            let channel = &String::from_utf8_lossy(channel);
            let truncated = payload.len() > DATA_BYTES;
            let text = beginning(payload);
            let whole = (json && !truncated).then(|| raw(&text)).flatten();
            let data = whole.map_or(TrafficData::Text(&text), TrafficData::Json);
            encode(&TrafficLine::Message { at, channel, client, data, receivers, truncated, user })
        }
        TrafficKind::Command { op, target, .. } => {
            encode(&TrafficLine::Command { at, client, op, target, user })
        }
        TrafficKind::Refused { op, target, refusal } => {
            let (code, message) = (refusal.code.as_str(), &*refusal.message);
            encode(&TrafficLine::Refused { at, client, code, message, op, target, user })
        }
    };
    ended(encoded)
}

/// At most `DATA_BYTES` of a message, without a cut character at the end.
fn beginning(payload: &[u8]) -> Cow<'_, str> {
    let mut end = payload.len().min(DATA_BYTES);
    let least = end.saturating_sub(3);
    while end > least && payload.get(end).is_some_and(|next| next & 0xC0 == 0x80) {
        end -= 1;
    }
    String::from_utf8_lossy(&payload[..end])
}

/// One line. Data is written as it was sent: line breaks in it are white space between members.
fn ended(mut line: Vec<u8>) -> Bytes {
    line.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')).for_each(|byte| *byte = b' ');
    line.push(b'\n');
    line.into()
}

/// The body of the response.
pub struct TrafficStream {
    node: Arc<Node>,
    health: Arc<NodeHealth>,
    identity: Identity,
    until: Instant,
    watch: Arc<TrafficWatch>,
    observer: Arc<dyn TrafficObserver>,
    lines: mpsc::Receiver<Bytes>,
    ticks: Interval,
}

impl TrafficStream {
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        // First, so that a key that ends sees nothing more.
        if self.ticks.poll_tick(context).is_ready() {
            return Poll::Ready((!self.is_over()).then(|| self.status()));
        }
        self.lines.poll_recv(context)
    }

    fn is_over(&self) -> bool {
        let now = self.watch.clock.now();
        self.node.credential_end(&self.identity, now).is_some()
            || self.health.is_stopping()
            || Instant::now() >= self.until
    }

    fn status(&self) -> Bytes {
        ended(encode(&TrafficLine::Status {
            at: self.watch.clock.now().ms(),
            node: &self.node.settings.node,
            seen: self.watch.seen.load(Ordering::Relaxed),
            skipped: self.watch.skipped.load(Ordering::Relaxed),
        }))
    }
}

impl Drop for TrafficStream {
    fn drop(&mut self) {
        self.node.traffic.remove(&self.observer);
    }
}

pub fn watch(api: &HttpApi, parts: &Parts, identity: &Identity) -> Result<HttpResponse, Refusal> {
    if !api.config.dashboard.traffic {
        let message = "watching is switched off: dashboard.traffic = false";
        return Err(Refusal::new(Code::NotAllowed, message));
    }
    let filter = TrafficFilter::of(parts)?;
    let mut answer = whole(StatusCode::OK, "application/x-ndjson", Bytes::new());
    // A proxy must not buffer the stream.
    let name = HeaderName::from_static("x-accel-buffering");
    answer.headers_mut().insert(name, HeaderValue::from_static("no"));
    if routes::is_head(&parts.extensions) {
        return Ok(answer);
    }
    let (sender, lines) = mpsc::channel(LINES_WAITING);
    let watch = Arc::new(TrafficWatch::new(filter, api.clock.clone(), sender));
    let observer: Arc<dyn TrafficObserver> = watch.clone();
    if !api.node.traffic.add(observer.clone(), WATCHERS_MAX) {
        let message = format!("{WATCHERS_MAX} others watch this node already");
        return Err(Refusal::new(Code::RateLimited, message).retry_after(5000));
    }
    let mut ticks = interval(STATUS_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (node, health) = (api.node.clone(), api.health.clone());
    let until = Instant::now() + LONGEST;
    let stream =
        TrafficStream { node, health, identity: identity.clone(), until, watch, observer, lines, ticks };
    *answer.body_mut() = ResponseBody::Traffic(Box::new(stream));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_hub::Author;

    fn filter(query: &str) -> Result<TrafficFilter, Refusal> {
        TrafficFilter::of(
            &http::Request::get(format!("/v1/traffic?{query}")).body(()).unwrap().into_parts().0,
        )
    }

    #[test]
    fn the_filter_chooses_by_kind_channel_and_sender() {
        let client = tavern_domain::ClientId::parse("0000000000000001").unwrap();
        let ann = Author { user: Some("ann".into()), client };
        let refusal = Refusal::new(Code::NotAllowed, "no");
        let message = TrafficKind::Message { channel: b"game#1", payload: b"1", json: true, receivers: 0 };
        let command = TrafficKind::Command { op: "join", target: Some("game#2") };
        let refused = TrafficKind::Refused { op: None, target: None, refusal: &refusal };
        let seen = [(Some(&ann), message), (Some(&ann), command), (None, message), (None, refused)];
        for (query, wanted) in [
            ("", [true, true, true, true]),
            ("only=messages", [true, false, true, false]),
            ("only=commands&channel=", [false, true, false, false]),
            ("only=refused", [false, false, false, true]),
            ("channel=game%23*", [true, true, true, false]),
            ("channel=game%231", [true, false, true, false]),
            ("sender=ann", [true, true, false, false]),
            ("sender=ann&channel=*2", [false, true, false, false]),
        ] {
            let filter = filter(query).unwrap();
            let found = seen.map(|(author, what)| filter.wants(&Traffic { author, what }));
            assert_eq!(found, wanted, "{query}");
        }
        assert!(filter("only=all").is_err() && filter(&format!("sender={}", "x".repeat(999))).is_err());
    }

    #[test]
    fn a_line_is_one_line_and_bounded() {
        let show = |payload: &[u8], json| {
            let what = TrafficKind::Message { channel: b"a", payload, json, receivers: 1 };
            String::from_utf8(line(7, &Traffic { author: None, what }).to_vec()).unwrap()
        };
        assert!(show(b"{\n\"a\":\r\n1}", true).contains("\"data\":{ \"a\":  1},"));
        assert!(show(b"not json\n", false).contains("\"data\":\"not json\\n\","));
        assert!(show(b"\xff", false).contains("\"data\":\"\u{fffd}\""));
        let long = show("ä".repeat(700).as_bytes(), true);
        assert!(long.contains("\"truncated\":true") && !long.contains('\u{fffd}') && long.len() < 1200);
        for shown in [show(b"{\n}", true), long] {
            assert_eq!(shown.matches('\n').count(), 1);
        }
    }
}
