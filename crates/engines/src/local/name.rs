//! How subjects and bus messages are stored in the folder. A channel's messages are published under its own name, so that
//! users of the library can receive and publish them; everything else is private to nodes. The sender is in the header.

use crate::header::{self, PacketHeader};
use std::sync::Arc;
use tavern_local::{ChannelNamespace, Draft, Interest as FolderInterest, Publication};
use tavern_store::{BusPacket, Interest, Subject, Writer};

/// Everything that is published in the folder.
pub fn everything() -> [FolderInterest; 2] {
    [
        FolderInterest::everything(ChannelNamespace::Public),
        FolderInterest::everything(ChannelNamespace::Private),
    ]
}

/// Where a subject is published.
pub fn place(prefix: &str, subject: &Subject) -> (ChannelNamespace, Vec<u8>) {
    match subject.channel() {
        Some(name) if subject.prefix() == prefix => (ChannelNamespace::Public, name),
        _ => (ChannelNamespace::Private, subject.as_str().as_bytes().to_vec()),
    }
}

/// What to subscribe to in the folder for an interest.
pub fn interests(prefix: &str, interest: &Interest) -> Vec<FolderInterest> {
    let private = |pattern: String| FolderInterest::pattern(pattern).in_namespace(ChannelNamespace::Private);
    match interest {
        Interest::Channels { glob, .. } => vec![FolderInterest::pattern(glob)],
        Interest::Subject(subject) if !subject.is_wide() => {
            let (space, name) = place(prefix, subject);
            vec![FolderInterest::channel(name).in_namespace(space)]
        }
        Interest::Subject(subject) => {
            let text = subject.as_str();
            let inside = private(format!("{}*", &text[..text.len() - 1]));
            match subject.kind() {
                // The star of a glob does not match an empty name.
                ">" if subject.prefix() == prefix => {
                    vec![FolderInterest::pattern("*"), FolderInterest::channel(""), inside]
                }
                kind if subject.prefix() == prefix && !kind.starts_with(['_', '>']) => {
                    vec![FolderInterest::pattern(format!("{kind}#*")), FolderInterest::channel(kind)]
                }
                _ => vec![inside],
            }
        }
    }
}

/// Where a node reports that some of its messages were lost: every node listens to it.
pub fn loss_place(prefix: &str) -> (ChannelNamespace, Vec<u8>) {
    (ChannelNamespace::Private, format!("{prefix}._loss").into_bytes())
}

pub fn loss_interest(prefix: &str) -> FolderInterest {
    let (space, name) = loss_place(prefix);
    FolderInterest::channel(name).in_namespace(space)
}

pub fn is_loss(prefix: &str, publication: &Publication) -> bool {
    let (space, name) = loss_place(prefix);
    publication.namespace() == space && publication.channel() == name
}

/// The header that is stored with the payload.
pub fn header(message: &BusPacket) -> Vec<u8> {
    let mut out = Vec::with_capacity(header::length(message));
    header::write(message, &mut out);
    out
}

pub fn draft<'a>(
    (space, channel): &'a (ChannelNamespace, Vec<u8>),
    header: &'a [u8],
    payload: &'a [u8],
) -> Draft<'a> {
    Draft { namespace: *space, channel, payload, header }
}

/// A message for nodes. Without a node's header it is from an outsider.
pub fn message(prefix: &str, publication: &Publication) -> Option<BusPacket> {
    let subject = match publication.namespace() {
        ChannelNamespace::Public => Subject::of_channel(prefix, publication.channel()).ok()?,
        ChannelNamespace::Private => Subject::parse(std::str::from_utf8(publication.channel()).ok()?).ok()?,
    };
    // An outsider does not number its messages: the id in the log is the number.
    let outsider = || PacketHeader { from: Writer::outsider(), n: publication.id(), note: &[] };
    let PacketHeader { from, n, note } =
        header::read(publication.header()).map_or_else(outsider, |(header, _)| header);
    if from.is_outsider() && publication.namespace() == ChannelNamespace::Private {
        return None;
    }
    Some(BusPacket { subject, from, n, header: note.into(), payload: Arc::from(publication.payload()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_go_by_their_own_name_and_the_rest_is_private() {
        let check = |subject: &Subject, space, name: &[u8]| {
            assert_eq!(place("tavern", subject), (space, name.to_vec()), "{subject}");
        };
        check(&Subject::of_channel("tavern", b"game#A").unwrap(), ChannelNamespace::Public, b"game#A");
        check(&Subject::of_channel("tavern", b"\xff").unwrap(), ChannelNamespace::Public, b"\xff");
        check(&Subject::of_channel("other", b"game#A").unwrap(), ChannelNamespace::Private, b"other.game.A");
        check(
            &Subject::new("tavern", "_shard", b"A").unwrap(),
            ChannelNamespace::Private,
            b"tavern._shard.A",
        );
    }
}
