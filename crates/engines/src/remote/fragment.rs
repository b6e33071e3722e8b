//! How messages are numbered and split: a bus message is a prefix and a body; a body that is longer than the server
//! accepts is sent in several messages.
//!
//! Prefix: `TV`, version, flags, stream, serial. A stream is one connection of a node, chosen at random; its serials count
//! its messages, on all subjects. Body: the header of the message (`header`), then the payload.
//!
//! Must hold: when several subscriptions match and copies of a message arrive, only one is used; a message is
//! delivered whole or not at all. A message without a prefix is not a node's and is dropped, because its copies
//! cannot be told apart, and the server, not the bus, decides who may publish to clients.

use crate::header::{self, PacketHeader};
use std::collections::HashMap;
use tavern_store::{BusPacket, Subject};

const MARK: &[u8; 2] = b"TV";
const VERSION: u8 = 1;
const FIRST: u8 = 1;
const LAST: u8 = 2;
/// Earlier messages of this node, on another connection, may be lost; there is no body.
const LOSS: u8 = 4;
pub const PREFIX_BYTES: usize = 2 + 1 + 1 + 8 + 8;
/// The largest body: a session that migrates, with its mailbox.
pub const BODY_BYTES: usize = 16 * 1024 * 1024;
/// Streams that are remembered: nodes, and their earlier connections up to this many.
const STREAMS: usize = 4096;
/// The bytes of all incomplete messages.
const PARTIAL_BYTES: usize = 64 * 1024 * 1024;

/// Numbers the messages of one connection.
pub struct PacketNumbers {
    stream: u64,
    serial: u64,
}

impl PacketNumbers {
    pub fn new(stream: u64) -> PacketNumbers {
        PacketNumbers { stream, serial: 0 }
    }

    /// The lengths of the parts of a body of `length`, if it can be sent.
    pub fn parts(length: usize, max_message: usize) -> Option<impl Iterator<Item = usize>> {
        let room = max_message.checked_sub(PREFIX_BYTES).filter(|&room| room > 0 && length <= BODY_BYTES)?;
        let count = length.div_ceil(room).max(1);
        Some((0..count).map(move |at| (length - at * room).min(room)))
    }

    pub fn prefix(&mut self, first: bool, last: bool, out: &mut Vec<u8>) {
        self.write((FIRST * u8::from(first)) | (LAST * u8::from(last)), out);
    }

    /// The message that reports a loss.
    pub fn loss(&mut self, out: &mut Vec<u8>) {
        self.write(LOSS, out);
    }

    fn write(&mut self, flags: u8, out: &mut Vec<u8>) {
        self.serial += 1;
        out.extend_from_slice(MARK);
        out.extend_from_slice(&[VERSION, flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.serial.to_be_bytes());
    }
}

pub fn body_bytes(message: &BusPacket) -> usize {
    header::length(message) + message.payload.len()
}

pub fn body(message: &BusPacket, out: &mut Vec<u8>) {
    header::write(message, out);
    out.extend_from_slice(&message.payload);
}

fn open(subject: &Subject, body: &[u8]) -> Option<BusPacket> {
    let (PacketHeader { from, n, note }, payload) = header::read(body)?;
    Some(BusPacket { subject: subject.clone(), from, n, header: note.into(), payload: payload.into() })
}

/// Puts messages together from their parts.
#[derive(Default)]
pub struct Reassembler {
    /// This node's own stream; it knows its own losses.
    pub own: u64,
    streams: HashMap<u64, PartialPacket>,
    partial_bytes: usize,
}

#[derive(Default)]
struct PartialPacket {
    serial: u64,
    /// The incomplete message.
    partial: Option<(Subject, Vec<u8>)>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Reassembled {
    Message(BusPacket),
    /// A part of a message, or a copy.
    Nothing,
    /// A part of a message is missing.
    Incomplete(Subject),
    /// Both: the first was on that subject.
    MessageAfterIncomplete(Subject, BusPacket),
    /// A node reports that some of its messages were lost.
    Loss,
    /// Not from a node.
    Foreign,
}

impl Reassembler {
    pub fn read(&mut self, subject: &Subject, message: &[u8]) -> Reassembled {
        let Some((&[t, v, VERSION, flags], rest)) = message.split_first_chunk() else {
            return Reassembled::Foreign;
        };
        let Some((stream, rest)) = rest.split_first_chunk().filter(|_| [t, v] == *MARK) else {
            return Reassembled::Foreign;
        };
        let Some((serial, part)) = rest.split_first_chunk() else { return Reassembled::Foreign };
        let (stream, serial) = (u64::from_be_bytes(*stream), u64::from_be_bytes(*serial));
        if self.streams.len() >= STREAMS && !self.streams.contains_key(&stream) {
            self.streams.retain(|_, received| received.partial.is_some());
        }
        let received = self.streams.entry(stream).or_default();
        if serial <= received.serial {
            return Reassembled::Nothing;
        }
        let follows = serial == received.serial + 1;
        received.serial = serial;
        let partial = received.partial.take();
        self.partial_bytes -= partial.as_ref().map_or(0, |(_, body)| body.len());
        if flags & LOSS != 0 {
            return if stream == self.own { Reassembled::Nothing } else { Reassembled::Loss };
        }
        if flags & FIRST != 0 {
            let incomplete = partial.map(|(on, _)| on);
            if flags & LAST == 0 {
                self.partial_bytes += part.len();
                received.partial = Some((subject.clone(), part.to_vec()));
                return incomplete.map_or(Reassembled::Nothing, Reassembled::Incomplete);
            }
            return match (open(subject, part), incomplete) {
                (Some(message), None) => Reassembled::Message(message),
                (Some(message), Some(on)) => Reassembled::MessageAfterIncomplete(on, message),
                (None, Some(on)) => Reassembled::Incomplete(on),
                (None, None) => Reassembled::Foreign,
            };
        }
        match partial {
            Some((on, mut body))
                if follows
                    && on == *subject
                    && body.len() + part.len() <= BODY_BYTES
                    && self.partial_bytes + body.len() + part.len() <= PARTIAL_BYTES =>
            {
                body.extend_from_slice(part);
                if flags & LAST != 0 {
                    return open(subject, &body).map_or(Reassembled::Foreign, Reassembled::Message);
                }
                self.partial_bytes += body.len();
                received.partial = Some((on, body));
                Reassembled::Nothing
            }
            Some((on, _)) => Reassembled::Incomplete(on),
            // It started before this node listened.
            None => Reassembled::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tavern_domain::Epoch;
    use tavern_store::node::Writer;

    fn subject(rest: &str) -> Subject {
        Subject::new("p", "game", rest.as_bytes()).unwrap()
    }

    fn message(bytes: usize) -> BusPacket {
        let payload = (0..bytes).map(|at| at as u8).collect::<Vec<_>>().into();
        let (from, note) = (Writer::new("n1", Epoch(7)), Arc::from(*b"note"));
        BusPacket { subject: subject("A"), from, n: 9, header: note, payload }
    }

    fn messages(stream: &mut PacketNumbers, message: &BusPacket, max_message: usize) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        body(message, &mut whole);
        let lengths: Vec<usize> = PacketNumbers::parts(whole.len(), max_message).unwrap().collect();
        let mut rest = &whole[..];
        let mut messages = Vec::new();
        for (at, &length) in lengths.iter().enumerate() {
            let (part, after) = rest.split_at(length);
            rest = after;
            let mut message = Vec::new();
            stream.prefix(at == 0, at + 1 == lengths.len(), &mut message);
            message.extend_from_slice(part);
            assert!(message.len() <= max_message);
            messages.push(message);
        }
        messages
    }

    #[test]
    fn a_message_is_read_once_as_it_was_sent() {
        let (mut stream, mut reader) = (PacketNumbers::new(1), Reassembler::default());
        for bytes in [0, 1, 1000] {
            let sent = message(bytes);
            let parts = messages(&mut stream, &sent, 2000);
            assert_eq!(reader.read(&sent.subject, &parts[0]), Reassembled::Message(sent.clone()));
            assert_eq!(reader.read(&sent.subject, &parts[0]), Reassembled::Nothing, "a copy");
        }
    }

    #[test]
    fn a_long_message_is_put_together() {
        let (mut stream, mut reader) = (PacketNumbers::new(1), Reassembler::default());
        let sent = message(1000);
        let parts = messages(&mut stream, &sent, 100);
        assert!(parts.len() > 10);
        for (at, message) in parts.iter().enumerate() {
            let read = reader.read(&sent.subject, message);
            let expected =
                if at + 1 == parts.len() { Reassembled::Message(sent.clone()) } else { Reassembled::Nothing };
            assert_eq!(read, expected);
            assert_eq!(reader.read(&sent.subject, message), Reassembled::Nothing, "a copy");
        }
    }

    #[test]
    fn a_message_with_a_missing_part_is_reported_once() {
        let (mut stream, mut reader) = (PacketNumbers::new(1), Reassembler::default());
        let sent = message(300);
        let parts = messages(&mut stream, &sent, 100);
        assert_eq!(reader.read(&sent.subject, &parts[0]), Reassembled::Nothing);
        assert_eq!(reader.read(&sent.subject, &parts[2]), Reassembled::Incomplete(sent.subject.clone()));
        assert_eq!(reader.read(&sent.subject, &parts[3]), Reassembled::Nothing);
    }

    #[test]
    fn an_incomplete_message_is_reported_when_another_one_follows() {
        let (mut stream, mut reader) = (PacketNumbers::new(1), Reassembler::default());
        let (long, short) = (message(300), message(1));
        let parts = messages(&mut stream, &long, 100);
        assert_eq!(reader.read(&long.subject, &parts[0]), Reassembled::Nothing);
        let next = messages(&mut stream, &short, 100);
        let expected = Reassembled::MessageAfterIncomplete(long.subject.clone(), short.clone());
        assert_eq!(reader.read(&short.subject, &next[0]), expected);
    }

    #[test]
    fn streams_are_independent() {
        let (mut one, mut two, mut reader) =
            (PacketNumbers::new(1), PacketNumbers::new(2), Reassembler::default());
        let sent = message(150);
        let (first, second) = (messages(&mut one, &sent, 100), messages(&mut two, &sent, 100));
        let mut whole = 0;
        for message in first.iter().zip(&second).flat_map(|(a, b)| [a, b, a, b]) {
            whole += usize::from(matches!(reader.read(&sent.subject, message), Reassembled::Message(_)));
        }
        assert_eq!(whole, 2);
    }

    #[test]
    fn a_message_that_no_node_sent_is_foreign() {
        let mut reader = Reassembler::default();
        let mut prefix = Vec::new();
        PacketNumbers::new(3).prefix(true, true, &mut prefix);
        for message in [&b""[..], b"hello", b"TV\x02\x03aaaaaaaabbbbbbbb", b"TV\x01\x03aaaa", &prefix] {
            assert_eq!(reader.read(&subject("A"), message), Reassembled::Foreign);
        }
    }
}
