//! JSON bodies of HTTP requests that are not commands: a poll, a message, the session a command belongs to.
//! Must hold: an empty poll body means all defaults; unknown members are refused.

use super::field::{self, Raw, boolean, message_id, need, number, present, text};
use crate::error::Refusal;
use serde::Deserialize;
use std::borrow::Cow;

/// One long-poll. Absent members mean a new session, nothing acknowledged, the default time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollRequest {
    pub session: Option<String>,
    pub cursor: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub token: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PollFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    session: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    cursor: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    timeout_ms: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    token: Raw<'a>,
}

pub fn parse_poll(body: &[u8]) -> Result<PollRequest, Refusal> {
    if body.trim_ascii().is_empty() {
        return Ok(PollRequest::default());
    }
    let fields: PollFields<'_> = field::object(body)?;
    Ok(PollRequest {
        session: text("session", fields.session)?.map(Cow::into_owned),
        cursor: number("cursor", fields.cursor)?,
        timeout_ms: number("timeout_ms", fields.timeout_ms)?,
        token: text("token", fields.token)?.map(Cow::into_owned),
    })
}

#[derive(Deserialize)]
struct SessionField<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    session: Raw<'a>,
}

/// The session of a command that is sent by itself. Other errors are reported by the command's parser.
pub fn session_of(frame: &[u8]) -> Option<String> {
    let fields: SessionField<'_> = field::object(frame).ok()?;
    text("session", fields.session).ok()?.map(Cow::into_owned)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MessageFields<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    data: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    retain: Raw<'a>,
    #[serde(borrow, default, deserialize_with = "present")]
    message_id: Raw<'a>,
}

/// A message that a service publishes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageBody<'a> {
    /// Byte for byte.
    pub data: &'a str,
    /// Keeps it as the last value of a channel without history.
    pub retain: bool,
    /// Makes a publish with history once-only.
    pub message_id: Option<Cow<'a, str>>,
}

pub fn parse_message_body(body: &[u8]) -> Result<MessageBody<'_>, Refusal> {
    let fields: MessageFields<'_> = field::object(body)?;
    let data = need("data", fields.data)?.get();
    let retain = boolean("retain", fields.retain)?.unwrap_or(false);
    Ok(MessageBody { data, retain, message_id: message_id(fields.message_id)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_may_leave_out_everything() {
        for body in ["", " \n", "{}", r#"{"session":null,"cursor":null}"#] {
            assert_eq!(parse_poll(body.as_bytes()).unwrap(), PollRequest::default(), "{body}");
        }
        let refused = parse_poll(br#"{"sesion":null}"#).unwrap_err();
        assert_eq!(refused.message, "unknown field `sesion`; did you mean `session`?");
    }

    #[test]
    fn a_message_has_data_and_may_have_an_id() {
        let read = parse_message_body(br#"{"data":{"a":1},"message_id":"m\u0031","retain":true}"#).unwrap();
        assert_eq!((read.data, read.retain, read.message_id.as_deref()), (r#"{"a":1}"#, true, Some("m1")));
        assert_eq!(parse_message_body(br#"{"data":1}"#).unwrap().message_id, None);
        for id in ["7", "\"\"", "\"a\\n\"", &format!("{:?}", "x".repeat(129))] {
            let refusal =
                parse_message_body(format!(r#"{{"data":1,"message_id":{id}}}"#).as_bytes()).unwrap_err();
            assert!(refusal.message.contains("message_id"), "{id}: {refusal:?}");
        }
    }

    #[test]
    fn a_poll_reads_all_its_members() {
        let poll =
            parse_poll(br#"{"session":"s\u0031","cursor":18446744073709551615,"timeout_ms":0,"token":"t"}"#);
        let expected = PollRequest {
            session: Some("s1".into()),
            cursor: Some(u64::MAX),
            timeout_ms: Some(0),
            token: Some("t".into()),
        };
        assert_eq!(poll.unwrap(), expected);
    }

    #[test]
    fn an_invalid_poll_names_the_field() {
        for (body, expected) in [
            ("[]", "object"),
            ("7", "object"),
            ("{", "not valid JSON"),
            (r#"{"cursor":-1}"#, "`cursor`"),
            (r#"{"cursor":1.5}"#, "`cursor`"),
            (r#"{"cursor":"1"}"#, "`cursor`"),
            (r#"{"timeout_ms":true}"#, "`timeout_ms`"),
            (r#"{"session":1}"#, "`session`"),
            (r#"{"token":["x"]}"#, "`token`"),
            (r#"{"cursor":1,"cursor":2}"#, "duplicate field `cursor`"),
        ] {
            let refusal = parse_poll(body.as_bytes()).unwrap_err();
            assert!(refusal.message.contains(expected), "{body}: {refusal}");
        }
    }

    #[test]
    fn the_session_is_read_at_top_level_only() {
        assert_eq!(session_of(br#"{"op":"bye","session":"abc"}"#).as_deref(), Some("abc"));
        for none in [r#"{"data":{"session":"x"}}"#, r#"{"session":1}"#, r#"{"session":"x""#, "[]", ""] {
            assert_eq!(session_of(none.as_bytes()), None, "{none}");
        }
    }

    #[test]
    fn message_data_keeps_its_bytes() {
        let read = |body: &'static [u8]| parse_message_body(body).map(|body| (body.data, body.retain));
        assert_eq!(read(br#"{"data": { "a" : 1.0 } }"#).unwrap(), (r#"{ "a" : 1.0 }"#, false));
        assert_eq!(read(br#"{"data":null,"retain":true}"#).unwrap(), ("null", true));
        assert_eq!(parse_message_body(b"{}").unwrap_err().message, "the field `data` is missing");
        assert!(parse_message_body(b"{\"data\":\"\xff\"}").unwrap_err().message.contains("UTF-8"));
    }
}
