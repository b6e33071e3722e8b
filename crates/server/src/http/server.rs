//! Serves one HTTP connection: HTTP/1.1, or HTTP/2 after ALPN or with prior knowledge. Each request goes to its handler.
//! Must hold: a hostile request costs bounded time and memory and gets an answer; routes are in one table.

use super::api::HttpApi;
use super::body::{HttpResponse, ResponseBody, refusal, text, whole};
use super::http1::{HEAD_BYTES, PlainIo, serve_plain, serve_tls};
use super::poll::{self, PollOffer};
use super::request;
use super::routes::ListenerSide;
use super::{
    client, connect, dashboard, demo, docs_site, engineio, openapi, origin, overview, parameters, party,
    rest, routes, session, stream,
};
#[cfg(feature = "pusher")]
use super::{pusher, pusher_api};
use crate::closing::IDLE_CLOSES;
use crate::connections::{AddressSlot, ConnectionSlot};
use crate::health::is_bus_up;
use crate::shard::input::CommandAnswer;
use crate::supervisor::{fault, panics};
use crate::traces::{self, RequestSpan};
use crate::unread_replies::ConnectionReplies;
use http::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, ORIGIN};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, Version};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tavern_wire::error::{Code, Refusal};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

pub type HttpTlsStream = tokio_rustls::server::TlsStream<TcpStream>;

/// Requests in flight on one HTTP/2 connection, with SSE streams and polls.
const STREAMS: u32 = 128;
/// An HTTP/2 client that is silent for this long is pinged, and dropped if it does not answer for as long again.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long an HTTP/2 connection that is asked to end may take.
const GOODBYE: Duration = Duration::from_secs(5);
/// The start of HTTP/2, and the interval of checks while a connection has sent less.
const PREFACE: &[u8] = b"PRI";
const PREFACE_CHECK: Duration = Duration::from_millis(5);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// One HTTP connection and what its requests need.
pub struct HttpConnection {
    pub api: Arc<HttpApi>,
    pub peer: SocketAddr,
    side: ListenerSide,
    /// Moves with the socket when a shard serves the connection.
    pub(super) slot: Mutex<Option<ConnectionSlot>>,
    proxied: bool,
    /// Neither TLS nor HTTP/2.
    pub(super) is_plain: bool,
    /// A poll that can take the connection to a shard.
    offer: Mutex<Option<PollOffer>>,
    pub(super) replies: Arc<ConnectionReplies>,
    /// It has had a request. When that is answered it waits for the next one, and may be closed.
    had_request: AtomicBool,
}

impl HttpConnection {
    pub(super) fn offer(&self, offer: PollOffer) {
        *self.offer.lock().unwrap_or_else(PoisonError::into_inner) = Some(offer);
    }

    pub(super) fn take_offer(&self) -> Option<PollOffer> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until the server is closing and this connection should end: a while later, as the answers until then close those
    /// in use. One whose first request is on its way is closed by the answer too.
    pub(super) async fn must_close(&self) {
        self.api.connections.closing.begun().await;
        tokio::time::sleep(IDLE_CLOSES).await;
        if !self.had_request.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

impl HttpConnection {
    /// The slot for a connection that leaves HTTP; behind a proxy it is counted for the client's own address.
    pub fn take_slot(&self, address: IpAddr) -> Option<ConnectionSlot> {
        let slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        if self.proxied { slot.count_for(address) } else { Some(slot) }
    }
}

impl HttpConnection {
    /// Logs that a request of a web page was refused, at most once in a while for each reason.
    fn log_refusal(&self, reason: &'static str, headers: &HeaderMap, address: IpAddr) {
        if let Some(refused) = self.api.refusals.count(reason) {
            let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
            let (origin, host) = (text(ORIGIN), text(HOST));
            tracing::warn!(reason, origin, host, %address, refused, "request refused");
        }
    }
}

impl HttpConnection {
    /// Checks the web page that a request comes from, if any. Returns its origin for the CORS headers.
    pub(super) fn admit_page(
        &self,
        headers: &HeaderMap,
        path: &str,
        address: IpAddr,
    ) -> Result<Option<HeaderValue>, Refusal> {
        let config = &self.api.config;
        let refused = |message: &'static str| Err(Refusal::new(Code::NotAllowed, message));
        if !origin::host_allowed(config, headers) {
            self.log_refusal("host not allowed in dev mode", headers, address);
            return refused("in dev mode the Host must be a loopback name or address");
        }
        if origin::is_cross_site(config, headers, path) {
            return refused("in dev mode pages of other sites may not call the server");
        }
        match origin::allowed(config, headers) {
            None => Ok(None),
            Some(Ok(page)) => Ok(Some(page.clone())),
            Some(Err(())) => {
                self.log_refusal("origin not allowed", headers, address);
                refused("this web origin is not allowed; add it to `origins` in the configuration")
            }
        }
    }
}

/// The client's address, for limits; set for every request.
#[derive(Clone, Copy)]
pub struct ClientAddress(pub IpAddr);

/// The connection of a request is from a trusted proxy.
#[derive(Clone, Copy)]
pub struct FromProxy;

impl HttpConnection {
    /// Counts a waiting request, such as a stream or a poll, for its client. A connection that is not from a proxy is
    /// already counted.
    pub fn count_waiting(&self, parts: &Parts) -> Result<Option<AddressSlot>, Refusal> {
        if !self.proxied {
            return Ok(None);
        }
        let address = request::client_address(&self.api, self.peer, parts);
        if self.api.config.trusted_proxies.iter().any(|proxy| proxy.contains(address)) {
            return Ok(None);
        }
        let counted = self.api.connections.count_address(address);
        counted.map(Some).ok_or_else(too_many_connections)
    }
}

pub fn too_many_connections() -> Refusal {
    Refusal::new(Code::RateLimited, "too many connections from this address").retry_after(5000)
}

/// The state that all connections share.
#[derive(Clone)]
pub struct HttpServer {
    pub api: Arc<HttpApi>,
    pub side: ListenerSide,
    pub tls: Option<Arc<crate::tls::TlsReloader>>,
}

pub async fn serve(server: HttpServer, socket: TcpStream, peer: SocketAddr, slot: ConnectionSlot) {
    let proxied = server.api.config.trusted_proxies.iter().any(|proxy| proxy.contains(peer.ip()));
    let HttpServer { api, side, tls } = server;
    let slot = Mutex::new(Some(slot));
    let is_plain = tls.is_none();
    let (offer, replies, had_request) = (Mutex::default(), api.unread.connection(), AtomicBool::new(false));
    let connection =
        Arc::new(HttpConnection { api, peer, side, slot, proxied, is_plain, offer, replies, had_request });
    match &tls {
        None => match begins_http2(&connection, &socket).await {
            Some(true) => Box::pin(serve_http2(TokioIo::new(socket), connection)).await,
            Some(false) => serve_plain(PlainIo::new(socket, Vec::new()), connection).await,
            None => {}
        },
        Some(tls) => {
            // Boxed, so that a plain connection does not have the size of a TLS one.
            let handshake = Box::pin(tokio::time::timeout(HANDSHAKE, tls.acceptor().accept(socket)));
            match handshake.await {
                Ok(Ok(socket)) => match socket.get_ref().1.alpn_protocol() {
                    Some(b"h2") => Box::pin(serve_http2(TokioIo::new(socket), connection)).await,
                    _ => Box::pin(serve_tls(socket, connection)).await,
                },
                // Often a client that speaks plain HTTP to this port.
                Ok(Err(error)) => {
                    if let Some(refused) = connection.api.refusals.count("TLS handshake failed") {
                        tracing::warn!(%error, address = %peer.ip(), refused, "TLS handshake failed");
                    }
                }
                Err(_) => {}
            }
        }
    }
}

/// Whether a plain connection starts with the HTTP/2 preface. None: it sends nothing in time, or has ended. The bytes
/// stay in the socket, for a later WebSocket.
async fn begins_http2(connection: &HttpConnection, socket: &TcpStream) -> Option<bool> {
    let preface = async {
        let mut first = [0; PREFACE.len()];
        loop {
            match socket.peek(&mut first).await {
                Ok(0) | Err(_) => return None,
                Ok(seen) if first[..seen] != PREFACE[..seen] => return Some(false),
                Ok(seen) if seen == PREFACE.len() => return Some(true),
                // It has arrived in part.
                Ok(_) => tokio::time::sleep(PREFACE_CHECK).await,
            }
        }
    };
    let limit = Duration::from_millis(connection.api.config.limits.http_header_ms);
    tokio::time::timeout(limit, preface).await.ok().flatten()
}

/// Must hold: a connection without requests ends after `http_header_ms`, as with HTTP/1.1.
async fn serve_http2<I>(io: I, connection: Arc<HttpConnection>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let idle = Duration::from_millis(connection.api.config.limits.http_header_ms);
    let served = connection.clone();
    let service = service_fn(move |request| respond(served.clone(), request));
    let serving = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEAD_BYTES as u32)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_EVERY)
        .serve_connection(io, service);
    let mut serving = pin!(serving);
    // One is ours, one the service's; each request and each stream of events has another.
    let is_idle = || Arc::strong_count(&connection) <= 2;
    let (mut was_idle, mut is_closing) = (false, false);
    let mut closing = pin!(connection.api.connections.closing.begun());
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::trace!(%error, "HTTP/2 connection failed");
                }
                return;
            }
            () = connection.replies.must_end() => return,
            () = closing.as_mut(), if !is_closing => {
                is_closing = true;
                serving.as_mut().graceful_shutdown();
            }
            () = tokio::time::sleep(idle) => {
                if was_idle && is_idle() {
                    serving.as_mut().graceful_shutdown();
                    let _ = tokio::time::timeout(GOODBYE, serving.as_mut()).await;
                    return;
                }
                was_idle = is_idle();
            }
        }
    }
}

pub(super) fn respond(
    connection: Arc<HttpConnection>,
    mut request: Request<Incoming>,
) -> impl Future<Output = Result<HttpResponse, Infallible>> + Send {
    name_host(&mut request);
    connection.had_request.store(true, Ordering::Relaxed);
    let is_head = request.method() == Method::HEAD;
    let is_http1 = request.version() < Version::HTTP_2;
    let span = trace(&connection.api, &request);
    let active = connection.clone();
    // Boxed and freed once the request is handled: a parked poll holds none of it.
    let work = traces::within(span.as_ref().map(|span| span.context), begin(connection, request));
    let begun = Box::pin(panics::contain(work));
    async move {
        let (step, page) = begun.await.unwrap_or_else(|panicked| (failed(panicked), None));
        let mut answer = match step {
            RequestStep::Answer(answer) => answer,
            RequestStep::Wait(waiting) => session::answered(waiting.await),
        };
        if let Some(page) = page {
            origin::add_cors(answer.headers_mut(), &page);
        }
        if is_head {
            without_body(&mut answer);
        }
        if let Some(span) = span {
            span.end(answer.status());
        }
        if is_http1 && active.api.health.is_stopping() && !answer.headers().contains_key(CONNECTION) {
            // A proxy that keeps connections takes another one for its next request.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(answer.map(|body| body.counted(&active.replies)))
    }
}

/// The trace of a request of the API. Streams and polls wait, and are in none.
fn trace(api: &HttpApi, request: &Request<Incoming>) -> Option<Box<RequestSpan>> {
    let path = request.uri().path();
    if !path.starts_with("/v1/") || matches!(path, "/v1/connect" | "/v1/stream" | "/v1/poll") {
        return None;
    }
    let route = routes::route_of(path)?;
    RequestSpan::begin(api.tracer.as_ref(), request.method(), route, request.headers()).map(Box::new)
}

/// HTTP/2 has the host in the URL; everything here reads the header.
fn name_host<B>(request: &mut Request<B>) {
    if let Some(authority) = request.uri().authority().filter(|_| !request.headers().contains_key(HOST))
        && let Ok(host) = HeaderValue::from_str(authority.as_str())
    {
        request.headers_mut().insert(HOST, host);
    }
}

/// The answer to `HEAD`: the length of the body, without the body.
fn without_body(answer: &mut HttpResponse) {
    let status = answer.status();
    if let Some(length) = answer.body().size_hint().exact()
        && status != StatusCode::NO_CONTENT
        && status != StatusCode::NOT_MODIFIED
    {
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    *answer.body_mut() = ResponseBody::Whole(None);
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
    mut request: Request<Incoming>,
) -> (RequestStep, Option<HeaderValue>) {
    let config = &connection.api.config;
    let address =
        request::forwarded_address(&config.trusted_proxies, connection.peer.ip(), request.headers());
    request.extensions_mut().insert(ClientAddress(address));
    if connection.proxied {
        request.extensions_mut().insert(FromProxy);
    }
    request.extensions_mut().insert(connection.replies.clone());
    let (headers, path) = (request.headers(), request.uri().path());
    let page = match connection.admit_page(headers, path, address) {
        Ok(page) => page,
        #[cfg(feature = "pusher")]
        Err(refused) if path.starts_with("/app/") => {
            return (RequestStep::Answer(pusher::refuse_page(&connection, request, refused)), None);
        }
        Err(refused) => return (RequestStep::Answer(refusal(&refused)), None),
    };
    if let Err(refused) = connection.replies.admit() {
        return (RequestStep::Answer(refusal(&refused)), page);
    }
    let step = if request.method() == Method::POST && request.uri().path() == poll::PATH {
        match poll::begin(&connection, request, page.clone()).await {
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
        None if let Some(what) = health.store_damage() => format!("the store is damaged: {what}\n"),
        None if !health.is_store_up() => "the store does not answer\n".to_owned(),
        None if !is_bus_up(&api.node) => "the bus does not answer\n".to_owned(),
        None => return ready(api),
    };
    whole(StatusCode::SERVICE_UNAVAILABLE, "text/plain; charset=utf-8", reason)
}

/// A wrong clock does not make the node unready: it keeps serving, and reports what it ignores.
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
    if !connection.side.serves(request.uri().path()) {
        let message = format!("{} is served at admin_listen only", request.uri().path());
        return refusal(&Refusal::new(Code::NotFound, message));
    }
    if let Some(answer) = routes::refuse(&mut request) {
        return answer;
    }
    if let Err(refused) = parameters::check(request.uri()) {
        return refusal(&refused);
    }
    let path = request.uri().path().to_owned();
    let method = request.method().clone();
    match (method.as_str(), path.as_str()) {
        (_, "/v1/connect") => connect::connect(connection, request).await,
        (_, "/engine.io/") => engineio::answer(connection, request).await,
        #[cfg(feature = "pusher")]
        (_, path) if path.starts_with("/app/") => pusher::socket(connection, request).await,
        #[cfg(feature = "pusher")]
        (_, path) if path.starts_with("/apps/") => pusher_api::answer(connection, request).await,
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
        ("GET", "/readyz" | "/healthz") => readiness(api),
        ("GET", "/metrics") => {
            let (parts, _) = request.into_parts();
            overview::metrics(api, &parts, connection.side).await.unwrap_or_else(|refused| refusal(&refused))
        }
        ("GET", "/openapi.json") => openapi::page(request.headers()),
        ("GET", "/client.js") => client::script(request.headers()),
        ("GET", "/") => dashboard::index(request.headers()),
        ("GET", file) if file.starts_with("/assets/") => dashboard::asset(file, request.headers()),
        ("GET", path) if path == "/demo" || path.starts_with("/demo/") => {
            demo::answer(connection, &request.into_parts().0).await
        }
        ("GET", path) if matches!(path, "/docs" | "/docs.md" | "/llms.txt") || path.starts_with("/docs/") => {
            docs_site::answer(&request.into_parts().0)
        }
        (_, path) if path.starts_with("/v1/") => rest::route(connection, request).await,
        _ => refusal(&Refusal::new(Code::NotFound, format!("no route for {method} {path}"))),
    }
}
