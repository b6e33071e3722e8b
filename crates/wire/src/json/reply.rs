//! Bodies of replies: what `hello`, a poll, `publish` and `subscribe` answer.

use super::encode::{number, string};

/// What `hello` answers.
#[derive(Clone, Copy, Debug)]
pub struct HelloReply<'a> {
    /// The session secret.
    pub session: &'a str,
    pub client: &'a str,
    pub user: Option<&'a str>,
    pub node: &'a str,
    pub epoch: u64,
    /// Of the server: clients send newer members only to servers that know them.
    pub version: &'a str,
    pub resumed: bool,
    /// The client claimed events that the mailbox never had: its count starts again.
    pub reset: bool,
    pub seq: u64,
    pub heartbeat_ms: u64,
    /// The longest frame that the server takes.
    pub frame_bytes: u64,
    /// The snapshot of the user's party as JSON; None: not known, and left out.
    pub party: Option<&'a str>,
}

pub fn hello(out: &mut Vec<u8>, reply: &HelloReply<'_>) {
    out.extend_from_slice(b"{\"session\":");
    string(out, reply.session);
    out.extend_from_slice(b",\"client\":");
    string(out, reply.client);
    out.extend_from_slice(b",\"user\":");
    match reply.user {
        Some(user) => string(out, user),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"node\":");
    string(out, reply.node);
    member(out, ",\"epoch\":", reply.epoch);
    out.extend_from_slice(b",\"version\":");
    string(out, reply.version);
    flag(out, ",\"resumed\":", reply.resumed);
    if reply.reset {
        flag(out, ",\"reset\":", true);
    }
    member(out, ",\"seq\":", reply.seq);
    member(out, ",\"heartbeat_ms\":", reply.heartbeat_ms);
    member(out, ",\"frame_bytes\":", reply.frame_bytes);
    party(out, reply.party);
    out.push(b'}');
}

/// The beginning of a poll's answer; its events follow, each with a comma behind it.
pub fn poll_head(out: &mut Vec<u8>, session: &str) {
    out.extend_from_slice(b"{\"session\":");
    string(out, session);
    out.extend_from_slice(b",\"events\":[");
}

/// What follows the events of a poll's answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct PollTail<'a> {
    pub cursor: u64,
    /// More events wait than fit into this answer.
    pub more: bool,
    pub gap: bool,
    pub reset: bool,
    pub superseded: bool,
    pub party: Option<&'a str>,
}

pub fn poll_tail(out: &mut Vec<u8>, tail: &PollTail<'_>) {
    if out.last() == Some(&b',') {
        out.pop();
    }
    member(out, "],\"cursor\":", tail.cursor);
    flag(out, ",\"more\":", tail.more);
    let flags = [("gap", tail.gap), ("reset", tail.reset), ("superseded", tail.superseded)];
    for (name, _) in flags.into_iter().filter(|(_, on)| *on) {
        out.extend_from_slice(b",\"");
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b"\":true");
    }
    party(out, tail.party);
    out.push(b'}');
}

/// How many subscriptions a message reached, and on which channel when that is not the one that was named.
pub fn published(out: &mut Vec<u8>, receivers: u32, other_channel: Option<&str>) {
    member(out, "{\"receivers\":", receivers.into());
    if let Some(channel) = other_channel {
        out.extend_from_slice(b",\"channel\":");
        string(out, channel);
    }
    out.push(b'}');
}

/// The channel that is used instead of the one that was asked for.
pub fn channel(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"{\"channel\":");
    string(out, name);
    out.push(b'}');
}

/// The members of a channel, given as JSON.
pub fn members(out: &mut Vec<u8>, members: &[u8]) {
    out.extend_from_slice(b"{\"members\":");
    out.extend_from_slice(members);
    out.push(b'}');
}

fn party(out: &mut Vec<u8>, snapshot: Option<&str>) {
    if let Some(snapshot) = snapshot {
        out.extend_from_slice(b",\"party\":");
        out.extend_from_slice(snapshot.as_bytes());
    }
}

fn member(out: &mut Vec<u8>, name: &str, value: u64) {
    out.extend_from_slice(name.as_bytes());
    number(out, value);
}

fn flag(out: &mut Vec<u8>, name: &str, on: bool) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(if on { b"true" } else { b"false" });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn hello_names_the_session_and_leaves_out_what_is_not_known() {
        let reply = HelloReply {
            session: "k~n1",
            client: "c",
            user: None,
            node: "n1",
            epoch: 3,
            version: "1.2.0",
            resumed: false,
            reset: false,
            seq: 7,
            heartbeat_ms: 15_000,
            frame_bytes: 69_632,
            party: None,
        };
        let expected = r#"{"session":"k~n1","client":"c","user":null,"node":"n1","epoch":3,"version":"1.2.0","resumed":false,"seq":7,"heartbeat_ms":15000,"frame_bytes":69632}"#;
        assert_eq!(text(|out| hello(out, &reply)), expected);
        let known = HelloReply { user: Some("a\"b"), reset: true, party: Some("null"), ..reply };
        let expected = r#"{"session":"k~n1","client":"c","user":"a\"b","node":"n1","epoch":3,"version":"1.2.0","resumed":false,"reset":true,"seq":7,"heartbeat_ms":15000,"frame_bytes":69632,"party":null}"#;
        assert_eq!(text(|out| hello(out, &known)), expected);
    }

    #[test]
    fn poll_answer_is_valid_with_and_without_events() {
        let write = |events: &'static [u8]| {
            text(|out| {
                poll_head(out, "k~n1");
                out.extend_from_slice(events);
                poll_tail(out, &PollTail { cursor: 2, gap: true, ..PollTail::default() });
            })
        };
        let empty = r#"{"session":"k~n1","events":[],"cursor":2,"more":false,"gap":true}"#;
        assert_eq!(write(b""), empty);
        let one = r#"{"session":"k~n1","events":[{"seq":2}],"cursor":2,"more":false,"gap":true}"#;
        assert_eq!(write(b"{\"seq\":2},"), one);
    }

    #[test]
    fn publish_names_another_channel_only_if_there_is_one() {
        assert_eq!(text(|out| published(out, 3, None)), r#"{"receivers":3}"#);
        assert_eq!(text(|out| published(out, 0, Some("a#b"))), r##"{"receivers":0,"channel":"a#b"}"##);
    }
}
