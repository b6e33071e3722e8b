//! The authorize hook: an HTTP call to the app that decides per user, channel and verb.
//! The app gets `{"user","channel","verb"}` and answers `{"allow":bool,"channel"?:"another"}`.
//! Must hold: no answer, a late one or a strange one means no; a slow app costs bounded memory and delays only those
//! who ask it.

use crate::services::Services;
use crate::shard::mail::Mail;
use crate::supervisor::panics;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tavern_hub::{Question, Verdict};
use tokio::sync::Semaphore;

/// Questions under way at once; the others wait their turn.
const AT_ONCE: usize = 64;
const PATIENCE: Duration = Duration::from_secs(3);
/// The time between two words in the log about an app that does not answer.
const COMPLAINTS: Duration = Duration::from_secs(5);
const ANSWER_BYTES: usize = 16 * 1024;

pub struct Hook {
    url: http::Uri,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    at_once: Semaphore,
    complained: Mutex<Option<Instant>>,
}

#[derive(serde::Serialize)]
struct Asked<'a> {
    user: Option<&'a str>,
    channel: &'a str,
    verb: &'static str,
}

#[derive(serde::Deserialize)]
struct Answered {
    allow: bool,
    channel: Option<String>,
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
    Late,
}

impl Hook {
    pub fn new(url: http::Uri) -> Hook {
        let connector = hyper_rustls::HttpsConnectorBuilder::new()
            .with_webpki_roots()
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(AT_ONCE).build(connector);
        Hook { url, client, at_once: Semaphore::new(AT_ONCE), complained: Mutex::default() }
    }

    /// Says once in a while that the app is in trouble; a dead one must not fill the log.
    fn complain(&self, error: &HookError, question: &Question) {
        let mut complained = self.complained.lock().unwrap_or_else(PoisonError::into_inner);
        if complained.is_none_or(|at| at.elapsed() >= COMPLAINTS) {
            *complained = Some(Instant::now());
            tracing::warn!(%error, channel = %question.channel, "the authorize hook gave no answer; that is a no");
        }
    }

    async fn decide(&self, question: &Question) -> Result<Verdict, HookError> {
        let asked = Asked {
            user: question.user.as_deref(),
            channel: &question.channel,
            verb: question.verb.as_str(),
        };
        let body = serde_json::to_vec(&asked).unwrap_or_default();
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
        let answered: Answered =
            serde_json::from_slice(&body).map_err(|error| HookError::Body(error.to_string()))?;
        Ok(match answered.channel {
            _ if !answered.allow => Verdict::Deny,
            Some(other) if *other != *question.channel => Verdict::Instead(other.into()),
            _ => Verdict::Allow,
        })
    }
}

/// Asks for a shard; the answer comes back as mail.
pub fn ask(services: &Arc<Services>, shard: usize, question: Question) {
    let asker = services.clone();
    services.runtime.spawn(async move {
        let verdict = match &asker.hook {
            Some(hook) => {
                // Waiting for a turn counts too: whoever asked waits no longer than he was told.
                let decided = tokio::time::timeout(PATIENCE, async {
                    let _turn = hook.at_once.acquire().await;
                    hook.decide(&question).await
                });
                // A panic is a no too: the shard waits for an answer.
                let decided = panics::contain(decided).await.unwrap_or(Ok(Ok(Verdict::Deny)));
                decided.unwrap_or(Err(HookError::Late)).unwrap_or_else(|error| {
                    hook.complain(&error, &question);
                    Verdict::Deny
                })
            }
            None => Verdict::Deny,
        };
        asker.inboxes[shard].force(Mail::Answer(question, verdict));
    });
}
