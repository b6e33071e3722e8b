//! Messages as bytes, one after the other: length and subject, length and message (`header`, payload).
//! Must hold: bytes that no node wrote end the batch instead of causing an allocation or a panic.

use crate::header::{self, PacketHeader};
use tavern_store::{BusPacket, Subject};

/// The longest message: a session that migrates, with its mailbox.
pub const MESSAGE_BYTES: usize = 16 * 1024 * 1024;

pub fn message_bytes(message: &BusPacket) -> usize {
    2 + message.subject.as_str().len() + 4 + header::length(message) + message.payload.len()
}

pub fn write(message: &BusPacket, out: &mut Vec<u8>) {
    let subject = message.subject.as_str().as_bytes();
    let bytes = header::length(message) + message.payload.len();
    out.extend_from_slice(&u16::try_from(subject.len()).expect("a subject is bounded").to_be_bytes());
    out.extend_from_slice(subject);
    out.extend_from_slice(&u32::try_from(bytes).expect("a message is bounded").to_be_bytes());
    header::write(message, out);
    out.extend_from_slice(&message.payload);
}

/// The messages of a batch, as far as they can be read, that are `wanted`.
pub fn read(mut bytes: &[u8], mut wanted: impl FnMut(&Subject) -> bool) -> Vec<BusPacket> {
    let mut messages = Vec::new();
    while let Some((subject, body, rest)) = split(bytes) {
        bytes = rest;
        let subject = std::str::from_utf8(subject).ok().and_then(|text| Subject::parse(text).ok());
        let Some(subject) = subject.filter(&mut wanted) else { continue };
        let Some((PacketHeader { from, n, note }, payload)) = header::read(body) else { continue };
        messages.push(BusPacket { subject, from, n, header: note.into(), payload: payload.into() });
    }
    messages
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    let (subject, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let (length, rest) = rest.split_first_chunk()?;
    let (body, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    Some((subject, body, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tavern_domain::Epoch;
    use tavern_store::Writer;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let message = |rest: &str, n| BusPacket {
            subject: Subject::new("p", "game", rest.as_bytes()).unwrap(),
            from: Writer::new("n1", Epoch(7)),
            n,
            header: Arc::from(*b"note"),
            payload: vec![n as u8; n as usize].into(),
        };
        let messages = [message("A", 0), message("B", 300), message("A", 2)];
        let mut bytes = Vec::new();
        messages.iter().for_each(|message| write(message, &mut bytes));
        assert_eq!(bytes.len(), messages.iter().map(message_bytes).sum::<usize>());
        assert_eq!(read(&bytes, |_| true), messages);
        assert_eq!(read(&bytes, |subject| *subject == messages[1].subject), [messages[1].clone()]);
        for end in 0..bytes.len() {
            assert!(read(&bytes[..end], |_| true).len() < 3, "cut at {end}");
        }
    }
}
