//! Random calls by many threads against a model: what is allocated lies apart, is aligned, and keeps its bytes; a fork's
//! child goes on. `NEARPAGE_MALLOC_SEED` repeats a run, `NEARPAGE_MALLOC_CALLS` makes it longer, `NEARPAGE_MALLOC_OPTIONS` has
//! options for it, as `hardened=1,fake=4`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use fastrand::Rng;
use nearpage_malloc::{
    aligned_alloc, calloc, free, malloc, realloc, statistics, trim, usable_size,
};

/// A block, and what the model knows of it.
struct Block {
    start: *mut u8,
    size: usize,
    stamp: u8,
}

// SAFETY: whoever has the block has its memory.
unsafe impl Send for Block {}

impl Block {
    fn new(start: *mut u8, size: usize, align: usize, stamp: u8) -> Self {
        assert!(!start.is_null(), "{size} bytes");
        assert!(start.addr().is_multiple_of(align.max(16)), "{start:p}: {align}");
        assert!(usable_size(start) >= size, "{size}");
        let block = Self { start, size, stamp };
        block.write();
        block
    }

    /// The places that are written and read: both ends, and one a page.
    fn places(&self) -> impl Iterator<Item = usize> {
        let size = self.size;
        let ends = (0..size.min(24)).chain(size.saturating_sub(8)..size);
        ends.chain((0..size).step_by(4096))
    }

    fn write(&self) {
        // SAFETY: the places lie in the block.
        self.places().for_each(|at| unsafe { self.start.add(at).write(self.stamp) });
    }

    fn check(&self) {
        for at in self.places() {
            // SAFETY: the places lie in the block.
            let found = unsafe { self.start.add(at).read() };
            assert_eq!(found, self.stamp, "byte {at} of {} at {:p}", self.size, self.start);
        }
    }

    fn free(self) {
        self.check();
        // SAFETY: the block is this one's, and gone with it.
        unsafe { free(self.start) };
    }
}

fn size(random: &mut Rng) -> usize {
    match random.u32(..100) {
        0 => 0,
        1..60 => random.usize(1..256),
        60..85 => random.usize(1..4096),
        85..97 => random.usize(1..64 << 10),
        97..99 => random.usize(1..256 << 10),
        _ if random.u32(..20) == 0 => random.usize(1..6 << 20),
        _ => random.usize(1..2 << 20),
    }
}

/// Blocks that a thread leaves for others.
static EXCHANGE: Mutex<Vec<Block>> = Mutex::new(Vec::new());
static CALLS: AtomicU64 = AtomicU64::new(0);

fn works(seed: u64, calls: u64) {
    let mut random = Rng::with_seed(seed);
    let mut live: Vec<Block> = Vec::new();
    for call in 0..calls {
        let stamp = random.u8(..);
        match random.u32(..100) {
            0..38 => {
                let size = size(&mut random);
                live.push(Block::new(malloc(size), size, 1, stamp));
            }
            38..42 => {
                let (count, size) = (random.usize(..20), random.usize(..2000));
                let start = calloc(count, size);
                let block = Block { start, size: count * size, stamp: 0 };
                block.check();
                live.push(Block::new(start, count * size, 1, stamp));
            }
            42..46 => {
                let (size, align) = (random.usize(..20_000), 1 << random.u32(..17));
                live.push(Block::new(aligned_alloc(align, size), size, align, stamp));
            }
            46..54 if !live.is_empty() => {
                let at = random.usize(..live.len());
                let mut block = live.swap_remove(at);
                block.check();
                let to = size(&mut random).max(1);
                // SAFETY: the block is this thread's.
                let start = unsafe { realloc(block.start, to) };
                let kept = block.size.min(to).min(24);
                // SAFETY: so much was kept.
                assert!((0..kept).all(|at| unsafe { start.add(at).read() } == block.stamp));
                block.size = to;
                live.push(Block::new(start, to, 1, stamp));
            }
            54..58 if !live.is_empty() => {
                let given = live.swap_remove(random.usize(..live.len()));
                let mut exchange = EXCHANGE.lock().unwrap();
                exchange.push(given);
                let at = random.usize(..exchange.len());
                let taken = exchange.swap_remove(at);
                taken.check();
                live.push(taken);
            }
            58 if random.u32(..200) == 0 => {
                trim();
            }
            // The number of live blocks swings, so that spans empty and fill.
            _ if live.len() as u64 > 20 + (call / 5000 % 5) * 300 => {
                live.swap_remove(random.usize(..live.len())).free();
                live.swap_remove(random.usize(..live.len())).free();
            }
            _ if !live.is_empty() => live.swap_remove(random.usize(..live.len())).free(),
            _ => {}
        }
    }
    apart(&live);
    let half = live.len() / 2;
    EXCHANGE.lock().unwrap().extend(live.drain(half..));
    live.into_iter().for_each(Block::free);
    CALLS.fetch_add(calls, Ordering::Relaxed);
}

fn apart(live: &[Block]) {
    let by_start: BTreeMap<usize, usize> =
        live.iter().map(|block| (block.start.addr(), block.size.max(1))).collect();
    assert_eq!(by_start.len(), live.len(), "two blocks at one address");
    for ((start, size), next) in by_start.iter().zip(by_start.keys().skip(1)) {
        assert!(start + size <= *next, "{start:#x} + {size} reaches {next:#x}");
    }
}

/// Starts the malloc with the options of this run; all tests must.
fn start() {
    static START: std::sync::Once = std::sync::Once::new();
    START.call_once(|| {
        let text = std::env::var("NEARPAGE_MALLOC_OPTIONS").unwrap_or_default();
        let (options, wrong) = nearpage_malloc::Options::parse(&text);
        assert!(wrong.is_none(), "{}", wrong.unwrap());
        nearpage_malloc::start(options).unwrap();
    });
}

fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn random_calls_of_threads_that_come_and_go() {
    start();
    let seed = number("NEARPAGE_MALLOC_SEED", 24);
    let calls = number("NEARPAGE_MALLOC_CALLS", 300_000);
    println!("NEARPAGE_MALLOC_SEED={seed}");
    let rounds = 5;
    for round in 0..rounds {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || works(seed + round * 4 + thread, calls / rounds / 4));
            }
            for _ in 0..4 {
                forks(seed + round);
            }
        });
    }
    let left = std::mem::take(&mut *EXCHANGE.lock().unwrap());
    apart(&left);
    left.into_iter().for_each(Block::free);
    // The last trim may be a moment ago: then another does nothing.
    std::thread::sleep(std::time::Duration::from_millis(250));
    trim();
    let all = statistics();
    assert_eq!(all.misuses, 0);
    assert_eq!((all.large - all.large_freed, all.mapped - all.mapped_freed), (0, 0));
    let objects: u64 = all.classes.iter().map(|class| class.in_use).sum();
    // Threads have ended, and sent all home; this one's heap has nothing of its own.
    assert_eq!(objects, 0, "{all:?}");
    assert!(all.freed_elsewhere > 0 && all.batches > 0);
    assert!(CALLS.load(Ordering::Relaxed) >= calls / 4 * 4 - 100);
}

/// A child allocates, frees what its parent had, and ends.
fn forks(seed: u64) {
    let before = Block::new(malloc(1000), 1000, 1, 7);
    // SAFETY: the child calls only what a child may.
    let child = unsafe { libc_fork() };
    if child == 0 {
        before.check();
        let mut random = Rng::with_seed(seed);
        let mut live = Vec::new();
        for _ in 0..2000 {
            let size = random.usize(1..40_000);
            live.push(Block::new(malloc(size), size, 1, 3));
            if live.len() > 50 {
                live.swap_remove(random.usize(..live.len())).free();
            }
        }
        live.into_iter().for_each(Block::free);
        before.free();
        // SAFETY: ends this process at once.
        unsafe { _exit(0) };
    }
    assert!(child > 0);
    let mut status = 0;
    // SAFETY: the child is this process's.
    let waited = unsafe { waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0), "the child failed");
    before.free();
}

unsafe extern "C" {
    #[link_name = "fork"]
    fn libc_fork() -> i32;
    fn _exit(code: i32) -> !;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
}

#[test]
fn what_cannot_be_is_null() {
    start();
    assert!(malloc(usize::MAX).is_null());
    assert!(malloc(1 << 47).is_null());
    assert!(calloc(usize::MAX, 2).is_null());
    assert!(calloc(1 << 40, 1 << 40).is_null());
    assert!(aligned_alloc(3, 10).is_null());
    assert!(aligned_alloc(0, 10).is_null());
    assert!(aligned_alloc(1 << 63, 10).is_null());
    let small = malloc(0);
    assert!(!small.is_null() && usable_size(small) > 0);
    let huge = aligned_alloc(64 << 20, 5);
    assert!(huge.addr().is_multiple_of(64 << 20));
    // SAFETY: both are this test's.
    unsafe {
        assert!(realloc(small, usize::MAX).is_null());
        free(small);
        free(huge);
        free(std::ptr::null_mut());
    }
}
