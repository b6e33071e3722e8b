//! One shard's listeners by name, as lists of listener numbers; `listener` holds the listeners themselves.
//! A route has two lists: the listeners that get each message at once, and those that share its log (`detached`).
//! Must hold: a listener is in at most one list of a route; its own map of subscriptions agrees with the lists.

use super::detached::DetachedLog;
use crate::event::{Namespace, SPACES};
use crate::node::registry::{NameEntry, Registry};
use crate::settings::KindRules;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

pub type ListenerIndex = u32;
pub type RouteIndex = u32;

/// Where a listener is in a route: a place in the list of those that get each message, or of those that share the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position(u32);

impl Position {
    const IN_LOG: u32 = 1 << 31;

    fn in_list(at: usize) -> Position {
        Position(at as u32)
    }

    fn in_log(at: usize) -> Position {
        Position(at as u32 | Position::IN_LOG)
    }

    pub fn is_in_log(self) -> bool {
        self.0 & Position::IN_LOG != 0
    }

    fn at(self) -> usize {
        (self.0 & !Position::IN_LOG) as usize
    }
}

/// A listener's subscriptions: where it is in each route.
pub type Subscriptions = HashMap<RouteIndex, Position, RandomState>;

/// One name on this shard.
pub struct Route {
    pub space: Namespace,
    pub entry: Arc<NameEntry>,
    pub rules: KindRules,
    /// They get each message at once.
    pub listeners: Vec<ListenerIndex>,
    /// Sessions without a connection, and what they missed.
    shared: Option<Box<SharedRoute>>,
    /// Patterns that match this name: (version of the set, entries). Channels only.
    pub matches: (u64, Vec<Arc<NameEntry>>),
}

/// The listeners of a route that share its log.
#[derive(Default)]
struct SharedRoute {
    listeners: Vec<ListenerIndex>,
    log: DetachedLog,
}

impl Route {
    /// Everyone who listens, also those that share the log.
    pub fn all_listeners(&self) -> Vec<ListenerIndex> {
        let sharing = self.shared.iter().flat_map(|shared| &shared.listeners);
        self.listeners.iter().chain(sharing).copied().collect()
    }

    pub fn has_listeners(&self) -> bool {
        !self.listeners.is_empty() || self.shared.is_some()
    }

    /// The log, if a listener shares it, and how many do.
    pub fn log_mut(&mut self) -> Option<(&mut DetachedLog, usize)> {
        let shared = self.shared.as_deref_mut()?;
        Some((&mut shared.log, shared.listeners.len()))
    }

    /// Takes a listener out of its list. Some: another one has moved to its position.
    fn take_out(&mut self, position: Position) -> Option<(ListenerIndex, Position)> {
        let list = match (&mut self.shared, position.is_in_log()) {
            (Some(shared), true) => &mut shared.listeners,
            _ => &mut self.listeners,
        };
        list.swap_remove(position.at());
        let moved = list.get(position.at()).map(|&listener| (listener, position));
        if self.shared.as_ref().is_some_and(|shared| shared.listeners.is_empty()) {
            self.shared = None;
        }
        moved
    }
}

/// A listener has changed from one list of a route to the other.
pub struct MovedListener {
    pub position: Position,
    /// Another listener has moved to its former position.
    pub other: Option<(ListenerIndex, Position)>,
}

/// The consequences of removing a listener from a route.
pub struct RemovedListener {
    /// Another listener has moved to this position: its map of subscriptions must be updated.
    pub moved: Option<(ListenerIndex, Position)>,
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
    /// Routes whose log is shared.
    logs: BTreeSet<RouteIndex>,
}

/// Routes kept for publishers only. Above this they are all dropped and looked up again.
const UNUSED_MAX: usize = 10_000;

impl RoutingTable {
    pub fn new(shard: usize, registry: Arc<Registry>) -> RoutingTable {
        let names = std::array::from_fn(|_| HashMap::default());
        RoutingTable {
            shard,
            registry,
            names,
            places: Vec::new(),
            free: Vec::new(),
            unused: 0,
            logs: BTreeSet::new(),
        }
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
        let (listeners, matches) = (Vec::new(), (0, Vec::new()));
        let place = Route { space, entry, rules: rules(), listeners, shared: None, matches };
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
        let first = !place.has_listeners();
        place.listeners.push(listener);
        book.insert(index, Position::in_list(place.listeners.len() - 1));
        let counts = place.entry.added(shard, first) && place.space == Namespace::Channel;
        self.unused -= usize::from(first);
        if counts {
            self.registry.count_channel(true);
        }
        true
    }

    /// Removes a listener.
    pub fn remove(&mut self, index: RouteIndex, position: Position) -> RemovedListener {
        let shard = self.shard;
        let place = self.places[index as usize].as_mut().expect("a place in use");
        let moved = place.take_out(position);
        let empty = !place.has_listeners();
        if place.shared.is_none() {
            self.logs.remove(&index);
        }
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

    /// From now on this listener shares the log of the route.
    pub fn move_to_log(&mut self, index: RouteIndex, position: Position) -> MovedListener {
        self.logs.insert(index);
        let place = self.place_mut(index);
        let listener = place.listeners[position.at()];
        let other = place.take_out(position);
        let sharing = &mut place.shared.get_or_insert_default().listeners;
        sharing.push(listener);
        MovedListener { position: Position::in_log(sharing.len() - 1), other }
    }

    /// From now on this listener gets each message again.
    pub fn move_from_log(&mut self, index: RouteIndex, position: Position) -> MovedListener {
        let place = self.place_mut(index);
        let listener = place.shared.as_ref().expect("the log it shares").listeners[position.at()];
        let other = place.take_out(position);
        place.listeners.push(listener);
        let position = Position::in_list(place.listeners.len() - 1);
        if place.shared.is_none() {
            self.logs.remove(&index);
        }
        MovedListener { position, other }
    }

    /// The log of a route, if a listener shares it.
    pub fn log(&self, index: RouteIndex) -> Option<&DetachedLog> {
        self.place(index).shared.as_deref().map(|shared| &shared.log)
    }

    /// The routes whose log is shared.
    pub fn logs(&self) -> Vec<RouteIndex> {
        self.logs.iter().copied().collect()
    }

    fn drop_place(&mut self, index: RouteIndex) {
        let place = self.places[index as usize].take().expect("a place in use");
        self.names[place.space as usize].remove(&place.entry.name);
        self.free.push(index);
        self.registry.forget(place.space, &place.entry);
    }

    /// The routes with listeners.
    pub fn with_listeners(&self) -> Vec<RouteIndex> {
        let has_listeners = |slot: &Option<Route>| slot.as_ref().is_some_and(Route::has_listeners);
        let places = self.places.iter().enumerate().filter(|(_, slot)| has_listeners(slot));
        places.map(|(index, _)| index as RouteIndex).collect()
    }

    /// Drops the routes that only publishers used.
    pub fn sweep(&mut self) {
        if self.unused == 0 {
            return;
        }
        for index in 0..self.places.len() {
            if self.places[index].as_ref().is_some_and(|place| !place.has_listeners()) {
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
        assert_eq!(books[2][&place], Position::in_list(0));
        assert_eq!(registry.total(Namespace::Channel, b"a"), 1);
    }

    #[test]
    fn a_listener_that_shares_the_log_still_listens() {
        let registry = Registry::new();
        let mut roster = RoutingTable::new(0, registry.clone());
        let place = roster.make(Namespace::Channel, b"a", KindRules::default);
        let mut books: Vec<Subscriptions> = (0..3).map(|_| Subscriptions::default()).collect();
        for (listener, book) in books.iter_mut().enumerate() {
            roster.add(place, listener as u32, book);
        }
        for listener in [0usize, 2, 1] {
            let moved = roster.move_to_log(place, books[listener][&place]);
            books[listener].insert(place, moved.position);
            if let Some((other, to)) = moved.other {
                books[other as usize].insert(place, to);
            }
        }
        assert!(roster.place(place).listeners.is_empty());
        assert_eq!((roster.place(place).all_listeners().len(), roster.logs()), (3, vec![place]));
        let moved = roster.move_from_log(place, books[2][&place]);
        books[2].insert(place, moved.position);
        if let Some((other, to)) = moved.other {
            books[other as usize].insert(place, to);
        }
        assert_eq!(roster.place(place).listeners, [2]);
        for listener in [0usize, 1] {
            let position = books[listener].remove(&place).unwrap();
            if let Some((other, to)) = roster.remove(place, position).moved {
                books[other as usize].insert(place, to);
            }
        }
        assert!(roster.logs().is_empty(), "nobody shares it any more");
        assert_eq!(registry.total(Namespace::Channel, b"a"), 1);
    }

    #[test]
    fn empty_route_is_removed_everywhere() {
        let registry = Registry::new();
        let mut roster = RoutingTable::new(0, registry.clone());
        let place = roster.make(Namespace::Pattern, b"a*", KindRules::default);
        let mut book = Subscriptions::default();
        roster.add(place, 0, &mut book);
        assert!(roster.remove(place, Position::in_list(0)).unused.is_some());
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
