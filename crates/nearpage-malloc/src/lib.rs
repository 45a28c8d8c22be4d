//! A malloc on the NUMA page allocator of nearpage.
//!
//! ```
//! use nearpage_malloc::NearpageMalloc;
//!
//! #[global_allocator]
//! static GLOBAL: NearpageMalloc = NearpageMalloc;
//!
//! let words = vec!["near"; 1000];
//! assert_eq!(words.len(), 1000);
//! assert!(nearpage_malloc::statistics().bytes_in_use() > 0);
//! ```
//!
//! # How it works
//!
//! A request of at most 32 KiB is rounded up to one of 40 *classes*, four to a doubling. A *span* is a block of pages cut
//! into objects of one class. A thread has a *heap*: for each class a list of free objects of one span, and the other spans
//! of the class that have some. `malloc` pops from the list, `free` pushes to the object's span. Neither locks, and neither
//! has an atomic instruction.
//!
//! An object that another thread's heap owns is put into a *parcel* for that heap. After 64 of them, or when the freeing
//! thread runs out of something, the parcel goes home by one exchange, into the *inbox* of the heap that owns the objects.
//! Few objects of a parcel carry the addresses of the others, which nobody touches on the way.
//!
//! A heap outlives its thread: the next thread takes it over, with all its spans. What a thread frees to a heap without a
//! thread is taken in by the thread that frees.
//!
//! Larger requests are runs of pages, at least sixteen lengths to a doubling, from 4 MiB on mappings of their own. Spans and runs are
//! cut from *chunks* of 4 MiB of nearpage's. Free pages go back to the kernel above a target for what is resident
//! ([`Options::rss`]), and after five seconds in any case.
//!
//! # The map
//!
//! | file | what |
//! |---|---|
//! | `options` | what can be chosen, and its text form |
//! | `classes` | pure: sizes and classes |
//! | `thread` | three words for each thread, without a destructor |
//! | `lock` | a lock that forks can hold |
//! | `boot` | memory for the time before the rest works, and for the rest itself |
//! | `misuse` | wrong frees |
//! | `nodes` | the machine, read in a moment |
//! | `runs` | pure: runs of free pages as bits |
//! | `chunks` | chunks of nearpage's memory, cut page by page |
//! | `pages` | the memory of nearpage below all: spans, large blocks, trims |
//! | `span` | descriptors of spans, owners of addresses |
//! | `link` | free objects as lists |
//! | `parcel` | objects on their way to another heap |
//! | `policy` | the policy of mappings |
//! | `kept` | mappings that were freed a moment ago |
//! | `mapped` | mappings of their own |
//! | `mark` | pure: the byte of an object, and who has it |
//! | `hardened` | the careful way: a byte for each object |
//! | `idle` | the lock of heaps without threads |
//! | `heap` | a heap: lists, spans, inbox |
//! | `pool` | heaps without threads; threads that end |
//! | `usage` | how much is in use, and what is spare |
//! | `background` | what gives memory back when a program is idle |
//! | `state` | start, forks |
//! | `calls` | malloc, free, realloc and the others |
//! | `stats` | counters |
//! | `watch` | calls by CPU, samples |
//!
//! # Features
//!
//! `stats` adds `serve_stats`: the figures of its pages over a unix socket.
//!
//! # Cost
//!
//! * **Time.** A pair of `malloc` and `free` on one thread is two dozen instructions.
//! * **Memory.** At most a quarter of an object is rounding, a tenth on average. A descriptor of 64 bytes stands for 32 KiB.
//!
//! # Limits
//!
//! * One malloc a process. It reads no environment and prints nothing: `nearpage-preload` does.
//! * x86-64 or aarch64 Linux.
//! * A signal handler that interrupts `malloc` must not call it, nor `fork`.
#![warn(missing_debug_implementations)]

mod background;
mod boot;
mod calls;
mod chunks;
mod classes;
mod errno;
mod hardened;
mod heap;
mod idle;
mod kept;
mod link;
mod lock;
mod mapped;
mod mark;
mod misuse;
mod nodes;
mod options;
mod pages;
mod parcel;
mod policy;
mod pool;
mod runs;
mod span;
mod state;
mod stats;
mod thread;
mod usage;
mod watch;

pub use boot::Boot;
pub use calls::{NearpageMalloc, aligned_alloc, calloc, free, malloc, realloc, trim, usable_size};
pub use classes::{CLASS_SIZE_MAX, CLASSES, class_size};
pub use misuse::{Misuse, MisuseKind};
#[cfg(feature = "stats")]
pub use nearpage_linux::{StatsError, StatsServer};
pub use options::{OptionError, Options, Policy};
pub use state::{StartError, absent_nodes, start, started_with};
#[cfg(feature = "stats")]
pub use stats::serve_stats;
pub use stats::{ClassStatistics, Statistics, statistics};

/// The example of the book, run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/src/guides/malloc.md")]
mod book {}
