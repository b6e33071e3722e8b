//! Topics and subscriptions over HTTP: which route does what, and which scope it needs. The rest is the office's.

use super::api::Api;
use super::body::{Answer, json, whole};
use super::idempotency::Known;
use super::request::{self, Query};
use super::rest::{holder_of, idempotency_key, page_of};
use crate::topics::office::body::object;
use crate::topics::office::{self, Caller, From, Question, Retry, Wish};
use http::StatusCode;
use http::request::Parts;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::json as value;
use std::time::{Duration, Instant};
use tavern_domain::Scope;
use tavern_wire::error::{Code, Refusal};

/// Settings with all their headers, or a list of all dead letters that are tried at once.
const SETTINGS_BYTES: usize = 256 * 1024;

pub async fn answer(api: &Api, parts: &Parts, segments: &[&str], body: Incoming) -> Result<Answer, Refusal> {
    let scopes: &[Scope] = match (parts.method.as_str(), segments) {
        ("POST", ["topics", _, "events"]) => &[Scope::Events],
        ("PUT", ["topics", _]) => &[Scope::Admin],
        ("DELETE", ["topics", _]) => &[Scope::Events, Scope::Admin],
        (_, ["topics", ..]) => &[Scope::Events, Scope::Subscriptions],
        _ => &[Scope::Subscriptions],
    };
    let caller = &caller(api, parts, scopes).await?;
    let most = if segments.first() == Some(&"topics") { office::BODY_BYTES } else { SETTINGS_BYTES };
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
            told(value!({"deleted": topic}))
        }
        ("GET", ["subscriptions"]) => {
            let (after, limit) = page_of(parts)?;
            told(office::list(&api.topics, caller, &after, limit).await?)
        }
        ("PUT", ["subscriptions", name]) => put(api, caller, name, body).await,
        ("GET", ["subscriptions", name]) => told(office::report(&api.topics, caller, name).await?),
        ("DELETE", ["subscriptions", name]) => {
            office::remove(&api.topics, caller, name).await?;
            told(value!({"deleted": name}))
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
            Err(Refusal::new(Code::NotFound, format!("there is nothing at {method} {path}")))
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
async fn assign(api: &Api, topic: &str, body: &[u8]) -> Result<Answer, Refusal> {
    let assignment: Assignment = object(body, "give {\"publisher\": KEY} with the id of a key, or null")?;
    told(office::assign(&api.topics, topic, assignment.publisher.map(Into::into)).await?)
}

async fn caller(api: &Api, parts: &Parts, scopes: &[Scope]) -> Result<Caller, Refusal> {
    holder_of(api, parts, scopes).await.map(|identity| Caller::of(&identity))
}

fn told(value: serde_json::Value) -> Result<Answer, Refusal> {
    Ok(json(value.to_string()))
}

async fn publish(
    api: &Api,
    parts: &Parts,
    caller: &Caller,
    topic: &str,
    body: &[u8],
) -> Result<Answer, Refusal> {
    let accepted = |body| Ok(whole(StatusCode::ACCEPTED, "application/json", body));
    let Some(once) = idempotency_key(parts, &format!("events\n{topic}"))? else {
        let published = office::publish(&api.topics, caller, topic, None, body).await?;
        return accepted(tally(topic, &published));
    };
    // The log knows the key too; this node also knows what it answered, whatever comes with the key this time.
    match api.remembered.begin(&once, Instant::now()) {
        Known::New => {}
        Known::Answered(answer) => return accepted(answer),
        Known::UnderWay => {
            let message = "a request with this Idempotency-Key is under way";
            return Err(Refusal::new(Code::Conflict, message).retry_after(100));
        }
    }
    let given = parts.headers.get("idempotency-key").and_then(|given| given.to_str().ok());
    match office::publish(&api.topics, caller, topic, given, body).await {
        Ok(published) => {
            let body = tally(topic, &published);
            api.remembered.finish(&once, &body);
            accepted(body)
        }
        Err(refused) => {
            api.remembered.forget(&once);
            Err(refused)
        }
    }
}

fn tally(topic: &str, published: &office::Published) -> Vec<u8> {
    let office::Published { first_seq, last_seq, accepted, duplicates } = published;
    // The name of a topic needs no quoting.
    format!(
        "{{\"topic\":\"{topic}\",\"first_seq\":{first_seq},\"last_seq\":{last_seq},\
         \"accepted\":{accepted},\"duplicates\":{duplicates}}}"
    )
    .into_bytes()
}

async fn put(api: &Api, caller: &Caller, name: &str, body: &[u8]) -> Result<Answer, Refusal> {
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
