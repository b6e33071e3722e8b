//! Publishing: to the listeners of this shard, to the other shards and to the other nodes.

use super::{Core, ShardMessage, sweep};
use crate::connection::CloseReason;
use crate::core::authorize;
use crate::core::listener::ListenerId;
use crate::core::mailbox::MailboxLimits;
use crate::core::routing::{RouteIndex, RoutingTable};
use crate::event::{Author, Event, Message, Namespace};
use crate::node::Node;
use crate::node::registry::shards_of;
use crate::settings::SlowReader;
use std::rc::Rc;
use std::sync::Arc;
use tavern_domain::{Channel, Reach, Time};

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
        self.stats.published.add(1);
        let reaches_others = self.node.bus_interests.reaches_others();
        if reaches_others && !self.publishing {
            self.publishing = true;
            self.node.bus_interests.publish_order.begin(self.index);
        }
        let patterned = space == Namespace::Channel
            && self.node.registry.has_patterns()
            && !authorize::is_private(channel);
        let place = match self.routing.find(space, channel) {
            Some(place) => place,
            // With one shard and without patterns, a name without a listener needs no route.
            None if self.node.settings.shards == 1 && !patterned => {
                if reaches_others {
                    let origin = Some(self.node.origin(self.index));
                    let message = Message::new(space, channel, payload, json, author).with_origin(origin);
                    self.effects.bus_messages.extend(self.node.packet(space, &message));
                }
                return 0;
            }
            None => self.make_route(space, channel),
        };
        let entry = &self.routing.place(place).entry;
        let (mut receivers, mut mask) = (entry.total(), entry.mask());
        if patterned {
            for entry in self.routing.matches(place) {
                receivers += entry.total();
                mask |= entry.mask();
            }
        }
        if mask == 0 && !reaches_others {
            return receivers;
        }
        let origin = reaches_others.then(|| self.node.origin(self.index));
        let message = Arc::new(Message::new(space, channel, payload, json, author).with_origin(origin));
        if reaches_others {
            self.effects.bus_messages.extend(self.node.packet(space, &message));
        }
        let here = 1u64 << self.index;
        for shard in shards_of(mask & !here) {
            self.effects.shard_messages[shard]
                .push(ShardMessage { namespace: space, message: message.clone() });
        }
        if mask & here != 0 {
            self.deliver(now, place, message);
        }
        receivers
    }

    /// Gives the bus the messages for other nodes. True: there were some.
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
        let place = self.make_route(packet.namespace, packet.message.channel());
        self.deliver(now, place, packet.message);
    }

    fn deliver(&mut self, now: Time, index: RouteIndex, message: Arc<Message>) {
        self.stamp += 1;
        if let Some(origin) = message.origin() {
            self.bus_positions.advance(origin);
        }
        let place = self.routing.place_mut(index);
        let event = Event::message(message.clone(), now, place.rules.slow_reader, &self.event_memory);
        let listeners = std::mem::take(&mut place.listeners);
        for &listener in &listeners {
            self.put(listener, &event);
        }
        self.stats.delivered.add(listeners.len() as u64);
        self.routing.place_mut(index).listeners = listeners;
        if words_have_patterns(&self.node, &self.routing, index) && !authorize::is_private(message.channel())
        {
            self.deliver_by_patterns(now, index, &event, message);
        }
        if self.event_memory.bytes() > self.sweeper.relieve_above {
            sweep::relieve(self);
        }
    }

    fn deliver_by_patterns(
        &mut self,
        now: Time,
        index: RouteIndex,
        event: &Rc<Event>,
        message: Arc<Message>,
    ) {
        self.routing.matches(index);
        let matches = std::mem::take(&mut self.routing.place_mut(index).matches);
        let public = Channel::parse_redis(message.channel()).is_ok_and(|c| c.reach == Reach::Everyone);
        for entry in &matches.1 {
            let Some(place) = self.routing.find(Namespace::Pattern, &entry.name) else { continue };
            let mut for_redis: Option<Rc<Event>> = None;
            let listeners = std::mem::take(&mut self.routing.place_mut(place).listeners);
            for &listener in &listeners {
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
        let redis = listener.is_redis();
        let mut event = event.clone();
        let bounds = if redis {
            MailboxLimits { events: usize::MAX, bytes: settings.redis_pending_bytes }
        } else {
            if listener.stamp == stamp {
                return;
            }
            listener.stamp = stamp;
            if let Some(marks) = &listener.heard_elsewhere {
                let Some(rest) = marks.remainder(&event, self.now, &self.event_memory) else { return };
                event = rest;
            }
            MailboxLimits { events: settings.mailbox_events, bytes: settings.mailbox_bytes }
        };
        let slow_reader = event.slow_reader;
        let dropped = listener.mailbox.push(event, bounds);
        if !listener.dirty && listener.wants_writing() {
            listener.dirty = true;
            let id = self.listeners.id_at(index).expect("it got the event");
            self.effects.dirty.push(id);
        }
        if dropped > 0 {
            overflowed(self, index, dropped, slow_reader);
        }
    }

    /// Gives one listener an event that is no delivery of a channel.
    pub(crate) fn deliver_event(&mut self, index: u32, event: &Rc<Event>) {
        self.stamp += 1;
        self.put(index, event);
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

fn words_have_patterns(node: &Node, roster: &RoutingTable, index: RouteIndex) -> bool {
    roster.place(index).space == Namespace::Channel && node.registry.has_patterns()
}

#[cold]
pub(crate) fn overflowed(core: &mut Core, index: u32, dropped: usize, policy: SlowReader) {
    core.stats.dropped_full.add(dropped as u64);
    let listener = core.listeners.at(index);
    if listener.is_redis() || policy == SlowReader::Close {
        // Without a link it is closed once; nothing more is written to it in this turn.
        if let Some(link) = listener.link.take() {
            listener.dirty = false;
            core.effects.closes.push((link.id, CloseReason::SlowReader));
            core.stats.closed_slow.add(1);
        }
    }
}
