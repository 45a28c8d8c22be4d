//! What a replay takes of the events of a trace.

use nearpage::{CpuId, Gfp};
use nearpage_trace::TraceEvent;

/// Pages of one bulk allocation that are believed.
pub(crate) const BULK_PAGES_MOST: u64 = 1 << 16;

/// A task on a CPU at a time of the trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Actor {
    /// The CPU.
    pub(crate) cpu: CpuId,
    /// The task.
    pub(crate) pid: u32,
    /// The time.
    pub(crate) now_ns: u64,
}

impl Actor {
    /// Who an event is of.
    pub(crate) fn of(event: &TraceEvent<'_>) -> Actor {
        Actor { cpu: event.cpu, pid: event.pid, now_ns: event.time_ns }
    }
}

/// The flags with the migratetype of the event: a name that is not known may have told it.
pub(crate) fn with_type(gfp: Gfp, migratetype: u8) -> Gfp {
    let of = match migratetype {
        1 => Gfp::MOVABLE,
        2 => Gfp::RECLAIMABLE,
        _ => Gfp(0),
    };
    gfp.difference(Gfp::MOVABLE.union(Gfp::RECLAIMABLE)).union(of)
}
