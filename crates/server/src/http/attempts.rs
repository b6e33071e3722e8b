//! What a subscriber needs when deliveries fail: the stored attempts, a test event that is sent now, a new secret,
//! and the events of a topic. Everything is decided by the hub.

use super::api::HttpApi;
use super::body::{HttpResponse, typed};
use super::request::Query;
use super::rest::page_of;
use crate::topics::body::object;
use crate::topics::commands::unexpected;
use crate::webhook::SigningSecret;
use http::request::Parts;
use serde::Deserialize;
use std::sync::Arc;
use tavern_hub::topics::{AttemptFilter, BrowseFrom, TopicCaller, TopicCommand, TopicReply};
use tavern_wire::error::{Code, Refusal};

/// Attempts, or events, in one page, unless the request asks for fewer.
const LISTED: u64 = 1_000;

/// `GET /v1/subscriptions/{name}/attempts`.
pub fn list(parts: &Parts, name: &str) -> Result<TopicCommand, Refusal> {
    let query = Query::of(parts)?;
    let filter = AttemptFilter {
        before: query.number("after", 0..=u64::MAX)?,
        failed: query.flag("failed")?,
        limit: query.number("limit", 1..=LISTED)?.unwrap_or(100) as usize,
    };
    Ok(TopicCommand::ListAttempts { name: name.into(), filter })
}

/// `GET /v1/subscriptions/{name}/attempts/{number}`.
pub fn show(name: &str, number: &str) -> Result<TopicCommand, Refusal> {
    let wrong = |_| Refusal::new(Code::BadRequest, format!("{number:?} is not the number of an attempt"));
    Ok(TopicCommand::ShowAttempt { name: name.into(), number: number.parse().map_err(wrong)? })
}

/// `GET /v1/topics/{topic}/events`.
pub fn browse(parts: &Parts, topic: &str) -> Result<TopicCommand, Refusal> {
    let query = Query::of(parts)?;
    let from = match (query.number("after", 0..=u64::MAX)?, query.number("before", 1..=u64::MAX)?) {
        (after, None) => BrowseFrom::After(after.unwrap_or(0)),
        (None, Some(before)) => BrowseFrom::Before(before),
        (Some(_), Some(_)) => {
            return Err(Refusal::new(Code::BadRequest, "give `after` or `before`, not both"));
        }
    };
    let (_, limit) = page_of(parts)?;
    Ok(TopicCommand::BrowseTopic {
        topic: topic.into(),
        from,
        limit: u32::try_from(limit).unwrap_or(u32::MAX),
    })
}

/// `POST /v1/subscriptions/{name}/test`: sends one test event and waits for the endpoint. The attempt changes neither the
/// queue nor the health of the subscription, and is not stored.
pub async fn test(api: &HttpApi, caller: &TopicCaller, name: &str) -> Result<HttpResponse, Refusal> {
    let show = TopicCommand::ShowSubscription { name: name.into() };
    let TopicReply::Subscription(state) = api.topics.run(caller, show).await? else {
        return Err(unexpected());
    };
    if state.subscription.pull {
        let message = "events of this subscription are pulled: it has no callback to test";
        return Err(Refusal::new(Code::BadRequest, message));
    }
    let subscription = Arc::new(state.subscription);
    api.topics.sender.test(subscription, &*api.clock).await.map(|attempt| typed(&attempt))
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct RotateBody {
    secret: Option<String>,
}

/// `POST /v1/subscriptions/{name}/rotate`.
pub fn rotate(name: &str, body: &[u8]) -> Result<TopicCommand, Refusal> {
    let body = match body.iter().all(u8::is_ascii_whitespace) {
        true => RotateBody::default(),
        false => object(body, "give {} for a new secret, or {\"secret\": \"whsec_…\"}")?,
    };
    if let Some(secret) = &body.secret {
        let wrong = |error| Refusal::new(Code::BadRequest, format!("`secret`: {error}"));
        SigningSecret::parse(secret).map_err(wrong)?;
    }
    let secret = body.secret.unwrap_or_else(|| SigningSecret::generate().expose());
    Ok(TopicCommand::RotateSecret { name: name.into(), secret })
}
