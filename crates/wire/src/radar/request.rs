//! A request of a Radar client.
//! Must hold: what the original ignores (no JSON, no `op`) is an error here, and the caller ignores it.

use crate::error::Refusal;
use crate::json::field::{self, Raw, number, present, refuse, text};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;

/// Requests in one batch.
const BATCH_MAX: usize = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RadarOp {
    NameSync,
    Get,
    Set,
    Subscribe,
    Unsubscribe,
    Sync,
    Publish,
    /// Several requests in one.
    Batch,
    /// One that the original ignores too.
    Unknown,
}

/// What a scope is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScopeKind {
    Presence,
    Status,
    Message,
    Control,
}

/// `presence:/account/name`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RadarScope<'a> {
    pub kind: ScopeKind,
    /// `account/name`.
    pub name: &'a str,
}

impl<'a> RadarScope<'a> {
    pub fn parse(to: &'a str) -> Option<RadarScope<'a>> {
        let (kind, name) = to.split_once(":/")?;
        let kind = match kind {
            "presence" => ScopeKind::Presence,
            "status" => ScopeKind::Status,
            "message" => ScopeKind::Message,
            "control" => ScopeKind::Control,
            _ => return None,
        };
        Some(RadarScope { kind, name })
    }

    /// The channel of the scope.
    pub fn channel(&self) -> String {
        let kind = match self.kind {
            ScopeKind::Presence => "radar-presence",
            ScopeKind::Status => "radar-status",
            ScopeKind::Message => "radar-message",
            ScopeKind::Control => "radar-control",
        };
        format!("{kind}#{}", self.name)
    }
}

/// The form of an answer about presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerVersion {
    /// Users and their types.
    One,
    /// Users with their clients.
    Two,
}

#[derive(Clone, Debug)]
pub struct RadarRequest<'a> {
    pub op: RadarOp,
    pub to: Cow<'a, str>,
    /// Echoed as it is; None: no acknowledgement is wanted.
    pub ack: Option<&'a str>,
    pub value: Option<&'a str>,
    /// The user's id, as JSON.
    pub key: Option<&'a str>,
    /// The user's id as text.
    pub user: Option<String>,
    pub user_type: Option<&'a str>,
    pub user_data: Option<&'a str>,
    pub client_data: Option<&'a str>,
    pub version: AnswerVersion,
    pub auth: Option<Cow<'a, str>>,
    /// The user that the client says it is, beside its token.
    pub claimed_user: Option<String>,
}

#[derive(Deserialize)]
struct RadarFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    op: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    to: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    ack: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    value: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    key: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present", rename = "type")]
    user_type: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present", rename = "userData")]
    user_data: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present", rename = "clientData")]
    client_data: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    options: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    auth: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present", rename = "userId")]
    user_id: Raw<'a>,
}

#[derive(Deserialize)]
struct OptionFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    version: Raw<'a>,
}

#[derive(Deserialize)]
struct BatchFields<'a> {
    #[serde(borrow)]
    value: Vec<&'a RawValue>,
}

pub fn parse_request(json: &str) -> Result<RadarRequest<'_>, Refusal> {
    let fields: RadarFields<'_> = field::object(json.as_bytes())?;
    let op = match text("op", fields.op)?.as_deref() {
        Some("nameSync") => RadarOp::NameSync,
        Some("get") => RadarOp::Get,
        Some("set") => RadarOp::Set,
        Some("subscribe") => RadarOp::Subscribe,
        Some("unsubscribe") => RadarOp::Unsubscribe,
        Some("sync") => RadarOp::Sync,
        Some("publish") => RadarOp::Publish,
        Some("batch") => RadarOp::Batch,
        Some(_) => RadarOp::Unknown,
        None => return Err(refuse("the field `op` is missing")),
    };
    Ok(RadarRequest {
        op,
        to: text("to", fields.to)?.unwrap_or_default(),
        ack: fields.ack.map(RawValue::get).filter(|ack| is_truthy(ack)),
        value: fields.value.map(RawValue::get),
        key: fields.key.map(RawValue::get),
        user: fields.key.and_then(|key| id_text(key.get())),
        user_type: value(fields.user_type),
        user_data: value(fields.user_data),
        client_data: value(fields.client_data),
        version: version(fields.options),
        auth: text("auth", fields.auth)?,
        claimed_user: fields.user_id.and_then(|id| id_text(id.get())),
    })
}

/// The requests in a batch; a batch in a batch is refused when it is parsed.
pub fn parse_batch(json: &str) -> Result<Vec<&str>, Refusal> {
    let batch: BatchFields<'_> = field::object(json.as_bytes())?;
    if batch.value.len() > BATCH_MAX {
        return Err(refuse(format!("a batch has at most {BATCH_MAX} requests")));
    }
    Ok(batch.value.into_iter().map(RawValue::get).collect())
}

fn value(raw: Raw<'_>) -> Option<&str> {
    raw.map(RawValue::get).filter(|token| *token != "null")
}

fn is_truthy(token: &str) -> bool {
    !matches!(token, "null" | "false" | "0" | "\"\"")
}

/// A user's id is a text or a number; the original uses it as the name of a member, so both are the same user.
pub(super) fn id_text(token: &str) -> Option<String> {
    match token.as_bytes().first()? {
        b'"' => serde_json::from_str(token).ok(),
        b'-' | b'0'..=b'9' => Some(token.to_owned()),
        _ => None,
    }
}

fn version(options: Raw<'_>) -> AnswerVersion {
    let Some(options) = value(options) else { return AnswerVersion::One };
    let Ok(fields) = field::object::<OptionFields<'_>>(options.as_bytes()) else { return AnswerVersion::One };
    let is_two = match number("version", fields.version) {
        Ok(version) => version == Some(2),
        Err(_) => text("version", fields.version).ok().flatten().as_deref() == Some("2"),
    };
    if is_two { AnswerVersion::Two } else { AnswerVersion::One }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_of_the_real_client_is_read() {
        let json = r#"{"op":"set","to":"presence:/acme/room","value":"online","key":7,"type":2,"clientData":{"a":1},"ack":2,"userData":{"name":"bob"},"auth":"a.b.c","userId":7}"#;
        let request = parse_request(json).unwrap();
        assert_eq!((request.op, &*request.to, request.ack), (RadarOp::Set, "presence:/acme/room", Some("2")));
        assert_eq!((request.key, request.user.as_deref()), (Some("7"), Some("7")));
        assert_eq!((request.value, request.user_type), (Some("\"online\""), Some("2")));
        assert_eq!(request.client_data, Some("{\"a\":1}"));
        assert_eq!(request.user_data, Some("{\"name\":\"bob\"}"));
        assert_eq!((request.auth.as_deref(), request.claimed_user.as_deref()), (Some("a.b.c"), Some("7")));
    }

    #[test]
    fn a_falsy_ack_is_none_and_a_version_is_read_leniently() {
        for ack in ["null", "0", "false", "\"\""] {
            assert_eq!(parse_request(&format!(r#"{{"op":"get","ack":{ack}}}"#)).unwrap().ack, None);
        }
        for (options, version) in [
            (r#"{"version":2}"#, AnswerVersion::Two),
            (r#"{"version":"2"}"#, AnswerVersion::Two),
            (r#"{"version":1}"#, AnswerVersion::One),
            ("{}", AnswerVersion::One),
            ("7", AnswerVersion::One),
            ("null", AnswerVersion::One),
        ] {
            let request = format!(r#"{{"op":"sync","options":{options}}}"#);
            assert_eq!(parse_request(&request).unwrap().version, version, "{options}");
        }
    }

    #[test]
    fn what_the_original_ignores_is_an_error() {
        for json in ["nonsense", "[]", "{}", r#"{"to":"x"}"#, r#"{"op":7}"#, ""] {
            assert!(parse_request(json).is_err(), "{json}");
        }
        assert_eq!(parse_request(r#"{"op":"frob"}"#).unwrap().op, RadarOp::Unknown);
    }

    #[test]
    fn accounts_and_types_have_channels_of_their_own() {
        let channel = |to: &str| RadarScope::parse(to).map(|scope| scope.channel());
        assert_eq!(channel("presence:/acme/room/1").as_deref(), Some("radar-presence#acme/room/1"));
        assert_eq!(channel("status:/acme/room").as_deref(), Some("radar-status#acme/room"));
        assert_eq!(channel("message:/other/room").as_deref(), Some("radar-message#other/room"));
        assert_eq!(channel("stream:/acme/room"), None);
        assert_eq!(channel("presence:acme"), None);
        assert_eq!(channel(""), None);
    }

    #[test]
    fn a_batch_is_bounded() {
        let parts = parse_batch(r#"{"op":"batch","length":2,"value":[{"op":"get"}, {"op":"set"}]}"#).unwrap();
        assert_eq!(parts, [r#"{"op":"get"}"#, r#"{"op":"set"}"#]);
        let many = format!(r#"{{"value":[{}]}}"#, vec!["1"; BATCH_MAX + 1].join(","));
        assert!(parse_batch(&many).is_err());
    }
}
