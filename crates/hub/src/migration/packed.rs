//! A session packed into one value, to migrate to another node or to stay in the store while its node is down.

use crate::core::Core;
use crate::core::listener::ListenerId;
use crate::core::mailbox::Mailbox;
use crate::core::sweep::session_expires_at;
use crate::event::{Event, Namespace};
use std::sync::Arc;
use tavern_domain::{ClientId, HistoryPosition, Identity, SessionKey, Time};
use tavern_store::body::{BodyError, DroppedRun, MailboxEvent, SessionSubscription};
use tavern_store::{SessionBody, StoredSession, Writer, limits, planted};

/// The limit of a packed mailbox, because the size of a row is limited. Older events are dropped and become a gap.
const EVENTS_BYTES: usize = limits::BODY_BYTES / 2;

/// A session as one value: to be put into the store, or to be installed on a node.
#[derive(Clone, Debug)]
pub struct PackedSession {
    pub key: SessionKey,
    pub client: ClientId,
    pub user: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
    pub detached_at: Time,
    /// When it expires unless its client resumes it.
    pub expires_at: Time,
    pub body: SessionBody,
}

impl PackedSession {
    pub fn to_row(&self, owner: &Writer) -> StoredSession {
        StoredSession {
            client: self.client,
            secret: self.key,
            user: self.user.clone(),
            name: self.name.clone(),
            owner: owner.clone(),
            body: self.body.encode().into(),
            detached_at: Some(self.detached_at),
            expires_at: self.expires_at,
        }
    }

    pub fn from_row(row: StoredSession, now: Time) -> Result<PackedSession, BodyError> {
        Ok(PackedSession {
            key: row.secret,
            client: row.client,
            user: row.user,
            name: row.name,
            detached_at: row.detached_at.unwrap_or(now),
            expires_at: row.expires_at,
            body: SessionBody::decode(&row.body)?,
        })
    }

    pub(super) fn identity(&self) -> Identity {
        Identity {
            user: self.user.clone(),
            name: self.name.clone(),
            rights: Arc::new(self.body.rights.clone()),
            expires: self.body.token_expires,
            issued_s: self.body.token_issued_s,
            unlimited: self.body.unlimited,
            scopes: self.body.scopes,
            key: self.body.key.clone(),
        }
    }

    /// The version of a channel's presence that the client has.
    pub(super) fn presence_version(&self, channel: &Arc<str>) -> u64 {
        self.body
            .presence_versions
            .iter()
            .find(|(name, _)| name == channel)
            .map_or(0, |(_, version)| *version)
    }
}

pub(super) fn subscriptions(core: &Core, id: ListenerId) -> Vec<SessionSubscription> {
    let watched = watched_by(core, id);
    let names = |space| core.subscriptions(id, space).into_iter().map(move |name| (name, space));
    let all = names(Namespace::Channel).chain(names(Namespace::Pattern));
    all.map(|(name, space)| SessionSubscription {
        presence: space == Namespace::Channel && watched.iter().any(|channel| channel.as_bytes() == &*name),
        name: (*name).into(),
        pattern: space == Namespace::Pattern,
    })
    .collect()
}

/// The channels whose presence a session watches.
pub(crate) fn watched_by(core: &Core, id: ListenerId) -> Vec<Arc<str>> {
    let names = core.subscriptions(id, Namespace::Presence).into_iter();
    names.filter_map(|name| std::str::from_utf8(&name).ok().map(Arc::from)).collect()
}

/// Packs a session. `presence_versions`: the version of each watched channel that its client has received;
/// `statuses`: the statuses it has received of the users it follows; `history`: its position in each channel's
/// history.
pub(crate) fn pack(
    core: &Core,
    id: ListenerId,
    presence_versions: Vec<(Arc<str>, u64)>,
    statuses: Vec<(Arc<str>, u64)>,
    history: Vec<(Arc<str>, HistoryPosition)>,
) -> Option<PackedSession> {
    let listener = core.listeners.get(id)?;
    let session = listener.session()?;
    let events = pack_events(&listener.mailbox);
    let body = SessionBody {
        dropped: pack_dropped(&listener.mailbox, &events),
        since: session.since,
        token_expires: session.identity.expires,
        token_issued_s: session.identity.issued_s,
        unlimited: session.identity.unlimited,
        scopes: session.identity.scopes,
        key: session.identity.key.clone(),
        rights: (*session.identity.rights).clone(),
        subscriptions: subscriptions(core, id),
        last_seq: listener.mailbox.last(),
        events,
        presences: session
            .present
            .all()
            .into_iter()
            .map(|(channel, state)| (channel, state.map(|state| state.text)))
            .collect(),
        polling: session.polling,
        lost: session.lost,
        window_ms: 0,
        presence_versions,
        bus_positions: core.bus_positions.last(listener.received_elsewhere.as_deref()),
        statuses,
        last_inbox_message: session.last_inbox_message,
        unacked_inbox: session.unacked_inbox.as_deref().into_iter().flatten().copied().collect(),
        history,
    };
    Some(PackedSession {
        key: session.key,
        client: session.client,
        user: session.identity.user.clone(),
        name: session.identity.name.clone(),
        detached_at: session.active_at,
        expires_at: session_expires_at(core, id),
        body,
    })
}

/// Where an event is in the history of its channel.
fn place_of(event: &Event) -> Option<(Arc<str>, HistoryPosition)> {
    let (stamp, channel) = (event.history()?, event.channel()?);
    Some((std::str::from_utf8(channel).ok()?.into(), stamp.position))
}

/// The messages that the mailbox has dropped, and those that do not fit into the row.
fn pack_dropped(mailbox: &Mailbox, packed: &[MailboxEvent]) -> Vec<DroppedRun> {
    let mut dropped = mailbox.dropped().cloned().unwrap_or_default();
    let kept_from = packed.first().map_or(mailbox.last() + 1, |event| event.seq);
    for (seq, event) in (mailbox.first()..kept_from).zip(mailbox.events()) {
        dropped.note(seq, event);
    }
    dropped.runs().cloned().collect()
}

fn pack_events(mailbox: &Mailbox) -> Vec<MailboxEvent> {
    let events = mailbox.events().zip(mailbox.first()..);
    let mut events: Vec<MailboxEvent> = events
        .map(|(event, seq)| MailboxEvent { seq, event: event.json_tail().into(), place: place_of(event) })
        .collect();
    let mut bytes: usize = 0;
    let fits = events.iter().rev().take_while(|event| {
        bytes += event.event.len() + 16;
        bytes <= EVENTS_BYTES
    });
    let unfit = events.len() - fits.count();
    events.drain(..unfit);
    if planted("hub-migration") {
        events.retain(|event| event.seq <= mailbox.sent());
    }
    events
}
