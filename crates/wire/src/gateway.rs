//! What the hub session of a gateway gets, read back as values: replies, events, the members of a channel, pages of history.
//! The server wrote it; what cannot be read is skipped.

use crate::error::Code;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// An event of a session. Which members it has depends on its name.
#[derive(Debug, Deserialize)]
pub struct HubEvent<'a> {
    #[serde(borrow)]
    pub event: Cow<'a, str>,
    #[serde(borrow, default)]
    pub channel: Option<Cow<'a, str>>,
    #[serde(default)]
    pub version: Option<u64>,
    #[serde(borrow, default)]
    pub user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub client: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub state: Option<&'a RawValue>,
    #[serde(default)]
    pub explicit: bool,
    #[serde(borrow, default, deserialize_with = "crate::json::field::present")]
    pub data: Option<&'a RawValue>,
    #[serde(default)]
    pub offset: Option<u64>,
    /// Its publisher, unless it was a service.
    #[serde(borrow, default)]
    pub from: Option<HubSender<'a>>,
    /// Milliseconds since 1970, for a message that is kept.
    #[serde(default)]
    pub at: Option<u64>,
    #[serde(borrow, default)]
    pub joined: Vec<HubEntry<'a>>,
    #[serde(borrow, default)]
    pub updated: Vec<HubEntry<'a>>,
    #[serde(borrow, default)]
    pub left: Vec<HubEntry<'a>>,
}

/// The client that published a message.
#[derive(Clone, Debug, Deserialize)]
pub struct HubSender<'a> {
    #[serde(borrow, default)]
    pub user: Option<Cow<'a, str>>,
}

/// A client, or a whole user, in a difference.
#[derive(Debug, Deserialize)]
pub struct HubEntry<'a> {
    #[serde(borrow, default)]
    pub user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub client: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub state: Option<&'a RawValue>,
}

/// Reads events as they are rendered for a gateway: each is followed by a comma.
pub fn read_events(bytes: &[u8], mut each: impl FnMut(HubEvent<'_>)) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let list = format!("[{}]", text.trim_end_matches(','));
    let events: Vec<&RawValue> = serde_json::from_str(&list).unwrap_or_default();
    for event in events {
        if let Ok(event) = serde_json::from_str(event.get()) {
            each(event);
        }
    }
}

#[derive(Deserialize)]
struct ReplyFields<'a> {
    #[serde(borrow, default)]
    ok: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<ErrorFields<'a>>,
}

#[derive(Deserialize)]
struct ErrorFields<'a> {
    #[serde(borrow)]
    code: Cow<'a, str>,
}

/// The reply to a command: its body as JSON, or the code of the refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HubReply<'a> {
    Done(&'a str),
    Refused(Code),
}

pub fn read_reply(bytes: &[u8]) -> HubReply<'_> {
    let fields =
        std::str::from_utf8(bytes).ok().and_then(|text| serde_json::from_str::<ReplyFields<'_>>(text).ok());
    match fields {
        Some(ReplyFields { ok: Some(body), .. }) => HubReply::Done(body.get()),
        Some(ReplyFields { error: Some(error), .. }) => {
            HubReply::Refused(Code::parse(&error.code).unwrap_or(Code::Internal))
        }
        _ => HubReply::Refused(Code::Internal),
    }
}

/// The channel that is used instead of the one that was asked for.
pub fn read_substitute(body: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct SubstituteReply {
        channel: String,
    }
    serde_json::from_str::<SubstituteReply>(body).ok().map(|found| found.channel)
}

/// The members of a channel.
#[derive(Debug, Default, Deserialize)]
pub struct HubMembers<'a> {
    #[serde(default)]
    pub version: u64,
    #[serde(borrow, default)]
    pub users: Vec<HubMember<'a>>,
    /// The next page begins after this user.
    #[serde(borrow, default)]
    pub next: Option<Cow<'a, str>>,
}

#[derive(Debug, Deserialize)]
pub struct HubMember<'a> {
    #[serde(borrow, default)]
    pub user: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub clients: Vec<HubClient<'a>>,
}

#[derive(Debug, Deserialize)]
pub struct HubClient<'a> {
    #[serde(borrow)]
    pub client: Cow<'a, str>,
    #[serde(borrow, default)]
    pub state: Option<&'a RawValue>,
}

/// From the body of `who`, or of `subscribe` with presence.
pub fn read_members(body: &str) -> HubMembers<'_> {
    #[derive(Deserialize)]
    struct WatchReply<'a> {
        #[serde(borrow)]
        members: HubMembers<'a>,
    }
    match serde_json::from_str::<WatchReply<'_>>(body) {
        Ok(reply) => reply.members,
        Err(_) => serde_json::from_str(body).unwrap_or_default(),
    }
}

/// A page of history.
#[derive(Debug, Default, Deserialize)]
pub struct HubPage<'a> {
    #[serde(default)]
    pub offset: u64,
    #[serde(borrow, default)]
    pub messages: Vec<KeptMessage<'a>>,
    #[serde(default)]
    pub more: bool,
}

#[derive(Debug, Deserialize)]
pub struct KeptMessage<'a> {
    pub offset: u64,
    pub at: u64,
    #[serde(borrow)]
    pub data: &'a RawValue,
    /// Its publisher, unless it was a service.
    #[serde(borrow, default)]
    pub from: Option<HubSender<'a>>,
}

pub fn read_page(body: &str) -> HubPage<'_> {
    serde_json::from_str(body).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_one_by_one_and_unreadable_ones_are_skipped() {
        let bytes = br#"{"seq":1,"event":"message","channel":"a#\"","data":null,"offset":3,"at":9},{"seq":2},{"seq":3,"event":"presence","left":[{"user":"ann"}]},"#;
        let mut seen = Vec::new();
        read_events(bytes, |event| {
            seen.push((
                event.event.to_string(),
                event.channel.map(Cow::into_owned),
                event.offset,
                event.left.len(),
            ));
            if let Some(data) = event.data {
                assert_eq!(data.get(), "null");
            }
        });
        let message = ("message".to_owned(), Some("a#\"".to_owned()), Some(3), 0);
        assert_eq!(seen, [message, ("presence".to_owned(), None, None, 1)]);
        read_events(b"", |_| panic!("nothing to read"));
        read_events(b"nonsense,", |_| panic!("nothing to read"));
    }

    #[test]
    fn replies_have_a_body_or_a_code() {
        assert_eq!(read_reply(br#"{"ok":{"receivers":1}}"#), HubReply::Done("{\"receivers\":1}"));
        let refused = br#"{"id":1,"error":{"code":"not_allowed","message":"no"}}"#;
        assert_eq!(read_reply(refused), HubReply::Refused(Code::NotAllowed));
        assert_eq!(read_reply(b"nonsense"), HubReply::Refused(Code::Internal));
    }

    #[test]
    fn members_are_read_from_both_replies() {
        let page = r#"{"version":4,"users":[{"user":"ann","clients":[{"client":"c","state":{"a":1},"since":1}],"since":1}],"count":1}"#;
        for body in [page.to_owned(), format!("{{\"members\":{page},\"epoch\":1}}")] {
            let members = read_members(&body);
            assert_eq!((members.version, members.users.len()), (4, 1));
            assert_eq!(members.users[0].clients[0].state.unwrap().get(), "{\"a\":1}");
        }
        assert_eq!(read_substitute("{\"channel\":\"x#y\"}").as_deref(), Some("x#y"));
        assert_eq!(
            read_page(r#"{"epoch":1,"offset":2,"messages":[{"offset":2,"at":5,"data":1}],"more":true}"#)
                .messages[0]
                .at,
            5
        );
    }
}
