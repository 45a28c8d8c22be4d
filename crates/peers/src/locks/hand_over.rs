//! 64 threads, 64 pages: each thread takes a page of its choice, lets another thread run, and unlocks it. So most
//! find their page locked and sleep in the kernel until it is handed over.
//!
//! A wake-up that got lost would leave its thread asleep until somebody else unlocks the same page. So all pause again
//! and again, and nobody does: who has not come to rest after [`LOST_AFTER`] is lost. In some rounds only a few pages are
//! used, so that threads that wait are overtaken often enough to be handed the lock.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nearpage::stats::WaitCounts;
use nearpage::{Gfp, Order, Pfn, Request};
use nearpage_linux::{Memory, MemoryBuilder};
use serde::Serialize;

/// Hand-overs that are wanted.
pub const WANTED: u64 = 10_000_000;

const THREADS: usize = 64;
const PAGES: usize = 64;
/// A thread that waits so long will never run.
const LOST_AFTER: Duration = Duration::from_secs(20);
/// Until all come to rest.
const ROUND: Duration = Duration::from_millis(50);
/// In the first of so many rounds all threads want one of a few pages.
const CROWDED_EVERY: u64 = 8;
const CROWDED_PAGES: usize = 2;
/// Times that a thread then locks its page again as soon as it has unlocked it: who was woken is overtaken.
const CROWDED_LOCKS: usize = 16;

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
    /// Times that all threads came to rest: none slept on when nobody unlocked any more.
    pub rests: u64,
    /// Threads that were never woken.
    pub lost: usize,
}

/// One of the threads; nanoseconds since the start.
#[derive(Default)]
#[repr(align(128))]
struct Player {
    locks: AtomicU64,
    longest_wait: AtomicU64,
}

/// When threads play and when they rest.
#[derive(Default)]
struct Referee {
    /// The round, and whether it is the last one.
    round: Mutex<(u64, bool)>,
    begins: Condvar,
    pause: AtomicBool,
    at_rest: AtomicUsize,
    pages: AtomicUsize,
}

impl Referee {
    fn begin(&self, round: u64, is_over: bool) {
        let pages = if round % CROWDED_EVERY == 1 { CROWDED_PAGES } else { PAGES };
        self.pages.store(pages, Ordering::Relaxed);
        self.at_rest.store(0, Ordering::Relaxed);
        self.pause.store(false, Ordering::Relaxed);
        *self.round.lock().unwrap_or_else(PoisonError::into_inner) = (round, is_over);
        self.begins.notify_all();
    }

    /// Rests until the round after `round`, or for ever: `None`.
    fn rest(&self, round: u64) -> Option<u64> {
        self.at_rest.fetch_add(1, Ordering::Relaxed);
        let guard = self.round.lock().unwrap_or_else(PoisonError::into_inner);
        let next = self.begins.wait_while(guard, |(now, _)| *now == round);
        let (now, is_over) = *next.unwrap_or_else(PoisonError::into_inner);
        (!is_over).then_some(now)
    }

    /// Lets all come to rest; returns how many never do.
    fn end(&self) -> usize {
        self.pause.store(true, Ordering::Relaxed);
        let start = Instant::now();
        while self.at_rest.load(Ordering::Relaxed) < THREADS && start.elapsed() < LOST_AFTER {
            thread::sleep(Duration::from_micros(100));
        }
        THREADS - self.at_rest.load(Ordering::Relaxed)
    }
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
    let builder = MemoryBuilder::from_env().map_err(io::Error::other)?;
    let memory = builder.bytes_per_node(32 << 20).build().map_err(io::Error::other)?;
    // Those of a wake-up that got lost would use it for ever.
    let memory: &'static Memory = Box::leak(Box::new(memory));
    let request = Request::new(Order(0), Gfp::KERNEL);
    let pages = (0..PAGES).map(|_| {
        let pfn = memory.alloc_frames(request).map_err(io::Error::other)?;
        Ok(Page { pfn, owner: AtomicU64::new(0) })
    });
    let pages: &'static [Page] = Box::leak(pages.collect::<io::Result<_>>()?);
    let players: &'static [Player] = Box::leak((0..THREADS).map(|_| Player::default()).collect());
    let referee: &'static Referee = Box::leak(Box::default());
    let start = Instant::now();
    let threads: Vec<_> = (0..THREADS)
        .map(|number| thread::spawn(move || play(memory, pages, &players[number], number, referee)))
        .collect();
    let (mut lost, mut rests) = (referee.end(), 0);
    while lost == 0 && counts(memory).wakes < wanted {
        referee.begin(rests + 1, false);
        thread::sleep(ROUND);
        lost = referee.end();
        rests += u64::from(lost == 0);
    }
    if lost == 0 {
        referee.begin(rests + 1, true);
        // All are at rest: they end at once.
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
        rests,
        lost,
    })
}

fn counts(memory: &Memory) -> WaitCounts {
    let nodes = memory.topology().nodes().iter();
    let counts = nodes.filter_map(|node| memory.wait_counts(node.id));
    counts.fold(WaitCounts::default(), WaitCounts::merged)
}

impl Player {
    fn lock(&self, memory: &Memory, page: &Page) {
        let since = Instant::now();
        memory.lock_page(page.pfn).expect("the page is allocated");
        let waited = u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.longest_wait.fetch_max(waited, Ordering::Relaxed);
        self.locks.fetch_add(1, Ordering::Relaxed);
    }

    /// Has a page while another thread runs.
    fn hold(&self, memory: &Memory, page: &Page, me: u64) {
        self.lock(memory, page);
        assert_eq!(page.owner.swap(me, Ordering::Relaxed), 0, "two threads have a page");
        thread::yield_now();
        assert_eq!(page.owner.swap(0, Ordering::Relaxed), me, "two threads have a page");
        // SAFETY: locked above.
        unsafe { memory.unlock_page(page.pfn) }.expect("the page is locked");
    }
}

fn play(memory: &Memory, pages: &[Page], player: &Player, number: usize, referee: &Referee) {
    let mut random = fastrand::Rng::with_seed(number as u64);
    let me = number as u64 + 1;
    let mut round = 0;
    while let Some(next) = referee.rest(round) {
        round = next;
        let in_use = referee.pages.load(Ordering::Relaxed);
        let times = if in_use == PAGES { 1 } else { CROWDED_LOCKS };
        while !referee.pause.load(Ordering::Relaxed) {
            let page = &pages[random.usize(..in_use)];
            (0..times).for_each(|_| player.hold(memory, page, me));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_handed_over_and_nobody_is_lost() {
        // The first round is a crowded one.
        let hand_overs = run(200_000).expect("memory for pages");
        assert!(hand_overs.slept >= 200_000 && hand_overs.locks >= 200_000, "{hand_overs:?}");
        assert_eq!(hand_overs.lost, 0);
        assert!(hand_overs.rests > 0 && hand_overs.handed_over > 0, "{hand_overs:?}");
        assert!(hand_overs.longest_wait_ms > 0.0);
    }
}
