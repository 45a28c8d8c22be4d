//! Lists of blocks, each block in one of them: put at either end and taken from anywhere, in constant time.

use std::collections::{BTreeMap, HashMap, VecDeque};

/// Lists by a key.
#[derive(Clone, Debug)]
pub(super) struct Linked<K> {
    /// First frames, each with the number under which it was put there; one that was taken stays, and does not count.
    lists: BTreeMap<K, VecDeque<(u64, u64)>>,
    /// Of each block the list and the number.
    places: HashMap<u64, (K, u64)>,
    next: u64,
}

impl<K> Default for Linked<K> {
    fn default() -> Linked<K> {
        Linked { lists: BTreeMap::new(), places: HashMap::new(), next: 0 }
    }
}

impl<K: Copy + Ord> Linked<K> {
    /// Puts a block at the end at which blocks are taken. False if it is in a list already.
    pub(super) fn push_front(&mut self, key: K, pfn: u64) -> bool {
        let Some(number) = self.place(key, pfn) else { return false };
        self.lists.entry(key).or_default().push_front((pfn, number));
        true
    }

    /// Puts a block at the other end. False if it is in a list already.
    pub(super) fn push_back(&mut self, key: K, pfn: u64) -> bool {
        let Some(number) = self.place(key, pfn) else { return false };
        self.lists.entry(key).or_default().push_back((pfn, number));
        true
    }

    /// Notes where a block is. Gives its number, if it is in no list.
    fn place(&mut self, key: K, pfn: u64) -> Option<u64> {
        if self.places.contains_key(&pfn) {
            return None;
        }
        let number = self.next;
        self.places.insert(pfn, (key, number));
        self.next += 1;
        Some(number)
    }

    /// The list that a block begins in.
    pub(super) fn key_of(&self, pfn: u64) -> Option<K> {
        self.places.get(&pfn).map(|(key, _)| *key)
    }

    /// Takes a block out.
    pub(super) fn remove(&mut self, pfn: u64) -> Option<K> {
        self.places.remove(&pfn).map(|(key, _)| key)
    }

    /// All blocks, each with its list, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, K)> {
        self.places.iter().map(|(pfn, (key, _))| (*pfn, *key))
    }

    /// The blocks of a list, from the end at which they are taken.
    pub(super) fn list(&self, key: K) -> impl Iterator<Item = u64> {
        let all = self.lists.get(&key).into_iter().flatten();
        let is_there = |(pfn, number): &&(u64, u64)| {
            self.places.get(pfn).is_some_and(|(_, own)| own == number)
        };
        all.filter(is_there).map(|(pfn, _)| *pfn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_what_naive_lists_are() {
        let seed = 11;
        let mut random = fastrand::Rng::with_seed(seed);
        let mut linked = Linked::default();
        let mut naive: [Vec<u64>; 3] = Default::default();
        for _ in 0..3000 {
            let (key, pfn) = (random.usize(..3), random.u64(..40));
            let at = naive.iter().position(|list| list.contains(&pfn));
            assert_eq!(linked.key_of(pfn), at, "seed {seed}");
            match (random.u8(..3), at) {
                (0, _) => {
                    assert_eq!(linked.push_front(key, pfn), at.is_none());
                    naive[key].splice(0..0, at.is_none().then_some(pfn));
                }
                (1, _) => {
                    assert_eq!(linked.push_back(key, pfn), at.is_none());
                    naive[key].extend(at.is_none().then_some(pfn));
                }
                _ => {
                    assert_eq!(linked.remove(pfn), at);
                    naive.iter_mut().for_each(|list| list.retain(|other| *other != pfn));
                }
            }
            for (key, list) in naive.iter().enumerate() {
                assert!(linked.list(key).eq(list.iter().copied()), "seed {seed}");
            }
        }
    }
}
