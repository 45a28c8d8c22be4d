//! Nodes and CPUs that come and go under threads that fill, spill and free, with forks: nothing is lost or doubled, and
//! the reasons add up to the pages that came from elsewhere.
//!
//! `NEARPAGE_HOTPLUG_SECONDS=60 cargo test -p nearpage-linux --test memory hotplug -- --nocapture` runs for a minute.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::{CpuId, Gfp, Model, NodeId, Order, Pfn, Request};
use nearpage_linux::{HostMachine, HostNode, Memory};

use super::alone::alone;

const THREADS: u64 = 4;
const MEBIBYTE: u64 = 1 << 20;
/// What a thread holds at most: all four together more than a node has.
const HELD_MAX: usize = 9_000;
/// The node that comes and goes as a whole; requests prefer the others.
const GUEST: NodeId = NodeId(2);
const GUEST_BYTES: u64 = 64 * MEBIBYTE;

fn memory(model: Model, use_rseq: bool) -> Memory {
    let node = |id, cpus: std::ops::Range<u32>| HostNode {
        id: NodeId(id),
        cpus: cpus.map(CpuId).collect(),
        has_memory: true,
    };
    let nodes = vec![node(0, 0..1), node(1, 1..256), node(2, 256..256)];
    let distances = vec![10, 20, 20, 20, 10, 20, 20, 20, 10];
    let machine = HostMachine { nodes, distances, emulated: true };
    let builder = Memory::builder().machine(machine).model(model).use_rseq(use_rseq);
    let builder = builder.bytes_per_node(96 * MEBIBYTE).reserve_per_node(256 * MEBIBYTE);
    // Of its reserve nothing is online yet.
    builder.bytes_on(GUEST, 0).build().unwrap()
}

/// What all threads share.
struct Play<'a> {
    memory: &'a Memory,
    /// By frame of the memory: 1 while somebody has it.
    owners: Vec<AtomicU8>,
    first: Pfn,
    /// Pages that came from another node than the preferred one.
    moved: AtomicU64,
    allocated: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

impl Play<'_> {
    fn mark(&self, pfn: Pfn, order: Order, from: u8) {
        for page in 0..order.pages().0 {
            let owner = &self.owners[(pfn.0 - self.first.0 + page) as usize];
            let before = owner.swap(1 - from, Ordering::Relaxed);
            assert_eq!(
                before,
                from,
                "frame {} was given twice, or is not its owner's",
                pfn.0 + page
            );
        }
    }

    /// Fills a node until pages come from elsewhere, and gives all or some of it back.
    fn fill_and_free(&self, seed: u64) {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random >> 11
        };
        let mut held: Vec<(Pfn, Order)> = Vec::new();
        while !self.is_over.load(Ordering::Relaxed) {
            let preferred = NodeId((next() % 2) as u32);
            let most = next() as usize % HELD_MAX;
            while held.len() < most {
                let order = Order(if next() % 16 == 0 { (next() % 4) as u8 } else { 0 });
                let gfp = if next() % 2 == 0 { Gfp::HIGHUSER_MOVABLE } else { Gfp::KERNEL };
                let request = Request::new(order, gfp.union(Gfp::NORETRY)).on(preferred);
                let Ok(pfn) = self.memory.alloc_frames(request) else {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    break;
                };
                self.mark(pfn, order, 0);
                self.allocated.fetch_add(order.pages().0, Ordering::Relaxed);
                if self.memory.node_of(pfn) != Some(preferred) {
                    self.moved.fetch_add(order.pages().0, Ordering::Relaxed);
                }
                held.push((pfn, order));
            }
            let kept = if next() % 4 == 0 { 0 } else { next() as usize % (held.len() + 1) };
            while held.len() > kept {
                let at = next() as usize % held.len();
                self.free(held.swap_remove(at));
            }
        }
        held.into_iter().for_each(|block| self.free(block));
    }

    fn free(&self, (pfn, order): (Pfn, Order)) {
        self.mark(pfn, order, 1);
        // SAFETY: this thread has the block, and its memory is not used.
        unsafe { self.memory.free_frames(pfn, order) }.unwrap();
    }

    /// Memory and CPUs come and go; returns how often each did.
    fn plug(&self) -> [u64; 4] {
        let [mut guests, mut parts, mut in_use, mut cpus] = [0; 4];
        let mut round = 0_u32;
        while !self.is_over.load(Ordering::Relaxed) {
            round += 1;
            self.memory.bring_online(GUEST, GUEST_BYTES).unwrap();
            let cpu = CpuId(round % 2);
            self.memory.offline_cpu(cpu).unwrap();
            cpus += 1;
            let near = NodeId(round % 2);
            match self.memory.take_offline(near, 8 * MEBIBYTE) {
                Ok(pages) => {
                    parts += 1;
                    assert_eq!(pages.0, 2048);
                    thread::sleep(Duration::from_millis(2));
                    self.memory.bring_online(near, 8 * MEBIBYTE).unwrap();
                }
                Err(_) => in_use += 1,
            }
            self.memory.online_cpu(cpu).unwrap();
            thread::sleep(Duration::from_millis(3));
            // The threads give everything back now and then.
            while self.memory.take_offline(GUEST, GUEST_BYTES).is_err() {
                in_use += 1;
                thread::sleep(Duration::from_millis(1));
            }
            guests += 1;
            assert_eq!(self.memory.managed_pages(GUEST).0, 0);
        }
        [guests, parts, in_use, cpus]
    }

    /// A child has all that it needs to go on.
    fn fork(&self) {
        // SAFETY: the child allocates from this memory, whose state forks keep whole, and ends without returning.
        let child = unsafe { libc::fork() };
        assert!(child >= 0);
        if child == 0 {
            let took = (0..200).all(|_| self.memory.alloc_pages(1).is_ok());
            let _ = self.memory.bring_online(GUEST, 4096);
            // SAFETY: ends the child without running what its parent registered.
            unsafe { libc::_exit(i32::from(!took)) };
        }
        let mut status = 0;
        // SAFETY: waits for our own child; `status` is ours.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "the child could not allocate");
    }
}

/// What vmstat says of some of its lines.
fn vmstat(memory: &Memory, names: [&str; 7]) -> [u64; 7] {
    let text = memory.vmstat();
    let value = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(of, _)| *of == name).unwrap().1.parse().unwrap()
    };
    names.map(value)
}

const HOTPLUG: [&str; 7] = [
    "memory_online",
    "memory_online_pages",
    "memory_offline",
    "memory_offline_pages",
    "memory_offline_in_use",
    "cpu_online",
    "cpu_offline",
];

/// The sum of the lines of vmstat that say why pages came from elsewhere.
fn pages_with_a_reason(memory: &Memory) -> u64 {
    let text = memory.vmstat();
    let of = |line: &str| line.strip_prefix("fallback_")?.split(' ').nth(1)?.parse::<u64>().ok();
    text.lines().filter_map(of).sum()
}

fn run(model: Model, use_rseq: bool, time: Duration) {
    let memory = memory(model, use_rseq);
    let ranges = || memory.topology().nodes().iter().flat_map(|node| node.memory);
    let first = ranges().map(|range| range.start).min().unwrap();
    let end = ranges().map(|range| range.end).max().unwrap();
    let play = Play {
        memory: &memory,
        owners: (first.0..end.0).map(|_| AtomicU8::new(0)).collect(),
        first,
        moved: AtomicU64::new(0),
        allocated: AtomicU64::new(0),
        refused: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
    };
    let before = vmstat(&memory, HOTPLUG);
    let begun = Instant::now();
    let (mut forks, mut plugged) = (0, [0; 4]);
    thread::scope(|scope| {
        let workers: Vec<_> = (1..=THREADS)
            .map(|seed| {
                scope.spawn({
                    let play = &play;
                    move || play.fill_and_free(seed)
                })
            })
            .collect();
        let plugger = scope.spawn(|| play.plug());
        // On a machine with other work, until something has happened.
        let is_early = || {
            let nothing_moved = play.moved.load(Ordering::Relaxed) == 0;
            begun.elapsed() < time || nothing_moved && begun.elapsed() < Duration::from_secs(20)
        };
        while is_early() && !plugger.is_finished() && workers.iter().all(|it| !it.is_finished()) {
            play.fork();
            forks += 1;
            thread::sleep(Duration::from_millis(20));
        }
        play.is_over.store(true, Ordering::Relaxed);
        plugged = plugger.join().unwrap();
    });
    let [guests, parts, in_use, cpus] = plugged;
    let (allocated, moved) = (play.allocated.into_inner(), play.moved.into_inner());
    println!(
        "{}: {:.0} s, {forks} forks, node 2 came and went {guests} times, parts of the others {parts} times, {in_use} \
         refusals, {cpus} CPUs off and on; {allocated} pages, {moved} from elsewhere, {} requests refused",
        memory.storage(),
        begun.elapsed().as_secs_f64(),
        play.refused.into_inner()
    );
    assert_eq!(pages_with_a_reason(&memory), moved);
    let after = vmstat(&memory, HOTPLUG);
    let times = guests + parts;
    let pages = guests * GUEST_BYTES / 4096 + parts * 2048;
    let counted = std::array::from_fn(|at| after[at] - before[at]);
    assert_eq!(counted, [times, pages, times, pages, in_use, cpus, cpus], "{HOTPLUG:?}");
    assert!(guests > 0 && moved > 0);
    memory.drain_all().unwrap();
    let checked = memory.check().unwrap();
    assert_eq!((checked.allocated.0, checked.cached.0, memory.misuses()), (0, 0, 0));
    assert_eq!(checked.free.0, 2 * 96 * MEBIBYTE / 4096);
}

#[test]
fn nothing_is_lost_while_memory_and_cpus_come_and_go() {
    alone("hotplug::nothing_is_lost_while_memory_and_cpus_come_and_go", || {
        let seconds = std::env::var("NEARPAGE_HOTPLUG_SECONDS").ok();
        let seconds = seconds.map_or(1, |text| {
            text.parse().expect("NEARPAGE_HOTPLUG_SECONDS is a number of seconds")
        });
        for model in [Model::LINUX_6_18, Model::NEARPAGE] {
            run(model, true, Duration::from_secs(seconds));
            run(model, false, Duration::from_secs(seconds.min(10)));
        }
    });
}

#[test]
fn two_threads_may_grow_one_node_at_once() {
    let memory = memory(Model::NEARPAGE, true);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..50 {
                    memory.bring_online(GUEST, 2 * MEBIBYTE / 2).unwrap();
                }
            });
        }
    });
    assert_eq!(memory.managed_pages(GUEST).0, THREADS * 50 * 256);
    memory.check().unwrap();
    assert_eq!(memory.take_offline(GUEST, THREADS * 50 * MEBIBYTE).unwrap().0, THREADS * 50 * 256);
    let told = memory.take_offline(GUEST, 4096).unwrap_err().to_string();
    assert_eq!(told, "4096 bytes to take offline on node 2: it has 0 online");
}
