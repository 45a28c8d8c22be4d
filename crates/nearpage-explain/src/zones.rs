//! The zones of a report as the core's rules see them: sizes in pages, indexes of zones, what a request may use.

use nearpage::rules::watermarks::{AllocFlags, WatermarkCheck, watermark_fast};
use nearpage::{Gfp, Migratetype, Order, PageCount};

use crate::report::{Report, ZoneRow};

/// More pages than any machine has addresses for. Sums of figures of a damaged log stay sums.
const PAGES_MOST: u64 = 1 << 52;

/// Which zones a kernel was built with, lowest first. A report prints those that have memory; how many columns
/// `lowmem_reserve[]` has says which others there are.
const BUILT_WITH: [&[&str]; 12] = [
    &["DMA", "DMA32", "Normal", "Movable", "Device"],
    &["DMA", "DMA32", "Normal", "Movable"],
    &["DMA", "Normal", "HighMem", "Movable"],
    &["DMA", "Normal", "HighMem", "Movable", "Device"],
    &["DMA32", "Normal", "Movable", "Device"],
    &["DMA32", "Normal", "Movable"],
    &["Normal", "HighMem", "Movable"],
    &["DMA", "Normal", "Movable", "Device"],
    &["DMA", "Normal", "Movable"],
    &["Normal", "Movable", "Device"],
    &["Normal", "Movable"],
    &["DMA", "Movable"],
];

/// The request and the machine of a report.
#[derive(Clone, Debug)]
pub(crate) struct Zones<'a> {
    pub(crate) report: &'a Report,
    /// Names of the zones that the kernel has, lowest first.
    names: &'static [&'static str],
    page_kib: u64,
    pub(crate) gfp: Gfp,
    pub(crate) order: Order,
    pub(crate) flags: AllocFlags,
    /// The nodes that `__GFP_THISNODE` may name; empty without the flag, or where the report tells nothing.
    insisted_on: Vec<u32>,
}

impl<'a> Zones<'a> {
    pub(crate) fn new(report: &'a Report) -> Zones<'a> {
        let columns = report.zones.iter().map(|zone| zone.reserve.len()).max().unwrap_or(0);
        // A zone keeps nothing from requests of its own kind, nor of lower ones.
        let fits = |names: &&&[&str]| {
            report.zones.iter().all(|zone| {
                let index = names.iter().position(|name| *name == zone.name);
                index
                    .is_some_and(|index| zone.reserve.iter().take(index + 1).all(|kept| *kept == 0))
            })
        };
        let by_columns = BUILT_WITH.iter().filter(|names| names.len() == columns).find(fits);
        let names = by_columns.or_else(|| BUILT_WITH.iter().find(fits)).unwrap_or(&BUILT_WITH[0]);
        let order = Order(report.order.unwrap_or(0));
        let gfp = report.mode.gfp;
        let flags = AllocFlags::under_pressure(gfp, order);
        let page_kib = report.page_kib();
        let insisted_on = Vec::new();
        let mut zones = Zones { report, names, page_kib, gfp, order, flags, insisted_on };
        zones.insisted_on = zones.may_be_insisted_on();
        zones
    }

    /// The nodes that `__GFP_THISNODE` may name. Where the report names none, it is one that gives nothing: the request was
    /// refused. A node that may give, since the report lost a row of it, is meant only if no other gives nothing for sure.
    fn may_be_insisted_on(&self) -> Vec<u32> {
        if !self.gfp.contains(Gfp::THISNODE) {
            return Vec::new();
        }
        if let Some(node) = self.report.slub.as_ref().and_then(|slub| slub.node) {
            return vec![node];
        }
        let asked = || self.report.zones.iter().filter(|zone| self.excluded(zone).is_none());
        let any = |node: u32, is: &dyn Fn(&ZoneRow) -> bool| {
            asked().any(|zone| zone.node == node && is(zone))
        };
        let mut refusing: Vec<u32> = asked().map(|zone| zone.node).collect();
        refusing.sort_unstable();
        refusing.dedup();
        refusing.retain(|&node| !any(node, &|zone| self.gives(zone) == Some(true)));
        let mut surely = refusing.clone();
        surely.retain(|&node| !any(node, &|zone| self.gives(zone).is_none()));
        if surely.is_empty() { refusing } else { surely }
    }

    /// Whether a zone gives the request a block; `None` if the report lacks what would tell.
    fn gives(&self, zone: &ZoneRow) -> Option<bool> {
        let check = self.check(zone);
        let has_all = self.knows_reserve(zone) || self.flags.contains(AllocFlags::NO_WATERMARKS);
        match self.passes(zone, &check) {
            _ if zone.is_damaged => None,
            true => has_all.then_some(true),
            false => (!zone.blocks.is_empty() || !self.has_pages(&check)).then_some(false),
        }
    }

    /// The one node that the request insists on, if it does and the report tells.
    pub(crate) fn this_node(&self) -> Option<u32> {
        match self.insisted_on[..] {
            [node] => Some(node),
            _ => None,
        }
    }

    pub(crate) fn pages(&self, kib: u64) -> PageCount {
        PageCount(kib / self.page_kib)
    }

    pub(crate) fn kib(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.page_kib)
    }

    /// The index of a zone among those that the kernel has.
    pub(crate) fn index(&self, name: &str) -> usize {
        self.names.iter().position(|other| *other == name).unwrap_or(0)
    }

    /// The highest zone that the request may use: the one that its flags name, or the next lower that the kernel has.
    pub(crate) fn highest(&self) -> usize {
        let has = |flag| self.gfp.contains(flag);
        let wanted = if has(Gfp::DMA) {
            "DMA"
        } else if has(Gfp::DMA32) {
            "DMA32"
        } else if has(Gfp::HIGHMEM | Gfp::MOVABLE) {
            "Movable"
        } else if has(Gfp::HIGHMEM) && self.names.contains(&"HighMem") {
            "HighMem"
        } else {
            "Normal"
        };
        // A kernel without the zone for small addresses has all its memory there.
        self.names.iter().position(|name| *name == wanted).unwrap_or_else(|| self.index("Normal"))
    }

    /// The name of the highest zone that the request may use.
    pub(crate) fn highest_name(&self) -> &'static str {
        self.names[self.highest()]
    }

    pub(crate) fn managed(&self, zone: &ZoneRow) -> PageCount {
        self.pages(zone.managed.unwrap_or(zone.present))
    }

    pub(crate) fn may_use_cma(&self) -> bool {
        self.gfp.migratetype() == Some(Migratetype::Movable)
    }

    /// The question whether the request gets a block of a zone, with the zone's numbers.
    pub(crate) fn check(&self, zone: &ZoneRow) -> WatermarkCheck {
        let cma = if self.may_use_cma() { 0 } else { zone.free_cma };
        // What is reserved and not free is not to be subtracted twice.
        let urgent =
            self.pages(zone.free_highatomic.unwrap_or(zone.reserved_highatomic).min(zone.free));
        let free = PageCount(self.pages(zone.free.saturating_sub(cma)).0.min(PAGES_MOST));
        // Before 6.4 only who cannot wait had a right to it; the core's rule asks whether there is any right.
        let is_kept = self.report.version().is_some_and(|version| version < (6, 4))
            && !self.flags.intersects(AllocFlags::NON_BLOCK | AllocFlags::OOM);
        let boost = self.pages(zone.boost.unwrap_or(0));
        let min = PageCount(self.pages(zone.min).0.min(PAGES_MOST));
        WatermarkCheck {
            free: if is_kept { PageCount(free.0.saturating_sub(urgent.0)) } else { free },
            free_high_atomic: if is_kept { PageCount(0) } else { urgent },
            mark: min,
            boost: PageCount(if self.ignores_boost() { boost.0.min(min.0) } else { 0 }),
            reserve: PageCount(
                zone.reserve.get(self.highest()).copied().unwrap_or(0).min(PAGES_MOST),
            ),
            order: self.order,
            flags: self.flags,
        }
    }

    /// Whether the reserve against the request is in the report. The highest zone that it may use has none against it.
    pub(crate) fn knows_reserve(&self, zone: &ZoneRow) -> bool {
        zone.reserve.len() > self.highest() || self.index(&zone.name) >= self.highest()
    }

    /// The same question of a zone without the reserve for urgent requests.
    pub(crate) fn check_without_highatomic(&self, zone: &ZoneRow) -> WatermarkCheck {
        let without = ZoneRow { reserved_highatomic: 0, free_highatomic: None, ..zone.clone() };
        self.check(&without)
    }

    /// Whether urgent single pages are not held up by a boost: those that cannot wait from 5.9 on, all from 6.4 on.
    fn ignores_boost(&self) -> bool {
        match self.report.version() {
            Some(version) if version < (5, 9) => false,
            Some(version) if version < (6, 4) => !self.gfp.intersects(Gfp::DIRECT_RECLAIM),
            _ => true,
        }
    }

    /// Whether a zone has a free block of exactly that order on lists of that type. Where types are not printed, any.
    pub(crate) fn has_block(&self, zone: &ZoneRow, order: Order, migratetype: Migratetype) -> bool {
        let Some(blocks) = zone.blocks.get(order.0 as usize).filter(|blocks| blocks.count > 0)
        else {
            return false;
        };
        let Some(types) = &blocks.types else { return true };
        let letters = match migratetype {
            Migratetype::Unmovable => "U",
            Migratetype::Movable if self.may_use_cma() => "MC",
            Migratetype::Movable => "M",
            // `R` before Linux 3.10.
            Migratetype::Reclaimable => "ER",
            Migratetype::HighAtomic => "H",
            Migratetype::Isolate => "I",
        };
        types.contains(|letter| letters.contains(letter))
    }

    /// Whether the request passes, with these numbers and the blocks of the zone.
    pub(crate) fn passes(&self, zone: &ZoneRow, check: &WatermarkCheck) -> bool {
        self.flags.contains(AllocFlags::NO_WATERMARKS) && self.has_any_block(zone, check.order)
            || watermark_fast(check, |order, migratetype| self.has_block(zone, order, migratetype))
                && self.passes_by_order(zone, check)
    }

    /// Kernels before 4.4 took the pages of smaller blocks away, order by order, and asked that what is left be more than the
    /// mark, halved for each order. A few large blocks were not enough then.
    fn passes_by_order(&self, zone: &ZoneRow, check: &WatermarkCheck) -> bool {
        let is_old = self.report.version().is_some_and(|version| version < (4, 4));
        if !is_old || zone.blocks.is_empty() {
            return true;
        }
        let request = check.order.pages().0;
        // What must be free is more than the mark and the reserve, and the block's other pages.
        let mut mark = self.needed(check).0.saturating_sub(request.saturating_add(check.reserve.0));
        let mut left = check.free.0.saturating_sub(request - 1);
        for (order, blocks) in zone.blocks.iter().enumerate().take(check.order.0.into()) {
            left = left.saturating_sub(blocks.count.saturating_mul(1 << order));
            mark /= 2;
            if left <= mark {
                return false;
            }
        }
        true
    }

    fn has_any_block(&self, zone: &ZoneRow, order: Order) -> bool {
        let from = order.0 as usize;
        zone.free > 0 && (from == 0 || zone.blocks.iter().skip(from).any(|blocks| blocks.count > 0))
    }

    /// Whether enough pages are free, whatever their blocks.
    pub(crate) fn has_pages(&self, check: &WatermarkCheck) -> bool {
        watermark_fast(check, |_, _| true)
    }

    /// Pages that must be free for the request, whatever their blocks.
    pub(crate) fn needed(&self, check: &WatermarkCheck) -> PageCount {
        check.free_needed()
    }

    /// Why the request may not use a zone, if it may not.
    pub(crate) fn excluded(&self, zone: &ZoneRow) -> Option<Excluded> {
        let is_outside = |nodes: &Option<Vec<u32>>| {
            nodes.as_ref().is_some_and(|nodes| !nodes.contains(&zone.node))
        };
        // An urgent request that cannot wait is not held to its cpuset.
        let beyond_cpuset = self.gfp.contains(Gfp::HIGH) && !self.gfp.contains(Gfp::DIRECT_RECLAIM);
        let hardwall = self.gfp.contains(Gfp::HARDWALL)
            || self.report.constraint.as_deref() == Some("CONSTRAINT_CPUSET");
        if self.index(&zone.name) > self.highest() {
            Some(Excluded::Kind)
        } else if is_outside(&self.report.nodemask) {
            Some(Excluded::Policy)
        } else if !self.insisted_on.is_empty() && !self.insisted_on.contains(&zone.node) {
            Some(Excluded::ThisNode)
        } else if is_outside(&self.report.mems_allowed) && hardwall && !beyond_cpuset {
            Some(Excluded::Cpuset)
        } else {
            None
        }
    }
}

/// Why a zone was not asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Excluded {
    /// The request needs lower addresses, or memory that cannot be moved must not lie there.
    Kind,
    /// Not among the nodes of the policy.
    Policy,
    /// `__GFP_THISNODE`.
    ThisNode,
    /// Not among the nodes of the cpuset.
    Cpuset,
}

impl Excluded {
    /// The name of the reason, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Excluded::Kind => "kind",
            Excluded::Policy => "policy",
            Excluded::ThisNode => "this_node",
            Excluded::Cpuset => "cpuset",
        }
    }
}
