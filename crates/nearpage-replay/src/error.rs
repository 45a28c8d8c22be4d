//! Why a bundle cannot be replayed.

use nearpage::{BuildError, SettingError, TopologyError};
use nearpage_bundle::BundleError;
use nearpage_machine::work::Stopped;
use nearpage_slab::SlabBuildError;
use nearpage_trace::TraceError;

/// A bundle that cannot be replayed, or a replay that was stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// Its captures cannot be read.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// Its trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Something is missing that a replay needs.
    #[error("{input}: {what}, expected {expected}")]
    Incomplete {
        /// The bundle, or a file of it.
        input: String,
        /// What is missing.
        what: String,
        /// What is needed.
        expected: &'static str,
    },
    /// The frames of a trace are not those of the machine beside it.
    #[error(
        "{input}: byte {offset}: {foreign} of {blocks} blocks lie in no zone of before/zoneinfo: the trace is of another \
         machine or kernel, expected frames between start_pfn and start_pfn + spanned of a zone"
    )]
    OtherMachine {
        /// The trace.
        input: String,
        /// The line of the first such block.
        offset: u64,
        /// Blocks in no zone.
        foreign: u64,
        /// All blocks.
        blocks: u64,
    },
    /// The CPUs of a trace are not those of the machine beside it.
    #[error(
        "{input}: {foreign} of {blocks} blocks were moved by CPUs that before/sysfs does not have: the trace is of another \
         machine, expected the CPUs of cpu/online"
    )]
    OtherCpus {
        /// The trace.
        input: String,
        /// Events of blocks on CPUs that the machine does not have.
        foreign: u64,
        /// Events of all blocks.
        blocks: u64,
    },
    /// A trace that was given for a bundle, and is of another recording.
    #[error(
        "{input}: {of_trace} {what} in the trace, {of_bundle} in the captures: the trace is of another machine or recording, \
         expected the trace of what happened between before and after"
    )]
    OtherRecording {
        /// The trace.
        input: String,
        /// What was counted on both sides.
        what: &'static str,
        /// How many the trace has.
        of_trace: u64,
        /// How many the captures or samples tell of.
        of_bundle: u64,
    },
    /// A trace that begins with a marker and ends before the other.
    #[error(
        "{input}: byte {offset}: the trace ends without the marker nearpage: after begin: it is cut off, expected all of it, \
         or lost_events in meta.json"
    )]
    CutOff {
        /// The trace.
        input: String,
        /// Its length.
        offset: u64,
    },
    /// A trace without what a replay is driven by.
    #[error(
        "{input}: byte {offset}: the trace ends without an event of a block, expected kmem:mm_page_alloc and \
         kmem:mm_page_free"
    )]
    NoBlocks {
        /// The trace.
        input: String,
        /// Its length.
        offset: u64,
    },
    /// A trace without one allocation or free of a page.
    #[error(
        "{input}: none of its {events} events allocates or frees a page ({names}), expected kmem:mm_page_alloc and \
         kmem:mm_page_free: `nearpage record`, `perf record -a -e kmem:mm_page_alloc -e kmem:mm_page_free` and `trace-cmd record \
         -e kmem` record them"
    )]
    NotOfAllocator {
        /// The trace.
        input: String,
        /// Its events.
        events: u64,
        /// Those that are most.
        names: String,
    },
    /// A trace without captures, and without a machine to play it on.
    #[error(
        "{input}: a trace without captures of its machine, expected --machine MACHINE: the machine that it was recorded on, or \
         another"
    )]
    NoMachine {
        /// The trace.
        input: String,
    },
    /// Tunables that Linux would refuse on such a machine.
    #[error("{input}: {source}, expected a machine and settings that Linux accepts")]
    Settings {
        /// The bundle.
        input: String,
        /// What is wrong.
        source: SettingError,
    },
    /// Nodes, CPUs or distances that no machine has.
    #[error("{input}: {source}")]
    Topology {
        /// The bundle.
        input: String,
        /// What is wrong.
        source: TopologyError,
    },
    /// The core cannot be made for such a machine.
    #[error("{input}: {source}")]
    Build {
        /// The bundle.
        input: String,
        /// Why not.
        source: BuildError,
    },
    /// The slab allocator cannot be made for such a machine.
    #[error("{input}: {source}")]
    Slab {
        /// The bundle.
        input: String,
        /// Why not.
        source: SlabBuildError,
    },
    /// A point of a bound that no pageset of the machine can have.
    #[error(
        "{input}: {kept}:{moved} is no point of the bound, expected H:K, pages for each CPU and pages a hold, each from 1 to \
         {managed}, the pages of the machine"
    )]
    Point {
        /// The bundle.
        input: String,
        /// H.
        kept: u64,
        /// K.
        moved: u64,
        /// Pages of all zones.
        managed: u64,
    },
    /// Rules of objects were asked for, and the trace has no slab events.
    #[error(
        "{input}: the trace has no slab events, expected a bundle of nearpage record --slab for rules of objects"
    )]
    NoObjects {
        /// The bundle.
        input: String,
    },
    /// A twin that there cannot be.
    #[error("{input}: no twin has {what}, expected {expected}")]
    Twin {
        /// The bundle.
        input: String,
        /// What was asked for.
        what: String,
        /// What is possible.
        expected: String,
    },
    /// A twin that cannot be written.
    #[error("{output}: {error}, expected a new folder that can be written")]
    Unwritten {
        /// The folder.
        output: String,
        /// What the system says.
        error: std::io::Error,
    },
    /// The observer asked the replay to stop.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl ReplayError {
    /// Something is missing that a replay needs.
    pub(crate) fn incomplete(input: &str, what: String, expected: &'static str) -> ReplayError {
        ReplayError::Incomplete { input: input.into(), what, expected }
    }
}
