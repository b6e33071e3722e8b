//! The envelope around each word, and its reader. A message is a head and a body; a word whose body is longer than the
//! server takes travels in several.
//!
//! Head: `TV`, version, flags, voice, serial. A voice is one connection of a node, chosen at random; its serials count
//! what it says, on all subjects. Body: the header of the message (`header`), then the payload.
//!
//! Must hold: of several copies of a message, which come when several subscriptions match, one is taken; a word is
//! given whole or not at all. A message without such a head is no node's: it is dropped, because nothing tells its
//! copies apart, and who may speak to clients is decided by the server, not by whoever reaches the bus.

use crate::header::{self, Header};
use std::collections::HashMap;
use tavern_store::bus::BusMessage;
use tavern_store::subject::Subject;

const MARK: &[u8; 2] = b"TV";
const VERSION: u8 = 1;
const FIRST: u8 = 1;
const LAST: u8 = 2;
/// The words that this voice said before on another connection may be lost; there is no body.
const TORN: u8 = 4;
pub const HEAD_BYTES: usize = 2 + 1 + 1 + 8 + 8;
/// The longest body: a session that moves, with its mailbox.
pub const BODY_BYTES: usize = 16 * 1024 * 1024;
/// Voices that are remembered: nodes, and their connections until the book is turned over.
const VOICES: usize = 4096;
/// All words together of which only the beginning has come.
const BEGUN_BYTES: usize = 64 * 1024 * 1024;

/// Numbers what one connection says.
pub struct Voice {
    voice: u64,
    serial: u64,
}

impl Voice {
    pub fn new(voice: u64) -> Voice {
        Voice { voice, serial: 0 }
    }

    /// The lengths of the messages that a body of `length` needs, if it can be carried.
    pub fn pieces(length: usize, longest: usize) -> Option<impl Iterator<Item = usize>> {
        let room = longest.checked_sub(HEAD_BYTES).filter(|&room| room > 0 && length <= BODY_BYTES)?;
        let count = length.div_ceil(room).max(1);
        Some((0..count).map(move |at| (length - at * room).min(room)))
    }

    pub fn head(&mut self, first: bool, last: bool, out: &mut Vec<u8>) {
        self.write((FIRST * u8::from(first)) | (LAST * u8::from(last)), out);
    }

    /// The message that says: what was said before may be lost.
    pub fn torn(&mut self, out: &mut Vec<u8>) {
        self.write(TORN, out);
    }

    fn write(&mut self, flags: u8, out: &mut Vec<u8>) {
        self.serial += 1;
        out.extend_from_slice(MARK);
        out.extend_from_slice(&[VERSION, flags]);
        out.extend_from_slice(&self.voice.to_be_bytes());
        out.extend_from_slice(&self.serial.to_be_bytes());
    }
}

pub fn body_bytes(parcel: &BusMessage) -> usize {
    header::length(parcel) + parcel.payload.len()
}

pub fn body(parcel: &BusMessage, out: &mut Vec<u8>) {
    header::write(parcel, out);
    out.extend_from_slice(&parcel.payload);
}

fn open(subject: &Subject, body: &[u8]) -> Option<BusMessage> {
    let (Header { from, n, note }, payload) = header::read(body)?;
    Some(BusMessage { subject: subject.clone(), from, n, note: note.into(), payload: payload.into() })
}

/// Reads messages into words.
#[derive(Default)]
pub struct Reader {
    /// This node's own voice: what it tells the others it knows.
    pub own: u64,
    voices: HashMap<u64, Heard>,
    begun_bytes: usize,
}

#[derive(Default)]
struct Heard {
    serial: u64,
    /// The word of which only the beginning has come.
    begun: Option<(Subject, Vec<u8>)>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    Word(BusMessage),
    /// A part of a word, or a copy.
    Nothing,
    /// A word of which a part is missing.
    Incomplete(Subject),
    /// A node said things that nobody heard.
    Torn,
    /// Not from a node.
    Foreign,
}

impl Reader {
    pub fn read(&mut self, subject: &Subject, message: &[u8]) -> Read {
        let Some((&[t, v, VERSION, flags], rest)) = message.split_first_chunk() else { return Read::Foreign };
        let Some((voice, rest)) = rest.split_first_chunk().filter(|_| [t, v] == *MARK) else {
            return Read::Foreign;
        };
        let Some((serial, piece)) = rest.split_first_chunk() else { return Read::Foreign };
        let (voice, serial) = (u64::from_be_bytes(*voice), u64::from_be_bytes(*serial));
        if self.voices.len() >= VOICES && !self.voices.contains_key(&voice) {
            self.voices.retain(|_, heard| heard.begun.is_some());
        }
        let heard = self.voices.entry(voice).or_default();
        if serial <= heard.serial {
            return Read::Nothing;
        }
        let follows = serial == heard.serial + 1;
        heard.serial = serial;
        let begun = heard.begun.take();
        self.begun_bytes -= begun.as_ref().map_or(0, |(_, body)| body.len());
        if flags & TORN != 0 {
            return if voice == self.own { Read::Nothing } else { Read::Torn };
        }
        if flags & FIRST != 0 {
            // Whatever was begun before never came to its end.
            let cut = begun.map(|(on, _)| on);
            if flags & LAST == 0 {
                self.begun_bytes += piece.len();
                heard.begun = Some((subject.clone(), piece.to_vec()));
                return cut.map_or(Read::Nothing, Read::Incomplete);
            }
            return open(subject, piece).map_or(Read::Foreign, Read::Word);
        }
        match begun {
            Some((on, mut body))
                if follows
                    && on == *subject
                    && body.len() + piece.len() <= BODY_BYTES
                    && self.begun_bytes + body.len() + piece.len() <= BEGUN_BYTES =>
            {
                body.extend_from_slice(piece);
                if flags & LAST != 0 {
                    return open(subject, &body).map_or(Read::Foreign, Read::Word);
                }
                self.begun_bytes += body.len();
                heard.begun = Some((on, body));
                Read::Nothing
            }
            Some((on, _)) => Read::Incomplete(on),
            // It was begun before this node listened.
            None => Read::Nothing,
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

    fn parcel(bytes: usize) -> BusMessage {
        let payload = (0..bytes).map(|at| at as u8).collect::<Vec<_>>().into();
        let (from, note) = (Writer::new("n1", Epoch(7)), Arc::from(*b"note"));
        BusMessage { subject: subject("A"), from, n: 9, note, payload }
    }

    fn messages(voice: &mut Voice, parcel: &BusMessage, longest: usize) -> Vec<Vec<u8>> {
        let mut whole = Vec::new();
        body(parcel, &mut whole);
        let lengths: Vec<usize> = Voice::pieces(whole.len(), longest).unwrap().collect();
        let mut rest = &whole[..];
        let mut messages = Vec::new();
        for (at, &length) in lengths.iter().enumerate() {
            let (piece, after) = rest.split_at(length);
            rest = after;
            let mut message = Vec::new();
            voice.head(at == 0, at + 1 == lengths.len(), &mut message);
            message.extend_from_slice(piece);
            assert!(message.len() <= longest);
            messages.push(message);
        }
        messages
    }

    #[test]
    fn a_word_is_read_once_as_it_was_said() {
        let (mut voice, mut reader) = (Voice::new(1), Reader::default());
        for bytes in [0, 1, 1000] {
            let word = parcel(bytes);
            let said = messages(&mut voice, &word, 2000);
            assert_eq!(reader.read(&word.subject, &said[0]), Read::Word(word.clone()));
            assert_eq!(reader.read(&word.subject, &said[0]), Read::Nothing, "a copy");
        }
    }

    #[test]
    fn a_long_word_is_put_together() {
        let (mut voice, mut reader) = (Voice::new(1), Reader::default());
        let word = parcel(1000);
        let said = messages(&mut voice, &word, 100);
        assert!(said.len() > 10);
        for (at, message) in said.iter().enumerate() {
            let read = reader.read(&word.subject, message);
            let expected = if at + 1 == said.len() { Read::Word(word.clone()) } else { Read::Nothing };
            assert_eq!(read, expected);
            assert_eq!(reader.read(&word.subject, message), Read::Nothing, "a copy");
        }
    }

    #[test]
    fn a_word_with_a_missing_part_is_told_once() {
        let (mut voice, mut reader) = (Voice::new(1), Reader::default());
        let word = parcel(300);
        let said = messages(&mut voice, &word, 100);
        assert_eq!(reader.read(&word.subject, &said[0]), Read::Nothing);
        assert_eq!(reader.read(&word.subject, &said[2]), Read::Incomplete(word.subject.clone()));
        assert_eq!(reader.read(&word.subject, &said[3]), Read::Nothing);
    }

    #[test]
    fn voices_do_not_disturb_each_other() {
        let (mut one, mut two, mut reader) = (Voice::new(1), Voice::new(2), Reader::default());
        let word = parcel(150);
        let (first, second) = (messages(&mut one, &word, 100), messages(&mut two, &word, 100));
        let mut whole = 0;
        for message in first.iter().zip(&second).flat_map(|(a, b)| [a, b, a, b]) {
            whole += usize::from(matches!(reader.read(&word.subject, message), Read::Word(_)));
        }
        assert_eq!(whole, 2);
    }

    #[test]
    fn what_no_node_said_is_foreign() {
        let mut reader = Reader::default();
        let mut head = Vec::new();
        Voice::new(3).head(true, true, &mut head);
        for message in [&b""[..], b"hello", b"TV\x02\x03aaaaaaaabbbbbbbb", b"TV\x01\x03aaaa", &head] {
            assert_eq!(reader.read(&subject("A"), message), Read::Foreign);
        }
    }
}
