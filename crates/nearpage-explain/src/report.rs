//! What a kernel printed about a request that it refused, as it printed it. Sizes are in KiB, as there.

use std::collections::BTreeMap;

use nearpage::Gfp;
use serde::Serialize;

use crate::figure::Figure;

/// What kind of report it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `page allocation failure`: the request got no memory.
    Failure,
    /// `invoked oom-killer`: a process was ended for the request, or none could be.
    #[default]
    Oom,
    /// `page allocation stalls`: kernels 4.10 to 4.14 told of a request that waited for long.
    Stall,
    /// `SLUB: Unable to allocate memory`: a cache of objects got no page.
    Slub,
    /// `vmalloc error`: an area of many pages got not all of them, or no addresses.
    Vmalloc,
}

impl Kind {
    /// The kind in words.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Failure => "page allocation failure",
            Kind::Oom => "out of memory",
            Kind::Stall => "page allocation stall",
            Kind::Slub => "SLUB allocation failure",
            Kind::Vmalloc => "vmalloc failure",
        }
    }
}

/// The flags of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Mode {
    /// The number as printed, if all its digits are there. Its bits differ from kernel to kernel.
    pub bits: Option<u64>,
    /// The words as printed, by kernels from 4.6 on.
    pub words: Option<String>,
    /// The flags, with the bits of the core.
    #[serde(serialize_with = "gfp_words")]
    pub gfp: Gfp,
    /// Words that name no flag of the core, such as `__GFP_COLD`.
    pub others: Vec<String>,
    /// Whether words are missing: there is no parenthesis that ends them.
    #[serde(skip)]
    pub(crate) is_cut: bool,
    /// Whether the kernel has a flag `__GFP_ATOMIC` (4.4 to 6.3) and the request, which is urgent, has not: SLUB of 4.4 to 4.6
    /// took it off.
    #[serde(skip)]
    pub(crate) lacks_atomic: bool,
}

fn gfp_words<S: serde::Serializer>(gfp: &Gfp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(gfp)
}

/// Free blocks of one order.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FreeBlocks {
    /// How many.
    pub count: u64,
    /// Size of one.
    pub kib: u64,
    /// Letters of the types that have some (`UMEHCI`); `None` before Linux 3.8, which does not print them.
    pub types: Option<String>,
}

/// A zone. A figure that the row does not have is unknown, also where the kernel prints none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ZoneRow {
    /// The node; 0 of kernels without NUMA.
    pub node: u32,
    /// The name: `DMA`, `DMA32`, `Normal`, `HighMem`, `Movable`, `Device`.
    pub name: String,
    /// Free.
    pub free: Figure,
    /// The boost within the marks; kernels from 5.16 on print it.
    pub boost: Figure,
    /// The `min` mark.
    pub min: Figure,
    /// The `low` mark.
    pub low: Figure,
    /// The `high` mark.
    pub high: Figure,
    /// Reserved for urgent requests of higher order; kernels from 5.5 on print it.
    pub reserved_highatomic: Figure,
    /// Free within that reserve, of kernels that print it.
    pub free_highatomic: Figure,
    /// Anonymous memory on the lists of reclaim.
    pub anon: Figure,
    /// Memory of files on the lists of reclaim.
    pub file: Figure,
    /// On the lists of reclaim, of kernels before 2.6.28, which do not tell anonymous memory from that of files.
    #[serde(skip)]
    pub(crate) lists: Figure,
    /// Present.
    pub present: Figure,
    /// Managed by the buddy; kernels from 3.9 on print it.
    pub managed: Figure,
    /// Locked in memory.
    pub mlocked: Figure,
    /// In pagesets of CPUs; kernels from 4.2 on print it.
    pub free_pcp: Figure,
    /// Free for CMA.
    pub free_cma: Figure,
    /// Slab that cannot be reclaimed; kernels up to 4.8 print it here.
    pub slab_unreclaimable: Figure,
    /// Slab that can be reclaimed, of the same.
    pub slab_reclaimable: Figure,
    /// `lowmem_reserve[]`, in pages, by the highest zone that a request could have used.
    pub reserve: Vec<u64>,
    /// Free blocks by order, as far as the row goes.
    pub blocks: Vec<FreeBlocks>,
    /// Whether the row of free blocks has its end: no order above has any.
    pub has_all_blocks: bool,
    /// Whether the zone's row was cut, or a figure of it or of its reserve is none that can be read.
    pub is_damaged: bool,
}

impl ZoneRow {
    /// Whether no page is on a free list, as its whole row of blocks says.
    pub(crate) fn has_empty_lists(&self) -> bool {
        self.has_all_blocks
            && !self.blocks.is_empty()
            && self.blocks.iter().all(|blocks| blocks.count == 0)
    }
}

/// A node; before Linux 4.8 these figures stand with the zones, and are summed up here.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct NodeRow {
    /// The node.
    pub node: u32,
    /// Anonymous memory on the lists of reclaim.
    pub anon: Figure,
    /// Memory of files on the lists of reclaim.
    pub file: Figure,
    /// What cannot be reclaimed since it is locked.
    pub unevictable: Figure,
    /// Dirty or being written.
    pub writeback: Figure,
    /// Of that, what is dirty, and nobody writes yet.
    #[serde(skip)]
    pub(crate) dirty: Figure,
    /// In shared memory and tmpfs; a part of what is anonymous.
    pub shmem: Figure,
    /// In stacks of threads in the kernel.
    pub kernel_stack: Figure,
    /// Whether reclaim had given up there.
    pub all_unreclaimable: bool,
    /// Whether the row is the sum of its zones' rows.
    #[serde(skip)]
    pub(crate) summed: bool,
}

impl NodeRow {
    pub(crate) fn add(&mut self, zone: &NodeRow) {
        let pairs = [
            (&mut self.anon, zone.anon),
            (&mut self.file, zone.file),
            (&mut self.unevictable, zone.unevictable),
            (&mut self.writeback, zone.writeback),
            (&mut self.dirty, zone.dirty),
            (&mut self.shmem, zone.shmem),
        ];
        for (sum, part) in pairs {
            *sum = sum.plus(part);
        }
        self.add_stacks(zone);
        self.all_unreclaimable &= zone.all_unreclaimable;
    }

    /// Whether all that is counted of the node is 0, as of one without memory.
    pub(crate) fn is_empty(&self) -> bool {
        let counted = [self.anon, self.file, self.unevictable, self.writeback, self.shmem];
        counted.iter().all(|figure| *figure == Figure::exact(0))
    }

    /// Adds the stacks of a zone, of kernels that print them there.
    pub(crate) fn add_stacks(&mut self, zone: &NodeRow) {
        if let Some(stacks) = zone.kernel_stack.known() {
            let before = self.kernel_stack.known().unwrap_or(0);
            self.kernel_stack = Figure::exact(before.saturating_add(stacks));
        }
    }
}

/// What a memory cgroup used of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Limit {
    /// Used.
    pub usage: u64,
    /// The limit; more than any machine has where there is none.
    pub limit: u64,
}

impl Limit {
    /// Whether there is a limit: kernels print one of about 2^63 bytes for none.
    pub const fn is_set(self) -> bool {
        self.limit < 1 << 52
    }

    /// Whether not even that much more fits.
    pub(crate) const fn refuses(self, more: u64) -> bool {
        self.is_set() && self.usage.saturating_add(more) > self.limit
    }
}

/// A memory cgroup.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Memcg {
    /// The group whose limit was reached.
    pub path: Option<String>,
    /// The group of the task that was ended, or that asked: the same, or one below.
    pub task: Option<String>,
    /// Used, if the report says so.
    pub usage: Option<u64>,
    /// The limit, if the report says so.
    pub limit: Option<u64>,
    /// Memory and swap together, of groups of version 1.
    pub memory_and_swap: Option<Limit>,
    /// Swap, of groups of version 2.
    pub swap: Option<Limit>,
    /// Memory of the kernel for the group, of groups of version 1.
    pub kmem: Option<Limit>,
    /// Anonymous memory of the group and those below.
    pub anon: Option<u64>,
    /// Its memory of files.
    pub file: Option<u64>,
    /// Of that, what has to be written before it can be freed.
    pub dirty: Option<u64>,
    /// Of that, what is being written.
    pub writeback: Option<u64>,
    /// Its shared memory and tmpfs; a part of what is of files.
    pub shmem: Option<u64>,
    /// Of its anonymous memory and tmpfs, what lies in the swap cache: in memory and in swap.
    #[serde(skip)]
    pub(crate) swapcached: Option<u64>,
    /// Buffers of its sockets.
    pub sockets: Option<u64>,
    /// What the kernel keeps for it: slab, stacks, page tables.
    pub kernel: Option<u64>,
    /// The parts of that.
    #[serde(skip)]
    pub(crate) kernel_parts: u64,
    /// Whether page tables are among them.
    #[serde(skip)]
    pub(crate) has_tables: bool,
    /// Anonymous memory and tmpfs on its lists of reclaim, which have what its other counters are late to tell.
    #[serde(skip)]
    pub(crate) lists: u64,
}

impl Memcg {
    /// Adds a counter of `Memory cgroup stats`, by its name there: of the group, or of one below.
    pub(crate) fn add(&mut self, name: &str, kib: u64) {
        let field = match name {
            "anon" | "rss" => &mut self.anon,
            "file" | "cache" => &mut self.file,
            "shmem" => &mut self.shmem,
            "file_dirty" | "dirty" => &mut self.dirty,
            "file_writeback" | "writeback" => &mut self.writeback,
            "sock" => &mut self.sockets,
            "swapcached" => &mut self.swapcached,
            "active_anon" | "inactive_anon" => {
                self.lists = self.lists.saturating_add(kib);
                return;
            }
            // `kernel` is the sum of the others, from 5.18 on.
            "kernel" => {
                self.has_tables = true;
                self.kernel = self.kernel.max(Some(kib));
                return;
            }
            "kernel_stack" | "pagetables" | "percpu" | "slab" | "vmalloc" => {
                self.has_tables |= name == "pagetables";
                self.kernel_parts = self.kernel_parts.saturating_add(kib);
                self.kernel = self.kernel.max(Some(self.kernel_parts));
                return;
            }
            _ => return,
        };
        *field = Some(field.unwrap_or(0).saturating_add(kib));
    }

    /// Its anonymous memory.
    pub(crate) fn anonymous(&self) -> Option<u64> {
        let listed = self.lists.saturating_sub(self.shmem.unwrap_or(0));
        self.anon.max(Some(listed).filter(|listed| *listed > 0))
    }

    /// How far its usage is below zero, in KiB: a count went wrong in the kernel. It prints such a one as a number of 64 bits.
    pub(crate) fn below_zero(&self) -> Option<u64> {
        self.usage.filter(|usage| *usage >= 1 << 63).map(u64::wrapping_neg)
    }

    /// The limit that is reached.
    pub(crate) fn reached(&self, more: u64) -> Reached {
        let memory = self.usage.zip(self.limit).map(|(usage, limit)| Limit { usage, limit });
        let refuses = |limit: Option<Limit>| limit.is_some_and(|limit| limit.refuses(more));
        match memory {
            _ if !refuses(memory) && refuses(self.memory_and_swap) => Reached::MemoryAndSwap,
            Some(memory) if memory.is_set() => Reached::Memory,
            // Nobody reaches a limit that is none.
            Some(_) => Reached::None,
            None => Reached::Unknown,
        }
    }

    /// What is left below all its limits, if that is so much that memory came back before they were read.
    pub(crate) fn came_back(&self) -> Option<u64> {
        let memory = Limit { usage: self.usage?, limit: self.limit? };
        let both = self.memory_and_swap.filter(|both| both.is_set());
        let left = |of: Limit| of.limit.saturating_sub(of.usage);
        let least = both.map_or(left(memory), |both| left(both).min(left(memory)));
        (memory.is_set() && least > memory.limit / 8).then_some(least)
    }

    /// What is left of memory and swap together, if next to nothing is.
    pub(crate) fn left_with_swap(&self) -> Option<u64> {
        let both = self.memory_and_swap.filter(|both| both.is_set())?;
        let left = both.limit.saturating_sub(both.usage);
        (left <= both.limit / 256).then_some(left)
    }

    /// Whether most of it is memory of files that has to be written first, and hardly any is.
    pub(crate) fn is_unwritten(&self) -> bool {
        let (Some(usage), Some(dirty), Some(writeback)) = (self.usage, self.dirty, self.writeback)
        else {
            return false;
        };
        dirty > usage / 2 && writeback < dirty / 8
    }

    /// Whether the group is above the task's: its path is where that of the task begins.
    pub(crate) fn is_parent(&self) -> bool {
        let (Some(path), Some(task)) = (&self.path, &self.task) else { return false };
        let below = task.strip_prefix(path.trim_end_matches('/'));
        below.is_some_and(|below| below.len() > 1 && below.starts_with('/'))
    }
}

/// The limit of a group that refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reached {
    Memory,
    MemoryAndSwap,
    None,
    Unknown,
}

/// A cache of objects that cannot be reclaimed.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SlabCache {
    /// Its name.
    pub name: String,
    /// Memory of its slabs.
    pub total: u64,
}

/// Who was ended. `None` is what the kernel did not print.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Victim {
    /// Process id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Anonymous memory that it gave back.
    pub anon: Option<u64>,
    /// Memory of files.
    pub file: Option<u64>,
    /// Shared memory, which stays if others use it or it lies in tmpfs.
    pub shmem: Option<u64>,
    /// Page tables.
    pub pgtables: Option<u64>,
}

/// A task of the table that OOM reports print.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Task {
    /// Process id.
    pub pid: u32,
    /// Resident pages.
    pub rss_pages: u64,
    /// Its name.
    pub name: String,
    /// Bytes of its page tables; kernels from 4.15 on print them.
    #[serde(skip)]
    pub(crate) pgtables: Option<u64>,
    /// Pages in swap.
    #[serde(skip)]
    pub(crate) swap_pages: u64,
}

impl Task {
    /// Its pages in memory and in swap.
    pub(crate) fn pages(&self) -> u64 {
        self.rss_pages.saturating_add(self.swap_pages)
    }
}

/// A word where a figure should be that is none, such as `free:99999999999999999999kB`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Unreadable {
    /// The line of the log, from 1.
    pub line: u64,
    /// The word.
    pub word: String,
}

/// A cache of objects that got no page.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Slub {
    /// The cache.
    pub cache: String,
    /// The node that was asked for, if one was.
    pub node: Option<u32>,
    /// Order of a slab, and the least that would do.
    pub orders: Option<(u8, u8)>,
    /// Free objects by node.
    pub free_objects: Vec<(u32, u64)>,
}

/// A report of a kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Report {
    /// The line of the log with which it begins, from 1.
    pub first_line: u64,
    /// The last line that belongs to it.
    pub last_line: u64,
    /// The time, as the log has it.
    pub time: Option<String>,
    /// Its kind.
    pub kind: Kind,
    /// The process that asked.
    pub process: String,
    /// Its id.
    pub pid: Option<u32>,
    /// The CPU that asked.
    pub cpu: Option<u32>,
    /// The kernel's release.
    pub kernel: Option<String>,
    /// Order of the block; `None` where the kernel asked for itself (sysrq), or does not say.
    pub order: Option<u8>,
    /// Bytes in a row that a mapping wanted of a kernel without an MMU, which rounds them up to a block.
    pub length: Option<u64>,
    /// Whether somebody asked for a kill (sysrq): newer kernels print an order of -1.
    pub is_sysrq: bool,
    /// The flags.
    pub mode: Mode,
    /// Nodes of the policy; `None` is no policy, or a kernel that does not say. Linux 4.9 and 4.10 print the nodes of the cpuset
    /// where there is no policy.
    pub nodemask: Option<Vec<u32>>,
    /// The cpuset.
    pub cpuset: Option<String>,
    /// Its nodes.
    pub mems_allowed: Option<Vec<u32>>,
    /// Milliseconds that a stalled request had waited.
    pub stalled_ms: Option<u64>,
    /// Of vmalloc: what failed, in the kernel's words. Pages were refused if it says so, else addresses or the tables for them.
    pub failed: Option<String>,
    /// Of vmalloc: bytes of the area, of kernels that print it beside what failed.
    #[serde(skip)]
    pub(crate) area: Option<u64>,
    /// Why the OOM killer says it was called: `CONSTRAINT_NONE`, `_CPUSET`, `_MEMORY_POLICY`, `_MEMCG`.
    pub constraint: Option<String>,
    /// The memory cgroup at its limit.
    pub memcg: Option<Memcg>,
    /// Nodes.
    pub nodes: Vec<NodeRow>,
    /// Zones, in the order printed.
    pub zones: Vec<ZoneRow>,
    /// Reclaimable slab of the machine, in pages.
    pub slab_reclaimable_pages: Option<u64>,
    /// Slab that cannot be reclaimed, in pages.
    pub slab_unreclaimable_pages: Option<u64>,
    /// Slab of both kinds, in pages, of kernels before 2.6.31, which print no other.
    pub slab_pages: Option<u64>,
    /// Shared memory and tmpfs of the machine, in pages.
    pub shmem_pages: Option<u64>,
    /// Page tables of the machine, in pages.
    pub page_table_pages: Option<u64>,
    /// Page tables of guests and devices, in pages; kernels from 6.0 on print them.
    pub secondary_table_pages: Option<u64>,
    /// Free pages of CMA of the whole machine.
    pub free_cma_pages: Option<u64>,
    /// Pages that processes have mapped.
    #[serde(skip)]
    pub(crate) mapped_pages: Option<u64>,
    /// What is on the lists of reclaim of the machine, in pages, by [`LISTS`].
    #[serde(skip)]
    pub(crate) lists_pages: [Option<u64>; LISTS.len()],
    /// Whether the row is there behind which all kernels with swap tell of it.
    #[serde(skip)]
    pub(crate) has_page_cache: bool,
    /// Free pages of the whole machine, also of nodes and zones that are left out.
    pub free_pages: Option<u64>,
    /// Pages of the whole machine. Kernels leave out nodes and zones that the request could not use.
    pub ram_pages: Option<u64>,
    /// Pages that the allocator does not manage, holes among them.
    pub reserved_pages: Option<u64>,
    /// Pages in zones of high memory, or that hold movable memory alone.
    pub highmem_pages: Option<u64>,
    /// Free swap.
    pub swap_free: Option<u64>,
    /// Swap.
    pub swap_total: Option<u64>,
    /// What is still in swap that is being switched off: kernels print free swap as below zero then.
    pub swap_leaving: Option<u64>,
    /// Huge pages of the pool that were free, and their number, of all sizes together, in KiB.
    pub hugetlb: Option<(u64, u64)>,
    /// The largest tasks, at most [`TASKS_MOST`].
    pub tasks: Vec<Task>,
    /// Tasks of a name: how many, and their pages together.
    #[serde(skip)]
    pub(crate) by_name: BTreeMap<String, (u64, u64)>,
    /// Bytes of page tables of all tasks that were listed.
    #[serde(skip)]
    pub(crate) task_tables: u64,
    /// How many tasks were listed.
    pub tasks_listed: u64,
    /// Who was ended.
    pub victim: Option<Victim>,
    /// Who, or whose child, was to be ended: kernels before 5.0 print it on a line of its own.
    #[serde(skip)]
    pub(crate) chosen: Option<(u32, String)>,
    /// Whose memory was taken back, where no line says who was ended.
    #[serde(skip)]
    pub(crate) reaped: Option<(u32, String)>,
    /// What the kernel said when it ended itself instead: a setting wants it so, or there was nobody to end.
    pub panic: Option<String>,
    /// How many others of its group were ended with it (`memory.oom.group`).
    pub also_ended: u64,
    /// The cache that got no page.
    pub slub: Option<Slub>,
    /// The largest cache of slab that cannot be reclaimed, of kernels that list them (from 4.15 on, if they hold much).
    pub largest_cache: Option<SlabCache>,
    /// Figures that cannot be read, at most [`UNREADABLE_MOST`]: what they would tell is not known.
    pub unreadable: Vec<Unreadable>,
    /// Whether lines of another report stand among its own, and no caller tells whose they are.
    pub is_mixed: bool,
    /// Whether its first line is missing: process, order and flags are not known.
    pub lacks_head: bool,
    /// Whether fault injection, a test of the kernel, made the request fail.
    #[serde(skip)]
    pub(crate) is_forced: bool,
    /// The size of a page, where it is taken to be one of several that are possible.
    #[serde(skip)]
    pub(crate) page_kib: Option<u64>,
}

/// Counters of what is on the lists of reclaim; those before 2.6.28 are of both kinds.
pub(crate) const LISTS: [[&str; 2]; 7] = [
    ["active_anon", "Active_anon"],
    ["inactive_anon", "Inactive_anon"],
    ["active_file", "Active_file"],
    ["inactive_file", "Inactive_file"],
    ["Active", "active"],
    ["Inactive", "inactive"],
    ["unevictable", "Unevictable"],
];

/// Tasks that a report keeps.
pub const TASKS_MOST: usize = 8;
/// Names of tasks that a report keeps.
pub(crate) const NAMES_MOST: usize = 256;
/// Unreadable figures that a report keeps.
pub const UNREADABLE_MOST: usize = 8;

impl Report {
    /// Pages on two of the machine's lists together, if both are told.
    pub(crate) fn on_lists(&self, first: usize) -> Option<u64> {
        let [one, two] = [self.lists_pages[first]?, self.lists_pages[first + 1]?];
        Some(one.saturating_add(two))
    }

    /// The size of a page: that of the smallest free blocks. Without any it is the least that all figures are multiples of and
    /// that comes to the free pages of the machine.
    pub fn page_kib(&self) -> u64 {
        self.page_kib.unwrap_or_else(|| self.page_sizes()[0])
    }

    /// The sizes that a page may have: at least one.
    pub(crate) fn page_sizes(&self) -> Vec<u64> {
        const SIZES: [u64; 5] = [4, 8, 16, 32, 64];
        let mut smallest = self.zones.iter().filter_map(|zone| zone.blocks.first());
        if let Some(blocks) = smallest.find(|blocks| blocks.kib > 0) {
            return vec![blocks.kib];
        }
        let zones = || self.zones.iter();
        // Kernels count pages.
        let figures = zones().flat_map(|zone| {
            [zone.free, zone.min, zone.low, zone.high, zone.present, zone.managed, zone.free_pcp]
        });
        let figures: Vec<u64> = figures.filter_map(Figure::known).collect();
        let divides = |size: &u64| figures.iter().all(|figure| figure.is_multiple_of(*size));
        let sum = |of: fn(&ZoneRow) -> Figure| zones().map(of).sum::<Figure>();
        let sums =
            [(sum(|zone| zone.free), self.free_pages), (sum(|zone| zone.present), self.ram_pages)];
        let mut sizes: Vec<u64> = SIZES.into_iter().filter(divides).collect();
        for (kib, pages) in sums {
            let Some((kib, pages)) = kib.known().zip(pages).filter(|(kib, _)| *kib > 0) else {
                continue;
            };
            // The machine has what the zones have, and more where some are not shown.
            let all = |size: &u64| size.saturating_mul(pages);
            match sizes.iter().find(|size| all(size).abs_diff(kib) <= kib / 16) {
                Some(&size) => sizes = vec![size],
                None => sizes.retain(|size| all(size).saturating_mul(3) / 2 >= kib),
            }
        }
        if sizes.is_empty() { vec![SIZES[0]] } else { sizes }
    }

    /// Page tables of the group's tasks that its counters lack: Linux 4.15 to 5.10 tell them in the table of tasks alone.
    pub(crate) fn tables_of_group(&self) -> u64 {
        let is_told =
            self.memcg.as_ref().is_some_and(|memcg| memcg.has_tables || memcg.kmem.is_some());
        if is_told { 0 } else { self.task_tables / 1024 }
    }

    /// What the kernel keeps for the group.
    pub(crate) fn kernel_of_group(&self) -> Option<u64> {
        let memcg = self.memcg.as_ref()?;
        let kmem = memcg.kmem.map(|kmem| kmem.usage);
        let parts = memcg.kernel.map(|kernel| kernel.saturating_add(self.tables_of_group()));
        let parts = parts.map(|parts| parts.min(memcg.usage.unwrap_or(u64::MAX)));
        parts.max(kmem)
    }

    /// Who was refused: the process, or the cache of a SLUB failure, which names no process; empty if the log says neither.
    pub fn whose(&self) -> &str {
        self.slub.as_ref().map_or(&self.process, |slub| &slub.cache)
    }

    /// The group that a cache is of: `kmalloc-256(1234:group)`. Before Linux 5.9 a group had caches of its own.
    pub(crate) fn group_of_cache(&self) -> Option<&str> {
        let cache = &self.slub.as_ref()?.cache;
        let (_, group) = cache.strip_suffix(')')?.split_once('(')?;
        let (id, name) = group.split_once(':')?;
        (!id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())).then_some(name)
    }

    /// Whether it is a kill of kernels before 2.6.19, whose first line names no process.
    pub(crate) fn is_nameless_kill(&self) -> bool {
        self.kind == Kind::Oom && !self.lacks_head && self.process.is_empty()
    }

    /// The order of the block in which a length has room, if the size of a page is told.
    pub(crate) fn order_of_length(&self) -> Option<u8> {
        let [page_kib] = self.page_sizes()[..] else { return None };
        let pages = self.length?.div_ceil(page_kib << 10).max(1);
        Some(pages.checked_next_power_of_two()?.ilog2() as u8)
    }

    /// The oldest kernel that prints what the rows of zones have; `None` if all do.
    pub(crate) fn least_version(&self) -> Option<(u32, u32)> {
        let prints = |of: fn(&ZoneRow) -> Figure| self.zones.iter().any(|zone| of(zone).is_exact());
        match () {
            () if prints(|zone| zone.free_highatomic) => Some((6, 13)),
            () if prints(|zone| zone.boost) => Some((5, 16)),
            () if prints(|zone| zone.reserved_highatomic) => Some((5, 5)),
            () if prints(|zone| zone.free_pcp) => Some((4, 2)),
            () if prints(|zone| zone.managed) => Some((3, 9)),
            () => None,
        }
    }

    /// Major and minor number of the kernel's release.
    pub fn version(&self) -> Option<(u32, u32)> {
        version(self.kernel.as_deref()?)
    }
}

/// Major and minor number of a release such as `6.12.95+deb12-amd64`.
pub(crate) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
