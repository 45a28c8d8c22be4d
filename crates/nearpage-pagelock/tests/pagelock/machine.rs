//! Random machines, and the pages that are fought over.

use std::sync::atomic::AtomicU32;

use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
use nearpage::testing::machine::TestMachine;
use nearpage::testing::random::Random;
use nearpage::{Config, Gfp, Model, Order, PageAllocator, Request};
use nearpage_pagelock::testing::LockPlatform;

use super::play::{Block, Play, Tally};

const OPERATIONS: u64 = if cfg!(miri) { 200 } else { 50_000 };
/// Pages of a node. Under Miri a section is as large as that.
const NODE: u64 = if cfg!(miri) { 2048 } else { 4096 };

/// Plays a whole seed.
pub fn run(seed: u64) -> Tally {
    let mut random = Random(seed);
    let rules = PageLockRules {
        tables: random.one_of(&[WaitTables::PerNode, WaitTables::Global, WaitTables::PerZone]),
        waiters_bit: random.one_of(&[WaitersBit::On, WaitersBit::On, WaitersBit::Off]),
    };
    let model = random.one_of(&Model::ALL).with(|changed| changed.page_lock = rules);
    machine(&mut random).config(Config::new().with_model(model)).run_on(
        |allocator: &PageAllocator<'_, LockPlatform>| {
            // Nodes behind these have nobody's pages at first, so that their memory can go.
            let homes = 1 + random.below(allocator.topology().len() as u64);
            let blocks: Vec<Block> = (0..2 + random.below(14))
                .map(|_| {
                    let order = Order(random.one_of(&[0, 0, 0, 1, 3]));
                    let gfp = random.one_of(&[Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE]);
                    let node = random.below(homes) as usize;
                    let node = allocator.topology().nodes()[node].id;
                    let pfn =
                        allocator.alloc(Request::new(order, gfp).on(node)).expect("room for a few");
                    Block { pfn, order }
                })
                .collect();
            let word = AtomicU32::new(0);
            Play::new(allocator, &word, rules, blocks, random).run(OPERATIONS)
        },
    )
}

/// One to four nodes, the first with memory, ids with gaps.
fn machine(random: &mut Random) -> TestMachine {
    let mut machine = TestMachine::new();
    let mut cpu = 0;
    for node in 0..1 + random.below(4) as u32 {
        let pages = if node == 0 { NODE } else { random.one_of(&[0, 2048, NODE]) };
        let cpus: Vec<u32> = (0..random.below(3) as u32).map(|at| cpu + at).collect();
        cpu += cpus.len() as u32;
        machine = machine.node(node * 3, pages, &cpus);
        if pages > 0 && random.below(3) == 0 {
            machine = machine.movable(1024);
        }
    }
    machine
}
