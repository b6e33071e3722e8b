//! The header of a bus message: who sent it, its number, and the sender's note. On a server it is written before the
//! payload, in a folder into a separate column. Fixed binary rather than protobuf: it is read and written for every
//! message of the cluster. Must hold: bytes that were not written by a node are not a header.
//!
//! | bytes | field |
//! |---|---|
//! | 1 | version = 1 |
//! | 8 | epoch, big-endian |
//! | 8 | number, big-endian |
//! | 1, n | node: length and name, never empty |
//! | 4, n | note: length, big-endian, and bytes |

use tavern_domain::Epoch;
use tavern_store::{BusPacket, Writer};

const VERSION: u8 = 1;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PacketHeader<'a> {
    pub from: Writer,
    pub n: u64,
    pub note: &'a [u8],
}

pub(crate) fn length(message: &BusPacket) -> usize {
    1 + 8 + 8 + 1 + message.from.node.len() + 4 + message.header.len()
}

pub(crate) fn write(message: &BusPacket, out: &mut Vec<u8>) {
    let node = u8::try_from(message.from.node.len()).expect("the name of a node is bounded");
    let note = u32::try_from(message.header.len()).expect("a note is bounded by its message");
    out.push(VERSION);
    out.extend_from_slice(&message.from.epoch.0.to_be_bytes());
    out.extend_from_slice(&message.n.to_be_bytes());
    out.push(node);
    out.extend_from_slice(message.from.node.as_bytes());
    out.extend_from_slice(&note.to_be_bytes());
    out.extend_from_slice(&message.header);
}

/// The header and what follows it.
pub(crate) fn read(bytes: &[u8]) -> Option<(PacketHeader<'_>, &[u8])> {
    let (&[version], rest) = bytes.split_first_chunk()?;
    let (epoch, rest) = rest.split_first_chunk()?;
    let (n, rest) = rest.split_first_chunk()?;
    let (&[length], rest) = rest.split_first_chunk()?;
    let (node, rest) = rest.split_at_checked(length.into())?;
    let (length, rest) = rest.split_first_chunk()?;
    let (note, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
    let node = std::str::from_utf8(node).ok().filter(|node| version == VERSION && !node.is_empty())?;
    let from = Writer::new(node, Epoch(u64::from_be_bytes(*epoch)));
    Some((PacketHeader { from, n: u64::from_be_bytes(*n), note }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tavern_store::subject::Subject;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let message = BusPacket {
            subject: Subject::of_channel("tavern", b"game#A").unwrap(),
            from: Writer::new("n1", Epoch(7)),
            n: 3,
            header: Arc::from(*b"own"),
            payload: Arc::from([]),
        };
        let mut whole = Vec::new();
        write(&message, &mut whole);
        assert_eq!(whole.len(), length(&message));
        whole.extend_from_slice(b"payload");
        let header = PacketHeader { from: message.from.clone(), n: 3, note: b"own" };
        assert_eq!(read(&whole), Some((header, &b"payload"[..])));
        for end in 0..length(&message) {
            assert_eq!(read(&whole[..end]), None, "cut at {end}");
        }
    }

    #[test]
    fn bytes_that_no_node_wrote_are_no_header() {
        let empty_name = [&[VERSION][..], &[0; 8], &[0; 8], &[0], &[0; 4]].concat();
        let other = [&[VERSION + 1][..], &[0; 8], &[0; 8], b"\x02n1", &[0; 4]].concat();
        for bytes in [&b""[..], b"{}", &empty_name, &other] {
            assert_eq!(read(bytes), None);
        }
    }
}
