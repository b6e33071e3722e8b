//! A session packed up to live on elsewhere: in the store while no node runs, or on another node.

use crate::core::Core;
use crate::core::listener::ListenerId;
use crate::core::mailbox::Mailbox;
use crate::core::sweep::session_expires_at;
use crate::event::Space;
use std::sync::Arc;
use tavern_domain::{ClientId, Identity, SessionKey, Time};
use tavern_engine::body::{BodyError, StoredEvent, Subscription};
use tavern_engine::{SessionBody, StoredSession, Writer, limits};

/// What a packed mailbox may hold at most: the row that carries it has a bound. Older events go, and are told as a gap.
const EVENTS_BYTES: usize = limits::BODY_BYTES / 2;

#[derive(Clone, Debug)]
pub struct Packed {
    pub key: SessionKey,
    pub client: ClientId,
    pub user: Option<Arc<str>>,
    pub name: Option<Arc<str>>,
    pub detached_at: Time,
    /// When it is forgotten if nobody comes back for it.
    pub expires_at: Time,
    pub body: SessionBody,
}

/// A packed session as it lies in the store.
pub fn stored(packed: &Packed, owner: &Writer) -> StoredSession {
    StoredSession {
        client: packed.client,
        secret: packed.key,
        user: packed.user.clone(),
        name: packed.name.clone(),
        owner: owner.clone(),
        body: packed.body.encode().into(),
        detached_at: Some(packed.detached_at),
        expires_at: packed.expires_at,
    }
}

/// A session that was found in the store.
pub fn unpacked(stored: StoredSession, now: Time) -> Result<Packed, BodyError> {
    Ok(Packed {
        key: stored.secret,
        client: stored.client,
        user: stored.user,
        name: stored.name,
        detached_at: stored.detached_at.unwrap_or(now),
        expires_at: stored.expires_at,
        body: SessionBody::decode(&stored.body)?,
    })
}

pub(crate) fn subscriptions(core: &Core, id: ListenerId) -> Vec<Subscription> {
    let watched = watched_by(core, id);
    let names = |space| core.subscriptions(id, space).into_iter().map(move |name| (name, space));
    let all = names(Space::Channel).chain(names(Space::Pattern));
    all.map(|(name, space)| Subscription {
        presence: space == Space::Channel && watched.iter().any(|known| known.as_bytes() == &*name),
        name: (*name).into(),
        pattern: space == Space::Pattern,
    })
    .collect()
}

pub(crate) fn watched_by(core: &Core, id: ListenerId) -> Vec<Arc<str>> {
    let names = core.subscriptions(id, Space::Presence).into_iter();
    names.filter_map(|name| std::str::from_utf8(&name).ok().map(Arc::from)).collect()
}

/// Packs a session up. `told`: how far its client was told of the channels it watches; `statuses`: what it knows of the
/// users it follows.
pub(crate) fn pack(
    core: &Core,
    id: ListenerId,
    told: Vec<(Arc<str>, u64)>,
    statuses: Vec<(Arc<str>, u64)>,
) -> Option<Packed> {
    let listener = core.listeners.get(id)?;
    let session = listener.session()?;
    let body = SessionBody {
        token_expires: session.identity.expires,
        unlimited: session.identity.unlimited,
        scopes: session.identity.scopes,
        rights: (*session.identity.rights).clone(),
        subscriptions: subscriptions(core, id),
        last_seq: listener.mailbox.last(),
        events: pack_events(&listener.mailbox),
        presences: session
            .present
            .all()
            .into_iter()
            .map(|(channel, state)| (channel, state.map(|state| state.text)))
            .collect(),
        polling: session.polling,
        lost: session.lost,
        window_ms: 0,
        told,
        heard: core.streams.last(listener.marks.as_deref()),
        statuses,
        letters: session.letters,
        post: session.post.iter().copied().collect(),
    };
    Some(Packed {
        key: session.key,
        client: session.client,
        user: session.identity.user.clone(),
        name: session.identity.name.clone(),
        detached_at: session.heard_at,
        expires_at: session_expires_at(core, id),
        body,
    })
}

fn pack_events(mailbox: &Mailbox) -> Vec<StoredEvent> {
    let kept = (0..mailbox.len()).filter_map(|index| mailbox.front(index));
    let events = kept.zip(mailbox.first()..);
    let mut events: Vec<StoredEvent> =
        events.map(|(event, seq)| StoredEvent { seq, event: event.json_tail().into() }).collect();
    let mut bytes: usize = 0;
    let fits = events.iter().rev().take_while(|event| {
        bytes += event.event.len() + 16;
        bytes <= EVENTS_BYTES
    });
    let unfit = events.len() - fits.count();
    events.drain(..unfit);
    events
}

pub(super) fn told_of(body: &SessionBody, channel: &Arc<str>) -> u64 {
    body.told.iter().find(|(name, _)| name == channel).map_or(0, |(_, version)| *version)
}

pub(super) fn identity_of(packed: &Packed) -> Identity {
    let body = &packed.body;
    Identity {
        user: packed.user.clone(),
        name: packed.name.clone(),
        rights: Arc::new(body.rights.clone()),
        expires: body.token_expires,
        unlimited: body.unlimited,
        scopes: body.scopes,
        key: None,
    }
}
