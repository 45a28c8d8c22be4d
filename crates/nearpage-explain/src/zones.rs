//! The zones of a report as the core's rules see them: sizes in pages, indexes of zones, what a request may use.

use nearpage::rules::watermarks::{AllocFlags, WatermarkCheck, watermark_fast};
use nearpage::{Gfp, Migratetype, Order, PageCount};

use crate::figure::{Figure, Side};
use crate::report::{FreeBlocks, Report, ZoneRow};

/// More pages than any machine has addresses for. Sums of figures of a damaged log stay sums.
pub(crate) const PAGES_MOST: u64 = 1 << 52;

/// No processor has addresses for 4 PiB.
pub(crate) const MACHINE_KIB_MOST: u64 = 1 << 42;

/// More orders than any kernel has lists of.
const ORDERS_MOST: usize = 32;

/// Which zones a kernel was built with, lowest first. A report prints those that have memory; how many columns
/// `lowmem_reserve[]` has says which others there are.
const BUILT_WITH: [&[&str]; 13] = [
    &["DMA", "DMA32", "Normal", "Movable", "Device"],
    &["DMA", "DMA32", "Normal", "Movable"],
    &["DMA", "Normal", "HighMem", "Movable"],
    // Linux 2.6.15 to 2.6.18, also of 32 bits.
    &["DMA", "DMA32", "Normal", "HighMem"],
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
    /// Columns of `lowmem_reserve[]`.
    columns: usize,
    page_kib: u64,
    pub(crate) gfp: Gfp,
    pub(crate) order: Order,
    pub(crate) flags: AllocFlags,
    /// How many orders have lists of free blocks: those of a row that has its end.
    pub(crate) lists: Option<usize>,
    /// The nodes that `__GFP_THISNODE` may name; empty without the flag, or where the report tells nothing.
    insisted_on: Vec<u32>,
}

impl<'a> Zones<'a> {
    pub(crate) fn new(report: &'a Report) -> Zones<'a> {
        let columns = columns(report);
        // A zone keeps nothing from requests of its own kind, nor of lower ones.
        let fits = |names: &&&[&str]| {
            report.zones.iter().all(|zone| {
                let index = names.iter().position(|name| *name == zone.name);
                index
                    .is_some_and(|index| zone.reserve.iter().take(index + 1).all(|kept| *kept == 0))
            })
        };
        let gfp = report.mode.gfp;
        let by_columns = BUILT_WITH.iter().filter(|names| names.len() == columns).filter(fits);
        // The first of equals: zones that a report should have and lacks, or has and should not.
        let by_columns = by_columns.min_by_key(|names| contradictions(report, names, gfp));
        let names = by_columns.or_else(|| BUILT_WITH.iter().find(fits)).unwrap_or(&BUILT_WITH[0]);
        let order = Order(report.order.unwrap_or(0));
        let mut flags = AllocFlags::under_pressure(gfp, order);
        if report.mode.lacks_atomic {
            flags = flags - (AllocFlags::NON_BLOCK | AllocFlags::HIGHATOMIC);
        }
        // Requests of kswapd itself ignore marks. Those of an interrupt over it, which cannot wait, do not.
        let reclaims = report.process.starts_with("kswapd") && gfp.contains(Gfp::DIRECT_RECLAIM);
        if reclaims && !gfp.contains(Gfp::NOMEMALLOC) {
            flags |= AllocFlags::NO_WATERMARKS;
        }
        let page_kib = report.page_kib();
        let insisted_on = Vec::new();
        let whole = report.zones.iter().filter(|zone| zone.has_all_blocks);
        let lists = whole.map(|zone| zone.blocks.len()).max();
        let mut zones =
            Zones { report, names, columns, page_kib, gfp, order, flags, lists, insisted_on };
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
        let figures = self.figures(zone, Mark::Min);
        match (self.passes(zone, &figures, Side::Best), self.passes(zone, &figures, Side::Worst)) {
            (true, true) => Some(true),
            (false, _) => Some(false),
            (true, false) => None,
        }
    }

    /// Whether no flag is known, since their number was cut within its digits.
    pub(crate) fn lacks_flags(&self) -> bool {
        self.report.mode.is_cut && self.gfp == Gfp::NONE
    }

    /// The one node that the request insists on, if it does and the report tells.
    pub(crate) fn this_node(&self) -> Option<u32> {
        match self.insisted_on[..] {
            [node] => Some(node),
            _ => None,
        }
    }

    /// Whether the request insists on a node, and no node of the report may be it.
    pub(crate) fn is_insisted_on_another(&self) -> bool {
        self.gfp.contains(Gfp::THISNODE) && self.insisted_on.is_empty()
    }

    /// Whether rows are lost of zones that the request may use: what a lower one keeps grows with each that has memory.
    pub(crate) fn lacks_zones(&self) -> bool {
        let zones = &self.report.zones;
        let is_shown =
            |node: u32, name: &str| zones.iter().any(|zone| zone.node == node && zone.name == name);
        zones.iter().filter(|zone| zone.reserve.len() == self.names.len()).any(|zone| {
            (self.index(&zone.name) + 1..=self.highest()).any(|at| {
                zone.reserve[at] > zone.reserve[at - 1] && !is_shown(zone.node, self.names[at])
            })
        })
    }

    /// A figure in pages.
    pub(crate) fn pages(&self, kib: Figure) -> Figure {
        kib.map(|kib| (kib / self.page_kib).min(PAGES_MOST))
    }

    pub(crate) fn kib(&self, pages: u64) -> u64 {
        pages.saturating_mul(self.page_kib)
    }

    /// Whether zones are shown which the kernel's own memory may not use, and neither may the request; it may use all others.
    pub(crate) fn has_high_beyond(&self) -> bool {
        let is_high = |zone: &&ZoneRow| matches!(zone.name.as_str(), "HighMem" | "Movable");
        let is_beyond = |zone: &ZoneRow| self.excluded(zone) == Some(Excluded::Kind);
        let zones = || self.report.zones.iter();
        zones().any(|zone| is_high(&zone)) && zones().all(|zone| is_beyond(zone) == is_high(&zone))
    }

    /// The index of a zone among those that the kernel has.
    pub(crate) fn index(&self, name: &str) -> usize {
        self.names.iter().position(|other| *other == name).unwrap_or(0)
    }

    /// The highest zone that the request may use: the one that its flags name, or the next lower that the kernel has.
    pub(crate) fn highest(&self) -> usize {
        highest(self.names, self.gfp)
    }

    /// The name of the highest zone that the request may use.
    pub(crate) fn highest_name(&self) -> &'static str {
        self.names[self.highest()]
    }

    /// Pages that a zone has. Where the row does not say, there are as many as are free, and no more than are present.
    pub(crate) fn managed(&self, zone: &ZoneRow) -> Figure {
        let machine = self.report.ram_pages.map_or(u64::MAX, |pages| self.kib(pages));
        let bounds = Figure::between(zone.free.least(), zone.present.most().min(machine));
        self.pages(if zone.managed.is_exact() { zone.managed } else { bounds })
    }

    /// Whether the kernel is older than a version; `None` if the report does not tell.
    ///
    /// Kernels from 3.8 on print types of free blocks, those from 4.6 on words of flags. Others tell themselves by figures of
    /// zones.
    pub(crate) fn is_before(&self, version: (u32, u32)) -> Option<bool> {
        if let Some(own) = self.report.version() {
            return Some(own < version);
        }
        let has_blocks = |zone: &&ZoneRow| zone.has_all_blocks;
        let mut blocks = self.report.zones.iter().filter(has_blocks).flat_map(|zone| &zone.blocks);
        let is_untyped = blocks.any(|blocks| blocks.count > 0 && blocks.types.is_none());
        let mode = &self.report.mode;
        match () {
            () if self.report.is_nameless_kill() => Some(true),
            () if self.report.least_version() >= Some(version) => Some(false),
            () if mode.words.is_some() => (version <= (4, 6)).then_some(false),
            () if is_untyped => (version >= (3, 8)).then_some(true),
            () if mode.bits.is_some() => (version >= (4, 6)).then_some(true),
            () => None,
        }
    }

    pub(crate) fn may_use_cma(&self) -> bool {
        self.gfp.migratetype() == Some(Migratetype::Movable)
    }

    /// Free pages of CMA: what the row says, or what the types of its free blocks leave open.
    pub(crate) fn free_cma(&self, zone: &ZoneRow) -> Figure {
        let report = self.report;
        // Kernels before 3.7 print none; whose whole row has none and whose blocks have no types is one of them.
        let is_before = match report.version() {
            Some(version) => version < (3, 7),
            None => {
                let is_whole = !zone.is_damaged || self.report.is_nameless_kill();
                is_whole && self.is_before((3, 8)) == Some(true)
            }
        };
        // The only zone has all of the machine's.
        let of_machine = report.free_cma_pages.filter(|_| report.zones.len() == 1);
        match self.pages(zone.free_cma) {
            said if said.is_exact() => said,
            _ if is_before => Figure::exact(0),
            _ if of_machine.is_some() => of_machine.into(),
            said => said
                .and(self.pages_of(zone, 'C'))
                .and(Figure::between(0, report.free_cma_pages.unwrap_or(u64::MAX))),
        }
    }

    /// Pages in free blocks of a type, as far as the row of blocks goes. An order with several types has a block of each.
    fn pages_of(&self, zone: &ZoneRow, letter: char) -> Figure {
        let mut sum = Figure::exact(0);
        for (order, blocks) in zone.blocks.iter().enumerate() {
            let types = blocks.types.as_deref();
            let others = types.map_or(0, |types| types.len().saturating_sub(1) as u64);
            let others = others.min(blocks.count.saturating_sub(1));
            let count = match types {
                _ if blocks.count == 0 => Figure::exact(0),
                Some(types) if !types.contains(letter) => Figure::exact(0),
                Some(types) if types.len() == 1 => Figure::exact(blocks.count),
                Some(_) => Figure::between(1, blocks.count - others),
                None => Figure::between(0, blocks.count),
            };
            sum = sum.plus(count.map(|count| count.saturating_mul(1 << order.min(31))));
        }
        let free = self.pages(zone.free);
        let most = if zone.has_all_blocks { sum.most() } else { free.most() };
        Figure::between(sum.least(), most.max(sum.least()))
    }

    /// Free pages that only urgent requests get.
    ///
    /// Kernels from 4.4 on reserve whole pageblocks, up to one of the zone's pages in a hundred and a pageblock, and print how
    /// many from 5.5 on. Before 6.12 all of the reserve is left out, free or not; from then on what is free in it, which
    /// those from 6.13 on print. The letter `H` in a row of blocks proves that there is a reserve.
    fn urgent(&self, zone: &ZoneRow) -> Figure {
        let version = self.report.version();
        let reserved = self.pages(zone.reserved_highatomic);
        if zone.free_highatomic.is_exact() {
            return self.pages(zone.free_highatomic);
        }
        let has_letter =
            |blocks: &FreeBlocks| blocks.types.as_ref().is_some_and(|types| types.contains('H'));
        let has_some = zone.blocks.iter().any(has_letter);
        let is_before = self.is_before((4, 4)).unwrap_or(self.report.mode.words.is_none());
        let reserved = match reserved.known() {
            _ if is_before && !has_some => Figure::exact(0),
            Some(_) => reserved,
            None => {
                // A pageblock has 2 MiB or more: 4 MiB where there are no huge pages, up to 512 MiB of pages of 64 KiB.
                let least = (2048 / self.page_kib).max(1);
                let most = match self.page_kib {
                    4 if self.names.contains(&"DMA32") => 512,
                    4 => 1024,
                    _ => 8192,
                };
                let most = self
                    .managed(zone)
                    .map(|managed| (managed / 100).saturating_add(most).next_multiple_of(most));
                // Whatever is free of that type is a part of it.
                let least = least.max(self.pages_of(zone, 'H').least());
                Figure::between(if has_some { least } else { 0 }, most.most().max(least))
            }
        };
        if version >= Some((6, 12)) {
            // What is free of it is in blocks of that type.
            return self.pages_of(zone, 'H').and(Figure::between(0, reserved.most()));
        }
        reserved
    }

    /// The boost within the marks: kernels from 5.0 on have one, and from 5.16 on print it.
    ///
    /// It is at most 1.5 times the `high` mark without it, or a pageblock. The marks lie as far apart as without it: a quarter of
    /// `min` at least.
    pub(crate) fn boost(&self, zone: &ZoneRow) -> Figure {
        let (min, low) = (self.pages(zone.min), self.pages(zone.low));
        let has_none = self.report.version().is_none_or(|version| version < (5, 0));
        if zone.boost.is_exact() || has_none {
            return if zone.boost.is_exact() { self.pages(zone.boost) } else { Figure::exact(0) };
        }
        let Some((min, low)) = min.known().zip(low.known()) else {
            return Figure::between(0, min.most());
        };
        let step = low.saturating_sub(min);
        // A quarter of `min` without a boost: that is what they are apart in a small zone.
        if (min / 4).abs_diff(step) <= 1 {
            return Figure::exact(0);
        }
        let most = (min.saturating_mul(3) / 5).saturating_add(step.saturating_mul(6) / 5);
        let least = min.saturating_sub(step.saturating_mul(4).saturating_add(3));
        Figure::between(least, most.max(1024).min(min))
    }

    /// Pages that a zone keeps from the request; the highest zone that it may use keeps none.
    fn reserve(&self, zone: &ZoneRow) -> Figure {
        match zone.reserve.get(self.highest()) {
            Some(&kept) if zone.reserve.len() == self.columns => {
                Figure::exact(kept.min(PAGES_MOST))
            }
            None if self.index(&zone.name) >= self.highest() => Figure::exact(0),
            _ => Figure::between(0, PAGES_MOST),
        }
    }

    /// What decides whether the request gets a block of a zone.
    pub(crate) fn figures(&self, zone: &ZoneRow, mark: Mark) -> Figures {
        let is_last_try = mark == Mark::High;
        // The last try before a kill has no rights, and counts no pages of CMA.
        let flags = if is_last_try { AllocFlags::WMARK_HIGH } else { self.flags };
        let cma = match self.may_use_cma() && !is_last_try {
            true => Figure::exact(0),
            false => self.free_cma(zone),
        };
        let boost = if self.ignores_boost() { self.boost(zone) } else { Figure::exact(0) };
        let none = |figure: Figure| figure.map(|pages| pages.min(PAGES_MOST));
        Figures {
            free: none(self.pages(zone.free)),
            cma: none(cma),
            urgent: none(self.urgent(zone)),
            mark: none(match is_last_try {
                true => self.pages(zone.high),
                false if self.is_harder() => self.pages(zone.min).map(|min| min - min / 4),
                false => self.pages(zone.min),
            }),
            boost,
            reserve: self.reserve(zone),
            order: self.order,
            flags,
        }
    }

    /// Before Linux 4.4 who could not wait had a quarter of the mark, without being urgent.
    pub(crate) fn is_harder(&self) -> bool {
        let others = Gfp::DIRECT_RECLAIM | Gfp::HIGH | Gfp::NOMEMALLOC | Gfp::MEMALLOC;
        !self.gfp.intersects(others)
            && self.report.mode.bits.is_some()
            && self.is_before((4, 4)) == Some(true)
    }

    /// The question whether the request gets a block of a zone, with the best or the worst of its figures.
    pub(crate) fn check(&self, figures: &Figures, side: Side) -> WatermarkCheck {
        let most = |pages: u64| pages.min(PAGES_MOST);
        let urgent = most(figures.urgent.if_bad(side));
        let kept = if self.keeps_urgent(figures) { urgent } else { 0 };
        let taken = figures.cma.if_bad(side).saturating_add(kept);
        let mark = most(figures.mark.if_bad(side));
        let taken = taken.saturating_add(self.taken_by_mistake());
        WatermarkCheck {
            free: PageCount(most(figures.free.if_good(side)).saturating_sub(taken)),
            free_high_atomic: PageCount(urgent - kept),
            mark: PageCount(mark),
            boost: PageCount(most(figures.boost.if_good(side)).min(mark)),
            reserve: PageCount(most(figures.reserve.if_bad(side))),
            order: figures.order,
            flags: figures.flags,
        }
    }

    /// Before 6.4 only who is urgent and cannot wait (`__GFP_ATOMIC`) had a right to the reserve for urgent requests; the core's
    /// rule asks whether there is any right.
    fn keeps_urgent(&self, figures: &Figures) -> bool {
        let atomic = AllocFlags::NON_BLOCK | AllocFlags::MIN_RESERVE;
        self.report.version().is_some_and(|version| version < (6, 4))
            && !figures.flags.contains(atomic)
            && !figures.flags.contains(AllocFlags::OOM)
    }

    /// Linux 2.6.38 to 3.2 took two pages more off than the block has others.
    fn taken_by_mistake(&self) -> u64 {
        let release = self.report.kernel.as_deref().unwrap_or_default();
        let mut numbers = release.split(|character: char| !character.is_ascii_digit());
        let mut next = || numbers.next().and_then(|number| number.parse().ok());
        match (next(), next(), next()) {
            (Some(2), Some(6), Some(38 | 39)) | (Some(3), Some(0..=2), _) => 2_u64,
            _ => 0,
        }
    }

    /// Pages that must be free for the request, whatever their blocks.
    pub(crate) fn needed(&self, figures: &Figures, side: Side) -> u64 {
        if figures.flags.contains(AllocFlags::NO_WATERMARKS) {
            return figures.order.pages().0;
        }
        let kept = if self.keeps_urgent(figures) { figures.urgent.if_bad(side) } else { 0 };
        let kept = kept.saturating_add(self.taken_by_mistake());
        let needed = self.free_needed(figures, side).saturating_add(kept);
        if needed >= PAGES_MOST { u64::MAX } else { needed }
    }

    /// The same of what is free in the check: without what is taken off before.
    pub(crate) fn free_needed(&self, figures: &Figures, side: Side) -> u64 {
        let check = self.check(figures, side);
        let raw = WatermarkCheck {
            mark: PageCount(check.mark.0.saturating_sub(check.boost.0)),
            boost: PageCount(0),
            ..check
        };
        // An urgent single page that the boost does not hold up.
        let at_raw = WatermarkCheck { free: raw.free_needed(), ..check };
        let is_raw = check.boost.0 > 0 && watermark_fast(&at_raw, |_, _| true);
        if is_raw { at_raw.free.0 } else { check.free_needed().0 }
    }

    /// Whether urgent single pages are not held up by a boost: those that cannot wait from 5.9 on, all from 6.4 on.
    fn ignores_boost(&self) -> bool {
        match self.report.version() {
            Some(version) if version < (5, 9) => false,
            Some(version) if version < (6, 4) => !self.gfp.intersects(Gfp::DIRECT_RECLAIM),
            _ => true,
        }
    }

    /// Whether a zone has a free block of an order on lists of that type. Where types are not printed, any; where the row of
    /// blocks breaks off, in the best case.
    fn has_block(
        &self,
        zone: &ZoneRow,
        order: usize,
        migratetype: Migratetype,
        side: Side,
    ) -> bool {
        let Some(blocks) = zone.blocks.get(order) else {
            let has_all = zone.has_all_blocks || self.lists.is_some_and(|lists| order >= lists);
            let has_room = self.pages(zone.free).most() >= 1 << order.min(40);
            return !has_all && has_room && side == Side::Best;
        };
        let letters = match migratetype {
            Migratetype::Unmovable => "U",
            Migratetype::Movable if self.may_use_cma() => "MC",
            Migratetype::Movable => "M",
            // `R` before Linux 3.10.
            Migratetype::Reclaimable => "ER",
            Migratetype::HighAtomic => "H",
            Migratetype::Isolate => "I",
        };
        let is_of = |types: &String| types.contains(|letter| letters.contains(letter));
        blocks.count > 0 && blocks.types.as_ref().is_none_or(is_of)
    }

    /// Whether a zone has a free block of at least that order for a request with these rights.
    pub(crate) fn has_any_block(
        &self,
        zone: &ZoneRow,
        order: Order,
        flags: AllocFlags,
        side: Side,
    ) -> bool {
        let takes = |migratetype: &Migratetype| match migratetype {
            // From 6.12 on a single page that cannot be waited for is one of them, where there is no other.
            Migratetype::HighAtomic => {
                flags.intersects(AllocFlags::HIGHATOMIC | AllocFlags::OOM)
                    || order == Order(0)
                        && flags.contains(AllocFlags::NON_BLOCK)
                        && self.report.version() >= Some((6, 12))
            }
            other => other.is_mergeable(),
        };
        (usize::from(order.0)..ORDERS_MOST).any(|order| {
            let mut takes = Migratetype::ALL.into_iter().filter(takes);
            takes.any(|migratetype| self.has_block(zone, order, migratetype, side))
        })
    }

    /// Whether a single page can be taken: of a block, or of what a CPU's pageset may have.
    fn has_page(&self, zone: &ZoneRow, flags: AllocFlags, side: Side) -> bool {
        self.may_take_any(zone, flags) || side == Side::Best && zone.free_pcp.most() > 0
    }

    /// Whether some free block, of any order, is of a type that the request may take, as far as the report tells.
    pub(crate) fn may_take_any(&self, zone: &ZoneRow, flags: AllocFlags) -> bool {
        let has_types = || zone.blocks.iter().all(|blocks| blocks.types.is_some());
        let has_row = zone.has_all_blocks && !zone.blocks.is_empty();
        let is_told = zone.has_empty_lists() || has_row && has_types();
        !is_told || self.has_any_block(zone, Order(0), flags, Side::Worst)
    }

    /// Whether a mark of a zone is more than the zone has, or what it manages is: a count of its pages went wrong.
    pub(crate) fn has_wrong_mark(&self, zone: &ZoneRow) -> bool {
        let machine = self.report.ram_pages.map_or(MACHINE_KIB_MOST, |pages| self.kib(pages));
        let most = zone.present.known().unwrap_or(machine);
        let is_more = |figure: Figure| figure.known().is_some_and(|kib| kib > most);
        is_more(zone.min) || is_more(zone.managed)
    }

    /// Whether the request passes, with these figures and the blocks of the zone.
    pub(crate) fn passes(&self, zone: &ZoneRow, figures: &Figures, side: Side) -> bool {
        self.passes_check(zone, &self.check(figures, side), side)
    }

    pub(crate) fn passes_check(&self, zone: &ZoneRow, check: &WatermarkCheck, side: Side) -> bool {
        let ignores_marks = check.flags.contains(AllocFlags::NO_WATERMARKS);
        let has_block = || match check.order {
            Order(0) => {
                // More than the report has are of any type.
                let is_more = check.free.0 > self.pages(zone.free).most();
                is_more || self.has_page(zone, check.flags, side)
            }
            order => self.has_any_block(zone, order, check.flags, side),
        };
        ignores_marks && zone.free.if_good(side) > 0 && has_block()
            || self.has_pages(check) && has_block() && self.passes_by_order(zone, check, side)
    }

    /// Kernels before 4.4 took the pages of smaller blocks away, order by order, and asked that what is left be more than the
    /// mark, halved for each order. A few large blocks were not enough then.
    fn passes_by_order(&self, zone: &ZoneRow, check: &WatermarkCheck, side: Side) -> bool {
        if !self.is_before((4, 4)).unwrap_or(side == Side::Worst) {
            return true;
        }
        let request = check.order.pages().0;
        // What must be free is more than the mark and the reserve, and the block's other pages.
        let mut mark =
            check.free_needed().0.saturating_sub(request.saturating_add(check.reserve.0));
        let mut left = check.free.0.saturating_sub(request - 1);
        for order in 0..usize::from(check.order.0) {
            let blocks =
                zone.blocks.get(order).map(|blocks| blocks.count.saturating_mul(1 << order));
            left = match blocks {
                Some(pages) => left.saturating_sub(pages),
                None if zone.has_all_blocks || side == Side::Best => left,
                None => 0,
            };
            mark /= 2;
            if left <= mark {
                return false;
            }
        }
        true
    }

    /// Whether enough pages are free, whatever their blocks.
    pub(crate) fn has_pages(&self, check: &WatermarkCheck) -> bool {
        // The core has lists up to order 10; some machines have more.
        let is_larger = check.order > Order(10) && check.free >= check.free_needed();
        is_larger
            || check.flags.contains(AllocFlags::NO_WATERMARKS) && check.free.0 > 0
            || watermark_fast(check, |_, _| true)
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

/// Pages of the machine that are in none of the zones shown. A little is never shown: zones end where their pageblocks do.
pub(crate) fn hidden_pages(report: &Report) -> u64 {
    let page = report.page_kib();
    let shown = report.zones.iter().map(|zone| zone.present.map(|kib| kib / page));
    let shown = shown.sum::<Figure>();
    let ram = report.ram_pages.unwrap_or(0);
    // Some kernels count holes among the pages of the machine, and as reserved. Old ones do not print what is managed.
    let managed = report.zones.iter().map(|zone| match zone.managed.known() {
        Some(managed) => Figure::exact(managed / page),
        None => zone.present.map(|kib| kib / page),
    });
    let managed = managed.sum::<Figure>();
    let usable = report.reserved_pages.map_or(ram, |reserved| ram.saturating_sub(reserved));
    // What old kernels call present lacks the descriptions of its pages, a sixty-fourth.
    let is_old = report.zones.iter().all(|zone| !zone.managed.is_exact());
    let little = if is_old { ram / 32 } else { ram / 64 };
    let is_all = managed.known().is_some_and(|managed| usable <= managed.saturating_add(little));
    let hidden = ram.saturating_sub(shown.most());
    if hidden > little && !is_all && !report.zones.is_empty() { hidden } else { 0 }
}

/// Columns of `lowmem_reserve[]`: each row of a report has as many, five at most. A figure that the log broke makes two, and what
/// it cut is missing: most rows have as many as they should.
fn columns(report: &Report) -> usize {
    let mut rows = [0_usize; 6];
    for zone in &report.zones {
        if let Some(count) = rows.get_mut(zone.reserve.len()) {
            *count += 1;
        }
    }
    (1..rows.len())
        .filter(|columns| rows[*columns] > 0)
        .max_by_key(|columns| rows[*columns])
        .unwrap_or(0)
}

/// The index of the highest zone that flags allow, among those that a kernel has.
fn highest(names: &[&str], gfp: Gfp) -> usize {
    let has = |flag| gfp.contains(flag);
    let at = |name: &str| names.iter().position(|other| *other == name);
    let wanted = if has(Gfp::DMA) {
        "DMA"
    } else if has(Gfp::DMA32) {
        "DMA32"
    } else if has(Gfp::HIGHMEM | Gfp::MOVABLE) {
        "Movable"
    } else if has(Gfp::HIGHMEM) && at("HighMem").is_some() {
        "HighMem"
    } else {
        "Normal"
    };
    // A kernel without the zone for small addresses has all its memory there.
    at(wanted).or_else(|| at("Normal")).unwrap_or(0)
}

/// How much of a report contradicts these zones. A row's reserve grows with each zone above it that has memory: those that the
/// request may use are shown.
fn contradictions(report: &Report, names: &[&str], gfp: Gfp) -> usize {
    let highest = highest(names, gfp);
    let mut count = 0;
    for zone in report.zones.iter().filter(|zone| zone.reserve.len() == names.len()) {
        let index = names.iter().position(|name| *name == zone.name).unwrap_or(0);
        // Kernels may keep nothing for a zone, and then tell nothing of it.
        if zone.reserve.iter().all(|kept| *kept == 0) {
            continue;
        }
        for (at, name) in names.iter().enumerate().skip(index + 1) {
            let has_memory = zone.reserve[at] > zone.reserve[at - 1];
            let same = |other: &&ZoneRow| other.node == zone.node && other.name == *name;
            let is_shown = report.zones.iter().any(|other| same(&other));
            count += usize::from(is_shown != has_memory && (is_shown || at <= highest));
        }
    }
    // Memory that is kept movable is counted with high memory.
    let movable = names.iter().position(|name| *name == "Movable").filter(|at| *at > 0);
    let is_movable = report.zones.iter().any(|zone| {
        let kept = |at: usize| zone.reserve.get(at).copied().unwrap_or(0);
        zone.name == "Movable" || movable.is_some_and(|at| kept(at) > kept(at - 1))
    });
    let has_high = report.highmem_pages.is_some_and(|pages| pages > 0) && !is_movable;
    count + usize::from(has_high != names.contains(&"HighMem") && report.highmem_pages.is_some())
}

/// The mark that a request has to leave.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// `min`, or what is left of it for an urgent request.
    Min,
    /// `high`: the last try before the OOM killer ends somebody.
    High,
}

impl Mark {
    /// The name of the mark, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Mark::Min => "min",
            Mark::High => "high",
        }
    }
}

/// What decides about a zone, in pages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) free: Figure,
    /// Free pages of CMA that the request may not use.
    pub(crate) cma: Figure,
    pub(crate) urgent: Figure,
    pub(crate) mark: Figure,
    pub(crate) boost: Figure,
    pub(crate) reserve: Figure,
    pub(crate) order: Order,
    pub(crate) flags: AllocFlags,
}

impl Figures {
    /// Pages free to the request, CMA taken off.
    pub(crate) fn usable(&self) -> Figure {
        self.free.minus(self.cma)
    }

    /// Each of them with the name that the report has for it, and whether much of it is good for a request.
    pub(crate) fn named(&mut self) -> [(&'static str, &mut Figure, bool); 6] {
        [
            ("free", &mut self.free, true),
            ("free_cma", &mut self.cma, false),
            ("reserved_highatomic", &mut self.urgent, false),
            (if self.flags.respects_min() { "min" } else { "high" }, &mut self.mark, false),
            ("boost", &mut self.boost, true),
            ("lowmem_reserve", &mut self.reserve, false),
        ]
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
