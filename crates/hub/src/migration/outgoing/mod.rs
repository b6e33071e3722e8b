//! Sessions that are migrating to another node. Such a session is frozen, still collects events, is put into the
//! store, and is deleted when the other node has it, or taken back when the other node does not take it. Must hold:
//! this node owns the session until it is in the store, and afterwards only if this node removes it there; a session
//! that this node no longer owns gets no events here, and its client is not reported lost unless no other node has
//! it.

mod drain;
mod entry;

pub(crate) use drain::drain_window_ms;

use super::departed::DepartedSessions;
use super::forward::{forward_due, store_session, take_stored};
use super::lookup::{LookupResult, SessionLookup};
use super::packed::{PackedSession, subscriptions};
use super::protocol::{MoveId, RETRY_MS, matches_claim, send};
use crate::connection::{CloseReason, EventFormat, Link, LinkId};
use crate::core::listener::ListenerId;
use crate::core::sweep::session_expires_at;
use crate::core::{Core, Feature, Notice, Timer, WatchedVersions};
use drain::{DrainOffer, OFFER_MS};
use entry::{OutgoingMove, OutgoingStage};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::sync::Arc;
use tavern_domain::{ClientId, SessionKey, Time};
use tavern_store::{Commit, Expect, RowKey, StoreAnswer, StoreError, Ticket, Work};
use tavern_wire::bus::migration::{MigrationAction, MovedSubscription, SessionClaim};

/// How long a session stays frozen for a node that asked for it and then does not answer.
const FROZEN_MS: u64 = 5_000;
/// After this time another node may ask for it: the first one has probably died.
const SILENT_MS: u64 = 500;
/// How long to wait for presence changes up to the version from which the new node sends them.
const CATCH_UP_MS: u64 = 300;
/// How long to wait, after that, for presence changes of the session that are not committed yet.
const BUSY_MS: u64 = 4_000;
/// How long the new node has to take the session from the store.
const RECLAIM_MS: u64 = 5_000;

#[derive(Default)]
pub(super) struct OutgoingMoves {
    /// By half of the session's key.
    moves: BTreeMap<u64, OutgoingMove>,
    pub(super) departed: DepartedSessions,
    requests: HashMap<Ticket, (MoveId, OutgoingRequest), RandomState>,
    /// The node stops: these are offered next.
    queue: VecDeque<ListenerId>,
    /// How long clients have to resume the sessions of a stopped node.
    drain_ms: u64,
}

#[derive(Clone, Copy)]
enum OutgoingRequest {
    Put,
    Reclaim,
}

impl OutgoingMoves {
    /// How many sessions are migrating or still to be offered.
    pub fn len(&self) -> usize {
        self.moves.len() + self.queue.len()
    }

    /// Whether a frozen session is migrating and surely not in the store.
    pub fn owns_session(&self, key: SessionKey, id: ListenerId) -> bool {
        self.moves.get(&key.half()).is_some_and(|known| known.listener == id && !known.may_be_stored())
    }

    /// The client of a session that is about to migrate reconnected to this node.
    pub fn call_back(
        &mut self,
        core: &mut Core,
        lookup: &SessionLookup<'_>,
        id: ListenerId,
        link: LinkId,
    ) -> LookupResult {
        let identity = core.session(id).map(|session| &session.identity);
        if !identity.is_some_and(|identity| matches_claim(&lookup.claim(), identity)) {
            return LookupResult::NotFound;
        }
        let half = lookup.key.half();
        match self.moves.get_mut(&half).filter(|outgoing| outgoing.may_be_stored()) {
            Some(outgoing) => {
                outgoing.add_link(link);
                LookupResult::Wait
            }
            None => {
                self.unfreeze(core, half);
                LookupResult::Here
            }
        }
    }

    /// Another node asks for a session of this node.
    pub fn asked(
        &mut self,
        core: &mut Core,
        listener: ListenerId,
        from: &Arc<str>,
        id: MoveId,
        claim: &SessionClaim,
        detached_only: bool,
    ) -> MigrationAction {
        let now = core.now;
        let Some(session) = core.session(listener) else { return MigrationAction::No };
        if !matches_claim(claim, &session.identity) || now >= session.identity.expires {
            return MigrationAction::Refused;
        }
        if session.returning.is_some() {
            // Its client is back on this node, with a hello that will be answered soon.
            return MigrationAction::Moving;
        }
        let pushed = |link: Link| link.format != EventFormat::Poll;
        if detached_only && core.listener(listener).and_then(|known| known.link).is_some_and(pushed) {
            return MigrationAction::Attached;
        }
        let busy = |outgoing: &OutgoingMove| {
            let other = outgoing.to != *from && now < outgoing.began + SILENT_MS;
            other || outgoing.drain.is_some() || outgoing.may_be_stored()
        };
        match self.moves.get_mut(&id.half()) {
            Some(offered)
                if offered.is_only_offered_to_others(from) && !(detached_only && offered.has_transport()) =>
            {
                // Its client is on the node that asks.
                (offered.id, offered.to, offered.until) = (id, from.clone(), now + FROZEN_MS);
                return MigrationAction::Here { names: subscriptions_of(core, listener) };
            }
            Some(outgoing) if busy(outgoing) => return MigrationAction::Moving,
            _ => {}
        }
        core.supersede(listener);
        self.freeze(core, listener, id, from.clone(), None);
        MigrationAction::Here { names: subscriptions_of(core, listener) }
    }

    fn freeze(
        &mut self,
        core: &mut Core,
        listener: ListenerId,
        id: MoveId,
        to: Arc<str>,
        drain: Option<DrainOffer>,
    ) {
        let Some(session) = core.session_mut(listener) else { return };
        session.frozen = true;
        if drain.as_ref().is_none_or(|offer| offer.link.is_some()) {
            restart_window(core, listener);
        }
        let now = core.now;
        let due = now + if drain.is_some() { OFFER_MS } else { FROZEN_MS };
        let outgoing = OutgoingMove {
            id,
            listener,
            to,
            stage: OutgoingStage::Announced,
            drain,
            links: Vec::new(),
            began: now,
            due,
            until: now + FROZEN_MS,
        };
        self.moves.insert(id.half(), outgoing);
        core.agenda.set(due, Timer::Migration(id.half()));
    }

    /// The new node collects events from now on.
    pub fn give(
        &mut self,
        core: &mut Core,
        watched: &dyn WatchedVersions,
        from: &Arc<str>,
        id: MoveId,
        versions: BTreeMap<String, u64>,
    ) {
        let Some(outgoing) = self.moves.get_mut(&id.half()).filter(|known| known.is_to(from, id)) else {
            return send(core, from, id, MigrationAction::No);
        };
        match outgoing.stage {
            OutgoingStage::Announced => {
                outgoing.stage = OutgoingStage::CatchingUp(versions);
                outgoing.until = core.now + CATCH_UP_MS;
                self.store_when_caught_up(core, watched, id.half());
            }
            OutgoingStage::Stored { client, version } => {
                send(core, from, id, MigrationAction::Given { client, version });
            }
            OutgoingStage::CatchingUp(_) | OutgoingStage::Storing { .. } | OutgoingStage::Reclaiming => {}
        }
    }

    fn store_when_caught_up(&mut self, core: &mut Core, watched: &dyn WatchedVersions, half: u64) {
        let now = core.now;
        let Some(outgoing) = self.moves.get(&half) else { return };
        let OutgoingStage::CatchingUp(versions) = &outgoing.stage else { return };
        let behind = |(channel, version): (&String, &u64)| {
            watched.known_version(channel).is_some_and(|known| known < *version)
        };
        let busy = watched.is_busy(outgoing.listener);
        if busy && now >= outgoing.until + BUSY_MS {
            // A change that is committed here after the migration would overwrite what the new node announced.
            return self.unfreeze(core, half);
        }
        if busy || (now < outgoing.until && versions.iter().any(behind)) {
            return self.wake_in(core, half, RETRY_MS / 10);
        }
        self.pack(core, half, false);
    }

    fn wake_in(&mut self, core: &mut Core, half: u64, ms: u64) {
        if let Some(outgoing) = self.moves.get_mut(&half) {
            outgoing.due = core.now + ms;
            core.agenda.set(outgoing.due, Timer::Migration(half));
        }
    }

    /// Asks the shard to pack the session: every feature has a part of it.
    fn pack(&mut self, core: &mut Core, half: u64, uncertain: bool) {
        let Some(outgoing) = self.moves.get_mut(&half) else { return };
        // No timer of an earlier stage may repeat it: of two writes in flight, one could be applied after the new
        // node took the session, and another node would adopt that row.
        (outgoing.stage, outgoing.due) = (OutgoingStage::Storing { uncertain }, Time::NEVER);
        core.notify(Notice::SessionPacks { half });
    }

    pub fn to_pack(&self, half: u64) -> Option<(ListenerId, u64)> {
        let storing = |outgoing: &&OutgoingMove| matches!(outgoing.stage, OutgoingStage::Storing { .. });
        let outgoing = self.moves.get(&half).filter(storing)?;
        Some((outgoing.listener, outgoing.drain.as_ref().map_or(0, |offer| offer.window_ms)))
    }

    pub fn store(&mut self, core: &mut Core, half: u64, packed: Option<&PackedSession>) {
        let Some(packed) = packed else { return self.unfreeze(core, half) };
        let Some(id) = self.moves.get(&half).map(|outgoing| outgoing.id) else { return };
        let writer = core.writer();
        let expects = vec![Expect { key: RowKey::Session(packed.client), version: 0 }];
        let mut commit = Commit { expects, ..Commit::default() };
        store_session(&mut commit, packed.to_row(&writer));
        commit.writer = Some(writer);
        self.submit(core, id, OutgoingRequest::Put, Work::Commit(commit));
    }

    fn submit(&mut self, core: &mut Core, id: MoveId, request: OutgoingRequest, work: Work) {
        let ticket = core.submit(Feature::Migration, work);
        self.requests.insert(ticket, (id, request));
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        match self.requests.remove(&ticket) {
            Some((id, OutgoingRequest::Put)) => self.stored(core, id, answer),
            Some((id, OutgoingRequest::Reclaim)) => self.reclaimed(core, id, &answer),
            None => {}
        }
    }

    fn stored(&mut self, core: &mut Core, id: MoveId, answer: StoreAnswer) {
        let half = id.half();
        let Some(outgoing) = self.moves.get_mut(&half).filter(|known| known.id.number == id.number) else {
            return;
        };
        let OutgoingStage::Storing { uncertain } = outgoing.stage else { return };
        let client = core.session(outgoing.listener).map(|session| session.client);
        let version = match answer {
            StoreAnswer::Committed(receipt) => {
                client.and_then(|client| receipt.version(&RowKey::Session(client))).unwrap_or(0)
            }
            // The first attempt succeeded. No other node can have taken it: none knows the version.
            StoreAnswer::Failed(StoreError::Conflict { found, .. }) if uncertain => found,
            StoreAnswer::Failed(StoreError::Unavailable { .. }) => {
                outgoing.stage = OutgoingStage::Storing { uncertain: true };
                return self.wake_in(core, half, RETRY_MS);
            }
            // Other nodes closed this epoch, and may have adopted the session from the store.
            StoreAnswer::Failed(StoreError::Fenced { .. }) if uncertain => return self.depart(core, half),
            _ => return self.unfreeze(core, half),
        };
        let Some(client) = client else { return };
        outgoing.stage = OutgoingStage::Stored { client, version };
        outgoing.until = core.now + RECLAIM_MS;
        send(core, &outgoing.to, id, MigrationAction::Given { client, version });
        self.wake_in(core, half, RECLAIM_MS);
    }

    /// The new node has the session.
    pub fn taken(&mut self, core: &mut Core, from: &Arc<str>, id: MoveId) {
        if self.moves.get(&id.half()).is_some_and(|outgoing| outgoing.is_to(from, id)) {
            self.depart(core, id.half());
        }
    }

    /// The new node refuses the session, or cancels the move.
    pub fn declined(&mut self, core: &mut Core, from: &Arc<str>, id: MoveId) {
        let half = id.half();
        let Some(outgoing) = self.moves.get(&half).filter(|known| known.is_to(from, id)) else { return };
        match outgoing.stage {
            OutgoingStage::Announced | OutgoingStage::CatchingUp(_) => self.give_up(core, half),
            OutgoingStage::Stored { client, version } => self.reclaim(core, id, client, version),
            OutgoingStage::Storing { .. } | OutgoingStage::Reclaiming => {}
        }
    }

    /// The new node does not take a session that is not stored yet.
    fn give_up(&mut self, core: &mut Core, half: u64) {
        match self.moves.get(&half).is_some_and(|outgoing| outgoing.drain.is_some()) {
            true => self.offer_next(core, half),
            false => self.unfreeze(core, half),
        }
    }

    pub fn is_due(&mut self, core: &mut Core, watched: &dyn WatchedVersions, half: u64) {
        let now = core.now;
        let Some(outgoing) = self.moves.get(&half).filter(|outgoing| outgoing.due <= now) else { return };
        match outgoing.stage {
            OutgoingStage::Announced if now >= outgoing.until => self.give_up(core, half),
            OutgoingStage::Announced => {
                if outgoing.drain.is_some() {
                    self.send_offer(core, half);
                }
                self.wake_in(core, half, OFFER_MS);
            }
            OutgoingStage::CatchingUp(_) => self.store_when_caught_up(core, watched, half),
            OutgoingStage::Storing { uncertain: true } => self.pack(core, half, true),
            OutgoingStage::Storing { uncertain: false } | OutgoingStage::Reclaiming => {}
            OutgoingStage::Stored { client, version } => {
                self.reclaim(core, outgoing.id, client, version);
            }
        }
    }

    /// The new node did not take the session: it belongs to the node that removes it from the store.
    fn reclaim(&mut self, core: &mut Core, id: MoveId, client: ClientId, version: u64) {
        let Some(outgoing) = self.moves.get_mut(&id.half()) else { return };
        outgoing.stage = OutgoingStage::Reclaiming;
        let expires_at = session_expires_at(core, outgoing.listener);
        if let Some(session) = core.session_mut(outgoing.listener) {
            session.forward_due = forward_due(expires_at);
        }
        let commit = take_stored(core.writer(), client, version, (id.key, expires_at));
        self.submit(core, id, OutgoingRequest::Reclaim, Work::Commit(commit));
    }

    fn reclaimed(&mut self, core: &mut Core, id: MoveId, answer: &StoreAnswer) {
        let reclaiming = |outgoing: &&OutgoingMove| {
            outgoing.id.number == id.number && matches!(outgoing.stage, OutgoingStage::Reclaiming)
        };
        if self.moves.get(&id.half()).filter(reclaiming).is_none() {
            return;
        }
        match answer {
            StoreAnswer::Committed(_) => self.unfreeze(core, id.half()),
            // Another node has it. Treat an unknown outcome the same: a session may be lost, but must never be on two
            // nodes.
            _ => self.depart(core, id.half()),
        }
    }

    /// The session stays here.
    fn unfreeze(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(outgoing) = self.moves.remove(&half) else { return };
        core.effects.ready.extend(outgoing.links);
        let Some(session) = core.session_mut(outgoing.listener) else { return };
        session.frozen = false;
        let connected = match outgoing.drain {
            // Its client was on another node until now.
            None => true,
            // Its connection is closed now, if it had one.
            Some(offer) => {
                session.window_ms = NonZeroU64::new(offer.window_ms);
                offer.link.is_some()
            }
        };
        if connected {
            session.active_at = session.active_at.max(now);
        }
        // The node may have a new epoch by now: its clients are announced under it.
        core.notify(Notice::SessionStays { id: outgoing.listener });
        core.schedule_loss(outgoing.listener);
    }

    /// Another node has the session.
    fn depart(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(outgoing) = self.moves.remove(&half) else { return };
        core.effects.ready.extend(outgoing.links);
        if let Some(link) = outgoing.drain.and_then(|offer| offer.link) {
            core.effects.closes.push((link, CloseReason::Closing));
        }
        let Some(session) = core.session_mut(outgoing.listener) else { return };
        self.departed.add(now, half, session);
        DepartedSessions::schedule_check(core);
        core.stats.sessions_migrated_out.add(1);
        core.notify(Notice::SessionEnds { id: outgoing.listener });
        self.offer_queued(core);
    }
}

/// The client was connected, here or on another node, until now: its time to resume starts now. Not for a polling
/// client, whose last poll counts.
pub(crate) fn restart_window(core: &mut Core, id: ListenerId) {
    let now = core.now;
    if let Some(session) = core.session_mut(id).filter(|session| !session.polling) {
        session.active_at = session.active_at.max(now);
    }
}

fn subscriptions_of(core: &Core, id: ListenerId) -> Vec<MovedSubscription> {
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let name = |known: tavern_store::body::SessionSubscription| MovedSubscription {
        name: text(&known.name),
        pattern: known.pattern,
        presence: known.presence,
    };
    subscriptions(core, id).into_iter().map(name).collect()
}
