//! What a client sends. `data` may be JSON, or a text with JSON in it.
//! Must hold: a frame that cannot be read is refused and changes nothing.

use crate::close::PusherError;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

#[derive(Debug)]
pub enum ClientFrame<'a> {
    Ping,
    Pong,
    Subscribe(SubscribeData),
    Unsubscribe {
        channel: String,
    },
    SignIn(SignInData),
    /// `client-…`
    ClientEvent {
        event: Cow<'a, str>,
        channel: Cow<'a, str>,
        data: Option<&'a RawValue>,
    },
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
pub struct SubscribeData {
    pub channel: String,
    #[serde(default)]
    pub auth: Option<String>,
    #[serde(default)]
    pub channel_data: Option<String>,
}

#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
pub struct SignInData {
    #[serde(default)]
    pub auth: String,
    pub user_data: String,
}

#[derive(Deserialize)]
struct FrameFields<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow, default)]
    channel: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct UnsubscribeData {
    channel: String,
}

pub fn parse_frame(text: &str) -> Result<ClientFrame<'_>, PusherError> {
    let Ok(FrameFields { event, channel, data }) = serde_json::from_str(text) else {
        return Err(PusherError::refusal("the frame is not a JSON object with a text `event`"));
    };
    let wrong = || PusherError::refusal(format!("the data of {event:?} is missing or of the wrong type"));
    match &*event {
        "pusher:ping" => Ok(ClientFrame::Ping),
        "pusher:pong" => Ok(ClientFrame::Pong),
        "pusher:subscribe" => read_data(data).map(ClientFrame::Subscribe).ok_or_else(wrong),
        "pusher:unsubscribe" => {
            let found: UnsubscribeData = read_data(data).ok_or_else(wrong)?;
            Ok(ClientFrame::Unsubscribe { channel: found.channel })
        }
        "pusher:signin" => read_data(data).map(ClientFrame::SignIn).ok_or_else(wrong),
        name if name.starts_with("client-") => {
            let Some(channel) = channel else {
                return Err(PusherError::client_event("a client event needs a channel"));
            };
            Ok(ClientFrame::ClientEvent { event, channel, data })
        }
        _ => Err(PusherError::refusal(format!("unknown event {:?}", shortened(&event)))),
    }
}

/// Users on the watchlist of one user.
pub const WATCHLIST_MAX: usize = 100;

/// Who a socket is in a presence channel.
#[derive(Debug, Deserialize)]
pub struct ChannelData {
    #[serde(deserialize_with = "id")]
    pub user_id: String,
    #[serde(default)]
    pub user_info: Option<Box<RawValue>>,
}

/// Who a socket signs in as.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub struct UserData {
    #[serde(deserialize_with = "id")]
    pub id: String,
    #[serde(default, deserialize_with = "ids")]
    pub watchlist: Vec<String>,
}

pub fn parse_channel_data(text: &str) -> Option<ChannelData> {
    serde_json::from_str(text).ok()
}

pub fn parse_user_data(text: &str) -> Option<UserData> {
    serde_json::from_str(text).ok()
}

/// A user id is a text or a number; everybody else sees a text.
#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenId {
    Text(String),
    Number(serde_json::Number),
}

impl WrittenId {
    fn text(self) -> String {
        match self {
            WrittenId::Text(text) => text,
            WrittenId::Number(number) => number.to_string(),
        }
    }
}

fn id<'d, D: serde::Deserializer<'d>>(deserializer: D) -> Result<String, D::Error> {
    WrittenId::deserialize(deserializer).map(WrittenId::text)
}

fn ids<'d, D: serde::Deserializer<'d>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let ids: Vec<WrittenId> = Vec::deserialize(deserializer)?;
    Ok(ids.into_iter().map(WrittenId::text).collect())
}

fn shortened(text: &str) -> &str {
    &text[..text.floor_char_boundary(64)]
}

/// From JSON, or from a text with JSON.
fn read_data<T: for<'d> Deserialize<'d>>(data: Option<&RawValue>) -> Option<T> {
    let raw = data?.get();
    if raw.starts_with('"') {
        let text: String = serde_json::from_str(raw).ok()?;
        return serde_json::from_str(&text).ok();
    }
    serde_json::from_str(raw).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_json_or_a_text_with_json() {
        for text in [
            r#"{"event":"pusher:subscribe","data":{"channel":"private-a","auth":"k:s"}}"#,
            r#"{"event":"pusher:subscribe","data":"{\"channel\":\"private-a\",\"auth\":\"k:s\"}"}"#,
        ] {
            let ClientFrame::Subscribe(found) = parse_frame(text).unwrap() else { panic!("{text}") };
            let expected =
                SubscribeData { channel: "private-a".into(), auth: Some("k:s".into()), channel_data: None };
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn frames_that_cannot_be_read_are_refused_with_a_reason() {
        for (text, reason) in [
            ("", "JSON object"),
            ("[]", "JSON object"),
            (r#"{"event":7}"#, "JSON object"),
            (r#"{"event":"pusher:subscribe"}"#, "pusher:subscribe"),
            (r#"{"event":"pusher:subscribe","data":{"channel":7}}"#, "pusher:subscribe"),
            (r#"{"event":"pusher:signin","data":"x"}"#, "pusher:signin"),
            (r#"{"event":"client-a","data":{}}"#, "needs a channel"),
            (r#"{"event":"pusher_internal:member_added","data":{}}"#, "unknown event"),
        ] {
            let error = parse_frame(text).unwrap_err();
            assert!(error.message.contains(reason), "{text}: {}", error.message);
        }
    }

    #[test]
    fn user_ids_are_texts_or_numbers() {
        let check = |data: &str, user: Option<&str>, info: Option<&str>| {
            let found = parse_channel_data(data);
            assert_eq!(found.as_ref().map(|found| &*found.user_id), user, "{data}");
            assert_eq!(
                found.as_ref().and_then(|found| found.user_info.as_deref()).map(RawValue::get),
                info,
                "{data}"
            );
        };
        check(r#"{"user_id":10,"user_info":{"name": "A"}}"#, Some("10"), Some(r#"{"name": "A"}"#));
        check(r#"{"user_id":"ann"}"#, Some("ann"), None);
        for wrong in ["{}", "[]", r#"{"user_id":null}"#, r#"{"user_id":[1]}"#, "x"] {
            check(wrong, None, None);
        }
        let user = parse_user_data(r#"{"id":7,"watchlist":["a",8],"user_info":{}}"#).unwrap();
        assert_eq!(user, UserData { id: "7".into(), watchlist: vec!["a".into(), "8".into()] });
    }

    #[test]
    fn client_events_keep_their_data_as_it_is() {
        let text = r#"{"event":"client-a","channel":"private-a","data":{ "b" : 1 }}"#;
        let ClientFrame::ClientEvent { event, channel, data } = parse_frame(text).unwrap() else {
            panic!("a client event")
        };
        assert_eq!((&*event, &*channel, data.unwrap().get()), ("client-a", "private-a", r#"{ "b" : 1 }"#));
    }
}
