//! The experiments of `nearpage bench fragmentation`, `order9` and `tails`, on LLFree at its defaults.
//!
//! ```sh
//! cargo run --release --manifest-path bench/llfree/Cargo.toml
//! ```
//!
//! What is done, the generators and their seeds are those of `crates/nearpage-bench/src/work`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use llfree::{Alloc, Classing, FrameId, Init, LLFree, MetaData, Request};

const HUGE: usize = 9;
const HUGE_FRAMES: usize = 1 << HUGE;
const ROUNDS: usize = 5;

fn main() {
    println!("threads GiB seed: whole at 50 %, at 10 %");
    for (threads, gibibytes, seed) in
        [(2, 4, 42), (4, 4, 7), (2, 2, 1), (4, 1, 11), (4, 1, 12), (4, 1, 13)]
    {
        let [half, tenth] = fragmentation(threads, gibibytes << 18, seed);
        println!("{threads} {gibibytes} {seed}: {half}, {tenth}");
    }
    println!("\nGiB: us of the first request of order 9, the longest call of another thread");
    for gibibytes in [1, 4, 16] {
        let rounds = (0..ROUNDS).map(|_| order9(gibibytes << 18));
        let (first, stall): (Vec<_>, Vec<_>) = rounds.unzip();
        println!("{gibibytes}: {:.1}, {:.1}", median(first), median(stall));
    }
    println!("\norder: ns of allocations, of frees: mean, p99, p99.9, p99.99");
    for order in [0, HUGE] {
        let [allocs, frees] = tails(order, 2 << 18);
        println!("{order}: {}; {}", percentiles(allocs), percentiles(frees));
    }
}

/// An allocator with a local reservation for each thread.
struct Frames<'a> {
    llfree: LLFree<'a>,
    threads: usize,
}

impl Frames<'_> {
    fn new(frames: usize, threads: usize) -> Self {
        let (classing, _) = Classing::simple(threads);
        let meta = MetaData::alloc(&LLFree::metadata_size(&classing, frames));
        let llfree = LLFree::new(frames, Init::FreeAll, &classing, meta).expect("enough metadata");
        Self { llfree, threads }
    }

    /// As `Classing::simple` makes it.
    fn request(&self, order: usize, thread: usize) -> Request {
        Request::new(order, llfree::Class((order >= HUGE) as u8), Some(thread))
    }

    fn get(&self, order: usize, thread: usize) -> Option<FrameId> {
        self.llfree.get(None, self.request(order, thread)).ok().map(|(frame, _)| frame)
    }

    fn put(&self, frame: FrameId, order: usize, thread: usize) {
        self.llfree.put(frame, self.request(order, thread)).expect("the frame is ours");
    }

    /// Does `work` on all threads at once, each pinned.
    fn run<T: Send>(&self, work: impl Fn(usize, &Barrier) -> T + Sync) -> Vec<T> {
        let cpus = thread::available_parallelism().map_or(1, usize::from);
        let (work, gate) = (&work, &Barrier::new(self.threads));
        thread::scope(|scope| {
            let spawn = |number| {
                scope.spawn(move || {
                    pin(number % cpus);
                    work(number, gate)
                })
            };
            let threads: Vec<_> = (0..self.threads).map(spawn).collect();
            threads.into_iter().map(|thread| thread.join().expect("it ended well")).collect()
        })
    }
}

/// On the first CPUs of the machine, which all may be used.
fn pin(cpu: usize) {
    // SAFETY: an empty set is made of zeroes, and the call reads the set, which lies in this frame.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

struct Thread {
    held: Vec<FrameId>,
    rng: Rng,
}

fn fragmentation(threads: usize, frames: usize, seed: u64) -> [usize; 2] {
    let pages = Frames::new(frames, threads);
    let state: Vec<Mutex<Thread>> = (0..threads as u64)
        .map(|thread| Thread { held: Vec::new(), rng: Rng::with_seed(seed + thread) })
        .map(Mutex::new)
        .collect();
    let of = |thread: usize| state[thread].lock().expect("nobody panics");
    let each = |percent: usize| frames * percent / 100 / threads;
    let free_down_to = |thread: &mut Thread, number, left: usize| {
        thread.held.drain(left..).rev().for_each(|frame| pages.put(frame, 0, number));
    };
    let take = |thread: &mut Thread, number, count| {
        thread.held.extend((0..count).map(|_| pages.get(0, number).expect("there is room")));
    };
    let singles = |thread: &mut Thread, number, rounds, gate: &Barrier| {
        for _ in 0..rounds {
            gate.wait();
            for _ in 0..thread.held.len() {
                let at = thread.rng.usize(..thread.held.len());
                pages.put(thread.held[at], 0, number);
                thread.held[at] = pages.get(0, number).expect("there is room");
            }
        }
    };
    pages.run(|number, _| take(&mut of(number), number, each(90)));
    let mut all: Vec<FrameId> =
        (0..threads).flat_map(|t| std::mem::take(&mut of(t).held)).collect();
    Rng::with_seed(seed + 1000).shuffle(&mut all);
    for (number, run) in all.chunks(all.len() / threads).take(threads).enumerate() {
        of(number).held = run.to_vec();
    }
    pages.run(|number, gate| {
        let thread = &mut *of(number);
        free_down_to(thread, number, each(50));
        singles(thread, number, 7, gate);
        let fifth = thread.held.len() / 5;
        for _ in 0..60 {
            gate.wait();
            thread.rng.shuffle(&mut thread.held);
            free_down_to(thread, number, thread.held.len() - fifth);
            take(thread, number, fifth);
        }
    });
    let whole = || {
        let mut is_used = vec![false; frames / HUGE_FRAMES];
        (0..threads)
            .for_each(|t| of(t).held.iter().for_each(|f| is_used[f.0 / HUGE_FRAMES] = true));
        is_used.iter().filter(|is_used| !**is_used).count()
    };
    let half = whole();
    pages.run(|number, gate| {
        let thread = &mut *of(number);
        thread.rng.shuffle(&mut thread.held);
        free_down_to(thread, number, each(10));
        singles(thread, number, 20, gate);
    });
    [half, whole()]
}

/// Microseconds.
fn order9(frames: usize) -> (f64, f64) {
    let pages = Frames::new(frames, 2);
    let (is_asked, is_answered) = (AtomicBool::new(false), AtomicBool::new(false));
    let times = pages.run(|number, gate| match number {
        0 => {
            let mut held: Vec<FrameId> = std::iter::from_fn(|| pages.get(0, 0)).collect();
            held.retain(|frame| frame.0 % HUGE_FRAMES != HUGE_FRAMES - 1);
            Rng::with_seed(9).shuffle(&mut held);
            held.iter().for_each(|&frame| pages.put(frame, 0, 0));
            gate.wait();
            gate.wait();
            is_asked.store(true, Ordering::Release);
            let start = Instant::now();
            let block = pages.get(HUGE, 0);
            let took = start.elapsed();
            is_answered.store(true, Ordering::Release);
            assert!(block.is_none());
            took
        }
        _ => {
            let mut longest = Duration::ZERO;
            let mut call = |work: &mut dyn FnMut()| {
                let was_answered = is_answered.load(Ordering::Acquire);
                let start = Instant::now();
                work();
                let took = start.elapsed();
                if is_asked.load(Ordering::Acquire) && !was_answered {
                    longest = longest.max(took);
                }
            };
            let mut held = Vec::with_capacity(2048);
            let mut turn = || {
                (0..2048).for_each(|_| call(&mut || held.extend(pages.get(0, 1))));
                held.drain(..).for_each(|frame| call(&mut || pages.put(frame, 0, 1)));
            };
            gate.wait();
            turn();
            gate.wait();
            while !is_answered.load(Ordering::Acquire) {
                turn();
            }
            longest
        }
    });
    (times[0].as_secs_f64() * 1e6, times[1].as_secs_f64() * 1e6)
}

/// Nanoseconds of each allocation and of each free.
fn tails(order: usize, frames: usize) -> [Vec<f64>; 2] {
    const CALLS: usize = 200_000;
    let mut looks: Vec<Duration> = (0..10_001).map(|_| Instant::now().elapsed()).collect();
    looks.sort_unstable();
    let look = looks[looks.len() / 2];
    let mut all = [Vec::new(), Vec::new()];
    // The first round does not count.
    for round in 0..=ROUNDS {
        let pages = Frames::new(frames, 2);
        let share = (frames >> order) * 80 / 100 / 2;
        let threads = pages.run(|number, gate| {
            let ns = |start: Instant| start.elapsed().saturating_sub(look).as_nanos() as f64;
            let mut rng = Rng::with_seed(80 + number as u64);
            let get = || pages.get(order, number).expect("there is room");
            let mut held: Vec<FrameId> = (0..share).map(|_| get()).collect();
            let mut times = [Vec::with_capacity(CALLS), Vec::with_capacity(CALLS)];
            gate.wait();
            while times[0].len() + times[1].len() < CALLS {
                rng.shuffle(&mut held);
                for frame in held.drain(share - share / 5..) {
                    let start = Instant::now();
                    pages.put(frame, order, number);
                    times[1].push(ns(start));
                }
                for _ in 0..share / 5 {
                    let start = Instant::now();
                    let frame = get();
                    times[0].push(ns(start));
                    held.push(frame);
                }
            }
            times
        });
        for times in threads.into_iter().filter(|_| round > 0) {
            all.iter_mut().zip(times).for_each(|(all, times)| all.extend(times));
        }
    }
    all
}

fn percentiles(mut ns: Vec<f64>) -> String {
    ns.sort_by(f64::total_cmp);
    let mean = ns.iter().sum::<f64>() / ns.len() as f64;
    let [p99, p999, p9999] = [9900, 9990, 9999].map(|of| ns[(ns.len() * of).div_ceil(10_000) - 1]);
    format!("{mean:.1} {p99} {p999} {p9999}")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
