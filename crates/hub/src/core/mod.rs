//! The state that all features of a shard share: sessions and their mailboxes, the routing table, pending replies, the
//! effects for the server and the queue of notices between features. Synchronous code: time, randomness and bytes come
//! in, effects go out. It knows no feature. Must hold: a publish reaches every subscription that was confirmed before it;
//! each listener gets messages in publish order.

mod agenda;
pub mod attach;
pub mod authorize;
pub(crate) mod command;
pub(crate) mod detached;
mod dropped;
mod effects;
mod ended;
pub(crate) mod hello;
pub mod listener;
pub(crate) mod loss;
pub mod mailbox;
mod notice;
pub(crate) mod poll;
pub(crate) mod publish;
mod questions;
pub mod redis;
pub mod render;
mod replica_host;
mod replies;
pub mod rights_change;
pub mod routing;
pub(crate) mod row_cache;
pub mod session;
mod streams;
pub mod sweep;
pub(crate) mod users;
pub mod wheel;

pub(crate) use agenda::{Agenda, Timer};
pub use attach::Attached;
pub use effects::{Effects, ShardMessage};
pub(crate) use notice::Notice;
pub use poll::Poll;
pub use replies::CommandReply;
pub(crate) use replies::{PIPELINE_MAX, REPLY_MS, Replies, ReplyTo};
use streams::BusPositions;
pub use streams::ReceivedElsewhere;
pub(crate) use users::{AfterCheck, FollowedUser, MutualCheck, Users};

use crate::event::{EventMemory, Namespace};
use crate::node::{Node, RELEASE_AFTER_MS, RandomSource};
use authorize::Authorizer;
use ended::EndedSessions;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use listener::{Listener, ListenerId, Listeners};
use questions::Questions;
use routing::{RouteIndex, RoutingTable};
use row_cache::RowCache;
use session::Session;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use tavern_domain::trace::TraceContext;
use tavern_domain::{Channel, Time};
use tavern_store::limits::RETRY_AFTER_MS;
use tavern_store::{StoreAnswer, StoreError, Ticket, Work, Writer};
use tavern_wire::error::{Code, Refusal};

pub struct Core {
    pub(crate) node: Arc<Node>,
    /// The number of the shard on this node.
    pub index: usize,
    pub(crate) listeners: Listeners,
    /// By half of the key, which is enough for the lookup; the whole key is compared afterwards.
    pub(crate) sessions: HashMap<u64, ListenerId, RandomState>,
    pub(crate) ended: EndedSessions,
    pub(crate) users: Users,
    pub(crate) routing: RoutingTable,
    pub(crate) agenda: Agenda,
    pub(crate) event_memory: Rc<EventMemory>,
    pub authorizer: Authorizer,
    pub(crate) rng: Box<dyn RandomSource>,
    sweeper: sweep::Sweeper,
    pub(crate) stats: Arc<crate::node::stats::Stats>,
    pub(crate) replies: Replies,
    questions: Questions,
    pub(crate) bus_positions: BusPositions,
    pub(crate) cache: RowCache,
    notices: VecDeque<Notice>,
    tickets: u64,
    /// The time of the current turn.
    pub(crate) now: Time,
    pub effects: Effects,
    /// Something was published in this turn that may reach other nodes.
    publishing: bool,
    /// The code of the last command's refusal; over HTTP it determines the status.
    pub refused_with: Option<Code>,
    /// The trace of the command that runs now. None: it is not traced.
    pub trace: Option<TraceContext>,
    /// The name of the last command that ran with a trace.
    pub traced_op: &'static str,
    /// The number of the last delivery.
    stamp: u64,
    /// Sessions without a connection whose unread events pile up; handled at the end of a delivery.
    piling_up: Vec<u32>,
}

/// Which feature a store operation or a replica belongs to: it gets the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feature {
    /// No feature needs the answer, but a caller may.
    None,
    Presence,
    People,
    Inbox,
    Party,
    Migration,
    Topics,
    History,
    Control,
}

impl Feature {
    const BITS: u32 = 4;
    const ALL: [Feature; 9] = [
        Feature::None,
        Feature::Presence,
        Feature::People,
        Feature::Inbox,
        Feature::Party,
        Feature::Migration,
        Feature::Topics,
        Feature::History,
        Feature::Control,
    ];

    /// The feature that submitted a ticket.
    pub fn of(ticket: Ticket) -> Feature {
        let tag = (ticket.0 & ((1 << Feature::BITS) - 1)) as usize;
        Feature::ALL.get(tag).copied().unwrap_or(Feature::None)
    }
}

/// The versions of watched channels. Presence knows them; migration asks.
pub(crate) trait WatchedVersions {
    /// The version that local watchers have.
    fn known_version(&self, channel: &str) -> Option<u64>;
    /// The version where the events of a new watcher start.
    fn base(&self, channel: &str) -> Option<u64>;
    /// Whether a change of this session is still in progress.
    fn is_busy(&self, id: ListenerId) -> bool;
}

/// Sets the monotonic time by which the latency of deliveries is measured.
pub fn set_now_us(core: &mut Core, now_us: u64) {
    core.event_memory.set_now_us(now_us);
}

impl Core {
    pub(crate) fn new(node: Arc<Node>, index: usize, rng: Box<dyn RandomSource>, now: Time) -> Core {
        let shards = node.settings.shards;
        assert!(index < shards && shards <= crate::node::registry::SHARDS_MAX);
        Core {
            routing: RoutingTable::new(index, node.registry.clone()),
            stats: node.stats[index].clone(),
            sweeper: sweep::Sweeper::new(now, node.budget_bytes()),
            effects: Effects::new(shards),
            node,
            index,
            listeners: Listeners::default(),
            sessions: HashMap::default(),
            ended: EndedSessions::default(),
            users: Users::default(),
            agenda: Agenda::new(now),
            event_memory: Rc::default(),
            authorizer: Authorizer::default(),
            rng,
            replies: Replies::default(),
            questions: Questions::default(),
            bus_positions: BusPositions::default(),
            cache: RowCache::default(),
            notices: VecDeque::new(),
            tickets: 0,
            now,
            publishing: false,
            refused_with: None,
            trace: None,
            traced_op: "",
            stamp: 0,
            piling_up: Vec::new(),
        }
    }

    /// Starts a turn: everything until the next one happens at this time.
    pub fn begin_turn(&mut self, now: Time) {
        self.now = now;
    }

    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    pub fn listener(&self, id: ListenerId) -> Option<&Listener> {
        self.listeners.get(id)
    }

    pub fn listener_count(&self) -> usize {
        self.listeners.len()
    }

    pub(crate) fn session(&self, id: ListenerId) -> Option<&Session> {
        self.listeners.get(id)?.session()
    }

    pub(crate) fn session_mut(&mut self, id: ListenerId) -> Option<&mut Session> {
        self.listeners.get_mut(id)?.session_mut()
    }

    pub(crate) fn user_of(&self, id: ListenerId) -> Option<Arc<str>> {
        self.session(id)?.identity.user.clone()
    }

    /// Notifies other features; the shard routes it before the turn continues.
    pub(crate) fn notify(&mut self, notice: Notice) {
        self.notices.push_back(notice);
    }

    pub(crate) fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Submits work to the store; the feature gets the answer.
    pub(crate) fn submit(&mut self, feature: Feature, work: Work) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets << Feature::BITS | feature as u64);
        self.effects.work.push((ticket, work));
        ticket
    }

    /// The writer of this node's commits.
    pub(crate) fn writer(&self) -> Writer {
        Writer { node: self.node.name.clone(), epoch: self.node.epoch() }
    }

    /// Delivers the reply of a command.
    pub(crate) fn finish(&mut self, claim: ReplyTo, reply: CommandReply) {
        match claim {
            ReplyTo::Service(number) => {
                if self.replies.answer_service(number) {
                    self.effects.service_replies.push((number, reply));
                }
            }
            ReplyTo::Link { link, number } => {
                if self.replies.keep(link, number, reply) {
                    self.effects.ready.push(link);
                }
            }
        }
    }

    /// Marks a listener for writing, if it has unread events.
    pub fn mark_dirty(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get_mut(id) else { return };
        if listener.mailbox.has_unread() && listener.wants_writing() && !listener.dirty {
            listener.dirty = true;
            self.effects.dirty.push(id);
        }
    }

    /// Subscribes; false if it was already subscribed.
    pub fn subscribe(&mut self, id: ListenerId, space: Namespace, name: &[u8]) -> bool {
        if space == Namespace::Pattern {
            detached::leave_logs(self, id);
        }
        let place = self.make_route(space, name);
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        let new = self.routing.add(place, id.index, &mut listener.subscriptions);
        listener.counts[space as usize] += u32::from(new);
        if new
            && space == Namespace::Channel
            && self.node.history_limits(name).is_some()
            && let Ok(channel) = std::str::from_utf8(name)
        {
            self.notify(Notice::HistoryJoined { channel: channel.into() });
        }
        new
    }

    /// Unsubscribes; false if it was not subscribed.
    pub(crate) fn unsubscribe(&mut self, id: ListenerId, space: Namespace, name: &[u8]) -> bool {
        let Some(place) = self.routing.find(space, name) else { return false };
        detached::collect(self, id);
        self.leave_route(id, place)
    }

    fn leave_route(&mut self, id: ListenerId, place: RouteIndex) -> bool {
        let Some(listener) = self.listeners.get_mut(id) else { return false };
        let Some(position) = listener.subscriptions.remove(&place) else { return false };
        if let Some(shared) = &mut listener.shared_logs {
            shared.leave(place);
        }
        let space = self.routing.place(place).space;
        listener.counts[space as usize] -= 1;
        let name = self.routing.place(place).entry.name.clone();
        let removed = self.routing.remove(place, position);
        if space == Namespace::Channel
            && self.node.stores_messages()
            && let Ok(channel) = std::str::from_utf8(&name)
        {
            self.notify(Notice::HistoryLeft { id, channel: channel.into() });
        }
        if space == Namespace::Presence
            && self.routing.find(space, &name).is_none()
            && let Ok(channel) = std::str::from_utf8(&name)
        {
            self.notify(Notice::ChannelUnwatched { channel: channel.into() });
        }
        self.listeners.note_moved(place, removed.moved);
        if let Some((space, name)) = removed.unused {
            self.release_later(space, name);
        }
        true
    }

    /// A name has no listener here: releases it on the bus after a while.
    pub fn release_later(&mut self, space: Namespace, name: Arc<[u8]>) {
        if self.node.bus_interests.is_by_name() {
            self.agenda.set(self.now + RELEASE_AFTER_MS, Timer::NameUnused(space, name));
        }
    }

    /// The names that a listener is subscribed to in one namespace, in no order.
    pub fn subscriptions(&self, id: ListenerId, space: Namespace) -> Vec<Arc<[u8]>> {
        let Some(listener) = self.listeners.get(id) else { return Vec::new() };
        let places = listener.subscriptions.keys().map(|&place| self.routing.place(place));
        let mut names: Vec<Arc<[u8]>> =
            places.filter(|place| place.space == space).map(|place| place.entry.name.clone()).collect();
        // Equal runs must visit them in the same order.
        names.sort_unstable();
        names
    }

    fn make_route(&mut self, space: Namespace, name: &[u8]) -> RouteIndex {
        let settings = &self.node.settings;
        self.routing.make(space, name, || *settings.kind(kind_of(name)))
    }

    /// Removes a listener and its subscriptions.
    pub(crate) fn remove(&mut self, id: ListenerId) {
        let Some(listener) = self.listeners.get(id) else { return };
        let mut places: Vec<RouteIndex> = listener.subscriptions.keys().copied().collect();
        places.sort_unstable();
        for place in places {
            self.leave_route(id, place);
        }
        if let Some(listener) = self.listeners.remove(id)
            && let Some(session) = listener.session()
        {
            if let Some(slot) = &session.slot {
                self.node.session_slots.close(slot);
            }
            if session.counted {
                self.node.population.remove_session();
            }
            // A session that migrated here may have taken over the key of the placeholder that ends now.
            let half = session.key.half();
            if self.sessions.get(&half) == Some(&id) {
                self.sessions.remove(&half);
            }
            self.stats.sessions_ended.add(1);
        }
    }
}

fn kind_of(name: &[u8]) -> &str {
    Channel::parse_redis(name).map_or(tavern_domain::channel::REDIS_KIND, |channel| channel.kind)
}

/// A client has read or acknowledged events: if it is recovering messages, send the next ones.
pub(crate) fn has_read(core: &mut Core, id: ListenerId) {
    if core.listeners.get(id).is_some_and(|listener| listener.recovering) {
        core.agenda.set(core.now, Timer::HistoryFeed(id));
    }
}

/// The refusal that a client gets when the store failed.
pub(crate) fn refusal(answer: &StoreAnswer) -> Refusal {
    match answer {
        StoreAnswer::Failed(StoreError::TooLarge { .. }) => {
            Refusal::new(Code::TooLarge, "the request is too large for one transaction; split it")
        }
        StoreAnswer::Failed(StoreError::Conflict { .. }) => {
            Refusal::new(Code::Conflict, "too many concurrent changes of the same data; retry")
                .retry_after(RETRY_AFTER_MS)
        }
        _ => Refusal::new(Code::Unavailable, "the store did not answer; retry").retry_after(RETRY_AFTER_MS),
    }
}
