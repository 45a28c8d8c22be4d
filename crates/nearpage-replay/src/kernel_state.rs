//! The kernel's own state at a moment of a trace: which frames each of its lists had, in their order.
//!
//! A recorder reads it while the kernel goes on, list after list, and notes when each was read. What the trace tells between
//! that time and the end of the reading is applied to the list ([`Roll`]), so that all lists are of one moment: that of the
//! marker `nearpage: state before end`, or `after`.

mod linked;
mod roll;

pub use roll::Gap;
pub(crate) use roll::Roll;

use std::ops::Range;

use nearpage::rules::pagesets::{LISTS, list_order};
use nearpage::{CpuId, Migratetype, NodeId, Order, Pfn, PfnRange, ZoneKind};
use nearpage_kcore::{PagesetState, State, ZoneState};

use crate::zones::ZoneMap;
use linked::Linked;

/// A moment of a recording at which the kernel's state was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    Before,
    After,
}

impl Moment {
    /// The capture that has it.
    pub(crate) fn capture(self) -> &'static str {
        match self {
            Moment::Before => "before",
            Moment::After => "after",
        }
    }

    /// The file that has it.
    pub(crate) fn file(self) -> &'static str {
        match self {
            Moment::Before => "before/kernel.json",
            Moment::After => "after/kernel.json",
        }
    }

    /// The marker at which reading began.
    pub(crate) fn begin(self) -> &'static [u8] {
        match self {
            Moment::Before => b"nearpage: state before begin",
            Moment::After => b"nearpage: state after begin",
        }
    }

    /// The marker at which it had ended.
    pub(crate) fn end(self) -> &'static [u8] {
        match self {
            Moment::Before => b"nearpage: state before end",
            Moment::After => b"nearpage: state after end",
        }
    }
}

/// A free list: its zone, type and order.
pub(crate) type FreeKey = (usize, u8, u8);
/// A list of a pageset: its zone, CPU and position.
pub(crate) type PagesetKey = (usize, u32, usize);

/// The lists of a kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelState {
    /// By the positions of the zones.
    pub(crate) zones: Vec<KernelZone>,
    free: Linked<FreeKey>,
    cached: Linked<PagesetKey>,
    /// What was applied to it.
    pub(crate) gap: Gap,
}

/// What is known of a zone beside its lists.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelZone {
    /// Frames that may be memory.
    pub(crate) memory: Vec<PfnRange>,
    /// The number of the first pageblock, and the types from it on.
    first_pageblock: u64,
    types: Vec<Option<Migratetype>>,
    /// Its pagesets.
    pub(crate) pagesets: Vec<KernelPageset>,
    /// By how many pages the counter of free pages is ahead of the lists.
    pub(crate) lead: i64,
    /// Whether background reclaim is at work.
    pub(crate) is_reclaimed: bool,
    /// When its free lists were read.
    free_read_ns: [u64; 2],
}

/// A pageset without its lists.
#[derive(Clone, Debug)]
pub(crate) struct KernelPageset {
    pub(crate) cpu: CpuId,
    /// What the kernel keeps for it.
    pub(crate) fields: PagesetState,
    /// Whether its CPU has used it since its last turn of the once-a-second work.
    pub(crate) is_used: bool,
    /// When it was read.
    read_ns: [u64; 2],
}

/// Frames of the longest physical addresses, 52 bits.
const FRAMES_MOST: i64 = 1 << 40;

/// Lists of the kernel's pagesets that this crate reads: three types of each order from 0 to 3, then one or two of order 9.
const LISTS_READ: [usize; 2] = [13, 14];

impl KernelState {
    /// What was read, of zones in this order; `map` has their frames.
    ///
    /// # Errors
    ///
    /// A sentence that says why it cannot be used.
    pub(crate) fn of(
        state: &State,
        zones: &[(NodeId, ZoneKind)],
        map: &ZoneMap,
    ) -> Result<KernelState, String> {
        if let Some(cut) = &state.cut {
            return Err(format!("reading its lists ended {cut}"));
        }
        let types: Vec<Option<Migratetype>> =
            state.migratetypes.iter().map(|name| migratetype(name)).collect();
        let mut kernel = KernelState::default();
        for (index, &(node, kind)) in zones.iter().enumerate() {
            let of_node = state.nodes.iter().find(|other| other.id == node.0);
            let is_it = |zone: &&ZoneState| zone.name == kind.name();
            let zone = of_node.and_then(|node| node.zones.iter().find(is_it));
            let zone = zone.ok_or_else(|| format!("it lacks node {node} zone {}", kind.name()))?;
            kernel.add(index, zone, &types, map)?;
        }
        Ok(kernel)
    }

    fn add(
        &mut self,
        index: usize,
        zone: &ZoneState,
        types: &[Option<Migratetype>],
        map: &ZoneMap,
    ) -> Result<(), String> {
        let place = format!("zone {}", zone.name);
        let Some(free_read_ns) = zone.free_read_ns else {
            return Err("it has no times: it was not read of a running kernel".into());
        };
        let end = zone.start_pfn.saturating_add(zone.spanned_pages);
        if end > FRAMES_MOST as u64 {
            return Err(format!("{place} ends at frame {end}: no machine has so many"));
        }
        let type_of = |number: &Option<u8>| types.get(usize::from((*number)?)).copied().flatten();
        let mut own = KernelZone {
            first_pageblock: zone.start_pfn >> Order::PAGEBLOCK.0,
            types: zone.pageblocks.iter().map(type_of).collect(),
            is_reclaimed: zone.flags.iter().any(|flag| flag == "ZONE_RECLAIM_ACTIVE"),
            free_read_ns,
            ..KernelZone::default()
        };
        own.memory = own.present(index, PfnRange::new(zone.start_pfn, end), map);
        let is_own = |pfn: u64, order: u8| {
            pfn.is_multiple_of(1 << order)
                && own
                    .memory
                    .iter()
                    .any(|range| range.contains(Pfn(pfn)) && pfn + (1 << order) <= range.end.0)
        };
        let mut free_pages = 0;
        for (order, area) in zone.free.iter().enumerate() {
            for (number, list) in area.lists.iter().enumerate().filter(|(_, list)| !list.is_empty())
            {
                let of = types.get(number).copied().flatten();
                let of = of.filter(|_| order < Order::COUNT);
                let of = of.ok_or_else(|| {
                    format!("{place} has free blocks of order {order} of a type that no rules have")
                })?;
                free_pages += (list.len() as u64) << order;
                for &pfn in list {
                    let is_there = is_own(pfn, order as u8)
                        && self.free.push_back((index, of.index() as u8, order as u8), pfn);
                    self.gap.misfits += u64::from(!is_there);
                }
            }
        }
        let (counted, _) = zone.counter("NR_FREE_PAGES").unwrap_or((free_pages as i64, 0));
        own.lead = counted.saturating_sub(free_pages as i64).clamp(-FRAMES_MOST, FRAMES_MOST);
        for pageset in &zone.pagesets {
            if !LISTS_READ.contains(&pageset.lists.len()) {
                let lists = pageset.lists.len();
                return Err(format!(
                    "its pagesets have {lists} lists, of which no rules are known"
                ));
            }
            let Some(read_ns) = pageset.read_ns else { continue };
            for (list, frames) in pageset.lists.iter().enumerate() {
                for &pfn in frames {
                    let key = (index, pageset.cpu, list.min(LISTS - 1));
                    let is_there =
                        is_own(pfn, list_order(key.2).0) && self.cached.push_back(key, pfn);
                    self.gap.misfits += u64::from(!is_there);
                }
            }
            own.pagesets.push(KernelPageset {
                cpu: CpuId(pageset.cpu),
                is_used: pageset.differences.iter().any(|(_, value)| *value != 0),
                fields: PagesetState { lists: Vec::new(), ..pageset.clone() },
                read_ns,
            });
        }
        self.zones.push(own);
        Ok(())
    }

    /// Leaves out blocks that overlap with others, the smaller ones: a list was read before a block moved, another one after.
    fn settle(&mut self) {
        let free = self.free.all().map(|(pfn, (_, _, order))| (pfn, order, true));
        let cached = self.cached.all();
        let cached = cached.map(|(pfn, (_, _, list))| (pfn, list_order(list).0, false));
        let mut blocks: Vec<(u64, u8, bool)> = free.chain(cached).collect();
        blocks.sort_unstable_by_key(|&(pfn, order, is_free)| (pfn, !order, is_free));
        let mut end = 0;
        for (pfn, order, is_free) in blocks {
            if pfn >= end {
                end = pfn + (1 << order);
                continue;
            }
            self.gap.misfits += 1;
            match is_free {
                true => _ = self.free.remove(pfn),
                false => _ = self.cached.remove(pfn),
            }
        }
    }

    /// The frames of a list of a pageset; the next to be handed out comes first.
    pub(crate) fn cached(&self, zone: usize, cpu: CpuId, list: usize) -> Vec<u64> {
        self.cached.list((zone, cpu.0, list)).collect()
    }

    /// Pages in each list of a pageset.
    pub(crate) fn cached_pages(&self, zone: usize, cpu: CpuId) -> [u64; LISTS] {
        std::array::from_fn(|list| {
            (self.cached.list((zone, cpu.0, list)).count() as u64) << list_order(list).0
        })
    }

    /// The first frames of a free list; the next to be taken comes first.
    pub(crate) fn free(&self, zone: usize, migratetype: Migratetype, order: Order) -> Vec<u64> {
        self.free.list((zone, migratetype.index() as u8, order.0)).collect()
    }
}

impl KernelZone {
    /// The pageset of a CPU.
    pub(crate) fn pageset(&self, cpu: CpuId) -> Option<&KernelPageset> {
        self.pagesets.iter().find(|pageset| pageset.cpu == cpu)
    }

    /// The type of a frame's pageblock; movable where no memory is.
    pub(crate) fn type_of(&self, pfn: u64) -> Migratetype {
        let at = (pfn >> Order::PAGEBLOCK.0).checked_sub(self.first_pageblock);
        let of = at.and_then(|at| self.types.get(at as usize)).copied().flatten();
        of.unwrap_or(Migratetype::Movable)
    }

    /// Pageblocks by type.
    pub(crate) fn pageblocks(&self) -> [u64; Migratetype::COUNT] {
        let mut counts = [0; Migratetype::COUNT];
        self.types.iter().flatten().for_each(|of| counts[of.index()] += 1);
        counts
    }

    /// The frames of the zone whose pageblocks have a type.
    fn present(&self, index: usize, span: PfnRange, map: &ZoneMap) -> Vec<PfnRange> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (at, _) in self.types.iter().enumerate().filter(|(_, of)| of.is_some()) {
            let start = (self.first_pageblock + at as u64) << Order::PAGEBLOCK.0;
            let end = start + (1 << Order::PAGEBLOCK.0);
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        }
        let mut memory = Vec::new();
        for range in map.ranges(index) {
            let own = runs.iter().map(|run| {
                PfnRange::new(run.start, run.end).intersection(range).intersection(span)
            });
            memory.extend(own.filter(|range| !range.is_empty()));
        }
        memory
    }
}

/// By the name of `/proc/pagetypeinfo`; CMA counts as movable.
fn migratetype(name: &str) -> Option<Migratetype> {
    let of = Migratetype::ALL.into_iter().find(|of| of.name() == name);
    of.or((name == "CMA").then_some(Migratetype::Movable))
}
