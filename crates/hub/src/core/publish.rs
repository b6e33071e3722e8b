//! Publishing: to the listeners of this shard, to the other shards and to the other nodes.

use super::{Core, Notice, ShardMessage, sweep};
use crate::connection::CloseReason;
use crate::core::listener::{Listener, ListenerId};
use crate::core::mailbox::MailboxLimits;
use crate::core::routing::{RouteIndex, RoutingTable};
use crate::core::{authorize, detached};
use crate::event::{Author, Event, Message, Namespace};
use crate::node::Node;
use crate::node::registry::shards_of;
use crate::node::traffic::{Traffic, TrafficKind};
use crate::settings::SlowReader;
use std::rc::Rc;
use std::sync::Arc;
use tavern_domain::{Channel, HistoryPosition, HistoryStamp, Reach, Time};

/// A message to publish.
pub(crate) struct StampedPublish<'a> {
    pub space: Namespace,
    pub channel: &'a [u8],
    pub payload: &'a [u8],
    pub json: bool,
    pub author: Option<Author>,
    /// Its position in the history of the channel, if it is stored.
    pub history: Option<HistoryStamp>,
}

impl Core {
    /// Publishes; returns how many subscriptions on this node match.
    pub fn publish(
        &mut self,
        now: Time,
        space: Namespace,
        channel: &[u8],
        payload: &[u8],
        json: bool,
        author: Option<Author>,
    ) -> u32 {
        publish_message(self, now, StampedPublish { space, channel, payload, json, author, history: None })
    }

    /// The same for a message that is stored already.
    pub fn publish_stored(&mut self, now: Time, channel: &[u8], payload: &[u8], stamp: HistoryStamp) -> u32 {
        let (space, history) = (Namespace::Channel, Some(stamp));
        publish_message(
            self,
            now,
            StampedPublish { space, channel, payload, json: true, author: None, history },
        )
    }

    /// Passes the messages for other nodes to the bus. True: there were some.
    pub fn end_publishing(&mut self) -> bool {
        if self.effects.bus_messages.is_empty() {
            return false;
        }
        let packets = std::mem::take(&mut self.effects.bus_messages);
        if let Some(bus) = self.node.bus_interests.bus() {
            bus.publish(packets);
        }
        if std::mem::take(&mut self.publishing) {
            self.node.bus_interests.publish_order.end(self.index);
        }
        true
    }

    /// Delivers a message that was published on another shard or node.
    pub fn receive(&mut self, now: Time, packet: ShardMessage) {
        if packet.message.history().is_some() {
            return self.notify(Notice::HistoryMessage(packet.message));
        }
        let place = self.make_route(packet.namespace, packet.message.channel());
        self.deliver(now, place, packet.message, &[]);
    }

    fn deliver(&mut self, now: Time, index: RouteIndex, message: Arc<Message>, held: &[u32]) -> Rc<Event> {
        self.stamp += 1;
        if let Some(origin) = message.origin() {
            self.bus_positions.advance(origin);
        }
        let place = self.routing.place_mut(index);
        let event = Event::message(message.clone(), now, place.rules.slow_reader, &self.event_memory);
        let listeners = std::mem::take(&mut place.listeners);
        let mut delivered = listeners.len();
        if let Some((log, sharing)) = place.log_mut() {
            let settings = &self.node.settings;
            let bounds = MailboxLimits { events: settings.mailbox_events, bytes: settings.mailbox_bytes };
            log.push(self.stamp, event.clone(), bounds);
            delivered += sharing;
        }
        for &listener in &listeners {
            if held.binary_search(&listener).is_err() {
                self.put(listener, &event);
            }
        }
        self.stats.delivered.add(delivered as u64);
        self.routing.place_mut(index).listeners = listeners;
        if may_match_patterns(&self.node, &self.routing, index) && !authorize::is_private(message.channel()) {
            self.deliver_by_patterns(now, index, &event, message, held);
        }
        if !self.piling_up.is_empty() {
            detached::share_logs_of_idle(self);
        }
        if self.event_memory.bytes() > self.sweeper.relieve_above {
            sweep::relieve(self);
        }
        event
    }

    fn deliver_by_patterns(
        &mut self,
        now: Time,
        index: RouteIndex,
        event: &Rc<Event>,
        message: Arc<Message>,
        held: &[u32],
    ) {
        self.routing.matches(index);
        let matches = std::mem::take(&mut self.routing.place_mut(index).matches);
        let public = Channel::parse_redis(message.channel()).is_ok_and(|c| c.reach == Reach::Everyone);
        for entry in &matches.1 {
            let Some(place) = self.routing.find(Namespace::Pattern, &entry.name) else { continue };
            let mut for_redis: Option<Rc<Event>> = None;
            let listeners = std::mem::take(&mut self.routing.place_mut(place).listeners);
            for &listener in &listeners {
                if held.binary_search(&listener).is_ok() {
                    continue;
                }
                if self.listeners.at(listener).is_redis() {
                    let event = for_redis.get_or_insert_with(|| {
                        Event::by_pattern(entry.name.clone(), message.clone(), now, &self.event_memory)
                    });
                    let event = event.clone();
                    self.put(listener, &event);
                } else if public {
                    self.put(listener, event);
                }
            }
            self.stats.delivered.add(listeners.len() as u64);
            self.routing.place_mut(place).listeners = listeners;
        }
        self.routing.place_mut(index).matches = matches;
    }

    /// Puts one event into one mailbox.
    fn put(&mut self, index: u32, event: &Rc<Event>) {
        let stamp = self.stamp;
        let settings = &self.node.settings;
        let listener = self.listeners.at(index);
        if listener.is_redis() {
            let bounds = MailboxLimits { events: usize::MAX, bytes: settings.redis_pending_bytes };
            return push(self, index, event.clone(), bounds);
        }
        if listener.stamp == stamp {
            return;
        }
        listener.stamp = stamp;
        if listener.shared_logs.is_some() {
            detached::collect_at(self, index);
        }
        let settings = &self.node.settings;
        let listener = self.listeners.at(index);
        let bounds = MailboxLimits { events: settings.mailbox_events, bytes: settings.mailbox_bytes };
        let event = match &listener.received_elsewhere {
            Some(marks) if event.history().is_none() => {
                let Some(rest) = marks.remainder(event, self.now, &self.event_memory) else { return };
                rest
            }
            _ => event.clone(),
        };
        if self.node.stores_messages() && !spare_history(self, index, &event, bounds) {
            return;
        }
        push(self, index, event, bounds);
    }

    /// Gives one listener an event that is not a delivery of a channel.
    pub(crate) fn deliver_event(&mut self, index: u32, event: &Rc<Event>) {
        self.stamp += 1;
        self.put(index, event);
        if !self.piling_up.is_empty() {
            detached::share_logs_of_idle(self);
        }
    }

    /// Gives one session an event of its own.
    pub fn put_json(&mut self, id: ListenerId, tail: Box<[u8]>) {
        let now = self.now;
        let event = Event::json(tail, now, SlowReader::Gap, &self.event_memory);
        if self.listeners.get(id).is_some() {
            self.deliver_event(id.index, &event);
        }
    }
}

/// Adds an event to a mailbox. What does not fit is dropped.
fn push(core: &mut Core, index: u32, event: Rc<Event>, bounds: MailboxLimits) {
    let slow_reader = event.slow_reader;
    let listener = core.listeners.at(index);
    let dropped = listener.mailbox.push(event, bounds);
    if listener.link.is_none() {
        if detached::piles_up(listener, core.node.settings.detached_unread) {
            core.piling_up.push(index);
        }
    } else if !listener.dirty && listener.wants_writing() {
        listener.dirty = true;
        let id = core.listeners.id_at(index).expect("it got the event");
        core.effects.dirty.push(id);
    }
    if dropped > 0 {
        overflowed(core, index, dropped, slow_reader);
    }
}

/// Publishes a message, stored or not. Returns how many subscriptions on this node match.
pub(crate) fn publish_message(core: &mut Core, now: Time, publication: StampedPublish<'_>) -> u32 {
    match core.node.traffic.is_watched() {
        false => route_message(core, now, publication),
        true => publish_watched(core, now, publication),
    }
}

/// Publishes and tells those who watch this node.
#[cold]
fn publish_watched(core: &mut Core, now: Time, publication: StampedPublish<'_>) -> u32 {
    let StampedPublish { space, channel, payload, json, .. } = publication;
    let author = publication.author.clone();
    let receivers = route_message(core, now, publication);
    if matches!(space, Namespace::Channel | Namespace::Shard) {
        let what = TrafficKind::Message { channel, payload, json, receivers };
        core.node.traffic.tell(Traffic { author: author.as_ref(), what });
    }
    receivers
}

fn route_message(core: &mut Core, now: Time, publication: StampedPublish<'_>) -> u32 {
    let StampedPublish { space, channel, payload, json, author, history } = publication;
    let is_numbered = history.is_some() && core.node.history_limits(channel).is_some();
    core.stats.published.add(1);
    let reaches_others = core.node.bus_interests.reaches_others();
    if reaches_others && !core.publishing {
        core.publishing = true;
        core.node.bus_interests.publish_order.begin(core.index);
    }
    let patterned =
        space == Namespace::Channel && core.node.registry.has_patterns() && !authorize::is_private(channel);
    let place = match core.routing.find(space, channel) {
        Some(place) => place,
        // With one shard and without patterns, a name without a listener needs no route.
        None if core.node.settings.shards == 1 && !patterned => {
            if reaches_others {
                let origin = Some(core.node.origin(core.index));
                let message = Message::new(space, channel, payload, json, author)
                    .with_origin(origin)
                    .with_history(history, is_numbered);
                core.effects.bus_messages.extend(core.node.packet(space, &message));
            }
            return 0;
        }
        None => core.make_route(space, channel),
    };
    let entry = &core.routing.place(place).entry;
    let (mut receivers, mut mask) = (entry.total(), entry.mask());
    if patterned {
        for entry in core.routing.matches(place) {
            receivers += entry.total();
            mask |= entry.mask();
        }
    }
    if mask == 0 && !reaches_others {
        return receivers;
    }
    let origin = reaches_others.then(|| core.node.origin(core.index));
    let message = Message::new(space, channel, payload, json, author)
        .with_origin(origin)
        .with_history(history, is_numbered)
        .with_time(core.event_memory.now_us());
    let message = Arc::new(message);
    if reaches_others {
        core.effects.bus_messages.extend(core.node.packet(space, &message));
    }
    let here = 1u64 << core.index;
    for shard in shards_of(mask & !here) {
        core.effects.shard_messages[shard].push(ShardMessage { namespace: space, message: message.clone() });
    }
    if mask & here != 0 {
        match history {
            // It is delivered in the order of the history.
            Some(_) => core.notify(Notice::HistoryMessage(message)),
            None => drop(core.deliver(now, place, message, &[])),
        }
    }
    receivers
}

/// Delivers the next message of a channel's history, except to these listeners, which are sorted.
pub(crate) fn deliver_in_turn(core: &mut Core, message: Arc<Message>, held: &[u32]) -> Rc<Event> {
    let place = core.make_route(Namespace::Channel, message.channel());
    core.deliver(core.now, place, message, held)
}

/// Messages of a channel with history that do not fit into a mailbox are removed from it: they are read from the
/// store again when the client has read the rest. False: the new event is one of them.
fn spare_history(core: &mut Core, index: u32, new: &Rc<Event>, bounds: MailboxLimits) -> bool {
    loop {
        let listener = core.listeners.at(index);
        let Some(oldest) = listener.mailbox.make_room(new.size(), bounds).cloned() else { return true };
        let (Some(stamp), Some(channel)) = (oldest.history(), oldest.channel()) else { return true };
        if oldest.slow_reader == SlowReader::Close {
            return true;
        }
        let gone = take_unread_of(listener, channel);
        let position = HistoryPosition { offset: stamp.position.offset - 1, ..stamp.position };
        let (Some(id), Ok(name)) = (core.listeners.id_at(index), std::str::from_utf8(channel)) else {
            return true;
        };
        core.notify(Notice::HistoryMoved { id, channel: name.into(), position });
        core.stats.history_reread.add(gone.count as u64);
        if new.channel() == Some(channel) {
            return false;
        }
    }
}

/// Messages that were taken out of a mailbox.
pub(crate) struct TakenHistory {
    pub count: usize,
    /// The position before the first one.
    pub before: Option<HistoryPosition>,
}

/// Takes the unread messages of a channel's history out of a mailbox.
pub(crate) fn take_unread_of(listener: &mut Listener, channel: &[u8]) -> TakenHistory {
    let is_meant = |event: &Event| event.history().is_some() && event.channel() == Some(channel);
    let gone = listener.mailbox.take_unread(is_meant);
    if let Some(session) = listener.session_mut() {
        for (seq, _) in session.unacked_inbox.as_deref_mut().into_iter().flatten() {
            *seq -= gone.iter().filter(|(taken, _)| taken < seq).count() as u64;
        }
    }
    let before = |position: HistoryPosition| HistoryPosition { offset: position.offset - 1, ..position };
    let first =
        gone.iter().filter_map(|(_, event)| event.history()).map(|stamp| before(stamp.position)).min();
    TakenHistory { count: gone.len(), before: first }
}

/// A client goes back to events that its mailbox has dropped, or its mailbox was shrunk: messages of channels with history
/// are read from the store again.
pub(crate) fn heal_gap(core: &mut Core, id: ListenerId) {
    let Some(listener) = core.listeners.get_mut(id).filter(|listener| !listener.is_redis()) else { return };
    let Some(healed) = listener.mailbox.heal_gap() else { return };
    if healed.is_closed
        && let Some(session) = listener.session_mut()
    {
        let closed = healed.to - healed.from + 1;
        let unacked = session.unacked_inbox.as_deref_mut().into_iter().flatten();
        let later = unacked.filter(|(seq, _)| *seq > healed.to);
        later.for_each(|(seq, _)| *seq -= closed);
    }
    for (channel, position) in healed.channels {
        // Later messages of the channel wait for their turn.
        let Some(listener) = core.listeners.get_mut(id) else { return };
        let taken = take_unread_of(listener, channel.as_bytes());
        core.stats.history_reread.add(taken.count as u64);
        core.notify(Notice::HistoryMoved { id, channel, position });
    }
}

fn may_match_patterns(node: &Node, routing: &RoutingTable, index: RouteIndex) -> bool {
    routing.place(index).space == Namespace::Channel && node.registry.has_patterns()
}

#[cold]
pub(crate) fn overflowed(core: &mut Core, index: u32, dropped: usize, policy: SlowReader) {
    let now = core.now;
    core.stats.dropped_full.add(dropped as u64);
    let listener = core.listeners.at(index);
    if listener.is_redis() || policy == SlowReader::Close {
        // Without a link it is closed only once, and nothing more is written to it in this turn.
        if let Some(link) = listener.link.take() {
            listener.dirty = false;
            if let Some(session) = listener.session_mut() {
                // From now on the session counts as disconnected, even if the socket is closed later.
                session.active_at = now;
            }
            core.effects.closes.push((link.id, CloseReason::SlowReader));
            core.stats.closed_slow.add(1);
        }
    }
}
