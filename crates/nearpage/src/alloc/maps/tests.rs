//! Random loads on all CPUs, with the walker.

use std_alloc::vec::Vec;

use crate::alloc::PageAllocator;
use crate::alloc::{Config, Request};
use crate::frame::Migratetype;
use crate::gfp::Gfp;
use crate::model::Model;
use crate::testing::machine::TestMachine;
use crate::testing::plain::PlainPlatform;
use crate::testing::random::Random;
use crate::units::{CpuId, Order, PageCount};

const GFPS: [Gfp; 3] = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL.union(Gfp::RECLAIMABLE)];

fn run_on_all(allocator: &PageAllocator<'_, PlainPlatform>, cpus: u32, seed: u64) {
    let (mut random, mut held) = (Random(seed), Vec::new());
    let mut now = 0;
    for step in 0..20_000 {
        now += random.below(3_000_000);
        allocator.platform().set_now_ns(now);
        let cpu = CpuId(random.below(cpus.into()) as u32);
        allocator.platform().run_on(cpu);
        // Loads that grow and that shrink take turns.
        let grows = step / 2000 % 2 == 0;
        let order = if random.one_in(8) { random.below(11) as u8 } else { 0 };
        for _ in 0..random.below(60) {
            if random.one_in(3) != grows {
                let gfp = GFPS[random.below(3) as usize];
                let request = Request::new(Order(order), gfp);
                held.extend(allocator.alloc(request).ok().map(|pfn| (pfn, order)));
            } else if !held.is_empty() {
                let recent = random.below(2) * 40;
                let from = held.len().saturating_sub(recent.max(1) as usize);
                let at = match recent {
                    0 => random.below(held.len() as u64) as usize,
                    _ => from + random.below((held.len() - from) as u64) as usize,
                };
                let (pfn, order) = held.swap_remove(at);
                allocator.free(pfn, Order(order)).unwrap();
            }
        }
        match random.below(400) {
            0 => drop(allocator.drain_cpu(cpu)),
            1 => drop(allocator.drain_all()),
            2..20 => drop(allocator.decay_cpu(cpu)),
            _ => {}
        }
        if step % 500 == 0 {
            allocator.check().unwrap();
        }
    }
    for (pfn, order) in held {
        allocator.free(pfn, Order(order)).unwrap();
    }
    allocator.check().unwrap();
    allocator.drain_all().unwrap();
    let found = allocator.check().unwrap();
    assert_eq!((found.cached, found.allocated), (PageCount(0), PageCount(0)));
    for zone in allocator.zones() {
        let largest = |of| zone.free_blocks(Order(10), of);
        let blocks: u32 = Migratetype::ALL.into_iter().map(largest).sum();
        assert!(u64::from(blocks) >= zone.managed().0 / 1024 - 1, "all is whole again");
    }
}

#[test]
fn nothing_is_lost_whoever_frees() {
    for seed in 0..6 {
        let config = Config { model: Model::NEARPAGE, ..Config::default() };
        let machine = TestMachine::new().node(0, 40_000, &[0, 1]).node(1, 20_480, &[2]);
        machine.node(2, 0, &[3]).config(config).run(|allocator| run_on_all(allocator, 4, seed));
    }
}
