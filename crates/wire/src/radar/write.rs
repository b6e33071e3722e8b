//! Answers and events as a Radar client expects them, each one frame of JSON.

use super::AnswerVersion;
use super::request::id_text;
use super::state::{ClientDetails, PayloadFields, quoted};
use crate::gateway::{HubMember, HubMembers, HubSender, KeptMessage};
use crate::json::string;
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Where stamps come from: every event has one.
pub struct StampSource<'a> {
    /// The Engine.IO connection that gets the frames.
    pub client: &'a str,
    /// The node; the original names its sentry here.
    pub sentry: &'a str,
    pub now_ms: u64,
    pub random: &'a dyn Fn() -> u128,
}

/// Frames for one client, in the order in which they were written.
pub struct RadarFrames<'a> {
    pub stamps: StampSource<'a>,
    pub frames: Vec<Vec<u8>>,
}

impl<'a> RadarFrames<'a> {
    pub fn new(stamps: StampSource<'a>) -> RadarFrames<'a> {
        RadarFrames { stamps, frames: Vec::new() }
    }

    pub fn ack(&mut self, ack: Option<&str>) {
        if let Some(ack) = ack {
            self.push(format!("{{\"op\":\"ack\",\"value\":{ack}}}"));
        }
    }

    /// `{"op":"err","value":…,"origin":…}`: the request without its token.
    pub fn err(&mut self, value: &str, origin: &str) {
        let mut origin: Value = serde_json::from_str(origin).unwrap_or_default();
        if let Some(members) = origin.as_object_mut() {
            members.remove("auth");
        }
        self.push(format!("{{\"op\":\"err\",\"value\":{},\"origin\":{origin}}}", quoted(value)));
    }

    /// The answer to `get`, and to `sync` where the original answers with `get`.
    pub fn get(&mut self, to: &str, value: &str) {
        self.push(format!("{{\"op\":\"get\",\"to\":{},\"value\":{value}}}", quoted(to)));
    }

    /// The answer to `sync` of an old client.
    pub fn sync_version_one(&mut self, to: &str, value: &str) {
        self.push(format!("{{\"op\":\"online\",\"to\":{},\"value\":{value}}}", quoted(to)));
    }

    /// The messages of a type that keeps them: each as text, followed by its time as text.
    pub fn sync(&mut self, to: &str, messages: &[KeptMessage<'_>]) {
        let mut list = Vec::new();
        for message in messages {
            let frame = self.message_frame("publish", to, message.data, message.at);
            if !list.is_empty() {
                list.push(b',');
            }
            string(&mut list, &frame);
            list.extend_from_slice(format!(",\"{}\"", message.at).as_bytes());
        }
        let list = String::from_utf8(list).unwrap_or_default();
        let now = self.stamps.now_ms;
        self.push(format!("{{\"op\":\"sync\",\"to\":{},\"value\":[{list}],\"time\":{now}}}", quoted(to)));
    }

    pub fn message(&mut self, to: &str, data: &RawValue) {
        let frame = self.message_frame("publish", to, data, self.stamps.now_ms);
        self.push(frame);
    }

    pub fn status(&mut self, to: &str, data: &RawValue) {
        let frame = self.message_frame("set", to, data, self.stamps.now_ms);
        self.push(frame);
    }

    pub fn online(&mut self, to: &str, user: &str, details: &ClientDetails) {
        let value = format!("{{{}:{}}}", quoted(user), details.user_type);
        let user_data = member("userData", details.user_data.as_deref());
        self.event(to, "online", &format!("\"value\":{value}{user_data}"));
    }

    pub fn offline(&mut self, to: &str, user: &str, user_type: &str) {
        self.event(to, "offline", &format!("\"value\":{{{}:{user_type}}}", quoted(user)));
    }

    pub fn client_online(&mut self, to: &str, client: &str, details: &ClientDetails) {
        let value = client_value(client, details);
        self.event(to, "client_online", &format!("\"value\":{value}"));
    }

    pub fn client_updated(&mut self, to: &str, client: &str, details: &ClientDetails) {
        let value = client_value(client, details);
        self.event(to, "client_updated", &format!("\"value\":{value}"));
    }

    /// Nothing for the client itself.
    pub fn client_offline(&mut self, to: &str, client: &str, user_id: &str, explicit: bool) {
        if client != self.stamps.client {
            let value = format!("{{\"userId\":{user_id},\"clientId\":{}}}", quoted(client));
            self.event(to, "client_offline", &format!("\"explicit\":{explicit},\"value\":{value}"));
        }
    }

    fn message_frame(&self, op: &str, to: &str, data: &RawValue, at: u64) -> String {
        let fields = PayloadFields::read(data);
        let value = fields.value.map_or("null", RawValue::get);
        let mut rest = String::new();
        for (name, part) in [("key", fields.key), ("type", fields.user_type), ("userData", fields.user_data)]
        {
            rest.push_str(&member(name, part.map(RawValue::get)));
        }
        let stamp = self.stamp(at);
        format!("{{\"op\":\"{op}\",\"to\":{},\"value\":{value}{rest},\"stamp\":{stamp}}}", quoted(to))
    }

    fn event(&mut self, to: &str, op: &str, members: &str) {
        let stamp = self.stamp(self.stamps.now_ms);
        self.push(format!("{{\"to\":{},\"op\":\"{op}\",{members},\"stamp\":{stamp}}}", quoted(to)));
    }

    fn stamp(&self, at_ms: u64) -> String {
        let bits = (self.stamps.random)();
        let hex = format!("{bits:032x}");
        let (client, sentry) = (quoted(self.stamps.client), quoted(self.stamps.sentry));
        format!(
            "{{\"id\":\"{}-{}-{}-{}-{}\",\"clientId\":{client},\"sentryId\":{sentry},\"timestamp\":\"{}\"}}",
            &hex[..8],
            &hex[8..12],
            &hex[12..16],
            &hex[16..20],
            &hex[20..],
            crate::json::write_moment(at_ms)
        )
    }

    fn push(&mut self, frame: String) {
        self.frames.push(frame.into_bytes());
    }
}

fn member(name: &str, json: Option<&str>) -> String {
    json.map(|json| format!(",\"{name}\":{json}")).unwrap_or_default()
}

fn client_value(client: &str, details: &ClientDetails) -> String {
    format!(
        "{{\"userId\":{},\"clientId\":{}{}{}}}",
        details.user_id,
        quoted(client),
        member("userData", details.user_data.as_deref()),
        member("clientData", details.client_data.as_deref())
    )
}

/// An anonymous user is their client.
fn shown_user<'a>(member: &'a HubMember<'_>) -> Option<&'a str> {
    member.user.as_deref().or_else(|| member.clients.first().map(|one| &*one.client))
}

fn user_with_type(member: &HubMember<'_>, type_of: &impl Fn(&str) -> Option<Box<str>>) -> Option<String> {
    let user = shown_user(member)?;
    let first = member.clients.first();
    let known = first.map(|one| ClientDetails::read(user, one.state.map(RawValue::get)).user_type);
    let user_type = known.or_else(|| type_of(user)).unwrap_or_else(|| "0".into());
    Some(format!("{}:{user_type}", quoted(user)))
}

/// None for a user without clients: they are in their grace period.
fn user_with_clients(member: &HubMember<'_>) -> Option<String> {
    let user = shown_user(member)?;
    let mut user_type = None;
    let mut clients = Vec::new();
    for one in &member.clients {
        let details = ClientDetails::read(user, one.state.map(RawValue::get));
        clients.push(format!("{}:{}", quoted(&one.client), merged(&details)));
        user_type.get_or_insert(details.user_type);
    }
    let list = clients.join(",");
    Some(format!("{}:{{\"clients\":{{{list}}},\"userType\":{}}}", quoted(user), user_type?))
}

/// The members of the user's data and the client's data in one object; the client's are stronger.
fn merged(details: &ClientDetails) -> String {
    let mut members: BTreeMap<String, Cow<'_, RawValue>> = BTreeMap::new();
    for data in [&details.user_data, &details.client_data].into_iter().flatten() {
        let parsed: BTreeMap<String, &RawValue> = serde_json::from_str(data).unwrap_or_default();
        members.extend(parsed.into_iter().map(|(name, value)| (name, Cow::Borrowed(value))));
    }
    let entries = members.iter().map(|(name, value)| format!("{}:{}", quoted(name), value.get()));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
}

/// Who is present, as the answer to `get` and `sync`.
#[derive(Debug)]
pub struct PresentUsers {
    version: AnswerVersion,
    entries: Vec<String>,
}

impl PresentUsers {
    pub fn new(version: AnswerVersion) -> PresentUsers {
        PresentUsers { version, entries: Vec::new() }
    }

    /// Adds a page of members. `type_of` knows the type of users without a client.
    pub fn add(&mut self, members: &HubMembers<'_>, type_of: impl Fn(&str) -> Option<Box<str>>) {
        for member in &members.users {
            self.entries.extend(match self.version {
                AnswerVersion::One => user_with_type(member, &type_of),
                AnswerVersion::Two => user_with_clients(member),
            });
        }
    }

    pub fn write(&self) -> String {
        format!("{{{}}}", self.entries.join(","))
    }
}

/// The user whose status a message is. None: it is no status. Any client that may publish can write to the channel, so
/// only the user who published it counts; services may set the status of everybody.
pub fn status_of(data: &RawValue, from: Option<&HubSender<'_>>) -> Option<String> {
    let user = id_text(PayloadFields::read(data).key?.get())?;
    let may = from.is_none_or(|from| from.user.as_deref() == Some(&*user));
    may.then_some(user)
}

/// The statuses of a scope, by the user who set them: the last value of each counts.
#[derive(Debug, Default)]
pub struct StatusValues(BTreeMap<String, Box<str>>);

impl StatusValues {
    /// Data without a key is no status, nor is that of another user.
    pub fn add(&mut self, data: &RawValue, from: Option<&HubSender<'_>>) {
        if let (Some(user), Some(value)) = (status_of(data, from), PayloadFields::read(data).value) {
            self.0.insert(user, value.get().into());
        }
    }

    pub fn write(&self) -> String {
        let entries = self.0.iter().map(|(key, value)| format!("{}:{value}", quoted(key)));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::read_members;

    fn check(write: impl FnOnce(&mut RadarFrames<'_>), expected: &[&str]) {
        let stamps = StampSource { client: "own", sentry: "a", now_ms: 1_794_737_300_123, random: &|| 0xabc };
        let mut frames = RadarFrames::new(stamps);
        write(&mut frames);
        let stamp = concat!(
            r#""stamp":{"id":"00000000-0000-0000-0000-000000000abc","clientId":"own","sentryId":"a","#,
            r#""timestamp":"2026-11-15T10:08:20.123Z"}"#
        );
        let frames: Vec<String> =
            frames.frames.into_iter().map(|frame| String::from_utf8(frame).unwrap()).collect();
        let expected: Vec<String> = expected.iter().map(|text| text.replace("STAMP", stamp)).collect();
        assert_eq!(frames, expected);
    }

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn acknowledgements_and_errors() {
        check(
            |out| {
                out.ack(Some("7"));
                out.ack(None);
                out.err("auth", r#"{"op":"get","auth":"secret","to":"presence:/a/b"}"#);
            },
            &[
                r#"{"op":"ack","value":7}"#,
                r#"{"op":"err","value":"auth","origin":{"op":"get","to":"presence:/a/b"}}"#,
            ],
        );
    }

    #[test]
    fn presence_events_are_those_of_the_original() {
        let details = ClientDetails {
            user_id: "7".into(),
            user_type: "2".into(),
            user_data: Some("{\"n\":1}".into()),
            client_data: Some("{\"a\":1}".into()),
        };
        let to = "presence:/a/b";
        check(
            |out| {
                out.online(to, "7", &details);
                out.client_online(to, "c", &details);
                out.client_updated(to, "c", &details);
                out.client_offline(to, "c", "7", false);
                out.client_offline(to, "own", "7", true);
                out.offline(to, "7", "2");
            },
            &[
                r#"{"to":"presence:/a/b","op":"online","value":{"7":2},"userData":{"n":1},STAMP}"#,
                r#"{"to":"presence:/a/b","op":"client_online","value":{"userId":7,"clientId":"c","userData":{"n":1},"clientData":{"a":1}},STAMP}"#,
                r#"{"to":"presence:/a/b","op":"client_updated","value":{"userId":7,"clientId":"c","userData":{"n":1},"clientData":{"a":1}},STAMP}"#,
                r#"{"to":"presence:/a/b","op":"client_offline","explicit":false,"value":{"userId":7,"clientId":"c"},STAMP}"#,
                r#"{"to":"presence:/a/b","op":"offline","value":{"7":2},STAMP}"#,
            ],
        );
    }

    #[test]
    fn messages_and_statuses_carry_the_data_of_their_sender() {
        check(
            |out| {
                out.message("message:/a/b", &raw(r#"{"value":{"x":1},"userData":{"n":1}}"#));
                out.status("status:/a/b", &raw(r#"{"key":"ann","type":2,"value":"v"}"#));
                let data = raw("{\"value\":1}");
                let kept = KeptMessage { offset: 1, at: 1_794_737_300_123, data: &data, from: None };
                out.sync("message:/a/b", &[kept]);
                out.sync("message:/a/b", &[]);
            },
            &[
                r#"{"op":"publish","to":"message:/a/b","value":{"x":1},"userData":{"n":1},STAMP}"#,
                r#"{"op":"set","to":"status:/a/b","value":"v","key":"ann","type":2,STAMP}"#,
                r#"{"op":"sync","to":"message:/a/b","value":["{\"op\":\"publish\",\"to\":\"message:/a/b\",\"value\":1,\"stamp\":{\"id\":\"00000000-0000-0000-0000-000000000abc\",\"clientId\":\"own\",\"sentryId\":\"a\",\"timestamp\":\"2026-11-15T10:08:20.123Z\"}}","1794737300123"],"time":1794737300123}"#,
                r#"{"op":"sync","to":"message:/a/b","value":[],"time":1794737300123}"#,
            ],
        );
    }

    #[test]
    fn both_versions_of_the_answer() {
        let body = r#"{"version":1,"users":[
            {"user":"7","clients":[{"client":"c","state":{"userId":7,"userType":2,"userData":{"n":1,"a":0},"clientData":{"a":1}}}]},
            {"user":"gone","clients":[],"leaving":true},
            {"user":null,"clients":[{"client":"d","state":null}]},
            {"user":null,"clients":[]}],"count":4}"#;
        let members = read_members(body);
        let type_of = |user: &str| (user == "gone").then(|| "5".into());
        let answer = |version| {
            let mut users = PresentUsers::new(version);
            users.add(&members, type_of);
            users.write()
        };
        assert_eq!(answer(AnswerVersion::One), r#"{"7":2,"gone":5,"d":0}"#);
        assert_eq!(
            answer(AnswerVersion::Two),
            r#"{"7":{"clients":{"c":{"a":1,"n":1}},"userType":2},"d":{"clients":{"d":{}},"userType":0}}"#
        );
    }

    #[test]
    fn the_last_status_of_a_user_counts() {
        let mut values = StatusValues::default();
        for data in [r#"{"key":7,"value":1}"#, r#"{"key":"a","value":{}}"#, r#"{"key":7,"value":2}"#, "5"] {
            values.add(&raw(data), None);
        }
        assert_eq!(values.write(), r#"{"7":2,"a":{}}"#);
    }

    #[test]
    fn only_the_user_themselves_and_services_set_a_status() {
        let from = |user: Option<&'static str>| Some(HubSender { user: user.map(Into::into) });
        for (data, from, expected) in [
            (r#"{"key":7,"value":1}"#, from(Some("7")), Some("7")),
            (r#"{"key":"ann","value":1}"#, from(Some("ann")), Some("ann")),
            (r#"{"key":"ann","value":1}"#, None, Some("ann")),
            (r#"{"key":"ann","value":1}"#, from(Some("bob")), None),
            (r#"{"key":"ann","value":1}"#, from(None), None),
            (r#"{"key":["ann"],"value":1}"#, from(Some("bob")), None),
            (r#"{"key":["ann"],"value":1}"#, None, None),
        ] {
            assert_eq!(status_of(&raw(data), from.as_ref()).as_deref(), expected, "{data} {from:?}");
        }
    }
}
