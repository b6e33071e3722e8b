//! The bodies of requests of app servers, and of the answers.
//! Must hold: a request that is too large in one respect is refused as a whole, and says in which.

use crate::channel::{ChannelAccess, PusherChannel};
use crate::message::data_text;
use crate::{EVENT_BYTES, EVENT_NAME_BYTES};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Channels of one trigger.
pub const CHANNELS_MAX: usize = 100;
/// Events of one batch.
pub const BATCH_MAX: usize = 10;

/// One event for one or many channels.
#[derive(Debug)]
pub struct TriggerRequest<'a> {
    pub event: Cow<'a, str>,
    pub channels: Vec<Cow<'a, str>>,
    /// The text of the data.
    pub data: Cow<'a, str>,
    /// The socket that does not get it.
    pub except: Option<Cow<'a, str>>,
    pub info: InfoFields,
}

/// What is asked about channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InfoFields {
    pub user_count: bool,
    pub subscription_count: bool,
    pub cache: bool,
}

/// The status of a refusal, and why.
pub type BodyRefusal = (u16, String);

impl InfoFields {
    pub fn parse(text: Option<&str>) -> Result<InfoFields, BodyRefusal> {
        let mut info = InfoFields::default();
        for name in text.unwrap_or_default().split(',').map(str::trim).filter(|name| !name.is_empty()) {
            match name {
                "user_count" => info.user_count = true,
                "subscription_count" => info.subscription_count = true,
                "cache" => info.cache = true,
                _ => {
                    return Err((
                        400,
                        format!("unknown info {name:?}: it is user_count, subscription_count or cache"),
                    ));
                }
            }
        }
        Ok(info)
    }

    pub fn is_empty(self) -> bool {
        self == InfoFields::default()
    }
}

#[derive(Deserialize)]
struct TriggerBody<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    channel: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    channels: Vec<Cow<'a, str>>,
    #[serde(borrow)]
    data: &'a RawValue,
    #[serde(borrow, default)]
    socket_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    info: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct BatchBody<'a> {
    #[serde(borrow)]
    batch: Vec<TriggerBody<'a>>,
}

pub fn parse_trigger(body: &str) -> Result<TriggerRequest<'_>, BodyRefusal> {
    let body =
        serde_json::from_str(body).map_err(|error| (400, format!("the body is not an event: {error}")))?;
    checked(body)
}

pub fn parse_batch(body: &str) -> Result<Vec<TriggerRequest<'_>>, BodyRefusal> {
    let body: BatchBody<'_> =
        serde_json::from_str(body).map_err(|error| (400, format!("the body is not a batch: {error}")))?;
    if body.batch.len() > BATCH_MAX {
        return Err((400, format!("a batch has at most {BATCH_MAX} events, not {}", body.batch.len())));
    }
    body.batch.into_iter().map(checked).collect()
}

fn checked(body: TriggerBody<'_>) -> Result<TriggerRequest<'_>, BodyRefusal> {
    let TriggerBody { name, channel, mut channels, data, socket_id, info } = body;
    channels.extend(channel);
    if channels.is_empty() || channels.len() > CHANNELS_MAX {
        return Err((400, format!("an event has 1 to {CHANNELS_MAX} channels, not {}", channels.len())));
    }
    if name.is_empty() || name.len() > EVENT_NAME_BYTES {
        return Err((
            400,
            format!("the name of an event has 1 to {EVENT_NAME_BYTES} bytes, not {}", name.len()),
        ));
    }
    if name.starts_with("pusher:") || name.starts_with("pusher_internal:") {
        return Err((400, "events whose names begin with pusher: are the server's own".to_owned()));
    }
    let data = data_text(data);
    if data.len() > EVENT_BYTES {
        return Err((
            413,
            format!("the data of an event has at most {EVENT_BYTES} bytes, not {}", data.len()),
        ));
    }
    let encrypted = |name: &&Cow<'_, str>| {
        PusherChannel::parse(name).is_some_and(|channel| channel.access == ChannelAccess::Encrypted)
    };
    if channels.len() > 1 && channels.iter().any(|name| encrypted(&name)) {
        return Err((400, "an event for an encrypted channel has one channel".to_owned()));
    }
    if let Some(wrong) = channels.iter().find(|name| PusherChannel::parse(name).is_none()) {
        return Err((
            400,
            format!("{wrong:?} is not a channel: a name has 1 to 200 letters, digits and _-=@,.;"),
        ));
    }
    if socket_id.as_deref().is_some_and(|id| !is_socket_id(id)) {
        return Err((400, "socket_id is not the id of a socket, such as 123.456".to_owned()));
    }
    let info = InfoFields::parse(info.as_deref())?;
    Ok(TriggerRequest { event: name, channels, data, except: socket_id, info })
}

fn is_socket_id(text: &str) -> bool {
    let is_number =
        |part: &str| (1..=20).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit());
    text.split_once('.').is_some_and(|(first, second)| is_number(first) && is_number(second))
}

/// What an answer says about a channel.
#[derive(Debug, Default, Serialize)]
pub struct ChannelFacts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub occupied: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CachedEvent>,
}

/// The last event of a cache channel.
#[derive(Debug, Serialize)]
pub struct CachedEvent {
    pub data: String,
    pub ttl: u64,
}

#[derive(Serialize)]
struct ChannelsReply<'a> {
    channels: &'a BTreeMap<String, ChannelFacts>,
}

fn json(value: impl Serialize) -> Vec<u8> {
    serde_json::to_vec(&value).unwrap_or_default()
}

/// The channels that were asked about, or an empty object.
pub fn write_trigger_reply(channels: Option<&BTreeMap<String, ChannelFacts>>) -> Vec<u8> {
    match channels {
        Some(channels) => json(ChannelsReply { channels }),
        None => b"{}".to_vec(),
    }
}

/// One entry for each event, if one of them has asked.
pub fn write_batch_reply(batch: Option<&[ChannelFacts]>) -> Vec<u8> {
    #[derive(Serialize)]
    struct BatchReply<'a> {
        batch: &'a [ChannelFacts],
    }
    match batch {
        Some(batch) => json(BatchReply { batch }),
        None => b"{}".to_vec(),
    }
}

pub fn write_channels(channels: &BTreeMap<String, ChannelFacts>) -> Vec<u8> {
    json(ChannelsReply { channels })
}

pub fn write_channel(facts: &ChannelFacts) -> Vec<u8> {
    json(facts)
}

pub fn write_users<'a>(ids: impl Iterator<Item = &'a str>) -> Vec<u8> {
    #[derive(Serialize)]
    struct MemberId<'a> {
        id: &'a str,
    }
    #[derive(Serialize)]
    struct UsersReply<'a> {
        users: Vec<MemberId<'a>>,
    }
    json(UsersReply { users: ids.map(|id| MemberId { id }).collect() })
}

pub fn write_error(message: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct ErrorReply<'a> {
        error: &'a str,
    }
    json(ErrorReply { error: message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_has_one_or_many_channels() {
        let one = parse_trigger(r#"{"name":"a","channel":"room","data":"{\"x\":1}"}"#).unwrap();
        assert_eq!((&*one.channels[0], &*one.data), ("room", r#"{"x":1}"#));
        let body = r#"{"name":"a","channels":["x","y"],"data":{"x":1},"socket_id":"1.2","info":"user_count, cache"}"#;
        let two = parse_trigger(body).unwrap();
        assert_eq!((two.channels.len(), &*two.data, two.except.as_deref()), (2, r#"{"x":1}"#, Some("1.2")));
        assert_eq!(two.info, InfoFields { user_count: true, subscription_count: false, cache: true });
    }

    #[test]
    fn what_is_too_large_or_wrong_is_refused() {
        let trigger = |name: &str, channels: &str, data: &str, more: &str| {
            let body = format!(r#"{{"name":"{name}","channels":[{channels}],"data":"{data}"{more}}}"#);
            parse_trigger(&body).map(drop).map_err(|(status, _)| status)
        };
        let many = |count: usize| vec!["\"a\""; count].join(",");
        assert_eq!(trigger("a", &many(100), "", ""), Ok(()));
        assert_eq!(trigger("a", &many(101), "", ""), Err(400));
        assert_eq!(trigger("a", "", "", ""), Err(400));
        assert_eq!(trigger(&"a".repeat(201), "\"a\"", "", ""), Err(400));
        assert_eq!(trigger("pusher:x", "\"a\"", "", ""), Err(400));
        assert_eq!(trigger("a", "\"a b\"", "", ""), Err(400));
        assert_eq!(trigger("a", "\"a\"", &"x".repeat(EVENT_BYTES), ""), Ok(()));
        assert_eq!(trigger("a", "\"a\"", &"x".repeat(EVENT_BYTES + 1), ""), Err(413));
        assert_eq!(trigger("a", "\"a\"", "", r#","socket_id":"x""#), Err(400));
        assert_eq!(trigger("a", "\"a\"", "", r#","info":"x""#), Err(400));
        assert_eq!(trigger("a", "\"private-encrypted-a\",\"b\"", "", ""), Err(400));
        let batch = |count: usize| {
            let events = vec![r#"{"name":"a","channel":"b","data":""}"#; count].join(",");
            parse_batch(&format!(r#"{{"batch":[{events}]}}"#))
                .map(|batch| batch.len())
                .map_err(|(status, _)| status)
        };
        assert_eq!((batch(10), batch(11)), (Ok(10), Err(400)));
        assert!(parse_trigger("[]").is_err() && parse_batch("{}").is_err());
    }

    #[test]
    fn answers_have_only_what_was_asked() {
        let facts = ChannelFacts { user_count: Some(2), ..ChannelFacts::default() };
        let channels = BTreeMap::from([("presence-a".to_owned(), facts)]);
        assert_eq!(write_trigger_reply(None), b"{}");
        assert_eq!(write_channels(&channels), br#"{"channels":{"presence-a":{"user_count":2}}}"#);
        assert_eq!(write_users(["7"].into_iter()), br#"{"users":[{"id":"7"}]}"#);
    }
}
