//! Follows, visibility, presence and inbox messages for services: the same commands that users have, for any user.
//! They run on a shard, which notifies the affected sessions.

use super::api::HttpApi;
use super::body::{HttpResponse, json};
use super::key_holder::{KeyHolder, RequestBody};
use super::rest::{OnceAnswer, once_key, run_once};
use super::session::{put, stopping};
use super::user::named;
use crate::shard::input::{HttpServiceCommand, ShardInput};
use http::request::Parts;
use std::sync::Arc;
use tavern_hub::ServiceCommand;
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{FollowRow, Found, Read};
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{EMPTY, HoldRequest, parse_hold, parse_visibility};
use tavern_wire::json::parse_message_body;
use tavern_wire::json::status;
use tokio::sync::oneshot;

pub async fn follow(api: &HttpApi, user: &str, whom: &str, on: bool) -> Result<HttpResponse, Refusal> {
    order(api, ServiceCommand::Follow { follower: user.into(), followee: whom.into(), on }).await
}

pub async fn show(api: &HttpApi, user: &str, body: RequestBody<'_>) -> Result<HttpResponse, Refusal> {
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let value = parse_visibility(&body)?;
    order(api, ServiceCommand::SetVisibility { user: user.into(), value }).await
}

/// Makes a user present in a channel until the app removes them.
pub async fn hold(
    api: &HttpApi,
    channel: &str,
    user: &str,
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let HoldRequest { with, ttl_ms } = parse_hold(&body)?;
    order(api, ServiceCommand::Hold { channel: channel.into(), user: user.into(), with, ttl_ms }).await
}

pub async fn release(api: &HttpApi, channel: &str, user: &str) -> Result<HttpResponse, Refusal> {
    order(api, ServiceCommand::Release { channel: channel.into(), user: user.into() }).await
}

/// A durable inbox message. A request with an idempotency key runs once, even if it is retried on another node.
pub async fn write(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    user: &str,
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let data: Arc<str> = parse_message_body(&body)?.data.into();
    let once = once_key(parts, holder, &format!("user#{user}"))?;
    let named = once.as_ref().map(|once| once.hex().into());
    let command = ServiceCommand::InboxMessage { user: user.into(), data, once: named };
    let work = async { carry_out(api, command).await.map(OnceAnswer::from) };
    run_once(api, once.as_ref(), work).await.map(json)
}

/// Runs a command on a shard and waits for its reply.
pub async fn order(api: &HttpApi, order: ServiceCommand) -> Result<HttpResponse, Refusal> {
    carry_out(api, order).await.map(json)
}

pub async fn carry_out(api: &HttpApi, order: ServiceCommand) -> Result<Vec<u8>, Refusal> {
    let (answer, waiting) = oneshot::channel();
    let input = ShardInput::Order(Box::new(HttpServiceCommand { order, answer }));
    put(api, api.shards.next(), input)?;
    let body = waiting.await.map_err(|_| stopping())??;
    Ok(if body.is_empty() { EMPTY.to_vec() } else { body })
}

/// Whom a user follows, or who follows them.
pub async fn list(
    api: &HttpApi,
    user: &str,
    followers: bool,
    after: &str,
    limit: usize,
) -> Result<HttpResponse, Refusal> {
    let (user, after) = (named(user)?, (!after.is_empty()).then(|| after.into()));
    let limit = limit as u32;
    let read = match followers {
        true => Read::Followers { user, after, limit },
        false => Read::Following { user, after, limit },
    };
    let Ok(Found::Edges(page)) = api.store.read(read).await else {
        return Err(
            Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS)
        );
    };
    let name = |edge: &FollowRow| {
        if followers { edge.follow.follower.clone() } else { edge.follow.followee.clone() }
    };
    let names: Vec<Arc<str>> = page.rows.iter().map(name).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let mut body = Vec::new();
    status::users(&mut body, &names, names.last().copied().filter(|_| page.more));
    Ok(json(body))
}
