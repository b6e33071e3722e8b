//! A map in a sorted vector, for many small maps: an entry takes only its own size.
//! Must hold: keys are sorted and unique; at most half of the capacity is unused.

use alloc::vec::{self, Vec};
use core::borrow::Borrow;
use core::slice;

/// A map in a sorted vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sorted<K, V>(Vec<(K, V)>);

impl<K, V> Default for Sorted<K, V> {
    fn default() -> Sorted<K, V> {
        Sorted(Vec::new())
    }
}

impl<K: Ord, V> Sorted<K, V> {
    pub fn new() -> Sorted<K, V> {
        Sorted::default()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find(key).ok().map(|at| &self.0[at].1)
    }

    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        Some(&mut self.0[at].1)
    }

    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// Returns the earlier value.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self.find(&key) {
            Ok(at) => Some(core::mem::replace(&mut self.0[at].1, value)),
            Err(at) => {
                self.put(at, key, value);
                None
            }
        }
    }

    /// The value of a key, inserted if it is missing.
    pub fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let at = self.find(&key).unwrap_or_else(|at| {
            self.put(at, key, V::default());
            at
        });
        &mut self.0[at].1
    }

    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let at = self.find(key).ok()?;
        let (_, value) = self.0.remove(at);
        if self.0.len() * 2 < self.0.capacity() {
            self.0.shrink_to_fit();
        }
        Some(value)
    }

    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }

    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    fn put(&mut self, at: usize, key: K, value: V) {
        if self.0.len() == self.0.capacity() {
            // A vector by itself begins with a capacity of four.
            self.0.reserve_exact(self.0.len().max(1));
        }
        self.0.insert(at, (key, value));
    }

    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Sorted<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Sorted<K, V> {
        let mut sorted = Sorted::new();
        entries.into_iter().for_each(|(key, value)| drop(sorted.insert(key, value)));
        sorted
    }
}

impl<K: Ord, V, const N: usize> From<[(K, V); N]> for Sorted<K, V> {
    fn from(entries: [(K, V); N]) -> Sorted<K, V> {
        entries.into_iter().collect()
    }
}

impl<K, V> IntoIterator for Sorted<K, V> {
    type Item = (K, V);
    type IntoIter = vec::IntoIter<(K, V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl<'a, K, V> IntoIterator for &'a Sorted<K, V> {
    type Item = (&'a K, &'a V);
    type IntoIter = core::iter::Map<slice::Iter<'a, (K, V)>, fn(&'a (K, V)) -> (&'a K, &'a V)>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().map(|(key, value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_sorted_map() {
        let mut map: Sorted<&str, u32> = [("b", 2), ("a", 1), ("b", 3)].into();
        assert_eq!(map.iter().collect::<Vec<_>>(), [(&"a", &1), (&"b", &3)]);
        *map.or_default("c") += 7;
        *map.or_default("a") += 7;
        assert_eq!((map.get("a"), map.get("c"), map.get("d")), (Some(&8), Some(&7), None));
        assert_eq!((map.remove("b"), map.remove("b"), map.len()), (Some(3), None, 2));
        assert!(map.contains_key("c") && !map.contains_key("b"));
    }

    #[test]
    fn at_most_half_of_the_capacity_is_unused() {
        let mut map = Sorted::new();
        for key in 0..100 {
            map.insert(key, ());
            assert!(map.0.capacity() <= map.len() * 2);
        }
        for key in 0..100 {
            map.remove(&key);
            assert!(map.0.capacity() <= map.len() * 2);
        }
    }

    /// A map whose size goes up and down does not allocate each time.
    #[test]
    fn a_map_that_is_half_full_keeps_its_capacity() {
        let mut map: Sorted<u32, ()> = [(1, ()), (2, ()), (3, ()), (4, ())].into();
        assert_eq!(map.0.capacity(), 4);
        for (key, capacity) in [(1, 4), (2, 4), (3, 1)] {
            map.remove(&key);
            assert_eq!(map.0.capacity(), capacity, "after {key}");
        }
    }
}
