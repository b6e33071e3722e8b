//! What the server sends. Except for errors, `data` is a text with JSON in it, as clients expect.

use crate::close::PusherError;
use crate::members::PresenceMembers;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Frame<'a, D> {
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    data: D,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<&'a str>,
}

fn frame(event: &str, channel: Option<&str>, data: impl Serialize, user_id: Option<&str>) -> Vec<u8> {
    serde_json::to_vec(&Frame { event, channel, data, user_id }).unwrap_or_default()
}

/// JSON as a text.
fn text(data: impl Serialize) -> String {
    serde_json::to_string(&data).unwrap_or_default()
}

pub fn connection_established(socket_id: &str, activity_timeout_s: u64) -> Vec<u8> {
    #[derive(Serialize)]
    struct Established<'a> {
        socket_id: &'a str,
        activity_timeout: u64,
    }
    let data = text(Established { socket_id, activity_timeout: activity_timeout_s });
    frame("pusher:connection_established", None, data, None)
}

pub fn pong() -> Vec<u8> {
    frame("pusher:pong", None, "{}", None)
}

pub fn error_frame(error: &PusherError) -> Vec<u8> {
    #[derive(Serialize)]
    struct ErrorData<'a> {
        code: Option<u16>,
        message: &'a str,
    }
    frame("pusher:error", None, ErrorData { code: error.code, message: &error.message }, None)
}

/// The answer to a subscription that was refused. The connection goes on.
pub fn subscription_error(channel: &str, kind: &str, error: &str, status: u16) -> Vec<u8> {
    #[derive(Serialize)]
    struct SubscriptionErrorData<'a> {
        r#type: &'a str,
        error: &'a str,
        status: u16,
    }
    let data = text(SubscriptionErrorData { r#type: kind, error, status });
    frame("pusher:subscription_error", Some(channel), data, None)
}

pub fn subscription_succeeded(channel: &str) -> Vec<u8> {
    frame("pusher_internal:subscription_succeeded", Some(channel), "{}", None)
}

pub fn subscribed_to_presence(channel: &str, members: &PresenceMembers) -> Vec<u8> {
    #[derive(Serialize)]
    struct PresenceHash<'a> {
        count: usize,
        ids: Vec<&'a str>,
        hash: &'a BTreeMap<String, Box<RawValue>>,
    }
    #[derive(Serialize)]
    struct PresenceData<'a> {
        presence: PresenceHash<'a>,
    }
    let users = members.users();
    let ids = users.keys().map(String::as_str).collect();
    let data = text(PresenceData { presence: PresenceHash { count: users.len(), ids, hash: users } });
    frame("pusher_internal:subscription_succeeded", Some(channel), data, None)
}

pub fn member_added(channel: &str, user_id: &str, user_info: &RawValue) -> Vec<u8> {
    #[derive(Serialize)]
    struct MemberData<'a> {
        user_id: &'a str,
        user_info: &'a RawValue,
    }
    frame("pusher_internal:member_added", Some(channel), text(MemberData { user_id, user_info }), None)
}

pub fn member_removed(channel: &str, user_id: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct Gone<'a> {
        user_id: &'a str,
    }
    frame("pusher_internal:member_removed", Some(channel), text(Gone { user_id }), None)
}

pub fn subscription_count(channel: &str, subscription_count: u64) -> Vec<u8> {
    #[derive(Serialize)]
    struct CountData {
        subscription_count: u64,
    }
    frame("pusher_internal:subscription_count", Some(channel), text(CountData { subscription_count }), None)
}

/// An event of a channel; `user_id` is its sender in a presence channel.
pub fn channel_event(event: &str, channel: &str, data: &str, user_id: Option<&str>) -> Vec<u8> {
    frame(event, Some(channel), data, user_id)
}

pub fn signin_success(user_data: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct SignedIn<'a> {
        user_data: &'a str,
    }
    frame("pusher:signin_success", None, text(SignedIn { user_data }), None)
}

/// Users of the watchlist came online, or went offline.
pub fn watchlist_event(is_online: bool, user_ids: &[&str]) -> Vec<u8> {
    #[derive(Serialize)]
    struct Watched<'a> {
        name: &'a str,
        user_ids: &'a [&'a str],
    }
    #[derive(Serialize)]
    struct WatchlistData<'a> {
        events: [Watched<'a>; 1],
    }
    let name = if is_online { "online" } else { "offline" };
    frame(
        "pusher_internal:watchlist_events",
        None,
        text(WatchlistData { events: [Watched { name, user_ids }] }),
        None,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(frame: Vec<u8>, expected: &str) {
        assert_eq!(String::from_utf8(frame).unwrap(), expected);
    }

    #[test]
    fn data_is_a_text() {
        check(
            connection_established("1.2", 120),
            r#"{"event":"pusher:connection_established","data":"{\"socket_id\":\"1.2\",\"activity_timeout\":120}"}"#,
        );
        check(
            member_removed("presence-a", "7"),
            r#"{"event":"pusher_internal:member_removed","channel":"presence-a","data":"{\"user_id\":\"7\"}"}"#,
        );
        check(
            subscribed_to_presence("presence-a", &PresenceMembers::default()),
            r#"{"event":"pusher_internal:subscription_succeeded","channel":"presence-a","data":"{\"presence\":{\"count\":0,\"ids\":[],\"hash\":{}}}"}"#,
        );
        check(
            watchlist_event(true, &["7"]),
            r#"{"event":"pusher_internal:watchlist_events","data":"{\"events\":[{\"name\":\"online\",\"user_ids\":[\"7\"]}]}"}"#,
        );
        check(
            channel_event("moved", "a", "{\"x\":1}", Some("7")),
            r#"{"event":"moved","channel":"a","data":"{\"x\":1}","user_id":"7"}"#,
        );
    }

    #[test]
    fn errors_have_a_code_or_null() {
        check(
            error_frame(&PusherError::refusal("no")),
            r#"{"event":"pusher:error","data":{"code":null,"message":"no"}}"#,
        );
        check(
            error_frame(&PusherError::BUSY),
            r#"{"event":"pusher:error","data":{"code":4100,"message":"over capacity; retry later"}}"#,
        );
    }
}
