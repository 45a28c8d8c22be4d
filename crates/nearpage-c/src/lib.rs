//! The C interface of nearpage.
//!
//! Each function does one thing: it turns arguments of C into those of [`nearpage_linux`], calls it, and turns the result
//! into 0 or a negative errno. `include/nearpage.h` is made from the comments here, so they address who writes C.
//!
//! # The map
//!
//! | file | what |
//! |---|---|
//! | `error` | errno and message of what failed |
//! | `options`, `memory` | a memory: options, making and ending it |
//! | `growing` | growth before reclaim |
//! | `pages`, `policy` | blocks of pages, in bulk, by a policy; limits |
//! | `objects`, `large` | caches of objects; bytes of any size |
//! | `locks` | locks of pages |
//! | `reclaim` | callbacks that free memory, and the thread that calls them |
//! | `stats` | counters and the kernel's texts |
//!
//! # Cost
//!
//! A call from C takes a jump and a pointer to the result more than the same call from Rust.
//!
//! # Limits
//!
//! A workspace that is built with `panic = "abort"`, as the release profile here, ends the process at a panic. Built to
//! unwind, a function returns `-ENOTRECOVERABLE` instead.
#![warn(missing_debug_implementations)]

mod error;
mod growing;
mod large;
mod locks;
mod memory;
mod objects;
mod options;
mod pages;
mod policy;
mod reclaim;
mod stats;

pub use error::{nearpage_last_error, nearpage_version};
pub use locks::{
    nearpage_page_lock, nearpage_page_lock_timeout, nearpage_page_trylock, nearpage_page_unlock,
    nearpage_page_wait,
};
pub use memory::{nearpage_memory, nearpage_memory_create, nearpage_memory_destroy};
pub use objects::{
    nearpage_bytes_alloc, nearpage_bytes_free, nearpage_bytes_realloc, nearpage_bytes_usable,
    nearpage_cache, nearpage_cache_alloc, nearpage_cache_alloc_bulk, nearpage_cache_create,
    nearpage_cache_destroy, nearpage_cache_free, nearpage_cache_free_bulk,
};
pub use options::{
    NEARPAGE_ANY_NODE, NEARPAGE_BIND_ADVISORY, NEARPAGE_BIND_NONE, NEARPAGE_BIND_STRICT,
    NEARPAGE_HUGE_ADVISED, NEARPAGE_HUGE_EXPLICIT, NEARPAGE_HUGE_NEVER, NEARPAGE_MEMORY_HARDENED,
    NEARPAGE_MEMORY_NO_RSEQ, NEARPAGE_MEMORY_READS_ENVIRONMENT, NEARPAGE_NOWAIT, NEARPAGE_THISNODE,
    NEARPAGE_ZERO, nearpage_memory_options,
};
pub use pages::{
    nearpage_in_use, nearpage_node_of, nearpage_pages_alloc, nearpage_pages_alloc_bulk,
    nearpage_pages_free, nearpage_pages_free_bulk, nearpage_set_limits,
};
pub use policy::{
    NEARPAGE_POLICY_BIND, NEARPAGE_POLICY_INTERLEAVE, NEARPAGE_POLICY_LOCAL,
    NEARPAGE_POLICY_PREFERRED_MANY, NEARPAGE_POLICY_WEIGHTED_INTERLEAVE, nearpage_pages_alloc_by,
    nearpage_policy, nearpage_policy_create, nearpage_policy_destroy, nearpage_policy_options,
};
pub use reclaim::{nearpage_reclaim_start, nearpage_shrink_fn, nearpage_shrinker_add};
pub use stats::{
    NEARPAGE_TEXT_BUDDYINFO, NEARPAGE_TEXT_FALLBACKS, NEARPAGE_TEXT_NUMASTAT,
    NEARPAGE_TEXT_PAGETYPEINFO, NEARPAGE_TEXT_SLABINFO, NEARPAGE_TEXT_VMSTAT,
    NEARPAGE_TEXT_ZONEINFO, nearpage_node_stats, nearpage_stats, nearpage_stats_serve,
    nearpage_text, nearpage_trim,
};
