//! The export format: one JSON object per line, a header first, the number of rows last. Independent of stores.
//! Must hold: rows are read as they were written; a line of another format, or a truncated file, is refused.
//! Versions are not written: a store assigns its own.

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use tavern_domain::presence::{
    Attendance, ChannelClient, ClientState, LastDeparture, LostClient, NodeEpoch, OfflineReason, Visibility,
};
use tavern_domain::{ClientId, Epoch, Scope, Scopes, SessionKey, Time};
use tavern_store::{
    ApiKey, Deadline, Document, DocumentKey, Follow, HistoryLimits, HistoryMessage, HistorySender,
    InboxMessage, LogEntry, NewHistoryMessage, NewInboxMessage, PresenceHold, PresenceKey, PresenceRow, Row,
    StoredSession, UserRow, Writer,
};
use tavern_wire::json::presence::state_digest;

/// The version of the format; raised with every change.
pub const FORMAT: u32 = 3;
/// The oldest version that can be read: it has fewer kinds of lines.
pub const OLDEST_FORMAT: u32 = 2;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArchiveLine {
    Tavern(ArchiveHeader),
    Key(KeyLine),
    User(UserLine),
    Follow(FollowLine),
    Hold(HoldLine),
    Document(DocumentLine),
    Topic(TopicLine),
    Event(EventLine),
    Log(LogLine),
    Session(SessionLine),
    Presence(PresenceLine),
    Deadline(DeadlineLine),
    Inbox(InboxLine),
    History(HistoryLine),
    End(ArchiveEnd),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveHeader {
    pub format: u32,
    pub program: String,
    pub store: String,
    /// The store's time when it began. No version in it is above this time in microseconds.
    pub time: u64,
    /// Servers were running during the export.
    pub live: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveEnd {
    pub lines: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyLine {
    id: String,
    name: String,
    hash: String,
    scopes: Vec<String>,
    created_at: u64,
    expires_at: Option<u64>,
    last_used_at: Option<u64>,
    revoked_at: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserLine {
    user: String,
    visibility: String,
    last_seen: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FollowLine {
    follower: String,
    followee: String,
    since: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLine {
    channel: String,
    user: String,
    held_with: Option<String>,
    until: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentLine {
    kind: String,
    name: String,
    body: String,
}

/// How many events a topic had before the start of the log. Its position is below the first of the log, and unique.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicLine {
    topic: String,
    count: u64,
    position: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    position: u64,
    topic: String,
    count: u64,
    at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    body: String,
}

/// After the events: the start of the log, and the last position ever assigned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    pub first: u64,
    pub head: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionLine {
    client: String,
    secret: String,
    user: Option<String>,
    name: Option<String>,
    node: String,
    epoch: u64,
    body: String,
    detached_at: Option<u64>,
    expires_at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PresenceLine {
    channel: String,
    user: String,
    anonymous: bool,
    name: Option<String>,
    visibility: String,
    since: u64,
    departed: Option<DepartedPart>,
    clients: Vec<ClientPart>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DepartedPart {
    reason: String,
    seen: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientPart {
    client: String,
    node: String,
    epoch: u64,
    state: Option<String>,
    since: u64,
    lost: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlineLine {
    kind: String,
    name: String,
    due: u64,
}

/// An unread message. It gets a new number, which is higher than any that its reader has seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboxLine {
    user: String,
    body: String,
}

/// A message of a channel's history, or its retained value. The history has a new epoch after the import.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryLine {
    channel: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// Of the publisher, unless it was a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client: Option<String>,
    json: bool,
    body: String,
    /// When the whole history expires.
    expires_at: u64,
}

/// The limits of a history and an inbox belong to the servers, which apply them to the next message.
const NO_LIMIT: u64 = 1 << 40;

/// What a line adds to a store.
#[derive(Debug)]
pub enum ImportedItem {
    Row(Row),
    Deadline(Deadline),
    Event(LogEntry),
    Log(LogLine),
    Inbox(NewInboxMessage),
    /// With a time to live from the year 1970 on.
    History(NewHistoryMessage),
}

impl ArchiveLine {
    pub fn of_row(row: &Row) -> anyhow::Result<ArchiveLine> {
        Ok(match row {
            Row::Key(key) => ArchiveLine::Key(KeyLine {
                id: key.id.to_string(),
                name: key.name.to_string(),
                hash: STANDARD.encode(key.hash),
                scopes: key.scopes.iter().map(|scope| scope.as_str().to_owned()).collect(),
                created_at: key.created_at.ms(),
                expires_at: key.expires_at.map(Time::ms),
                last_used_at: key.last_used_at.map(Time::ms),
                revoked_at: key.revoked_at.map(Time::ms),
            }),
            Row::User(user) => ArchiveLine::User(UserLine {
                user: user.user.to_string(),
                visibility: user.visibility.as_str().to_owned(),
                last_seen: user.last_seen.map(Time::ms),
            }),
            Row::Follow(follow) => ArchiveLine::Follow(FollowLine {
                follower: follow.follower.to_string(),
                followee: follow.followee.to_string(),
                since: follow.since.ms(),
            }),
            Row::Hold(hold) => ArchiveLine::Hold(HoldLine {
                channel: hold.key.channel.to_string(),
                user: hold.key.user.to_string(),
                held_with: hold.held_with.as_deref().map(str::to_owned),
                until: hold.until.map(Time::ms),
            }),
            Row::Document(document) => ArchiveLine::Document(DocumentLine {
                kind: document.key.kind().to_owned(),
                name: document.key.name().to_owned(),
                body: STANDARD.encode(&document.body),
            }),
            Row::Session(session) => ArchiveLine::Session(of_session(session)),
            Row::Presence(presence) => ArchiveLine::Presence(of_presence(presence)),
            Row::Lease(lease) => bail!("the lease {} is not exported", lease.name),
        })
    }

    /// A topic that had this many events before the start of the log.
    pub fn of_topic(topic: &str, count: u64, position: u64) -> ArchiveLine {
        ArchiveLine::Topic(TopicLine { topic: topic.to_owned(), count, position })
    }

    pub fn of_event(entry: &LogEntry) -> ArchiveLine {
        ArchiveLine::Event(EventLine {
            position: entry.position,
            topic: entry.topic.to_string(),
            count: entry.count,
            at: entry.at.ms(),
            id: entry.id.as_deref().map(str::to_owned),
            body: STANDARD.encode(&entry.body),
        })
    }

    pub fn of_deadline(deadline: &Deadline) -> ArchiveLine {
        ArchiveLine::Deadline(DeadlineLine {
            kind: deadline.kind.to_string(),
            name: deadline.name.to_string(),
            due: deadline.due.ms(),
        })
    }

    pub fn of_inbox(user: &str, message: &InboxMessage) -> ArchiveLine {
        ArchiveLine::Inbox(InboxLine { user: user.to_owned(), body: STANDARD.encode(&message.body) })
    }

    pub fn of_history(channel: &str, expires_at: Time, message: &HistoryMessage) -> ArchiveLine {
        let sender = message.sender.as_ref();
        ArchiveLine::History(HistoryLine {
            channel: channel.to_owned(),
            id: message.id.as_deref().map(str::to_owned),
            user: sender.and_then(|sender| sender.user.as_deref()).map(str::to_owned),
            client: sender.map(|sender| sender.client.to_string()),
            json: message.json,
            body: STANDARD.encode(&message.body),
            expires_at: expires_at.ms(),
        })
    }

    /// None: the first or the last line.
    pub fn put(self) -> anyhow::Result<Option<ImportedItem>> {
        Ok(Some(match self {
            ArchiveLine::Tavern(_) | ArchiveLine::End(_) => return Ok(None),
            ArchiveLine::Key(key) => ImportedItem::Row(Row::Key(read_key(key)?)),
            ArchiveLine::User(user) => ImportedItem::Row(Row::User(UserRow {
                user: user.user.into(),
                last_seen: user.last_seen.map(Time),
                visibility: visibility(&user.visibility)?,
            })),
            ArchiveLine::Follow(follow) => ImportedItem::Row(Row::Follow(Follow {
                follower: follow.follower.into(),
                followee: follow.followee.into(),
                since: Time(follow.since),
            })),
            ArchiveLine::Hold(hold) => ImportedItem::Row(Row::Hold(PresenceHold {
                key: PresenceKey::new(&hold.channel, &hold.user),
                held_with: hold.held_with.map(Arc::from),
                until: hold.until.map(Time),
            })),
            ArchiveLine::Document(document) => {
                let body = STANDARD.decode(document.body)?.into();
                check_kind(&document.kind)?;
                ImportedItem::Row(Row::Document(Document {
                    key: DocumentKey::new(&document.kind, &document.name),
                    body,
                }))
            }
            ArchiveLine::Topic(TopicLine { topic, count, position }) => ImportedItem::Event(LogEntry {
                position,
                topic: topic.into(),
                count,
                at: Time(0),
                id: None,
                body: Arc::from(*b""),
            }),
            ArchiveLine::Event(event) => ImportedItem::Event(LogEntry {
                position: event.position,
                topic: event.topic.into(),
                count: event.count,
                at: Time(event.at),
                id: event.id.map(Arc::from),
                body: STANDARD.decode(event.body)?.into(),
            }),
            ArchiveLine::Log(log) => ImportedItem::Log(log),
            ArchiveLine::Session(session) => ImportedItem::Row(Row::Session(read_session(session)?)),
            ArchiveLine::Presence(presence) => ImportedItem::Row(Row::Presence(read_presence(presence)?)),
            ArchiveLine::Deadline(deadline) => {
                check_kind(&deadline.kind)?;
                ImportedItem::Deadline(Deadline::new(Time(deadline.due), &deadline.kind, &deadline.name))
            }
            ArchiveLine::Inbox(inbox) => ImportedItem::Inbox(NewInboxMessage {
                user: inbox.user.into(),
                body: STANDARD.decode(inbox.body)?.into(),
                max_messages: NO_LIMIT as usize,
                max_bytes: NO_LIMIT as usize,
            }),
            ArchiveLine::History(line) => ImportedItem::History(read_history(line)?),
        }))
    }
}

fn of_session(session: &StoredSession) -> SessionLine {
    let mut secret = String::new();
    session.secret.write(&mut secret);
    SessionLine {
        client: session.client.to_string(),
        secret,
        user: session.user.as_deref().map(str::to_owned),
        name: session.name.as_deref().map(str::to_owned),
        node: session.owner.node.to_string(),
        epoch: session.owner.epoch.0,
        body: STANDARD.encode(&session.body),
        detached_at: session.detached_at.map(Time::ms),
        expires_at: session.expires_at.ms(),
    }
}

fn of_presence(presence: &PresenceRow) -> PresenceLine {
    let attendance = &presence.attendance;
    let client = |client: &ChannelClient| ClientPart {
        client: client.client.to_string(),
        node: client.node.node.to_string(),
        epoch: client.node.epoch.0,
        state: client.state.as_ref().map(|state| state.text.to_string()),
        since: client.since.ms(),
        lost: client.lost.map(|lost| (lost.at.ms(), lost.until.ms())),
    };
    PresenceLine {
        channel: presence.key.channel.to_string(),
        user: presence.key.user.to_string(),
        anonymous: presence.anonymous,
        name: presence.name.as_deref().map(str::to_owned),
        visibility: presence.visibility.as_str().to_owned(),
        since: attendance.since().ms(),
        departed: attendance.departed().map(|departed| DepartedPart {
            reason: departed.reason.as_str().to_owned(),
            seen: departed.seen.ms(),
        }),
        clients: attendance.clients().iter().map(client).collect(),
    }
}

fn read_history(line: HistoryLine) -> anyhow::Result<NewHistoryMessage> {
    let sender = match line.client {
        Some(client) => Some(HistorySender { user: line.user.map(Arc::from), client: client_id(&client)? }),
        None => None,
    };
    let keep = HistoryLimits { messages: NO_LIMIT, bytes: NO_LIMIT, ttl_ms: line.expires_at };
    let body = STANDARD.decode(line.body)?.into();
    let (channel, id) = (line.channel.into(), line.id.map(Arc::from));
    Ok(NewHistoryMessage { channel, id, sender, json: line.json, body, keep })
}

fn read_key(key: KeyLine) -> anyhow::Result<ApiKey> {
    let scopes: Option<Scopes> = key.scopes.iter().map(|scope| Scope::parse(scope)).collect();
    let hash = STANDARD.decode(key.hash)?;
    Ok(ApiKey {
        id: key.id.into(),
        name: key.name.into(),
        hash: hash.as_slice().try_into().context("the hash of a key must have 32 bytes")?,
        scopes: scopes.context("unknown scope")?,
        created_at: Time(key.created_at),
        expires_at: key.expires_at.map(Time),
        last_used_at: key.last_used_at.map(Time),
        revoked_at: key.revoked_at.map(Time),
    })
}

fn read_session(session: SessionLine) -> anyhow::Result<StoredSession> {
    Ok(StoredSession {
        client: client_id(&session.client)?,
        secret: SessionKey::parse(&session.secret).context("invalid session secret")?,
        user: session.user.map(Arc::from),
        name: session.name.map(Arc::from),
        owner: Writer::new(&session.node, Epoch(session.epoch)),
        body: STANDARD.decode(session.body)?.into(),
        detached_at: session.detached_at.map(Time),
        expires_at: Time(session.expires_at),
    })
}

fn read_presence(presence: PresenceLine) -> anyhow::Result<PresenceRow> {
    let client = |part: ClientPart| -> anyhow::Result<ChannelClient> {
        Ok(ChannelClient {
            client: client_id(&part.client)?,
            node: NodeEpoch { node: part.node.into(), epoch: Epoch(part.epoch) },
            state: part.state.map(|text| ClientState { digest: state_digest(&text), text: text.into() }),
            since: Time(part.since),
            lost: part.lost.map(|(at, until)| LostClient { at: Time(at), until: Time(until) }),
        })
    };
    let departed = match presence.departed {
        None => None,
        Some(part) => {
            let reason = OfflineReason::parse(&part.reason).context("unknown offline reason")?;
            Some(LastDeparture { reason, seen: Time(part.seen) })
        }
    };
    let clients = presence.clients.into_iter().map(client).collect::<anyhow::Result<_>>()?;
    Ok(PresenceRow {
        key: PresenceKey::new(&presence.channel, &presence.user),
        anonymous: presence.anonymous,
        name: presence.name.map(Arc::from),
        visibility: visibility(&presence.visibility)?,
        attendance: Attendance::restore(clients, Time(presence.since), departed),
    })
}

fn client_id(text: &str) -> anyhow::Result<ClientId> {
    ClientId::parse(text).context("invalid client id")
}

fn visibility(text: &str) -> anyhow::Result<Visibility> {
    Visibility::parse(text).context("invalid visibility")
}

/// The engines assert that kinds are well formed, so an invalid one must be refused here.
fn check_kind(kind: &str) -> anyhow::Result<()> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    let good = !kind.is_empty() && kind.len() <= 32 && kind.bytes().all(inner);
    if good { Ok(()) } else { bail!("invalid document kind") }
}

#[cfg(test)]
#[path = "archive_tests.rs"]
mod tests;
