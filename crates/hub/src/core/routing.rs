//! One shard's listeners by name, as lists of listener numbers; `listener` holds the listeners themselves.
//! Must hold: a listener is at most once in a list; its own map of subscriptions agrees with the list.

use crate::event::{Namespace, SPACES};
use crate::node::registry::{NameEntry, Registry};
use crate::settings::KindRules;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::sync::Arc;

pub type ListenerIndex = u32;
pub type RouteIndex = u32;

/// A listener's subscriptions: route → position in the route's list.
pub type Subscriptions = HashMap<RouteIndex, u32, RandomState>;

/// One name on this shard.
pub struct Route {
    pub space: Namespace,
    pub entry: Arc<NameEntry>,
    pub rules: KindRules,
    pub listeners: Vec<ListenerIndex>,
    /// Patterns that match this name: (version of the set, entries). Channels only.
    pub matches: (u64, Vec<Arc<NameEntry>>),
}

/// The consequences of removing a listener from a route.
pub struct RemovedListener {
    /// Another listener has moved to this position: its map of subscriptions must be updated.
    pub moved: Option<(ListenerIndex, u32)>,
    /// The name has no listener on this node any more.
    pub unused: Option<(Namespace, Arc<[u8]>)>,
}

pub struct RoutingTable {
    shard: usize,
    registry: Arc<Registry>,
    names: [HashMap<Arc<[u8]>, RouteIndex, RandomState>; SPACES],
    places: Vec<Option<Route>>,
    free: Vec<RouteIndex>,
    /// Routes without listeners, kept so that a publisher finds its channel; swept when there are too many.
    unused: usize,
}

/// Routes kept for publishers only. Above this they are all dropped and looked up again.
const UNUSED_MAX: usize = 10_000;

impl RoutingTable {
    pub fn new(shard: usize, registry: Arc<Registry>) -> RoutingTable {
        let names = std::array::from_fn(|_| HashMap::default());
        RoutingTable { shard, registry, names, places: Vec::new(), free: Vec::new(), unused: 0 }
    }

    pub fn find(&self, space: Namespace, name: &[u8]) -> Option<RouteIndex> {
        self.names[space as usize].get(name).copied()
    }

    pub fn place(&self, index: RouteIndex) -> &Route {
        self.places[index as usize].as_ref().expect("a place in use")
    }

    pub fn place_mut(&mut self, index: RouteIndex) -> &mut Route {
        self.places[index as usize].as_mut().expect("a place in use")
    }

    /// The route of a name, created if there is none.
    pub fn make(&mut self, space: Namespace, name: &[u8], rules: impl FnOnce() -> KindRules) -> RouteIndex {
        if let Some(index) = self.find(space, name) {
            return index;
        }
        if self.unused >= UNUSED_MAX {
            self.sweep();
        }
        let entry = self.registry.intern(space, name);
        let key = entry.name.clone();
        let place = Route { space, entry, rules: rules(), listeners: Vec::new(), matches: (0, Vec::new()) };
        let index = match self.free.pop() {
            Some(index) => {
                self.places[index as usize] = Some(place);
                index
            }
            None => {
                self.places.push(Some(place));
                (self.places.len() - 1) as RouteIndex
            }
        };
        self.names[space as usize].insert(key, index);
        self.unused += 1;
        index
    }

    /// Adds a listener; false if it was already there.
    pub fn add(&mut self, index: RouteIndex, listener: ListenerIndex, book: &mut Subscriptions) -> bool {
        if book.contains_key(&index) {
            return false;
        }
        let shard = self.shard;
        let place = self.place_mut(index);
        let first = place.listeners.is_empty();
        place.listeners.push(listener);
        book.insert(index, (place.listeners.len() - 1) as u32);
        let counts = place.entry.added(shard, first) && place.space == Namespace::Channel;
        self.unused -= usize::from(first);
        if counts {
            self.registry.count_channel(true);
        }
        true
    }

    /// Removes a listener.
    pub fn remove(&mut self, index: RouteIndex, position: u32) -> RemovedListener {
        let shard = self.shard;
        let place = self.places[index as usize].as_mut().expect("a place in use");
        place.listeners.swap_remove(position as usize);
        let moved = place.listeners.get(position as usize).map(|&listener| (listener, position));
        let empty = place.listeners.is_empty();
        let last = place.entry.removed(shard, empty);
        let unused = last.then(|| (place.space, place.entry.name.clone()));
        if last && place.space == Namespace::Channel {
            self.registry.count_channel(false);
        }
        if empty {
            self.drop_place(index);
        }
        RemovedListener { moved, unused }
    }

    fn drop_place(&mut self, index: RouteIndex) {
        let place = self.places[index as usize].take().expect("a place in use");
        self.names[place.space as usize].remove(&place.entry.name);
        self.free.push(index);
        self.registry.forget(place.space, &place.entry);
    }

    /// The routes with listeners.
    pub fn with_listeners(&self) -> Vec<RouteIndex> {
        let has_listeners =
            |slot: &Option<Route>| slot.as_ref().is_some_and(|place| !place.listeners.is_empty());
        let places = self.places.iter().enumerate().filter(|(_, slot)| has_listeners(slot));
        places.map(|(index, _)| index as RouteIndex).collect()
    }

    /// Drops the routes that only publishers used.
    pub fn sweep(&mut self) {
        if self.unused == 0 {
            return;
        }
        for index in 0..self.places.len() {
            if self.places[index].as_ref().is_some_and(|place| place.listeners.is_empty()) {
                self.drop_place(index as RouteIndex);
            }
        }
        self.unused = 0;
    }

    /// Updates the list of patterns that match a channel, and returns it.
    pub fn matches(&mut self, index: RouteIndex) -> &[Arc<NameEntry>] {
        let version = self.registry.pattern_version();
        let place = self.places[index as usize].as_mut().expect("a place in use");
        if place.matches.0 != version {
            place.matches = (version, self.registry.matching(&place.entry.name));
        }
        &place.matches.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_listener_keeps_the_positions_of_the_others() {
        let registry = Registry::new();
        let mut roster = RoutingTable::new(0, registry.clone());
        let place = roster.make(Namespace::Channel, b"a", KindRules::default);
        let mut books: Vec<Subscriptions> = (0..4).map(|_| Subscriptions::default()).collect();
        for (listener, book) in books.iter_mut().enumerate() {
            assert!(roster.add(place, listener as u32, book));
            assert!(!roster.add(place, listener as u32, book), "twice is once");
        }
        for leaving in [1usize, 3, 0] {
            let position = books[leaving].remove(&place).unwrap();
            if let Some((moved, to)) = roster.remove(place, position).moved {
                books[moved as usize].insert(place, to);
            }
        }
        assert_eq!(roster.place(place).listeners, [2]);
        assert_eq!(books[2][&place], 0);
        assert_eq!(registry.total(Namespace::Channel, b"a"), 1);
    }

    #[test]
    fn empty_route_is_removed_everywhere() {
        let registry = Registry::new();
        let mut roster = RoutingTable::new(0, registry.clone());
        let place = roster.make(Namespace::Pattern, b"a*", KindRules::default);
        let mut book = Subscriptions::default();
        roster.add(place, 0, &mut book);
        assert!(roster.remove(place, 0).unused.is_some());
        assert_eq!(roster.find(Namespace::Pattern, b"a*"), None);
        assert!(registry.find(Namespace::Pattern, b"a*").is_none());
    }

    #[test]
    fn names_of_publishers_are_bounded() {
        let registry = Registry::new();
        let mut roster = RoutingTable::new(0, registry.clone());
        for n in 0..UNUSED_MAX + 5 {
            roster.make(Namespace::Channel, n.to_string().as_bytes(), KindRules::default);
        }
        assert!(roster.names[0].len() <= UNUSED_MAX);
    }
}
