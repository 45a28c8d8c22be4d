//! What is resident follows what is in use: counted by the kernel, not timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearpage::{CpuId, Gfp, LimitOf, Limits, NodeId, Order, Request};
use nearpage_linux::{
    FRAME_BYTES, HostMachine, HostNode, HugePages, Memory, MemoryBuilder, PageBlock, Reclaim,
    ReclaimOptions,
};

use super::affinity::stay_on_this_cpu;

const NODE: NodeId = NodeId(1);

fn builder(bytes: u64) -> MemoryBuilder {
    let cpus = (0..256).map(CpuId).collect();
    let node = HostNode { id: NODE, cpus, has_memory: true };
    let machine = HostMachine { nodes: vec![node], distances: vec![10], emulated: true };
    Memory::builder().machine(machine).bytes_per_node(bytes).huge_pages(HugePages::Never)
}

fn resident(memory: &Memory) -> u64 {
    memory.resident(LimitOf::Node(NODE)).unwrap().0
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn shuffle<T>(&mut self, all: &mut [T]) {
        (1..all.len()).for_each(|at| all.swap(at, self.below(at + 1)));
    }
}

fn block(memory: &Memory, order: u8) -> Option<PageBlock<'_>> {
    let mut block = memory.alloc(Request::new(Order(order), Gfp::HIGHUSER_MOVABLE)).ok()?;
    block.chunks_mut(FRAME_BYTES as usize).for_each(|page| page[0] = 1);
    Some(block)
}

/// The thread gives back what is free, once; then it does nothing until pages move again.
#[test]
fn pages_freed_in_random_order_go_back_once() {
    let reclaim = Reclaim::new();
    let memory = Arc::new(builder(128 << 20).pressure(reclaim.clone()).build().unwrap());
    let mut blocks: Vec<_> = std::iter::from_fn(|| block(&memory, 0)).collect();
    let filled = blocks.len() as u64;
    assert!(filled > 30_000 && resident(&memory) >= filled);
    Dice(1).shuffle(&mut blocks);
    drop(blocks);
    let options = ReclaimOptions { interval: Duration::from_millis(40), trims: true };
    let _thread = reclaim.start(&memory, options).unwrap();
    let kept = memory.watermarks(NODE).high.0 + Order::MAX.pages().0;
    wait_until("all that is free goes back", || resident(&memory) <= kept);
    let turns = || reclaim.counts().trim_turns;
    let rests = || {
        let before = turns();
        std::thread::sleep(Duration::from_millis(400));
        turns() == before
    };
    wait_until("rest", rests);
    let before = reclaim.counts();
    assert!(before.trimmed_pages + kept >= filled, "{before:?}");
    assert!(before.trimmed_pages <= filled, "none went twice: {before:?} of {filled}");
    std::thread::sleep(Duration::from_millis(800));
    let after = reclaim.counts();
    assert_eq!((after.trim_turns, after.trimmed_pages), (before.trim_turns, before.trimmed_pages));
    println!("{filled} pages freed, {} left, {after:?}", resident(&memory));
    // Somebody has a page again, and the thread wakes to it.
    drop(block(&memory, 0).unwrap());
    wait_until("another turn", || turns() > before.trim_turns);
}

/// The same bytes of each size from 4 KiB to 2 MiB; a tenth of the blocks stays.
#[test]
fn what_is_left_of_mixed_sizes_is_little_more_than_lives() {
    let memory = builder(256 << 20).build().unwrap();
    let mut dice = Dice(2);
    let mut blocks: Vec<PageBlock<'_>> = Vec::new();
    'full: loop {
        for order in 0..=9_u8 {
            for _ in 0..512 >> order {
                let Some(block) = block(&memory, order) else { break 'full };
                blocks.push(block);
            }
        }
    }
    dice.shuffle(&mut blocks);
    blocks.truncate(blocks.len() / 10);
    let live: u64 = blocks.iter().map(|block| block.order().pages().0).sum();
    let before = resident(&memory);
    let went = memory.trim().0;
    let left = resident(&memory);
    assert!(before > 5 * live && went >= before - left, "{before} {went} {left}");
    println!("{before} pages resident, {live} in use, {left} resident after a trim");
    assert!(left * 4 <= live * 5, "{left} pages are resident, {live} are in use");
    assert_eq!(memory.trim().0, 0, "nothing goes twice");
    assert!(blocks.iter().all(|block| block[0] == 1), "what lives is as it was");
}

/// Blocks come and go in a pool that is four times as large as its limits.
#[test]
fn a_limit_of_what_is_resident_is_kept_near() {
    const LIMIT: u64 = 32 << 20;
    let reclaim = Reclaim::new();
    let memory = Arc::new(builder(128 << 20).pressure(reclaim.clone()).build().unwrap());
    let limits =
        Limits { hard_bytes: Some(LIMIT), resident_bytes: Some(LIMIT), ..Limits::default() };
    memory.set_limits(LimitOf::Node(NODE), limits).unwrap();
    assert_eq!(memory.limits(LimitOf::Node(NODE)).unwrap(), limits);
    let (is_over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (memory, is_over, looks) = (&memory, &is_over, &looks);
        scope.spawn(move || {
            let (mut dice, mut blocks) = (Dice(3), Vec::new());
            while !is_over.load(Ordering::Relaxed) {
                // Now of this size, now of that one.
                let order = (looks.load(Ordering::Relaxed) / 3 % 10) as u8;
                blocks.extend(block(memory, order));
                if blocks.len() > 100 && dice.below(2) == 0 || dice.below(500) == 0 {
                    dice.shuffle(&mut blocks);
                    blocks.truncate(blocks.len() * 2 / 3);
                }
                std::thread::sleep(Duration::from_micros(20));
            }
        });
        let most = LIMIT / 10 * 13 / FRAME_BYTES;
        wait_until("memory that nobody gives back piles up", || {
            looks.fetch_add(1, Ordering::Relaxed);
            resident(memory) > 2 * most
        });
        let before = resident(memory);
        let options = ReclaimOptions { interval: Duration::from_secs(600), trims: true };
        let _thread = reclaim.start(memory, options).unwrap();
        let mut all = Vec::new();
        for _ in 0..30 {
            looks.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            wait_until("what is resident is near the limit", || {
                all.push(resident(memory));
                all.last() <= Some(&most)
            });
        }
        let over = all.iter().filter(|&&pages| pages > most).count();
        println!(
            "{before} pages resident without the thread, {over} looks of {} over {most}",
            all.len()
        );
        is_over.store(true, Ordering::Relaxed);
    });
}

#[test]
fn lists_of_an_idle_cpu_are_emptied() {
    for use_rseq in [true, false] {
        stay_on_this_cpu();
        let memory = builder(64 << 20).use_rseq(use_rseq).build().unwrap();
        let held: Vec<_> = (0..500).map(|_| block(&memory, 0).unwrap()).collect();
        drop(held);
        memory.decay().unwrap();
        drop(block(&memory, 0).unwrap());
        memory.decay().unwrap();
        assert!(memory.check().unwrap().cached.0 > 0, "it was used since");
        memory.decay().unwrap();
        assert_eq!(memory.check().unwrap().cached.0, 0);
    }
}
