//! Orders about a user's sessions, and what was done about them.

use super::super::field::{Raw, boolean, moment, need, number, object, present, refuse, text, texts};
use crate::error::Refusal;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::RangeInclusive;
use std::sync::Arc;
use tavern_domain::ClientId;

/// `GET /v1/users/{user}/sessions`.
#[derive(Debug, Serialize)]
pub struct UserSessionList<'a> {
    /// Living nodes that did not answer in time.
    pub missing_nodes: Vec<&'a str>,
    pub sessions: Vec<UserSessionReport>,
}

#[derive(Debug, Serialize)]
pub struct UserSessionReport {
    /// Channels it is subscribed to.
    pub channels: u32,
    pub client: String,
    pub heard_at: u64,
    pub moving: bool,
    pub node: String,
    pub since: u64,
    /// `websocket`, `sse`, `poll`, or null while nothing is attached.
    pub transport: Option<String>,
}

/// The answer to an order about a user's sessions.
#[derive(Debug, Serialize)]
pub struct ControlOutcome<'a> {
    /// Left out unless sessions can fail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<u64>,
    pub missing_nodes: Vec<&'a str>,
    pub sessions: u64,
}

/// `GET /v1/users/{user}/ban`.
#[derive(Debug, Serialize)]
pub struct BanReport<'a> {
    pub at: u64,
    pub reason: &'a str,
    pub until: Option<u64>,
    pub user: &'a str,
}

/// `GET /v1/bans`.
#[derive(Debug, Serialize)]
pub struct BanList<'a> {
    pub bans: Vec<BanReport<'a>>,
    pub next: Option<&'a str>,
}

/// The close codes that an app may choose, and those after which clients reconnect by themselves.
pub const CLOSE_CODES: RangeInclusive<u16> = 4000..=4999;
pub const RECONNECT_CODES: RangeInclusive<u16> = 4500..=4999;
/// The close codes unless the app names one.
pub const DISCONNECT_CODE: u16 = 4006;
pub const RECONNECT_CODE: u16 = 4504;
/// A reason fits into a close frame.
pub const REASON_BYTES: usize = 123;
/// Clients that an order may leave alone.
const EXCEPT_MAX: usize = 100;

/// The body of `POST /v1/users/{user}/disconnect`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DisconnectRequest {
    pub code: u16,
    pub reason: Arc<str>,
    pub except: Vec<ClientId>,
    pub allow_resume: bool,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct DisconnectFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    code: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    reason: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    except: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    allow_resume: Raw<'a>,
}

/// An empty body means all defaults.
pub fn parse_disconnect(body: &[u8]) -> Result<DisconnectRequest, Refusal> {
    let fields: DisconnectFields<'_> =
        if body.trim_ascii().is_empty() { DisconnectFields::default() } else { object(body)? };
    let allow_resume = boolean("allow_resume", fields.allow_resume)?.unwrap_or(false);
    let default = if allow_resume { RECONNECT_CODE } else { DISCONNECT_CODE };
    let code = number("code", fields.code)?.unwrap_or(default.into());
    let code = u16::try_from(code).ok().filter(|code| CLOSE_CODES.contains(code));
    let code = code.ok_or_else(|| refuse("the field `code` must be an integer from 4000 to 4999"))?;
    if allow_resume && !RECONNECT_CODES.contains(&code) {
        return Err(refuse(
            "with `allow_resume` the field `code` must be from 4500 to 4999: clients reconnect after these",
        ));
    }
    let except = texts("except", fields.except)?.unwrap_or_default();
    if except.len() > EXCEPT_MAX {
        return Err(refuse(format!("the field `except` names at most {EXCEPT_MAX} clients")));
    }
    let client = |name: &Cow<'_, str>| {
        ClientId::parse(name)
            .ok_or_else(|| refuse(format!("{name:?} in the field `except` is not a client id")))
    };
    let except = except.iter().map(client).collect::<Result<_, _>>()?;
    let reason = reason(fields.reason)?.unwrap_or_else(|| "disconnected by the app".into());
    Ok(DisconnectRequest { code, reason, except, allow_resume })
}

fn reason(raw: Raw<'_>) -> Result<Option<Arc<str>>, Refusal> {
    let Some(reason) = text("reason", raw)? else { return Ok(None) };
    if reason.len() > REASON_BYTES || reason.chars().any(char::is_control) {
        let message =
            format!("the field `reason` has at most {REASON_BYTES} bytes and no control characters");
        return Err(refuse(message));
    }
    Ok(Some(reason.into()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChannelFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    channel: Raw<'a>,
}

/// The body of `POST /v1/users/{user}/subscribe` and `unsubscribe`.
pub fn parse_channel_body(body: &[u8]) -> Result<Arc<str>, Refusal> {
    let fields: ChannelFields<'_> = object(body)?;
    Ok(need("channel", text("channel", fields.channel)?)?.into())
}

/// The body of `PUT /v1/users/{user}/ban`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanRequest {
    /// In milliseconds since 1970; None: until it is lifted.
    pub until: Option<u64>,
    pub reason: Arc<str>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BanFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    until: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    reason: Raw<'a>,
}

pub fn parse_ban(body: &[u8]) -> Result<BanRequest, Refusal> {
    let fields: BanFields<'_> =
        if body.trim_ascii().is_empty() { BanFields::default() } else { object(body)? };
    let until = moment("until", fields.until)?;
    if until.is_some_and(|until| until > i64::MAX as u64 / 1000) {
        return Err(refuse("the field `until` is too far away: leave it out for a ban without an end"));
    }
    Ok(BanRequest { until, reason: reason(fields.reason)?.unwrap_or_default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disconnect_has_defaults() {
        for body in ["", "{}", r#"{"code":null}"#] {
            let read = parse_disconnect(body.as_bytes()).unwrap();
            assert_eq!((read.code, read.allow_resume, read.except.len()), (DISCONNECT_CODE, false, 0));
        }
        let read = parse_disconnect(br#"{"allow_resume":true,"reason":"new rules"}"#).unwrap();
        assert_eq!((read.code, &*read.reason), (RECONNECT_CODE, "new rules"));
    }

    #[test]
    fn a_wrong_disconnect_is_refused_by_field() {
        let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(124));
        for (body, field) in [
            (r#"{"code":3999}"#, "code"),
            (r#"{"code":5000}"#, "code"),
            (r#"{"code":"4000"}"#, "code"),
            (r#"{"code":4000,"allow_resume":true}"#, "code"),
            (r#"{"except":["?"]}"#, "except"),
            (r#"{"except":"a"}"#, "except"),
            (r#"{"allow_resume":1}"#, "allow_resume"),
            (r#"{"reason":"a\nb"}"#, "reason"),
            (&long, "reason"),
        ] {
            let refusal = parse_disconnect(body.as_bytes()).unwrap_err();
            assert!(refusal.message.contains(&format!("`{field}`")), "{body}: {refusal}");
        }
    }

    #[test]
    fn a_ban_has_an_end_and_a_reason_or_neither() {
        assert_eq!(parse_ban(b"").unwrap(), BanRequest { until: None, reason: "".into() });
        let read = parse_ban(br#"{"until":"2026-11-15T10:00:00Z","reason":"spam"}"#).unwrap();
        assert_eq!(read, BanRequest { until: Some(1_794_736_800_000), reason: "spam".into() });
        assert!(
            parse_ban(br#"{"until":-1}"#).is_err()
                && parse_ban(br#"{"until":18446744073709551615}"#).is_err()
        );
    }
}
