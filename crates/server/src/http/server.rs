//! Serves one HTTP connection: its requests in turn, each to its handler.
//! Must hold: a hostile request costs bounded time and memory and gets an answer; routes are in one table.

use super::api::HttpApi;
use super::body::{HttpResponse, ResponseBody, refusal, text, whole};
use super::{
    client, connect, dashboard, demo, docs_site, openapi, origin, party, rest, routes, session, stream,
};
use crate::connections::ConnectionSlot;
use crate::health::is_bus_up;
use crate::metrics;
use crate::shard::input::CommandAnswer;
use crate::supervisor::{fault, panics};
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tavern_wire::error::{Code, Refusal};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub type HttpTlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// Request heads larger than this are refused; hyper refuses more than 100 headers by itself.
const HEAD_BYTES: usize = 16 * 1024;
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// One HTTP connection and what its requests need.
pub struct HttpConnection {
    pub api: Arc<HttpApi>,
    pub peer: SocketAddr,
    /// Moves with the socket when the connection becomes a WebSocket.
    slot: Mutex<Option<ConnectionSlot>>,
    proxied: bool,
}

impl HttpConnection {
    /// The slot for a connection that leaves HTTP; behind a proxy it is counted for the client's own address.
    pub fn take_slot(&self, address: IpAddr) -> Option<ConnectionSlot> {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        if self.proxied { slot.count_for(address) } else { Some(slot) }
    }
}

/// The state that all connections share.
#[derive(Clone)]
pub struct HttpServer {
    pub api: Arc<HttpApi>,
    pub tls: Option<Arc<crate::tls::TlsReloader>>,
}

pub async fn serve(server: HttpServer, socket: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
    let proxied = server.api.config.trusted_proxies.iter().any(|proxy| proxy.contains(peer.ip()));
    let connection =
        Arc::new(HttpConnection { api: server.api, peer, slot: Mutex::new(Some(slot)), proxied });
    match &server.tls {
        None => serve_io(TokioIo::new(socket), connection).await,
        Some(tls) => {
            // Boxed: a plain connection does not carry the size of TLS.
            let handshake = Box::pin(tokio::time::timeout(HANDSHAKE, tls.acceptor().accept(socket)));
            if let Ok(Ok(socket)) = handshake.await {
                Box::pin(serve_io(TokioIo::new(socket), connection)).await;
            }
        }
    }
}

async fn serve_io<I>(io: I, connection: Arc<HttpConnection>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let header_ms = connection.api.config.limits.http_header_ms;
    let service = service_fn(move |request| {
        // Boxed and freed once the request is handled: a parked poll holds none of it.
        let begun = Box::pin(panics::contain(begin(connection.clone(), request)));
        async move {
            let (step, page) = begun.await.unwrap_or_else(|panicked| (failed(panicked), None));
            let mut answer = match step {
                RequestStep::Answer(answer) => answer,
                RequestStep::Wait(waiting) => session::answered(waiting.await),
            };
            if let Some(page) = page {
                origin::add_cors(answer.headers_mut(), &page);
            }
            Ok::<_, Infallible>(answer)
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(header_ms))
        .max_buf_size(HEAD_BYTES)
        .half_close(false)
        .serve_connection(io, service)
        .with_upgrades();
    if let Err(error) = connection.await {
        tracing::trace!(%error, "HTTP connection failed");
    }
}

/// The answer to a request, now or later.
enum RequestStep {
    Answer(HttpResponse),
    /// A poll that waits.
    Wait(oneshot::Receiver<CommandAnswer>),
}

fn failed(panicked: panics::Panicked) -> RequestStep {
    RequestStep::Answer(refusal(&Refusal::new(Code::Internal, panicked.to_string())))
}

/// Checks the web origin of a request, then routes it. Returns the origin for the CORS headers.
async fn begin(
    connection: Arc<HttpConnection>,
    request: Request<Incoming>,
) -> (RequestStep, Option<HeaderValue>) {
    let config = &connection.api.config;
    let refused =
        |message: &'static str| RequestStep::Answer(refusal(&Refusal::new(Code::NotAllowed, message)));
    if !origin::host_allowed(config, request.headers()) {
        return (refused("in dev mode the Host must be a loopback name or address"), None);
    }
    let page = match origin::allowed(config, request.headers()) {
        None => None,
        Some(Ok(page)) => Some(page.clone()),
        Some(Err(())) => {
            return (
                refused("this web origin is not allowed; add it to `origins` in the configuration"),
                None,
            );
        }
    };
    let step = if request.method() == Method::POST && request.uri().path() == "/v1/poll" {
        match session::begin_poll(&connection, request).await {
            Ok(waiting) => RequestStep::Wait(waiting),
            Err(refused) => RequestStep::Answer(refusal(&refused)),
        }
    } else {
        RequestStep::Answer(Box::pin(route(&connection, request)).await)
    };
    (step, page)
}

/// The first reason why this node should get no new clients, or that it should.
fn readiness(api: &HttpApi) -> HttpResponse {
    let health = &api.health;
    let reason = match health.failed_part() {
        Some(part) => format!("{part} has failed\n"),
        None if health.is_stopping() => "the server is stopping\n".to_owned(),
        None if !health.is_store_up() => "the store does not answer\n".to_owned(),
        None if !is_bus_up(&api.node) => "the bus does not answer\n".to_owned(),
        None => return ready(api),
    };
    whole(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", reason)
}

/// A wrong clock does not make the node unready: it keeps serving, and says what it ignores.
fn ready(api: &HttpApi) -> HttpResponse {
    match api.clock.status().warning() {
        None => text(StatusCode::OK, "ready\n"),
        Some(warning) => {
            whole(StatusCode::OK, "text/plain; charset=utf-8", format!("ready\nclock: {warning}\n"))
        }
    }
}

async fn route(connection: &Arc<HttpConnection>, mut request: Request<Incoming>) -> HttpResponse {
    let api = &connection.api;
    fault::strikes("request");
    if request.method() == Method::OPTIONS {
        let mut response = Response::new(ResponseBody::Whole(None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        return response;
    }
    if let Some(answer) = routes::refuse(&mut request) {
        return answer;
    }
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    match (method.as_str(), path.as_str()) {
        (_, "/v1/connect") => connect::connect(connection, request).await,
        ("GET", "/v1/stream") => stream::stream(connection, &request.into_parts().0).await,
        ("POST", "/v1/command") => {
            let (parts, body) = request.into_parts();
            session::command(connection, &parts, body).await
        }
        ("POST", "/party") => {
            let (parts, body) = request.into_parts();
            party::form(connection, &parts, body).await
        }
        ("GET" | "POST", "/party/ping") => {
            let (parts, _) = request.into_parts();
            party::ping(connection, &parts).await.unwrap_or_else(|refused| refusal(&refused))
        }
        ("GET", "/livez") => text(StatusCode::OK, "ok\n"),
        ("GET", "/readyz") => readiness(api),
        ("GET", "/metrics") => {
            let page = metrics::page(&api.metrics.gather());
            whole(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", page)
        }
        ("GET", "/openapi.json") => openapi::page(),
        ("GET", "/client.js") => client::script(request.headers()),
        ("GET", "/") => dashboard::index(request.headers()),
        ("GET", file) if file.starts_with("/assets/") => dashboard::asset(file, request.headers()),
        ("GET", path) if path == "/demo" || path.starts_with("/demo/") => {
            demo::answer(connection, &request.into_parts().0).await
        }
        ("GET", path) if path == "/docs" || path.starts_with("/docs/") => {
            docs_site::answer(&request.into_parts().0)
        }
        (_, path) if path.starts_with("/v1/") => rest::route(connection, request).await,
        _ => refusal(&Refusal::new(Code::NotFound, format!("no route for {method} {path}"))),
    }
}
