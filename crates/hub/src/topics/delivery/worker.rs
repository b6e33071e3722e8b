//! The node's delivery worker: knows every subscription and delivers those that have events and that no other node
//! delivers. Wake-ups, the store's answers and the endpoints' replies come in; work for the store and posts go out.
//! Must hold: the queues that can send take turns, and one that hangs delays no other; posts, loads and events in
//! memory are bounded.

use super::post::AttemptAnswer;
use super::queue::{DeliveryQueue, DeliveryState};
use super::shared::{DeliveryEffects, DeliveryRequest, DeliverySettings, DeliveryShared};
use super::subscriptions::{ALL_SUBSCRIPTIONS, SubscriptionReplica};
use crate::node::{Node, RandomSource};
use crate::replica::Replicas;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tavern_domain::Time;
use tavern_domain::delivery::DeliveryInput;
use tavern_domain::topic::DELIVERIES;
use tavern_store::limits::PAGE_ROWS;
use tavern_store::{Deadline, Found, Read, StoreAnswer, Ticket, Work};
use tavern_wire::record::SubscriptionSettings;

pub struct DeliveryWorker {
    pub(super) shared: DeliveryShared,
    pub(super) queues: BTreeMap<Arc<str>, DeliveryQueue>,
    /// The subscriptions of each topic.
    pub(super) topics: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    pub(super) check_due: Time,
    pub(super) list: Replicas<SubscriptionReplica>,
    /// Subscriptions that were read one by one while the list is being read.
    pub(super) read_since: BTreeSet<Arc<str>>,
    /// How many events the topics of active subscriptions have had.
    counts: BTreeMap<Arc<str>, u64>,
}

impl DeliveryWorker {
    pub fn new(
        node: Arc<Node>,
        settings: DeliverySettings,
        rng: Box<dyn RandomSource + Send>,
        now: Time,
    ) -> DeliveryWorker {
        DeliveryWorker {
            shared: DeliveryShared::new(node, settings, rng, now),
            queues: BTreeMap::new(),
            topics: BTreeMap::new(),
            check_due: now,
            list: Replicas::new(()),
            read_since: BTreeSet::new(),
            counts: BTreeMap::new(),
        }
    }

    /// Work for the driver.
    pub fn effects(&mut self) -> &mut DeliveryEffects {
        &mut self.shared.effects
    }

    /// Whether the subscriptions have been loaded.
    pub fn is_ready(&self) -> bool {
        self.list.get(ALL_SUBSCRIPTIONS).is_some_and(SubscriptionReplica::is_loaded)
    }

    /// Whether a topic has subscriptions.
    pub fn has_subscription(&self, topic: &str) -> bool {
        self.topics.contains_key(topic)
    }

    /// All subscriptions, by name.
    pub fn subscriptions(&self) -> impl Iterator<Item = &Arc<SubscriptionSettings>> {
        self.queues.values().map(|queue| &queue.subscription)
    }

    /// When the oldest waiting event was accepted, for each subscription that this node delivers.
    pub fn oldest(&self) -> impl Iterator<Item = (&Arc<str>, Time)> {
        self.queues.iter().filter_map(|(name, queue)| match &queue.state {
            DeliveryState::Active(active) => Some((name, active.machine.oldest()?)),
            _ => None,
        })
    }

    /// How many events wait, for each subscription that this node delivers, as of the last check.
    pub fn queued(&self) -> impl Iterator<Item = (&Arc<str>, u64)> {
        self.queues.iter().filter_map(|(name, queue)| match &queue.state {
            DeliveryState::Active(active) => {
                let head = active.marks.seq_at_head(&self.counts);
                Some((name, active.machine.progress().queued(head)))
            }
            _ => None,
        })
    }

    /// Reads the event counts of the topics of active subscriptions.
    fn count(&mut self) {
        let active = self.queues.values().filter_map(|queue| match &queue.state {
            DeliveryState::Active(active) => Some(active),
            _ => None,
        });
        let names: BTreeSet<Arc<str>> = active.flat_map(|active| active.marks.topics().cloned()).collect();
        if !names.is_empty() {
            let names = names.into_iter().take(PAGE_ROWS as usize).collect();
            let read = Read::Topics { names, after: None, limit: PAGE_ROWS };
            self.shared.ask(DeliveryRequest::Counts, Work::Read(read));
        }
    }

    /// The number of posts in progress.
    pub fn in_flight(&self) -> usize {
        self.shared.posts
    }

    /// A topic has new events.
    pub fn published(&mut self, now: Time, topic: &str) {
        self.feed(now, topic);
        self.advance(now);
    }

    fn feed(&mut self, now: Time, topic: &str) {
        for name in self.topics.get(topic).into_iter().flatten() {
            if let Some(queue) = self.queues.get_mut(name) {
                queue.feed(&mut self.shared, now);
            }
        }
    }

    /// Runs after every input: loads queues, lets those that can send do so in turn, also delivers announcements.
    pub(super) fn advance(&mut self, now: Time) {
        loop {
            while let Some(name) = self.shared.next_load() {
                if let Some(queue) = self.queues.get_mut(&name) {
                    queue.start_load(&mut self.shared);
                }
            }
            while self.shared.may_post()
                && let Some(name) = self.shared.ready.pop_front()
            {
                if let Some(queue) = self.queues.get_mut(&name) {
                    queue.post_next(&mut self.shared, now);
                }
            }
            if !std::mem::take(&mut self.shared.announced) {
                return;
            }
            self.feed(now, DELIVERIES);
        }
    }

    /// Another node reports new events: the worker here reads the log. Without a name: subscriptions were changed.
    pub fn nudged(&mut self, now: Time, name: &Arc<str>) {
        self.shared.now = now;
        if **name == *ALL_SUBSCRIPTIONS {
            return self.check_list();
        }
        match self.queues.get_mut(name) {
            // A nudge is not forwarded: two nodes that each take the other for the worker would never stop.
            Some(queue) if matches!(queue.state, DeliveryState::Elsewhere) => queue.unread = true,
            Some(queue) => queue.feed(&mut self.shared, now),
            None => {}
        }
        self.advance(now);
    }

    /// Checks all subscriptions: this node has just started, or another one has stopped.
    pub fn check_all(&mut self, now: Time) {
        for queue in self.queues.values_mut() {
            if matches!(queue.state, DeliveryState::Elsewhere) {
                queue.state = DeliveryState::Idle;
            }
            queue.feed(&mut self.shared, now);
        }
        self.advance(now);
    }

    pub fn next_wake(&self) -> Time {
        self.shared.next_due().map_or(self.check_due, |due| due.min(self.check_due))
    }

    pub fn wake(&mut self, now: Time) {
        self.shared.now = now;
        if now >= self.check_due {
            self.check_due = now + self.shared.settings.check_ms;
            self.check_list();
            self.count();
        }
        while let Some(name) = self.shared.take_due(now) {
            match self.queues.get_mut(&name) {
                Some(queue) => queue.wake(&mut self.shared, now),
                None => self.list.due(&mut self.shared, &name),
            }
            self.advance(now);
        }
    }

    /// The deadline of a subscription was not renewed: its worker stopped, or left the deadline behind.
    pub fn overdue(&mut self, now: Time, deadline: &Deadline) {
        if !self.is_ready() || self.shared.stopping {
            return;
        }
        match self.queues.get_mut(&deadline.name).filter(|queue| !queue.subscription.pull) {
            Some(queue) => queue.is_overdue(&mut self.shared, now, deadline.due),
            None => self.shared.unwatch(deadline),
        }
        self.advance(now);
    }

    /// The node stops: nothing new is started. Posts in progress may finish.
    pub fn stop(&mut self, now: Time) {
        self.shared.stopping = true;
        for queue in self.queues.values_mut() {
            queue.give(&mut self.shared, now, Some(DeliveryInput::Stop));
        }
        self.advance(now);
    }

    /// Nothing is in progress and everything is saved.
    pub fn is_at_rest(&self) -> bool {
        let at_rest = |queue: &DeliveryQueue| match &queue.state {
            DeliveryState::Active(active) => active.machine.is_at_rest(),
            _ => true,
        };
        self.shared.posts == 0 && self.queues.values().all(at_rest)
    }

    /// An endpoint has replied to a post. Each post is answered once.
    pub fn posted(&mut self, now: Time, name: &Arc<str>, batch: u64, answer: AttemptAnswer) {
        self.shared.posts -= 1;
        if let Some(queue) = self.queues.get_mut(name) {
            queue.posted(&mut self.shared, now, batch, answer);
        }
        self.advance(now);
    }

    /// The store has answered.
    pub fn answered(&mut self, now: Time, ticket: Ticket, answer: StoreAnswer) {
        self.shared.now = now;
        if self.list.owns(ticket) {
            self.list_answered(now, ticket, answer);
            return self.advance(now);
        }
        let Some(request) = self.shared.take_request(ticket) else { return };
        match request {
            DeliveryRequest::One(name) => self.one_read(now, &name, answer),
            DeliveryRequest::Counts => {
                if let StoreAnswer::Read(Found::Topics(topics)) = answer {
                    self.counts = topics.page.rows.into_iter().collect();
                }
            }
            DeliveryRequest::Unwatch => {}
            request => self.queue_answered(now, request, answer),
        }
        self.advance(now);
    }

    fn queue_answered(&mut self, now: Time, request: DeliveryRequest, answer: StoreAnswer) {
        let (DeliveryRequest::Progress(name)
        | DeliveryRequest::Marks(name)
        | DeliveryRequest::Check(name)
        | DeliveryRequest::Events(name, _)
        | DeliveryRequest::Fetch(name, ..)
        | DeliveryRequest::Take(name, _)
        | DeliveryRequest::Save(name, _)) = &request
        else {
            return;
        };
        let Some(queue) = self.queues.get_mut(name) else { return };
        let shared = &mut self.shared;
        match (request, answer) {
            (DeliveryRequest::Progress(_), StoreAnswer::Read(Found::Document(found))) => {
                queue.loaded(shared, now, |load| load.progress = Some(found));
            }
            (DeliveryRequest::Marks(_), StoreAnswer::Read(Found::Document(found))) => {
                queue.loaded(shared, now, |load| load.marks = Some(found));
            }
            (DeliveryRequest::Progress(_) | DeliveryRequest::Marks(_), StoreAnswer::Failed(error)) => {
                queue.load_failed(shared, now, &error);
            }
            (DeliveryRequest::Check(_), StoreAnswer::Read(Found::Document(found))) => {
                queue.checked(shared, found.map_or(0, |found| found.version));
            }
            (DeliveryRequest::Check(_), _) => {}
            (
                DeliveryRequest::Events(_, life)
                | DeliveryRequest::Fetch(_, life, _)
                | DeliveryRequest::Take(_, life)
                | DeliveryRequest::Save(_, life),
                _,
            ) if life != queue.life() => {}
            (DeliveryRequest::Events(..), StoreAnswer::Read(Found::Log(stretch))) => {
                queue.read_events(shared, now, stretch);
            }
            (DeliveryRequest::Fetch(_, _, batch), StoreAnswer::Read(Found::Log(stretch))) => {
                queue.fetched(shared, now, batch, stretch);
            }
            (DeliveryRequest::Fetch(_, _, batch), StoreAnswer::Read(Found::Document(found))) => {
                queue.fetched_document(shared, now, batch, found.as_ref());
            }
            (DeliveryRequest::Take(..), StoreAnswer::Committed(receipt)) => {
                queue.lease_taken(shared, now, &receipt)
            }
            (DeliveryRequest::Save(..), StoreAnswer::Committed(receipt)) => {
                queue.saved(shared, now, &receipt)
            }
            (_, StoreAnswer::Failed(error)) => queue.failed(shared, now, error),
            (request, answer) => unreachable!("{request:?} was answered with {answer:?}"),
        }
    }
}
