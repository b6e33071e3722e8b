//! Sessions that are migrating to this node. Events are collected here before the owner stores the session; then it
//! is taken from the store.
//! Must hold: a session is not used here before it is taken; when a move fails, nothing of the session stays here;
//! every move ends within a bounded time, whatever the other nodes do.

mod asking;
mod entry;

use super::arrival;
use super::forward::take_stored;
use super::lookup::LookupResult;
use super::packed::PackedSession;
use super::protocol::{MoveId, RETRY_MS, send};
use crate::connection::LinkId;
use crate::core::listener::{ListenerId, ListenerKind};
use crate::core::session::Session;
use crate::core::{Core, Feature, Notice, Timer, WatchedVersions};
use crate::event::Namespace;
use crate::node::InterestState;
use entry::{IncomingMove, IncomingStage, MOVE_MS};
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use tavern_domain::{ClientId, Identity, Rights, Scopes, SessionKey, Time};
use tavern_store::{Found, Read, StoreAnswer, StoreError, Ticket, Work};
use tavern_wire::bus::migration::{MigrationAction, MovedSubscription};

/// The delay before checking again whether another shard has finished the publishes it had in progress.
const UNPUBLISHED_MS: u64 = 2;

/// How long a move that this node gave up is remembered: longer than its owner keeps the session in the store for it.
const GIVEN_UP_MS: u64 = 30_000;
const GIVEN_UP_MAX: usize = 4_096;

/// Links with this bit are not connections: incoming sessions wait for the bus under them.
const WAIT_BIT: u32 = 1 << 31;

#[derive(Default)]
pub(super) struct IncomingMoves {
    /// By half of the session's key.
    moves: BTreeMap<u64, IncomingMove>,
    /// The result of a failed lookup, until its connection repeats it.
    results: HashMap<LinkId, (u64, LookupResult), RandomState>,
    /// The connections that wait for a session, and which.
    waiting: HashMap<LinkId, u64, RandomState>,
    /// Moves that wait for the bus, by the number in their link.
    waits: HashMap<u32, u64, RandomState>,
    last_wait: u32,
    requests: HashMap<Ticket, (MoveId, IncomingRequest), RandomState>,
    /// The numbers of moves that this node gave up, and when: nothing is collected for them any more.
    given_up: VecDeque<(Time, u64)>,
    /// The node stops.
    refuses: bool,
}

enum IncomingRequest {
    Forward,
    /// The epochs of a node.
    Node(Arc<str>),
    Fetch,
    Take,
}

impl IncomingMoves {
    pub fn len(&self) -> usize {
        self.moves.len()
    }

    pub fn is_under_way(&self, id: MoveId) -> bool {
        self.moves.get(&id.half()).is_some_and(IncomingMove::is_under_way)
    }

    /// The result of an earlier lookup for this link.
    pub fn result(&self, link: LinkId, key: SessionKey) -> Option<LookupResult> {
        self.results.get(&link).filter(|(half, _)| *half == key.half()).map(|(_, result)| result.clone())
    }

    /// A connection was closed, or sends something new. A lookup that no connection waits for ends: it would take the
    /// session away from a newer connection of its client.
    pub fn forget_link(&mut self, link: LinkId) {
        if !self.results.is_empty() {
            self.results.remove(&link);
        }
        if self.waiting.is_empty() {
            return;
        }
        let Some(half) = self.waiting.remove(&link) else { return };
        let Some(incoming) = self.moves.get_mut(&half) else { return };
        incoming.links.retain(|waiting| *waiting != link);
        if incoming.links.is_empty() && !incoming.is_under_way() {
            self.remove(half);
        }
    }

    /// The node stops: it takes no more sessions.
    pub fn refuse(&mut self) {
        self.refuses = true;
    }

    /// Ends every move except those that the store is deciding: the sessions stay where they are.
    pub fn cancel(&mut self, core: &mut Core) {
        let moves = self.moves.iter().filter(|(_, incoming)| !incoming.is_being_taken());
        let halves: Vec<u64> = moves.map(|(half, _)| *half).collect();
        halves.into_iter().for_each(|half| self.fail(core, half, &LookupResult::NotFound));
    }

    fn begin(&mut self, core: &mut Core, id: MoveId, stage: IncomingStage) -> IncomingMove {
        self.last_wait = self.last_wait.wrapping_add(1) & !WAIT_BIT;
        self.waits.insert(self.last_wait, id.half());
        let wait = LinkId(self.last_wait | WAIT_BIT);
        let incoming = IncomingMove::new(id, stage, core.node.name.clone(), wait, core.now);
        core.agenda.set(incoming.due, Timer::Migration(id.half()));
        incoming
    }

    fn remove(&mut self, half: u64) -> Option<IncomingMove> {
        let incoming = self.moves.remove(&half)?;
        self.waits.remove(&(incoming.wait.0 & !WAIT_BIT));
        for link in &incoming.links {
            self.waiting.remove(link);
        }
        Some(incoming)
    }

    /// The owner was found.
    pub fn found(
        &mut self,
        core: &mut Core,
        watched: &dyn WatchedVersions,
        from: &Arc<str>,
        id: MoveId,
        names: Vec<MovedSubscription>,
    ) {
        let Some(incoming) = self.moves.get_mut(&id.half()).filter(|known| known.id.number == id.number)
        else {
            // Too late: no client waits for it now.
            return send(core, from, id, MigrationAction::No);
        };
        if incoming.is_under_way() {
            return;
        }
        (incoming.owner, incoming.names) = (from.clone(), names);
        (incoming.stage, incoming.retry_ms) = (IncomingStage::Subscribing, RETRY_MS);
        self.subscribe(core, watched, id.half());
    }

    /// A stopping node offers a session.
    pub fn offered(
        &mut self,
        core: &mut Core,
        watched: &dyn WatchedVersions,
        from: &Arc<str>,
        id: MoveId,
        names: Vec<MovedSubscription>,
    ) {
        let half = id.half();
        let known = self.moves.get(&half);
        if known.is_some_and(|incoming| incoming.is_from(from, id)) {
            return;
        }
        let busy = known.is_some_and(IncomingMove::is_under_way);
        // A late copy of the offer: the session may be in the store since the first attempt, and events were missed.
        let given_up = self.given_up.iter().any(|(_, number)| *number == id.number);
        if busy || given_up || self.refuses || core.find_any_session(id.key).is_some() {
            return send(core, from, id, MigrationAction::No);
        }
        // Its client may already be here and wait for it.
        let mut incoming = match self.moves.remove(&half) {
            Some(incoming) => incoming,
            None => self.begin(core, id, IncomingStage::Subscribing),
        };
        (incoming.id, incoming.began, incoming.stage) = (id, core.now, IncomingStage::Subscribing);
        (incoming.owner, incoming.names, incoming.is_offered) = (from.clone(), names, true);
        self.moves.insert(half, incoming);
        self.subscribe(core, watched, half);
    }

    /// Whether an incoming session waits for the bus under this link.
    pub fn owns_link(link: LinkId) -> bool {
        link.0 & WAIT_BIT != 0
    }

    pub fn bus_ready(&mut self, core: &mut Core, watched: &dyn WatchedVersions, link: LinkId) {
        if let Some(half) = self.waits.get(&(link.0 & !WAIT_BIT)).copied() {
            self.subscribe(core, watched, half);
        }
    }

    /// Starts to collect events when the bus has confirmed all subscriptions.
    fn subscribe(&mut self, core: &mut Core, watched: &dyn WatchedVersions, half: u64) {
        let subscribing = |incoming: &&IncomingMove| matches!(incoming.stage, IncomingStage::Subscribing);
        let Some(incoming) = self.moves.get(&half).filter(subscribing) else { return };
        let (node, wait) = (core.node.clone(), incoming.wait);
        let mut hold = node.bus_interests.lock();
        match hold.request_all(incoming.entries(), Some((core.index, wait))) {
            InterestState::Yes => self.collect(core, watched, half),
            InterestState::Wait => {
                // If the move fails, nothing else releases these names on the bus.
                let entries = incoming.owned_entries();
                entries.into_iter().for_each(|(space, name)| core.release_later(space, name));
            }
            InterestState::Failed => {
                drop(hold);
                self.fail(core, half, &LookupResult::NotFound);
            }
        }
    }

    fn collect(&mut self, core: &mut Core, watched: &dyn WatchedVersions, half: u64) {
        let Some(incoming) = self.moves.get_mut(&half) else { return };
        let mut session = Session::new(incoming.id.key, ClientId::from_random(0), placeholder(), core.now);
        session.frozen = true;
        let id = core.listeners.insert(ListenerKind::Session(Box::new(session)), None);
        for (space, name) in incoming.owned_entries() {
            core.subscribe(id, space, &name);
            if space == Namespace::Presence
                && let Ok(channel) = std::str::from_utf8(&name)
            {
                let (channel, base): (Arc<str>, _) = (channel.into(), watched.base(channel));
                if base.is_none() {
                    core.notify(Notice::ChannelStale { channel: channel.clone() });
                }
                incoming.bases.insert(channel, base);
            }
        }
        incoming.unpublished = core.node.bus_interests.publish_order.pending(core.index);
        (incoming.listener, incoming.stage) = (Some(id), IncomingStage::Loading);
        self.request(core, half);
    }

    /// A watched channel was read.
    pub fn channel_loaded(&mut self, core: &mut Core, channel: &Arc<str>, base: u64) {
        let waits = |incoming: &IncomingMove| incoming.bases.get(channel).is_some_and(Option::is_none);
        let waiting = self.moves.iter().filter(|(_, incoming)| waits(incoming));
        let halves: Vec<u64> = waiting.map(|(half, _)| *half).collect();
        for half in halves {
            if let Some(incoming) = self.moves.get_mut(&half) {
                incoming.bases.insert(channel.clone(), Some(base));
            }
            self.request(core, half);
        }
    }

    /// Asks the owner to store the session, once this node collects everything the session subscribes to.
    fn request(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(incoming) = self.moves.get_mut(&half) else { return };
        let loaded = incoming.bases.values().all(Option::is_some);
        if !loaded || !matches!(incoming.stage, IncomingStage::Loading | IncomingStage::Requesting) {
            return;
        }
        if !core.node.bus_interests.publish_order.is_published(&incoming.unpublished) {
            incoming.due = now + UNPUBLISHED_MS;
            return core.agenda.set(incoming.due, Timer::Migration(half));
        }
        incoming.stage = IncomingStage::Requesting;
        incoming.back_off(now);
        core.agenda.set(incoming.due, Timer::Migration(half));
        let bases = incoming.bases.iter();
        let versions = bases.map(|(channel, base)| (channel.to_string(), base.unwrap_or(0))).collect();
        send(core, &incoming.owner, incoming.id, MigrationAction::Give { versions });
    }

    /// The session is in the store.
    pub fn given(&mut self, core: &mut Core, from: &Arc<str>, id: MoveId, client: ClientId, version: u64) {
        let Some(incoming) = self.moves.get_mut(&id.half()).filter(|known| known.is_from(from, id)) else {
            return send(core, from, id, MigrationAction::No);
        };
        if matches!(incoming.stage, IncomingStage::Requesting) {
            incoming.stage = IncomingStage::Fetching { client, version };
            self.submit(core, id, IncomingRequest::Fetch, Work::Read(Read::Session(client)));
        }
    }

    fn submit(&mut self, core: &mut Core, id: MoveId, request: IncomingRequest, work: Work) {
        let ticket = core.submit(Feature::Migration, work);
        self.requests.insert(ticket, (id, request));
    }

    pub fn owns(&self, ticket: Ticket) -> bool {
        self.requests.contains_key(&ticket)
    }

    pub fn answered(&mut self, core: &mut Core, ticket: Ticket, answer: StoreAnswer) {
        match self.requests.remove(&ticket) {
            Some((id, IncomingRequest::Forward)) => match answer {
                StoreAnswer::Read(Found::Document(found)) => self.forward_read(core, id, found.as_ref()),
                _ => self.not_read(id),
            },
            Some((id, IncomingRequest::Node(node))) => match answer {
                StoreAnswer::Read(Found::Nodes(page)) => self.node_read(core, id, node, &page),
                _ => self.not_read(id),
            },
            Some((id, IncomingRequest::Fetch)) => self.fetched(core, id, answer),
            Some((id, IncomingRequest::Take)) => self.took(core, id, &answer),
            None => {}
        }
    }

    fn fetched(&mut self, core: &mut Core, id: MoveId, answer: StoreAnswer) {
        let (now, half) = (core.now, id.half());
        let Some(incoming) = self.moves.get_mut(&half).filter(|known| known.id.number == id.number) else {
            return;
        };
        let IncomingStage::Fetching { client, version } = incoming.stage else { return };
        let found = match answer {
            StoreAnswer::Read(Found::Session(found)) => found,
            StoreAnswer::Failed(StoreError::Unavailable { .. }) => {
                // The owner is asked again and names the version again.
                (incoming.stage, incoming.due) = (IncomingStage::Requesting, now + RETRY_MS);
                return core.agenda.set(incoming.due, Timer::Migration(half));
            }
            _ => None,
        };
        let found = found.filter(|found| found.version == version && found.row.secret.matches(id.key));
        let Some(packed) = found.and_then(|found| PackedSession::from_row(found.row, now).ok()) else {
            return self.fail(core, half, &LookupResult::NotFound);
        };
        let commit = take_stored(core.writer(), client, version, (id.key, packed.expires_at));
        incoming.stage = IncomingStage::Taking(Box::new(packed));
        self.submit(core, id, IncomingRequest::Take, Work::Commit(commit));
    }

    fn took(&mut self, core: &mut Core, id: MoveId, answer: &StoreAnswer) {
        let taking = |incoming: &&IncomingMove| {
            incoming.id.number == id.number && matches!(incoming.stage, IncomingStage::Taking(_))
        };
        if self.moves.get(&id.half()).filter(taking).is_none() {
            return;
        }
        // Treat an unknown outcome as a failure: a session may be lost, but must never be on two nodes.
        if !matches!(answer, StoreAnswer::Committed(_)) {
            return self.fail(core, id.half(), &LookupResult::NotFound);
        }
        let Some(incoming) = self.remove(id.half()) else { return };
        let (IncomingStage::Taking(mut packed), Some(listener)) = (incoming.stage, incoming.listener) else {
            return;
        };
        if !incoming.links.is_empty() {
            // Its client attaches next: the time of the move does not count as being disconnected.
            packed.detached_at = core.now;
        }
        let bases = incoming.bases.into_iter().map(|(channel, base)| (channel, base.unwrap_or(0))).collect();
        arrival::install(core, listener, &packed, bases);
        core.stats.sessions_migrated_in.add(1);
        core.effects.ready.extend(incoming.links);
        send(core, &incoming.owner, incoming.id, MigrationAction::Taken);
    }

    pub fn is_due(&mut self, core: &mut Core, half: u64) {
        let now = core.now;
        let Some(incoming) = self.moves.get_mut(&half).filter(|incoming| incoming.due <= now) else { return };
        match &incoming.stage {
            IncomingStage::Asking if now >= incoming.ask_until => {
                self.fail(core, half, &LookupResult::NotFound);
            }
            IncomingStage::Asking => self.search_again(core, half),
            // The store answers every request. A session that it gave to this node must not be dropped by a timeout.
            IncomingStage::Fetching { .. } | IncomingStage::Taking(_) => {}
            _ if now.since(incoming.began) >= MOVE_MS => self.fail(core, half, &LookupResult::NotFound),
            IncomingStage::Requesting => self.request(core, half),
            IncomingStage::Subscribing | IncomingStage::Loading => {
                incoming.due = now + RETRY_MS;
                core.agenda.set(incoming.due, Timer::Migration(half));
                self.request(core, half);
            }
        }
    }

    /// Ends a move, if there is one: removes everything of the session, and gives waiting clients the result.
    pub fn fail(&mut self, core: &mut Core, half: u64, result: &LookupResult) {
        let Some(incoming) = self.remove(half) else { return };
        if let Some(id) = incoming.listener {
            discard(core, id);
        }
        if incoming.is_under_way() {
            // The owner need not wait for this node. If the owner itself refused, it ignores this.
            send(core, &incoming.owner, incoming.id, MigrationAction::No);
            self.given_up.retain(|(at, _)| core.now.since(*at) < GIVEN_UP_MS);
            self.given_up.truncate(GIVEN_UP_MAX - 1);
            self.given_up.push_front((core.now, incoming.id.number));
        }
        if self.refuses {
            // The node stops: waiting clients get that reason, and will find the session on another node.
            return;
        }
        // An offer that came to nothing says nothing about the session: its clients look for it again.
        let is_final = !(incoming.is_offered && *result == LookupResult::NotFound);
        for link in incoming.links {
            if is_final {
                self.results.insert(link, (half, result.clone()));
            }
            core.effects.ready.push(link);
        }
    }
}

/// Ends a listener without reporting its client as lost.
fn discard(core: &mut Core, id: ListenerId) {
    if let Some(session) = core.session_mut(id) {
        session.present.clear();
    }
    core.notify(Notice::SessionEnds { id });
}

/// The identity of a session before it is known.
fn placeholder() -> Identity {
    Identity {
        user: None,
        name: None,
        rights: Arc::new(Rights::default()),
        expires: Time::NEVER,
        issued_s: 0,
        unlimited: false,
        scopes: Scopes::NONE,
        key: None,
    }
}
