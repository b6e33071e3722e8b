//! SSE: a session's events as a response that does not end.

use super::body::{HttpResponse, ResponseBody, refusal, whole};
use super::request::{self, Query, channel_name};
use super::routes;
use super::server::HttpConnection;
use crate::connections::AddressSlot;
use crate::shard::Shards;
use crate::shard::input::{HttpStream, SessionName, ShardInput};
use bytes::Bytes;
use http::StatusCode;
use http::header::{HeaderName, HeaderValue};
use http::request::Parts;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use tavern_domain::{HistoryPosition, Identity, limits};
use tavern_hub::LinkId;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json;
use tokio::sync::{mpsc, oneshot};

/// Pieces between the shard and the connection; above this the shard keeps events as references.
const PIECES: usize = 4;
/// Channels in one URL.
const CHANNELS: usize = 16;

/// The body of an SSE response, which a shard fills piece by piece.
pub struct EventStream {
    pieces: mpsc::Receiver<Bytes>,
    link: LinkId,
    shard: usize,
    wants_room: Arc<AtomicBool>,
    shards: Shards,
    /// The connection has an open stream.
    _connection: Arc<HttpConnection>,
    /// Behind a proxy: its slot in the count of its client's address.
    _counted: Option<AddressSlot>,
}

impl EventStream {
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let piece = self.pieces.poll_recv(context);
        if piece.is_ready() && self.wants_room.swap(false, Ordering::AcqRel) {
            self.shards.force(self.shard, ShardInput::StreamRoom(self.link));
        }
        piece
    }
}

pub async fn stream(connection: &Arc<HttpConnection>, parts: &Parts) -> HttpResponse {
    let opened = match routes::is_head(&parts.extensions) {
        true => check(connection, parts).await.map(|_| None),
        false => open(connection, parts).await.map(Some),
    };
    match opened {
        Ok(events) => {
            let mut answer = whole(StatusCode::OK, "text/event-stream", Bytes::new());
            if let Some(events) = events {
                *answer.body_mut() = ResponseBody::Events(events);
            }
            // A proxy must not buffer the stream.
            let name = HeaderName::from_static("x-accel-buffering");
            answer.headers_mut().insert(name, HeaderValue::from_static("no"));
            answer
        }
        Err(refused) => refusal(&refused),
    }
}

/// A checked request for a stream.
struct StreamRequest {
    identity: Option<Identity>,
    /// The session secret, as sent.
    secret: Option<String>,
    seq: Option<u64>,
    channels: Vec<String>,
    /// Send this many of the last messages of each channel first.
    last: Option<u64>,
    /// The position after which each channel begins, in the order of the channels.
    since: Vec<HistoryPosition>,
}

async fn check(connection: &HttpConnection, parts: &Parts) -> Result<StreamRequest, Refusal> {
    let query = Query::of(parts)?;
    let identity = request::identity(&connection.api, parts, &query).await?;
    let secret = request::session_secret(parts, &query)?;
    // A browser that reconnects automatically sends its position in this header; it is newer than the URL.
    let last = parts.headers.get("last-event-id").and_then(|id| id.to_str().ok()?.parse().ok());
    let seq = match last {
        Some(seq) => Some(seq),
        None => query.number("seq", 0..=u64::MAX)?,
    };
    let channels: Vec<String> = query.all("channel").map(|name| channel_name(name).into_owned()).collect();
    if channels.len() > CHANNELS || channels.iter().any(|name| name.len() > limits::CHANNEL_BYTES) {
        return Err(Refusal::new(Code::BadRequest, "at most 16 channels of 255 bytes in the URL"));
    }
    let last = query.number("last", 0..=u64::MAX)?;
    let since: Vec<HistoryPosition> = query.all("since").map(position).collect::<Result<_, _>>()?;
    if !since.is_empty() && since.len() != channels.len() {
        let message = "give `since` once for each `channel`, in the same order";
        return Err(Refusal::new(Code::BadRequest, message));
    }
    Ok(StreamRequest { identity, secret, seq, channels, last, since })
}

/// A position in a URL: epoch and offset.
fn position(text: &str) -> Result<HistoryPosition, Refusal> {
    let numbers =
        text.split_once(':').and_then(|(epoch, offset)| Some((epoch.parse().ok()?, offset.parse().ok()?)));
    let (epoch, offset) = numbers.ok_or_else(|| {
        Refusal::new(Code::BadRequest, "`since` is an epoch and an offset, such as since=1763323000000000:42")
    })?;
    Ok(HistoryPosition { epoch, offset })
}

async fn open(connection: &Arc<HttpConnection>, parts: &Parts) -> Result<EventStream, Refusal> {
    let StreamRequest { identity, secret, seq, channels, last, since } = check(connection, parts).await?;
    let api = &connection.api;
    let session = secret.as_deref().and_then(SessionName::read);
    let shard = api.shards.of_session(session.as_ref());
    let (events, pieces) = mpsc::channel(PIECES);
    let (started, starting) = oneshot::channel();
    if session.is_none() {
        request::count_hello(api, parts, identity.as_ref())?;
    }
    let counted = connection.count_waiting(parts)?;
    let address = request::address_of(parts);
    let wants_room = Arc::new(AtomicBool::new(false));
    let hello = json::hello_command(secret, seq);
    let request = HttpStream {
        session,
        admitted: None,
        hello,
        identity,
        address,
        channels,
        last,
        since,
        events,
        replies: connection.replies.clone(),
        wants_room: wants_room.clone(),
        started,
    };
    super::session::put(api, shard, ShardInput::Stream(Box::new(request)))?;
    let link = starting.await.map_err(|_| super::session::stopping())??;
    let shards = api.shards.clone();
    let _connection = connection.clone();
    Ok(EventStream { pieces, link, shard, wants_room, shards, _connection, _counted: counted })
}
