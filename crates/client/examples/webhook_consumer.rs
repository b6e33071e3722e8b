//! An endpoint for webhooks: checks the signature, skips repetitions, prints the events.
//! `WEBHOOK_SECRET=whsec_… cargo run --example webhook_consumer PORT`

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use tavern_client::verify_webhook;
use tokio::net::TcpListener;

/// A batch is not larger than `max_bytes` of the subscription, at most this.
const BODY_BYTES: usize = 16 << 20;
/// A real service keeps this in its database, with what it did.
static LAST_SEQ: AtomicU64 = AtomicU64::new(0);

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(8080);
    let secret: &str = std::env::var("WEBHOOK_SECRET").unwrap_or_default().leak();
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    println!("listening");
    loop {
        let (socket, _) = listener.accept().await?;
        let service = service_fn(move |request| async move {
            let mut response = Response::new(Empty::<Bytes>::new());
            *response.status_mut() = handle(secret, request).await;
            Ok::<_, Infallible>(response)
        });
        // A broken connection is the sender's to repeat.
        tokio::spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(socket), service),
        );
    }
}

async fn handle(secret: &str, request: Request<Incoming>) -> StatusCode {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_BYTES).collect().await else { return StatusCode::BAD_REQUEST };
    // The bytes as they arrived are what is signed.
    let body = body.to_bytes();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    if verify_webhook(secret, header, &body).is_err() {
        return StatusCode::UNAUTHORIZED;
    }
    let batch: Value = serde_json::from_slice(&body).unwrap_or_default();
    for event in batch["events"].as_array().into_iter().flatten() {
        let seq = event["seq"].as_u64().unwrap_or_default();
        // The same event may come twice.
        if seq > LAST_SEQ.fetch_max(seq, Ordering::Relaxed) {
            println!("{} {}", event["type"].as_str().unwrap_or_default(), event["data"]);
        }
    }
    StatusCode::NO_CONTENT
}
