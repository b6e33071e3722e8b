//! One request that publishes many messages, and a result for each of them.

use super::super::encode::string;
use super::super::field::{Raw, message_id, need, object, present, refuse, text, texts};
use crate::error::{Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Messages in one request.
pub const MESSAGES_MAX: usize = 1_000;

/// The same data for several channels.
#[derive(Debug)]
pub struct BroadcastRequest<'a> {
    pub channels: Vec<Cow<'a, str>>,
    pub data: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BroadcastFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    channels: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Raw<'a>,
}

/// The body of `POST /v1/broadcast`.
pub fn parse_broadcast(body: &[u8]) -> Result<BroadcastRequest<'_>, Refusal> {
    let fields: BroadcastFields<'_> = object(body)?;
    let channels = need("channels", texts("channels", fields.channels)?)?;
    bounded("channels", channels.len())?;
    Ok(BroadcastRequest { channels, data: need("data", fields.data)?.get() })
}

/// One message of many.
#[derive(Debug)]
pub struct PublishItem<'a> {
    pub channel: Cow<'a, str>,
    pub data: &'a str,
    /// Makes a publish with history once-only.
    pub message_id: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessagesFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    messages: Raw<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ItemFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    channel: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    data: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    message_id: Raw<'a>,
}

/// The body of `POST /v1/publish`. Each item is read by itself: a wrong one does not hinder the others.
pub fn parse_publish_many(body: &[u8]) -> Result<Vec<Result<PublishItem<'_>, Refusal>>, Refusal> {
    let fields: MessagesFields<'_> = object(body)?;
    let list = need("messages", fields.messages)?.get();
    let items: Vec<&RawValue> = serde_json::from_str(list)
        .map_err(|_| refuse("the field `messages` must be a list of {\"channel\", \"data\"}"))?;
    bounded("messages", items.len())?;
    Ok(items.into_iter().map(item).collect())
}

fn item(item: &RawValue) -> Result<PublishItem<'_>, Refusal> {
    let fields: ItemFields<'_> = object(item.get().as_bytes())?;
    let channel = need("channel", text("channel", fields.channel)?)?;
    let message_id = message_id(fields.message_id)?;
    Ok(PublishItem { channel, data: need("data", fields.data)?.get(), message_id })
}

fn bounded(name: &str, count: usize) -> Result<(), Refusal> {
    match count {
        0 => Err(refuse(format!("the field `{name}` is empty"))),
        _ if count > MESSAGES_MAX => {
            let message = format!("the field `{name}` has {count} items, at most {MESSAGES_MAX} are allowed");
            Err(Refusal::new(Code::TooLarge, message))
        }
        _ => Ok(()),
    }
}

#[derive(Serialize)]
struct PublishError<'a> {
    code: &'static str,
    message: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

/// The body of the answer: a result for each message, in their order. `replies` are the objects that single publishes are
/// answered with.
pub fn published_many(channels: &[Cow<'_, str>], replies: &[Result<Vec<u8>, Refusal>]) -> Vec<u8> {
    let mut out = b"{\"failed\":".to_vec();
    let failed = replies.iter().filter(|reply| reply.is_err()).count();
    out.extend_from_slice(failed.to_string().as_bytes());
    out.extend_from_slice(b",\"results\":[");
    for (at, (channel, reply)) in channels.iter().zip(replies).enumerate() {
        out.extend_from_slice(if at == 0 { b"{\"channel\":" } else { b",{\"channel\":" });
        string(&mut out, channel);
        out.push(b',');
        match reply {
            Ok(body) => out.extend_from_slice(&body[1..]),
            Err(refusal) => {
                let (code, message) = (refusal.code.as_str(), &*refusal.message);
                let error = PublishError { code, message, retry_after_ms: refusal.retry_after_ms };
                out.extend_from_slice(b"\"error\":");
                out.extend_from_slice(&super::encode(&error));
                out.push(b'}');
            }
        }
    }
    out.extend_from_slice(b"]}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_that_cannot_be_read_does_not_hinder_the_others() {
        let body =
            br#"{"messages":[{"channel":"a#1","data":{"x":1}},{"channel":7,"data":1},{"channel":"b#1"},5]}"#;
        let items = parse_publish_many(body).unwrap();
        let read = items[0].as_ref().unwrap();
        assert_eq!((&*read.channel, read.data), ("a#1", r#"{"x":1}"#));
        assert!(items.len() == 4 && items[1..].iter().all(Result::is_err));
    }

    #[test]
    fn the_number_of_messages_is_bounded() {
        let many =
            |count: usize| format!(r#"{{"data":1,"channels":[{}]}}"#, vec!["\"a#1\""; count].join(","));
        assert_eq!(parse_broadcast(many(MESSAGES_MAX).as_bytes()).unwrap().channels.len(), MESSAGES_MAX);
        let refusal = parse_broadcast(many(MESSAGES_MAX + 1).as_bytes()).unwrap_err();
        assert_eq!(refusal.code, Code::TooLarge);
        assert!(parse_broadcast(many(0).as_bytes()).is_err());
        assert!(parse_publish_many(br#"{"messages":{}}"#).is_err() && parse_publish_many(b"{}").is_err());
    }

    #[test]
    fn every_message_has_its_result() {
        let channels: Vec<Cow<'_, str>> = vec!["a#1".into(), "b\"#1".into()];
        let refusal = Refusal::new(Code::RateLimited, "slow down").retry_after(5);
        let body = published_many(&channels, &[Ok(br#"{"receivers":2}"#.to_vec()), Err(refusal)]);
        let expected = r##"{"failed":1,"results":[{"channel":"a#1","receivers":2},{"channel":"b\"#1","error":{"code":"rate_limited","message":"slow down","retry_after_ms":5}}]}"##;
        assert_eq!(String::from_utf8(body).unwrap(), expected);
    }
}
