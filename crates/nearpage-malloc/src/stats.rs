//! Counters, summed when somebody asks.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::boot;
use crate::classes::{CLASSES, class_size};
use crate::heap::node_of;
use crate::lock;
use crate::mapped;
use crate::misuse;
use crate::pages;
use crate::pool;
use crate::span::{self, Kind, NO_OWNER};
use crate::usage;
use crate::watch;

static LARGE: AtomicU64 = AtomicU64::new(0);
static LARGE_FREED: AtomicU64 = AtomicU64::new(0);
static LARGE_BYTES: AtomicU64 = AtomicU64::new(0);
static MAPPED: AtomicU64 = AtomicU64::new(0);
static MAPPED_FREED: AtomicU64 = AtomicU64::new(0);
static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

pub(crate) fn count_large(size: usize) {
    LARGE.fetch_add(1, Ordering::Relaxed);
    LARGE_BYTES.fetch_add(size as u64, Ordering::Relaxed);
}

pub(crate) fn count_large_free() {
    LARGE_FREED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn count_mapped(size: usize) {
    MAPPED.fetch_add(1, Ordering::Relaxed);
    MAPPED_BYTES.fetch_add(size as u64, Ordering::Relaxed);
}

pub(crate) fn count_mapped_free() {
    MAPPED_FREED.fetch_add(1, Ordering::Relaxed);
}

/// What a class has, and did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ClassStatistics {
    /// Objects that were handed to threads' lists: `malloc` calls, and at most a list of each thread more.
    pub allocated: u64,
    /// Objects that are in use or on a thread's list.
    pub in_use: u64,
    /// Spans taken so far.
    pub spans_taken: u64,
    /// Spans that it has.
    pub spans: u64,
    /// Bytes of these spans.
    pub span_bytes: u64,
}

/// What the malloc has, and did.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Statistics {
    /// Classes, by rising size.
    pub classes: [ClassStatistics; CLASSES],
    /// Large blocks allocated, and the bytes asked for.
    pub large: u64,
    /// Bytes that these asked for, in all.
    pub large_bytes: u64,
    /// Large blocks freed.
    pub large_freed: u64,
    /// Large blocks in use, and the bytes of their pages.
    pub large_in_use_bytes: u64,
    /// Mappings made, in all.
    pub mapped: u64,
    /// Bytes that these asked for, in all.
    pub mapped_bytes: u64,
    /// Mappings freed.
    pub mapped_freed: u64,
    /// Bytes of mappings in use.
    pub mapped_in_use_bytes: u64,
    /// Objects that another thread than the owner of the heap freed.
    pub freed_elsewhere: u64,
    /// Those of them whose owner was of another node.
    pub freed_on_other_node: u64,
    /// Batches of such objects.
    pub batches: u64,
    /// Heaps: the most threads at a time.
    pub heaps: u64,
    /// Bytes of the range for what the malloc stands on.
    pub boot_bytes: u64,
    /// Bytes that are free, and that the kernel does not have yet.
    pub free_resident_bytes: u64,
    /// Bytes that spans, blocks and what is free may have together: the target (`rss`) times the most that was in use in the last
    /// 0.4 to 0.8 s.
    pub target_bytes: u64,
    /// Times that free memory was given back to the kernel.
    pub trims: u64,
    /// Wrong frees.
    pub misuses: u64,
    /// Pages that a node's spans and blocks have, by node, in the order of nearpage's nodes.
    pub bytes_by_node: [u64; 16],
    /// Bytes of spans that lie on another node than the heap that owns them.
    pub wrong_node_bytes: u64,
    /// Pages that came from elsewhere than the nearest node, by reason, in the order of [`Reason::ALL`](nearpage::Reason::ALL).
    pub elsewhere: [u64; nearpage::Reason::COUNT],
    /// Objects handed to threads and blocks, by CPU; CPUs from 63 on together.
    pub by_cpu: [u64; 64],
    /// Times that a thread waited for a lock of the malloc's.
    pub lock_waits: u64,
    /// How long in all, in nanoseconds.
    pub lock_wait_ns: u64,
}

impl Statistics {
    /// Bytes of objects and blocks in use, rounding included.
    pub fn bytes_in_use(&self) -> u64 {
        let small = self.classes.iter().enumerate();
        let small: u64 = small.map(|(class, of)| of.in_use * class_size(class) as u64).sum();
        small + self.large_in_use_bytes + self.mapped_in_use_bytes + self.boot_bytes
    }

    /// Bytes of spans, blocks and mappings, used or not.
    pub fn bytes_held(&self) -> u64 {
        let small: u64 = self.classes.iter().map(|of| of.span_bytes).sum();
        small + self.large_in_use_bytes + self.mapped_in_use_bytes + self.boot_bytes
    }

    /// Allocations so far.
    pub fn allocations(&self) -> u64 {
        self.classes.iter().map(|of| of.allocated).sum::<u64>() + self.large + self.mapped
    }
}

/// Sums all counters. While other threads allocate, the sums are of slightly different moments.
///
/// ```
/// let block = nearpage_malloc::malloc(1000);
/// assert!(nearpage_malloc::statistics().bytes_in_use() >= 1000);
/// // SAFETY: malloc gave it, and nobody uses it any more.
/// unsafe { nearpage_malloc::free(block) };
/// ```
pub fn statistics() -> Statistics {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (_, mapped_in_use) = mapped::live();
    let (lock_waits, lock_wait_ns) = lock::waits();
    let mut all = Statistics {
        classes: [ClassStatistics::default(); CLASSES],
        large: get(&LARGE),
        large_bytes: get(&LARGE_BYTES),
        large_freed: get(&LARGE_FREED),
        large_in_use_bytes: 0,
        mapped: get(&MAPPED),
        mapped_bytes: get(&MAPPED_BYTES),
        mapped_freed: get(&MAPPED_FREED),
        mapped_in_use_bytes: mapped_in_use as u64,
        freed_elsewhere: 0,
        batches: 0,
        heaps: 0,
        boot_bytes: boot::used() as u64,
        free_resident_bytes: usage::dirty(),
        target_bytes: usage::target(),
        trims: pages::trims() as u64,
        misuses: misuse::count(),
        bytes_by_node: [0; 16],
        freed_on_other_node: 0,
        wrong_node_bytes: 0,
        elsewhere: pages::fallbacks(),
        by_cpu: watch::by_cpu(),
        lock_waits,
        lock_wait_ns,
    };
    for heap in pool::all() {
        // SAFETY: heaps are never given back, and counters are for all threads.
        let counts = unsafe { &(*heap).counts };
        all.heaps += 1;
        all.freed_elsewhere += get(&counts.freed_elsewhere);
        all.batches += get(&counts.batches);
        all.freed_on_other_node += get(&counts.freed_on_other_node);
        for (class, of) in all.classes.iter_mut().enumerate() {
            of.allocated += get(&counts.handed[class]);
            of.spans_taken += get(&counts.spans[class]);
        }
    }
    add_spans(&mut all);
    all
}

/// Serves the figures of the pages below the malloc on a unix socket, as `nearpage_linux::Memory::serve_stats` does: zones,
/// free blocks, what CPUs cache. It starts the malloc if nobody did.
///
/// # Errors
/// [`StatsError`](nearpage_linux::StatsError); without a memory ([`StartError::Memory`](crate::StartError)) also.
#[cfg(feature = "stats")]
pub fn serve_stats(
    path: impl AsRef<std::path::Path>,
) -> Result<nearpage_linux::StatsServer, nearpage_linux::StatsError> {
    let path = path.as_ref();
    let served = if crate::state::is_ready() { pages::serve_stats(path) } else { None };
    served.unwrap_or_else(|| {
        let error = std::io::Error::other("the malloc has no memory of nearpage");
        Err(nearpage_linux::StatsError::Refused { path: path.to_owned(), error })
    })
}

/// Looks at all units that were ever used.
fn add_spans(all: &mut Statistics) {
    let is_local = pages::is_local();
    for unit in pages::used_units() {
        // SAFETY: the unit is one of the tables'; what other threads write there meanwhile are single words.
        let (kind, pages, used, class, node) = unsafe {
            let span = span::span(unit);
            let used = (&raw const (*span).used).read_volatile();
            ((*span).kind, (*span).pages, used, (*span).class as usize, (*span).node as usize)
        };
        let bytes = u64::from(pages) << 12;
        match kind {
            // SAFETY: as above.
            Kind::Small if unsafe { span::owner(unit) } != NO_OWNER && class < CLASSES => {
                let of = &mut all.classes[class];
                of.spans += 1;
                of.span_bytes += bytes;
                of.in_use += u64::from(used);
                // SAFETY: as above.
                if is_local && node_of(unsafe { span::owner(unit) }) as usize != node {
                    all.wrong_node_bytes += bytes;
                }
            }
            Kind::Large => all.large_in_use_bytes += bytes,
            _ => continue,
        }
        if let Some(sum) = all.bytes_by_node.get_mut(node) {
            *sum += bytes;
        }
    }
}
