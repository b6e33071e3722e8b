//! The authorize hook: an HTTP call to the app that decides per user, channel and verb.
//! The app gets `{"user","channel","verb"}` and answers `{"allow":bool,"channel"?:"another"}`.
//! Must hold: no answer, a late one or a malformed one denies; a slow app costs bounded memory and delays only the
//! commands that need its answer.

use crate::supervisor::panics;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tavern_hub::{AuthorizeAnswer, AuthorizeQuery};
use tavern_wire::json::{HookRequest, HookResponse};
use tokio::sync::Semaphore;

/// Requests in flight at once; the others wait.
const CONCURRENT: usize = 64;
/// From the request to its answer, including the wait for a free slot.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The time between two log lines about a failing app.
const LOG_INTERVAL: Duration = Duration::from_secs(5);
const ANSWER_BYTES: usize = 16 * 1024;

pub struct AuthorizeHook {
    runtime: tokio::runtime::Handle,
    url: http::Uri,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    concurrent: Semaphore,
    logged_at: Mutex<Option<Instant>>,
}

#[derive(Debug, thiserror::Error)]
enum HookError {
    #[error("the request failed: {0}")]
    Request(#[from] hyper_util::client::legacy::Error),
    #[error("the answer could not be read: {0}")]
    Body(String),
    #[error("the answer has status {0}")]
    Status(http::StatusCode),
    #[error("no answer within 3 s")]
    Timeout,
}

impl AuthorizeHook {
    pub fn new(url: http::Uri, runtime: tokio::runtime::Handle) -> AuthorizeHook {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .build();
        let client =
            Client::builder(TokioExecutor::new()).pool_max_idle_per_host(CONCURRENT).build(connector);
        let (concurrent, logged_at) = (Semaphore::new(CONCURRENT), Mutex::default());
        AuthorizeHook { runtime, url, client, concurrent, logged_at }
    }

    /// Calls the hook; `answer` is called with the decision, on the runtime.
    pub fn ask(
        self: &Arc<AuthorizeHook>,
        question: AuthorizeQuery,
        answer: impl FnOnce(AuthorizeQuery, AuthorizeAnswer) + Send + 'static,
    ) {
        let hook = self.clone();
        self.runtime.spawn(async move {
            let deciding = tokio::time::timeout(TIMEOUT, async {
                let _permit = hook.concurrent.acquire().await;
                hook.decide(&question).await
            });
            // A panic denies too: the shard waits for an answer.
            let decided = panics::contain(deciding).await.unwrap_or(Ok(Ok(AuthorizeAnswer::Deny)));
            let reply = decided.unwrap_or(Err(HookError::Timeout)).unwrap_or_else(|error| {
                hook.log_failure(&error, &question);
                AuthorizeAnswer::Deny
            });
            answer(question, reply);
        });
    }

    /// At most one line per interval: a dead app must not fill the log.
    fn log_failure(&self, error: &HookError, question: &AuthorizeQuery) {
        let mut logged_at = self.logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
            *logged_at = Some(Instant::now());
            tracing::warn!(%error, channel = %question.channel, "authorize hook failed; access denied");
        }
    }

    async fn decide(&self, question: &AuthorizeQuery) -> Result<AuthorizeAnswer, HookError> {
        let request = HookRequest {
            user: question.user.as_deref(),
            channel: &question.channel,
            verb: question.verb.as_str(),
        };
        let body = request.encode();
        let mut request = http::Request::new(Full::from(body));
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = self.url.clone();
        let json = http::HeaderValue::from_static("application/json");
        request.headers_mut().insert(http::header::CONTENT_TYPE, json);
        let response = self.client.request(request).await?;
        if !response.status().is_success() {
            return Err(HookError::Status(response.status()));
        }
        let body = Limited::new(response.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| HookError::Body(error.to_string()))?.to_bytes();
        let answered = HookResponse::parse(&body).map_err(|error| HookError::Body(error.to_string()))?;
        Ok(match answered.channel {
            _ if !answered.allow => AuthorizeAnswer::Deny,
            Some(other) if *other != *question.channel => AuthorizeAnswer::Instead(other.into()),
            _ => AuthorizeAnswer::Allow,
        })
    }
}
