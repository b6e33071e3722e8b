//! `tavern events receive`: an endpoint to try webhooks with. Listens on this machine only, prints each batch, checks its
//! signature and answers as configured. Must hold: a batch whose signature is wrong is shown as such and not acknowledged.

use super::super::moment;
use super::super::table::{Colour, paint, plain, size, wants_colour};
use super::batch::ReceivedBatch;
use crate::webhook::{ID, SigningSecret, VerifyError, verify};
use anyhow::Context;
use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::io::Write;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tavern_store::{Clock, SystemClock};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[derive(clap::Args)]
pub struct ReceiveArgs {
    /// The port on 127.0.0.1; 0 chooses a free one and prints it
    #[arg(long, value_name = "N", default_value_t = 7410)]
    port: u16,
    /// Check signatures with this secret (whsec_…)
    #[arg(long, value_name = "SECRET", env = "WEBHOOK_SECRET", hide_env_values = true)]
    secret: Option<String>,
    /// The status to answer with
    #[arg(long, value_name = "STATUS", default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,
    /// Wait this long before each answer
    #[arg(long, value_name = "MS", default_value_t = 0)]
    delay_ms: u64,
    /// Report these events as failed; the rest of their batch is acknowledged
    #[arg(long, value_name = "ID", num_args = 1.., value_delimiter = ',')]
    fail: Vec<String>,
    /// Exit after this many batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

/// The largest batch that is accepted; a server sends at most 1 MiB by default.
const BODY_BYTES: usize = 64 << 20;
/// Time to write the last answers after the last batch.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

struct WebhookReceiver {
    secret: Option<SigningSecret>,
    status: StatusCode,
    delay: Duration,
    fail: Vec<String>,
    count: u64,
    received: AtomicU64,
    done: Notify,
    /// A closed stdout ends the program.
    failure: std::sync::Mutex<Option<std::io::Error>>,
}

pub fn run(args: ReceiveArgs) -> anyhow::Result<ExitCode> {
    let secret = args.secret.as_deref().map(SigningSecret::parse).transpose()?;
    let receiver = Arc::new(WebhookReceiver {
        secret,
        status: StatusCode::from_u16(args.status)?,
        delay: Duration::from_millis(args.delay_ms),
        fail: args.fail,
        count: args.count.unwrap_or(u64::MAX),
        received: AtomicU64::new(0),
        done: Notify::new(),
        failure: std::sync::Mutex::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(listen(args.port, &receiver))?;
    let failure = receiver.failure.lock().ok().and_then(|mut failure| failure.take());
    failure.map_or(Ok(ExitCode::SUCCESS), |error| Err(error.into()))
}

async fn listen(port: u16, receiver: &Arc<WebhookReceiver>) -> anyhow::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
    let listener = listener.with_context(|| format!("cannot listen on 127.0.0.1:{port}"))?;
    eprintln!("listening on http://{}/", listener.local_addr()?);
    if receiver.secret.is_none() {
        eprintln!("signatures are not checked; use --secret whsec_… to check them");
    }
    let mut serving = JoinSet::new();
    loop {
        let socket = tokio::select! {
            accepted = listener.accept() => accepted?.0,
            _ = serving.join_next(), if !serving.is_empty() => continue,
            () = receiver.done.notified() => break,
        };
        let receiver = receiver.clone();
        serving.spawn(async move {
            let service = service_fn(move |request| {
                let receiver = receiver.clone();
                async move { Ok::<_, Infallible>(receiver.answer(request).await) }
            });
            // The client may close the connection at any time.
            let _ = http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(socket), service)
                .await;
        });
    }
    let last_answers = async { while serving.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_ANSWERS, last_answers).await;
    Ok(())
}

impl WebhookReceiver {
    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let Ok(body) = Limited::new(body, BODY_BYTES).collect().await else {
            eprintln!("a request body is truncated or larger than {} MiB", BODY_BYTES >> 20);
            return response(StatusCode::PAYLOAD_TOO_LARGE, None);
        };
        let body = body.to_bytes();
        let signature = self.secret.as_ref().map(|secret| {
            let now_s = SystemClock.now().ms() / 1_000;
            verify(secret, &head.headers, &body, now_s)
        });
        let batch = ReceivedBatch::parse(&body);
        let (status, named) = match (&signature, &batch) {
            (Some(Err(_)), _) => (StatusCode::UNAUTHORIZED, None),
            (_, Ok(batch)) => (self.status, batch.naming(&self.fail)),
            (_, Err(_)) => (self.status, None),
        };
        // Tavern reads failed events only from 2xx answers.
        let named = named.filter(|_| status.is_success());
        let text = describe(&head.headers, &body, signature.as_ref(), &batch, status, wants_colour());
        if let Err(error) = print(&text) {
            *self.failure.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(error);
            self.done.notify_one();
        }
        tokio::time::sleep(self.delay).await;
        let mut answer = response(status, named);
        if self.received.fetch_add(1, Ordering::Relaxed) + 1 >= self.count {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            self.done.notify_one();
        }
        answer
    }
}

fn response(status: StatusCode, named: Option<String>) -> Response<Full<Bytes>> {
    let json = named.is_some();
    let mut response = Response::new(Full::from(named.unwrap_or_default()));
    *response.status_mut() = status;
    if json {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// One line for the batch, one for each event.
fn describe(
    headers: &HeaderMap,
    body: &[u8],
    signature: Option<&Result<(), VerifyError>>,
    batch: &Result<ReceivedBatch, serde_json::Error>,
    status: StatusCode,
    colour: bool,
) -> String {
    let field = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(plain);
    let mut parts = vec![moment::show(SystemClock.now())];
    parts.push(paint(&field(ID.as_str()).unwrap_or_else(|| "-".to_owned()), Colour::Bold, colour));
    parts.push(match batch {
        Ok(batch) => batch.summary(),
        Err(error) => paint(&format!("not a batch: {error}"), Colour::Yellow, colour),
    });
    parts.push(size(body.len() as u64));
    parts.extend(field("tavern-attempt").map(|attempt| format!("attempt {attempt}")));
    parts.extend(signature.map(|signature| match signature {
        Ok(()) => paint("signature ok", Colour::Green, colour),
        Err(why) => paint(&format!("BAD SIGNATURE: {why}"), Colour::Red, colour),
    }));
    parts.push(format!("-> {}", status.as_u16()));
    let lines = batch.as_ref().map(ReceivedBatch::lines).unwrap_or_default();
    format!("{}\n{lines}", parts.join("  "))
}
