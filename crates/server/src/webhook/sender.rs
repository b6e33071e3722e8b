//! Posts to endpoints and returns the outcome. Connections are pooled: HTTP/1.1 one post at a time, HTTP/2 many.
//! Must hold: a post ends within its timeout, whatever the endpoint does; a hanging endpoint costs little more than a
//! socket; a post that is lost on a stale idle connection is retried on another, so it may arrive twice.

use super::address::Policy;
use super::answer::{BodyEnd, KeptResponse, ReadBody, WebhookAnswer, judge, wants_body};
use super::dial::{AnsweredBefore, Connector, DialTimeouts};
use super::failure;
use super::resolve::{Resolver, SystemResolver};
use super::target::WebhookTarget;
use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Extensions, Method, Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body as _, Incoming};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tavern_domain::delivery::DeliveryOutcome;
use tokio::time::{Instant, timeout, timeout_at};

/// The User-Agent.
const AGENT: HeaderValue = HeaderValue::from_static(concat!("tavern/", env!("CARGO_PKG_VERSION")));
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Idle connections per endpoint.
const IDLE_MAX: usize = 32;
/// The read buffer of an HTTP/1.1 connection, and so the longest response head.
const HEAD_BYTES: usize = 32 * 1024;
const HEAD_FIELDS: usize = 100;
/// HTTP/2 flow control windows: per stream, and per connection.
const STREAM_WINDOW: u32 = 64 * 1024;
const CONNECTION_WINDOW: u32 = 1024 * 1024;
/// The send buffer of one HTTP/2 stream.
const SEND_AHEAD: usize = 64 * 1024;
/// A silent connection with posts in flight is pinged; without an answer it is closed.
const PING_EVERY: Duration = Duration::from_secs(5);
const PING_PATIENCE: Duration = Duration::from_secs(5);
/// Stale connections that one post may hit before it fails.
const STALE_MAX: usize = 3;
/// The timeout for a body that does not matter: it is read only to reuse the connection.
const DRAIN: Duration = Duration::from_millis(500);

/// The defaults are those of the documentation.
pub struct SenderSettings {
    pub policy: Policy,
    /// The timeout to resolve a name and connect; a TLS handshake has as much again.
    pub connect_timeout: Duration,
    /// The timeout of a whole post, to the last byte of the answer.
    pub request_timeout: Duration,
    /// How long an idle connection is kept.
    pub idle_timeout: Duration,
    /// The bytes of a response body that are read.
    pub answer_bytes: usize,
    /// Trusted certificate authorities in addition to the public ones.
    pub authorities: Vec<CertificateDer<'static>>,
    pub resolver: Arc<dyn Resolver>,
}

impl Default for SenderSettings {
    fn default() -> SenderSettings {
        SenderSettings {
            policy: Policy::default(),
            connect_timeout: Duration::from_secs(2),
            request_timeout: Duration::from_secs(20),
            idle_timeout: Duration::from_secs(30),
            answer_bytes: 64 * 1024,
            authorities: Vec::new(),
            resolver: Arc::new(SystemResolver::default()),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SenderError {
    #[error("cannot use a certificate authority: {0}")]
    Authority(#[source] rustls::Error),
    #[error("cannot set up TLS: {0}")]
    Tls(#[source] rustls::Error),
}

/// A request. The body is shared, never copied.
#[derive(Clone, Debug)]
pub struct WebhookRequest {
    pub target: WebhookTarget,
    /// Those that `may_send` refuses are left out.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    pub body: Bytes,
}

impl WebhookRequest {
    /// All headers as they are sent, but those that frame and route the request.
    pub fn sent_headers(&self) -> HeaderMap {
        request(self).into_parts().0.headers
    }
}

pub struct WebhookSender {
    client: Client<Connector, Full<Bytes>>,
    request_timeout: Duration,
    answer_bytes: usize,
}

/// Whether a subscription may set this header. The others frame and route the request: setting them would allow request
/// smuggling.
pub fn may_send(name: &HeaderName) -> bool {
    let reserved = [
        header::HOST,
        header::CONNECTION,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::TE,
        header::TRAILER,
        header::UPGRADE,
        header::EXPECT,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        HeaderName::from_static("http2-settings"),
    ];
    !reserved.contains(name)
}

impl WebhookSender {
    pub fn new(settings: SenderSettings) -> Result<WebhookSender, SenderError> {
        let SenderSettings { policy, connect_timeout, request_timeout, .. } = settings;
        let tls = tls(settings.authorities)?;
        let timeouts = DialTimeouts { connect: connect_timeout, unacknowledged: request_timeout / 2 };
        let connector = Connector::new(policy, settings.resolver, tls, timeouts);
        let client = Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(settings.idle_timeout)
            .pool_max_idle_per_host(IDLE_MAX)
            .http1_max_buf_size(HEAD_BYTES)
            .http1_max_headers(HEAD_FIELDS)
            .http2_max_header_list_size(HEAD_BYTES as u32)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_send_buf_size(SEND_AHEAD)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_PATIENCE)
            .build(connector);
        Ok(WebhookSender { client, request_timeout, answer_bytes: settings.answer_bytes })
    }

    pub async fn post(&self, post: &WebhookRequest) -> WebhookAnswer {
        let began = Instant::now();
        let until = began + self.request_timeout;
        let failed = |detail: String| (DeliveryOutcome::Failed.into(), None, detail, KeptResponse::default());
        let (reply, status, detail, kept) = match timeout_at(until, self.respond(post)).await {
            Ok(Ok(response)) => {
                let (head, body) = response.into_parts();
                let body = self.read(body, wants_body(head.status), until).await;
                let (reply, detail) = judge(head.status, &head.headers, &body, SystemTime::now());
                (reply, Some(head.status.as_u16()), detail, KeptResponse::new(&head.headers, &body))
            }
            Ok(Err(error)) => failed(failure::in_words(&error)),
            Err(_) => failed(failure::timeout(self.request_timeout)),
        };
        WebhookAnswer { reply, status, took: began.elapsed(), detail, kept }
    }

    /// Reads the body behind an address, which must be answered with success.
    pub async fn get(&self, target: &WebhookTarget) -> Result<Vec<u8>, String> {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.uri_mut() = target.uri().clone();
        request.headers_mut().insert(header::ACCEPT, JSON);
        request.headers_mut().insert(header::USER_AGENT, AGENT);
        let reading = async {
            let response = self.client.request(request).await.map_err(|error| failure::in_words(&error))?;
            if !response.status().is_success() {
                return Err(format!("the answer has status {}", response.status().as_u16()));
            }
            let body = Limited::new(response.into_body(), self.answer_bytes).collect().await;
            body.map(|body| body.to_bytes().to_vec())
                .map_err(|error| format!("the answer could not be read: {error}"))
        };
        let read = timeout(self.request_timeout, reading).await;
        read.unwrap_or_else(|_| Err(failure::timeout(self.request_timeout)))
    }

    /// Sends until a head of an answer arrives, retrying on stale connections.
    async fn respond(&self, post: &WebhookRequest) -> Result<Response<Incoming>, Error> {
        let mut stale = 0;
        loop {
            match self.client.request(request(post)).await {
                Ok(response) => {
                    if let Some(mark) = response.extensions().get::<AnsweredBefore>() {
                        mark.answered();
                    }
                    return Ok(response);
                }
                Err(error) if stale < STALE_MAX && was_stale(&error) => stale += 1,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads a body as far as it is needed.
    async fn read(&self, mut body: Incoming, wanted: bool, until: Instant) -> ReadBody {
        let mut read = ReadBody::default();
        let drained = until.min(Instant::now() + DRAIN);
        while !body.is_end_stream() {
            // Only an object can change what the status says.
            let wanted = wanted && read.bytes.trim_ascii_start().first().is_none_or(|byte| *byte == b'{');
            let frame = match timeout_at(if wanted { until } else { drained }, body.frame()).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(_))) => return ReadBody { end: BodyEnd::Broken, ..read },
                Ok(None) => break,
                Err(_) => return ReadBody { end: BodyEnd::Late, ..read },
            };
            let Ok(bytes) = frame.into_data() else { continue };
            let room = self.answer_bytes - read.bytes.len();
            read.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
            if bytes.len() > room {
                return ReadBody { end: BodyEnd::Cut, ..read };
            }
        }
        read
    }
}

fn request(post: &WebhookRequest) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(post.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = post.target.uri().clone();
    let headers = request.headers_mut();
    headers.reserve(post.headers.len() + 4);
    headers.insert(header::CONTENT_TYPE, JSON);
    headers.insert(header::USER_AGENT, AGENT);
    for (name, value) in post.headers.iter().filter(|(name, _)| may_send(name)) {
        headers.insert(name.clone(), value.clone());
    }
    request
}

/// Race with an idle timeout: an HTTP/1.1 endpoint may close a connection just as we post on it; an HTTP/2 endpoint may
/// refuse the stream because it is closing.
fn was_stale(error: &Error) -> bool {
    let mut extensions = Extensions::new();
    if let Some(connected) = error.connect_info() {
        connected.get_extras(&mut extensions);
    }
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<hyper::Error>());
    let ended = source.is_some_and(|source| !source.is_parse() && !source.is_user() && !source.is_timeout());
    ended && extensions.get::<AnsweredBefore>().is_some_and(AnsweredBefore::has_answered)
}

/// The trusted roots: the public authorities and some more.
fn tls(authorities: Vec<CertificateDer<'static>>) -> Result<ClientConfig, SenderError> {
    let mut roots = RootCertStore::empty();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    for authority in authorities {
        roots.add(authority).map_err(SenderError::Authority)?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config.map_err(SenderError::Tls)?.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
#[path = "sender_tests.rs"]
mod tests;
