//! Presence as JSON: what watchers are told, who is there, and what a state means. Knows the shapes; not the rules.

use super::encode::{number, string};
use serde_json::Value;
use std::sync::Arc;
use tavern_domain::presence::{Change, Difference, Entry, Gone, Member, Mode, News, State};

/// A digest of what JSON means: equal values give the same number, however they are written. Stable, because it is stored.
pub fn meaning(json: &str) -> u64 {
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    match serde_json::from_str(json) {
        Ok(value) => digest.value(&value),
        Err(_) => digest.bytes(b'?', json.as_bytes()),
    }
    digest.0
}

struct Digest(u64);

impl Digest {
    fn bytes(&mut self, kind: u8, bytes: &[u8]) {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in [kind].iter().chain(&length).chain(bytes) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Null => self.bytes(b'n', b""),
            Value::Bool(on) => self.bytes(b'b', &[u8::from(*on)]),
            // As a float where that is exact enough to compare: 1 and 1.0 are the same number.
            Value::Number(number) => match number.as_f64() {
                // Adding zero makes the negative one plain.
                Some(float) if float.abs() < 9e15 => self.bytes(b'd', &(float + 0.0).to_le_bytes()),
                _ => self.bytes(b'i', number.to_string().as_bytes()),
            },
            Value::String(text) => self.bytes(b's', text.as_bytes()),
            Value::Array(items) => {
                self.bytes(b'a', &(items.len() as u64).to_le_bytes());
                items.iter().for_each(|item| self.value(item));
            }
            Value::Object(members) => {
                self.bytes(b'o', &(members.len() as u64).to_le_bytes());
                let mut members: Vec<(&String, &Value)> = members.iter().collect();
                members.sort_by_key(|(name, _)| *name);
                for (name, value) in members {
                    self.bytes(b'k', name.as_bytes());
                    self.value(value);
                }
            }
        }
    }
}

/// The tail of the event for one change, at the version it gave the channel.
pub fn change_tail(out: &mut Vec<u8>, channel: &str, news: &News, change: &Change, version: u64) {
    let event = match change {
        Change::UserOnline => "user_online",
        Change::ClientOnline { .. } => "client_online",
        Change::ClientUpdated { .. } => "client_updated",
        Change::ClientOffline { .. } => "client_offline",
        Change::UserOffline { .. } => "user_offline",
        Change::NotFound => return,
    };
    head(out, event, channel);
    member(out, "version", |out| number(out, version));
    member(out, "user", |out| user(out, &news.user, news.anonymous));
    match change {
        Change::UserOnline => member(out, "name", |out| optional(out, news.name.as_ref())),
        Change::ClientOnline { client, state: given } => {
            member(out, "client", |out| string(out, &client.to_string()));
            member(out, "state", |out| state(out, given.as_ref()));
        }
        Change::ClientUpdated { client, state: given } => {
            member(out, "client", |out| string(out, &client.to_string()));
            member(out, "state", |out| state(out, Some(given)));
        }
        Change::ClientOffline { client, reason } => {
            member(out, "client", |out| string(out, &client.to_string()));
            member(out, "explicit", |out| boolean(out, reason.is_explicit()));
            member(out, "reason", |out| string(out, reason.as_str()));
        }
        Change::UserOffline { last_seen, reason } => {
            member(out, "last_seen", |out| number(out, last_seen.ms()));
            member(out, "reason", |out| string(out, reason.as_str()));
        }
        Change::NotFound => {}
    }
    out.push(b'}');
}

/// The tail of a `presence` event: what is different, however it happened.
pub fn difference_tail(out: &mut Vec<u8>, channel: &str, difference: &Difference) {
    head(out, "presence", channel);
    member(out, "from_version", |out| number(out, difference.from));
    member(out, "version", |out| number(out, difference.to));
    member(out, "joined", |out| list(out, &difference.joined, entry));
    member(out, "updated", |out| list(out, &difference.updated, entry));
    member(out, "left", |out| list(out, &difference.left, gone));
    member(out, "count", |out| number(out, difference.count as u64));
    out.push(b'}');
}

/// The tail of a `presence` event in a crowd: only how many there are.
pub fn count_tail(out: &mut Vec<u8>, channel: &str, difference: &Difference) {
    head(out, "presence", channel);
    member(out, "from_version", |out| number(out, difference.from));
    member(out, "version", |out| number(out, difference.to));
    member(out, "count", |out| number(out, difference.count as u64));
    out.push(b'}');
}

/// The tail of the event that says how watchers are told from now on.
pub fn mode_tail(out: &mut Vec<u8>, channel: &str, mode: Mode, version: u64) {
    head(out, "presence_mode", channel);
    member(out, "mode", |out| string(out, mode.as_str()));
    member(out, "version", |out| number(out, version));
    out.push(b'}');
}

/// Who is in a channel, or a part of them.
pub struct Members<'a> {
    pub version: u64,
    pub count: u64,
    /// Absent: only the count was asked for.
    pub users: Option<Vec<(&'a Arc<str>, &'a Member)>>,
    /// Ask again after this one.
    pub next: Option<&'a str>,
}

pub fn members(out: &mut Vec<u8>, members: &Members<'_>) {
    out.extend_from_slice(b"{\"version\":");
    number(out, members.version);
    if let Some(users) = &members.users {
        member(out, "users", |out| list(out, users, |out, (name, shown)| present(out, name, shown)));
    }
    member(out, "count", |out| number(out, members.count));
    if let Some(next) = members.next {
        member(out, "next", |out| string(out, next));
    }
    out.push(b'}');
}

fn present(out: &mut Vec<u8>, name: &Arc<str>, shown: &Member) {
    out.extend_from_slice(b"{\"user\":");
    user(out, name, shown.anonymous);
    member(out, "name", |out| optional(out, shown.name.as_ref()));
    let clients: Vec<_> = shown.clients.iter().collect();
    member(out, "clients", |out| {
        list(out, &clients, |out, (client, seen)| {
            out.extend_from_slice(b"{\"client\":");
            string(out, &client.to_string());
            member(out, "state", |out| state(out, seen.state.as_ref()));
            member(out, "since", |out| number(out, seen.since.ms()));
            out.push(b'}');
        });
    });
    member(out, "since", |out| number(out, shown.since.ms()));
    if shown.leaving {
        member(out, "leaving", |out| boolean(out, true));
    }
    out.push(b'}');
}

fn entry(out: &mut Vec<u8>, entry: &Entry) {
    out.extend_from_slice(b"{\"user\":");
    user(out, &entry.user, entry.anonymous);
    if let Some(client) = entry.client {
        member(out, "client", |out| string(out, &client.to_string()));
        member(out, "state", |out| state(out, entry.state.as_ref()));
    }
    out.push(b'}');
}

fn gone(out: &mut Vec<u8>, gone: &Gone) {
    out.extend_from_slice(b"{\"user\":");
    user(out, &gone.user, gone.anonymous);
    if let Some(client) = gone.client {
        member(out, "client", |out| string(out, &client.to_string()));
    } else if gone.anonymous {
        // Somebody without a name is one client, and known by it.
        member(out, "client", |out| string(out, &gone.user));
    }
    out.push(b'}');
}

fn head(out: &mut Vec<u8>, event: &str, channel: &str) {
    out.extend_from_slice(b",\"event\":");
    string(out, event);
    member(out, "channel", |out| string(out, channel));
}

fn member(out: &mut Vec<u8>, name: &str, value: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    value(out);
}

fn list<T>(out: &mut Vec<u8>, items: &[T], mut each: impl FnMut(&mut Vec<u8>, &T)) {
    out.push(b'[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        each(out, item);
    }
    out.push(b']');
}

/// Somebody without a name is counted, never named.
fn user(out: &mut Vec<u8>, name: &str, anonymous: bool) {
    if anonymous { out.extend_from_slice(b"null") } else { string(out, name) }
}

fn optional(out: &mut Vec<u8>, text: Option<&Arc<str>>) {
    match text {
        Some(text) => string(out, text),
        None => out.extend_from_slice(b"null"),
    }
}

fn state(out: &mut Vec<u8>, state: Option<&State>) {
    out.extend_from_slice(state.map_or(b"null", |state| state.text.as_bytes()));
}

fn boolean(out: &mut Vec<u8>, on: bool) {
    out.extend_from_slice(if on { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::presence::{Departure, Seen};
    use tavern_domain::{ClientId, Time};

    #[test]
    fn equal_values_mean_the_same_however_they_are_written() {
        let same = [
            (r#"{"a":1,"b":[true,null]}"#, r#"{ "b" : [true , null], "a" : 1.0 }"#),
            ("\"ü\"", "\"\\u00fc\""),
            ("0", "-0e5"),
        ];
        for (one, other) in same {
            assert_eq!(meaning(one), meaning(other), "{one} {other}");
        }
        let all = [
            "null",
            "0",
            "1",
            "\"1\"",
            "[]",
            "{}",
            "[[]]",
            "[1]",
            "{\"a\":1}",
            "{\"a\":[1]}",
            "false",
            "\"\"",
        ];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| meaning(one) != meaning(other)), "{one}");
        }
        assert_eq!(meaning("{}"), meaning(" {} "));
        assert_ne!(meaning("9007199254740993000"), meaning("9007199254740992000"));
    }

    fn check(change: Change, expected: &str) {
        let news = News {
            user: "ann".into(),
            name: Some("Ann".into()),
            anonymous: false,
            at: Time(1),
            changes: Vec::new(),
            to: 9,
            begins: false,
        };
        let mut out = Vec::new();
        change_tail(&mut out, "game#A", &news, &change, 9);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn every_change_has_its_event() {
        let client = ClientId::from_random(1);
        let state = State { text: "{\"x\":1}".into(), meaning: 1 };
        check(
            Change::UserOnline,
            r#","event":"user_online","channel":"game#A","version":9,"user":"ann","name":"Ann"}"#,
        );
        check(
            Change::ClientOnline { client, state: None },
            r#","event":"client_online","channel":"game#A","version":9,"user":"ann","client":"0000000000000001","state":null}"#,
        );
        check(
            Change::ClientUpdated { client, state },
            r#","event":"client_updated","channel":"game#A","version":9,"user":"ann","client":"0000000000000001","state":{"x":1}}"#,
        );
        check(
            Change::ClientOffline { client, reason: Departure::NodeDown },
            r#","event":"client_offline","channel":"game#A","version":9,"user":"ann","client":"0000000000000001","explicit":false,"reason":"node_down"}"#,
        );
        check(
            Change::UserOffline { last_seen: Time(5), reason: Departure::Left },
            r#","event":"user_offline","channel":"game#A","version":9,"user":"ann","last_seen":5,"reason":"left"}"#,
        );
    }

    #[test]
    fn members_are_shown_by_user_and_the_nameless_without_a_name() {
        let client = ClientId::from_random(1);
        let seen = Seen { state: None, since: Time(2) };
        let ann = Member { since: Time(1), clients: [(client, seen)].into(), ..Member::default() };
        let ghost = Member { anonymous: true, leaving: true, ..Member::default() };
        let (name, id): (Arc<str>, Arc<str>) = ("ann".into(), "0000000000000002".into());
        let shown = Members {
            version: 7,
            count: 3,
            users: Some(vec![(&name, &ann), (&id, &ghost)]),
            next: Some("x"),
        };
        let mut out = Vec::new();
        members(&mut out, &shown);
        let expected = r#"{"version":7,"users":[{"user":"ann","name":null,"clients":[{"client":"0000000000000001","state":null,"since":2}],"since":1},{"user":null,"name":null,"clients":[],"since":0,"leaving":true}],"count":3,"next":"x"}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_difference_shows_what_is_there_now() {
        let client = Some(ClientId::from_random(1));
        let entry = Entry { user: "ann".into(), anonymous: false, client, state: None };
        let ghost = Gone { user: "0000000000000009".into(), anonymous: true, client: None };
        let difference = Difference {
            from: 3,
            to: 8,
            joined: vec![entry],
            left: vec![Gone { user: "bob".into(), anonymous: false, client: None }, ghost],
            count: 4,
            ..Difference::default()
        };
        let mut out = Vec::new();
        difference_tail(&mut out, "game#A", &difference);
        let expected = r#","event":"presence","channel":"game#A","from_version":3,"version":8,"joined":[{"user":"ann","client":"0000000000000001","state":null}],"updated":[],"left":[{"user":"bob"},{"user":null,"client":"0000000000000009"}],"count":4}"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
