//! The progress of passes that several threads make at once.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use nearpage_machine::work::Observer;

/// Adds up the progress of several passes, each of which begins at 0.
pub(crate) struct Share<'o> {
    observer: &'o dyn Observer,
    done: AtomicU64,
    all: u64,
}

/// One of the passes.
pub(crate) struct Part<'s, 'o> {
    share: &'s Share<'o>,
    told: AtomicU64,
}

impl<'o> Share<'o> {
    /// Of `all` bytes, over all passes.
    pub(crate) fn new(observer: &'o dyn Observer, all: u64) -> Share<'o> {
        Share { observer, done: AtomicU64::new(0), all }
    }

    /// The progress of one of them.
    pub(crate) fn part(&self) -> Part<'_, 'o> {
        Part { share: self, told: AtomicU64::new(0) }
    }
}

impl Observer for Part<'_, '_> {
    fn progress(&self, done: u64, _all: u64) -> ControlFlow<()> {
        let more = done.saturating_sub(self.told.swap(done, Ordering::Relaxed));
        let done = self.share.done.fetch_add(more, Ordering::Relaxed) + more;
        self.share.observer.progress(done, self.share.all)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn parts_add_up() {
        let told = Mutex::new(Vec::new());
        let observer = |done, all| {
            told.lock().unwrap().push((done, all));
            ControlFlow::Continue(())
        };
        let share = Share::new(&observer, 100);
        let (one, two) = (share.part(), share.part());
        for (part, done) in [(&one, 10), (&two, 5), (&one, 30), (&two, 5), (&two, 50)] {
            assert!(part.progress(done, 50).is_continue());
        }
        assert_eq!(
            told.into_inner().unwrap(),
            [(10, 100), (15, 100), (35, 100), (35, 100), (80, 100)]
        );
    }
}
