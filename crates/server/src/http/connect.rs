//! The WebSocket handshake. Afterwards the socket moves from HTTP to a shard.

use super::body::{HttpResponse, ResponseBody, refusal};
use super::http1::PlainIo;
use super::request::{self, Query};
use super::server::{HttpConnection, HttpTlsStream, too_many_connections};
use crate::connections::ConnectionSlot;
use crate::shard::Shards;
use crate::shard::conn::{Conn, SocketProtocol};
use crate::shard::input::{NewSocket, SessionName, ShardInput};
use crate::shard::websocket::WebSocket;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{
    CONNECTION, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{Response, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tavern_domain::{AddressGroup, Identity};
use tavern_hub::{Caller, EventFormat, Link, LinkId};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::{ParsedCommand, hello_command};

pub async fn connect(connection: &HttpConnection, request: Request<Incoming>) -> HttpResponse {
    let (parts, body) = request.into_parts();
    match prepare(connection, &parts).await {
        Ok((accept, protocol, accepted)) => {
            let upgrade = hyper::upgrade::on(Request::from_parts(parts, body));
            let shards = connection.api.shards.clone();
            tokio::spawn(async move {
                match upgrade.await {
                    Ok(upgraded) => accepted.hand_over(&shards, upgraded),
                    Err(error) => tracing::debug!(%error, "WebSocket upgrade failed"),
                }
            });
            switching(accept, protocol)
        }
        Err(refused) => refusal(&refused),
    }
}

/// Answers a WebSocket handshake; `taken` gets the connection afterwards.
pub(super) fn switch(
    parts: Parts,
    body: Incoming,
    taken: impl FnOnce(Upgraded) + Send + 'static,
) -> Result<HttpResponse, Refusal> {
    let accept = accept_key(&parts)?;
    let protocol = parts.headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(first_protocol);
    let upgrade = hyper::upgrade::on(Request::from_parts(parts, body));
    tokio::spawn(async move {
        match upgrade.await {
            Ok(upgraded) => taken(upgraded),
            Err(error) => tracing::debug!(%error, "WebSocket upgrade failed"),
        }
    });
    Ok(switching(accept, protocol))
}

/// An accepted client whose socket is not upgraded yet.
struct AcceptedUpgrade {
    identity: Option<Identity>,
    hello: Option<ParsedCommand<'static>>,
    address: Option<AddressGroup>,
    shard: usize,
    slot: ConnectionSlot,
}

async fn prepare(
    connection: &HttpConnection,
    parts: &Parts,
) -> Result<(HeaderValue, Option<HeaderValue>, AcceptedUpgrade), Refusal> {
    let api = &connection.api;
    let accept = accept_key(parts)?;
    let query = Query::of(parts)?;
    let identity = request::identity(api, parts, &query).await?;
    if identity.is_some() {
        request::count_hello(api, parts, identity.as_ref())?;
    }
    let session = request::session_secret(parts, &query)?;
    let seq = query.number("seq", 0..=u64::MAX)?;
    let shard = api.shards.of_session(session.as_deref().and_then(SessionName::read).as_ref());
    // A client that sends its own hello names the session there.
    let is_implicit = identity.is_some() && query.one("hello")? != Some("no");
    let hello = is_implicit.then(|| hello_command(session, seq));
    let slot = connection.take_slot(request::client_address(api, connection.peer, parts));
    let Some(slot) = slot else {
        return Err(too_many_connections());
    };
    let protocol = parts.headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(first_protocol);
    Ok((
        accept,
        protocol,
        AcceptedUpgrade { identity, hello, address: request::address_of(parts), shard, slot },
    ))
}

/// The answer to the client's key, if this is a proper handshake.
pub(crate) fn accept_key(parts: &Parts) -> Result<HeaderValue, Refusal> {
    let has = |name: http::HeaderName, word: &str| {
        let values = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|item| item.trim().eq_ignore_ascii_case(word))
    };
    let bad = |message: &'static str| Err(Refusal::new(Code::BadRequest, message));
    if parts.method != http::Method::GET || !has(CONNECTION, "upgrade") || !has(UPGRADE, "websocket") {
        return bad("expected a WebSocket upgrade; for plain HTTP use /v1/stream, /v1/poll or /v1/command");
    }
    if !has(SEC_WEBSOCKET_VERSION, "13") {
        return bad("the WebSocket version must be 13");
    }
    let Some(key) = parts.headers.get(SEC_WEBSOCKET_KEY) else {
        return bad("the Sec-WebSocket-Key is missing");
    };
    if STANDARD.decode(key.as_bytes()).map(|bytes| bytes.len()) != Ok(16) {
        return bad("the Sec-WebSocket-Key is not 16 bytes in base64");
    }
    let mut text = key.as_bytes().to_vec();
    text.extend_from_slice(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    let digest = ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, &text);
    HeaderValue::from_str(&STANDARD.encode(digest.as_ref()))
        .map_err(|_| Refusal::new(Code::Internal, "cannot answer the handshake"))
}

/// Clients that offer subprotocols expect one of them back.
pub(crate) fn first_protocol(offered: &HeaderValue) -> Option<HeaderValue> {
    let first = offered.to_str().ok()?.split(',').next()?.trim().to_owned();
    HeaderValue::from_str(&first).ok()
}

fn switching(accept: HeaderValue, protocol: Option<HeaderValue>) -> HttpResponse {
    let mut response = Response::new(ResponseBody::Whole(None));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if let Some(protocol) = protocol {
        headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    response
}

impl AcceptedUpgrade {
    fn hand_over(self, shards: &Shards, upgraded: Upgraded) {
        let (socket, tls, input) = match take_socket(upgraded) {
            Ok(taken) => taken,
            Err(error) => {
                tracing::warn!(%error, "cannot hand a WebSocket to its shard");
                return;
            }
        };
        let link = Link { id: LinkId(0), format: EventFormat::WebSocket };
        let caller = Caller::new(link, self.identity).from_address(self.address).pipelining();
        let protocol = SocketProtocol::WebSocket(Box::new(WebSocket::new(caller)));
        let conn = Conn::new(socket, tls, protocol, self.slot);
        let arrival = NewSocket { conn, input, commands: Vec::new(), hello: self.hello };
        // The client sees its connection close and retries.
        if shards.put(self.shard, ShardInput::Arrival(Box::new(arrival))).is_err() {
            tracing::warn!(shard = self.shard, "connection refused: shard queue full");
        }
    }
}

/// The socket of an upgraded connection that is not encrypted, and what was already read; another connection comes back.
#[cfg(feature = "pusher")]
pub(super) fn plain_socket(upgraded: Upgraded) -> Result<(tokio::net::TcpStream, Vec<u8>), Upgraded> {
    let parts = upgraded.downcast::<TokioIo<PlainIo>>()?;
    Ok(parts.io.into_inner().into_parts(&parts.read_buf))
}

type RawSocket = (mio::net::TcpStream, Option<Box<rustls::ServerConnection>>, Vec<u8>);

/// The socket of an upgraded connection, its TLS state, and what was already read.
fn take_socket(upgraded: Upgraded) -> std::io::Result<RawSocket> {
    let upgraded = match upgraded.downcast::<TokioIo<PlainIo>>() {
        Ok(parts) => {
            let (socket, input) = parts.io.into_inner().into_socket(&parts.read_buf)?;
            return Ok((socket, None, input));
        }
        Err(upgraded) => upgraded,
    };
    match upgraded.downcast::<TokioIo<HttpTlsStream>>() {
        Ok(parts) => {
            let (socket, tls) = parts.io.into_inner().into_inner();
            let socket = mio::net::TcpStream::from_std(socket.into_std()?);
            Ok((socket, Some(Box::new(tls)), parts.read_buf.to_vec()))
        }
        Err(_) => Err(std::io::Error::other("unknown kind of connection")),
    }
}
