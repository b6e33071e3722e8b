//! Long-polls. The first poll of a plain HTTP/1.1 connection takes the socket to the shard of its session, which reads
//! the next polls itself, by the functions here. Polls over HTTP/2 and TLS are passed to the shard one by one.

use super::api::HttpApi;
use super::body::ResponseBody;
use super::http1::{HEAD_BYTES, PlainIo, serve_plain};
use super::origin;
use super::request;
use super::server::{ClientAddress, HttpConnection};
use super::session;
use crate::connections::ConnectionSlot;
use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::input::{CommandAnswer, HttpPoll, NewSocket, SessionName, SessionPoll, ShardInput};
use crate::shard::poll_socket::{HttpPeer, NextRequest, PollOnSocket, PollSocket};
use http::header::{CONNECTION, DATE, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Uri, Version};
use hyper::Request;
use hyper::body::Incoming;
use std::cell::RefCell;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tavern_domain::{Identity, limits};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::http1::{self as framing, HttpRequest, ReadRequest, RequestLimits};
use tavern_wire::json::{self, PollRequest};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub const PATH: &str = "/v1/poll";
/// How long a poll may wait in the queue of a sleeping shard.
const POLL_DELAY: Duration = Duration::from_millis(1);
/// A poll's body names a session and three numbers.
const POLL_BODY_BYTES: usize = 16 * 1024;
const LIMITS: RequestLimits = RequestLimits { head: HEAD_BYTES, body: POLL_BODY_BYTES };

/// A poll that may take its connection to a shard.
pub struct PollOffer {
    request: PollOnSocket,
    /// Used if the connection stays.
    answer: oneshot::Sender<CommandAnswer>,
}

/// Starts a poll. Its answer comes by the receiver, unless the connection moves to a shard.
pub async fn begin(
    connection: &HttpConnection,
    request: Request<Incoming>,
    page: Option<HeaderValue>,
) -> Result<oneshot::Receiver<CommandAnswer>, Refusal> {
    let (parts, incoming) = request.into_parts();
    let api = &connection.api;
    let reserved = session::reserve(api, &parts, POLL_BODY_BYTES)?;
    let body = request::body(incoming, POLL_BODY_BYTES).await?;
    let poll = json::parse_poll(&body)?;
    drop((body, reserved));
    let identity = session::identity(api, &parts, poll.token.as_deref()).await?;
    let request = admit(connection, &parts, poll, identity, page)?;
    let (answer, waiting) = oneshot::channel();
    let offer = PollOffer { request, answer };
    match may_move(connection, &parts) {
        true => connection.offer(offer),
        false => submit(api, offer),
    }
    Ok(waiting)
}

/// Whether the connection stays open after the answer, and is one that a shard can serve.
fn may_move(connection: &HttpConnection, parts: &Parts) -> bool {
    let keeps = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"keep-alive");
    connection.is_plain
        && parts.version == Version::HTTP_11
        && parts.headers.get_all(CONNECTION).iter().all(keeps)
}

/// Checks a poll of this identity, and counts it.
fn admit(
    connection: &HttpConnection,
    parts: &Parts,
    poll: PollRequest,
    identity: Option<Identity>,
    page: Option<HeaderValue>,
) -> Result<PollOnSocket, Refusal> {
    let api = &connection.api;
    let session = poll.session.as_deref().and_then(SessionName::read);
    if poll.session.is_none() && identity.is_none() {
        return Err(Refusal::new(Code::Unauthenticated, "the first poll needs a token"));
    }
    if session.is_none() {
        request::count_hello(api, parts, identity.as_ref())?;
    }
    let counted = connection.count_waiting(parts)?;
    let shard = session.as_ref().map(|session| api.shards.of_session(Some(session)));
    let poll = SessionPoll {
        named: poll.session.is_some(),
        session,
        identity,
        cursor: poll.cursor,
        timeout_ms: poll.timeout_ms.unwrap_or(limits::POLL_PARK_MS),
        address: request::address_of(parts),
        admitted: None,
    };
    Ok(PollOnSocket { poll, shard, page, counted })
}

/// Passes a poll to its shard; its connection stays here. It may wait a moment, so that many polls at once wake their
/// shard once.
pub fn submit(api: &HttpApi, offer: PollOffer) {
    let PollOffer { request, answer } = offer;
    let PollOnSocket { poll, shard, counted, .. } = request;
    let queue = api.shards.queue(shard.unwrap_or_else(|| api.shards.next()));
    if queue.is_full() {
        // The client may have disconnected.
        let _ = answer.send(Err(session::overloaded()));
        return;
    }
    let input = ShardInput::Poll(Box::new(HttpPoll { poll, counted, answer }));
    if queue.put_quietly(input).is_ok_and(|must_wake| must_wake) {
        let queue = queue.clone();
        tokio::spawn(async move {
            tokio::time::sleep(POLL_DELAY).await;
            queue.wake();
        });
    }
}

/// Moves a connection to the shard of its poll.
pub fn hand_over(connection: Arc<HttpConnection>, io: PlainIo, read: &[u8], offer: PollOffer) {
    let api = connection.api.clone();
    let Some(slot) = connection.slot.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
    let (socket, input) = match io.into_socket(read) {
        Ok(taken) => taken,
        Err(error) => {
            tracing::warn!(%error, "cannot hand a poll to its shard");
            return;
        }
    };
    let shard = offer.request.shard.unwrap_or_else(|| api.shards.next());
    let socket_state = PollSocket::new(connection, Box::new(offer.request));
    let conn = Conn::new(socket, None, SocketProtocol::Poll(Box::new(socket_state)), slot);
    let arrival = NewSocket { conn, input, commands: Vec::new(), hello: None };
    // The client sees its connection close and retries.
    if api.shards.put(shard, ShardInput::Arrival(Box::new(arrival))).is_err() {
        tracing::warn!(shard, "poll refused: shard queue full");
    }
}

impl HttpPeer for HttpConnection {
    fn next_request(&self, input: &[u8]) -> NextRequest {
        let request = match framing::read_post(input, PATH, LIMITS) {
            ReadRequest::Request(request) => request,
            ReadRequest::Incomplete => return NextRequest::Incomplete,
            ReadRequest::Other => return NextRequest::Other,
        };
        let Some(mut parts) = parts_of(&request) else { return NextRequest::Other };
        let address =
            request::forwarded_address(&self.api.config.trusted_proxies, self.peer.ip(), &parts.headers);
        parts.extensions.insert(ClientAddress(address));
        let page = match self.admit_page(&parts.headers, PATH, address) {
            Ok(page) => page,
            Err(refusal) => return NextRequest::Refused(request.bytes, refusal, None),
        };
        let admitted = json::parse_poll(request.body).map(|poll| {
            let identity = request::identity_now(&self.api, &parts, poll.token.as_deref())?;
            Some(identity.and_then(|identity| admit(self, &parts, poll, identity, page.clone())))
        });
        match admitted {
            Ok(Some(Ok(poll))) => NextRequest::Poll(request.bytes, Box::new(poll)),
            Ok(Some(Err(refusal))) | Err(refusal) => NextRequest::Refused(request.bytes, refusal, page),
            // The store must be asked about its credential.
            Ok(None) => NextRequest::Other,
        }
    }

    fn write_response(
        &self,
        out: &mut Vec<u8>,
        page: Option<&HeaderValue>,
        answer: CommandAnswer,
        last: bool,
    ) {
        let (mut parts, body) = session::answered(Ok(answer)).into_parts();
        if let Some(page) = page {
            origin::add_cors(&mut parts.headers, page);
        }
        if last {
            parts.headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let body = match &body {
            ResponseBody::Whole(Some(body)) => &body[..],
            _ => &[],
        };
        framing::status_line(out, parts.status.as_u16(), parts.status.canonical_reason().unwrap_or_default());
        for (name, value) in &parts.headers {
            framing::header(out, name.as_str(), value.as_bytes());
        }
        write_date(out);
        framing::end_head(out, body.len());
        out.extend_from_slice(body);
    }

    fn take_back(
        self: Arc<HttpConnection>,
        socket: mio::net::TcpStream,
        input: Vec<u8>,
        slot: ConnectionSlot,
    ) {
        *self.slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(slot);
        let runtime = self.api.runtime.clone();
        runtime.spawn(async move {
            match TcpStream::from_std(socket.into()) {
                Ok(socket) => serve_plain(PlainIo::new(socket, input), self).await,
                Err(error) => tracing::warn!(%error, "cannot take a connection back from its shard"),
            }
        });
    }
}

/// The head of a request, as the HTTP server has it. None: it is not valid.
fn parts_of(request: &HttpRequest<'_>) -> Option<Parts> {
    let mut parts = http::Request::new(()).into_parts().0;
    parts.method = Method::POST;
    parts.uri = Uri::try_from(request.target).ok()?;
    for (name, value) in &request.headers {
        let (name, value) = (HeaderName::try_from(*name).ok()?, HeaderValue::from_bytes(value).ok()?);
        parts.headers.append(name, value);
    }
    Some(parts)
}

thread_local! {
    /// The time of the last `Date` header, in seconds, and its text.
    static LAST_DATE: RefCell<(u64, String)> = const { RefCell::new((0, String::new())) };
}

fn write_date(out: &mut Vec<u8>) {
    let now = SystemTime::now();
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LAST_DATE.with_borrow_mut(|(at, text)| {
        if *at != seconds || text.is_empty() {
            (*at, *text) = (seconds, httpdate::fmt_http_date(now));
        }
        framing::header(out, DATE.as_str(), text.as_bytes());
    });
}
