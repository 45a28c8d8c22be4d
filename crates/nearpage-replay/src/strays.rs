//! Blocks that lie in another zone than the recorded ones they stand for.
//!
//! Most frees do not care: a task gives back what it has, wherever it lies. But the kernel's threads of a node
//! (`kswapd0`, `kcompactd0`) free blocks of that node alone. If the block that stands for one of theirs lies elsewhere,
//! another one of that zone goes instead, and the two change roles: to reclaim, pages of one list are alike.

use std::collections::{BTreeSet, HashMap};

use nearpage::{NodeId, Order, Pfn};

/// Where the block of the core lies and what it is: zone, order, type of its pageblock.
pub type Kind = (usize, Order, u8);

/// Recorded blocks whose stand-ins are astray. As a pageblock may change its type, an entry can be out of date.
#[derive(Debug, Default)]
pub struct Strays(HashMap<Kind, BTreeSet<u64>>);

impl Strays {
    /// Notes that the block that stands for the one at `pfn` is astray.
    pub fn insert(&mut self, kind: Kind, pfn: Pfn) {
        self.0.entry(kind).or_default().insert(pfn.0);
    }

    /// Forgets it.
    pub fn remove(&mut self, kind: Kind, pfn: Pfn) {
        if let Some(known) = self.0.get_mut(&kind) {
            known.remove(&pfn.0);
        }
    }

    /// Takes a recorded block whose stand-in is of `kind`; the caller looks whether that is still so.
    pub fn take(&mut self, kind: Kind) -> Option<Pfn> {
        self.0.get_mut(&kind)?.pop_first().map(Pfn)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Whether a task frees blocks of one node alone.
pub fn is_of_one_node(comm: &[u8]) -> bool {
    reclaimed_node(comm).or_else(|| node_of_thread(comm, "kcompactd")).is_some()
}

/// The node for which a task does background reclaim, if it does.
pub fn reclaimed_node(comm: &[u8]) -> Option<NodeId> {
    node_of_thread(comm, "kswapd")
}

fn node_of_thread(comm: &[u8], name: &str) -> Option<NodeId> {
    let number = std::str::from_utf8(comm).ok()?.strip_prefix(name)?;
    number.bytes().all(|digit| digit.is_ascii_digit()).then(|| number.parse().ok())?.map(NodeId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_nodes_are_known_by_name() {
        for (comm, expected) in [
            ("kswapd0", true),
            ("kcompactd12", true),
            ("kswapd", false),
            ("kswapd0x", false),
            ("sh", false),
            ("", false),
        ] {
            assert_eq!(is_of_one_node(comm.as_bytes()), expected, "{comm}");
        }
        assert_eq!(reclaimed_node(b"kswapd12"), Some(NodeId(12)));
        assert_eq!(reclaimed_node(b"kcompactd0"), None);
    }

    #[test]
    fn strays_are_found_by_kind() {
        let mut strays = Strays::default();
        let kind = (1, Order(0), 2);
        strays.insert(kind, Pfn(9));
        strays.insert(kind, Pfn(7));
        strays.insert((1, Order(3), 2), Pfn(8));
        strays.remove(kind, Pfn(7));
        assert_eq!((strays.take(kind), strays.take(kind)), (Some(Pfn(9)), None));
        assert!(!strays.is_empty());
    }
}
