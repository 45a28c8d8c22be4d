//! The policy as the kernel knows it, for mappings that have their pages from the kernel and not from nearpage.

use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::options::{Options, Policy};

/// In place of a mode: the kernel's default, the node of the thread that touches a page first.
const NO_MODE: i32 = -1;

static MODE: AtomicI32 = AtomicI32::new(NO_MODE);
static NODES: AtomicU64 = AtomicU64::new(0);
static ADVICE: AtomicI32 = AtomicI32::new(0);

/// Notes what mappings get. `nodes` are the kernel's numbers, a bit each; none for emulated nodes, which it does not know.
pub(crate) fn note(options: &Options, nodes: u64) {
    let mode = match options.policy {
        Policy::Local => NO_MODE,
        Policy::Preferred => libc::MPOL_PREFERRED,
        Policy::Bind => libc::MPOL_BIND,
        Policy::Interleave => libc::MPOL_INTERLEAVE,
    };
    if nodes != 0 {
        NODES.store(nodes, Ordering::Relaxed);
        MODE.store(mode, Ordering::Relaxed);
    }
    let advice = match options.huge {
        Some(true) => libc::MADV_HUGEPAGE,
        Some(false) => libc::MADV_NOHUGEPAGE,
        None => 0,
    };
    ADVICE.store(advice, Ordering::Relaxed);
}

/// Applies it to a new mapping. What the kernel refuses is left out: a policy never fails an allocation.
pub(crate) fn apply(start: *mut u8, bytes: usize) {
    let (mode, nodes) = (MODE.load(Ordering::Relaxed), NODES.load(Ordering::Relaxed));
    // SAFETY: the range is a mapping of the caller's, which nobody has touched; the mask has 64 bits, and the kernel looks at
    // one less than it is told.
    unsafe {
        if mode != NO_MODE {
            libc::syscall(libc::SYS_mbind, start, bytes, mode, &raw const nodes, 65, 0);
        }
        let advice = ADVICE.load(Ordering::Relaxed);
        if advice != 0 {
            libc::madvise(start.cast(), bytes, advice);
        }
    }
}
