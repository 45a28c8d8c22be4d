//! Causes: what kinds there are, and what is said of one.

use nearpage_machine::size;
use serde::Serialize;

/// A cause, or what stands behind it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CauseKind {
    /// The limit of a memory cgroup.
    MemcgLimit,
    /// The limit of memory and swap together of a cgroup of version 1.
    MemcgSwapLimit,
    /// The limit is that of a group above the task's.
    MemcgParent,
    /// Most of a group's memory is the kernel's.
    MemcgKernel,
    /// Most of a group's memory is buffers of its sockets.
    MemcgSockets,
    /// A cgroup refused an object of a cache; no page was asked for.
    MemcgCache,
    /// A group without a limit, a sysrq, a fault: what was refused, if something was, is not in the report.
    NoRequest,
    /// An area of addresses, not pages.
    Addresses,
    /// An area of no size.
    EmptyArea,
    /// A policy that the kernel does not print may keep the request from free memory.
    HiddenPolicy,
    /// A mark is more than its zone has.
    WrongMark,
    /// More is asked for in one piece than the zones have.
    TooLarge,
    /// What a group uses is below zero: a count went wrong in the kernel.
    WrongCount,
    /// No zone that the flags allow is on a node that may be used.
    NoZone,
    /// Free memory is on nodes that may not be used, or in zones.
    Elsewhere,
    /// Free pages are of CMA.
    Cma,
    /// Free pages are reserved for urgent requests of higher order.
    Highatomic,
    /// Free pages are kept from requests that could have used a higher zone.
    LowmemReserve,
    /// Pages are free by their counter, and none is on a list.
    EmptyLists,
    /// Pages are free, and no block is large enough.
    Fragmentation,
    /// Most of the memory of the zones was never given to the allocator.
    Unmanaged,
    /// A boost has raised the marks.
    Boost,
    /// Swap is being switched off.
    SwapOff,
    /// Swap is full.
    SwapFull,
    /// There is no swap.
    NoSwap,
    /// Anonymous memory.
    Anonymous,
    /// Shared memory and tmpfs.
    Shmem,
    /// Slab that cannot be reclaimed.
    Slab,
    /// Slab that can be reclaimed, and was not.
    ReclaimableSlab,
    /// Page tables.
    PageTables,
    /// Stacks of threads in the kernel.
    KernelStack,
    /// Locked memory.
    Mlocked,
    /// Memory that has no way out, and that mlock did not lock.
    Unevictable,
    /// Huge pages of the pool.
    HugePages,
    /// Memory of files, which was not reclaimed.
    Files,
    /// Memory can be reclaimed, and the request could not wait for it.
    CannotWait,
    /// Memory that no counter of the report explains.
    Unexplained,
    /// The largest task.
    Task,
    /// The numbers were read when memory had come back.
    Late,
    /// No zone is shown: what the first line alone tells.
    NoFigures,
    /// A test of the kernel made the request fail.
    Forced,
}

impl CauseKind {
    /// The name of the cause, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            CauseKind::MemcgLimit => "memcg_limit",
            CauseKind::MemcgSwapLimit => "memcg_swap_limit",
            CauseKind::MemcgParent => "memcg_parent",
            CauseKind::MemcgKernel => "memcg_kernel",
            CauseKind::MemcgSockets => "memcg_sockets",
            CauseKind::MemcgCache => "memcg_cache",
            CauseKind::NoRequest => "no_request",
            CauseKind::Addresses => "addresses",
            CauseKind::EmptyArea => "empty_area",
            CauseKind::HiddenPolicy => "hidden_policy",
            CauseKind::WrongMark => "wrong_mark",
            CauseKind::TooLarge => "too_large",
            CauseKind::WrongCount => "wrong_count",
            CauseKind::NoZone => "no_zone",
            CauseKind::Elsewhere => "elsewhere",
            CauseKind::Cma => "cma",
            CauseKind::Highatomic => "highatomic",
            CauseKind::LowmemReserve => "lowmem_reserve",
            CauseKind::EmptyLists => "empty_lists",
            CauseKind::Fragmentation => "fragmentation",
            CauseKind::Unmanaged => "unmanaged",
            CauseKind::Boost => "boost",
            CauseKind::SwapOff => "swap_off",
            CauseKind::SwapFull => "swap_full",
            CauseKind::NoSwap => "no_swap",
            CauseKind::Anonymous => "anonymous",
            CauseKind::Shmem => "shmem",
            CauseKind::Slab => "slab",
            CauseKind::ReclaimableSlab => "reclaimable_slab",
            CauseKind::PageTables => "page_tables",
            CauseKind::KernelStack => "kernel_stack",
            CauseKind::Mlocked => "mlocked",
            CauseKind::Unevictable => "unevictable",
            CauseKind::HugePages => "huge_pages",
            CauseKind::Files => "files",
            CauseKind::CannotWait => "cannot_wait",
            CauseKind::Unexplained => "unexplained",
            CauseKind::Task => "task",
            CauseKind::Late => "late",
            CauseKind::NoFigures => "no_figures",
            CauseKind::Forced => "forced",
        }
    }
}

/// A cause with its evidence.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Cause {
    /// Which.
    pub kind: CauseKind,
    /// How much memory it is about, in KiB, if it is about some.
    pub kib: Option<u64>,
    /// The evidence, in words.
    pub text: String,
}

impl Cause {
    pub(crate) fn new(kind: CauseKind, kib: impl Into<Option<u64>>, text: String) -> Cause {
        Cause { kind, kib: kib.into(), text }
    }
}

/// KiB in the unit that people read.
pub(crate) fn kib(kib: u64) -> String {
    size::format(kib.saturating_mul(1024))
}
