//! Why a kernel refused memory: page allocation failures, OOM reports, stalls and SLUB failures out of a kernel's log,
//! each judged by the rules of the page allocator, on the numbers that the report itself has.
//!
//! Use it to read the log of a machine that is gone, from Linux 3.x to 7.x, 32 and 64 bit. It matches no phrases for its
//! verdicts: the watermark check of the core says of each zone whether it gives the block, and tries what would have
//! helped. It cannot say what the report does not have, and lists that.
//!
//! ```
#![doc = include_str!("../examples/explain.rs")]
//! ```
//!
//! # Map
//!
//! | to | use |
//! |---|---|
//! | read the reports of a log | [`Reader`], [`Report`] |
//! | ask which rule refused, zone by zone | [`Verdict`], [`Rule`], [`ZoneVerdict`] |
//! | show all of it | [`Explanation::head`], [`Explanation::paragraphs`] |
//! | ask what is behind it, and what would have helped | [`Explanation`], [`Cause`], [`Remedy`] |
//! | take texts of the machine that stand beside reports | [`Beside`], [`Reader::beside`], [`Explanation::with`] |
//!
//! ```text
//! transport --> prefix, anchor --> joined --> piece (head, rows, mode) --> open --> reader --> report
//! report --> zones --> verdict (judge, held) --> why (filled, cause), remedy (marks), beside --> explanation --> words
//! ```
//!
//! # Cost and limits
//!
//! The log is streamed: memory is bounded by the unfinished reports, 16 at most. A report is a moment: the kernel prints
//! its numbers after the refusal, and not of one instant. Sizes of pages are those of the smallest free blocks.
#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod anchor;
mod beside;
mod cause;
mod explanation;
mod fields;
mod figure;
mod filled;
mod head;
mod held;
mod joined;
mod judge;
mod marks;
mod mode;
mod open;
mod piece;
mod prefix;
mod reader;
mod remedy;
mod report;
mod rows;
mod transport;
mod verdict;
mod why;
mod words;
mod zones;

pub use beside::{Beside, BesideNode, BesideZone};
pub use cause::{Cause, CauseKind};
pub use explanation::Explanation;
pub use figure::Figure;
pub use held::NoProgress;
pub use judge::{Answer, Judgement, Rule, ZoneVerdict};
pub use reader::{ReadError, Reader, UNREAD_MOST, Unread};
pub use remedy::{Change, Effect, Remedy};
pub use report::{
    FreeBlocks, Kind, Limit, Memcg, Mode, NodeRow, Report, SlabCache, Slub, TASKS_MOST, Task,
    UNREADABLE_MOST, Unreadable, Victim, ZoneRow,
};
pub use verdict::{Confinement, Verdict};
pub use words::Paragraph;
pub use zones::{Excluded, Mark};
