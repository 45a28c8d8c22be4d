//! Threads that wait for memory stand in a line: the first one tries again and again, the others sleep until it is their turn.
//!
//! Nobody is told when a page is freed, since a free that looked whether somebody waits would cost all who free something. The
//! first in the line looks some hundred times a second instead, and brings home what other CPUs cache at each look.

use std::collections::VecDeque;
use std::sync::{Condvar, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearpage::AllocError;

use crate::fork::AtForks;

/// The first wait between two tries, which doubles up to the last one.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LAST_PAUSE: Duration = Duration::from_millis(4);

/// The line.
#[derive(Debug)]
pub(crate) struct Line {
    state: AtForks<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Threads that wait, the first one first.
    places: VecDeque<u64>,
    next: u64,
    /// The process of the last one.
    process: u32,
}

impl Line {
    pub fn new() -> Self {
        Self { state: AtForks::new(State::default()), moved: Condvar::new() }
    }

    /// The line as it stands. Nobody of a parent's waits in its child.
    fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        if !state.places.is_empty() && state.process != std::process::id() {
            state.places.clear();
        }
        state
    }

    /// Tries until it succeeds, fails for a reason that no wait mends, or until `timeout` is over; after those who came before.
    pub fn wait<T>(
        &self,
        timeout: Duration,
        mut attempt: impl FnMut() -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        let deadline = Instant::now().checked_add(timeout);
        if self.state().places.is_empty() {
            match attempt() {
                Err(error) if may_pass(&error) => {}
                done => return done,
            }
        }
        let place = Place::last(self);
        let mut pause = FIRST_PAUSE;
        loop {
            let is_first = place.wait_to_be_first(deadline);
            match attempt() {
                Err(error) if may_pass(&error) => {
                    let left = left(deadline);
                    if left.is_zero() || !is_first {
                        return Err(error);
                    }
                    std::thread::sleep(pause.min(left));
                    pause = (2 * pause).min(LAST_PAUSE);
                }
                done => return done,
            }
        }
    }
}

/// Whether memory that somebody frees may be an answer.
fn may_pass(error: &AllocError) -> bool {
    use AllocError::{LimitReached, NoRange, OutOfMemory};
    matches!(error, OutOfMemory { .. } | LimitReached { .. } | NoRange { .. })
}

fn left(deadline: Option<Instant>) -> Duration {
    let until = |deadline: Instant| deadline.saturating_duration_since(Instant::now());
    deadline.map_or(Duration::MAX, until)
}

/// A place in the line, left when it is dropped: by who was served, gave up, or panicked.
struct Place<'a> {
    line: &'a Line,
    number: u64,
}

impl<'a> Place<'a> {
    fn last(line: &'a Line) -> Self {
        let mut state = line.state();
        let number = state.next;
        state.next += 1;
        state.places.push_back(number);
        state.process = std::process::id();
        drop(state);
        Self { line, number }
    }

    /// Sleeps until nobody is before this place; returns whether that is so, or only the time over.
    fn wait_to_be_first(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.line.state();
        loop {
            if state.places.front() == Some(&self.number) {
                return true;
            }
            let left = left(deadline);
            if left.is_zero() {
                return false;
            }
            let woken = self.line.moved.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.line.state().places.retain(|&number| number != self.number);
        self.line.moved.notify_all();
    }
}
