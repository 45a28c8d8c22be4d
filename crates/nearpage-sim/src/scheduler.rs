//! Who runs next.
//!
//! The executor tells a scheduler which CPUs have work and asks which one goes on. A *point* is where a running
//! task could be interrupted: a lock, a wait, and if the scheduler wants it each touch of a shared line.

mod hunt;
mod replay;
mod virtual_time;

pub use hunt::{Pct, Random};
pub use replay::{Decisions, Recorded, Replay};
pub use virtual_time::VirtualTime;

/// Picks the CPU that runs next.
pub trait Scheduler {
    /// A CPU has work, from that time (ps) on. It has not been named since [`next`](Self::next) returned it.
    fn ready(&mut self, cpu: usize, clock_ps: u64);

    /// Takes a CPU that has work out; `None` if none has.
    fn next(&mut self) -> Option<usize>;

    /// The clock (ps) up to which the CPU that [`next`](Self::next) just returned may run on without asking at
    /// points.
    fn slice_end_ps(&self) -> u64;

    /// Whether the running CPU goes on at a point beyond its slice.
    fn goes_on(&mut self, cpu: usize, clock_ps: u64) -> bool;

    /// The earliest time (ps) at which a CPU has work: timers before it go off first.
    fn earliest_ps(&self) -> Option<u64>;

    /// Whether touches of shared lines are points.
    fn stops_at_touches(&self) -> bool;
}
