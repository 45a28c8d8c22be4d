//! The way home: objects back into the slabs of their node.

use nearpage::{NodeIndex, Order};

use crate::allocator::SlabAllocator;
use crate::entry::EntryCode;
use crate::error::ObjectError;
use crate::lists::Given;
use crate::place::Cache;
use crate::platform::SlabPlatform;
use crate::tunables::BATCH_MAX;

impl<'m, P: SlabPlatform> SlabAllocator<'_, 'm, P> {
    /// Puts objects of any nodes into their slabs.
    pub(super) fn give_home(&self, cache: &Cache<'m, P>, entries: &[u32]) {
        let code = self.code_of(cache);
        let mut rest = entries;
        while let [first, ..] = rest {
            let node = self.node_of_entry(code, *first);
            let here = |&&entry: &&u32| self.node_of_entry(code, entry) == node;
            let len = rest.iter().take_while(here).take(BATCH_MAX).count();
            self.give(cache, code, node, &rest[..len]);
            rest = &rest[len..];
        }
    }

    /// The node that the frame of an entry says; any if it is of no slab, whose lists will refuse it.
    pub(super) fn node_of_entry(&self, code: EntryCode, entry: u32) -> NodeIndex {
        let tag = self.owner_of(code.frame(entry, self.frames.page_shift).0).tag;
        if tag.is_slab() { tag.node() } else { NodeIndex(0) }
    }

    /// Puts objects of a node into their slabs, a batch at most.
    pub(super) fn give(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        node: NodeIndex,
        entries: &[u32],
    ) {
        let mut given = Given::new();
        let mut lists = cache.node(node).lock();
        let owner_of = |frame| self.owner_of(frame);
        lists.give(&self.codes(code), cache.tag(node), entries, owner_of, &mut given);
        let order = lists.geometry.order;
        drop(lists);
        self.settle(cache, code, node, order, &given);
    }

    /// Deals with what objects that went to their slabs left behind, with no lock held.
    pub(super) fn settle(
        &self,
        cache: &Cache<'m, P>,
        code: EntryCode,
        node: NodeIndex,
        order: Order,
        given: &Given,
    ) {
        let emptied = given.emptied.as_slice();
        if !emptied.is_empty() {
            self.free_slabs(cache, node, order, emptied);
        }
        if !given.strays.as_slice().is_empty() {
            self.give_home(cache, given.strays.as_slice());
        }
        for &entry in given.refused.as_slice() {
            self.report(cache, code, entry);
        }
    }

    /// Tells the host of an entry that its slab refused: it is dropped, so that nothing else is harmed.
    #[cold]
    fn report(&self, cache: &Cache<'m, P>, code: EntryCode, entry: u32) {
        let (address, name) = (code.address(entry), cache.name());
        let owner = self.owner_of(code.frame(entry, self.frames.page_shift).0);
        let is_object = owner.tag.is_slab()
            && owner.tag.cache() == cache.index
            && cache.info().is_some_and(|info| {
                self.codes(code).find(&info.geometry, owner.slab, entry).is_some()
            });
        self.refuse(match is_object || !owner.tag.is_slab() {
            true => ObjectError::NotAllocated { address, cache: name },
            false => ObjectError::NotAnObject { address, cache: name },
        });
    }
}
