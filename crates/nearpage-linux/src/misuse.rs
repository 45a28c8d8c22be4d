//! Frees and unlocks that are refused: counted, and the first ones kept.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nearpage::FreeError;
use nearpage_pagelock::PageLockError;
use nearpage_slab::ObjectError;

/// A free or an unlock that was refused, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Misuse {
    /// A free of pages that are not allocated.
    #[error(transparent)]
    Free(#[from] FreeError),
    /// An unlock of a page that is not locked.
    #[error(transparent)]
    Lock(#[from] PageLockError),
    /// A free of an object that is not allocated.
    #[error(transparent)]
    Object(#[from] ObjectError),
}

/// What happens at a free of a page or object that is not allocated, and at an unlock of a page that is not locked. The
/// memory refuses such a call and changes nothing, whatever the choice here.
///
/// ```
/// use nearpage_linux::{Memory, OnMisuse};
///
/// // Prints the misuse and ends the process.
/// let strict = OnMisuse::call(|misuse| {
///     eprintln!("memory: {misuse}");
///     std::process::abort();
/// });
/// let memory = Memory::builder().bytes_per_node(16 << 20).on_misuse(strict).build()?;
/// # drop(memory);
/// # Ok::<(), nearpage_linux::MemoryError>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum OnMisuse {
    /// The memory counts it ([`Memory::misuses`](crate::Memory::misuses)) and keeps the first ones
    /// ([`Memory::first_misuses`](crate::Memory::first_misuses)).
    #[default]
    Record,
    /// The memory records it, and the thread panics.
    Panic,
    /// The memory records it and calls this function. The function must not allocate from the same memory or free to it.
    Call(Arc<dyn Fn(&Misuse) + Send + Sync>),
}

impl OnMisuse {
    /// [`Call`](Self::Call) of a closure.
    pub fn call(tell: impl Fn(&Misuse) + Send + Sync + 'static) -> Self {
        Self::Call(Arc::new(tell))
    }
}

impl fmt::Debug for OnMisuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Record => "Record",
            Self::Panic => "Panic",
            Self::Call(_) => "Call",
        })
    }
}

/// Misuses that are kept before they are only counted.
const MISUSES_KEPT: usize = 10;

/// The refused calls so far. It has no lock: a fork could leave that taken.
#[derive(Debug, Default)]
pub(crate) struct MisuseLog {
    count: AtomicU64,
    first: [OnceLock<Misuse>; MISUSES_KEPT],
}

impl MisuseLog {
    /// Records a misuse, and does what was chosen.
    pub fn report(&self, misuse: Misuse, on_misuse: &OnMisuse) {
        let before = self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(place) = self.first.get(before as usize) {
            // Each number is counted once, so the place is empty.
            let _ = place.set(misuse);
        }
        match on_misuse {
            OnMisuse::Record => {}
            OnMisuse::Panic => panic!("nearpage: {misuse}"),
            OnMisuse::Call(tell) => tell(&misuse),
        }
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// The first ones.
    pub fn first(&self) -> Vec<Misuse> {
        self.first.iter().filter_map(OnceLock::get).copied().collect()
    }
}
