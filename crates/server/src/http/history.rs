//! The history of a channel for services: a page of it from the store, publishing to it, clearing it.

use super::api::HttpApi;
use super::body::{HttpResponse, json};
use super::idempotency::OnceKey;
use super::people;
use super::request::Query;
use super::session::put;
use crate::shard::input::{HttpServiceCommand, ShardInput};
use http::request::Parts;
use std::sync::Arc;
use tavern_domain::{Channel, HistoryLimits};
use tavern_hub::{ServiceCommand, write_history_page};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{Found, Read};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::MessageBody;
use tokio::sync::oneshot;

const PAGE: u64 = 100;
const PAGE_MAX: u64 = 1_000;

/// How much history a channel keeps; None: none.
pub fn limits(api: &HttpApi, name: &str) -> Result<Option<HistoryLimits>, Refusal> {
    let channel = Channel::parse(name).map_err(|error| Refusal::new(Code::BadRequest, error.to_string()))?;
    let rules = api.node.settings.kind(channel.kind).history;
    Ok(rules.filter(|_| !channel.is_reserved()).map(|rules| rules.limits))
}

pub async fn page(api: &HttpApi, parts: &Parts, name: &str) -> Result<HttpResponse, Refusal> {
    let Some(limits) = limits(api, name)? else { return Err(none(name)) };
    let query = Query::of(parts)?;
    let after = query.number("after", 0..=u64::MAX)?;
    let before = query.number("before", 0..=u64::MAX)?;
    let read = Read::History {
        channel: name.into(),
        after: after.unwrap_or(0),
        before: before.unwrap_or(u64::MAX),
        newest: after.is_none(),
        limit: query.number("limit", 1..=PAGE_MAX)?.unwrap_or(PAGE) as u32,
    };
    let found = api.store.read(read).await;
    let Ok(Found::History(found)) = found else {
        return Err(
            Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS)
        );
    };
    let mut body = Vec::new();
    write_history_page(&mut body, &found, api.now().ms().saturating_sub(limits.ttl_ms));
    Ok(json(body))
}

pub async fn clear(api: &HttpApi, name: &str) -> Result<HttpResponse, Refusal> {
    match limits(api, name)? {
        Some(_) => people::order(api, ServiceCommand::ClearHistory { channel: name.into() }).await,
        None => Err(none(name)),
    }
}

/// Stores a message and delivers it; the reply comes when it is stored. All messages of a channel go through one shard, so that one service has one order.
pub fn publish(
    api: &HttpApi,
    shard: usize,
    key: Option<&Arc<str>>,
    name: &str,
    message: &MessageBody<'_>,
    once: Option<&OnceKey>,
) -> Result<oneshot::Receiver<Result<Vec<u8>, Refusal>>, Refusal> {
    let from_key = || Some(format!("key-{}", once?.hex()).into());
    let message_id: Option<Arc<str>> = message.message_id.as_deref().map(Arc::from).or_else(from_key);
    let (channel, data) = (name.into(), message.data.as_bytes().into());
    let order = ServiceCommand::Publish { channel, data, key: key.cloned(), message_id };
    let (answer, waiting) = oneshot::channel();
    put(api, shard, ShardInput::Order(Box::new(HttpServiceCommand { order, answer })))?;
    Ok(waiting)
}

fn none(name: &str) -> Refusal {
    let message =
        format!("the channel {name:?} keeps no history; set history_messages in its [kinds.…] table");
    Refusal::new(Code::NotFound, message)
}
