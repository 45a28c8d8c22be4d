//! Traces of the page allocator as text: what a kernel logged, event by event.
//!
//! ```text
//! bytes --lines--> head (who, where, when) --fields--> Event
//! ```
//!
//! Three tools write the same events with other heads: ftrace's own `trace` file, `trace-cmd report` and
//! `perf script`. [`read_trace`] tells them apart line by line. It streams: it keeps one buffer, the names of gfp
//! flags that it met, and counts; an event borrows from the buffer.
//!
//! **What is an error.** A line that no tool writes in a text (control characters), an event of the page
//! allocator whose fields are not those of any kernel, and a text without any event, each with the offset of
//! its byte. Other lines (headings, stacks, events of other kinds) are counted and left.

mod error;
mod event;
mod fields;
mod gfp;
mod head;
mod read;
pub mod record;

pub use error::TraceError;
pub use event::{Event, TraceCounts, TraceEvent};
pub use read::{read_trace, unpacked};
