//! `/app/KEY`: the WebSocket of a Pusher client. One that names no app, or another protocol, is told so on the socket: clients
//! read the reason there and nowhere else.

use super::body::{HttpResponse, refusal};
use super::connect;
use super::request::{self, Query};
use super::server::{HttpConnection, too_many_connections};
use crate::gateway::GatewaySocket;
use crate::pusher::Occupancy;
use crate::shard::shared_output::SharedOutput;
use hyper::Request;
use hyper::body::Incoming;
use std::sync::Arc;
use tavern_pusher::PusherError;
use tavern_wire::error::{Code, Refusal};

pub async fn socket(connection: &HttpConnection, request: Request<Incoming>) -> HttpResponse {
    serve(connection, request, None).unwrap_or_else(|refused| refusal(&refused))
}

/// The page that opens the socket may not connect. A handshake that fails is tried again for ever, and shows nobody why.
pub fn refuse_page(
    connection: &HttpConnection,
    request: Request<Incoming>,
    refused: Refusal,
) -> HttpResponse {
    let error = PusherError::unauthorized(refused.message);
    serve(connection, request, Some(error)).unwrap_or_else(|refused| refusal(&refused))
}

fn serve(
    connection: &HttpConnection,
    request: Request<Incoming>,
    refused: Option<PusherError>,
) -> Result<HttpResponse, Refusal> {
    let (parts, body) = request.into_parts();
    let api = &connection.api;
    let Some(pusher) = &api.pusher else { return Err(no_app()) };
    let key = parts.uri.path().strip_prefix("/app/").unwrap_or_default();
    let app = match (refused, pusher.app_of_key(key)) {
        (Some(error), _) => Err(error),
        (None, Some(app)) => check_protocol(&Query::of(&parts)?, app),
        (None, None) => Err(PusherError::UNKNOWN_KEY),
    };
    request::count_hello(api, &parts, None)?;
    let address = request::address_of(&parts);
    let client = request::client_address(api, connection.peer, &parts);
    let slot = connection.take_slot(client).ok_or_else(too_many_connections)?;
    let pusher = pusher.clone();
    connect::switch(parts, body, move |upgraded| {
        let socket = match connect::plain_socket(upgraded) {
            Ok((socket, input)) => GatewaySocket::shared(SharedOutput::new(socket), input, slot),
            Err(upgraded) => GatewaySocket::counted(upgraded, slot),
        };
        pusher.open(app, address, socket);
    })
}

fn check_protocol(query: &Query, app: Arc<Occupancy>) -> Result<Arc<Occupancy>, PusherError> {
    let Ok(Some(protocol)) = query.one("protocol") else { return Err(PusherError::NO_VERSION) };
    match protocol.parse::<u32>() {
        Ok(5..=7) => Ok(app),
        Ok(_) => Err(PusherError::UNSUPPORTED_VERSION),
        Err(_) => Err(PusherError::BAD_VERSION),
    }
}

pub fn no_app() -> Refusal {
    Refusal::new(Code::NotFound, "there is no Pusher app here; add [[pusher.apps]] to the configuration")
}
