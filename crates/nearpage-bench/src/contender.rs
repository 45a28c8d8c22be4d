//! The allocators that run a load, each time in a fresh memory: nearpage under some rules, or another one.

use std::fmt;

use nearpage::{Model, Pfn};
use nearpage_linux::{Memory, MemoryBuilder};

use crate::field::Effort;
use crate::measure::Clock;
use crate::seats::Seats;
use crate::source::Source;
use crate::step::StepError;
use crate::threads::Cpus;

/// Makes memories.
pub trait Contender {
    /// The memories that it makes.
    type Pages: Source<Block = Pfn>;

    /// The name of its rows.
    fn name(&self) -> &'static str;

    /// A memory of so many bytes for the threads that have these seats. It keeps no pages back for urgent requests.
    ///
    /// # Errors
    ///
    /// [`StepError`].
    fn pages(&self, seats: Seats<'_>, bytes: u64) -> Result<Self::Pages, StepError>;
}

/// nearpage under some rules.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// The name of its rows.
    pub name: &'static str,
    /// The rules.
    pub model: Model,
    /// How its memories begin.
    pub begin: &'a dyn Fn() -> MemoryBuilder,
}

impl Contender for Rules<'_> {
    type Pages = Memory;

    fn name(&self) -> &'static str {
        self.name
    }

    fn pages(&self, seats: Seats<'_>, bytes: u64) -> Result<Memory, StepError> {
        Ok(seats.memory((self.begin)(), self.model, bytes)?)
    }
}

impl fmt::Debug for Rules<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The CPUs, the clock and the sizes that such a load runs with.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The CPUs of this process.
    pub cpus: &'a Cpus,
    /// By which clock.
    pub clock: Clock,
    /// How much is done.
    pub effort: Effort,
    /// Bytes of each memory.
    pub bytes: u64,
}

/// Whether a memory took back all that was freed.
///
/// # Errors
///
/// [`StepError::Refused`].
pub fn check_frees(pages: &impl Source) -> Result<(), StepError> {
    match pages.misuses() {
        0 => Ok(()),
        misuses => Err(StepError::Refused(misuses)),
    }
}
