//! Performs the effects of a turn: messages to other shards and the bus, work for the store, queries to the authorize
//! hook, commands that can continue, then writing. Must hold: no connection waits longer than one round over all
//! touched ones; a backlog that builds up while waiting stays far below the size of a mailbox.

use crate::shard::conn::Conn;
use crate::shard::input::ShardInput;
use crate::shard::links::LinkTarget;
use crate::shard::worker::ShardWorker;
use crate::shard::{gateways, poll_socket, polls, socket_writer, streams};
use crate::store_client::StoreClient;
use crate::topics::delivery;
use tavern_hub::topics::Trimmed;
use tavern_hub::{AuthorizeAnswer, EventFormat, LinkId, ShardEvent};

/// Connections with events that are written to in one turn before new input is read.
const EVENTS_PER_TURN: usize = 16;

impl ShardWorker {
    /// Performs the effects of this turn.
    pub fn flush(&mut self) {
        self.flush_some(EVENTS_PER_TURN);
    }

    /// Writes to all connections: before a mailbox could overflow, and at the end.
    pub fn flush_all(&mut self) {
        self.flush_some(usize::MAX);
    }

    fn flush_some(&mut self, max: usize) {
        self.send_packets();
        self.ask_app();
        self.run_ready();
        if self.has_events() {
            self.state.read_clock();
        }
        // Before the work is submitted: the answer to a poll may need a party from the store.
        self.touch_dirty();
        self.submit_work();
        let mut replies = std::mem::take(&mut self.state.replies);
        for link in replies.drain(..) {
            socket_writer::write(&mut self.state, link);
        }
        replies.append(&mut self.state.replies);
        self.state.replies = replies;
        // Connections that are touched while writing wait for the next flush.
        for written in 1..=self.state.touched.len().min(max) {
            if written % EVENTS_PER_TURN == 0 {
                self.state.read_clock();
            }
            let Some(link) = self.state.touched.pop_front() else { break };
            match self.state.links.get_mut(link) {
                // Its events may have been written together with a reply.
                Some(LinkTarget::Socket(conn)) if conn.state.touched => {
                    socket_writer::write(&mut self.state, link);
                }
                Some(LinkTarget::Gateway(gateway)) if gateway.touched => {
                    gateways::write(&mut self.state, link);
                }
                _ => {}
            }
        }
        if self.state.touched.is_empty() {
            self.published_at_flush = self.published();
        }
        self.carry_closes();
    }

    /// Some connection may be written events now.
    fn has_events(&self) -> bool {
        !self.state.touched.is_empty() || !self.state.hub.core.effects.dirty.is_empty()
    }

    /// Sends each other shard its messages as one batch, and the bus the messages for other nodes.
    fn send_packets(&mut self) {
        let state = &mut self.state;
        for (shard, packets) in state.hub.core.effects.shard_messages.iter_mut().enumerate() {
            if packets.is_empty() {
                continue;
            }
            let queue = state.context.shards.queue(shard);
            queue.force(ShardInput::Packets(std::mem::take(packets)));
            state.congested |= queue.is_full();
        }
        if state.hub.core.end_publishing()
            && let Some(bus) = state.context.node.bus_interests.bus()
        {
            state.congested |= bus.is_full();
        }
    }

    /// Submits work to the store, and sends other shards the changes that they need.
    pub fn submit_work(&mut self) {
        let state = &mut self.state;
        let context = &state.context;
        for (shard, change) in state.hub.core.effects.channel_updates.drain(..) {
            context.shards.force(shard, ShardInput::Hub(ShardEvent::Presence(change)));
        }
        for (shard, change) in state.hub.core.effects.user_updates.drain(..) {
            context.shards.force(shard, ShardInput::Hub(ShardEvent::Status(change)));
        }
        for (shard, message) in state.hub.core.effects.control.drain(..) {
            context.shards.force(shard, ShardInput::Hub(ShardEvent::Control(message)));
        }
        for topic in state.hub.core.effects.topics.drain(..) {
            context.wakeups.published(topic);
        }
        let topics = state.hub.topic_effects();
        for (topic, events, duplicates) in topics.published.drain(..) {
            context.counters.published(&topic, events, duplicates);
            context.wakeups.published(topic);
        }
        for subscription in topics.changed.drain(..) {
            context.wakeups.changed(subscription);
        }
        for notice in topics.notices.drain(..) {
            delivery::report(&context.counters, &notice);
        }
        for Trimmed { from, before, subscriptions } in topics.trimmed.drain(..) {
            tracing::info!(from, to = before - 1, subscriptions, "events dropped by retention");
        }
        for error in topics.corrupt.drain(..) {
            tracing::error!(%error, "cannot read a stored record");
        }
        for (number, reply) in topics.replies.drain(..) {
            self.requests.answer_topic(number, reply);
        }
        for (number, outcome) in std::mem::take(&mut state.hub.core.effects.service_replies) {
            self.requests.answer_order(number, outcome);
        }
        if !state.hub.core.effects.work.is_empty() {
            let work = std::mem::take(&mut state.hub.core.effects.work);
            if let Some(tracer) = &context.tracer {
                for (ticket, trace) in state.hub.core.effects.commit_traces.drain(..) {
                    tracer.commit_begins(StoreClient::ticket_of(state.index, ticket), trace);
                }
            }
            context.store.submit_for(state.index, work);
        }
    }

    fn ask_app(&mut self) {
        if self.state.hub.core.effects.authorize_queries.is_empty() {
            return;
        }
        for question in std::mem::take(&mut self.state.hub.core.effects.authorize_queries) {
            let context = &self.state.context;
            let (shards, shard) = (context.shards.clone(), self.state.index);
            let answer = move |question, reply| shards.force(shard, ShardInput::Authorized(question, reply));
            match &context.authorize {
                Some(hook) => hook.ask(question, answer),
                None => answer(question, AuthorizeAnswer::Deny),
            }
        }
    }

    /// Continues the commands that can run now.
    fn run_ready(&mut self) {
        if self.state.hub.core.effects.ready.is_empty() {
            return;
        }
        for link in std::mem::take(&mut self.state.hub.core.effects.ready) {
            match self.state.links.get_mut(link) {
                Some(LinkTarget::Socket(conn)) if conn.has_polls() => {
                    poll_socket::resume(&mut self.state, link)
                }
                Some(LinkTarget::Socket(_)) => self.reader.resume(&mut self.state, link),
                Some(LinkTarget::Request(_)) => self.requests.resume(&mut self.state, link),
                Some(LinkTarget::Stream(_)) => streams::go_on(&mut self.state, link),
                Some(LinkTarget::Gateway(_)) => gateways::go_on(&mut self.state, link),
                Some(LinkTarget::Poll(_)) => polls::answer(&mut self.state, link),
                Some(LinkTarget::Seeking(_)) => self.requests.resume_seeking(&mut self.state, link),
                _ => {}
            }
        }
    }

    fn touch_dirty(&mut self) {
        let mut dirty = std::mem::take(&mut self.state.hub.core.effects.dirty);
        for id in dirty.drain(..) {
            let Some(link) = self.state.hub.core.listener(id).and_then(|listener| listener.link) else {
                continue;
            };
            match link.format {
                EventFormat::Poll => {
                    poll_socket::answer(&mut self.state, link.id);
                    polls::answer(&mut self.state, link.id);
                }
                EventFormat::Sse => streams::write(&mut self.state, link.id),
                EventFormat::Gateway(_) => gateways::touch(&mut self.state, link.id),
                _ => self.touch_listener(link.id),
            }
        }
        dirty.append(&mut self.state.hub.core.effects.dirty);
        self.state.hub.core.effects.dirty = dirty;
    }

    fn touch_listener(&mut self, link: LinkId) {
        let Some(conn) = self.state.links.conn_mut(link) else { return };
        match Conn::is_waiting(conn) {
            true => self.reader.resume(&mut self.state, link),
            false => self.state.touch(link),
        }
    }

    fn carry_closes(&mut self) {
        while let Some((link, reason)) = self.state.hub.core.effects.closes.pop() {
            match self.state.links.get_mut(link) {
                Some(LinkTarget::Socket(_)) => socket_writer::write_close(&mut self.state, link, reason),
                Some(LinkTarget::Stream(_)) => streams::end(&mut self.state, link, reason),
                Some(LinkTarget::Gateway(_)) => gateways::end(&mut self.state, link, reason),
                Some(LinkTarget::Poll(_)) => polls::end(&mut self.state, link, reason),
                _ => {}
            }
        }
    }
}
