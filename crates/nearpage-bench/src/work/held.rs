//! Loads that hold many pages at once, all threads equal shares: in the memories of the field, or in a fresh one each time.

use crate::contender::{Contender, Setting, check_frees};
use crate::field::Context;
use crate::measure::Clock;
use crate::rows::Sample;
use crate::seats::Seats;
use crate::source::{Glibc, Mmap, Source};
use crate::step::{Step, StepError};

/// A mapping costs hundreds of times what a page costs: so many times fewer are held.
const MMAP_SHARE: usize = 100;
/// A block of glibc's has a header beside it, which brings memory in: so many times fewer are held.
const GLIBC_SHARE: usize = 10;

/// What the threads do with the pages.
pub trait Load: Copy {
    /// Runs the load once on the pages of a source.
    ///
    /// # Errors
    /// The source has too few pages, or a thread cannot run on its CPU.
    fn round<S: Source>(self, round: Round<'_>, source: &S) -> Result<Vec<Sample>, StepError>;
}

/// The threads that run a load, and the pages of each.
#[derive(Clone, Copy)]
pub struct Round<'a> {
    pub clock: Clock,
    pub seats: Seats<'a>,
    pub threads: usize,
    pub allocator: &'static str,
    /// How many each thread holds.
    pub pages: usize,
}

/// The steps of all that hold pages, by so many threads.
pub fn steps<'a>(context: Context<'a>, load: impl Load + 'a, threads: usize) -> Vec<Step<'a>> {
    let pages = context.effort.fill_pages;
    let of_memory = |(name, memory)| step(context, load, name, threads, pages, memory);
    let mut steps: Vec<_> = context.field.memories().map(of_memory).collect();
    steps.push(step(context, load, "glibc", threads, pages / GLIBC_SHARE, Glibc));
    steps.push(step(context, load, "mmap", threads, pages / MMAP_SHARE, Mmap));
    steps
}

/// `pages` are of all threads together.
fn step<'a, S: Source + 'a>(
    context: Context<'a>,
    load: impl Load + 'a,
    allocator: &'static str,
    threads: usize,
    pages: usize,
    source: S,
) -> Step<'a> {
    let seats = Seats::new(context.cpus, context.cpus.count());
    let round = Round { clock: context.clock, seats, threads, allocator, pages: pages / threads };
    Step { allocator, run: Box::new(move || load.round(round, &source)) }
}

/// The same load in a fresh memory each time, at one CPU and at all. `pages` are of all threads together.
pub fn fresh_steps<'a>(
    setting: Setting<'a>,
    contender: &'a impl Contender,
    load: impl Load + 'a,
    pages: usize,
) -> Vec<Step<'a>> {
    let seats = Seats::new(setting.cpus, setting.cpus.count());
    let allocator = contender.name();
    let step = |threads| {
        let round =
            Round { clock: setting.clock, seats, threads, allocator, pages: pages / threads };
        let run = move || {
            let memory = contender.pages(seats, setting.bytes)?;
            let samples = load.round(round, &memory)?;
            check_frees(&memory).map(|()| samples)
        };
        Step { allocator, run: Box::new(run) as Box<_> }
    };
    setting.cpus.one_and_all().map(step).collect()
}

/// Allocates a page into each of `slots`, or none.
pub fn fill<S: Source>(source: &S, slots: &mut [S::Block]) -> Result<(), StepError> {
    for at in 0..slots.len() {
        let Some(page) = source.alloc::<0>() else {
            // SAFETY: these were just allocated, and nobody gets them.
            slots[..at].iter().for_each(|&page| unsafe { source.free::<0>(page) });
            return Err(StepError::Exhausted);
        };
        slots[at] = page;
    }
    Ok(())
}
