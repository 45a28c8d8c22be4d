//! Long work: how it tells how far it is, and how its caller ends it.
//!
//! ```
//! use std::ops::ControlFlow;
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use nearpage_machine::work::{Observer, Stopped, Unwatched};
//!
//! fn sum(numbers: &[u64], observer: &dyn Observer) -> Result<u64, Stopped> {
//!     let mut sum = 0;
//!     for (at, number) in numbers.iter().enumerate() {
//!         observer.step(at as u64, numbers.len() as u64)?;
//!         sum += number;
//!     }
//!     Ok(sum)
//! }
//!
//! assert_eq!(sum(&[1, 2, 3], &Unwatched), Ok(6));
//! let seen = AtomicU64::new(0);
//! let patient_until_2 = |done: u64, _all: u64| {
//!     seen.store(done, Ordering::Relaxed);
//!     if done < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
//! };
//! assert_eq!(sum(&[1, 2, 3], &patient_until_2), Err(Stopped));
//! assert_eq!(seen.into_inner(), 2);
//! ```

use std::ops::ControlFlow;

/// Watches long work, and may stop it.
///
/// The work calls [`progress`](Self::progress) from the threads that it runs on, from time to time and not at every
/// step. A call should return quickly. A closure of the same shape is an observer.
pub trait Observer: Sync {
    /// The work has done `done` of `all` steps. `all` is an estimate; it is 0 as long as the work cannot estimate it.
    ///
    /// [`ControlFlow::Break`] asks the work to stop: it returns [`Stopped`] soon, and leaves nothing half done.
    fn progress(&self, done: u64, all: u64) -> ControlFlow<()>;

    /// The same for the work's side: reports the progress, and turns a wish to stop into an error.
    ///
    /// # Errors
    ///
    /// [`Stopped`] if the observer asks the work to stop.
    fn step(&self, done: u64, all: u64) -> Result<(), Stopped> {
        match self.progress(done, all) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Stopped),
        }
    }
}

impl<F: Fn(u64, u64) -> ControlFlow<()> + Sync> Observer for F {
    fn progress(&self, done: u64, all: u64) -> ControlFlow<()> {
        self(done, all)
    }
}

/// The observer that lets all work run to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unwatched;

impl Observer for Unwatched {
    fn progress(&self, _done: u64, _all: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// The work ended early because its [`Observer`] asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, thiserror::Error)]
#[error("stopped before the end")]
pub struct Stopped;
