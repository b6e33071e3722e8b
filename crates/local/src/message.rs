//! What a subscriber receives, what a publisher sends, and what can be subscribed to.

use std::fmt;
use std::sync::Arc;

/// A published message as it is stored; shared by all subscribers of a process.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// let local = tavern_local::open(folder)?;
/// local.subscribe(["news"])?;
/// local.publish("news", "hello")?;
/// let message = local.poll()?.expect("one message");
/// let publication = message.publication().expect("not a gap");
/// assert_eq!((publication.channel(), publication.payload()), (&b"news"[..], &b"hello"[..]));
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(PartialEq, Eq)]
pub struct Publication {
    pub(crate) id: i64,
    pub(crate) process: i64,
    pub(crate) subscriber: u64,
    pub(crate) namespace: ChannelNamespace,
    pub(crate) channel: Box<[u8]>,
    pub(crate) header: Box<[u8]>,
    pub(crate) payload: Box<[u8]>,
}

impl Publication {
    /// Its number in the folder: strictly increasing, never reused.
    pub fn id(&self) -> u64 {
        self.id as u64
    }

    /// The channel it was published to.
    pub fn channel(&self) -> &[u8] {
        &self.channel
    }

    /// What was published.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The header that the publisher attached ([`Draft::header`]); empty by default.
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// The namespace of its channel.
    pub fn namespace(&self) -> ChannelNamespace {
        self.namespace
    }

    pub(crate) fn size(&self) -> usize {
        self.channel.len() + self.header.len() + self.payload.len()
    }
}

impl fmt::Debug for Publication {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.id, self.channel.escape_ascii(), self.payload.escape_ascii())
    }
}

/// What [`Local::poll`](crate::Local::poll) and [`Local::wait`](crate::Local::wait) return.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// use tavern_local::Message;
///
/// let local = tavern_local::open(folder)?;
/// local.psubscribe(["game#*"])?;
/// local.publish("game#1", "start")?;
/// match local.poll()? {
///     Some(Message::Pattern { pattern, publication }) => {
///         assert_eq!((&*pattern, publication.channel()), (&b"game#*"[..], &b"game#1"[..]));
///     }
///     other => panic!("{other:?}"),
/// }
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// The channel is subscribed to by name, or everything is.
    Channel(Arc<Publication>),
    /// The channel matches a pattern that is subscribed to.
    Pattern {
        /// The pattern.
        pattern: Arc<[u8]>,
        /// The message.
        publication: Arc<Publication>,
    },
    /// This subscriber was too slow: about this many messages were dropped here. Zero: an unknown number.
    Gap {
        /// How many.
        lost: u64,
    },
}

impl Message {
    /// The message itself; `None` for a gap.
    pub fn publication(&self) -> Option<&Publication> {
        match self {
            Message::Channel(publication) | Message::Pattern { publication, .. } => Some(publication),
            Message::Gap { .. } => None,
        }
    }

    /// The channel; empty for a gap.
    pub fn channel(&self) -> &[u8] {
        self.publication().map_or(&[], Publication::channel)
    }

    /// The payload; empty for a gap.
    pub fn payload(&self) -> &[u8] {
        self.publication().map_or(&[], Publication::payload)
    }

    /// Three or four elements, as Redis sends them (`message` or `pmessage`); one (`gap`) for a gap.
    pub fn elements(&self) -> Vec<&[u8]> {
        match self {
            Message::Channel(publication) => {
                vec![b"message", publication.channel(), publication.payload()]
            }
            Message::Pattern { pattern, publication } => {
                vec![b"pmessage", pattern, publication.channel(), publication.payload()]
            }
            Message::Gap { .. } => vec![b"gap"],
        }
    }
}

/// One of two separate sets of channel names. Private names are for programs built on a folder: neither public
/// patterns nor [`Local::channels`](crate::Local::channels) show them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ChannelNamespace {
    /// What [`Local::subscribe`](crate::Local::subscribe) and [`Local::publish`](crate::Local::publish) use.
    #[default]
    Public = 0,
    /// Used only when asked for, with [`Interest::in_namespace`] and [`Draft::namespace`].
    Private = 1,
}

impl ChannelNamespace {
    pub(crate) const ALL: [ChannelNamespace; 2] = [ChannelNamespace::Public, ChannelNamespace::Private];

    pub(crate) fn from_column(number: i64) -> ChannelNamespace {
        if number == 0 { ChannelNamespace::Public } else { ChannelNamespace::Private }
    }
}

/// A message to publish, for [`Local::publish_all`](crate::Local::publish_all).
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// use tavern_local::Draft;
///
/// let local = tavern_local::open(folder)?;
/// local.subscribe(["a"])?;
/// let drafts = [Draft::new(b"a", b"1"), Draft { header: b"trace-7", ..Draft::new(b"a", b"2") }];
/// assert_eq!(local.publish_all(&drafts)?, [1, 1]);
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Draft<'a> {
    /// The namespace of the channel.
    pub namespace: ChannelNamespace,
    /// The channel.
    pub channel: &'a [u8],
    /// The payload.
    pub payload: &'a [u8],
    /// Stored with the payload; only [`Publication::header`] returns it.
    pub header: &'a [u8],
}

impl<'a> Draft<'a> {
    /// A message to a public channel, without a header.
    pub fn new(channel: &'a [u8], payload: &'a [u8]) -> Draft<'a> {
        Draft { channel, payload, ..Draft::default() }
    }
}

/// What can be subscribed to, for [`Local::add_interests`](crate::Local::add_interests).
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// use tavern_local::{Interest, ChannelNamespace};
///
/// let local = tavern_local::open(folder)?;
/// let private = Interest::channel("control").in_namespace(ChannelNamespace::Private);
/// assert_eq!(local.add_interests([Interest::pattern("game#*"), private])?, 2);
/// # Ok::<(), tavern_local::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interest {
    /// The namespace of the name.
    pub namespace: ChannelNamespace,
    /// How the name is matched.
    pub kind: InterestKind,
    /// The channel or the pattern; empty for everything.
    pub name: Arc<[u8]>,
}

/// How an [`Interest`] is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum InterestKind {
    /// One channel, by name.
    Channel = 0,
    /// The channels that match a Redis glob.
    Pattern = 1,
    /// Every channel of the namespace. Not counted as a recipient: it is unknown whether it wants a message.
    Everything = 2,
}

impl Interest {
    /// One public channel.
    pub fn channel(name: impl AsRef<[u8]>) -> Interest {
        Interest {
            namespace: ChannelNamespace::Public,
            kind: InterestKind::Channel,
            name: name.as_ref().into(),
        }
    }

    /// The public channels that match a Redis glob.
    pub fn pattern(glob: impl AsRef<[u8]>) -> Interest {
        Interest {
            namespace: ChannelNamespace::Public,
            kind: InterestKind::Pattern,
            name: glob.as_ref().into(),
        }
    }

    /// Every channel of a namespace. A publisher asks such a subscriber to name what it really wants, see
    /// [`Local::take_narrow_request`](crate::Local::take_narrow_request).
    pub fn everything(namespace: ChannelNamespace) -> Interest {
        Interest { namespace, kind: InterestKind::Everything, name: Arc::default() }
    }

    /// The same in another namespace.
    pub fn in_namespace(self, namespace: ChannelNamespace) -> Interest {
        Interest { namespace, ..self }
    }
}

impl InterestKind {
    pub(crate) fn from_column(number: i64) -> InterestKind {
        match number {
            0 => InterestKind::Channel,
            1 => InterestKind::Pattern,
            _ => InterestKind::Everything,
        }
    }
}
