//! Traces of the Linux page allocator: text to events, and recordings of a running kernel.
//!
//! # When to use it, and when not
//!
//! [`read_trace`] reads what ftrace, `trace-cmd report` and `perf script` print of the `kmem` events. Use it to look at
//! each allocation, free, refill and drain of a kernel. For counts that a kernel keeps anyway, `/proc/zoneinfo` and
//! `nearpage-bundle` are the shorter way; for a comparison of a trace with a model there is `nearpage-replay`.
//!
//! [`record`] makes a bundle on a live kernel: captures of /proc and /sys, and the trace between them. It needs root and
//! tracefs.
//!
//! # Example
//!
//! ```
//! use nearpage_trace::{Event, TraceError, read_trace};
//!
//! let text = " load-71 [001] ..... 12.000003: mm_page_free: page=1 pfn=0x14a04 order=0\n";
//! let mut freed = Vec::new();
//! let counts = read_trace::<TraceError>("example", text.as_bytes(), |event| {
//!     if let Event::Free { pfn, .. } = event.event {
//!         freed.push((event.time_ns, pfn.0));
//!     }
//!     Ok(())
//! })?;
//! assert_eq!((counts.events, freed), (1, vec![(12_000_003_000, 0x14a04)]));
//! # Ok::<(), TraceError>(())
//! ```
//!
//! # How it works
//!
//! ```text
//! bytes --lines--> head (who, where, when) --fields--> Event
//! ```
//!
//! Three tools write the same events with other heads. [`read_trace`] tells them apart line by line. [`unpacked`] gives it their
//! binary files as text, too: `trace.dat` of trace-cmd and `perf.data` of perf, by the formats of events in them. It streams: it
//! keeps one buffer, the names of gfp flags that it met, and counts; an event borrows from the buffer.
//!
//! **What is an error.** A line that no tool writes in a text (control characters), an event of the page
//! allocator whose fields are not those of any kernel, and a text without any event, each with the offset of
//! its byte. Other lines (headings, stacks, events of other kinds) are counted and skipped.
//!
//! # The modules, bottom to top
//!
//! | modules | own |
//! |---|---|
//! | `event`, `error` | what was met, and what cannot be read |
//! | `head`, `gfp`, `fields`, `lttng` | a line: its head, its flags, its fields; a line of babeltrace |
//! | `binary` | `trace.dat`, `perf.data` and Perfetto's traces, as lines |
//! | `read` | lines of a stream; packed streams |
//! | `scratch` | unnamed files |
//! | [`processes`] | what processes did, first to last, without times |
//! | [`summary`] | who allocates, and what outlives the trace |
//! | [`timeline`] | a trace as tracks, for viewers |
//! | [`record`] | a recording: the target, the instance in the kernel, the captures, the bundle |
//!
//! # Cost and limits
//!
//! Reading takes one buffer of 1 MiB, whatever the length of the trace; a line may not be longer. The events are those of
//! Linux 6.1 to 6.18. A recording takes up to 1/32 of memory for the kernel's buffers; events beyond are lost and
//! counted. It was run on 6.1, 6.12 and 6.18, x86-64, and on 6.1 and 6.12, aarch64.
#![warn(missing_debug_implementations)]

mod binary;
mod error;
mod event;
mod fields;
mod gfp;
mod head;
mod lttng;
pub mod processes;
mod read;
#[cfg(unix)]
pub mod record;
mod scratch;
pub mod summary;
pub mod timeline;

pub use binary::{CTF_NOT_READ, Symbols};
pub use error::TraceError;
pub use event::{BULK_PAGES_TOLD, Event, Sampling, TraceCounts, TraceEvent};
pub use read::{begins_trace, read_trace, read_trace_with_frames, unpacked, unpacked_within};
pub use scratch::Scratch;
#[cfg(unix)]
pub use scratch::{MakeFile, make_scratch_files_by};
