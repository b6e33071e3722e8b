//! The connections of a shard: opening, attaching and ending sessions, and long-polls.

use super::Shard;
use crate::connection::{Link, LinkId};
use crate::core::command::Caller;
use crate::core::listener::ListenerId;
use crate::core::render::{self, PollFlags};
use crate::core::{Attached, Core, Poll, poll};
use crate::event::Namespace;
use crate::migration::{LookupResult, SessionLookup};
use crate::node::admission::AdmittedHello;
use crate::party::{Parties, Snapshot};
use crate::presence::Presence;
use std::sync::Arc;
use tavern_domain::{AddressGroup, Identity, SessionKey, Time};
use tavern_wire::error::Refusal;

impl Shard {
    /// Begins a hello, unless the node takes no more of them now. API keys have no limit.
    pub fn admit(
        &self,
        now: Time,
        identity: Option<&Identity>,
    ) -> Result<Option<Arc<AdmittedHello>>, Refusal> {
        match identity.is_some_and(|identity| identity.unlimited) {
            true => Ok(None),
            false => self.core.node.admission.admit(now).map(Some),
        }
    }

    /// Opens a session, with or without a connection. Refused when its user has too many.
    pub fn open_session(
        &mut self,
        now: Time,
        identity: Identity,
        address: Option<AddressGroup>,
        link: Option<Link>,
    ) -> Result<ListenerId, Refusal> {
        self.core.now = now;
        let opened = self.core.open_session(identity, address, link, None);
        self.route();
        opened
    }

    /// Attaches a connection to a live session. Events after `seq` are unread again. None: not found or not allowed;
    /// nothing has changed.
    pub fn attach(
        &mut self,
        now: Time,
        key: SessionKey,
        identity: &Identity,
        link: Link,
        seq: Option<u64>,
    ) -> Option<Attached> {
        self.core.now = now;
        let attached = self.core.attach(key, identity, link, seq);
        self.route();
        attached
    }

    /// Handles a long-poll: its cursor acknowledges events, then it is answered or parked.
    pub fn poll(
        &mut self,
        now: Time,
        key: SessionKey,
        identity: Option<&Identity>,
        link: LinkId,
        cursor: Option<u64>,
        timeout_ms: u64,
    ) -> Poll {
        self.core.now = now;
        let poll = poll::arrive(&mut self.core, key, identity, link, cursor, timeout_ms);
        self.route();
        poll
    }

    /// The body of a poll's reply. Events are freed when a later cursor covers them, not now. False: the party of the
    /// user is being read; call this again when the link is named in `Effects::ready`.
    pub fn render_poll(
        &mut self,
        now: Time,
        id: ListenerId,
        link: LinkId,
        flags: PollFlags,
        out: &mut Vec<u8>,
    ) -> bool {
        self.core.now = now;
        // A newer connection may have taken the session while something was read for this poll.
        let attached = self.core.listener(id).and_then(|listener| listener.link);
        let taken = attached.is_some_and(|attached| attached.id != link);
        let flags = PollFlags { superseded: flags.superseded || taken, ..flags };
        if flags.superseded || !(flags.reset || self.party.poll_needs_snapshot(&self.core, id, link)) {
            render::render_poll(&mut self.core, id, flags, u64::MAX, None, out);
            return true;
        }
        let Shard { core, presence, party, .. } = self;
        let Some(snapshot) = snapshot(core, presence, party, id, link) else { return false };
        render::render_poll(&mut self.core, id, flags, snapshot.last_event, snapshot.party.as_deref(), out);
        true
    }

    /// A connection was lost. The session stays and collects events; a Redis listener ends with its connection.
    pub fn detach(&mut self, now: Time, id: ListenerId, link: LinkId) {
        self.core.now = now;
        self.core.detach(id, link);
        self.release_link(link);
        self.route();
    }

    /// The connection of a caller is closed: drops its waiting command.
    pub fn abandon(&mut self, now: Time, caller: &Caller) {
        self.core.now = now;
        crate::core::hello::abandon(&mut self.core, caller);
        self.release_link(caller.link.id);
    }

    /// The number of a connection may be reused: nothing waits for the old one.
    pub fn release_link(&mut self, link: LinkId) {
        self.core.replies.release(link);
        self.party.forget_link(link);
        self.migration.forget_link(link);
        self.history.answer_written(&mut self.core, link);
    }

    /// Ends a listener for good.
    pub fn end(&mut self, id: ListenerId) {
        self.end_session(id);
        self.route();
    }

    /// Unsubscribes; false if it was not subscribed.
    pub fn unsubscribe(&mut self, id: ListenerId, space: Namespace, name: &[u8]) -> bool {
        let left = self.core.unsubscribe(id, space, name);
        self.route();
        left
    }

    /// Looks for a session here, then on the other nodes.
    pub fn look_up(&mut self, now: Time, lookup: &SessionLookup<'_>, link: LinkId) -> LookupResult {
        self.core.now = now;
        let result = self.migration.look_up(&mut self.core, lookup, link);
        self.route();
        result
    }

    /// The node stops: offers its sessions to the nodes `to`. Each connection is closed when another node has its
    /// session.
    pub fn drain(&mut self, now: Time, to: &[Arc<str>], drain_ms: u64) {
        self.core.now = now;
        self.migration.drain(&mut self.core, to, drain_ms);
        self.route();
    }

    /// How many sessions are migrating: to other nodes, or from the store to this one.
    pub fn in_transit(&self) -> usize {
        self.migration.in_transit()
    }
}

/// A fresh snapshot of the party of a session's user. None: the link is named in `Effects::ready` when it has been
/// read.
pub(super) fn snapshot(
    core: &mut Core,
    presence: &Presence,
    party: &mut Parties,
    id: ListenerId,
    link: LinkId,
) -> Option<Snapshot> {
    let announcing = presence.is_announcing(core, id);
    party.snapshot(core, id, link, announcing)
}
