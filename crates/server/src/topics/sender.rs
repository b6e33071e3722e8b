//! Turns a batch into a signed request and posts it. Knows formats and headers, not when or why.
//! Must hold: the same batch is the same body at every attempt; no secret and no body reaches the log.

use super::SERVER_OWNER;
use super::attempt_span::AttemptSpan;
use super::report::HIDDEN;
use crate::config::{Config, ServerMode};
use crate::metrics::{MetricKind, MetricSource, Series};
use crate::traces::Tracer;
use crate::webhook::{
    self, KeptResponse, Policy, SenderError, SenderSettings, SigningKeys, SigningSecret, WebhookAnswer,
    WebhookSender, WebhookTarget,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::delivery::{BatchReason, DeliveryOutcome, EndpointReply};
use tavern_hub::node::histogram::{Histogram, LatencyCounts};
use tavern_hub::topics::delivery::{AttemptAnswer, AttemptEntry, AttemptRequest, HttpExchange};
use tavern_store::{Clock, LogEntry};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::event::{BatchFormat, stored};
use tavern_wire::record::{AttemptRecord, SentRequest, SubscriptionSettings};
use tokio::sync::Semaphore;

/// Tests in progress at once.
const TESTS: usize = 16;
/// The topic and the type of a test event.
const TEST_TOPIC: &str = "tavern.test";
const TEST_TYPE: &str = "test";

const ATTEMPT: HeaderName = HeaderName::from_static("tavern-attempt");

/// Signs bodies as a foreign protocol does. Must hold: a subscription that is not the server's own gets nothing.
pub trait BodySigner: Send + Sync {
    fn headers(&self, subscription: &str, body: &[u8]) -> Vec<(HeaderName, HeaderValue)>;
}

pub struct BatchSender {
    sender: WebhookSender,
    policy: Policy,
    /// Bounds the tests in progress: each is a request that waits for an endpoint.
    tests: Semaphore,
    /// How long the endpoints took, by outcome.
    durations: [(DeliveryOutcome, Histogram); DeliveryOutcome::ALL.len()],
    tracer: Option<Arc<Tracer>>,
    /// For the format of Pusher.
    signer: Option<Arc<dyn BodySigner>>,
}

/// Which addresses may be called. In dev mode all of them: it runs on this machine only.
pub fn policy(config: &Config) -> Policy {
    let dev = config.mode == ServerMode::Dev;
    Policy {
        allow_http: config.events.allow_http || dev,
        allow_private: config.events.allow_private || dev,
        allowed: Vec::new(),
    }
}

impl BatchSender {
    pub fn new(
        config: &Config,
        tracer: Option<Arc<Tracer>>,
        signer: Option<Arc<dyn BodySigner>>,
    ) -> Result<BatchSender, SenderError> {
        let events = &config.events;
        let sender = WebhookSender::new(SenderSettings {
            policy: policy(config),
            connect_timeout: Duration::from_millis(events.connect_timeout_ms),
            request_timeout: Duration::from_millis(events.request_timeout_ms),
            ..SenderSettings::default()
        })?;
        let durations = DeliveryOutcome::ALL.map(|outcome| (outcome, Histogram::default()));
        let (policy, tests) = (policy(config), Semaphore::new(TESTS));
        Ok(BatchSender { sender, policy, tests, durations, tracer, signer })
    }

    /// Sends one test event to the endpoint of a subscription now.
    pub async fn test(
        &self,
        subscription: Arc<SubscriptionSettings>,
        clock: &dyn Clock,
    ) -> Result<AttemptRecord, Refusal> {
        let Ok(_permit) = self.tests.try_acquire() else {
            let message = format!("{TESTS} tests are in progress; retry in a few seconds");
            return Err(Refusal::new(Code::Unavailable, message).retry_after(1_000));
        };
        let now = clock.now();
        let data = r#"{"message":"a test event sent by an operator"}"#;
        let entry = LogEntry {
            position: 0,
            topic: TEST_TOPIC.into(),
            count: 0,
            at: now,
            id: Some(format!("test-{}", now.ms()).into()),
            body: stored(TEST_TYPE, None, now.ms(), data).into(),
        };
        let post = AttemptRequest {
            subscription,
            // Endpoints dedupe by id: every test has its own.
            batch: now.ms(),
            attempt: 1,
            reason: BatchReason::Probe,
            accepted: now,
            events: vec![AttemptEntry::Event { seq: 0, entry }],
        };
        let AttemptAnswer { reply, exchange } = self.post(&post, now.ms() / 1_000).await;
        let mut record = exchange.record(clock.now(), &reply);
        record.request.show_body(&post.body());
        Ok(AttemptRecord { attempt: 1, reason: TEST_TYPE.into(), events: 1, ..record })
    }

    pub async fn post(&self, post: &AttemptRequest, now_s: u64) -> AttemptAnswer {
        let subscription = &post.subscription;
        let callback = subscription.callback.as_deref().unwrap_or_default();
        let target = match WebhookTarget::parse(callback, &self.policy) {
            Ok(target) => target,
            Err(error) => {
                tracing::debug!(subscription = %subscription.name, %error, "cannot call the callback");
                let reply =
                    EndpointReply { error: Some(error.to_string().into()), ..DeliveryOutcome::Failed.into() };
                return reply.into();
            }
        };
        let url = shown_url(target.uri());
        let body = bytes::Bytes::from(post.body());
        let mut headers = headers(post, now_s, &body);
        let mut request =
            SentRequest { bytes: body.len() as u64, format: subscription.format, ..SentRequest::default() };
        let span = AttemptSpan::begin(self.tracer.as_ref(), post);
        headers.extend(span.header());
        if subscription.format == BatchFormat::Pusher && *subscription.owner == *SERVER_OWNER {
            let signer = self.signer.as_ref();
            headers.extend(signer.into_iter().flat_map(|signer| signer.headers(&subscription.name, &body)));
        }
        let posted = webhook::WebhookRequest { target, headers, body };
        request.headers = shown_headers(subscription, &posted.sent_headers());
        let WebhookAnswer { mut reply, status, took, detail, kept } = self.sender.post(&posted).await;
        if let Some((_, histogram)) = self.durations.iter().find(|(known, _)| *known == reply.outcome) {
            histogram.observe_shared(took.as_micros() as u64);
        }
        span.end(post, &url, status, (reply.outcome != DeliveryOutcome::Delivered).then_some(&*detail));
        let (name, duration_ms) = (&subscription.name, took.as_millis() as u64);
        if reply.outcome != DeliveryOutcome::Delivered {
            tracing::debug!(subscription = %name, batch = post.batch, status, duration_ms, error = detail, "webhook attempt failed");
            reply.error = Some(detail.into());
        }
        let KeptResponse { headers, body, truncated } = kept;
        let exchange =
            HttpExchange { url, status, duration_ms, headers, body, body_truncated: truncated, request };
        AttemptAnswer { reply, exchange }
    }
}

impl MetricSource for BatchSender {
    fn gather(&self, all: &mut Vec<Series>) {
        let help = "Time of a request to an endpoint, to the end of its answer, by what became of it";
        let mut series = Series::new("tavern_webhook_duration_seconds", MetricKind::Histogram, help);
        for (outcome, histogram) in &self.durations {
            let mut counts = LatencyCounts::default();
            histogram.add_to(&mut counts);
            series.add_latencies(&[("outcome", outcome.as_str().into())], &counts);
        }
        all.push(series);
    }
}

/// Scheme, host and path: a query may contain a secret.
fn shown_url(uri: &http::Uri) -> Arc<str> {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    format!("{}://{authority}{}", uri.scheme_str().unwrap_or("http"), uri.path()).into()
}

/// Headers as an operator may see them. Must hold: no credential is shown. Those of the subscription may contain one.
fn shown_headers(subscription: &SubscriptionSettings, headers: &HeaderMap) -> BTreeMap<String, String> {
    let own =
        |name: &HeaderName| subscription.headers.keys().any(|own| own.eq_ignore_ascii_case(name.as_str()));
    let shown = |(name, value): (&HeaderName, &HeaderValue)| {
        let text = match name == AUTHORIZATION || own(name) {
            true => HIDDEN.into(),
            false => String::from_utf8_lossy(value.as_bytes()),
        };
        (name.as_str().to_owned(), text.into_owned())
    };
    headers.iter().map(shown).collect()
}

fn headers(post: &AttemptRequest, now_s: u64, body: &[u8]) -> Vec<(HeaderName, HeaderValue)> {
    let subscription = &post.subscription;
    let mut headers = vec![(ATTEMPT, HeaderValue::from(post.attempt))];
    for (name, value) in &subscription.headers {
        // Checked when the subscription was put.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            headers.push((name, value));
        }
    }
    if let Some(keys) = keys(subscription, now_s) {
        headers.extend(webhook::sign(&keys, &post.id(), now_s, body));
    }
    if subscription.format == BatchFormat::Routemaster {
        let uuid = subscription.uuid.as_deref().unwrap_or_default();
        let basic = format!("Basic {}", STANDARD.encode(format!("{uuid}:x")));
        headers.extend(HeaderValue::try_from(basic).ok().map(|value| (AUTHORIZATION, value)));
    }
    headers
}

/// The newest secret, and the previous one while it is still valid.
fn keys(subscription: &SubscriptionSettings, now_s: u64) -> Option<SigningKeys> {
    let live = |until: Option<u64>| until.is_none_or(|until| now_s * 1000 < until);
    let mut secrets = subscription
        .secrets
        .iter()
        .filter(|secret| live(secret.until))
        .filter_map(|secret| SigningSecret::parse(&secret.text).ok());
    Some(SigningKeys { current: secrets.next()?, former: secrets.next() })
}
