//! The contents of a stored session: subscriptions, rights, mailbox. Knows the bytes, not what they mean. Encoded as
//! protobuf (`Record`). Must hold: decoding returns what was encoded; other bytes are an error and never cause a
//! large allocation.

use prost::Message;
use std::sync::Arc;
use tavern_domain::Scopes;
use tavern_domain::rights::Grant;
use tavern_domain::{Epoch, HistoryPosition, Rights, Scope, Time, Verb};

/// Marks a record as a session; other bytes that happen to parse are refused.
const FORMAT: u32 = 1;

/// The contents of a stored session, besides the columns of its row.
///
/// ```
/// use tavern_store::SessionBody;
///
/// let body = SessionBody { last_seq: 9, polling: true, ..SessionBody::default() };
/// assert_eq!(SessionBody::decode(&body.encode()).unwrap(), body);
/// assert!(SessionBody::decode(b"not a session").is_err());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionBody {
    /// When the session began.
    pub since: Time,
    pub token_expires: Time,
    /// In seconds since 1970; 0: the token does not say.
    pub token_issued_s: u32,
    pub unlimited: bool,
    pub scopes: Scopes,
    /// The id of the API key that opened it.
    pub key: Option<Arc<str>>,
    pub rights: Rights,
    pub subscriptions: Vec<SessionSubscription>,
    pub last_seq: u64,
    pub events: Vec<MailboxEvent>,
    /// The channels its client is present in, with its state there.
    pub presences: Vec<(Arc<str>, Option<Arc<str>>)>,
    /// Its client uses long-polls.
    pub polling: bool,
    /// Watchers know that its client was lost: resuming is announced as an arrival.
    pub lost: bool,
    pub window_ms: u64,
    /// For each watched channel, the version of the last presence event that the session received.
    pub presence_versions: Vec<(Arc<str>, u64)>,
    pub bus_positions: Vec<BusPosition>,
    /// For each followed user, a digest of the last status event that the session received.
    pub statuses: Vec<(Arc<str>, u64)>,
    /// The highest id of an inbox message that was put into its mailbox.
    pub last_inbox_message: u64,
    /// The unacknowledged inbox messages in its mailbox: `(seq, message_id)`.
    pub unacked_inbox: Vec<(u64, u64)>,
    /// For each channel with history, the last message that was put into its mailbox.
    pub history: Vec<(Arc<str>, HistoryPosition)>,
    /// Messages of channels with history that its mailbox dropped before the client acknowledged them.
    pub dropped: Vec<DroppedRun>,
}

/// `count` messages of a channel with consecutive sequence numbers and consecutive offsets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedRun {
    pub seq: u64,
    pub count: u64,
    pub channel: Arc<str>,
    /// Of the first message.
    pub position: HistoryPosition,
}

/// The last bus message of one shard of a node, in one epoch, that the session can have received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusPosition {
    pub node: Arc<str>,
    pub epoch: Epoch,
    pub shard: u8,
    pub n: u64,
}

/// A channel or pattern that the session is subscribed to, and whether it watches the presence there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionSubscription {
    pub name: Box<[u8]>,
    pub pattern: bool,
    pub presence: bool,
}

/// An event of the mailbox, without its `seq` in the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailboxEvent {
    pub seq: u64,
    pub event: Arc<[u8]>,
    /// The place of a message in the history of its channel.
    pub place: Option<(Arc<str>, HistoryPosition)>,
}

/// Why the bytes of a stored session cannot be used: the session is dropped, and its client starts a new one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the stored session has format {0}, this program knows {FORMAT}")]
    Format(u32),
    #[error("the stored session cannot be read: {0}")]
    Malformed(#[from] prost::DecodeError),
    #[error("the stored session names an unknown scope or verb")]
    Unknown,
}

impl SessionBody {
    /// The bytes for the column `body`.
    pub fn encode(&self) -> Vec<u8> {
        let record = Record {
            format: FORMAT,
            since: self.since.0,
            token_expires: self.token_expires.0,
            token_issued_s: self.token_issued_s,
            unlimited: self.unlimited,
            polling: self.polling,
            lost: self.lost,
            scopes: self.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
            key: self.key.as_deref().map(str::to_owned),
            grants: self.rights.grants.iter().map(GrantRecord::of).collect(),
            subscriptions: self.subscriptions.iter().map(SubscriptionRecord::of).collect(),
            last_seq: self.last_seq,
            events: self.events.iter().map(EventRecord::of).collect(),
            presences: self.presences.iter().map(PresenceRecord::of).collect(),
            window_ms: self.window_ms,
            presence_versions: self.presence_versions.iter().map(NumberRecord::of).collect(),
            bus_positions: self.bus_positions.iter().map(StreamRecord::of).collect(),
            statuses: self.statuses.iter().map(NumberRecord::of).collect(),
            last_inbox_message: self.last_inbox_message,
            unacked_inbox: self
                .unacked_inbox
                .iter()
                .map(|&(seq, number)| UnackedRecord { seq, number })
                .collect(),
            history: self.history.iter().map(HistoryRecord::of).collect(),
            dropped: self.dropped.iter().map(DroppedRecord::of).collect(),
        };
        record.encode_to_vec()
    }

    /// Reads what `encode` wrote.
    pub fn decode(bytes: &[u8]) -> Result<SessionBody, BodyError> {
        let record = Record::decode(bytes)?;
        if record.format != FORMAT {
            return Err(BodyError::Format(record.format));
        }
        Ok(SessionBody {
            since: Time(record.since),
            token_expires: Time(record.token_expires),
            token_issued_s: record.token_issued_s,
            unlimited: record.unlimited,
            polling: record.polling,
            lost: record.lost,
            scopes: parse_all(&record.scopes, Scope::parse)?,
            key: record.key.map(Arc::from),
            rights: Rights {
                grants: record.grants.into_iter().map(GrantRecord::grant).collect::<Result<_, _>>()?,
            },
            subscriptions: record.subscriptions.into_iter().map(SubscriptionRecord::subscription).collect(),
            last_seq: record.last_seq,
            events: record.events.into_iter().map(EventRecord::event).collect(),
            presences: record.presences.into_iter().map(PresenceRecord::presence).collect(),
            window_ms: record.window_ms,
            presence_versions: record.presence_versions.into_iter().map(NumberRecord::pair).collect(),
            bus_positions: record
                .bus_positions
                .into_iter()
                .map(StreamRecord::stream)
                .collect::<Result<_, _>>()?,
            statuses: record.statuses.into_iter().map(NumberRecord::pair).collect(),
            last_inbox_message: record.last_inbox_message,
            unacked_inbox: record
                .unacked_inbox
                .iter()
                .map(|unacked_inbox| (unacked_inbox.seq, unacked_inbox.number))
                .collect(),
            history: record.history.into_iter().map(HistoryRecord::pair).collect(),
            dropped: record.dropped.into_iter().map(DroppedRecord::run).collect(),
        })
    }
}

fn parse_all<T, C: FromIterator<T>>(
    texts: &[String],
    parse: impl Fn(&str) -> Option<T>,
) -> Result<C, BodyError> {
    texts.iter().map(|text| parse(text).ok_or(BodyError::Unknown)).collect()
}

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(uint32, tag = "1")]
    format: u32,
    /// Milliseconds.
    #[prost(uint64, tag = "2")]
    token_expires: u64,
    #[prost(bool, tag = "3")]
    unlimited: bool,
    #[prost(bool, tag = "4")]
    polling: bool,
    #[prost(bool, tag = "5")]
    lost: bool,
    #[prost(string, repeated, tag = "6")]
    scopes: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    grants: Vec<GrantRecord>,
    #[prost(message, repeated, tag = "8")]
    subscriptions: Vec<SubscriptionRecord>,
    #[prost(uint64, tag = "9")]
    last_seq: u64,
    #[prost(message, repeated, tag = "10")]
    events: Vec<EventRecord>,
    #[prost(message, repeated, tag = "11")]
    presences: Vec<PresenceRecord>,
    #[prost(uint64, tag = "12")]
    window_ms: u64,
    #[prost(message, repeated, tag = "13")]
    presence_versions: Vec<NumberRecord>,
    #[prost(message, repeated, tag = "14")]
    bus_positions: Vec<StreamRecord>,
    #[prost(message, repeated, tag = "15")]
    statuses: Vec<NumberRecord>,
    #[prost(uint64, tag = "16")]
    last_inbox_message: u64,
    #[prost(message, repeated, tag = "17")]
    unacked_inbox: Vec<UnackedRecord>,
    #[prost(string, optional, tag = "18")]
    key: Option<String>,
    #[prost(message, repeated, tag = "19")]
    history: Vec<HistoryRecord>,
    #[prost(message, repeated, tag = "20")]
    dropped: Vec<DroppedRecord>,
    #[prost(uint64, tag = "21")]
    since: u64,
    #[prost(uint32, tag = "22")]
    token_issued_s: u32,
}

#[derive(Clone, PartialEq, Message)]
struct GrantRecord {
    #[prost(bytes = "vec", tag = "1")]
    pattern: Vec<u8>,
    #[prost(string, repeated, tag = "2")]
    verbs: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SubscriptionRecord {
    #[prost(bytes = "vec", tag = "1")]
    name: Vec<u8>,
    #[prost(bool, tag = "2")]
    pattern: bool,
    #[prost(bool, tag = "3")]
    presence: bool,
}

#[derive(Clone, PartialEq, Message)]
struct EventRecord {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(bytes = "vec", tag = "2")]
    event: Vec<u8>,
    #[prost(message, optional, tag = "3")]
    place: Option<HistoryRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct PresenceRecord {
    #[prost(string, tag = "1")]
    channel: String,
    #[prost(string, optional, tag = "2")]
    state: Option<String>,
}

/// A name with a number: the version of a channel, the digest of a status.
#[derive(Clone, PartialEq, Message)]
struct NumberRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(fixed64, tag = "2")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StreamRecord {
    #[prost(string, tag = "1")]
    node: String,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(uint32, tag = "3")]
    shard: u32,
    #[prost(fixed64, tag = "4")]
    n: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct UnackedRecord {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(uint64, tag = "2")]
    number: u64,
}

#[derive(Clone, PartialEq, Message)]
struct HistoryRecord {
    #[prost(string, tag = "1")]
    channel: String,
    #[prost(uint64, tag = "2")]
    epoch: u64,
    #[prost(uint64, tag = "3")]
    offset: u64,
}

#[derive(Clone, PartialEq, Message)]
struct DroppedRecord {
    #[prost(uint64, tag = "1")]
    seq: u64,
    #[prost(uint64, tag = "2")]
    count: u64,
    #[prost(message, optional, tag = "3")]
    first: Option<HistoryRecord>,
}

impl DroppedRecord {
    fn of(run: &DroppedRun) -> DroppedRecord {
        let first = Some(HistoryRecord::of(&(run.channel.clone(), run.position)));
        DroppedRecord { seq: run.seq, count: run.count, first }
    }

    fn run(self) -> DroppedRun {
        let (channel, position) = self.first.unwrap_or_default().pair();
        DroppedRun { seq: self.seq, count: self.count, channel, position }
    }
}

impl HistoryRecord {
    fn of((channel, position): &(Arc<str>, HistoryPosition)) -> HistoryRecord {
        HistoryRecord { channel: channel.to_string(), epoch: position.epoch, offset: position.offset }
    }

    fn pair(self) -> (Arc<str>, HistoryPosition) {
        (self.channel.into(), HistoryPosition { epoch: self.epoch, offset: self.offset })
    }
}

impl GrantRecord {
    fn of(grant: &Grant) -> GrantRecord {
        let verbs = Verb::ALL.into_iter().filter(|&verb| grant.verbs.has(verb));
        GrantRecord {
            pattern: grant.pattern.to_vec(),
            verbs: verbs.map(|verb| verb.as_str().to_owned()).collect(),
        }
    }

    fn grant(self) -> Result<Grant, BodyError> {
        Ok(Grant { pattern: self.pattern.into(), verbs: parse_all(&self.verbs, Verb::parse)? })
    }
}

impl SubscriptionRecord {
    fn of(subscription: &SessionSubscription) -> SubscriptionRecord {
        let SessionSubscription { name, pattern, presence } = subscription;
        SubscriptionRecord { name: name.to_vec(), pattern: *pattern, presence: *presence }
    }

    fn subscription(self) -> SessionSubscription {
        SessionSubscription { name: self.name.into(), pattern: self.pattern, presence: self.presence }
    }
}

impl EventRecord {
    fn of(event: &MailboxEvent) -> EventRecord {
        let place = event.place.as_ref().map(HistoryRecord::of);
        EventRecord { seq: event.seq, event: event.event.to_vec(), place }
    }

    fn event(self) -> MailboxEvent {
        MailboxEvent { seq: self.seq, event: self.event.into(), place: self.place.map(HistoryRecord::pair) }
    }
}

impl PresenceRecord {
    fn of((channel, state): &(Arc<str>, Option<Arc<str>>)) -> PresenceRecord {
        PresenceRecord { channel: channel.to_string(), state: state.as_deref().map(str::to_owned) }
    }

    fn presence(self) -> (Arc<str>, Option<Arc<str>>) {
        (self.channel.into(), self.state.map(Arc::from))
    }
}

impl NumberRecord {
    fn of((name, number): &(Arc<str>, u64)) -> NumberRecord {
        NumberRecord { name: name.to_string(), number: *number }
    }

    fn pair(self) -> (Arc<str>, u64) {
        (self.name.into(), self.number)
    }
}

impl StreamRecord {
    fn of(stream: &BusPosition) -> StreamRecord {
        let (node, epoch, shard) = (stream.node.to_string(), stream.epoch.0, stream.shard.into());
        StreamRecord { node, epoch, shard, n: stream.n }
    }

    fn stream(self) -> Result<BusPosition, BodyError> {
        let shard = u8::try_from(self.shard).map_err(|_| BodyError::Unknown)?;
        Ok(BusPosition { node: self.node.into(), epoch: Epoch(self.epoch), shard, n: self.n })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> SessionBody {
        SessionBody {
            since: Time(3),
            token_expires: Time::NEVER,
            token_issued_s: 2,
            unlimited: true,
            scopes: [Scope::Publish, Scope::Admin].into_iter().collect(),
            key: Some("k1".into()),
            rights: Rights::all(),
            subscriptions: vec![
                SessionSubscription { name: (*b"game#A").into(), pattern: false, presence: true },
                SessionSubscription { name: (*b"l\0bby*").into(), pattern: true, presence: false },
            ],
            last_seq: 9,
            events: vec![MailboxEvent {
                seq: 9,
                event: Arc::from(*b"{}"),
                place: Some(("chat#1".into(), HistoryPosition { epoch: 7, offset: 9 })),
            }],
            presences: vec![("game#A".into(), Some("{}".into())), ("lobby".into(), None)],
            polling: true,
            lost: true,
            window_ms: 7,
            presence_versions: vec![("game#A".into(), 5)],
            bus_positions: vec![BusPosition { node: "n1".into(), epoch: Epoch(3), shard: 2, n: 9 }],
            statuses: vec![("bob".into(), u64::MAX)],
            last_inbox_message: 4,
            unacked_inbox: vec![(9, 4)],
            history: vec![("chat#1".into(), HistoryPosition { epoch: 7, offset: 9 })],
            dropped: vec![DroppedRun {
                seq: 3,
                count: 2,
                channel: "chat#1".into(),
                position: HistoryPosition { epoch: 7, offset: 4 },
            }],
        }
    }

    #[test]
    fn a_body_is_read_as_it_was_written() {
        for body in [SessionBody::default(), full()] {
            assert_eq!(SessionBody::decode(&body.encode()), Ok(body));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(SessionBody::decode(b""), Err(BodyError::Format(0)));
        assert_eq!(SessionBody::decode(&[0x08, 7]), Err(BodyError::Format(7)));
        assert!(matches!(SessionBody::decode(b"{\"a\":1}"), Err(BodyError::Malformed(_))));
        let bytes = full().encode();
        assert!(matches!(SessionBody::decode(&bytes[..bytes.len() - 1]), Err(BodyError::Malformed(_))));
        // An announced length far beyond the input allocates nothing.
        let long = [0x08, 1, 0x3a, 0xff, 0xff, 0xff, 0xff, 0x0f];
        assert!(matches!(SessionBody::decode(&long), Err(BodyError::Malformed(_))));
        let scope = Record { format: FORMAT, scopes: vec!["fly".into()], ..Record::default() };
        assert_eq!(SessionBody::decode(&scope.encode_to_vec()), Err(BodyError::Unknown));
    }
}
