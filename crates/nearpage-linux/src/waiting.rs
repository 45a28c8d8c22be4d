//! Who waits for memory stands in a line: the first one tries again and again, the others sleep until it is their turn.
//!
//! Nobody is told when a page is freed, since a free that looked whether somebody waits would cost all who free something. The
//! first in the line looks some hundred times a second instead, and brings home what other CPUs cache at each look.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nearpage::AllocError;

use crate::fork::{Hold, Registration};

/// The first wait between two tries, which doubles up to the last one.
const FIRST_PAUSE: Duration = Duration::from_micros(100);
const LAST_PAUSE: Duration = Duration::from_millis(4);

/// The line.
#[derive(Debug)]
pub(crate) struct Line {
    shared: Arc<Shared>,
    _registration: Registration,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Those who wait, the first one first.
    places: VecDeque<u64>,
    next: u64,
}

impl Line {
    pub fn new() -> Self {
        let shared = Arc::<Shared>::default();
        let _registration = Registration::of(Box::new(HeldLine(shared.clone())));
        Self { shared, _registration }
    }

    /// Tries until it succeeds, fails for a reason that no wait mends, or until `timeout` is over; after those who came before.
    pub fn wait<T>(
        &self,
        timeout: Duration,
        mut attempt: impl FnMut() -> Result<T, AllocError>,
    ) -> Result<T, AllocError> {
        let deadline = Instant::now().checked_add(timeout);
        if self.shared.state().places.is_empty() {
            match attempt() {
                Err(error) if may_pass(&error) => {}
                done => return done,
            }
        }
        let place = Place::last(&self.shared);
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

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in the line, left when it is dropped: by who was served, gave up, or panicked.
struct Place<'a> {
    shared: &'a Shared,
    number: u64,
}

impl<'a> Place<'a> {
    fn last(shared: &'a Shared) -> Self {
        let mut state = shared.state();
        let number = state.next;
        state.next += 1;
        state.places.push_back(number);
        Self { shared, number }
    }

    /// Sleeps until nobody is before this place; returns whether that is so, or only the time over.
    fn wait_to_be_first(&self, deadline: Option<Instant>) -> bool {
        let mut state = self.shared.state();
        loop {
            if state.places.front() == Some(&self.number) {
                return true;
            }
            let left = left(deadline);
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.moved.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.shared.state().places.retain(|&number| number != self.number);
        self.shared.moved.notify_all();
    }
}

struct HeldLine(Arc<Shared>);

/// The line while a fork holds it. Nobody of the parent's waits in the child.
struct Stopped {
    state: MutexGuard<'static, State>,
    process: u32,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            self.state.places.clear();
        }
    }
}

impl Hold for HeldLine {
    fn hold(&self) -> Box<dyn Any> {
        // SAFETY: who asks drops the answer before `self`, which keeps the mutex.
        let shared: &'static Shared = unsafe { &*Arc::as_ptr(&self.0) };
        Box::new(Stopped { state: shared.state(), process: std::process::id() })
    }
}
