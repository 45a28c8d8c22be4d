//! The start, and forks.
//!
//! The first allocation starts everything, unless the program did before by [`start`]. What is allocated meanwhile comes from
//! [`Boot`](crate::Boot), also by other threads: nobody waits.
//!
//! # Forks
//!
//! A fork takes, in this order: the pool, the chunks, the tables of mappings, nearpage's memory, the boot range. Handlers run before the
//! fork in the reverse order of their registration, so the boot range registers before the memory is made, and the other two
//! after. The child has the heap of the thread that forked; heaps of other threads stay as they were, and what the child
//! frees of theirs waits in their inboxes.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use nearpage_linux::MemoryError;

use crate::background;
use crate::boot;
use crate::chunks::CHUNKS;
use crate::idle::POOL;
use crate::kept::KEPT;
use crate::link;
use crate::lock::Lock;
use crate::mapped;
use crate::misuse;
use crate::options::Options;
use crate::pages;
use crate::pool;
use crate::thread::{self, INSIDE};
use crate::usage;
use crate::watch;

const NOT_YET: u32 = 0;
const STARTING: u32 = 1;
const READY: u32 = 2;
const FAILED: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(NOT_YET);
static OPTIONS: OnceLock<Options> = OnceLock::new();
/// Whether the forking thread was inside before the fork. Only between the handlers of one fork.
static WAS_INSIDE: AtomicU32 = AtomicU32::new(0);

/// Why nothing was started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// It runs already: options must come before the first allocation.
    AlreadyStarted,
    /// There is no memory to be had. All allocations come from a simple range of addresses, behind a lock.
    Memory(MemoryError),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted => f.write_str(
                "the malloc runs already; options are accepted before the first allocation",
            ),
            Self::Memory(error) => {
                write!(f, "{error}; all allocations come from a simple allocator behind a lock")
            }
        }
    }
}

impl std::error::Error for StartError {}

/// Starts the malloc with options, before anything was allocated.
///
/// # Errors
/// [`StartError`].
pub fn start(options: Options) -> Result<(), StartError> {
    if STATE.compare_exchange(NOT_YET, STARTING, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return Err(StartError::AlreadyStarted);
    }
    let made = thread::inside(|| {
        // SAFETY: the handlers take and give back locks of this crate.
        unsafe { libc::pthread_atfork(Some(boot_before), Some(boot_after), Some(boot_after)) };
        if let Some(hook) = options.on_misuse {
            misuse::set_hook(hook);
        }
        if let Some(hook) = options.on_sample {
            watch::set_hook(hook);
        }
        pages::make(&options)?;
        if options.background {
            background::install();
        }
        if options.hardened {
            link::harden(random());
            crate::hardened::make_table();
        }
        pool::make_key();
        // SAFETY: as above.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
        let _ = OPTIONS.set(options);
        Ok(())
    });
    STATE.store(if made.is_ok() { READY } else { FAILED }, Ordering::Release);
    made.map_err(StartError::Memory)
}

/// The options in force, once the malloc runs.
pub fn started_with() -> Option<Options> {
    OPTIONS.get().copied()
}

/// Nodes that the options in force name and that are not there, a bit each. Those that are there serve; if none is, the nodes
/// near each thread do.
///
/// ```
/// let block = nearpage_malloc::malloc(1);
/// assert_eq!(nearpage_malloc::absent_nodes(), 0, "the default names none");
/// // SAFETY: malloc gave it, and nobody uses it any more.
/// unsafe { nearpage_malloc::free(block) };
/// ```
pub fn absent_nodes() -> u64 {
    OPTIONS.get().map_or(0, pages::absent)
}

/// Whether the malloc runs; starts it with the defaults if nobody did.
#[inline]
pub(crate) fn is_ready() -> bool {
    STATE.load(Ordering::Acquire) == READY || start_by_default()
}

/// Whether the malloc runs already.
#[inline]
pub(crate) fn runs() -> bool {
    STATE.load(Ordering::Acquire) == READY
}

#[cold]
fn start_by_default() -> bool {
    if STATE.load(Ordering::Relaxed) == NOT_YET {
        let _ = start(Options::new());
    }
    STATE.load(Ordering::Acquire) == READY
}

fn random() -> usize {
    let mut word = 0_usize;
    // SAFETY: the place is there. If the kernel refuses, addresses that it chose at random are in the key.
    unsafe { libc::syscall(libc::SYS_getrandom, &raw mut word, size_of::<usize>(), 1) };
    word ^ (&raw const word).addr() ^ thread::token().rotate_left(29)
}

extern "C" fn boot_before() {
    boot::RANGE.take();
}

extern "C" fn boot_after() {
    // SAFETY: the same thread took it before the fork; of a child it is the only one.
    unsafe { boot::RANGE.release() };
}

extern "C" fn before() {
    POOL.take();
    CHUNKS.iter().for_each(Lock::take);
    mapped::TABLE.take();
    KEPT.take();
    let thread = thread::this();
    // SAFETY: the words are this thread's.
    unsafe {
        WAS_INSIDE.store((*thread).flags & INSIDE, Ordering::Relaxed);
        // What handlers allocate must not come back to a memory that they hold.
        (*thread).flags |= INSIDE;
    }
}

extern "C" fn after() {
    let thread = thread::this();
    // SAFETY: the words are this thread's, and the same thread took the locks before the fork.
    unsafe {
        (*thread).flags = (*thread).flags & !INSIDE | WAS_INSIDE.load(Ordering::Relaxed);
        KEPT.release();
        mapped::TABLE.release();
        CHUNKS.iter().for_each(|chunks| chunks.release());
        POOL.release();
    }
}

extern "C" fn after_in_child() {
    usage::is_forked();
    after();
}
