//! Users: the list, one user with where they are, their inbox; and the requests of apps about them.

use super::super::field::object;
use super::super::request::read_visibility;
use super::raw;
use crate::error::{Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use tavern_domain::presence::Visibility;

/// `GET /v1/users`.
#[derive(Clone, Debug, Serialize)]
pub struct UserList {
    pub next: Option<Arc<str>>,
    pub users: Vec<UserListEntry>,
}

#[derive(Clone, Debug, Serialize)]
pub struct UserListEntry {
    pub last_seen: Option<u64>,
    pub leaving: bool,
    pub name: Option<Arc<str>>,
    pub online: bool,
    pub user: Arc<str>,
}

/// `GET /v1/users/{user}`.
#[derive(Clone, Debug, Serialize)]
pub struct UserDetails<'a> {
    pub activities: Vec<ActivityReport<'a>>,
    pub banned: bool,
    pub channels: Vec<ChannelPresence<'a>>,
    pub invites: Vec<u64>,
    pub last_seen: Option<u64>,
    pub leaving: bool,
    pub online: bool,
    pub party: Option<u64>,
    pub user: &'a str,
    pub visibility: &'static str,
    pub why: String,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ActivityReport<'a> {
    pub activity: &'a str,
    pub channel: &'a str,
    pub since: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ChannelPresence<'a> {
    pub channel: &'a str,
    pub clients: Vec<ClientPresence<'a>>,
    /// Left out while a client is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_in_ms: Option<u64>,
    pub leaving: bool,
    pub since: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ClientPresence<'a> {
    pub client: String,
    pub epoch: u64,
    /// Left out unless the client is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_until: Option<u64>,
    /// Left out unless the client is lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<u64>,
    pub node: &'a str,
    pub since: u64,
    pub state: Option<&'a RawValue>,
}

/// `GET /v1/users/{user}/inbox`.
#[derive(Clone, Debug, Serialize)]
pub struct InboxList<'a> {
    pub dropped_through: u64,
    pub messages: Vec<InboxMessageReport<'a>>,
    pub next: Option<u64>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct InboxMessageReport<'a> {
    pub at: u64,
    pub event: Option<&'a RawValue>,
    pub message_id: u64,
}

impl InboxMessageReport<'_> {
    pub fn new(number: u64, at: u64, event: &[u8]) -> InboxMessageReport<'_> {
        let event = std::str::from_utf8(event).ok().and_then(raw);
        InboxMessageReport { at, event, message_id: number }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VisibilityFields {
    value: String,
}

/// The body of `PUT /v1/users/{user}/visibility`.
pub fn parse_visibility(body: &[u8]) -> Result<Visibility, Refusal> {
    let fields: VisibilityFields = object(body)?;
    read_visibility(fields.value)
}

/// The longest `ttl_s` of presence set by an app: 30 days.
const TTL_MAX_S: u64 = 30 * 24 * 3600;

/// The body of `PUT /v1/channels/{channel}/presence/{user}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldRequest {
    /// Present as long as the user is in this channel.
    pub with: Option<Arc<str>>,
    pub ttl_ms: Option<u64>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HoldFields {
    with: Option<Arc<str>>,
    ttl_s: Option<u64>,
}

pub fn parse_hold(body: &[u8]) -> Result<HoldRequest, Refusal> {
    let bad = |message: String| Refusal::new(Code::BadRequest, message);
    let fields: HoldFields = match body.trim_ascii().is_empty() {
        true => HoldFields::default(),
        false => object(body).map_err(|refusal| {
            let wanted = "give {}, {\"with\": CHANNEL} or {\"ttl_s\": SECONDS}";
            bad(format!("{wanted}: {}", refusal.message))
        })?,
    };
    if fields.ttl_s.is_some_and(|ttl_s| !(1..=TTL_MAX_S).contains(&ttl_s)) {
        return Err(bad(format!("the field `ttl_s` must be an integer from 1 to {TTL_MAX_S}")));
    }
    Ok(HoldRequest { with: fields.with, ttl_ms: fields.ttl_s.map(|ttl_s| ttl_s * 1000) })
}

#[cfg(test)]
mod tests {
    use super::super::encode;
    use super::*;

    #[test]
    fn state_and_inbox_events_are_written_as_they_were_kept() {
        let state = raw(r#"{"b": 1, "a":2}"#);
        let lost = ClientPresence {
            client: "c".into(),
            epoch: 1,
            kept_until: Some(9),
            lost_at: Some(8),
            node: "n",
            since: 7,
            state,
        };
        let expected = r#"{"client":"c","epoch":1,"kept_until":9,"lost_at":8,"node":"n","since":7,"state":{"b": 1, "a":2}}"#;
        assert_eq!(encode(&lost), expected.as_bytes());
        let there = ClientPresence { kept_until: None, lost_at: None, state: None, ..lost };
        assert_eq!(encode(&there), br#"{"client":"c","epoch":1,"node":"n","since":7,"state":null}"#);
        assert_eq!(encode(&InboxMessageReport::new(3, 5, b"{")), br#"{"at":5,"event":null,"message_id":3}"#);
    }

    #[test]
    fn a_hold_may_be_empty_and_has_bounds() {
        assert_eq!(parse_hold(b" ").unwrap(), HoldRequest::default());
        let held = parse_hold(br#"{"with":"game#1","ttl_s":2}"#).unwrap();
        assert_eq!(held, HoldRequest { with: Some("game#1".into()), ttl_ms: Some(2_000) });
        for bad in [r#"{"ttl_s":0}"#, r#"{"ttl_s":2592001}"#, r#"{"ttl":1}"#, "[]", "7"] {
            assert_eq!(parse_hold(bad.as_bytes()).unwrap_err().code, Code::BadRequest, "{bad}");
        }
    }

    #[test]
    fn visibility_is_one_of_three_values() {
        assert_eq!(parse_visibility(br#"{"value":"nobody"}"#).unwrap(), Visibility::Nobody);
        for bad in [r#"{"value":"some"}"#, "{}", "1"] {
            assert!(parse_visibility(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
