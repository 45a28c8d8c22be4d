//! Recording: what the page allocator of the running kernel does while something runs, as a bundle.
//!
//! ```text
//! tracing on ─ before ─ state ─ command ──────────── cmdend ─ quiet tail ─ state ─ after ─ tracing off ─ bundle
//!              └ hot files, between two markers      └─ samples of zoneinfo, each between two markers
//! ```
//!
//! A [`Recorder`] records a [`Target`] into an [`Output`]; a [`Control`] stops it from another thread or a handler of a
//! signal. The recorder installs no handler itself.
//!
//! The kernel's rings are taken to a file when one is half full, as they are, so that memory is bounded however long it
//! lasts; their text is made at the end. What a full ring loses is counted, and ends nothing.
//!
//! The recorder is in its own trace, so it does as little as it can while tracing is on. It forks nothing but the
//! command, keeps its files open and has read them once, so that their buffers exist, and writes into memory that
//! it has touched before. What changes slowly is read before tracing begins and after it ends.
//!
//! [`Instance`] owns what is in the kernel, and removes it however the recording ends. What a recorder left
//! that was killed is removed by the next one. The `sh` script [`SCRIPT`] does the same with a shell's means.

mod archive;
mod capture;
mod cgroups;
mod compress;
mod control;
mod count;
mod error;
mod instance;
mod kernel_log;
mod kernel_state;
mod leftovers;
mod meta;
mod output;
mod probes;
mod recorder;
mod redact;
mod rings;
mod session;
mod surroundings;
mod system;
mod target;
mod tracefs;
mod windows;

pub use control::Control;
pub use error::{Kept, OutputError, RecordError};
pub use instance::EventChoice;
pub use output::Output;
pub use recorder::{Contents, Limits, Recorded, Recorder};
pub use session::{Ended, Gauge, Progress};
pub use target::Target;

#[cfg(doc)]
use instance::Instance;

/// A POSIX shell script that records as this module does.
pub const SCRIPT: &str = include_str!("record/record.sh");
