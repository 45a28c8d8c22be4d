//! What a program does when memory gets short.

use nearpage::platform::{NodeReclaimed, Shortage};
use nearpage::units::PageCount;

/// What a user of memory can do when it gets short. Called with no lock held, from the thread that
/// allocates. The callbacks may free pages and drain, not allocate.
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
    /// A node fell below its low watermark, or a soft limit was passed. Return soon: wake who reclaims. A panic in it is
    /// counted ([`Memory::pressure_panics`](crate::Memory::pressure_panics)), and the request goes on. Without
    /// restartable sequences a bulk request may be at its CPU's pagesets meanwhile: a drain from here finds them busy.
    fn background(&self, shortage: &Shortage) {
        let _ = shortage;
    }

    /// Give back memory now; returns how many pages were freed.
    fn direct(&self, shortage: &Shortage) -> PageCount {
        let _ = shortage;
        PageCount(0)
    }

    /// Give back memory of the node in the shortage, whose turn is before that of a node further away; asked only with
    /// [`node_reclaim_mode`](nearpage::watermark::Settings::node_reclaim_mode).
    fn node(&self, shortage: &Shortage) -> NodeReclaimed {
        let _ = shortage;
        NodeReclaimed::NotTried
    }

    /// The last resort before an allocation fails; returns whether something was freed.
    fn out_of_memory(&self, shortage: &Shortage) -> bool {
        let _ = shortage;
        false
    }
}

/// No pressure callbacks.
#[derive(Debug, Default)]
pub(crate) struct NoPressure;

impl Pressure for NoPressure {}
