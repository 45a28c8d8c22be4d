//! The malloc of nearpage for any program: the symbols of C and C++.
//!
//! The library is preloaded (`LD_PRELOAD`) or linked. It starts at the first allocation, which comes before `main` and
//! before constructors. Until it runs, and for what it stands on, allocations come from [`nearpage_malloc::Boot`], which is
//! also its `#[global_allocator]`: nothing that Rust's library allocates here comes back.
//!
//! It reads two variables: `NEARPAGE_MALLOC`, options in the form of [`nearpage_malloc::Options::parse`], and
//! `NEARPAGE_MALLOC_REPORT_FD`, the descriptor that `nearpage run` opened for the report. A program with more rights than
//! its user (setuid) ignores both.
//!
//! # The map
//!
//! | file | what |
//! |---|---|
//! | `environment` | the variables, read without an allocation |
//! | `message` | a line on standard error, without an allocation |
//! | `report` | what was counted, written when the process ends |
//! | `start` | the start |
//! | `c`, `cpp` | the symbols |
//! | `exit` | `_exit`, which skips what else is done at the end |

mod environment;
mod message;
mod report;
mod start;

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
