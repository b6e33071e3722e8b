//! How subjects and parcels look in the folder. A channel's messages are published under its own name, so that users of
//! the library hear and say them; everything else is private to nodes. Who said it stands in the note.

use crate::header::{self, Header};
use std::sync::Arc;
use tavern_local::{Draft, Interest as Wish, Namespace, Publication};
use tavern_store::bus::BusMessage;
use tavern_store::interest::Interest;
use tavern_store::node::Writer;
use tavern_store::subject::Subject;

/// Where a subject is published.
pub fn place(prefix: &str, subject: &Subject) -> (Namespace, Vec<u8>) {
    match subject.channel() {
        Some(name) if subject.prefix() == prefix => (Namespace::Public, name),
        _ => (Namespace::Private, subject.as_str().as_bytes().to_vec()),
    }
}

/// What to listen to in the folder for an interest.
pub fn wishes(prefix: &str, interest: &Interest) -> Vec<Wish> {
    let private = |pattern: String| Wish::pattern(pattern).in_namespace(Namespace::Private);
    match interest {
        Interest::Channels { glob, .. } => vec![Wish::pattern(glob)],
        Interest::Subject(subject) if !subject.is_wide() => {
            let (space, name) = place(prefix, subject);
            vec![Wish::channel(name).in_namespace(space)]
        }
        Interest::Subject(subject) => {
            let text = subject.as_str();
            let inside = private(format!("{}*", &text[..text.len() - 1]));
            match subject.kind() {
                // The star of a glob does not match an empty name.
                ">" if subject.prefix() == prefix => vec![Wish::pattern("*"), Wish::channel(""), inside],
                kind if subject.prefix() == prefix && !kind.starts_with(['_', '>']) => {
                    vec![Wish::pattern(format!("{kind}#*")), Wish::channel(kind)]
                }
                _ => vec![inside],
            }
        }
    }
}

/// Where a node tells that words of its were lost: every node listens to it.
pub fn torn_place(prefix: &str) -> (Namespace, Vec<u8>) {
    (Namespace::Private, format!("{prefix}._torn").into_bytes())
}

pub fn torn_wish(prefix: &str) -> Wish {
    let (space, name) = torn_place(prefix);
    Wish::channel(name).in_namespace(space)
}

pub fn is_torn(prefix: &str, words: &Publication) -> bool {
    let (space, name) = torn_place(prefix);
    words.namespace() == space && words.channel() == name
}

/// What stands beside the payload in the folder.
pub fn note(parcel: &BusMessage) -> Vec<u8> {
    let mut note = Vec::with_capacity(header::length(parcel));
    header::write(parcel, &mut note);
    note
}

pub fn draft<'a>((space, channel): &'a (Namespace, Vec<u8>), note: &'a [u8], payload: &'a [u8]) -> Draft<'a> {
    Draft { namespace: *space, channel, payload, header: note }
}

/// What was said, if it is for nodes. A note that no node wrote is an outsider's.
pub fn parcel(prefix: &str, words: &Publication) -> Option<BusMessage> {
    let subject = match words.namespace() {
        Namespace::Public => Subject::of_channel(prefix, words.channel()).ok()?,
        Namespace::Private => Subject::parse(std::str::from_utf8(words.channel()).ok()?).ok()?,
    };
    // Whoever is no node numbers nothing; its place in the log does.
    let outsider = || Header { from: Writer::outsider(), n: words.id(), note: &[] };
    let Header { from, n, note } = header::read(words.header()).map_or_else(outsider, |(header, _)| header);
    if from.is_outsider() && words.namespace() == Namespace::Private {
        return None;
    }
    Some(BusMessage { subject, from, n, note: note.into(), payload: Arc::from(words.payload()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_go_by_their_own_name_and_the_rest_is_private() {
        let check = |subject: &Subject, space, name: &[u8]| {
            assert_eq!(place("tavern", subject), (space, name.to_vec()), "{subject}");
        };
        check(&Subject::of_channel("tavern", b"game#A").unwrap(), Namespace::Public, b"game#A");
        check(&Subject::of_channel("tavern", b"\xff").unwrap(), Namespace::Public, b"\xff");
        check(&Subject::of_channel("other", b"game#A").unwrap(), Namespace::Private, b"other.game.A");
        check(&Subject::new("tavern", "_shard", b"A").unwrap(), Namespace::Private, b"tavern._shard.A");
    }
}
