//! Sessions that migrate: to another node (`outgoing`), from another node (`incoming`), or out of the store after
//! their node stopped (`adopted`). `forward` says where they went. This file routes lookups, messages between nodes, store answers and timers to
//! these parts. Why a migration is safe: `docs/adr/0008`. Must hold: a session is used on at most one node; it gets
//! no message twice, and a gap for every loss.

mod adopted;
mod arrival;
mod departed;
mod forward;
mod incoming;
mod lookup;
mod outgoing;
mod packed;
mod protocol;

pub use adopted::may_have_missed;
pub(crate) use forward::forget as forget_forward;
pub use forward::{store_session, take_session};
pub use lookup::{LookupResult, SessionLookup};
pub(crate) use outgoing::{drain_window_ms, restart_window};
pub use packed::PackedSession;
pub(crate) use packed::{pack, watched_by};

use crate::connection::LinkId;
use crate::core::listener::ListenerId;
use crate::core::{Core, WatchedVersions};
use adopted::AdoptedWatchers;
use incoming::IncomingMoves;
use outgoing::OutgoingMoves;
use protocol::{MoveId, send};
use std::sync::Arc;
use tavern_domain::ClientId;
use tavern_store::{StoreAnswer, Ticket};
use tavern_wire::bus::migration::{MigrationAction, MigrationRequest, SessionClaim};

#[derive(Default)]
pub(crate) struct Migration {
    incoming: IncomingMoves,
    outgoing: OutgoingMoves,
    adopted: AdoptedWatchers,
}

impl Migration {
    /// Looks for a session here, then on the other nodes.
    pub fn look_up(&mut self, core: &mut Core, lookup: &SessionLookup<'_>, link: LinkId) -> LookupResult {
        if let Some(id) = core.find_session(lookup.key) {
            if lookup.node != &*core.node.name {
                forward::renew(core, id);
            }
            return LookupResult::Here;
        }
        if core.ended.has(lookup.key.half()) {
            return LookupResult::Ended;
        }
        if let Some(result) = self.incoming.result(link, lookup.key) {
            return result;
        }
        match core.find_any_session(lookup.key) {
            Some(id) => self.outgoing.call_back(core, lookup, id, link),
            None => self.incoming.look_up(core, lookup, link),
        }
    }

    /// The connection was closed, or sends something new.
    pub fn forget_link(&mut self, link: LinkId) {
        self.incoming.forget_link(link);
    }

    /// A message of another node about a session.
    pub fn message(
        &mut self,
        core: &mut Core,
        watched: &dyn WatchedVersions,
        from: &Arc<str>,
        message: MigrationRequest,
    ) {
        let id = MoveId { key: message.key, number: message.number };
        match message.step {
            MigrationAction::Ask { claim, gentle } => self.asked(core, from, id, &claim, gentle),
            MigrationAction::Give { versions } => self.outgoing.give(core, watched, from, id, versions),
            MigrationAction::Taken => self.outgoing.taken(core, from, id),
            MigrationAction::Offer { names } => self.incoming.offered(core, watched, from, id, names),
            MigrationAction::Here { names } => self.incoming.found(core, watched, from, id, names),
            MigrationAction::Given { client, version } => {
                self.incoming.given(core, from, id, client, version)
            }
            MigrationAction::No => {
                self.incoming.not_found(core, from, id, &MigrationAction::No);
                self.outgoing.declined(core, from, id);
            }
            step @ (MigrationAction::Moving
            | MigrationAction::Refused
            | MigrationAction::Attached
            | MigrationAction::Ended) => self.incoming.not_found(core, from, id, &step),
        }
    }

    /// Another node looks for a session.
    fn asked(
        &mut self,
        core: &mut Core,
        from: &Arc<str>,
        id: MoveId,
        claim: &SessionClaim,
        detached_only: bool,
    ) {
        let answer = match core.find_any_session(id.key) {
            Some(listener) => self.outgoing.asked(core, listener, from, id, claim, detached_only),
            None if self.incoming.is_under_way(id) || self.outgoing.departed.has(id.half()) => {
                MigrationAction::Moving
            }
            None if core.ended.has(id.half()) => MigrationAction::Ended,
            // It may be on its way from the store to this node.
            None if core.node.adoption.is_in_progress() => MigrationAction::Moving,
            None => MigrationAction::No,
        };
        send(core, from, id, answer);
    }

    /// The store answered.
    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        match self.incoming.owns(ticket) {
            true => self.incoming.answered(core, ticket, answer),
            false => self.outgoing.answered(core, ticket, answer),
        }
    }

    /// Whether an incoming session, not a connection, waits for the bus under this link.
    pub fn owns_link(link: LinkId) -> bool {
        IncomingMoves::owns_link(link)
    }

    /// The bus has confirmed the subscriptions of an incoming session, or refused them.
    pub fn bus_ready(&mut self, core: &mut Core, watched: &dyn WatchedVersions, link: LinkId) {
        self.incoming.bus_ready(core, watched, link);
    }

    /// The timer of a session that migrates.
    pub fn is_due(&mut self, core: &mut Core, watched: &dyn WatchedVersions, half: u64) {
        self.incoming.is_due(core, half);
        self.outgoing.is_due(core, watched, half);
    }

    /// The timer of sessions that migrated away.
    pub fn check_departed(&mut self, core: &mut Core) {
        self.outgoing.departed.check(core);
    }

    /// Whether a client has just migrated to another node.
    pub fn has_departed(&self, client: ClientId) -> bool {
        self.outgoing.departed.has_client(client)
    }

    /// A watched channel was read: its watchers get the changes after `base`.
    pub fn channel_loaded(&mut self, core: &mut Core, channel: &Arc<str>, base: u64) {
        self.adopted.channel_loaded(core, channel, base);
        self.incoming.channel_loaded(core, channel, base);
    }

    /// Adopts a session from the store, detached. False: it has expired, or is here already.
    pub fn adopt(&mut self, core: &mut Core, watched: &dyn WatchedVersions, packed: &PackedSession) -> bool {
        if core.now >= packed.expires_at || core.find_any_session(packed.key).is_some() {
            return false;
        }
        // A lookup that still asks other nodes finds the session here.
        self.incoming.fail(core, packed.key.half(), &LookupResult::Here);
        self.adopted.adopt(core, watched, packed);
        true
    }

    /// The same for a session that was in the store while other nodes published: it is unknown what it missed, so each
    /// subscription gets a gap.
    pub fn adopt_late(
        &mut self,
        core: &mut Core,
        watched: &dyn WatchedVersions,
        packed: &PackedSession,
    ) -> bool {
        let adopted = self.adopt(core, watched, packed);
        if let Some(id) = core.find_any_session(packed.key).filter(|_| adopted) {
            arrival::add_gaps(core, id, &packed.body);
        }
        adopted
    }

    /// The node stops: offers its sessions to the nodes `to`. Each connection is closed when another node has its
    /// session.
    pub fn drain(&mut self, core: &mut Core, to: &[Arc<str>], drain_ms: u64) {
        self.refuse_sessions();
        core.node.set_other_nodes(to.to_vec());
        self.incoming.cancel(core);
        self.outgoing.drain(core, drain_ms);
    }

    /// The node stops: it takes no more sessions.
    pub fn refuse_sessions(&mut self) {
        self.incoming.refuse();
    }

    /// How many sessions are migrating: to other nodes, or from the store to this one.
    pub fn in_transit(&self) -> usize {
        self.outgoing.len() + self.incoming.len()
    }

    /// Whether this node still owns a session: it is not frozen, or frozen but surely not in the store.
    pub fn owns_session(&self, core: &Core, id: ListenerId) -> bool {
        let Some(session) = core.session(id) else { return false };
        !session.frozen || self.outgoing.owns_session(session.key, id)
    }

    /// Whether a session is offered to another node and its connection is still open.
    pub fn is_offered_with_transport(&self, id: ListenerId) -> bool {
        self.outgoing.is_offered_with_transport(id)
    }

    /// A session that must be packed for the store, and how long its client may be disconnected.
    pub fn to_pack(&self, half: u64) -> Option<(ListenerId, u64)> {
        self.outgoing.to_pack(half)
    }

    /// Puts a packed session into the store. `None`: it could not be packed and stays here.
    pub fn store(&mut self, core: &mut Core, half: u64, packed: Option<&PackedSession>) {
        self.outgoing.store(core, half, packed);
    }
}
