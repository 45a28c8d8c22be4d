//! What a program does when memory gets short.

use std::cell::Cell;

use nearpage::PageCount;
use nearpage::platform::{NodeReclaimed, Shortage};

/// Callbacks for when memory gets short. The allocating thread calls them and holds no lock of the memory. They may free
/// pages and drain caches. What they allocate themselves is given, or refused at once: no callback is called from a callback of
/// the same thread.
///
/// [`Reclaim`](crate::Reclaim) is one with shrinkers and a background thread.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// use nearpage::platform::Shortage;
/// use nearpage_linux::{Memory, Pressure};
///
/// /// Counts shortages.
/// #[derive(Clone, Default)]
/// struct Alarm(Arc<AtomicU64>);
///
/// impl Pressure for Alarm {
///     fn background(&self, _shortage: &Shortage) {
///         self.0.fetch_add(1, Ordering::Relaxed);
///     }
/// }
///
/// let alarm = Alarm::default();
/// let memory = Memory::builder().bytes_per_node(4 << 20).pressure(alarm.clone()).build()?;
/// let mut blocks = Vec::new();
/// while let Ok(block) = memory.alloc_pages(1) {
///     blocks.push(block);
/// }
/// assert!(alarm.0.load(Ordering::Relaxed) > 0);
/// # Ok::<(), nearpage_linux::MemoryError>(())
/// ```
pub trait Pressure: Send + Sync {
    /// A node fell below its low watermark, or more than a soft limit is in use. This should only wake a thread that
    /// reclaims, and return. If it panics, the memory counts that
    /// ([`Memory::pressure_panics`](crate::Memory::pressure_panics)) and the request goes on. Without restartable sequences a
    /// drain from here may find this CPU's caches busy: a bulk request may be using them.
    fn background(&self, shortage: &Shortage) {
        let _ = shortage;
    }

    /// A request found no memory: free some now. Returns how many pages were freed.
    fn direct(&self, shortage: &Shortage) -> PageCount {
        let _ = shortage;
        PageCount(0)
    }

    /// A request would go to a node further away: free memory of the shortage's node instead. The memory asks only with
    /// [`node_reclaim_mode`](nearpage::Settings::node_reclaim_mode).
    fn node(&self, shortage: &Shortage) -> NodeReclaimed {
        let _ = shortage;
        NodeReclaimed::NotTried
    }

    /// An allocation is about to fail: the last chance to free something. Returns whether that was done.
    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        let _ = shortage;
        false
    }
}

/// Calls what is to free memory, unless this thread is within such a call: who frees memory asks nobody for it.
pub(crate) fn unless_within<R>(call: impl FnOnce() -> R) -> Option<R> {
    thread_local! {
        static IS_WITHIN: Cell<bool> = const { Cell::new(false) };
    }
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            IS_WITHIN.set(false);
        }
    }
    if IS_WITHIN.replace(true) {
        return None;
    }
    let _leave = Leave;
    Some(call())
}

/// No pressure callbacks.
#[derive(Debug, Default)]
pub(crate) struct NoPressure;

impl Pressure for NoPressure {}
