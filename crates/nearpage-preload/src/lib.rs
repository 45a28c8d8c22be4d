//! The malloc of nearpage for any program: the symbols of C and C++.
//!
//! The library is preloaded (`LD_PRELOAD`) or linked. It starts at the first allocation, which comes before `main` and
//! before constructors. Until it runs, and for what it stands on, allocations come from [`nearpage_malloc::Boot`], which is
//! also its `#[global_allocator]`: nothing that Rust's library allocates here comes back.
//!
//! It reads three variables: `NEARPAGE_MALLOC`, options in the form of [`nearpage_malloc::Options::parse`],
//! `NEARPAGE_MALLOC_REPORT`, the file to which the report is appended, and `NEARPAGE_STATS`, the unix socket on which figures of
//! its pages are served (`%p` stands for the id of the process). A program with more rights than its user (setuid) ignores
//! all three.
//!
//! # The map
//!
//! | file | what |
//! |---|---|
//! | `environment` | the variables, read without an allocation |
//! | `message` | a line on standard error, without an allocation |
//! | `report` | what was counted, written when the process ends |
//! | `start` | the start |
//! | `stats` | figures over a unix socket |
//! | `c`, `cpp` | the symbols |
//! | `exit` | `_exit`, which skips what else is done at the end |

mod environment;
mod message;
mod report;
mod start;
mod stats;

#[cfg(feature = "symbols")]
mod c;
#[cfg(feature = "symbols")]
mod cpp;
#[cfg(feature = "symbols")]
mod exit;

/// What Rust's library allocates in here.
#[cfg(feature = "symbols")]
#[global_allocator]
static INSIDE: nearpage_malloc::Boot = nearpage_malloc::Boot;
