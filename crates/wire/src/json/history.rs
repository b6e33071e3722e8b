//! Channel history: a page of it, and what `subscribe` and `publish` answer for a channel that has one.

use super::encode::{MessageSender, Payload, message_content, number, string};
use tavern_domain::{HistoryPosition, HistoryStamp};

/// A message of a page.
#[derive(Clone, Copy, Debug)]
pub struct HistoryEntry<'a> {
    pub offset: u64,
    /// Milliseconds since 1970.
    pub at: u64,
    /// Given by the publisher.
    pub message_id: Option<&'a str>,
    pub payload: Payload<'a>,
    pub from: Option<MessageSender<'a>>,
}

/// `{"epoch":…,"offset":…,"messages":[…],"more":…}`.
pub fn page<'a>(
    out: &mut Vec<u8>,
    head: HistoryPosition,
    messages: impl Iterator<Item = HistoryEntry<'a>>,
    more: bool,
) {
    out.push(b'{');
    position(out, head);
    out.extend_from_slice(b",\"messages\":[");
    for (n, message) in messages.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        entry(out, &message);
    }
    out.extend_from_slice(b"],\"more\":");
    out.extend_from_slice(if more { b"true}" } else { b"false}" });
}

fn entry(out: &mut Vec<u8>, message: &HistoryEntry<'_>) {
    out.extend_from_slice(b"{\"offset\":");
    number(out, message.offset);
    out.extend_from_slice(b",\"at\":");
    number(out, message.at);
    if let Some(id) = message.message_id {
        out.extend_from_slice(b",\"message_id\":");
        string(out, id);
    }
    out.push(b',');
    message_content(out, message.payload, message.from);
    out.push(b'}');
}

/// What `subscribe` answers for a channel with history: the position from which messages follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscribedAt<'a> {
    /// The channel that is used instead of the one that was asked for.
    pub other_channel: Option<&'a str>,
    pub position: HistoryPosition,
    /// Whether everything after the given position follows; None: no position was given.
    pub recovered: Option<bool>,
}

pub fn subscribed(out: &mut Vec<u8>, reply: &SubscribedAt<'_>) {
    out.push(b'{');
    channel(out, reply.other_channel);
    position(out, reply.position);
    if let Some(recovered) = reply.recovered {
        out.extend_from_slice(b",\"recovered\":");
        out.extend_from_slice(if recovered { b"true" } else { b"false" });
    }
    out.push(b'}');
}

/// What `publish` answers when the message is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedAt<'a> {
    pub receivers: u32,
    pub other_channel: Option<&'a str>,
    pub stamp: HistoryStamp,
    /// A message with this id was stored before: this is its place, and it was not delivered again.
    pub duplicate: bool,
}

pub fn published(out: &mut Vec<u8>, reply: &PublishedAt<'_>) {
    out.push(b'{');
    channel(out, reply.other_channel);
    out.extend_from_slice(b"\"receivers\":");
    number(out, reply.receivers.into());
    out.push(b',');
    position(out, reply.stamp.position);
    if reply.duplicate {
        out.extend_from_slice(b",\"duplicate\":true");
    }
    out.push(b'}');
}

fn channel(out: &mut Vec<u8>, name: Option<&str>) {
    if let Some(name) = name {
        out.extend_from_slice(b"\"channel\":");
        string(out, name);
        out.push(b',');
    }
}

fn position(out: &mut Vec<u8>, position: HistoryPosition) {
    out.extend_from_slice(b"\"epoch\":");
    number(out, position.epoch);
    out.extend_from_slice(b",\"offset\":");
    number(out, position.offset);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tavern_domain::Time;

    fn check(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
        let mut out = Vec::new();
        write(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    const HEAD: HistoryPosition = HistoryPosition { epoch: 7, offset: 9 };

    #[test]
    fn a_page_names_its_head_and_every_message() {
        check(
            |out| page(out, HEAD, [].into_iter(), false),
            r#"{"epoch":7,"offset":9,"messages":[],"more":false}"#,
        );
        let from = MessageSender { user: Some("ann"), client: None };
        let one = HistoryEntry {
            offset: 8,
            at: 5,
            message_id: Some("m\"1"),
            payload: Payload::Json(b"{}"),
            from: Some(from),
        };
        let two =
            HistoryEntry { offset: 9, message_id: None, payload: Payload::Bytes(b"hi"), from: None, ..one };
        let expected = r#"{"epoch":7,"offset":9,"messages":[{"offset":8,"at":5,"message_id":"m\"1","data":{},"from":{"user":"ann"}},{"offset":9,"at":5,"data":"hi"}],"more":true}"#;
        check(|out| page(out, HEAD, [one, two].into_iter(), true), expected);
    }

    #[test]
    fn replies_name_the_position() {
        let reply = SubscribedAt { other_channel: None, position: HEAD, recovered: None };
        check(|out| subscribed(out, &reply), r#"{"epoch":7,"offset":9}"#);
        let other = SubscribedAt { other_channel: Some("a#b"), recovered: Some(false), ..reply };
        check(|out| subscribed(out, &other), r##"{"channel":"a#b","epoch":7,"offset":9,"recovered":false}"##);
        let stamp = HistoryStamp { position: HEAD, at: Time(1) };
        let reply = PublishedAt { receivers: 2, other_channel: None, stamp, duplicate: false };
        check(|out| published(out, &reply), r#"{"receivers":2,"epoch":7,"offset":9}"#);
        let again = PublishedAt { duplicate: true, ..reply };
        check(|out| published(out, &again), r#"{"receivers":2,"epoch":7,"offset":9,"duplicate":true}"#);
    }
}
