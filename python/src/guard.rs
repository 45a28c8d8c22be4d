//! Calls of the libraries: none crosses into Python with a panic, and none that is long holds the interpreter.
//!
//! A long call runs on a thread of its own. The caller's thread waits without the GIL, looks for signals, and tells progress: so
//! Ctrl-C is heard within [`PERIOD`] whatever the work does, and a callback always runs on the thread of who asked.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use nearpage_machine::work::Observer;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::error::Class;

/// Between two looks for signals.
pub(crate) const PERIOD: Duration = Duration::from_millis(40);
/// So long a call that was interrupted waits for the end of its work. Work that takes longer goes on to its next step, and ends there.
const PATIENCE: Duration = Duration::from_millis(120);

thread_local! {
    /// What the last panic of this thread said, and where.
    static SAID: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Keeps what panics say, instead of printing it: a library prints nothing. This is the hook of this module's own runtime; other
/// modules in Rust have theirs.
pub(crate) fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let said = info.payload_as_str().unwrap_or("a panic without words").to_owned();
        SAID.with_borrow_mut(|last| *last = Some((place, said)));
    }));
}

/// Why work has no result: it panicked.
pub(crate) struct Panicked {
    place: String,
    said: String,
}

impl Panicked {
    /// In words, with its place.
    pub(crate) fn message(&self) -> String {
        format!("{}: {}: this is a defect of nearpage", self.place, self.said)
    }
}

impl From<Panicked> for PyErr {
    fn from(panicked: Panicked) -> PyErr {
        Class::Internal.error(Some(panicked.place.clone()), panicked.message())
    }
}

/// Does some work, and catches its panic.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    panic::catch_unwind(AssertUnwindSafe(work)).map_err(|_| {
        let (place, said) = SAID.with_borrow_mut(Option::take).unwrap_or_default();
        Panicked { place, said }
    })
}

/// Does short work without the GIL.
pub(crate) fn short<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    Ok(py.detach(|| caught(work))?)
}

/// How far long work is, and whether it is to stop.
#[derive(Debug, Default)]
pub(crate) struct Course {
    done: AtomicU64,
    all: AtomicU64,
    is_stopped: AtomicBool,
}

impl Observer for Course {
    fn progress(&self, done: u64, all: u64) -> ControlFlow<()> {
        // The lab asks (0, 0) between runs that are not counted.
        if all > 0 {
            self.all.store(all, Ordering::Relaxed);
            self.done.store(done, Ordering::Relaxed);
        }
        match self.is_stopped.load(Ordering::Relaxed) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Does long work. `progress` is called with what is done and what there is to do, in the unit of the work.
///
/// # Errors
///
/// What a signal handler raises (`KeyboardInterrupt`), what `progress` raises, or the work's panic. In the first two cases the work is
/// asked to stop.
pub(crate) fn long<T: Send + 'static>(
    py: Python<'_>,
    progress: Option<&Bound<'_, PyAny>>,
    work: impl FnOnce(&Course) -> T + Send + 'static,
) -> PyResult<T> {
    let course = Arc::new(Course::default());
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let of_work = course.clone();
    let worker = move || {
        let result = caught(|| work(&of_work));
        // Nobody listens after an interruption.
        let _ = sender.send(result);
    };
    let thread = thread::Builder::new().name("nearpage".into()).stack_size(8 << 20);
    thread.spawn(worker).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
    let mut told = None;
    let mut tell = || -> PyResult<()> {
        let Some(progress) = progress else { return Ok(()) };
        let now = (course.done.load(Ordering::Relaxed), course.all.load(Ordering::Relaxed));
        if now.1 > 0 && told.replace(now) != Some(now) {
            progress.call1(now)?;
        }
        Ok(())
    };
    loop {
        let answer;
        (answer, receiver) = py.detach(move || (receiver.recv_timeout(PERIOD), receiver));
        match answer {
            Ok(result) => {
                tell()?;
                return Ok(result?);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Class::Internal.error(None, "the work ended without a result"));
            }
        }
        if let Err(error) = py.check_signals().and_then(|()| tell()) {
            course.is_stopped.store(true, Ordering::Relaxed);
            let until = Instant::now() + PATIENCE;
            py.detach(move || {
                let left = until.saturating_duration_since(Instant::now());
                let _ = receiver.recv_timeout(left);
            });
            return Err(error);
        }
    }
}
