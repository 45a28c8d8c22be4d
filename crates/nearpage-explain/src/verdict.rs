//! Which rule refused a request: the core's watermark check on each zone of the report.

use nearpage::rules::watermarks::{AllocFlags, WatermarkCheck};
use nearpage::{Migratetype, Order, PageCount};
use serde::Serialize;

use crate::report::{Kind, NodeRow, Report, ZoneRow, sum_of};
use crate::zones::{Excluded, Zones};

/// A rule of the page allocator.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Not enough pages above the `min` mark, or what is left of it for an urgent request.
    Watermark,
    /// Enough pages but for those that the zone keeps from requests that could have used a higher zone.
    LowmemReserve,
    /// Enough pages but for those reserved for urgent requests of higher order.
    HighatomicReserve,
    /// Enough pages, and no free block that is large enough and of a type that the request may take; on kernels before 4.4
    /// also too few pages in blocks of that order.
    NoBlock,
    /// No list has blocks of that order.
    OrderTooLarge,
    /// The limit of a memory cgroup: the zones were not asked.
    Memcg,
    /// vmalloc: the area is larger than all memory; no zone was asked.
    AreaTooLarge,
    /// None, by these numbers: memory came back before they were printed, or a rule refused that they do not show.
    Passes,
    /// The report does not have what would tell.
    Unknown,
}

impl Rule {
    /// The name of the rule, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Rule::Watermark => "watermark",
            Rule::LowmemReserve => "lowmem_reserve",
            Rule::HighatomicReserve => "highatomic_reserve",
            Rule::NoBlock => "no_block",
            Rule::OrderTooLarge => "order_too_large",
            Rule::Memcg => "memcg",
            Rule::AreaTooLarge => "area_too_large",
            Rule::Passes => "passes",
            Rule::Unknown => "unknown",
        }
    }
}

/// The judgement on a zone.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ZoneVerdict {
    /// The node.
    pub node: u32,
    /// The zone.
    pub zone: String,
    /// Why the request could not use it, if it could not.
    pub excluded: Option<Excluded>,
    /// What it would have said, or did.
    pub rule: Rule,
    /// Pages free to the request.
    pub free: u64,
    /// Pages that would have to be.
    pub needed: u64,
    /// The mark, before what an urgent request may go below it.
    pub mark: u64,
    /// The reserve against requests that could have used a higher zone.
    pub reserve: u64,
    /// Pages that the zone has.
    pub managed: u64,
    /// The highest order of which it would have given a block.
    pub gives_order: Option<u8>,
    /// Whether figures of the zone cannot be read: what is said of it does not count.
    pub is_damaged: bool,
}

/// What kept a request from memory that was there.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Confinement {
    /// What.
    pub by: Excluded,
    /// A zone beyond that would have given the block: node and zone.
    pub elsewhere: Option<(u32, String)>,
    /// Pages in nodes and zones that the kernel left out of the report since the request could not use them.
    pub hidden_pages: u64,
}

/// Where memory is that reclaim could not free, in KiB: why the OOM killer saw no progress. `None` is what the report does not
/// say.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct NoProgress {
    /// Memory of files, which can be freed.
    pub file: Option<u64>,
    /// Slab that can be freed.
    pub slab_reclaimable: Option<u64>,
    /// Anonymous memory; it can leave as far as there is swap.
    pub anon: Option<u64>,
    /// Free swap.
    pub swap_free: Option<u64>,
    /// Slab that cannot be freed.
    pub slab_unreclaimable: Option<u64>,
    /// Locked.
    pub unevictable: Option<u64>,
    /// Managed memory that no counter of the report explains; `None` if one that holds much is missing.
    pub unexplained: Option<u64>,
}

/// Why a request was refused.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Verdict {
    /// The rule that refused it in [`node`](Self::node) and [`zone`](Self::zone).
    pub rule: Rule,
    /// The node whose zone decides: of those that could be asked, the largest, or one with pages and no block.
    pub node: Option<u32>,
    /// Its zone.
    pub zone: Option<String>,
    /// What kept the request from other memory.
    pub confined_by: Option<Confinement>,
    /// The highest zone that the flags allow.
    pub highest_zone: String,
    /// The rights of the request, in words.
    pub rights: String,
    /// All zones, in the order in which a node's are tried: nodes as printed, highest zone first.
    pub zones: Vec<ZoneVerdict>,
    /// Of OOM reports whose nodes are there.
    pub no_progress: Option<NoProgress>,
}

impl Verdict {
    /// Judges a report.
    pub fn of(report: &Report) -> Verdict {
        let zones = Zones::new(report);
        let mut rows: Vec<&ZoneRow> = report.zones.iter().collect();
        rows.sort_by_key(|zone| (zone.node, std::cmp::Reverse(zones.index(&zone.name))));
        let judged: Vec<ZoneVerdict> = rows.iter().map(|zone| of_zone(&zones, zone)).collect();
        let decisive = decisive(&judged);
        let is_memcg = report.constraint.as_deref() == Some("CONSTRAINT_MEMCG")
            || report.constraint.is_none()
                && report.memcg.as_ref().is_some_and(|memcg| memcg.limit.is_some());
        let is_known = report.kind != Kind::Slub && report.order.is_some();
        let is_asked = is_asked(report);
        let rule = match decisive {
            _ if is_memcg => Rule::Memcg,
            _ if !is_asked => Rule::AreaTooLarge,
            _ if !is_known => Rule::Unknown,
            Some(zone) => zone.rule,
            None => Rule::Unknown,
        };
        let named = decisive.filter(|_| !is_memcg && is_known && is_asked);
        Verdict {
            rule,
            node: named.map(|zone| zone.node),
            zone: named.map(|zone| zone.zone.clone()),
            confined_by: confinement(&zones, &judged).filter(|_| !is_memcg && is_known && is_asked),
            highest_zone: zones.highest_name().into(),
            rights: rights(zones.flags),
            no_progress: (report.kind == Kind::Oom && !is_memcg && !report.nodes.is_empty())
                .then(|| no_progress(&zones)),
            zones: judged,
        }
    }
}

/// Whether any zone was asked: an area larger than all memory is refused before.
pub(crate) fn is_asked(report: &Report) -> bool {
    let failed = report.failed.as_deref().unwrap_or_default();
    // Before Linux 5.13 only the size is told.
    let bytes = failed.strip_suffix(" bytes").and_then(|bytes| bytes.parse::<u64>().ok());
    let pages = bytes.map(|bytes| bytes.div_ceil(report.page_kib().saturating_mul(1024)));
    let is_larger = pages.zip(report.ram_pages).is_some_and(|(pages, ram)| pages > ram);
    !is_larger && !failed.contains("exceeds total pages")
}

fn of_zone(zones: &Zones<'_>, zone: &ZoneRow) -> ZoneVerdict {
    let check = zones.check(zone);
    let gives = |order: u8| zones.passes(zone, &WatermarkCheck { order: Order(order), ..check });
    let is_known = zones.knows_reserve(zone);
    ZoneVerdict {
        node: zone.node,
        zone: zone.name.clone(),
        excluded: zones.excluded(zone),
        rule: rule_of(zones, zone, &check),
        free: check.free.0,
        needed: zones.needed(&check).0,
        mark: check.mark.0,
        reserve: check.reserve.0,
        managed: zones.managed(zone).0,
        gives_order: (0..zone.blocks.len().max(1) as u8)
            .rev()
            .find(|&order| !zone.is_damaged && is_known && gives(order)),
        is_damaged: zone.is_damaged,
    }
}

fn rule_of(zones: &Zones<'_>, zone: &ZoneRow, check: &WatermarkCheck) -> Rule {
    let has_pages = |changed: WatermarkCheck| zones.has_pages(&changed);
    let lists = zone.blocks.len();
    if zone.is_damaged {
        Rule::Unknown
    } else if check.order > Order(0) && lists > 0 && usize::from(check.order.0) >= lists {
        Rule::OrderTooLarge
    } else if zones.passes(zone, check) {
        match zones.knows_reserve(zone) || zones.flags.contains(AllocFlags::NO_WATERMARKS) {
            true => Rule::Passes,
            false => Rule::Unknown,
        }
    } else if has_pages(*check) {
        if lists == 0 { Rule::Unknown } else { Rule::NoBlock }
    } else if has_pages(WatermarkCheck { reserve: PageCount(0), ..*check }) {
        Rule::LowmemReserve
    } else if has_pages(zones.check_without_highatomic(zone)) {
        Rule::HighatomicReserve
    } else {
        Rule::Watermark
    }
}

/// The zone that decides. Small ones, such as the 16 MiB below the addresses of old devices, refuse nearly everything
/// nearly always: what has less than an eighth of the memory that could be asked is passed over.
fn decisive(judged: &[ZoneVerdict]) -> Option<&ZoneVerdict> {
    let asked = || judged.iter().filter(|zone| zone.excluded.is_none());
    if let Some(zone) = asked().find(|zone| zone.rule == Rule::Passes) {
        return Some(zone);
    }
    let all: u64 = asked().map(|zone| zone.managed).fold(0, u64::saturating_add);
    let large = || asked().filter(|zone| zone.managed >= all / 8);
    let by_size = |zone: &&ZoneVerdict| zone.managed;
    // The first of equals.
    let blocked = large().filter(|zone| zone.rule == Rule::NoBlock).rev().max_by_key(by_size);
    // A reserve decides where it is what keeps most of the memory.
    let by_reserve =
        |zone: &&ZoneVerdict| zone.rule != Rule::LowmemReserve || zone.reserve > zone.mark;
    let largest = || large().rev().filter(by_reserve).max_by_key(by_size);
    blocked.or_else(largest).or_else(|| large().rev().max_by_key(by_size))
}

fn confinement(zones: &Zones<'_>, judged: &[ZoneVerdict]) -> Option<Confinement> {
    let report = zones.report;
    let hidden_pages = hidden_pages(report);
    let beyond = judged.iter().find(|zone| zone.excluded.is_some() && zone.rule == Rule::Passes);
    if let Some(zone) = beyond {
        let elsewhere = Some((zone.node, zone.zone.clone()));
        return Some(Confinement { by: zone.excluded?, elsewhere, hidden_pages });
    }
    let by = match report.constraint.as_deref() {
        Some("CONSTRAINT_CPUSET") => Some(Excluded::Cpuset),
        Some("CONSTRAINT_MEMORY_POLICY") => Some(Excluded::Policy),
        _ if hidden_pages == 0 => None,
        _ if report.nodemask.is_some() => Some(Excluded::Policy),
        _ if zones.highest() < zones.index("Normal") => Some(Excluded::Kind),
        // The cpuset at the root has all nodes: the zones were lost on their way.
        _ if report.mems_allowed.is_some() && report.cpuset.as_deref() != Some("/") => {
            Some(Excluded::Cpuset)
        }
        _ => None,
    };
    by.map(|by| Confinement { by, elsewhere: None, hidden_pages })
}

/// Pages of the machine that are in none of the zones shown. A little is never shown: zones end where their pageblocks do.
pub(crate) fn hidden_pages(report: &Report) -> u64 {
    let page = report.page_kib();
    let shown: u64 =
        report.zones.iter().map(|zone| zone.present / page).fold(0, u64::saturating_add);
    let ram = report.ram_pages.unwrap_or(0);
    let hidden = if report.zones.is_empty() { 0 } else { ram.saturating_sub(shown) };
    if hidden > ram / 64 { hidden } else { 0 }
}

fn no_progress(zones: &Zones<'_>) -> NoProgress {
    let report = zones.report;
    let sum = |of: &dyn Fn(&NodeRow) -> Option<u64>| sum_of(report.nodes.iter().map(of));
    let pages = |pages: Option<u64>| pages.map(|pages| zones.kib(pages));
    let (anon, file, unevictable) =
        (sum(&|node| node.anon), sum(&|node| node.file), sum(&|node| node.unevictable));
    let managed: u64 = report
        .zones
        .iter()
        .map(|zone| zone.managed.unwrap_or(zone.present))
        .fold(0, u64::saturating_add);
    let free: u64 = report.zones.iter().map(|zone| zone.free).fold(0, u64::saturating_add);
    let slab_reclaimable = pages(report.slab_reclaimable_pages);
    let slab_unreclaimable = pages(report.slab_unreclaimable_pages);
    let pool = report.hugetlb.map_or(0, |(_, all)| all);
    // Locked memory and slab that can be freed are little where they are not told of.
    let most = [anon, file, slab_unreclaimable].into_iter().collect::<Option<Vec<u64>>>();
    let rest = [unevictable, slab_reclaimable, Some(free), Some(pool)].map(|kib| kib.unwrap_or(0));
    let explained = most.map(|most| most.into_iter().chain(rest).fold(0, u64::saturating_add));
    NoProgress {
        file,
        slab_reclaimable,
        anon,
        swap_free: report.swap_free,
        slab_unreclaimable,
        unevictable,
        unexplained: explained.map(|explained| managed.saturating_sub(explained)),
    }
}

/// The mark and what may be taken below it.
fn rights(flags: AllocFlags) -> String {
    let has = |flag| flags.contains(flag);
    let mut text = String::from(match () {
        () if has(AllocFlags::NO_WATERMARKS) => "no watermark: it helps to free memory",
        () if has(AllocFlags::MIN_RESERVE | AllocFlags::NON_BLOCK) => {
            "3/8 of the min mark: urgent, and cannot wait"
        }
        () if has(AllocFlags::MIN_RESERVE) => "1/2 of the min mark: urgent",
        () => "the min mark",
    });
    if has(AllocFlags::HIGHATOMIC) {
        text += "; blocks reserved for urgent requests";
    }
    text
}

/// The types of blocks that the request may take, as letters of the report.
pub(crate) fn takes_highatomic(flags: AllocFlags) -> bool {
    flags.intersects(AllocFlags::HIGHATOMIC | AllocFlags::OOM)
}

/// Blocks of at least the order, by whether the request may take them: (it may, it may not).
pub(crate) fn large_blocks(zones: &Zones<'_>, zone: &ZoneRow) -> (u64, u64) {
    let from = usize::from(zones.order.0);
    let mut counts = (0_u64, 0_u64);
    for (order, blocks) in zone.blocks.iter().enumerate().skip(from) {
        let usable = Migratetype::ALL.into_iter().filter(|migratetype| match migratetype {
            Migratetype::HighAtomic => takes_highatomic(zones.flags),
            other => other.is_mergeable(),
        });
        let mut usable =
            usable.filter(|&migratetype| zones.has_block(zone, Order(order as u8), migratetype));
        let side = if usable.next().is_some() { &mut counts.0 } else { &mut counts.1 };
        *side = side.saturating_add(blocks.count);
    }
    counts
}
