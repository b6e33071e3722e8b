//! The subscriptions of this node, as totals: each name has an entry with its number of subscriptions and the shards
//! that listen. Shared by all shards; each shard has its own lists of listeners (`routing`).
//! Must hold: a shard's bit is set before its subscriber gets the reply; only that shard changes its bit.

pub use super::name_entry::NameEntry;
use crate::event::Namespace;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tavern_domain::limits::CHANNEL_BYTES;
use tavern_domain::pattern;

/// Shards of one node: a listening shard is one bit.
pub const SHARDS_MAX: usize = 64;

/// The shards of a mask.
pub fn shards_of(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let shard = (mask != 0).then(|| mask.trailing_zeros() as usize);
        mask &= mask.wrapping_sub(1);
        shard
    })
}

type NameMap = HashMap<Arc<[u8]>, Arc<NameEntry>, RandomState>;

#[derive(Default)]
struct Patterns {
    names: NameMap,
    /// Patterns by their literal prefix, and how many patterns have a prefix of each length.
    by_literal: HashMap<Box<[u8]>, PatternGroup, RandomState>,
    lengths: BTreeMap<usize, usize>,
}

/// The patterns with the same literal prefix.
#[derive(Default)]
struct PatternGroup {
    /// The maximum cost of comparing a name with all of them.
    cost: usize,
    /// Cheapest first.
    patterns: Vec<CostedPattern>,
}

struct CostedPattern {
    cost: usize,
    entry: Arc<NameEntry>,
}

/// The maximum number of comparisons of one name with the patterns of this node: about half a millisecond. A pattern
/// that could exceed it is refused.
const PATTERN_COST_MAX: usize = 1 << 18;
/// The cost of a pattern besides its comparisons: it has to be found in memory.
const PATTERN_COST: usize = 8;

fn pattern_cost(name: &[u8]) -> usize {
    PATTERN_COST + pattern::steps(name, CHANNEL_BYTES)
}

#[derive(Default)]
pub struct Registry {
    channels: RwLock<NameMap>,
    shard_channels: RwLock<NameMap>,
    watched: RwLock<NameMap>,
    people: RwLock<NameMap>,
    patterns: RwLock<Patterns>,
    /// Incremented with every change of the set of patterns, so that shards know when their matches are stale.
    pattern_version: AtomicU64,
    pattern_len: AtomicU32,
    /// Channels with a subscription.
    listened_channels: AtomicU64,
}

impl Registry {
    pub fn new() -> Arc<Registry> {
        Arc::new(Registry { pattern_version: AtomicU64::new(1), ..Registry::default() })
    }

    /// The entry of a name, created if there is none. The caller holds it until `forget`.
    pub fn intern(&self, space: Namespace, name: &[u8]) -> Arc<NameEntry> {
        match space {
            Namespace::Channel => intern(&mut write(&self.channels), name),
            Namespace::Shard => intern(&mut write(&self.shard_channels), name),
            Namespace::Presence => intern(&mut write(&self.watched), name),
            Namespace::People => intern(&mut write(&self.people), name),
            Namespace::Pattern => {
                let mut patterns = write(&self.patterns);
                let known = patterns.names.len();
                let entry = intern(&mut patterns.names, name);
                if patterns.names.len() > known {
                    let literal = pattern::literal_prefix(name);
                    patterns.by_literal.entry(literal.into()).or_default().add(entry.clone());
                    *patterns.lengths.entry(literal.len()).or_default() += 1;
                    self.pattern_len.fetch_add(1, Ordering::AcqRel);
                    self.pattern_version.fetch_add(1, Ordering::AcqRel);
                }
                entry
            }
        }
    }

    pub fn find(&self, space: Namespace, name: &[u8]) -> Option<Arc<NameEntry>> {
        match space {
            Namespace::Channel => read(&self.channels).get(name).cloned(),
            Namespace::Shard => read(&self.shard_channels).get(name).cloned(),
            Namespace::Presence => read(&self.watched).get(name).cloned(),
            Namespace::People => read(&self.people).get(name).cloned(),
            Namespace::Pattern => read(&self.patterns).names.get(name).cloned(),
        }
    }

    /// Releases an entry from `intern`. The last release removes the name.
    pub fn forget(&self, space: Namespace, entry: &Arc<NameEntry>) {
        match space {
            Namespace::Channel => {
                forget(&mut write(&self.channels), entry);
            }
            Namespace::Shard => {
                forget(&mut write(&self.shard_channels), entry);
            }
            Namespace::Presence => {
                forget(&mut write(&self.watched), entry);
            }
            Namespace::People => {
                forget(&mut write(&self.people), entry);
            }
            Namespace::Pattern => {
                let mut patterns = write(&self.patterns);
                if forget(&mut patterns.names, entry) {
                    patterns.forget_literal(entry);
                    self.pattern_len.fetch_sub(1, Ordering::AcqRel);
                    self.pattern_version.fetch_add(1, Ordering::AcqRel);
                }
            }
        }
    }

    pub fn has_patterns(&self) -> bool {
        self.pattern_len.load(Ordering::Acquire) > 0
    }

    pub fn pattern_version(&self) -> u64 {
        self.pattern_version.load(Ordering::Acquire)
    }

    /// Whether a pattern exists, or can be added without making a publish too expensive.
    pub fn has_room_for(&self, name: &[u8]) -> bool {
        let patterns = read(&self.patterns);
        patterns.names.contains_key(name)
            || patterns.cost_up_to(pattern::literal_prefix(name)) + pattern_cost(name) <= PATTERN_COST_MAX
    }

    /// The patterns that match a name, in order of their text. Checks only those whose literal prefix the name has.
    /// If patterns exceed the cost anyway, because of the order in which they were added, the most expensive ones are
    /// left out.
    pub fn matching(&self, name: &[u8]) -> Vec<Arc<NameEntry>> {
        let patterns = read(&self.patterns);
        let mut found: Vec<Arc<NameEntry>> = Vec::new();
        let mut left = 2 * PATTERN_COST_MAX;
        for group in patterns.groups_of(name) {
            for known in &group.patterns {
                let Some(rest) = left.checked_sub(known.cost) else { break };
                left = rest;
                if pattern::matches(&known.entry.name, name) {
                    found.push(known.entry.clone());
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// A channel has its first subscription on this node, or lost its last one.
    pub(crate) fn count_channel(&self, listened: bool) {
        match listened {
            true => self.listened_channels.fetch_add(1, Ordering::Relaxed),
            false => self.listened_channels.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Channels with a subscription on this node.
    pub fn channel_count(&self) -> u64 {
        self.listened_channels.load(Ordering::Relaxed)
    }

    /// Patterns with listeners.
    pub fn pattern_count(&self) -> usize {
        read(&self.patterns).names.values().filter(|entry| entry.total() > 0).count()
    }

    pub fn total(&self, space: Namespace, name: &[u8]) -> u32 {
        self.find(space, name).map_or(0, |entry| entry.total())
    }

    /// Names with at least one subscription, in no order, with their totals.
    pub fn listened(&self, space: Namespace) -> Vec<(Arc<[u8]>, u32)> {
        let collect = |names: &NameMap| {
            let totals = names.values().map(|entry| (entry.name.clone(), entry.total()));
            totals.filter(|(_, total)| *total > 0).collect()
        };
        match space {
            Namespace::Channel => collect(&read(&self.channels)),
            Namespace::Shard => collect(&read(&self.shard_channels)),
            Namespace::Presence => collect(&read(&self.watched)),
            Namespace::People => collect(&read(&self.people)),
            Namespace::Pattern => collect(&read(&self.patterns).names),
        }
    }
}

impl Patterns {
    /// The groups whose literal prefix a name has.
    fn groups_of<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = &'a PatternGroup> {
        let lengths = self.lengths.keys().take_while(move |&&length| length <= name.len());
        lengths.filter_map(move |&length| self.by_literal.get(&name[..length]))
    }

    /// The maximum cost of comparing a name that starts with this literal.
    fn cost_up_to(&self, literal: &[u8]) -> usize {
        self.groups_of(literal).map(|group| group.cost).sum()
    }

    fn forget_literal(&mut self, entry: &Arc<NameEntry>) {
        let literal = pattern::literal_prefix(&entry.name);
        if let Some(group) = self.by_literal.get_mut(literal) {
            group.remove(entry);
            if group.patterns.is_empty() {
                self.by_literal.remove(literal);
            }
        }
        if let Some(count) = self.lengths.get_mut(&literal.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&literal.len());
            }
        }
    }
}

impl PatternGroup {
    fn add(&mut self, entry: Arc<NameEntry>) {
        let cost = pattern_cost(&entry.name);
        let at = self.patterns.partition_point(|known| known.cost <= cost);
        self.patterns.insert(at, CostedPattern { cost, entry });
        self.cost += cost;
    }

    fn remove(&mut self, entry: &Arc<NameEntry>) {
        if let Some(at) = self.patterns.iter().position(|known| Arc::ptr_eq(&known.entry, entry)) {
            self.cost -= self.patterns.remove(at).cost;
        }
    }
}

fn intern(names: &mut NameMap, name: &[u8]) -> Arc<NameEntry> {
    let entry = match names.get(name) {
        Some(entry) => entry.clone(),
        None => {
            let entry = Arc::new(NameEntry::new(name));
            names.insert(entry.name.clone(), entry.clone());
            entry
        }
    };
    entry.hold();
    entry
}

/// True: that was the last holder.
fn forget(names: &mut NameMap, entry: &Arc<NameEntry>) -> bool {
    let last = entry.release();
    if last {
        assert_eq!(entry.total(), 0, "a name is forgotten after its last subscription");
        names.remove(&entry.name);
    }
    last
}

// A shard that panicked while it held the lock left a map of valid entries: continuing is safe.
fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_has_one_entry_until_its_last_holder_releases_it() {
        let registry = Registry::new();
        let one = registry.intern(Namespace::Channel, b"a");
        let two = registry.intern(Namespace::Channel, b"a");
        assert!(Arc::ptr_eq(&one, &two));
        one.added(0, true);
        registry.forget(Namespace::Channel, &two);
        assert_eq!(registry.total(Namespace::Channel, b"a"), 1);
        one.removed(0, true);
        assert_eq!(one.mask(), 0);
        registry.forget(Namespace::Channel, &one);
        assert!(registry.find(Namespace::Channel, b"a").is_none());
    }

    #[test]
    fn a_mask_names_its_shards() {
        for shards in [&[][..], &[0], &[63], &[0, 5, 63]] {
            let mask = shards.iter().fold(0u64, |mask, shard| mask | 1 << shard);
            assert_eq!(shards_of(mask).collect::<Vec<_>>(), shards);
        }
    }

    #[test]
    fn spaces_do_not_meet() {
        let registry = Registry::new();
        registry.intern(Namespace::Shard, b"a").added(0, true);
        assert_eq!(registry.total(Namespace::Channel, b"a"), 0);
        assert_eq!(registry.total(Namespace::Shard, b"a"), 1);
    }

    #[test]
    fn patterns_are_found_by_their_literal() {
        let registry = Registry::new();
        for text in ["game#*", "game#1", "*", "lobby#*", "g[ab]me#*", "game#1*"] {
            registry.intern(Namespace::Pattern, text.as_bytes()).added(0, true);
        }
        let found = registry.matching(b"game#1");
        let names: Vec<&str> = found.iter().map(|e| std::str::from_utf8(&e.name).unwrap()).collect();
        assert_eq!(names, ["*", "g[ab]me#*", "game#*", "game#1", "game#1*"]);
        assert_eq!(registry.pattern_count(), 6);
    }

    #[test]
    fn every_change_of_the_patterns_shows_in_the_version() {
        let registry = Registry::new();
        let before = registry.pattern_version();
        let entry = registry.intern(Namespace::Pattern, b"x*");
        let with = registry.pattern_version();
        assert!(with > before);
        registry.intern(Namespace::Pattern, b"x*");
        assert_eq!(registry.pattern_version(), with);
        registry.forget(Namespace::Pattern, &entry);
        assert_eq!(registry.pattern_version(), with, "another holder keeps it");
        registry.forget(Namespace::Pattern, &entry);
        assert!(registry.pattern_version() > with);
        assert!(registry.matching(b"xy").is_empty());
    }
}
