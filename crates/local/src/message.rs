//! What a subscriber gets, and what a publisher gives.

use std::fmt;
use std::sync::Arc;

/// A message on its way to subscribers; shared by all of one process.
#[derive(PartialEq, Eq)]
pub struct Words {
    pub(crate) id: i64,
    pub(crate) process: i64,
    pub(crate) subscriber: u64,
    pub(crate) space: Space,
    pub(crate) channel: Box<[u8]>,
    pub(crate) note: Box<[u8]>,
    pub(crate) payload: Box<[u8]>,
}

impl Words {
    /// Its number in the folder: it grows from message to message and is never given twice.
    pub fn id(&self) -> u64 {
        self.id as u64
    }

    pub fn channel(&self) -> &[u8] {
        &self.channel
    }

    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// What a publisher put beside the payload ([`Draft::note`]); empty for everybody who did not.
    pub fn note(&self) -> &[u8] {
        &self.note
    }

    pub fn space(&self) -> Space {
        self.space
    }

    pub(crate) fn size(&self) -> usize {
        self.channel.len() + self.note.len() + self.payload.len()
    }
}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id, self.channel.escape_ascii(), self.payload.escape_ascii())
    }
}

/// What [`Local::poll`](crate::Local::poll) and [`Local::wait`](crate::Local::wait) give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Of a channel that was subscribed to.
    Message(Arc<Words>),
    /// Of a channel that matches a pattern that was subscribed to.
    Pattern { pattern: Arc<[u8]>, words: Arc<Words> },
    /// This subscriber was so slow that messages were dropped: about so many, at this place.
    Gap { lost: u64 },
}

impl Message {
    pub fn words(&self) -> Option<&Words> {
        match self {
            Message::Message(words) | Message::Pattern { words, .. } => Some(words),
            Message::Gap { .. } => None,
        }
    }

    /// Empty for a gap.
    pub fn channel(&self) -> &[u8] {
        self.words().map_or(&[], Words::channel)
    }

    /// Empty for a gap.
    pub fn payload(&self) -> &[u8] {
        self.words().map_or(&[], Words::payload)
    }

    /// Three elements or four, as Redis sends them; one for a gap.
    pub fn elements(&self) -> Vec<&[u8]> {
        match self {
            Message::Message(words) => vec![b"message", words.channel(), words.payload()],
            Message::Pattern { pattern, words } => {
                vec![b"pmessage", pattern, words.channel(), words.payload()]
            }
            Message::Gap { .. } => vec![b"gap"],
        }
    }
}

/// Two sets of names. Private ones are for programs that build on a folder: neither patterns nor
/// [`Local::channels`](crate::Local::channels) show them to those who did not ask for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Space {
    #[default]
    Public = 0,
    Private = 1,
}

impl Space {
    pub(crate) const ALL: [Space; 2] = [Space::Public, Space::Private];

    pub(crate) fn of(number: i64) -> Space {
        if number == 0 { Space::Public } else { Space::Private }
    }
}

/// A message to be published with others in one go.
#[derive(Clone, Copy, Debug, Default)]
pub struct Draft<'a> {
    pub space: Space,
    pub channel: &'a [u8],
    pub payload: &'a [u8],
    /// Carried along, shown by [`Words::note`] only.
    pub note: &'a [u8],
}

impl<'a> Draft<'a> {
    pub fn new(channel: &'a [u8], payload: &'a [u8]) -> Draft<'a> {
        Draft { channel, payload, ..Draft::default() }
    }
}

/// What can be listened to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interest {
    pub space: Space,
    pub kind: Kind,
    pub name: Arc<[u8]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    Channel = 0,
    Pattern = 1,
    /// Whatever is said. It does not count as a recipient: nobody knows whether it wants a message.
    Everything = 2,
}

impl Interest {
    pub fn channel(name: impl AsRef<[u8]>) -> Interest {
        Interest { space: Space::Public, kind: Kind::Channel, name: name.as_ref().into() }
    }

    pub fn pattern(name: impl AsRef<[u8]>) -> Interest {
        Interest { space: Space::Public, kind: Kind::Pattern, name: name.as_ref().into() }
    }

    pub fn everything(space: Space) -> Interest {
        Interest { space, kind: Kind::Everything, name: Arc::default() }
    }

    pub fn in_space(self, space: Space) -> Interest {
        Interest { space, ..self }
    }
}

impl Kind {
    pub(crate) fn of(number: i64) -> Kind {
        match number {
            0 => Kind::Channel,
            1 => Kind::Pattern,
            _ => Kind::Everything,
        }
    }
}
