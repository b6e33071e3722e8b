//! Sends spans to an OTLP collector over HTTP, as protobuf, in batches. Must hold: a batch is bounded and tried once; a
//! collector that does not answer costs one request at a time and nothing else.

use super::{FinishedSpan, SpanQueue};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tavern_wire::otlp::export_request;

/// Spans in one request.
const BATCH: usize = 512;
/// How long a span waits for others.
const FLUSH: Duration = Duration::from_secs(1);
/// From the request to the end of its answer.
const TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_BYTES: usize = 64 * 1024;
/// The time between two log lines about a collector that fails.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("the request failed: {0}")]
    Request(#[from] hyper_util::client::legacy::Error),
    #[error("the collector answered {0}")]
    Status(http::StatusCode),
    #[error("no answer within 10 s")]
    Timeout,
}

/// Where the collector takes traces. The key may name the collector, as its own documentation does, or the whole path.
pub fn collector_url(base: &str) -> Result<http::Uri, http::uri::InvalidUri> {
    let base = base.trim_end_matches('/');
    match base.ends_with("/v1/traces") {
        true => base.parse(),
        false => format!("{base}/v1/traces").parse(),
    }
}

type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends what the queue gets, until it is ended.
pub async fn export(mut queue: SpanQueue, url: http::Uri, node: String) {
    let process = [
        ("service.name", "tavern".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", node),
    ];
    let connector =
        hyper_rustls::HttpsConnectorBuilder::new().with_webpki_roots().https_or_http().enable_http1().build();
    let client: HttpClient = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(1).build(connector);
    let mut logged_at: Option<Instant> = None;
    let mut spans: Vec<FinishedSpan> = Vec::with_capacity(BATCH);
    loop {
        if queue.spans.recv_many(&mut spans, BATCH).await == 0 {
            // The tracer is gone; the task is ended with its server.
            return std::future::pending().await;
        }
        let until = tokio::time::Instant::now() + FLUSH;
        while spans.len() < BATCH {
            let room = BATCH - spans.len();
            match tokio::time::timeout_at(until, queue.spans.recv_many(&mut spans, room)).await {
                Ok(1..) => {}
                Ok(0) | Err(_) => break,
            }
        }
        let count = spans.len() as u64;
        let body = export_request(&process, std::mem::take(&mut spans));
        let sent = tokio::time::timeout(TIMEOUT, send(&client, &url, body)).await;
        match sent.unwrap_or(Err(ExportError::Timeout)) {
            Ok(()) => queue.counts.exported.fetch_add(count, Ordering::Relaxed),
            Err(error) => {
                if logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    logged_at = Some(Instant::now());
                    tracing::warn!(%error, spans = count, "cannot send traces to otlp_url");
                }
                queue.counts.failed.fetch_add(count, Ordering::Relaxed)
            }
        };
    }
}

async fn send(client: &HttpClient, url: &http::Uri, body: Vec<u8>) -> Result<(), ExportError> {
    let mut request = http::Request::new(Full::from(body));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = url.clone();
    let protobuf = HeaderValue::from_static("application/x-protobuf");
    request.headers_mut().insert(CONTENT_TYPE, protobuf);
    let response = client.request(request).await?;
    let status = response.status();
    // Read, so that the connection can be used again.
    let _ = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
    if status.is_success() { Ok(()) } else { Err(ExportError::Status(status)) }
}
