//! `order9`: the first request of order 9 after many single pages were freed, and what others wait meanwhile.
//!
//! A thread takes all pages of a fresh memory, one at a time, and frees them in random order, all but one of each
//! pageblock. Then it asks for a block of order 9, which there cannot be: rules that put the merging of pages off have to
//! do it now. Another thread, if there is a CPU for it, takes and frees single pages all the time; the longest of its
//! calls while the request was under way is a row of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nearpage::Pfn;
use nearpage_linux::FRAME_BYTES;

use crate::contender::{Contender, check_frees};
use crate::rows::{Key, Sample, Work};
use crate::seats::Seats;
use crate::source::Source;
use crate::step::{Step, StepError};
use crate::threads::{Cpus, Gate};

/// The random order is the same for all rules.
const SEED: u64 = 9;
const HUGE: u8 = 9;
const HUGE_PAGES: u64 = 1 << HUGE;
/// Pages that the other thread takes before it frees them again: more than a pageset hands out without its zone.
const OTHERS_PAGES: usize = 2048;
/// Who asks, and who is disturbed.
const THREADS: usize = 2;

/// Sizes of memory.
pub const SIZES: [u64; 3] = [1 << 30, 4 << 30, 16 << 30];
/// What `--quick` takes.
pub const QUICK_SIZES: [u64; 1] = [256 << 20];

/// The step of a contender for a size.
pub fn step<'a>(cpus: &'a Cpus, contender: &'a impl Contender, bytes: u64) -> Step<'a> {
    let run = move || measure(cpus, contender, bytes);
    Step { allocator: contender.name(), run: Box::new(run) }
}

/// What the thread that asks, or the other, has seen.
#[derive(Clone, Copy)]
enum Seen {
    /// When the request began and ended.
    Request(Instant, Instant),
    /// The longest call that was under way between the two.
    Longest(Duration),
}

fn measure(cpus: &Cpus, contender: &impl Contender, bytes: u64) -> Result<Vec<Sample>, StepError> {
    let threads = THREADS.min(cpus.count());
    let seats = Seats::new(cpus, threads);
    let memory = contender.pages(seats, bytes)?;
    let (is_asked, is_answered) = (AtomicBool::new(false), AtomicBool::new(false));
    let seen = seats.run(|thread, gate| match thread {
        0 => {
            free_all_but_one_of_each_block(&memory)?;
            gate.wait();
            ask(&memory, gate, &is_asked, &is_answered)
        }
        _ => {
            gate.wait();
            disturb(&memory, gate, &is_asked, &is_answered)
        }
    })?;
    check_frees(&memory)?;
    let pages = (bytes / FRAME_BYTES) as usize;
    let sample = |seen| {
        let (work, time) = match seen {
            Seen::Request(start, end) => (Work::Order9First, end - start),
            Seen::Longest(longest) => (Work::Order9Stall, longest),
        };
        let key = Key { work, allocator: contender.name(), threads, n: pages };
        Sample { key, ns: time.as_nanos() as f64, samples_ns: Vec::new(), moves: None }
    };
    Ok(seen.into_iter().map(sample).collect())
}

/// Takes all pages, and frees them in random order; the last page of each pageblock is kept, and lost with the memory.
fn free_all_but_one_of_each_block(memory: &impl Source<Block = Pfn>) -> Result<(), StepError> {
    let mut pages: Vec<Pfn> = std::iter::from_fn(|| memory.alloc::<0>()).collect();
    pages.retain(|page| page.0 % HUGE_PAGES != HUGE_PAGES - 1);
    Rng::with_seed(SEED).shuffle(&mut pages);
    // SAFETY: each page was just taken, and this frees each once.
    pages.iter().for_each(|&page| unsafe { memory.free::<0>(page) });
    Ok(())
}

fn ask(
    memory: &impl Source<Block = Pfn>,
    gate: &Gate,
    is_asked: &AtomicBool,
    is_answered: &AtomicBool,
) -> Result<Seen, StepError> {
    gate.wait();
    is_asked.store(true, Ordering::Release);
    let start = Instant::now();
    let block = memory.alloc::<HUGE>();
    let end = Instant::now();
    is_answered.store(true, Ordering::Release);
    match block {
        None => Ok(Seen::Request(start, end)),
        Some(_) => Err(StepError::InUse),
    }
}

fn disturb(
    memory: &impl Source<Block = Pfn>,
    gate: &Gate,
    is_asked: &AtomicBool,
    is_answered: &AtomicBool,
) -> Result<Seen, StepError> {
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
    let mut pages = Vec::with_capacity(OTHERS_PAGES);
    let mut turn = || {
        for _ in 0..OTHERS_PAGES {
            call(&mut || pages.extend(memory.alloc::<0>()));
        }
        for page in pages.drain(..) {
            // SAFETY: taken above, and freed once.
            call(&mut || unsafe { memory.free::<0>(page) });
        }
    };
    // The caches find their size.
    turn();
    gate.wait();
    while !is_answered.load(Ordering::Acquire) {
        turn();
    }
    Ok(Seen::Longest(longest))
}

#[cfg(test)]
mod tests {
    use nearpage::Model;
    use nearpage_linux::Memory;

    use super::*;
    use crate::contender::Rules;

    #[test]
    fn a_request_that_cannot_be_met_is_timed_and_so_are_the_others() {
        let cpus = Cpus::allowed().unwrap();
        for model in [Model::NEARPAGE, Model::LINUX_6_18] {
            let rules = Rules { name: model.name, model, begin: &|| Memory::builder() };
            let samples = measure(&cpus, &rules, 64 << 20).unwrap();
            let works: Vec<Work> = samples.iter().map(|sample| sample.key.work).collect();
            let expected = [Work::Order9First, Work::Order9Stall];
            assert_eq!(works, expected[..THREADS.min(cpus.count())]);
            // The other thread may not have had its CPU meanwhile: then none of its calls was under way.
            assert!(samples[0].ns > 0.0);
            assert!(samples.iter().all(|sample| sample.key.n == 16_384));
        }
    }

    #[test]
    fn each_pageblock_keeps_a_page() {
        let cpus = Cpus::allowed().unwrap();
        let seats = Seats::new(&cpus, 1);
        let memory = seats.memory(Memory::builder(), Model::NEARPAGE, 64 << 20).unwrap();
        seats.run(|_, _| free_all_but_one_of_each_block(&memory)).unwrap();
        assert_eq!(memory.check().unwrap().allocated.0, 32);
    }
}
