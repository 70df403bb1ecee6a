//! Sorted-vector map for many small maps. A B-tree allocates a node of eleven entries for the first one.

use std::{borrow::Borrow, ops::Index};

/// A map from `K` to `V` without spare capacity; insertion is linear.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SortedMap<K, V>(Vec<(K, V)>);

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<K: Ord, V> SortedMap<K, V> {
    fn find_position<Q: Ord + ?Sized>(&self, key: &Q) -> Result<usize, usize>
    where
        K: Borrow<Q>,
    {
        self.0.binary_search_by(|(known, _)| known.borrow().cmp(key))
    }

    /// The value of a key.
    #[must_use]
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.find_position(key).ok().map(|at| &self.0[at].1)
    }

    /// The mutable value of a key.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        self.find_position(key).ok().map(|at| &mut self.0[at].1)
    }

    /// The stored key.
    #[must_use]
    pub fn key<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&K>
    where
        K: Borrow<Q>,
    {
        self.find_position(key).ok().map(|at| &self.0[at].0)
    }

    /// True when the key has a value.
    #[must_use]
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find_position(key).is_ok()
    }

    /// The mutable value of a key, inserted by `new` if absent.
    pub fn or_insert_with(&mut self, key: &K, new: impl FnOnce() -> V) -> &mut V
    where
        K: Clone,
    {
        let at = self.find_position(key).unwrap_or_else(|at| {
            self.make_room();
            self.0.insert(at, (key.clone(), new()));
            at
        });
        &mut self.0[at].1
    }

    /// Sets the value of a key.
    pub fn insert(&mut self, key: K, value: V) {
        match self.find_position(&key) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => {
                self.make_room();
                self.0.insert(at, (key, value));
            }
        }
    }

    /// Removes a key and returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.find_position(key).ok().map(|at| self.0.remove(at).1)
    }

    /// Reserves one entry: doubling would leave most of the maps half empty.
    fn make_room(&mut self) {
        if self.0.len() == self.0.capacity() {
            self.0.reserve_exact(1 + self.0.len() / 4);
        }
    }
}

impl<K, V> SortedMap<K, V> {
    /// Number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Allocated entries.
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// The entries, in key order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.0.iter().map(|(key, _)| key)
    }

    /// The values, in key order.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.0.iter().map(|(_, value)| value)
    }

    /// The mutable values, in key order.
    pub fn values_mut(&mut self) -> impl DoubleEndedIterator<Item = &mut V> {
        self.0.iter_mut().map(|(_, value)| value)
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for SortedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Self::default();
        entries.into_iter().for_each(|(key, value)| map.insert(key, value));
        map
    }
}

impl<K: Borrow<Q> + Ord, Q: Ord + ?Sized, V> Index<&Q> for SortedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).unwrap_or_else(|| panic!("no such key"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    proptest::proptest! {
        #[test]
        fn sorted_map_equals_a_btree_map(steps in proptest::collection::vec((0_u8..4, 0_u8..9, 0_u8..), 0..60)) {
            let (mut sorted, mut tree) = (SortedMap::default(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => drop((sorted.insert(key, value), tree.insert(key, value))),
                    1 => assert_eq!(sorted.remove(&key), tree.remove(&key)),
                    2 => *sorted.or_insert_with(&key, || value) = *tree.entry(key).or_insert(value),
                    _ => assert_eq!(sorted.get(&key), tree.get(&key)),
                }
                assert!(sorted.iter().eq(tree.iter()) && sorted.len() == tree.len());
            }
        }
    }
}
