//! 64 threads, 64 pages: each thread takes a page of its choice, lets another thread run, and unlocks it. So most
//! find their page locked and sleep in the kernel until it is handed over.
//!
//! A wake-up that got lost would leave its thread asleep for ever. So each thread says since when it waits, and
//! somebody looks: who waits longer than [`LOST_AFTER`] is lost.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::alloc::Request;
use nearpage::gfp::Gfp;
use nearpage::pagelock::WaitCounts;
use nearpage::units::{Order, Pfn};
use nearpage_linux::Memory;
use serde::Serialize;

/// Hand-overs that are wanted.
pub const WANTED: u64 = 10_000_000;

const THREADS: usize = 64;
const PAGES: usize = 64;
/// A thread that waits so long will never run.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct HandOvers {
    pub threads: usize,
    pub pages: usize,
    /// Hand-overs that were wanted.
    pub wanted: u64,
    /// Pages locked.
    pub locks: u64,
    /// Threads that slept and were woken.
    pub slept: u64,
    /// Of those, given the lock since they had been overtaken five times.
    pub handed_over: u64,
    /// From the call to the lock.
    pub longest_wait_ms: f64,
    pub seconds: f64,
    /// Threads that were never woken.
    pub lost: usize,
}

/// One of the threads; nanoseconds since the start.
#[derive(Default)]
#[repr(align(128))]
struct Player {
    locks: AtomicU64,
    /// 0: it does not wait.
    waits_since: AtomicU64,
    longest_wait: AtomicU64,
}

/// A page and whom it belongs to.
struct Page {
    pfn: Pfn,
    owner: AtomicU64,
}

/// Hands pages over until `wanted` threads were woken from their sleep.
///
/// # Errors
///
/// If there is no memory for the pages.
///
/// # Panics
///
/// If two threads have a page at once.
pub fn run(wanted: u64) -> io::Result<HandOvers> {
    let memory = Memory::builder().bytes_per_node(32 << 20).build().map_err(io::Error::other)?;
    // Those of a wake-up that got lost would use it for ever.
    let memory: &'static Memory = Box::leak(Box::new(memory));
    let request = Request::new(Order(0), Gfp::KERNEL);
    let pages = (0..PAGES).map(|_| {
        let pfn = memory.alloc_frames(request).map_err(io::Error::other)?;
        Ok(Page { pfn, owner: AtomicU64::new(0) })
    });
    let pages: &'static [Page] = Box::leak(pages.collect::<io::Result<_>>()?);
    let players: &'static [Player] = Box::leak((0..THREADS).map(|_| Player::default()).collect());
    let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    let start = Instant::now();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| thread::spawn(move || play(memory, pages, players, number, start, stop)))
        .collect();
    let mut lost = 0;
    while counts(memory).wakes < wanted && lost == 0 {
        thread::sleep(Duration::from_millis(20));
        lost = players.iter().filter(|player| player.is_lost(start)).count();
    }
    stop.store(true, Ordering::Relaxed);
    if lost == 0 {
        threads.into_iter().for_each(|thread| thread.join().expect("pages have one owner"));
    }
    let counts = counts(memory);
    let longest = players.iter().map(|player| player.longest_wait.load(Ordering::Relaxed)).max();
    Ok(HandOvers {
        threads: THREADS,
        pages: PAGES,
        wanted,
        locks: players.iter().map(|player| player.locks.load(Ordering::Relaxed)).sum(),
        slept: counts.wakes,
        handed_over: counts.hand_overs,
        longest_wait_ms: longest.unwrap_or(0) as f64 / 1e6,
        seconds: start.elapsed().as_secs_f64(),
        lost,
    })
}

fn counts(memory: &Memory) -> WaitCounts {
    let nodes = memory.topology().nodes().iter();
    let counts = nodes.filter_map(|node| memory.wait_counts(node.id));
    counts.fold(WaitCounts::default(), WaitCounts::plus)
}

fn nanoseconds_since(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Player {
    fn is_lost(&self, start: Instant) -> bool {
        let since = self.waits_since.load(Ordering::Relaxed);
        let waits = nanoseconds_since(start).saturating_sub(since);
        since != 0 && Duration::from_nanos(waits) > LOST_AFTER
    }

    fn lock(&self, memory: &Memory, page: &Page, start: Instant) {
        let since = nanoseconds_since(start);
        self.waits_since.store(since, Ordering::Relaxed);
        memory.lock_page(page.pfn).expect("the page is allocated");
        self.waits_since.store(0, Ordering::Relaxed);
        let waited = nanoseconds_since(start) - since;
        self.longest_wait.fetch_max(waited, Ordering::Relaxed);
        self.locks.fetch_add(1, Ordering::Relaxed);
    }
}

fn play(
    memory: &Memory,
    pages: &[Page],
    players: &[Player],
    number: usize,
    start: Instant,
    stop: &AtomicBool,
) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let me = number as u64 + 1;
    while !stop.load(Ordering::Relaxed) {
        let page = &pages[random.usize(..pages.len())];
        players[number].lock(memory, page, start);
        assert_eq!(page.owner.swap(me, Ordering::Relaxed), 0, "two threads have a page");
        thread::yield_now();
        assert_eq!(page.owner.swap(0, Ordering::Relaxed), me, "two threads have a page");
        // SAFETY: locked above.
        unsafe { memory.unlock_page(page.pfn) }.expect("the page is locked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_over_and_nobody_is_lost() {
        let hand_overs = run(2000).expect("memory for pages");
        assert!(hand_overs.slept >= 2000 && hand_overs.locks >= 2000, "{hand_overs:?}");
        assert_eq!(hand_overs.lost, 0);
        assert!(hand_overs.longest_wait_ms > 0.0);
    }
}
