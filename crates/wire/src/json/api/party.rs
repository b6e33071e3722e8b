//! Parties over HTTP: the list for services, and the form encoding of the legacy API.

use super::super::party::snapshot;
use super::{encode, raw};
use crate::error::{Code, Refusal};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tavern_domain::party::Party;

/// `GET /v1/parties`, written party by party.
pub struct PartyList {
    body: Vec<u8>,
    last: Option<u64>,
}

impl Default for PartyList {
    fn default() -> PartyList {
        PartyList { body: b"{\"parties\":[".to_vec(), last: None }
    }
}

impl PartyList {
    pub fn push(&mut self, party: &Party) {
        if self.last.is_some() {
            self.body.push(b',');
        }
        snapshot(&mut self.body, Some(party));
        self.last = Some(party.id);
    }

    /// `more`: the next page begins after the last party here.
    pub fn finish(mut self, more: bool) -> Vec<u8> {
        match self.last.filter(|_| more) {
            Some(last) => self.body.extend_from_slice(format!("],\"next\":\"{last}\"}}").as_bytes()),
            None => self.body.extend_from_slice(b"],\"next\":null}"),
        }
        self.body
    }
}

/// The refusal of `POST /party`: `error` is a text beside its code.
#[derive(Clone, Debug, Serialize)]
pub struct FormRefusal<'a> {
    code: &'static str,
    error: Cow<'a, str>,
    party: Option<&'a RawValue>,
    /// Left out when trying again does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl FormRefusal<'_> {
    pub fn of(refusal: &Refusal) -> FormRefusal<'_> {
        let error = match refusal.code {
            Code::UserNotLogged => "user not logged".into(),
            _ => Cow::Borrowed(&*refusal.message),
        };
        FormRefusal {
            code: refusal.code.as_str(),
            error,
            party: refusal.party.as_deref().and_then(raw),
            retry_after_ms: refusal.retry_after_ms,
        }
    }
}

/// The party in the reply to `get`, as JSON: for a refusal that was made before the command ran.
pub fn party_in(reply: &[u8]) -> Option<Box<str>> {
    #[derive(Deserialize)]
    struct PartyField<'a> {
        #[serde(borrow)]
        party: &'a RawValue,
    }
    serde_json::from_slice::<PartyField<'_>>(reply).ok().map(|reply| reply.party.get().into())
}

/// The fields of a form as the body of a command: old names stand for new ones, numbers and JSON are what they are.
pub fn form_command(fields: impl Iterator<Item = (String, String)>) -> Vec<u8> {
    let mut command = Map::new();
    for (name, given) in fields {
        let name = match name.as_str() {
            // Older servers had more than parties at one address.
            "action" => continue,
            "invite_login" | "target_uid" => "user",
            "user_msg" => "message",
            other => other,
        };
        let value = match name {
            "party_id" | "go_id" | "if_version" => {
                given.parse::<u64>().map_or(Value::String(given), Value::from)
            }
            "data" | "params" => serde_json::from_str(&given).unwrap_or(Value::String(given)),
            _ => Value::String(given),
        };
        command.insert(name.to_owned(), value);
    }
    encode(&command)
}

/// `/party/ping`: made of the answer to a poll.
#[derive(Debug, PartialEq, Eq)]
pub struct PingReply {
    pub session: String,
    pub cursor: u64,
    pub body: Vec<u8>,
}

#[derive(Deserialize)]
struct Polled<'a> {
    #[serde(borrow, default)]
    session: Cow<'a, str>,
    #[serde(default)]
    cursor: u64,
    #[serde(borrow, default)]
    party: Option<&'a RawValue>,
    #[serde(borrow, default)]
    events: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct EventName<'a> {
    #[serde(borrow)]
    event: Cow<'a, str>,
}

#[derive(Serialize)]
struct PingBody<'a> {
    party: Option<&'a RawValue>,
    party_events: Vec<Cow<'a, RawValue>>,
}

/// In the old form `reason` is the user's message or the error, and a word for programs only without these.
fn with_old_reason(event: &RawValue) -> Cow<'_, RawValue> {
    let Ok(mut members) = serde_json::from_str::<BTreeMap<Cow<'_, str>, &RawValue>>(event.get()) else {
        return Cow::Borrowed(event);
    };
    let Some(&reason) = members.get("message").or_else(|| members.get("error")) else {
        return Cow::Borrowed(event);
    };
    members.insert(Cow::Borrowed("reason"), reason);
    match serde_json::value::to_raw_value(&members) {
        Ok(event) => Cow::Owned(event),
        Err(_) => Cow::Borrowed(event),
    }
}

impl PingReply {
    /// Keeps the events about parties. None: the answer cannot be read.
    pub fn of_poll(answer: &[u8]) -> Option<PingReply> {
        let Polled { session, cursor, party, events } = serde_json::from_slice(answer).ok()?;
        let is_party = |event: &&RawValue| {
            serde_json::from_str::<EventName<'_>>(event.get()).is_ok_and(|name| name.event == "party")
        };
        let party_events = events.into_iter().filter(is_party).map(with_old_reason).collect();
        let body = encode(&PingBody { party, party_events });
        Some(PingReply { session: session.into_owned(), cursor, body })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_ends_with_the_next_page_or_null() {
        assert_eq!(PartyList::default().finish(true), b"{\"parties\":[],\"next\":null}");
    }

    #[test]
    fn a_ping_has_the_events_of_parties_alone() {
        let answer = br#"{"session":"s","cursor":7,"party":{"party_id":5},"events":[{"seq":6,"event":"message"},{"seq":7,"event":"party","x":1}]}"#;
        let ping = PingReply::of_poll(answer).unwrap();
        assert_eq!((ping.session.as_str(), ping.cursor), ("s", 7));
        let expected = r#"{"party":{"party_id":5},"party_events":[{"seq":7,"event":"party","x":1}]}"#;
        assert_eq!(String::from_utf8(ping.body).unwrap(), expected);
    }

    #[test]
    fn a_reason_of_the_old_form_is_the_message_or_the_error() {
        let check = |event: &str, expected: &str| {
            let event: Box<RawValue> = serde_json::from_str(event).unwrap();
            assert_eq!(with_old_reason(&event).get(), expected);
        };
        check(r#"{"cmd":"kick","message":"no"}"#, r#"{"cmd":"kick","message":"no","reason":"no"}"#);
        check(
            r#"{"cmd":"leave","reason":"left","message":"a \"b\""}"#,
            r#"{"cmd":"leave","message":"a \"b\"","reason":"a \"b\""}"#,
        );
        check(
            r#"{"cmd":"decline","reason":"logout","error":"user not logged"}"#,
            r#"{"cmd":"decline","error":"user not logged","reason":"user not logged"}"#,
        );
        check(r#"{"cmd":"leave","reason":"timeout"}"#, r#"{"cmd":"leave","reason":"timeout"}"#);
        let empty = PingReply::of_poll(br#"{"session":"s","cursor":0,"party":null,"events":[]}"#).unwrap();
        assert_eq!(empty.body, br#"{"party":null,"party_events":[]}"#);
        assert_eq!(PingReply::of_poll(b"{"), None);
    }

    #[test]
    fn a_refusal_of_a_form_is_a_text_beside_its_code() {
        let refusal = Refusal::new(Code::UserNotLogged, "offline");
        let body = encode(&FormRefusal::of(&refusal));
        assert_eq!(body, br#"{"code":"user_not_logged","error":"user not logged","party":null}"#);
    }

    #[test]
    fn fields_of_a_form_become_a_command() {
        let fields = [("cmd", "kick"), ("target_uid", "7"), ("party_id", "5"), ("data", "{\"a\":1}")];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(form_command(fields), br#"{"cmd":"kick","data":{"a":1},"party_id":5,"user":"7"}"#);
    }
}
