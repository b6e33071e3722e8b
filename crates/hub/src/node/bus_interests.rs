//! The names this node subscribes to on the bus, the connections that wait for a confirmation, and when a name is
//! released. Shared by all shards. Must hold: a subscription is in the registry before the lock is released, so a
//! name with a confirmed subscription is never released; an unused name is kept for a while.

use super::bus_messages;
use super::publish_order::PublishOrder;
use super::registry::Registry;
use crate::connection::LinkId;
use crate::event::{Namespace, SHARD_BITS};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tavern_store::{Bus, BusError, Interest, Ticket};

/// How long a name stays subscribed after its last listener left: a page that reloads subscribes to the same names.
pub const RELEASE_AFTER_MS: u64 = 30_000;

pub struct BusInterests {
    bus: OnceLock<Arc<dyn Bus>>,
    prefix: Arc<str>,
    pending: Mutex<PendingInterests>,
    numbered: AtomicU64,
    pub(crate) publish_order: PublishOrder,
}

#[derive(Default)]
struct PendingInterests {
    tickets: u64,
    /// Requested and not confirmed yet.
    requested: HashMap<Interest, Ticket>,
    waiting: HashMap<Ticket, WaitingLinks>,
    /// Connections whose request the bus refused; they get the refusal at their next request.
    failed: HashSet<(usize, LinkId)>,
}

struct WaitingLinks {
    interests: Vec<Interest>,
    links: Vec<(usize, LinkId)>,
}

/// Whether a name is subscribed to on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterestState {
    Yes,
    /// The link is named in `Effects::ready` when it is subscribed.
    Wait,
    /// The bus refused the subscription.
    Failed,
}

/// No name is released while this lock is held.
pub struct InterestGuard<'a> {
    carrier: &'a BusInterests,
    book: MutexGuard<'a, PendingInterests>,
}

impl BusInterests {
    pub fn new(prefix: &str, shards: usize) -> BusInterests {
        BusInterests {
            bus: OnceLock::new(),
            prefix: prefix.into(),
            pending: Mutex::default(),
            numbered: AtomicU64::new(0),
            publish_order: PublishOrder::new(shards),
        }
    }

    /// The bus needs an inbox that knows the node, so it is set after the node was created.
    pub fn set_bus(&self, bus: Arc<dyn Bus>) {
        let _ = self.bus.set(bus);
    }

    pub fn bus(&self) -> Option<&Arc<dyn Bus>> {
        self.bus.get()
    }

    /// Whether messages published here may reach other nodes.
    pub fn reaches_others(&self) -> bool {
        self.bus.get().is_some_and(|bus| !bus.is_alone())
    }

    /// The number of the next packet of this node. Numbers of one shard grow in publish order.
    pub(crate) fn number(&self, shard: usize) -> u64 {
        (shard as u64) << SHARD_BITS | self.numbered.fetch_add(1, Ordering::Relaxed)
    }

    /// The bus subscribes by name, so unused names must be released.
    pub(crate) fn is_by_name(&self) -> bool {
        self.bus.get().is_some_and(|bus| !bus.receives_everything())
    }

    /// Lock this while making a subscription.
    pub fn lock(&self) -> InterestGuard<'_> {
        InterestGuard { carrier: self, book: self.lock_pending() }
    }

    fn lock_pending(&self) -> MutexGuard<'_, PendingInterests> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bus has answered. Returns the links that waited for it.
    pub fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) -> Vec<(usize, LinkId)> {
        let mut book = self.lock_pending();
        let Some(waiting) = book.waiting.remove(&ticket) else { return Vec::new() };
        for interest in &waiting.interests {
            book.requested.remove(interest);
        }
        if outcome.is_err() {
            book.failed.extend(&waiting.links);
        }
        waiting.links
    }

    /// Interests of the node itself, independent of its listeners: migration requests to it and to all nodes.
    pub(crate) fn subscribe_node(&self, interests: Vec<Interest>) {
        if let Some(bus) = self.bus.get() {
            let mut book = self.lock_pending();
            book.tickets += 1;
            bus.subscribe(interests, Ticket(book.tickets));
        }
    }

    /// The subjects of all names with a listener here, for a bus that switches from "all messages" to subscriptions
    /// by name.
    pub fn needs(&self, registry: &Registry) -> Vec<Interest> {
        // A subscription in progress is in the registry before its lock is released.
        let _book = self.lock_pending();
        let mut needs = Vec::new();
        for space in
            [Namespace::Channel, Namespace::Pattern, Namespace::Shard, Namespace::Presence, Namespace::People]
        {
            let names = registry.listened(space);
            needs.extend(
                names.iter().filter_map(|(name, _)| bus_messages::interest(&self.prefix, space, name)),
            );
        }
        needs
    }

    /// Releases those of these unused names that still have no listener.
    pub(crate) fn release_unused(&self, registry: &Registry, names: &[(Namespace, Arc<[u8]>)]) {
        let Some(bus) = self.bus.get().filter(|bus| !bus.receives_everything()) else { return };
        let book = self.lock_pending();
        let unused = names.iter().filter(|(space, name)| registry.total(*space, name) == 0);
        let interests: Vec<Interest> = unused
            .filter_map(|(space, name)| bus_messages::interest(&self.prefix, *space, name))
            .filter(|interest| !book.requested.contains_key(interest))
            .collect();
        if !interests.is_empty() {
            bus.unsubscribe(interests);
        }
    }
}

impl InterestGuard<'_> {
    /// Requests a name. Without a link, no connection waits for the confirmation.
    pub fn request(&mut self, space: Namespace, name: &[u8], link: Option<(usize, LinkId)>) -> InterestState {
        self.request_all([(space, name)], link)
    }

    /// Requests several names at once: `Yes` when all of them are confirmed. The link is named once for each answer
    /// of the bus; the caller asks again until nothing is missing.
    pub fn request_all<'n>(
        &mut self,
        names: impl IntoIterator<Item = (Namespace, &'n [u8])>,
        link: Option<(usize, LinkId)>,
    ) -> InterestState {
        if link.is_some_and(|link| self.has_failed(link)) {
            return InterestState::Failed;
        }
        match self.request_each(names, link).contains(&true) {
            true => InterestState::Wait,
            false => InterestState::Yes,
        }
    }

    /// Whether the bus refused something that a link waited for; reported once.
    pub fn has_failed(&mut self, link: (usize, LinkId)) -> bool {
        self.book.failed.remove(&link)
    }

    /// Requests several names at once. Returns for each whether it is not confirmed yet.
    pub fn request_each<'n>(
        &mut self,
        names: impl IntoIterator<Item = (Namespace, &'n [u8])>,
        link: Option<(usize, LinkId)>,
    ) -> Vec<bool> {
        let prefix = &self.carrier.prefix;
        let interests: Vec<Option<Interest>> =
            names.into_iter().map(|(space, name)| bus_messages::interest(prefix, space, name)).collect();
        let Some(bus) = self.carrier.bus.get().filter(|bus| !bus.receives_everything()) else {
            return vec![false; interests.len()];
        };
        let book = &mut *self.book;
        let mut fresh: Vec<Interest> = interests.iter().flatten().cloned().collect();
        fresh.retain(|interest| !book.requested.contains_key(interest));
        if !fresh.is_empty() {
            book.tickets += 1;
            let ticket = Ticket(book.tickets);
            if !bus.subscribe(fresh.clone(), ticket) {
                book.requested.extend(fresh.iter().map(|interest| (interest.clone(), ticket)));
                book.waiting.insert(ticket, WaitingLinks { interests: fresh, links: Vec::new() });
            }
        }
        let mut waits = |interest: &Option<Interest>| {
            let ticket = interest.as_ref().and_then(|interest| book.requested.get(interest));
            let waiting = ticket.and_then(|ticket| book.waiting.get_mut(ticket));
            if let (Some(waiting), Some(link)) = (waiting, link)
                && !waiting.links.contains(&link)
            {
                waiting.links.push(link);
            }
            ticket.is_some()
        };
        interests.iter().map(&mut waits).collect()
    }
}
