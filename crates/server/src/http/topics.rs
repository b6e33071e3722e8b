//! Topics and subscriptions over HTTP: which route does what, and which scope it needs. Publishing is decided by the
//! hub, the rest by the office.

use super::api::HttpApi;
use super::body::{HttpResponse, json, typed, whole};
use super::idempotency::KeyState;
use super::request::{self, Query};
use super::rest::{holder_of, idempotency_key, page_of};
use super::session;
use crate::shard::input::{HttpTopic, ShardInput};
use crate::topics::office::body::object;
use crate::topics::office::{self, From, Question, Retry, Wish};
use http::StatusCode;
use http::request::Parts;
use hyper::body::Incoming;
use serde::Deserialize;
use std::time::{Duration, Instant};
use tavern_domain::Scope;
use tavern_hub::topics::{Published, TopicCaller, TopicCommand, TopicReply, once_bytes};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{Deleted, PublishReport, encode};
use tavern_wire::json::event::parse_events;
use tokio::sync::oneshot;

/// A list of events. One of a thousand has about a kilobyte for each.
const BODY_BYTES: usize = 1 << 20;
/// How long a shard and the store may take.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Settings with all their headers, or a list of all dead letters that are tried at once.
const SETTINGS_BYTES: usize = 256 * 1024;

pub async fn answer(
    api: &HttpApi,
    parts: &Parts,
    segments: &[&str],
    body: Incoming,
) -> Result<HttpResponse, Refusal> {
    let scopes: &[Scope] = match (parts.method.as_str(), segments) {
        ("POST", ["topics", _, "events"]) => &[Scope::Events],
        ("PUT", ["topics", _]) => &[Scope::Admin],
        ("DELETE", ["topics", _]) => &[Scope::Events, Scope::Admin],
        (_, ["topics", ..]) => &[Scope::Events, Scope::Subscriptions],
        _ => &[Scope::Subscriptions],
    };
    let caller = &caller(api, parts, scopes).await?;
    let most = if segments.first() == Some(&"topics") { BODY_BYTES } else { SETTINGS_BYTES };
    // Before anything is refused: a connection whose body was not read cannot be used again.
    let body = &*request::body(body, most).await?;
    match (parts.method.as_str(), segments) {
        ("POST", ["topics", topic, "events"]) => publish(api, parts, caller, topic, body).await,
        ("GET", ["topics"]) => {
            let (after, limit) = page_of(parts)?;
            told(office::topics(&api.topics, &after, limit).await?)
        }
        ("GET", ["topics", topic]) => told(office::topic(&api.topics, topic).await?),
        ("PUT", ["topics", topic]) => assign(api, topic, body).await,
        ("DELETE", ["topics", topic]) => {
            office::end(&api.topics, caller, topic).await?;
            Ok(typed(&Deleted { deleted: topic }))
        }
        ("GET", ["subscriptions"]) => {
            let (after, limit) = page_of(parts)?;
            told(office::list(&api.topics, caller, &after, limit).await?)
        }
        ("PUT", ["subscriptions", name]) => put(api, caller, name, body).await,
        ("GET", ["subscriptions", name]) => told(office::report(&api.topics, caller, name).await?),
        ("DELETE", ["subscriptions", name]) => {
            office::remove(&api.topics, caller, name).await?;
            Ok(typed(&Deleted { deleted: name }))
        }
        ("GET", ["subscriptions", name, "events"]) => {
            Ok(json(office::pull(&api.topics, caller, name, question(parts)?).await?))
        }
        ("POST", ["subscriptions", name, "replay"]) => {
            let from = From::parse(body)?;
            told(office::replay(&api.topics, caller, name, from).await?)
        }
        ("POST", ["subscriptions", name, order @ ("enable" | "disable")]) => {
            office::switch(&api.topics, caller, name, *order == "enable").await?;
            told(office::report(&api.topics, caller, name).await?)
        }
        ("GET", ["subscriptions", name, "dead-letters"]) => {
            let (after, limit) = page_of(parts)?;
            told(office::dead_letters(&api.topics, caller, name, &after, limit).await?)
        }
        ("POST", ["subscriptions", name, "dead-letters", "retry"]) => {
            let wish = Retry::parse(body)?;
            told(office::retry(&api.topics, caller, name, &wish).await?)
        }
        (method, _) => {
            let path = parts.uri.path();
            Err(Refusal::new(Code::NotFound, format!("no route for {method} {path}")))
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Assignment {
    #[serde(deserialize_with = "Option::deserialize")]
    publisher: Option<String>,
}

/// Moves the claim on a topic, or clears it.
async fn assign(api: &HttpApi, topic: &str, body: &[u8]) -> Result<HttpResponse, Refusal> {
    let assignment: Assignment = object(body, "give {\"publisher\": KEY} with the id of a key, or null")?;
    told(office::assign(&api.topics, topic, assignment.publisher.map(Into::into)).await?)
}

async fn caller(api: &HttpApi, parts: &Parts, scopes: &[Scope]) -> Result<TopicCaller, Refusal> {
    holder_of(api, parts, scopes).await.map(|identity| TopicCaller::of(&identity))
}

fn told(value: serde_json::Value) -> Result<HttpResponse, Refusal> {
    Ok(json(value.to_string()))
}

async fn publish(
    api: &HttpApi,
    parts: &Parts,
    caller: &TopicCaller,
    topic: &str,
    body: &[u8],
) -> Result<HttpResponse, Refusal> {
    let accepted = |body| Ok(whole(StatusCode::ACCEPTED, "application/json", body));
    let Some(once) = idempotency_key(parts, &format!("events\n{topic}"))? else {
        let published = add_events(api, caller, topic, None, body).await?;
        return accepted(report(topic, &published));
    };
    // The log knows the key too; this node also knows what it answered, whatever comes with the key this time.
    match api.idempotency.begin(&once, Instant::now()) {
        KeyState::New => {}
        KeyState::Answered(answer) => return accepted(answer),
        KeyState::InProgress => {
            let message = "a request with this Idempotency-Key is in progress";
            return Err(Refusal::new(Code::Conflict, message).retry_after(100));
        }
    }
    let given = parts.headers.get("idempotency-key").and_then(|given| given.to_str().ok());
    match add_events(api, caller, topic, given, body).await {
        Ok(published) => {
            let body = report(topic, &published);
            api.idempotency.finish(&once, &body);
            accepted(body)
        }
        Err(refused) => {
            api.idempotency.forget(&once);
            Err(refused)
        }
    }
}

/// Parses the events and gives them to a shard. `once` is the `Idempotency-Key`, if there was one.
async fn add_events(
    api: &HttpApi,
    caller: &TopicCaller,
    topic: &str,
    once: Option<&str>,
    body: &[u8],
) -> Result<Published, Refusal> {
    let events = parse_events(body, api.now().ms())?;
    let once = once.map(|key| short_key(key, once_bytes(&caller.id)));
    let command = TopicCommand::Publish { topic: topic.into(), once, events };
    let TopicReply::Published(published) = carry_out(api, caller, command).await?;
    Ok(published)
}

/// Gives a command to a shard and waits for its reply.
async fn carry_out(
    api: &HttpApi,
    caller: &TopicCaller,
    command: TopicCommand,
) -> Result<TopicReply, Refusal> {
    let (answer, waiting) = oneshot::channel();
    let topic = HttpTopic { caller: caller.clone(), command, answer };
    session::put(api, api.shards.next(), ShardInput::Topic(Box::new(topic)))?;
    match tokio::time::timeout(REPLY_TIMEOUT, waiting).await {
        Ok(reply) => reply.map_err(|_| session::stopping())?,
        Err(_) => Err(Refusal::new(Code::Unavailable, "the store does not answer; try again")
            .retry_after(RETRY_AFTER_MS)),
    }
}

/// An `Idempotency-Key` as it becomes part of ids: itself, or its hash when it is too long for that.
fn short_key(key: &str, bytes: usize) -> String {
    if key.len() <= bytes {
        return key.to_owned();
    }
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, key.as_bytes());
    hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn report(topic: &str, published: &Published) -> Vec<u8> {
    let Published { first_seq, last_seq, accepted, duplicates } = *published;
    encode(&PublishReport { topic, first_seq, last_seq, accepted, duplicates })
}

async fn put(api: &HttpApi, caller: &TopicCaller, name: &str, body: &[u8]) -> Result<HttpResponse, Refusal> {
    let wish = Wish::parse(body)?;
    let put = office::put(&api.topics, caller, name, wish).await?;
    let mut answer = office::settings(caller, &put.subscription);
    answer["created"] = put.created.into();
    if let Some(secret) = put.secret {
        answer["secret"] = secret.into();
    }
    told(answer)
}

fn question(parts: &Parts) -> Result<Question, Refusal> {
    let query = Query::of(parts);
    let limit =
        query.number("limit")?.map_or(office::LIMIT, |limit| u32::try_from(limit).unwrap_or(u32::MAX));
    let wait = Duration::from_millis(query.number("wait_ms")?.unwrap_or(0));
    Ok(Question { after: query.number("after")?, wait, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_idempotency_key_is_hashed() {
        assert_eq!(short_key("once", 4), "once");
        let (one, other) = (short_key(&"x".repeat(255), 100), short_key(&"y".repeat(255), 100));
        assert_eq!((one.len(), other.len()), (64, 64));
        assert_ne!(one, other);
        assert!(once_bytes("admin") >= 64, "the hash fits");
    }
}
