//! Publishing for services: one message, the same one to many channels, many messages in one request.
//! Must hold: the messages of one request to one channel arrive in the order of the request.

use super::api::HttpApi;
use super::body::{HttpResponse, json};
use super::history;
use super::idempotency::OnceKey;
use super::key_holder::{KeyHolder, RequestBody};
use super::rest::{OnceAnswer, once_key, run_once};
use super::session::{put, stopping};
use crate::shard::input::{HttpPublish, ShardInput};
use http::request::Parts;
use std::borrow::Cow;
use std::sync::Arc;
use tavern_domain::Channel;
use tavern_wire::error::{Code, Refusal};
use tavern_wire::json::api::{
    BroadcastRequest, PublishItem, Receivers, encode, parse_broadcast, parse_publish_many, published_many,
};
use tavern_wire::json::{MessageBody, parse_message_body};
use tokio::sync::oneshot;

/// A request with many messages.
const BODY_BYTES: usize = 4 << 20;

pub async fn one(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    name: &str,
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    check_channel(name)?;
    let body = body.read(api.config.limits.json_frame_bytes).await?;
    let message = parse_message_body(&body)?;
    check_data(api, message.data)?;
    let once = once_key(parts, holder, name)?;
    let work =
        async { begin(api, holder.key(), name, message, once.as_ref())?.reply().await.map(OnceAnswer::from) };
    run_once(api, once.as_ref(), work).await.map(json)
}

/// The same data to several channels.
pub async fn broadcast(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    let body = body.read(BODY_BYTES).await?;
    let BroadcastRequest { channels, data } = parse_broadcast(&body)?;
    check_data(api, data)?;
    let items =
        channels.into_iter().map(|channel| Ok(PublishItem { channel, data, message_id: None })).collect();
    let once = once_key(parts, holder, "/v1/broadcast")?;
    run_once(api, once.as_ref(), send_all(api, holder, items, once.as_ref())).await.map(json)
}

/// Several messages.
pub async fn many(
    api: &HttpApi,
    parts: &Parts,
    holder: &KeyHolder<'_>,
    body: RequestBody<'_>,
) -> Result<HttpResponse, Refusal> {
    let body = body.read(BODY_BYTES).await?;
    let items = parse_publish_many(&body)?;
    let once = once_key(parts, holder, "/v1/publish")?;
    run_once(api, once.as_ref(), send_all(api, holder, items, once.as_ref())).await.map(json)
}

async fn send_all(
    api: &HttpApi,
    holder: &KeyHolder<'_>,
    items: Vec<Result<PublishItem<'_>, Refusal>>,
    once: Option<&OnceKey>,
) -> Result<OnceAnswer, Refusal> {
    // All are given to the shards of their channels before the first is awaited: those of one channel keep their order.
    let begun: Vec<Result<BegunPublish, Refusal>> = items
        .iter()
        .enumerate()
        .map(|(number, item)| {
            let item = item.as_ref().map_err(Clone::clone)?;
            check_channel(&item.channel)?;
            check_data(api, item.data)?;
            let once = once.map(|once| once.part(number));
            let message = MessageBody { data: item.data, retain: false, message_id: item.message_id.clone() };
            begin(api, holder.key(), &item.channel, message, once.as_ref())
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
    // A retry runs all of them again; those with history are stored once.
    let is_final = replies.iter().all(Result::is_ok);
    Ok(OnceAnswer { body: published_many(&channels, &replies).into(), is_final })
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

/// A message that a shard has.
pub enum BegunPublish {
    Delivered(oneshot::Receiver<u32>),
    /// To a channel with history.
    Stored(oneshot::Receiver<Result<Vec<u8>, Refusal>>),
}

impl BegunPublish {
    pub async fn reply(self) -> Result<Vec<u8>, Refusal> {
        match self {
            BegunPublish::Delivered(waiting) => {
                let receivers = waiting.await.map_err(|_| stopping())?;
                Ok(encode(&Receivers { receivers }))
            }
            BegunPublish::Stored(waiting) => waiting.await.map_err(|_| stopping())?,
        }
    }
}

/// Gives a message to the shard of its channel.
pub fn begin(
    api: &HttpApi,
    key: Option<&Arc<str>>,
    name: &str,
    message: MessageBody<'_>,
    once: Option<&OnceKey>,
) -> Result<BegunPublish, Refusal> {
    // All of a channel's messages go through one shard, so that one service has one order.
    let shard = name.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte as usize));
    let shard = shard % api.shards.len();
    if message.retain || history::limits(api, name)?.is_some() {
        return history::publish(api, shard, key, name, &message, once).map(BegunPublish::Stored);
    }
    let (answer, waiting) = oneshot::channel();
    let input =
        HttpPublish { channel: name.into(), data: message.data.as_bytes().to_vec(), history: None, answer };
    put(api, shard, ShardInput::Publish(Box::new(input)))?;
    Ok(BegunPublish::Delivered(waiting))
}
