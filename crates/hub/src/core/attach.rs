//! Opening sessions, attaching and detaching connections, parking polls.
//! Must hold: a session has at most one connection; a newer one supersedes the older; only its own user, or the API key
//! that opened it, resumes it.

use crate::connection::{CloseReason, EventFormat, Link, LinkId};
use crate::core::detached;
use crate::core::listener::{ListenerId, ListenerKind};
use crate::core::publish::heal_gap;
use crate::core::session::Session;
use crate::core::{Core, Notice, has_read, rights_change};
use crate::node::session_slots::SessionsFull;
use std::num::NonZeroU64;
use tavern_domain::{AddressGroup, ClientId, Identity, SessionKey, Time};
use tavern_wire::error::{Code, Refusal};

/// When a client whose user has too many sessions may try again.
const SESSIONS_RETRY_MS: u64 = 5_000;

/// A session was found, and this connection is attached to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    pub listener: ListenerId,
    /// The client acknowledged events that this mailbox never had: its sequence numbers start again.
    pub reset: bool,
}

impl Core {
    /// Opens a session, with or without a connection; `client` is its public id, if it has one already. Refused when its
    /// user has too many, or is banned.
    pub(crate) fn open_session(
        &mut self,
        identity: Identity,
        address: Option<AddressGroup>,
        link: Option<Link>,
        client: Option<ClientId>,
    ) -> Result<ListenerId, Refusal> {
        let now = self.now;
        if let Some(refusal) = self.node.blocks.refusal(identity.user.as_deref(), now) {
            return Err(refusal);
        }
        let slot = self.node.session_slots.open(now, &identity, address).map_err(too_many)?;
        let key = SessionKey::from_random(self.rng.next(), self.index, self.node.settings.shards);
        let client = client.unwrap_or_else(|| ClientId::from_random(self.rng.next()));
        let mut session = Session::new(key, client, identity, now);
        session.polling = link.is_none();
        session.slot = slot;
        let id = self.listeners.insert(ListenerKind::Session(Box::new(session)), link);
        self.sessions.insert(key.half(), id);
        self.stats.sessions_opened.add(1);
        self.add_user_session(id);
        note_idle(self, id);
        self.notify(Notice::SessionOpened { id });
        Ok(id)
    }

    pub fn find_session(&self, key: SessionKey) -> Option<ListenerId> {
        let id = self.find_any_session(key)?;
        let session = self.listeners.get(id)?.session()?;
        (!session.frozen && !session.is_replaced()).then_some(id)
    }

    /// Also finds a session that is migrating to another node.
    pub(crate) fn find_any_session(&self, key: SessionKey) -> Option<ListenerId> {
        let id = *self.sessions.get(&key.half())?;
        let session = self.listeners.get(id)?.session()?;
        session.key.matches(key).then_some(id)
    }

    /// Attaches a connection to a live session. Events after `seq` are unread again. None: not found or not allowed;
    /// nothing has changed.
    pub(crate) fn attach(
        &mut self,
        key: SessionKey,
        identity: &Identity,
        link: Link,
        seq: Option<u64>,
    ) -> Option<Attached> {
        let now = self.now;
        let id = self.find_session(key)?;
        if !self.may_resume(id, identity) {
            return None;
        }
        self.supersede(id);
        detached::leave_logs(self, id);
        let listener = self.listeners.get_mut(id)?;
        listener.link = Some(link);
        listener.linked_us = self.event_memory.now_us();
        let seq = seq.unwrap_or(listener.mailbox.first() - 1);
        let known = listener.mailbox.rewind(seq);
        if known {
            listener.mailbox.acknowledge(seq);
        } else {
            listener.mailbox.rewind(listener.mailbox.first() - 1);
        }
        heal_gap(self, id);
        let listener = self.listeners.get_mut(id)?;
        let session = listener.session_mut()?;
        session.polling = link.format == EventFormat::Poll;
        session.active_at = now;
        session.returning = None;
        if rights_change::is_newer(identity, &session.identity) {
            rights_change::renew(self, id, identity);
        }
        self.stats.sessions_resumed.add(1);
        note_idle(self, id);
        self.mark_dirty(id);
        has_read(self, id);
        self.notify(Notice::SessionAttached { id, acknowledged: known.then_some(seq) });
        Some(Attached { listener: id, reset: !known })
    }

    /// Whether a client with this identity may resume a session.
    pub(crate) fn may_resume(&self, id: ListenerId, identity: &Identity) -> bool {
        self.session(id).is_some_and(|session| {
            session.identity.is_same_caller(identity)
                && self.now < session.identity.expires.max(identity.expires)
        })
    }

    /// Detaches the connection of a session because another one is attached.
    pub(crate) fn supersede(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        listener.dirty = false;
        if let Some(session) = listener.session_mut() {
            session.parked_until = None;
        }
        if let Some(old) = listener.link.take() {
            self.effects.closes.push((old.id, CloseReason::Superseded));
            self.stats.sessions_superseded.add(1);
        }
        self.effects.dirty.retain(|dirty| *dirty != id);
    }

    /// A connection was lost. The session stays and collects events; a Redis listener ends with its connection.
    pub(crate) fn detach(&mut self, id: ListenerId, link: LinkId) {
        let now = self.now;
        let Some(listener) = self.listeners.get_mut(id) else { return };
        if listener.is_redis() {
            self.remove(id);
            return;
        }
        let current = listener.link.is_some_and(|current| current.id == link);
        // Closed as a slow reader: the link was removed before the socket was closed.
        if current || listener.link.is_none() {
            listener.link = None;
            listener.dirty = false;
            if let Some(session) = listener.session_mut() {
                session.active_at = now;
                session.parked_until = None;
            }
        }
        note_idle(self, id);
        self.schedule_loss(id);
    }

    /// Adds the session to the sessions that its user has here, and counts it on this node.
    pub(crate) fn add_user_session(&mut self, id: ListenerId) {
        if let Some(session) = self.session_mut(id) {
            session.counted = true;
            self.node.population.add_session();
        }
        if let Some(user) = self.user_of(id) {
            if !self.users.contains(&user) {
                self.node.population.add_user(&user);
            }
            self.users.add_session(&user, id);
        }
    }

    /// A session without a connection is lost when its resume window ends.
    pub(crate) fn schedule_loss(&mut self, id: ListenerId) {
        let settings = &self.node.settings;
        let Some(listener) = self.listeners.get(id).filter(|listener| listener.link.is_none()) else {
            return;
        };
        let waits = |session: &&Session| {
            !session.present.is_empty() && !session.lost && !session.frozen && session.returning.is_none()
        };
        let Some(session) = listener.session().filter(waits) else {
            return;
        };
        let window_ms = session.window_ms.map_or(settings.resume_ms, NonZeroU64::get);
        self.agenda.set_session(session.lost_at(settings.poll_idle_ms) + window_ms, id);
    }

    /// A sign of life: the connection was heard, or a command came over a separate HTTP request.
    pub fn note_activity(&mut self, now: Time, id: ListenerId) {
        if let Some(session) = self.listeners.get_mut(id).and_then(|listener| listener.session_mut()) {
            session.active_at = session.active_at.max(now);
        }
    }
}

/// The identity of a request that names a session and may have a credential. The session secret alone is enough only
/// for sessions that were opened without a credential. None: the session belongs to another caller, or the credential
/// is missing.
pub fn acting_identity(core: &Core, id: ListenerId, given: Option<&Identity>) -> Option<Identity> {
    let own = &core.session(id)?.identity;
    match given {
        Some(given) => given.is_same_caller(own).then(|| given.clone()),
        None => (!own.is_proved()).then(|| own.clone()),
    }
}

/// Tells the per-user session limit whether a session has a connection: idle ones are replaced first.
pub(crate) fn note_idle(core: &Core, id: ListenerId) {
    let Some(listener) = core.listeners.get(id) else { return };
    let Some(session) = listener.session() else { return };
    if let Some(slot) = &session.slot {
        let idle = listener.link.is_none() && session.returning.is_none();
        slot.set_idle(idle.then(|| session.lost_at(core.node.settings.poll_idle_ms)));
    }
}

fn too_many(full: SessionsFull) -> Refusal {
    let message = format!(
        "this user has {} sessions with a connection, and no more are allowed (limits.sessions_per_user)",
        full.max
    );
    Refusal::new(Code::RateLimited, message).retry_after(SESSIONS_RETRY_MS)
}

/// The session with a public client id. Scans all sessions: for the API, not for hot paths.
pub fn find_client(core: &Core, client: ClientId) -> Option<ListenerId> {
    let is = |id: &ListenerId| {
        core.listeners.get(*id).and_then(|l| l.session()).is_some_and(|s| s.client == client)
    };
    core.listeners.ids().find(is)
}
