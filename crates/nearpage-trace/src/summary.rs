//! Who allocates: counts by call site, task, order or type, and what outlives the trace.
//!
//! A block belongs to whoever allocated it: its pages, its lifetime, and whether it outlives the trace are counted there. Frees, refills and
//! drains are counted beside them for whoever did them. The call site of an allocation or a free is the first function of its call chain that is not
//! the allocator's own. Chains are lines behind an event: of `perf script -g`, of ftrace's option `stacktrace`, of `trace-cmd report`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use nearpage::{CpuId, Gfp, Order, Pfn};
use serde::Serialize;

use super::binary::Symbols;
use super::event::{CGROUP_MARK, Event, TraceCounts, TraceEvent};

/// Names that are told apart; what comes after them is `others`.
const GROUPS_MOST: usize = 1 << 16;
/// Bytes of a name that are kept: the kernel has none that are longer, but for paths of cgroups.
const NAME_BYTES_MOST: usize = 512;
/// Types that a trace tells: unmovable, movable, reclaimable, highatomic, CMA, isolate.
pub const TYPES: [&str; 6] =
    ["unmovable", "movable", "reclaimable", "highatomic", "cma", "isolate"];
/// Types whose pages stay where they are: unmovable, reclaimable.
const IMMOBILE: [u8; 2] = [0, 2];
/// Before the number of a task whose cgroup is not told yet: no path begins so.
const UNTOLD: &[u8] = b"task ";
/// The name of tasks whose cgroup no mark tells.
const NO_CGROUP: &str = "(unknown cgroup)";
/// The name of what has no call chain.
const NO_STACK: &str = "(no call chain)";
/// Those that came when there were [`GROUPS_MOST`].
const OTHERS: &str = "others";
const NO_NAMES: &str = "(addresses without names)";

/// What groups are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum By {
    /// The function that asked.
    Site,
    /// The name of the task.
    #[default]
    Task,
    /// Order of the block.
    Order,
    /// Migratetype of the request.
    Type,
    /// Flags of the request.
    Gfp,
    /// The cgroup of the task, as marks of the trace tell it (`nearpage: cgroup PID PATH`).
    Cgroup,
}

/// A group and what it came to.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Blocks allocated.
    pub allocs: u64,
    /// Their pages.
    pub alloc_pages: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Blocks of those that were freed in the trace, whoever did it.
    pub freed: u64,
    /// Their pages.
    pub freed_pages: u64,
    /// The mean time from allocation to free, in nanoseconds; `None` if nothing was freed.
    pub lifetime_mean_ns: Option<f64>,
    /// Half of what was freed lived at most so long, to a power of 2.
    pub lifetime_median_ns: Option<u64>,
    /// Blocks that outlive the trace.
    pub left: u64,
    /// Their pages.
    pub left_pages: u64,
    /// Blocks whose frames were handed out again though no free of them is in the trace: they are not left.
    pub free_unseen: u64,
    /// Their pages.
    pub free_unseen_pages: u64,
    /// Blocks by order.
    pub orders: [u64; Order::COUNT],
    /// Blocks by type: [`TYPES`].
    pub types: [u64; TYPES.len()],
    /// Frees by this group, of whatever.
    pub frees: u64,
    /// Pageblocks in which an unmovable or reclaimable block of this group outlives the trace: they are not whole as long as it lives.
    pub pinned_pageblocks: u64,
    /// Holds of zone locks that a replay charged it with; `None` without one.
    pub holds: Option<u64>,
    /// Pages that a replay gave it from another node than the CPU's; `None` without one.
    pub far_pages: Option<u64>,
    /// Pages that left zones for pagesets under it; `None` if nothing tells, or groups are of requests.
    pub refill_pages: Option<u64>,
    /// Pages that went from pagesets to zones under it; `None` likewise.
    pub drain_pages: Option<u64>,
    #[serde(skip)]
    lifetimes: Lifetimes,
}

impl Group {
    /// Whether anything is known of it: one that was made for what then had another name has nothing.
    fn has_something(&self) -> bool {
        let told = [self.holds, self.far_pages, self.refill_pages, self.drain_pages];
        let known = [self.allocs, self.failed, self.frees, self.free_unseen];
        known.into_iter().chain(told.into_iter().flatten()).any(|count| count > 0)
    }

    /// Adds what another group counted, before blocks that outlive the trace are counted.
    fn absorb(&mut self, other: &Group) {
        let Group { allocs, alloc_pages, failed, freed, freed_pages, frees, .. } = *other;
        self.allocs += allocs;
        self.alloc_pages += alloc_pages;
        self.failed += failed;
        self.freed += freed;
        self.freed_pages += freed_pages;
        self.frees += frees;
        self.free_unseen += other.free_unseen;
        self.free_unseen_pages += other.free_unseen_pages;
        for (own, more) in [
            (&mut self.refill_pages, other.refill_pages),
            (&mut self.drain_pages, other.drain_pages),
        ] {
            *own = own.zip(more).map(|(own, more)| own + more).or(*own).or(more);
        }
        self.orders.iter_mut().zip(other.orders).for_each(|(own, more)| *own += more);
        self.types.iter_mut().zip(other.types).for_each(|(own, more)| *own += more);
        if let (Some(holds), Some(far_pages)) = (other.holds, other.far_pages) {
            self.add(Charge { holds, far_pages });
        }
        let Lifetimes { sum_ns, by_power } = &mut self.lifetimes;
        *sum_ns = sum_ns.saturating_add(other.lifetimes.sum_ns);
        by_power.iter_mut().zip(other.lifetimes.by_power).for_each(|(own, more)| *own += more);
    }

    fn add(&mut self, charge: Charge) {
        *self.holds.get_or_insert(0) += charge.holds;
        *self.far_pages.get_or_insert(0) += charge.far_pages;
    }

    /// Adds the pages of a refill or a drain.
    fn flow(&mut self, did: Did) {
        match did {
            Did::Refill(pages) => *self.refill_pages.get_or_insert(0) += pages,
            Did::Drain(pages) => *self.drain_pages.get_or_insert(0) += pages,
            Did::Alloc(_) | Did::Free => {}
        }
    }
}

#[derive(Clone, PartialEq, Debug)]
struct Lifetimes {
    sum_ns: u64,
    by_power: [u64; 64],
}

impl Default for Lifetimes {
    fn default() -> Self {
        Lifetimes { sum_ns: 0, by_power: [0; 64] }
    }
}

/// Requests as a whole, as `perf kmem stat --page` counts them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Requests {
    /// Allocations, failed ones included.
    pub allocs: u64,
    /// Their pages.
    pub alloc_pages: u64,
    /// Frees.
    pub frees: u64,
    /// Their pages.
    pub free_pages: u64,
    /// Allocations whose free is in the trace.
    pub alloc_freed: u64,
    /// Their pages.
    pub alloc_freed_pages: u64,
    /// Allocations whose free is not.
    pub alloc_only: u64,
    /// Their pages.
    pub alloc_only_pages: u64,
    /// Frees whose allocation is not.
    pub free_only: u64,
    /// Their pages.
    pub free_only_pages: u64,
    /// Allocations that failed.
    pub failed: u64,
    /// Their pages.
    pub failed_pages: u64,
}

/// A finished summary.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// Events of any kind.
    pub events: u64,
    /// Events lost; `None` if the trace does not tell how many.
    pub lost_events: Option<u64>,
    /// Lines that name an event of pages, and cannot be read as one.
    pub unread_events: u64,
    /// Which events of pages were recorded, in words; `None` if all were, as far as the trace tells.
    pub sampling: Option<String>,
    /// Seconds from the first event to the last.
    pub seconds: f64,
    /// Requests as a whole.
    pub requests: Requests,
    /// Blocks that were handed out, by order and then by type: [`TYPES`].
    pub by_order_and_type: [[u64; TYPES.len()]; Order::COUNT],
    /// Allocations with a call chain.
    pub with_stack: u64,
    /// Those of them whose chain has addresses alone.
    pub unnamed_stacks: u64,
    /// Those whose site has its name from [`Summarizer::with_symbols`].
    pub named_stacks: u64,
    /// Those whose chain does not begin in the allocator by these names: they are of another boot or kernel.
    pub misnamed_stacks: u64,
    /// Events of refills and drains. If there are none, pages of both are 0 since they were not recorded.
    pub with_flow: u64,
    /// Holds of zone locks by the once-a-second work of CPUs, of a replay; nobody asked for them.
    pub time_holds: Option<u64>,
    /// The groups, those with most pages first.
    pub groups: Vec<Group>,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    group: usize,
    order: Order,
    migratetype: u8,
    time_ns: u64,
}

/// What a replay did for an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Charge {
    /// Holds of zone locks.
    pub holds: u64,
    /// Pages from another node than the CPU's.
    pub far_pages: u64,
}

/// A block that is asked for.
#[derive(Clone, Copy, Debug)]
struct Block {
    pfn: Option<Pfn>,
    order: Order,
    migratetype: u8,
}

/// What a call chain is of.
#[derive(Clone, Copy, Debug)]
enum Did {
    Alloc(Block),
    Free,
    /// Pages that a pageset took.
    Refill(u64),
    /// Pages that a pageset gave back.
    Drain(u64),
}

/// An event whose call chain may follow.
#[derive(Clone, Copy, Debug)]
struct Pending {
    did: Did,
    charge: Option<Charge>,
    /// Calls of its chain so far, and those of them without a name.
    calls: u32,
    unnamed: u32,
}

impl Pending {
    fn of(did: Did) -> Pending {
        Pending { did, charge: None, calls: 0, unnamed: 0 }
    }
}

/// A summary that is being made.
#[derive(Debug)]
pub struct Summarizer {
    by: By,
    names: HashMap<Vec<u8>, usize>,
    groups: Vec<Group>,
    live: HashMap<Pfn, Live>,
    requests: Requests,
    by_order_and_type: [[u64; TYPES.len()]; Order::COUNT],
    with_stack: u64,
    unnamed_stacks: u64,
    named_stacks: u64,
    misnamed_stacks: u64,
    symbols: Arc<Symbols>,
    with_flow: u64,
    /// By CPU, if groups are sites.
    pending: HashMap<u32, Pending>,
    /// The group of the last event, if groups are no sites.
    last: Option<usize>,
    /// The CPU whose chain comes now.
    chain_of: Option<u32>,
    /// The cgroup of each task, if groups are of cgroups.
    cgroups: HashMap<u32, Arc<[u8]>>,
    /// Paths of cgroups, once each.
    paths: HashSet<Arc<[u8]>>,
    first_ns: Option<u64>,
    last_ns: u64,
}

impl Summarizer {
    /// Nothing is counted yet.
    pub fn new(by: By) -> Summarizer {
        Summarizer {
            by,
            names: HashMap::new(),
            groups: Vec::new(),
            live: HashMap::new(),
            requests: Requests::default(),
            by_order_and_type: Default::default(),
            with_stack: 0,
            unnamed_stacks: 0,
            named_stacks: 0,
            misnamed_stacks: 0,
            symbols: Arc::default(),
            with_flow: 0,
            pending: HashMap::new(),
            last: None,
            chain_of: None,
            cgroups: HashMap::new(),
            paths: HashSet::new(),
            first_ns: None,
            last_ns: 0,
        }
    }

    /// The same, with names for addresses that have none in the trace: those within a `perf.data`, for one.
    pub fn with_symbols(self, symbols: Arc<Symbols>) -> Summarizer {
        Summarizer { symbols, ..self }
    }

    /// Counts an event.
    pub fn note(&mut self, event: &TraceEvent<'_>) {
        self.first_ns.get_or_insert(event.time_ns);
        self.last_ns = self.last_ns.max(event.time_ns);
        if matches!(event.event, Event::Other(b"kernel_stack")) {
            self.chain_of = Some(event.cpu.0);
            return;
        }
        self.settle(event.cpu.0, None);
        self.chain_of = Some(event.cpu.0);
        self.last = None;
        match event.event {
            Event::Alloc { pfn, order, migratetype, gfp, .. } => {
                self.alloc(event, Block { pfn, order, migratetype }, gfp);
            }
            Event::Free { pfn, order } => self.free(event, pfn, order),
            Event::ZoneLocked { order, percpu_refill: true, .. } => {
                self.flow(event, Did::Refill(order.pages().0));
            }
            Event::PcpuDrain { order, .. } => {
                self.flow(event, Did::Drain(order.pages().0));
            }
            Event::Marker(text) if self.by == By::Cgroup => {
                if let Some((pid, path)) = cgroup_of(text) {
                    let path = self.path(path);
                    self.cgroups.insert(pid, path);
                }
            }
            _ => {}
        }
    }

    /// Charges whoever is behind the event that was noted last, which was on this CPU, with what a replay did for it.
    pub fn charge(&mut self, cpu: CpuId, charge: Charge) {
        if let Some(pending) = self.pending.get_mut(&cpu.0) {
            // The call chain of ftrace is an event of its own.
            let all = pending.charge.get_or_insert_default();
            all.holds += charge.holds;
            all.far_pages += charge.far_pages;
        } else if let Some(group) = self.last {
            self.groups[group].add(charge);
        }
    }

    /// A line of a call chain behind the event that was noted last, or behind its `kernel_stack`.
    pub fn frame(&mut self, line: &[u8]) {
        let Some(cpu) = self.chain_of else { return };
        let Some(pending) = self.pending.get_mut(&cpu) else { return };
        let Some(call) = Call::of(line) else { return };
        let symbols = Arc::clone(&self.symbols);
        let Some(function) = call.name(&symbols) else {
            pending.calls += 1;
            pending.unnamed += 1;
            return;
        };
        let is_named_here = call.name.is_none() && matches!(pending.did, Did::Alloc(_));
        let is_first = pending.calls == 0;
        pending.calls += 1;
        if !is_of_allocator(function) {
            self.named_stacks += u64::from(is_named_here);
            self.misnamed_stacks += u64::from(is_named_here && is_first);
            self.settle(cpu, Some(function));
        }
    }

    /// The summary, with what the reader counted.
    pub fn finish(mut self, counts: &TraceCounts) -> Summary {
        let waiting: Vec<u32> = self.pending.keys().copied().collect();
        waiting.into_iter().for_each(|cpu| self.settle(cpu, None));
        if self.by == By::Cgroup {
            self.settle_cgroups();
        }
        let pinned = self.live.iter().filter(|(_, live)| IMMOBILE.contains(&live.migratetype));
        let pinned: HashSet<(usize, u64)> = pinned
            .flat_map(|(pfn, live)| {
                let last = pfn.0 + live.order.pages().0 - 1;
                let blocks = pfn.0 >> Order::PAGEBLOCK.0..=last >> Order::PAGEBLOCK.0;
                blocks.map(|block| (live.group, block))
            })
            .collect();
        pinned.iter().for_each(|(group, _)| self.groups[*group].pinned_pageblocks += 1);
        for live in self.live.values() {
            let group = &mut self.groups[live.group];
            group.left += 1;
            group.left_pages += live.order.pages().0;
            self.requests.alloc_only += 1;
            self.requests.alloc_only_pages += live.order.pages().0;
        }
        let tells_flow = self.with_flow > 0 && matches!(self.by, By::Site | By::Task | By::Cgroup);
        for group in &mut self.groups {
            if tells_flow {
                group.refill_pages.get_or_insert(0);
                group.drain_pages.get_or_insert(0);
            }
            let Lifetimes { sum_ns, by_power } = &group.lifetimes;
            group.lifetime_mean_ns = (group.freed > 0).then(|| *sum_ns as f64 / group.freed as f64);
            let mut seen = 0;
            let median = by_power.iter().position(|count| {
                seen += count;
                2 * seen >= group.freed.max(1)
            });
            group.lifetime_median_ns = median.filter(|_| group.freed > 0).map(|power| 1 << power);
        }
        self.groups.retain(Group::has_something);
        self.groups.sort_by(|one, other| {
            other.alloc_pages.cmp(&one.alloc_pages).then_with(|| one.name.cmp(&other.name))
        });
        Summary {
            schema: 1,
            events: counts.events,
            lost_events: counts.lost(),
            unread_events: counts.unread_events,
            sampling: counts.sampling.map(|sampling| sampling.to_string()),
            seconds: self.last_ns.saturating_sub(self.first_ns.unwrap_or(0)) as f64 / 1e9,
            requests: self.requests,
            by_order_and_type: self.by_order_and_type,
            with_stack: self.with_stack,
            unnamed_stacks: self.unnamed_stacks,
            named_stacks: self.named_stacks,
            misnamed_stacks: self.misnamed_stacks,
            with_flow: self.with_flow,
            time_holds: None,
            groups: self.groups,
        }
    }

    fn alloc(&mut self, event: &TraceEvent<'_>, block: Block, gfp: Gfp) {
        let pages = block.order.pages().0;
        self.requests.allocs += 1;
        self.requests.alloc_pages += pages;
        match block.pfn {
            None => {
                self.requests.failed += 1;
                self.requests.failed_pages += pages;
            }
            Some(_) => {
                let of_order = self.by_order_and_type.get_mut(block.order.0 as usize);
                if let Some(count) = of_order.and_then(|of| of.get_mut(block.migratetype as usize))
                {
                    *count += 1;
                }
            }
        }
        let name = match self.by {
            By::Site => {
                self.pending.insert(event.cpu.0, Pending::of(Did::Alloc(block)));
                self.place(NO_STACK.as_bytes(), block, event.time_ns);
                return;
            }
            By::Task | By::Cgroup => self.doing(event),
            By::Order => format!("order {}", block.order.0).into_bytes(),
            By::Type => TYPES.get(block.migratetype as usize).copied().unwrap_or("unknown").into(),
            By::Gfp => gfp.to_string().into_bytes(),
        };
        let group = self.place(&name, block, event.time_ns);
        self.last = Some(group);
        self.count(group, block);
    }

    /// Notes a block as one that a group has.
    fn place(&mut self, name: &[u8], block: Block, time_ns: u64) -> usize {
        let group = self.group(name);
        if let Some(pfn) = block.pfn {
            let Block { order, migratetype, .. } = block;
            let live = Live { group, order, migratetype, time_ns };
            if let Some(lost) = self.live.insert(pfn, live) {
                // Its free is in no event: it was allocated once, and is not seen to go.
                self.requests.alloc_only += 1;
                self.requests.alloc_only_pages += lost.order.pages().0;
                let owner = &mut self.groups[lost.group];
                owner.free_unseen += 1;
                owner.free_unseen_pages += lost.order.pages().0;
            }
        }
        group
    }

    fn count(&mut self, group: usize, block: Block) {
        let group = &mut self.groups[group];
        let Some(_) = block.pfn else {
            group.failed += 1;
            return;
        };
        group.allocs += 1;
        group.alloc_pages += block.order.pages().0;
        if let Some(count) = group.orders.get_mut(block.order.0 as usize) {
            *count += 1;
        }
        if let Some(count) = group.types.get_mut(block.migratetype as usize) {
            *count += 1;
        }
    }

    /// Says whose the last event of a CPU is; `None` if it has no call chain.
    fn settle(&mut self, cpu: u32, site: Option<&[u8]>) {
        let Some(Pending { did, charge, calls, unnamed }) = self.pending.remove(&cpu) else {
            return;
        };
        let is_unnamed = site.is_none() && unnamed > 0;
        if matches!(did, Did::Alloc(_)) {
            self.with_stack += u64::from(calls > 0);
            self.unnamed_stacks += u64::from(is_unnamed);
        }
        let nowhere = if is_unnamed { NO_NAMES } else { NO_STACK };
        let group = self.group(site.unwrap_or(nowhere.as_bytes()));
        if let Some(charge) = charge {
            self.groups[group].add(charge);
        }
        match did {
            Did::Free => self.groups[group].frees += 1,
            Did::Refill(_) | Did::Drain(_) => self.groups[group].flow(did),
            Did::Alloc(block) => {
                self.count(group, block);
                if let Some(live) = block.pfn.and_then(|pfn| self.live.get_mut(&pfn)) {
                    live.group = group;
                }
            }
        }
    }

    /// A pageset was refilled or drained.
    fn flow(&mut self, event: &TraceEvent<'_>, did: Did) {
        self.with_flow += 1;
        if self.by == By::Site {
            self.pending.insert(event.cpu.0, Pending::of(did));
        } else if let Some(group) = self.doer(event) {
            self.groups[group].flow(did);
        }
    }

    fn free(&mut self, event: &TraceEvent<'_>, pfn: Pfn, order: Order) {
        self.requests.frees += 1;
        self.requests.free_pages += order.pages().0;
        let live = self.live.remove(&pfn);
        match self.by {
            By::Site => {
                self.pending.insert(event.cpu.0, Pending::of(Did::Free));
            }
            By::Task | By::Cgroup => self.last = self.doer(event),
            // Whoever frees has no order, type or flags: what it frees has.
            By::Order | By::Type | By::Gfp => self.last = live.map(|live| live.group),
        }
        if let Some(doer) = self.last {
            self.groups[doer].frees += 1;
        }
        let Some(live) = live else {
            self.requests.free_only += 1;
            self.requests.free_only_pages += order.pages().0;
            return;
        };
        self.requests.alloc_freed += 1;
        self.requests.alloc_freed_pages += live.order.pages().0;
        let group = &mut self.groups[live.group];
        group.freed += 1;
        group.freed_pages += live.order.pages().0;
        let age_ns = event.time_ns.saturating_sub(live.time_ns);
        group.lifetimes.sum_ns = group.lifetimes.sum_ns.saturating_add(age_ns);
        group.lifetimes.by_power
            [age_ns.checked_ilog2().map_or(0, |power| power as usize + 1).min(63)] += 1;
    }

    /// Whoever does something, if groups are of tasks.
    fn doer(&mut self, event: &TraceEvent<'_>) -> Option<usize> {
        matches!(self.by, By::Task | By::Cgroup).then(|| {
            let name = self.doing(event);
            self.group(&name)
        })
    }

    /// The name of whoever does something: of cgroups the task's number, since its cgroup may be told later.
    fn doing(&self, event: &TraceEvent<'_>) -> Vec<u8> {
        match self.by {
            By::Cgroup if !self.cgroups.contains_key(&event.pid) => {
                [UNTOLD, event.pid.to_string().as_bytes()].concat()
            }
            By::Cgroup => self.cgroups[&event.pid].to_vec(),
            _ => event.comm.to_vec(),
        }
    }

    /// Gives what tasks did before their cgroups were told to those.
    fn settle_cgroups(&mut self) {
        let groups = std::mem::take(&mut self.groups);
        let mut places = vec![0; groups.len()];
        let mut merged: Vec<Group> = Vec::new();
        let mut known: HashMap<String, usize> = HashMap::new();
        for (at, group) in groups.into_iter().enumerate() {
            let pid = group.name.as_bytes().strip_prefix(UNTOLD);
            let pid = pid.and_then(|pid| std::str::from_utf8(pid).ok()?.parse().ok());
            let name = match pid {
                Some(pid) => self
                    .cgroups
                    .get::<u32>(&pid)
                    .map_or(NO_CGROUP.into(), |path| String::from_utf8_lossy(path).into_owned()),
                None => group.name.clone(),
            };
            places[at] = match known.get(&name) {
                Some(&place) => {
                    merged[place].absorb(&group);
                    place
                }
                None => {
                    known.insert(name.clone(), merged.len());
                    merged.push(Group { name, ..group });
                    merged.len() - 1
                }
            };
        }
        self.live.values_mut().for_each(|live| live.group = places[live.group]);
        self.groups = merged;
    }

    /// A path of a cgroup as it is kept.
    fn path(&mut self, path: &[u8]) -> Arc<[u8]> {
        let path = &path[..path.len().min(NAME_BYTES_MOST)];
        if let Some(known) = self.paths.get(path) {
            return Arc::clone(known);
        }
        let path = if self.paths.len() < GROUPS_MOST { path } else { OTHERS.as_bytes() };
        let path: Arc<[u8]> = path.into();
        self.paths.insert(Arc::clone(&path));
        path
    }

    fn group(&mut self, name: &[u8]) -> usize {
        let name = &name[..name.len().min(NAME_BYTES_MOST)];
        if let Some(&group) = self.names.get(name) {
            return group;
        }
        let name = if self.groups.len() < GROUPS_MOST { name } else { OTHERS.as_bytes() };
        let next = self.groups.len();
        let group = *self.names.entry(name.to_vec()).or_insert(next);
        if group == next {
            let name = String::from_utf8_lossy(name).into_owned();
            self.groups.push(Group { name, ..Group::default() });
        }
        group
    }
}

/// What a mark tells of a task's cgroup.
fn cgroup_of(mark: &[u8]) -> Option<(u32, &[u8])> {
    let rest = mark.trim_ascii().strip_prefix(CGROUP_MARK.as_bytes())?;
    let (pid, path) = rest.split_at(rest.iter().position(|byte| *byte == b' ')?);
    Some((std::str::from_utf8(pid).ok()?.parse().ok()?, path.trim_ascii()))
}

/// A call of a chain.
pub(crate) struct Call<'l> {
    pub address: Option<u64>,
    name: Option<&'l [u8]>,
}

impl<'l> Call<'l> {
    /// Reads a line: `ffffffff812 name+0x1a ([kernel.kallsyms])` or `ffffffff812 [unknown]` of perf, ` => name+0x1a/0x20` or ` => name`
    /// of ftrace.
    pub fn of(line: &'l [u8]) -> Option<Call<'l>> {
        let text = line.trim_ascii();
        let (address, rest) = match text.strip_prefix(b"=>") {
            Some(rest) => (None, rest.trim_ascii_start()),
            None => {
                let end = text.iter().position(|byte| *byte == b' ')?;
                let digits = std::str::from_utf8(&text[..end]).ok().filter(|_| end >= 4)?;
                (Some(u64::from_str_radix(digits, 16).ok()?), text[end..].trim_ascii_start())
            }
        };
        let ends = |byte: &u8| [b' ', b'+', b'/', b'\t'].contains(byte);
        let name = &rest[..rest.iter().position(ends).unwrap_or(rest.len())];
        (!name.is_empty())
            .then(|| Call { address, name: Some(name).filter(|name| *name != b"[unknown]") })
    }

    /// The function, by the line or else by the symbols.
    pub fn name<'s: 'l>(&self, symbols: &'s Symbols) -> Option<&'l [u8]> {
        self.name.or_else(|| symbols.name(self.address?))
    }
}

/// Whether a function is the allocator's own, or a wrapper that says nothing of who asks.
fn is_of_allocator(function: &[u8]) -> bool {
    let Ok(name) = std::str::from_utf8(function) else { return false };
    let name = name.split('.').next().unwrap_or(name);
    let name = name.strip_suffix("_noprof").unwrap_or(name);
    const OWN: [&str; 48] = [
        "__alloc_pages",
        "__alloc_pages_nodemask",
        "__alloc_pages_slowpath",
        "__alloc_pages_bulk",
        "alloc_pages_bulk",
        "__alloc_frozen_pages",
        "alloc_frozen_pages",
        "alloc_pages",
        "alloc_pages_mpol",
        "alloc_pages_node",
        "alloc_pages_current",
        "alloc_pages_vma",
        "alloc_page_interleave",
        "__folio_alloc",
        "folio_alloc",
        "folio_alloc_mpol",
        "vma_alloc_folio",
        "get_page_from_freelist",
        "__get_free_pages",
        "get_zeroed_page",
        "get_free_pages",
        "rmqueue",
        "__free_pages",
        "___free_pages",
        "free_pages",
        "free_unref_page",
        "free_unref_page_list",
        "free_unref_folios",
        "free_frozen_pages",
        "__free_frozen_pages",
        "__free_pages_ok",
        "free_the_page",
        "__folio_put",
        "folios_put_refs",
        "release_pages",
        "free_unref_page_prepare",
        "rmqueue_bulk",
        "rmqueue_buddy",
        "rmqueue_pcplist",
        "__rmqueue",
        "__rmqueue_pcplist",
        "free_pcppages_bulk",
        "free_unref_page_commit",
        "free_frozen_page_commit",
        "decay_pcp_high",
        "drain_zone_pages",
        "drain_pages_zone",
        "drain_pages",
    ];
    OWN.contains(&name)
        || ["trace_event_", "perf_trace_", "__traceiter_", "__do_trace_", "perf_tp_", "ftrace_"]
            .iter()
            .any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TraceError;
    use crate::read::read_trace_with_frames;

    fn summary(by: By, text: &str) -> Summary {
        finished(Summarizer::new(by), text)
    }

    fn finished(summarizer: Summarizer, text: &str) -> Summary {
        let summarizer = std::cell::RefCell::new(summarizer);
        let counts = read_trace_with_frames::<TraceError>(
            "test",
            text.as_bytes(),
            |event| {
                summarizer.borrow_mut().note(event);
                Ok(())
            },
            |line| summarizer.borrow_mut().frame(line),
        );
        summarizer.into_inner().finish(&counts.unwrap())
    }

    const PERF: &str = "\
cc1  71 [001]  10.000001: kmem:mm_page_alloc: page=0x1 pfn=0x100 order=0 migratetype=1 gfp_flags=GFP_KERNEL
\tffffffff8127a0a1 __alloc_pages_noprof+0x1a1 ([kernel.kallsyms])
\tffffffff8127b0a1 pte_alloc_one+0x11 ([kernel.kallsyms])
\tffffffff8127c0a1 do_anonymous_page+0x11 ([kernel.kallsyms])

cc1  71 [001]  10.000002: kmem:mm_page_alloc: page=0x2 pfn=0x200 order=2 migratetype=0 gfp_flags=GFP_KERNEL
\tffffffff8127a0a1 alloc_pages_mpol+0x1a1 ([kernel.kallsyms])
\tffffffff8127b0a1 allocate_slab+0x11 ([kernel.kallsyms])

ld  72 [000]  10.000005: kmem:mm_page_free: page=0x1 pfn=0x100 order=0
\tffffffff8127b0a1 free_unref_page+0x11 ([kernel.kallsyms])

ld  72 [000]  10.000006: kmem:mm_page_free: page=0x9 pfn=0x900 order=0
cc1  71 [001]  10.000007: kmem:mm_page_alloc: page=0x0 pfn=0x0 order=3 migratetype=0 gfp_flags=GFP_KERNEL
";

    const FTRACE: &str = "\
             cc1-71      [001] .....    10.000001: mm_page_alloc: page=0x1 pfn=0x100 order=0 migratetype=1 gfp_flags=GFP_KERNEL
              ld-72      [000] .....    10.000002: mm_page_free: page=0x9 pfn=0x900 order=0
             cc1-71      [001] .....    10.000003: kernel_stack:         <stack trace >
 => __alloc_pages
 => pte_alloc_one
 => do_anonymous_page
             cc1-71      [001] .....    10.000004: mm_page_alloc: page=0x2 pfn=0x200 order=2 migratetype=0 gfp_flags=GFP_KERNEL
";

    #[test]
    fn sites_come_from_chains_of_perf_and_ftrace() {
        let names = |summary: &Summary| -> Vec<(String, u64, u64, u64)> {
            let groups = summary.groups.iter();
            groups.map(|of| (of.name.clone(), of.allocs, of.alloc_pages, of.left)).collect()
        };
        let perf = summary(By::Site, PERF);
        let of = |name: &str, allocs, pages, left| (name.to_owned(), allocs, pages, left);
        assert_eq!(names(&perf)[..2], [of("allocate_slab", 1, 4, 1), of("pte_alloc_one", 1, 1, 0)]);
        assert_eq!(perf.with_stack, 2);
        let ftrace = summary(By::Site, FTRACE);
        assert_eq!(names(&ftrace), [of(NO_STACK, 1, 4, 1), of("pte_alloc_one", 1, 1, 1)]);
    }

    /// The site of a request is the site of the refill or drain that the request causes.
    #[test]
    fn refills_and_drains_have_sites() {
        let text = "\
cc1  71 [001]  10.000001: kmem:mm_page_alloc_zone_locked: page=0x1 pfn=0x100 order=1 migratetype=1 cpu=1 percpu_refill=1
\tffffffff8127a0a1 __rmqueue_pcplist+0x1a1 ([kernel.kallsyms])
\tffffffff8127b0a1 pte_alloc_one+0x11 ([kernel.kallsyms])

ld  72 [000]  10.000002: kmem:mm_page_pcpu_drain: page=0x9 pfn=0x900 order=2 migratetype=1
\tffffffff8127b0a1 free_pcppages_bulk+0x11 ([kernel.kallsyms])
\tffffffff8127b0a1 free_frozen_page_commit+0x11 ([kernel.kallsyms])
\tffffffff8127c0a1 tlb_remove_table_rcu+0x11 ([kernel.kallsyms])
";
        let of = summary(By::Site, text);
        let flow: Vec<_> =
            of.groups.iter().map(|of| (&*of.name, of.refill_pages, of.drain_pages)).collect();
        assert_eq!(of.with_flow, 2);
        assert_eq!(
            flow,
            [("pte_alloc_one", Some(2), Some(0)), ("tlb_remove_table_rcu", Some(0), Some(4))]
        );
    }

    /// A `perf.data` has addresses: names come from elsewhere, and may be those of another boot.
    #[test]
    fn addresses_are_named_by_symbols() {
        let text = PERF.replace("__alloc_pages_noprof+0x1a1", "[unknown]");
        let text = text.replace("pte_alloc_one+0x11", "[unknown]");
        let text = text.replace("do_anonymous_page+0x11", "[unknown]");
        let with = |symbols: &str| {
            let symbols = Arc::new(Symbols::read(symbols.into()));
            let summarizer = Summarizer::new(By::Site).with_symbols(symbols);
            let of = finished(summarizer, &text);
            let groups = of.groups.iter().filter(|group| group.allocs > 0);
            let names: Vec<String> = groups.map(|group| group.name.clone()).collect();
            (names, [of.with_stack, of.unnamed_stacks, of.named_stacks, of.misnamed_stacks])
        };
        let names = |name: &str| vec!["allocate_slab".to_owned(), name.to_owned()];
        assert_eq!(with(""), (names(NO_NAMES), [2, 1, 0, 0]));
        let right = "ffffffff8127a000 T __alloc_pages_noprof\nffffffff8127b000 T pte_alloc_one\n";
        assert_eq!(with(right), (names("pte_alloc_one"), [2, 0, 1, 0]));
        let other = "ffffffff8127a000 T tcp_ack\nffffffff8127b000 T pte_alloc_one\n";
        assert_eq!(with(other), (names("tcp_ack"), [2, 0, 1, 1]));
    }

    /// Lines of a stranger: a name as long as a line, and more names and paths than are kept.
    #[test]
    fn names_are_kept_to_their_bounds() {
        let mut summarizer = Summarizer::new(By::Cgroup);
        let long = vec![b'x'; 1 << 20];
        let paths = (0..2 * GROUPS_MOST as u32).map(|at| [&at.to_le_bytes()[..], &long].concat());
        let kept: HashSet<Arc<[u8]>> = paths.map(|path| summarizer.path(&path)).collect();
        assert_eq!(kept.len(), GROUPS_MOST + 1);
        assert!(kept.iter().all(|path| path.len() <= NAME_BYTES_MOST));
        (0..2 * GROUPS_MOST as u32).for_each(|at| _ = summarizer.group(&at.to_le_bytes()));
        assert_eq!(summarizer.groups.len(), GROUPS_MOST + 1);
        let others = summarizer.group(&long);
        assert_eq!(summarizer.groups[others].name, OTHERS);
    }

    /// Who frees is charged for the drain, who allocates for the refill, and time alone is nobody's.
    #[test]
    fn charges_belong_to_who_asked() {
        let charged = |by: By, text: &str| {
            let summarizer = std::cell::RefCell::new(Summarizer::new(by));
            let mut at = 0;
            let counts = read_trace_with_frames::<TraceError>(
                "test",
                text.as_bytes(),
                |event| {
                    let mut summarizer = summarizer.borrow_mut();
                    summarizer.note(event);
                    // The chain of ftrace comes as an event, for which a replay does nothing.
                    let is_chain = matches!(event.event, Event::Other(_));
                    at += u64::from(!is_chain);
                    let holds = if is_chain { 0 } else { at };
                    summarizer.charge(event.cpu, Charge { holds, far_pages: 10 * holds });
                    Ok(())
                },
                |line| summarizer.borrow_mut().frame(line),
            );
            let groups = summarizer.into_inner().finish(&counts.unwrap()).groups;
            let told = |of: &Group| (of.name.clone(), of.holds, of.far_pages, of.frees);
            let mut told: Vec<_> = groups.iter().map(told).collect();
            told.sort();
            told
        };
        let of = |name: &str, holds, frees| (name.to_owned(), Some(holds), Some(10 * holds), frees);
        // Allocations are the first, second and fifth event, frees the third and fourth.
        assert_eq!(charged(By::Task, PERF), [of("cc1", 1 + 2 + 5, 0), of("ld", 3 + 4, 2)]);
        let sites = charged(By::Site, PERF);
        let none = of(NO_STACK, 3 + 4 + 5, 2);
        assert_eq!(sites, [none, of("allocate_slab", 2, 0), of("pte_alloc_one", 1, 0)]);
        assert_eq!(charged(By::Site, FTRACE), [of(NO_STACK, 2 + 3, 1), of("pte_alloc_one", 1, 0)]);
    }

    #[test]
    fn pageblocks_are_pinned_by_what_stays_and_cannot_move() {
        let line = |pfn: u64, order: u8, kind: u8| {
            format!(
                "a-1 [000] ..... 1.0: mm_page_alloc: page=0x1 pfn={pfn:#x} order={order} migratetype={kind} gfp_flags=0\n"
            )
        };
        let freed = "a-1 [000] ..... 1.1: mm_page_free: page=0x1 pfn=0x2000 order=0\n";
        let text = [
            line(0x1000, 0, 0),
            line(0x1001, 0, 2),
            line(0x1400, 10, 0),
            line(0x1800, 0, 1),
            line(0x2000, 0, 0),
            freed.to_owned(),
        ];
        let summary = summary(By::Task, &text.concat());
        // One for two single pages, two for a block of order 10; movable and freed ones pin none.
        assert_eq!(summary.groups[0].pinned_pageblocks, 1 + 2);
        assert_eq!(summary.groups[0].holds, None);
    }

    #[test]
    fn requests_are_counted_as_perf_counts_them() {
        let Summary { requests, by_order_and_type, groups, .. } = summary(By::Task, PERF);
        assert_eq!((requests.allocs, requests.alloc_pages), (3, 1 + 4 + 8));
        assert_eq!((requests.frees, requests.free_only), (2, 1));
        assert_eq!((requests.alloc_freed, requests.alloc_only, requests.failed), (1, 1, 1));
        assert_eq!(
            (by_order_and_type[0][1], by_order_and_type[2][0], by_order_and_type[3][0]),
            (1, 1, 0)
        );
        let cc1 = &groups[0];
        assert_eq!(
            (&*cc1.name, cc1.allocs, cc1.failed, cc1.freed, cc1.left_pages),
            ("cc1", 2, 1, 1, 4)
        );
        assert_eq!(cc1.lifetime_mean_ns, Some(4000.0));
        assert_eq!(cc1.lifetime_median_ns, Some(4096));
        assert_eq!((&*groups[1].name, groups[1].frees), ("ld", 2));
    }

    /// A task's cgroup may be told behind what it did first; what nobody tells is unknown.
    #[test]
    fn groups_of_cgroups_have_what_their_tasks_did() {
        let text = "\
 a-1 [000] ..... 5.000001: mm_page_alloc: page=1 pfn=0x10 order=1 migratetype=0 gfp_flags=0
 c-3 [000] ..... 5.000002: mm_page_alloc: page=1 pfn=0x20 order=0 migratetype=0 gfp_flags=0
 r-9 [000] ..... 5.000003: tracing_mark_write: nearpage: cgroup 1 /a b
 r-9 [000] ..... 5.000003: tracing_mark_write: nearpage: cgroup 2 /a b
 b-2 [000] ..... 5.000004: mm_page_alloc: page=1 pfn=0x30 order=0 migratetype=1 gfp_flags=0
 a-1 [000] ..... 5.000005: mm_page_alloc: page=1 pfn=0x40 order=0 migratetype=0 gfp_flags=0
 b-2 [000] ..... 5.000006: mm_page_free: page=1 pfn=0x10 order=1
";
        let summary = summary(By::Cgroup, text);
        let groups: Vec<_> = summary
            .groups
            .iter()
            .filter(|group| group.allocs > 0)
            .map(|of| (&*of.name, of.alloc_pages, of.freed_pages, of.left_pages, of.frees))
            .collect();
        assert_eq!(groups, [("/a b", 4, 2, 2, 1), ("(unknown cgroup)", 1, 0, 1, 0)]);
        assert_eq!(summary.groups[0].pinned_pageblocks, 1);
    }
}
