//! Turns a batch into a signed request and posts it. Knows formats and headers, not when or why.
//! Must hold: the same batch is the same body at every attempt; no secret and no body reaches the log.

use crate::config::{Config, ServerMode};
use crate::webhook::{
    self, Policy, SenderError, SenderSettings, SigningKeys, SigningSecret, WebhookAnswer, WebhookSender,
    WebhookTarget,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HeaderName, HeaderValue};
use std::time::Duration;
use tavern_domain::delivery::{DeliveryOutcome, EndpointReply};
use tavern_hub::topics::delivery::AttemptRequest;
use tavern_wire::json::event::BatchFormat;
use tavern_wire::record::SubscriptionSettings;

const ATTEMPT: HeaderName = HeaderName::from_static("tavern-attempt");

pub struct BatchSender {
    sender: WebhookSender,
    policy: Policy,
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
    pub fn new(config: &Config) -> Result<BatchSender, SenderError> {
        let events = &config.events;
        let sender = WebhookSender::new(SenderSettings {
            policy: policy(config),
            connect_timeout: Duration::from_millis(events.connect_timeout_ms),
            request_timeout: Duration::from_millis(events.request_timeout_ms),
            ..SenderSettings::default()
        })?;
        Ok(BatchSender { sender, policy: policy(config) })
    }

    pub async fn post(&self, post: &AttemptRequest, now_s: u64) -> EndpointReply<String> {
        let subscription = &post.subscription;
        let callback = subscription.callback.as_deref().unwrap_or_default();
        let target = match WebhookTarget::parse(callback, &self.policy) {
            Ok(target) => target,
            Err(error) => {
                tracing::debug!(subscription = %subscription.name, %error, "callback cannot be called");
                return DeliveryOutcome::Failed.into();
            }
        };
        let body = bytes::Bytes::from(post.body());
        let headers = headers(post, now_s, &body);
        let WebhookAnswer { reply, status, took, detail } =
            self.sender.post(&webhook::WebhookRequest { target, headers, body }).await;
        if reply.outcome != DeliveryOutcome::Delivered {
            let (name, took_ms) = (&subscription.name, took.as_millis() as u64);
            tracing::debug!(subscription = %name, batch = post.batch, status, took_ms, detail, "webhook attempt failed");
        }
        reply
    }
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
