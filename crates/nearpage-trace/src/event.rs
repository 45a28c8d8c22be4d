//! Events, and what was counted while they were read.

use std::collections::BTreeMap;
use std::fmt;

use nearpage::{CpuId, Gfp, Order, Pfn};

/// What a mark of a task's cgroup begins with: `nearpage: cgroup PID PATH`.
pub(crate) const CGROUP_MARK: &str = "nearpage: cgroup ";

/// An event of a trace. What it borrows lives until the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent<'a> {
    /// Where its line begins in the text.
    pub offset: u64,
    /// The name of the task; it may have spaces, and is `<...>` where the kernel had forgotten it.
    pub comm: &'a [u8],
    /// The number of the task.
    pub pid: u32,
    /// The CPU that logged it.
    pub cpu: CpuId,
    /// When, by the clock of the trace.
    pub time_ns: u64,
    /// What happened.
    pub event: Event<'a>,
    /// All its fields, as the trace prints them behind the name; empty where the event does not come from a trace's text.
    pub fields: &'a [u8],
}

impl<'a> TraceEvent<'a> {
    /// The text of a field, such as `call_site` of `call_site=kmalloc_trace+0x2a/0xc0`.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&'a [u8]> {
        let is_behind = |byte: &u8| matches!(byte, b' ' | b'\t' | b'(');
        let value = |field: &'a [u8]| field.strip_prefix(name.as_bytes())?.strip_prefix(b"=");
        let found = self.fields.split(is_behind).find_map(value)?;
        Some(found.strip_suffix(b")").unwrap_or(found))
    }
}

/// What happened. Migratetypes are numbers, as the trace has them: 0 unmovable, 1 movable, 2 reclaimable, 3
/// highatomic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// `mm_page_alloc`: a block was handed out.
    Alloc {
        /// The block; `None` if the allocation failed.
        pfn: Option<Pfn>,
        /// The address of its descriptor, or a hash of it.
        page: u64,
        /// Its order.
        order: Order,
        /// The type that was asked for.
        migratetype: u8,
        /// The flags of the request, those with a name that is known.
        gfp: Gfp,
    },
    /// `mm_page_free`: a block came back.
    Free {
        /// The block.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// `mm_page_free_batched`: a block that [`Free`](Self::Free) told of goes back as one of many. It prints
    /// order 0 whatever the order.
    FreeBatched,
    /// `mm_page_alloc_zone_locked`: a block left the free lists of a zone.
    ZoneLocked {
        /// The block.
        pfn: Pfn,
        /// Its order.
        order: Order,
        /// Its type.
        migratetype: u8,
        /// Whether pagesets have a list for such blocks.
        percpu_refill: bool,
    },
    /// `mm_page_pcpu_drain`: a block went from a pageset to its zone.
    PcpuDrain {
        /// The block.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
    /// `mm_page_alloc_extfrag`: a block of another type than wanted was taken.
    Extfrag {
        /// The block.
        pfn: Pfn,
        /// The order that was wanted.
        order: Order,
    },
    /// `nearpage_bulk`: a bulk allocation begins.
    Bulk {
        /// The flags of the request.
        gfp: Gfp,
        /// The node asked for; `None` for the CPU's own.
        node: Option<u32>,
        /// Pages asked for.
        wanted: u64,
    },
    /// `nearpage_bulk_done`: it ended on the same CPU, by the same task.
    BulkDone {
        /// Pages that it gave.
        got: u64,
        /// Addresses of the first of their descriptors, 0 beyond the last that is told.
        pages: [u64; BULK_PAGES_TOLD],
    },
    /// `workqueue_execute_start` of `vmstat_update`: the once-a-second work of the CPU begins.
    Upkeep,
    /// `kmem_cache_alloc`, `kmalloc`: an object was handed out.
    ObjectAlloc {
        /// Its address, or a hash of it; 0 if there was none.
        pointer: u64,
        /// The name of its cache; none for `kmalloc`.
        cache: &'a [u8],
        /// Bytes that it has.
        bytes: u64,
    },
    /// `kmem_cache_free`, `kfree`: an object came back.
    ObjectFree {
        /// Its address, or a hash of it; 0 for nothing.
        pointer: u64,
    },
    /// `tracing_mark_write`: a text that a program wrote into the trace.
    Marker(&'a [u8]),
    /// An event of another kind, by its name.
    Other(&'a [u8]),
}

/// Pages of a bulk allocation that a trace tells.
pub const BULK_PAGES_TOLD: usize = 16;

/// What was met in a trace.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct TraceCounts {
    /// Bytes of text.
    pub bytes: u64,
    /// Events of any kind.
    pub events: u64,
    /// Lines that are no event, without those that begin with #.
    pub other_lines: u64,
    /// Those of them that name an event of pages, and cannot be read as one.
    pub unread_events: u64,
    /// Lines that say that events were lost.
    pub lost_lines: u64,
    /// Events lost, as far as those lines tell.
    pub lost_events: u64,
    /// Allocations that failed.
    pub failed_allocs: u64,
    /// Frees that were logged twice, alone and in a batch: they count once.
    pub batched_frees: u64,
    /// Events whose time is before that of an earlier line.
    pub unsorted: u64,
    /// Names of gfp flags that are not known, and how often each was met.
    pub unknown_gfp_names: BTreeMap<String, u64>,
    /// The release of the kernel, if a heading tells it: `# os release : 6.12.1`, of `perf script --header` and of binary traces.
    pub kernel: Option<String>,
    /// Which of the events of pages were recorded, if a heading tells that not all were.
    pub sampling: Option<Sampling>,
    /// Whether perf script printed it, which tells losses only with `--show-lost-events`.
    pub may_hide_losses: bool,
}

impl TraceCounts {
    /// Events lost; `None` if the trace does not tell how many.
    pub fn lost(&self) -> Option<u64> {
        let is_told = match self.lost_lines {
            0 => !self.may_hide_losses,
            _ => self.lost_events > 0,
        };
        is_told.then_some(self.lost_events)
    }
}

/// Which events were recorded: perf takes a part of them if it is told to (`-F`, `-c`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Sampling {
    /// One of so many.
    OneOf(u64),
    /// So many a second, about.
    PerSecond(u64),
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sampling::OneOf(period) => write!(f, "one event of {period}"),
            Sampling::PerSecond(count) => write!(f, "about {count} events a second"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_have_their_text() {
        let event = |fields| TraceEvent {
            offset: 0,
            comm: b"a",
            pid: 7,
            cpu: CpuId(0),
            time_ns: 0,
            event: Event::Other(b"any"),
            fields,
        };
        let lock = event(b"00000000deadbeef (flags=SPIN|READ)");
        assert_eq!((lock.field("flags"), lock.field("ags")), (Some(&b"SPIN|READ"[..]), None));
        let object = event(b"call_site=do_thing+0x2a/0xc0 ptr=0000000012345678 bytes_req=");
        assert_eq!(object.field("call_site"), Some(&b"do_thing+0x2a/0xc0"[..]));
        assert_eq!((object.field("bytes_req"), object.field("bytes")), (Some(&b""[..]), None));
    }
}
