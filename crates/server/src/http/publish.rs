//! Publishing for services: one message, the same one to many channels, many messages in one request.
//! Must hold: the messages of one request to one channel arrive in the order of the request.

use super::api::HttpApi;
use super::body::HttpResponse;
use super::history;
use super::request;
use super::rest::{idempotency_key, run_once};
use super::session::{put, stopping};
use crate::shard::input::{HttpPublish, ShardInput};
use http::request::Parts;
use hyper::body::Incoming;
use std::borrow::Cow;
use tavern_domain::Channel;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{
    BroadcastRequest, PublishItem, Receivers, encode, parse_broadcast, parse_publish_many, published_many,
};
use tavern_wire::json::{MessageBody, parse_message_body};
use tokio::sync::oneshot;

/// A request with many messages.
const BODY_BYTES: usize = 4 << 20;

pub async fn one(api: &HttpApi, parts: &Parts, name: &str, body: Incoming) -> Result<HttpResponse, Refusal> {
    check_channel(name)?;
    let body = request::body(body, api.config.limits.json_frame_bytes).await?;
    let message = parse_message_body(&body)?;
    check_data(api, message.data)?;
    let once = idempotency_key(parts, name)?;
    run_once(api, once.as_deref(), send(api, name, message, once.as_deref())).await
}

/// The same data to several channels.
pub async fn broadcast(api: &HttpApi, parts: &Parts, body: Incoming) -> Result<HttpResponse, Refusal> {
    let body = request::body(body, BODY_BYTES).await?;
    let BroadcastRequest { channels, data } = parse_broadcast(&body)?;
    check_data(api, data)?;
    let items = channels.into_iter().map(|channel| Ok(PublishItem { channel, data })).collect();
    let once = idempotency_key(parts, "/v1/broadcast")?;
    run_once(api, once.as_deref(), send_all(api, items, once.as_deref())).await
}

/// Several messages.
pub async fn many(api: &HttpApi, parts: &Parts, body: Incoming) -> Result<HttpResponse, Refusal> {
    let body = request::body(body, BODY_BYTES).await?;
    let items = parse_publish_many(&body)?;
    let once = idempotency_key(parts, "/v1/publish")?;
    run_once(api, once.as_deref(), send_all(api, items, once.as_deref())).await
}

async fn send_all(
    api: &HttpApi,
    items: Vec<Result<PublishItem<'_>, Refusal>>,
    once: Option<&str>,
) -> Result<Vec<u8>, Refusal> {
    // All are given to the shards of their channels before the first is awaited: those of one channel keep their order.
    let begun: Vec<Result<BegunPublish, Refusal>> = items
        .iter()
        .enumerate()
        .map(|(number, item)| {
            let item = item.as_ref().map_err(Clone::clone)?;
            check_channel(&item.channel)?;
            check_data(api, item.data)?;
            let once = once.map(|once| format!("{once}\n{number}"));
            begin(api, &item.channel, MessageBody { data: item.data, retain: false }, once.as_deref())
        })
        .collect();
    let mut replies = Vec::with_capacity(begun.len());
    for begun in begun {
        replies.push(match begun {
            Ok(begun) => begun.reply().await,
            Err(refusal) => Err(refusal),
        });
    }
    let channel = |item: &Result<PublishItem<'_>, Refusal>| match item {
        Ok(item) => Cow::Owned(item.channel.to_string()),
        Err(_) => Cow::Borrowed(""),
    };
    let channels: Vec<Cow<'_, str>> = items.iter().map(channel).collect();
    Ok(published_many(&channels, &replies))
}

fn check_channel(name: &str) -> Result<(), Refusal> {
    let channel = Channel::parse(name).map_err(|error| Refusal::new(Code::BadRequest, error.to_string()))?;
    if channel.is_reserved() {
        let message = format!("channels of kind {:?} belong to the server", channel.kind);
        return Err(Refusal::new(Code::NotAllowed, message));
    }
    Ok(())
}

fn check_data(api: &HttpApi, data: &str) -> Result<(), Refusal> {
    let max = api.config.limits.message_bytes;
    if data.len() > max {
        let message = format!("data has {} bytes, at most {max} are allowed", data.len());
        return Err(Refusal::new(Code::TooLarge, message));
    }
    Ok(())
}

async fn send(
    api: &HttpApi,
    name: &str,
    message: MessageBody<'_>,
    once: Option<&str>,
) -> Result<Vec<u8>, Refusal> {
    begin(api, name, message, once)?.reply().await
}

/// A message that a shard has.
enum BegunPublish {
    Delivered(oneshot::Receiver<u32>),
    /// To a channel with history.
    Stored(oneshot::Receiver<Result<Vec<u8>, Refusal>>),
}

impl BegunPublish {
    async fn reply(self) -> Result<Vec<u8>, Refusal> {
        match self {
            BegunPublish::Delivered(waiting) => {
                let receivers = waiting.await.map_err(|_| stopping())?;
                Ok(encode(&Receivers { receivers }))
            }
            BegunPublish::Stored(waiting) => waiting.await.map_err(|_| stopping())?,
        }
    }
}

fn begin(
    api: &HttpApi,
    name: &str,
    MessageBody { data, retain }: MessageBody<'_>,
    once: Option<&str>,
) -> Result<BegunPublish, Refusal> {
    // All of a channel's messages go through one shard, so that one service has one order.
    let shard = name.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte as usize));
    let shard = shard % api.shards.len();
    if retain || history::limits(api, name)?.is_some() {
        return history::publish(api, shard, name, data, once).map(BegunPublish::Stored);
    }
    let (answer, waiting) = oneshot::channel();
    let input = HttpPublish { channel: name.into(), data: data.as_bytes().to_vec(), answer };
    put(api, shard, ShardInput::Publish(Box::new(input)))?;
    Ok(BegunPublish::Delivered(waiting))
}
