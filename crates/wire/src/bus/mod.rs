//! What nodes send each other, as protobuf: the messages of `proto/tavern.proto`. Fields that are not known are skipped, so
//! that two releases can run side by side. Must hold: what was written is read back the same; every message names its kind;
//! bytes that cannot be read are no message.

pub mod control;
pub mod header;
pub mod load;
mod load_message;
mod message;
pub mod migration;
pub mod people;
pub mod presence;
pub mod service;

use crate::bus::control::{ControlReply, ControlRequest, NodeCounts, PusherCount};
use crate::bus::load::{LoadAnswer, LoadQuestion};
use crate::bus::migration::MigrationRequest;
use message::{Empty, EnvelopeKind};
use prost::Message as _;
use std::sync::Arc;
use tavern_domain::presence::{PresenceUpdate, UserUpdate, Visibility};

/// A message from another node. Channel messages are not among them: their payload is what was published, with a
/// [`header`].
#[derive(Clone, Debug)]
pub enum BusMessage {
    /// The presence of the channel that the subject names has changed.
    Presence(PresenceUpdate),
    /// Something about the user that the subject names.
    Person(UserUpdate),
    /// A session moves between nodes.
    Session(MigrationRequest),
    /// A node that stops has left sessions in the store.
    NodeLeft,
    /// A subscription has events to deliver. An empty name: subscriptions were changed.
    Subscription(Arc<str>),
    /// An order about a user.
    Control(ControlRequest),
    /// What one shard has done about it.
    ControlReply(ControlReply),
    /// How much the sender has.
    Counts(NodeCounts),
    /// A server starts under the name of the node that gets this. The name under which it waits for the answer.
    NameQuestion(Arc<str>),
    /// The sender has that name; its address.
    NameAnswer(Arc<str>),
    /// How much load does the node that gets this have?
    LoadQuestion(LoadQuestion),
    LoadAnswer(Box<LoadAnswer>),
    /// The subscriptions to a channel of a Pusher app have changed.
    PusherCount(PusherCount),
}

impl BusMessage {
    /// `None`: not a message that this release understands.
    pub fn decode(bytes: &[u8]) -> Option<BusMessage> {
        Some(match message::Envelope::decode(bytes).ok()?.kind? {
            EnvelopeKind::Presence(change) => BusMessage::Presence(presence::read(change)?),
            EnvelopeKind::User(update) => BusMessage::Person(people::read(update)?),
            EnvelopeKind::Migration(step) => BusMessage::Session(migration::read(step)?),
            EnvelopeKind::NodeLeft(_) => BusMessage::NodeLeft,
            EnvelopeKind::Subscription(name) => BusMessage::Subscription(name.into()),
            EnvelopeKind::ControlRequest(request) => BusMessage::Control(control::read_request(request)?),
            EnvelopeKind::ControlReply(reply) => BusMessage::ControlReply(control::read_reply(reply)?),
            EnvelopeKind::NodeCounts(counts) => BusMessage::Counts(control::read_counts(counts)),
            EnvelopeKind::NameQuestion(asker) => BusMessage::NameQuestion(asker.into()),
            EnvelopeKind::NameAnswer(address) => BusMessage::NameAnswer(address.into()),
            EnvelopeKind::LoadQuestion(question) => BusMessage::LoadQuestion(load::read_question(question)),
            EnvelopeKind::LoadAnswer(answer) => BusMessage::LoadAnswer(Box::new(load::read_answer(answer))),
            EnvelopeKind::PusherCount(count) => BusMessage::PusherCount(control::read_pusher_count(count)),
        })
    }
}

/// The message that a node has left sessions in the store.
pub fn node_left() -> Vec<u8> {
    envelope(EnvelopeKind::NodeLeft(Empty {}))
}

/// The message that a subscription has events to deliver; with an empty name, that subscriptions were changed.
pub fn subscription(name: &str) -> Vec<u8> {
    envelope(EnvelopeKind::Subscription(name.into()))
}

/// Asks the node of a name for its address.
pub fn name_question(asker: &str) -> Vec<u8> {
    envelope(EnvelopeKind::NameQuestion(asker.into()))
}

/// The address of the node that was asked.
pub fn name_answer(address: &str) -> Vec<u8> {
    envelope(EnvelopeKind::NameAnswer(address.into()))
}

fn envelope(kind: EnvelopeKind) -> Vec<u8> {
    message::Envelope { kind: Some(kind) }.encode_to_vec()
}

fn visibility(number: i32) -> Option<Visibility> {
    match number {
        0 => Some(Visibility::Everyone),
        1 => Some(Visibility::FollowersIFollow),
        2 => Some(Visibility::Nobody),
        _ => None,
    }
}

fn visibility_number(visibility: Visibility) -> i32 {
    match visibility {
        Visibility::Everyone => 0,
        Visibility::FollowersIFollow => 1,
        Visibility::Nobody => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_without_content_name_their_kind_too() {
        assert!(matches!(BusMessage::decode(&node_left()), Some(BusMessage::NodeLeft)));
        for name in ["orders", ""] {
            match BusMessage::decode(&subscription(name)) {
                Some(BusMessage::Subscription(read)) => assert_eq!(&*read, name),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn bytes_without_a_known_kind_are_not_a_message() {
        // The last one is field 99, a text: a kind of a later release.
        for bytes in [&b""[..], b"{}", b"\xff", b"\x9a\x06\x02hi"] {
            assert!(BusMessage::decode(bytes).is_none(), "{bytes:?}");
        }
    }
}
