//! Takes of another CPU's pagesets, counted: each is a hold of what a second CPU writes.
//!
//! A CPU's pagesets are taken by another CPU to drain them, or to let them decay; and, where CPUs own pageblocks, by each free
//! that goes to the owner's. The operations of such a hold are the blocks that are linked to lists of the pagesets and
//! unlinked from them. What happens meanwhile under a zone's lock is counted there.
//!
//! Whoever has hold of the pagesets writes the counters.

use super::allocator::{Cpu, PageAllocator};
use crate::host::Platform;
use crate::pcp::Storage;
use crate::pcp::pageset::{Pageset, PagesetRules};
use crate::units::CpuId;
use crate::zone::LockWork;

/// A hold of another CPU's pagesets, under way.
pub(crate) struct Taken<'m, P: Platform> {
    cpu: &'m Cpu<'m, P>,
    before: Changes,
}

/// What tells how many blocks were linked and unlinked in a CPU's pagesets.
#[derive(Clone, Copy, Default)]
struct Changes {
    /// Blocks on all lists: from outside, they are only taken away.
    blocks: u64,
    /// Pieces linked and unlinked so far.
    pieces: u64,
}

impl Changes {
    fn of<P: Platform>(pagesets: &[Pageset<'_, P>]) -> Changes {
        let mut changes = Changes::default();
        for pageset in pagesets {
            let (blocks, pieces) = P::Rules::changes(pageset);
            changes.blocks += blocks;
            changes.pieces = changes.pieces.wrapping_add(pieces);
        }
        changes
    }

    fn since(self, before: Changes) -> u64 {
        before.blocks.saturating_sub(self.blocks) + self.pieces.wrapping_sub(before.pieces)
    }
}

impl<P: Platform> Taken<'_, P> {
    /// Counts what was done to the lists. The pagesets are still held.
    pub(crate) fn end(self) {
        let changes = Changes::of(self.cpu.pagesets).since(self.before);
        self.end_after(changes);
    }

    /// Counts so many operations.
    pub(super) fn end_after(self, operations: u64) {
        self.cpu.owner.taken.end(operations);
    }
}

impl<'m, P: Platform> PageAllocator<'m, P> {
    /// Counts that a CPU's pagesets were taken, unless by that CPU itself. The caller has hold of them.
    pub(crate) fn note_taken(&self, cpu: &'m Cpu<'m, P>) -> Option<Taken<'m, P>> {
        if self.platform.storage().current_cpu() == cpu.owner.cpu {
            return None;
        }
        cpu.owner.taken.begin();
        Some(Taken { cpu, before: Changes::of(cpu.pagesets) })
    }

    /// How often other CPUs took hold of a CPU's pagesets, and what they did there: blocks linked and unlinked. Nothing of a
    /// CPU that the topology does not have.
    pub fn taken_by_others(&self, cpu: CpuId) -> LockWork {
        self.cpu(cpu).map(|cpu| cpu.owner.taken.read()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std_alloc::vec::Vec;

    use super::*;
    use crate::alloc::{Config, Request};
    use crate::gfp::Gfp;
    use crate::model::Model;
    use crate::testing::machine::TestMachine;
    use crate::units::{Order, Pfn};
    use crate::watermark::Settings;

    const PAGE: Request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);

    fn two_cpus(model: Model) -> TestMachine {
        // Room for a whole pageblock.
        let settings = Settings { percpu_pagelist_high_fraction: 8, ..Settings::default() };
        let config = Config { model, settings, ..Config::default() };
        TestMachine::new().node(0, 32_768, &[0, 1]).config(config)
    }

    #[test]
    fn a_drain_by_another_cpu_is_one_take_of_all_blocks() {
        two_cpus(Model::LINUX_6_18).run(|allocator| {
            let page = allocator.alloc(PAGE).unwrap();
            let cached = allocator.pagesets(CpuId(0)).unwrap()[0].count().0;
            assert!(cached > 1);
            allocator.drain_cpu(CpuId(1)).unwrap();
            assert_eq!(allocator.taken_by_others(CpuId(1)), LockWork::default(), "it has nothing");
            allocator.platform().run_on(CpuId(1));
            let holds = allocator.zones()[0].work().holds;
            allocator.drain_cpu(CpuId(0)).unwrap();
            let taken = allocator.taken_by_others(CpuId(0));
            assert_eq!((taken.holds, taken.operations, taken.most_operations), (1, cached, cached));
            assert!(allocator.zones()[0].work().holds > holds, "the zone's lock is counted apart");
            allocator.platform().run_on(CpuId(0));
            allocator.free(page, Order(0)).unwrap();
            allocator.drain_cpu(CpuId(0)).unwrap();
            assert_eq!(allocator.taken_by_others(CpuId(0)).holds, 1, "its own drain is none");
            assert_eq!(allocator.taken_by_others(CpuId(7)), LockWork::default());
        });
    }

    #[test]
    fn a_free_to_the_owner_is_a_take_of_one_block() {
        two_cpus(Model::RFC_2026_OWNED).run(|allocator| {
            let pages: Vec<Pfn> = (0..9).map(|_| allocator.alloc(PAGE).unwrap()).collect();
            allocator.free(pages[0], Order(0)).unwrap();
            assert_eq!(allocator.taken_by_others(CpuId(0)).holds, 0, "its own free is none");
            allocator.platform().run_on(CpuId(1));
            let zone = allocator.zones()[0].work();
            for (at, &page) in pages[1..].iter().enumerate() {
                allocator.free(page, Order(0)).unwrap();
                let taken = allocator.taken_by_others(CpuId(0));
                let frees = at as u64 + 1;
                assert_eq!((taken.holds, taken.operations), (frees, frees));
            }
            assert_eq!(allocator.zones()[0].work(), zone);
            assert_eq!(allocator.taken_by_others(CpuId(1)), LockWork::default());
        });
    }
}
