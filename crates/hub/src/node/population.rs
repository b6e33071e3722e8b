//! How many users and sessions this node has, counted as they come and go, and what the other nodes last reported.
//! Must hold: a user counts once, on however many shards they have sessions; a change and a read cost the same whatever the
//! numbers.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tavern_wire::bus::control::NodeCounts;

const PARTS: usize = 16;

/// The shards on which each user has sessions.
type ShardsByUser = HashMap<Arc<str>, u32, RandomState>;

#[derive(Default)]
pub struct Population {
    hasher: RandomState,
    shards: [Mutex<ShardsByUser>; PARTS],
    users: AtomicU64,
    sessions: AtomicU64,
    others: Mutex<BTreeMap<Arc<str>, NodeCounts>>,
}

impl Population {
    /// Users with a session on this node.
    pub fn users(&self) -> u64 {
        self.users.load(Ordering::Relaxed)
    }

    pub fn sessions(&self) -> u64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// What these nodes last reported. A node that has reported nothing yet is left out.
    pub fn others(&self, living: &[Arc<str>]) -> Vec<NodeCounts> {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        living.iter().filter_map(|node| others.get(node).copied()).collect()
    }

    /// Another node tells how much it has. Nodes that do not live any more are forgotten.
    pub(super) fn receive(&self, node: &Arc<str>, counts: NodeCounts, living: &[Arc<str>]) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if !others.contains_key(node) {
            others.retain(|known, _| living.contains(known));
        }
        others.insert(node.clone(), counts);
    }

    pub(crate) fn add_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn remove_session(&self) {
        self.sessions.fetch_sub(1, Ordering::Relaxed);
    }

    /// A user has a first session on a shard.
    pub(crate) fn add_user(&self, user: &Arc<str>) {
        let mut part = self.part(user);
        let shards = part.entry(user.clone()).or_default();
        *shards += 1;
        if *shards == 1 {
            self.users.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The last session of a user on a shard has ended.
    pub(crate) fn remove_user(&self, user: &str) {
        let mut part = self.part(user);
        let Some(shards) = part.get_mut(user) else { return };
        *shards -= 1;
        if *shards == 0 {
            part.remove(user);
            self.users.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn part(&self, user: &str) -> std::sync::MutexGuard<'_, ShardsByUser> {
        let part = self.hasher.hash_one(user) as usize % PARTS;
        self.shards[part].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_on_two_shards_counts_once() {
        let population = Population::default();
        let (ann, bob): (Arc<str>, Arc<str>) = ("ann".into(), "bob".into());
        for user in [&ann, &bob, &ann] {
            population.add_user(user);
        }
        assert_eq!(population.users(), 2);
        population.remove_user(&ann);
        assert_eq!(population.users(), 2);
        population.remove_user(&ann);
        population.remove_user(&bob);
        population.remove_user(&bob);
        assert_eq!(population.users(), 0);
    }

    #[test]
    fn only_living_nodes_count() {
        let population = Population::default();
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let counts = |users| NodeCounts { users, ..NodeCounts::default() };
        population.receive(&one, counts(1), std::slice::from_ref(&one));
        population.receive(&one, counts(3), std::slice::from_ref(&one));
        population.receive(&two, counts(5), &[one.clone(), two.clone()]);
        let sum = |living: &[Arc<str>]| population.others(living).iter().map(|one| one.users).sum::<u64>();
        assert_eq!((sum(&[one.clone(), two.clone()]), sum(std::slice::from_ref(&two)), sum(&[])), (8, 5, 0));
        population.receive(&"three".into(), counts(1), std::slice::from_ref(&two));
        assert_eq!(sum(&[one]), 0, "a node that stopped is forgotten");
    }
}
