//! `/engine.io/`: the requests of Engine.IO connections, for clients of Radar. A poll waits for packets, a `POST` brings some, a
//! WebSocket opens a connection or upgrades one.

use super::body::{HttpResponse, refusal, whole};
use super::connect;
use super::request::{self, Query};
use super::server::{HttpConnection, too_many_connections};
use crate::byte_budget::ReservedBytes;
use crate::config::ServerMode;
use crate::gateway::GatewaySocket;
use crate::radar::{EngineHandle, EngineInput, RadarServer};
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, UPGRADE};
use http::request::Parts;
use http::{Method, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tavern_wire::engineio::{self, HandshakeError, PacketKind};
use tavern_wire::error::{Code, Refusal};
use tokio::sync::oneshot;

/// Packets in one `POST`.
const PACKETS_MAX: usize = 1_024;

/// Why a request is refused.
enum EngineRefusal {
    Engine(HandshakeError),
    Tavern(Refusal),
}

impl From<HandshakeError> for EngineRefusal {
    fn from(error: HandshakeError) -> EngineRefusal {
        EngineRefusal::Engine(error)
    }
}

impl From<Refusal> for EngineRefusal {
    fn from(refusal: Refusal) -> EngineRefusal {
        EngineRefusal::Tavern(refusal)
    }
}

pub async fn answer(connection: &HttpConnection, request: Request<Incoming>) -> HttpResponse {
    let Some(radar) = &connection.api.radar else {
        return refusal(&Refusal::new(Code::NotFound, "radar is off; set radar.enabled = true"));
    };
    match serve(connection, radar, request).await {
        Ok(response) => response,
        Err(EngineRefusal::Tavern(refused)) => refusal(&refused),
        Err(EngineRefusal::Engine(error)) => {
            let status = StatusCode::from_u16(error.http_status()).unwrap_or(StatusCode::BAD_REQUEST);
            whole(status, "application/json", error.body())
        }
    }
}

async fn serve(
    connection: &HttpConnection,
    radar: &Arc<RadarServer>,
    request: Request<Incoming>,
) -> Result<HttpResponse, EngineRefusal> {
    let (parts, body) = request.into_parts();
    let query = Query::of(&parts)?;
    let is_socket = match query.one("transport")? {
        Some("polling") => false,
        Some("websocket") => true,
        _ => return Err(HandshakeError::UnknownTransport.into()),
    };
    if query.one("EIO")? != Some("4") {
        return Err(HandshakeError::UnsupportedVersion.into());
    }
    let address = request::address_of(&parts);
    let known = match query.one("sid")? {
        None => None,
        Some(sid) => match radar.find(sid, address) {
            Some(handle) => Some(handle),
            None => {
                if let Some(address) = address {
                    connection.api.node.rates.take_address_command(connection.api.now(), address)?;
                }
                return Err(HandshakeError::UnknownSession.into());
            }
        },
    };
    let Some(handle) = known else {
        return open(connection, radar, parts, body, is_socket).await;
    };
    if handle.flags.authenticated.load(Ordering::Acquire) {
        connection.replies.note_login();
    }
    let is_upgraded = handle.flags.upgraded.load(Ordering::Acquire);
    if is_upgraded || (is_socket && parts.method != Method::GET) {
        return Err(HandshakeError::BadRequest.into());
    }
    match parts.method {
        Method::GET if is_socket => upgrade(connection, handle, parts, body),
        Method::GET => poll(&handle).await,
        _ => post(connection, &handle, &parts, body).await,
    }
}

/// A new connection.
async fn open(
    connection: &HttpConnection,
    radar: &Arc<RadarServer>,
    parts: Parts,
    body: Incoming,
    is_socket: bool,
) -> Result<HttpResponse, EngineRefusal> {
    let api = &connection.api;
    if parts.method != Method::GET {
        return Err(HandshakeError::BadMethod.into());
    }
    if is_socket && !parts.headers.contains_key(UPGRADE) {
        return Err(HandshakeError::BadRequest.into());
    }
    let address = request::address_of(&parts);
    if api.config.mode != ServerMode::Dev {
        request::count_hello(api, &parts, None)?;
    }
    let client = request::client_address(api, connection.peer, &parts);
    if !is_socket {
        let slot = api.connections.admit(Some(client)).map_err(|_| too_many_connections())?;
        let packet = radar.open(address, slot, None).ok_or_else(busy)?;
        return Ok(payload(packet));
    }
    let slot = connection.take_slot(client).ok_or_else(too_many_connections)?;
    let radar = radar.clone();
    connect::switch(parts, body, move |upgraded| {
        // Too many have not logged in: the client sees its connection close and retries.
        let _ = radar.open(address, slot, Some(GatewaySocket::new(upgraded)));
    })
    .map_err(EngineRefusal::from)
}

fn upgrade(
    connection: &HttpConnection,
    handle: EngineHandle,
    parts: Parts,
    body: Incoming,
) -> Result<HttpResponse, EngineRefusal> {
    let client = request::client_address(&connection.api, connection.peer, &parts);
    let slot = connection.take_slot(client).ok_or_else(too_many_connections)?;
    let switched = connect::switch(parts, body, move |upgraded| {
        let input = EngineInput::Socket(Box::new(GatewaySocket::counted(upgraded, slot)));
        // The connection may have ended meanwhile.
        let _ = handle.inputs.try_send(input);
    });
    switched.map_err(EngineRefusal::from)
}

async fn poll(handle: &EngineHandle) -> Result<HttpResponse, EngineRefusal> {
    let (answer, waiting) = oneshot::channel();
    give(handle, EngineInput::Poll(answer)).await?;
    match waiting.await {
        Ok(Some(packets)) => Ok(payload(packets)),
        _ => Err(HandshakeError::BadRequest.into()),
    }
}

async fn post(
    connection: &HttpConnection,
    handle: &EngineHandle,
    parts: &Parts,
    body: Incoming,
) -> Result<HttpResponse, EngineRefusal> {
    let is_binary =
        parts.headers.get(CONTENT_TYPE) == Some(&HeaderValue::from_static("application/octet-stream"));
    if is_binary {
        return Err(HandshakeError::BadRequest.into());
    }
    let max = connection.api.config.limits.json_frame_bytes;
    let _reserved = reserve(connection, handle, parts, max)?;
    let body: Bytes = request::body(body, max).await?;
    let text = std::str::from_utf8(&body).map_err(|_| HandshakeError::BadRequest)?;
    let packets = engineio::read_payload(text, PACKETS_MAX).map_err(|_| HandshakeError::BadRequest);
    let Ok(packets) = packets else {
        // The connection is over, as after every packet that cannot be read.
        let (answer, _) = oneshot::channel();
        give(handle, EngineInput::Post(vec![(PacketKind::Close, String::new())], answer)).await?;
        return Err(HandshakeError::BadRequest.into());
    };
    let packets = packets.into_iter().map(|packet| (packet.kind, packet.data.to_owned())).collect();
    let (answer, accepted) = oneshot::channel();
    give(handle, EngineInput::Post(packets, answer)).await?;
    match accepted.await {
        Ok(true) => Ok(whole(StatusCode::OK, "text/html", "ok")),
        _ => Err(HandshakeError::BadRequest.into()),
    }
}

/// Memory for a body, while the client has not logged in.
fn reserve(
    connection: &HttpConnection,
    handle: &EngineHandle,
    parts: &Parts,
    max: usize,
) -> Result<Option<ReservedBytes>, Refusal> {
    if handle.flags.authenticated.load(Ordering::Acquire) {
        return Ok(None);
    }
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let reserved = connection.api.unauthenticated.reserve(announced.unwrap_or(max).min(max));
    reserved.map(Some).ok_or_else(busy)
}

fn busy() -> Refusal {
    Refusal::new(Code::Unavailable, "too many connections without a login; retry later").retry_after(1000)
}

async fn give(handle: &EngineHandle, input: EngineInput) -> Result<(), EngineRefusal> {
    handle.inputs.send(input).await.map_err(|_| HandshakeError::UnknownSession.into())
}

fn payload(packets: Vec<u8>) -> HttpResponse {
    whole(StatusCode::OK, "text/plain; charset=UTF-8", packets)
}
