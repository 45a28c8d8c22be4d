//! What would have helped: each change tried by itself, in the core's rules, on the numbers of the report.

use nearpage::rules::watermarks::{WatermarkCheck, Watermarks, ZoneSize};
use nearpage::{Order, PageCount, Settings, ZoneKind};
use serde::Serialize;

use crate::figure::{Figure, Side};
use crate::report::{Report, ZoneRow};
use crate::verdict::{Rule, Verdict, large_blocks};
use crate::zones::{Excluded, Figures, Zones};

/// A change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// More free pages.
    FreePages,
    /// `vm.min_free_kbytes`.
    MinFreeKbytes,
    /// `vm.watermark_scale_factor`.
    WatermarkScaleFactor,
    /// `vm.lowmem_reserve_ratio`: another order of zones, in effect.
    LowmemReserveRatio,
    /// Pagesets drained.
    DrainedPagesets,
    /// Free pages brought together.
    Compaction,
    /// A block of a lower order.
    SmallerOrder,
    /// Blocks of types that the request may not take.
    OtherTypes,
    /// Another policy or cpuset.
    OtherNodes,
    /// Flags that allow other zones.
    OtherZones,
    /// The limit of the memory cgroup.
    MemcgLimit,
}

impl Change {
    /// The name of the change, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Change::FreePages => "free_pages",
            Change::MinFreeKbytes => "min_free_kbytes",
            Change::WatermarkScaleFactor => "watermark_scale_factor",
            Change::LowmemReserveRatio => "lowmem_reserve_ratio",
            Change::DrainedPagesets => "drained_pagesets",
            Change::Compaction => "compaction",
            Change::SmallerOrder => "smaller_order",
            Change::OtherTypes => "other_types",
            Change::OtherNodes => "other_nodes",
            Change::OtherZones => "other_zones",
            Change::MemcgLimit => "memcg_limit",
        }
    }
}

/// Whether it would have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Helps {
    /// The request passes with the change.
    Yes,
    /// It is refused all the same.
    No,
    /// The report does not have what would tell.
    Unknown,
}

impl Helps {
    /// The answer, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Helps::Yes => "yes",
            Helps::No => "no",
            Helps::Unknown => "unknown",
        }
    }
}

/// A change that was tried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Remedy {
    /// The change.
    pub change: Change,
    /// Whether it would have helped.
    pub helps: Helps,
    /// How much of it: KiB of sizes, 1/10000 of the factor, the order of a block.
    pub amount: Option<u64>,
    /// What was changed and what is assumed, in words.
    pub text: String,
}

/// Tries every change that has to do with the rule which refused.
pub(crate) fn of(report: &Report, verdict: &Verdict) -> Vec<Remedy> {
    if verdict.rule == Rule::Memcg {
        return memcg(report);
    }
    let zones = Zones::new(report);
    let row = report
        .zones
        .iter()
        .find(|row| Some(row.node) == verdict.node && Some(&row.name) == verdict.zone.as_ref());
    let Some(row) = row.filter(|_| !matches!(verdict.rule, Rule::Passes | Rule::Unknown)) else {
        return Vec::new();
    };
    let figures = zones.figures(row, verdict.mark);
    let tried = Tried { zones, row, figures };
    let mut remedies = Vec::new();
    if matches!(verdict.rule, Rule::Watermark | Rule::LowmemReserve | Rule::HighatomicReserve) {
        remedies.extend(
            [
                tried.free_pages(),
                tried.drained(),
                tried.min_free_kbytes(),
                tried.scale_factor(),
                tried.reserve(),
            ]
            .into_iter()
            .flatten(),
        );
    } else {
        remedies.extend(
            [tried.compaction(), tried.other_types(), tried.drained()].into_iter().flatten(),
        );
    }
    remedies.extend([tried.smaller_order(verdict), elsewhere(verdict)].into_iter().flatten());
    remedies
}

fn memcg(report: &Report) -> Vec<Remedy> {
    let known = report.memcg.as_ref().and_then(|memcg| memcg.usage.zip(memcg.limit));
    let Some((usage, limit)) = known else { return Vec::new() };
    let block = report.page_kib() << report.order.unwrap_or(0).min(20);
    let more = usage.saturating_add(block).saturating_sub(limit);
    let text = format!(
        "a limit {more} KiB higher admits this request, and no more than that; the group used {usage} of {limit} KiB"
    );
    vec![Remedy { change: Change::MemcgLimit, helps: Helps::Yes, amount: Some(more), text }]
}

fn elsewhere(verdict: &Verdict) -> Option<Remedy> {
    let confinement = verdict.confined_by.as_ref()?;
    let change = match confinement.by {
        Excluded::Kind => Change::OtherZones,
        _ => Change::OtherNodes,
    };
    let what = match confinement.by {
        Excluded::Kind => "flags that allow higher zones",
        Excluded::Policy => "a policy that allows other nodes",
        Excluded::ThisNode => "a request without __GFP_THISNODE",
        Excluded::Cpuset => "a cpuset with other nodes",
    };
    let (helps, text) = match &confinement.elsewhere {
        Some((node, zone)) => {
            (Helps::Yes, format!("{what}: {zone} of node {node} would have given the block"))
        }
        None => (
            Helps::Unknown,
            format!("{what}: the report leaves out the {} pages there", confinement.hidden_pages),
        ),
    };
    Some(Remedy { change, helps, amount: None, text })
}

struct Tried<'a> {
    zones: Zones<'a>,
    row: &'a ZoneRow,
    figures: Figures,
}

impl Tried<'_> {
    /// Whether something holds of the check, whatever the figures are that the report lacks.
    fn whether(&self, holds: impl Fn(WatermarkCheck, Side) -> bool) -> Helps {
        let on = |side| holds(self.zones.check(&self.figures, side), side);
        match (on(Side::Best), on(Side::Worst)) {
            (_, true) => Helps::Yes,
            (true, false) => Helps::Unknown,
            (false, false) => Helps::No,
        }
    }

    /// Whether the request passes after a change.
    fn passes(&self, change: impl Fn(WatermarkCheck) -> WatermarkCheck) -> Helps {
        self.whether(|check, side| self.zones.passes_check(self.row, &change(check), side))
    }

    fn free_pages(&self) -> Option<Remedy> {
        let check = self.zones.check(&self.figures, Side::Worst);
        let more = check.free_needed().0.saturating_sub(check.free.0);
        let kib = self.zones.kib(more);
        let helps = self.passes(|check| with_free(check, more));
        let text = match helps {
            Helps::Yes => format!(
                "{kib} KiB more free, by reclaim or an end of a process, and the zone gives"
            ),
            _ => format!(
                "{kib} KiB more free are enough pages, but then there is no block of the order"
            ),
        };
        Some(Remedy { change: Change::FreePages, helps, amount: Some(kib), text })
    }

    fn drained(&self) -> Option<Remedy> {
        let cached = self.row.free_pcp.known()?;
        let pages = self.zones.pages(self.row.free_pcp).least();
        let enough = self.whether(|check, _| self.zones.has_pages(&with_free(check, pages)));
        let helps = match enough {
            Helps::Yes if self.zones.order > Order(0) && cached == 0 => Helps::No,
            // Whether pages merge depends on their places.
            Helps::Yes if self.zones.order > Order(0) => Helps::Unknown,
            enough => enough,
        };
        let text = match helps {
            Helps::Unknown => format!(
                "{cached} KiB lie in pagesets: whether they merge to a block is not in the report"
            ),
            _ => format!("{cached} KiB lie in pagesets of CPUs"),
        };
        Some(Remedy { change: Change::DrainedPagesets, helps, amount: Some(cached), text })
    }

    fn reserve(&self) -> Option<Remedy> {
        let reserve = self.figures.reserve.known().filter(|&reserve| reserve > 0)?;
        let helps = self.passes(|check| WatermarkCheck { reserve: PageCount(0), ..check });
        let kib = self.zones.kib(reserve);
        let text = format!(
            "without the {kib} KiB that {} keeps from requests that could use {}",
            self.row.name,
            self.zones.highest_name()
        );
        Some(Remedy { change: Change::LowmemReserveRatio, helps, amount: Some(kib), text })
    }

    /// The zones as the formulas take them. HighMem counts as Movable, whose small `min` has the same formula.
    fn sizes(&self) -> Option<Vec<ZoneSize>> {
        let size = |row: &ZoneRow| {
            let managed = self.zones.managed(row).known()?;
            Some(ZoneSize { kind: kind(&row.name), managed: PageCount(managed) })
        };
        self.zones.report.zones.iter().map(size).collect()
    }

    /// The `min_free_kbytes` in force: what the marks of the zones come to. All zones must be in the report.
    fn min_free_now(&self) -> Option<u64> {
        let report = self.zones.report;
        let sum =
            |rows: &mut dyn Iterator<Item = Figure>| rows.fold(Figure::exact(0), Figure::plus);
        let present =
            self.zones.pages(sum(&mut report.zones.iter().map(|row| row.present))).known()?;
        let ram = report.ram_pages?;
        if present < ram - ram / 64 {
            return None;
        }
        let sharing = report.zones.iter().filter(|row| kind(&row.name) != ZoneKind::Movable);
        let without_boost =
            |row: &ZoneRow| row.min.minus(Figure::exact(row.boost.known().unwrap_or(0)));
        sum(&mut sharing.map(without_boost)).known()
    }

    /// The factor in force: the distance of two marks of the largest zone, unless a quarter of `min` is larger.
    fn factor_now(&self) -> Option<u32> {
        let row = self.row;
        let step = row.low.minus(row.min).known()?;
        let quarter = row.min.known()?.saturating_sub(row.boost.known().unwrap_or(0)) / 4;
        let managed = self.zones.kib(self.zones.managed(row).known()?).max(1);
        if step <= quarter.saturating_add(self.zones.kib(1)) {
            return Some(10);
        }
        Some((u128::from(step) * 10_000 / u128::from(managed)).clamp(10, 3000) as u32)
    }

    /// Whether the request passes with the marks of other settings. kswapd is taken to keep as many more pages free as `low` is
    /// higher: it would have been woken so much earlier.
    fn passes_with(&self, now: (u64, u32), then: (u64, u32)) -> Helps {
        let Some((sizes, managed)) = self.sizes().zip(self.zones.managed(self.row).known()) else {
            return Helps::Unknown;
        };
        let shift = self.zones.kib(1).max(1).ilog2() + 10;
        let marks = |(min_free, factor)| {
            let settings =
                Settings::default().with(|settings| settings.watermark_scale_factor = factor);
            let size = ZoneSize { kind: kind(&self.row.name), managed: PageCount(managed) };
            Watermarks::new(sizes.iter().copied(), min_free, &settings, shift).marks(size)
        };
        let (now, then) = (marks(now), marks(then));
        let earlier = then.low.0.saturating_sub(now.low.0);
        self.passes(|check| WatermarkCheck {
            mark: PageCount(check.mark.0.saturating_add(then.min.0.saturating_sub(now.min.0))),
            ..with_free(check, earlier)
        })
    }

    fn min_free_kbytes(&self) -> Option<Remedy> {
        let change = Change::MinFreeKbytes;
        let known = self.min_free_now().zip(self.factor_now()).zip(self.sizes());
        let Some(((now, factor), sizes)) = known else {
            let text = "the report leaves out zones, whose share of it is needed".into();
            return Some(Remedy { change, helps: Helps::Unknown, amount: None, text });
        };
        let managed = sizes.iter().map(|zone| zone.managed.0).fold(0, u64::saturating_add);
        // More than a twentieth of memory is not left free for the sake of one request.
        let most = (self.zones.kib(managed) / 20).max(now);
        let passes = |kbytes| self.passes_with((now, factor), (kbytes, factor)) == Helps::Yes;
        match least(now, most, passes) {
            Some(kbytes) => {
                let text = format!(
                    "vm.min_free_kbytes={kbytes} (now about {now}): kswapd starts earlier, if it keeps up"
                );
                Some(Remedy { change, helps: Helps::Yes, amount: Some(kbytes), text })
            }
            None => {
                let text = format!(
                    "vm.min_free_kbytes up to {most}, a twentieth of memory, is not enough (now about {now})"
                );
                Some(Remedy { change, helps: Helps::No, amount: None, text })
            }
        }
    }

    fn scale_factor(&self) -> Option<Remedy> {
        let change = Change::WatermarkScaleFactor;
        if self.zones.report.version().is_some_and(|version| version < (4, 6)) {
            return None;
        }
        let (min_free, now) = self.min_free_now().zip(self.factor_now())?;
        let passes =
            |factor| self.passes_with((min_free, now), (min_free, factor as u32)) == Helps::Yes;
        Some(match least(now.into(), 1000, passes) {
            Some(factor) => {
                let text = format!(
                    "vm.watermark_scale_factor={factor} (now about {now}): kswapd starts earlier, if it keeps up"
                );
                Remedy { change, helps: Helps::Yes, amount: Some(factor), text }
            }
            None => Remedy {
                change,
                helps: Helps::No,
                amount: None,
                text: format!(
                    "vm.watermark_scale_factor up to 1000 is not enough (now about {now})"
                ),
            },
        })
    }

    fn compaction(&self) -> Option<Remedy> {
        let order = self.zones.order;
        let block = self.zones.kib(order.pages().0);
        // Compaction asks for room to move pages to: twice the block above the mark.
        let has_room = self.whether(|check, _| {
            let mark = PageCount(check.mark.0.saturating_add(order.pages().0 << 1));
            self.zones.has_pages(&WatermarkCheck { mark, ..check })
        });
        let small = self.row.blocks.iter().take(usize::from(order.0));
        let pieces: u64 = small
            .map(|blocks| blocks.count.saturating_mul(blocks.kib))
            .fold(0, u64::saturating_add);
        let movable = self.row.anon.plus(self.row.file);
        let (helps, text) = if has_room == Helps::No {
            (
                Helps::No,
                format!(
                    "too few free pages to move others to: a block takes {block} KiB, {pieces} KiB are free in smaller ones"
                ),
            )
        } else if movable.most() < block {
            (
                Helps::No,
                format!(
                    "{pieces} KiB are free in smaller blocks, but only {movable} KiB of the zone can be moved"
                ),
            )
        } else {
            let movable = match movable.known() {
                Some(kib) => format!("{kib} KiB"),
                None => "nobody knows how much".into(),
            };
            (
                Helps::Unknown,
                format!(
                    "{pieces} KiB are free in blocks below {block} KiB and {movable} can be moved; whether unmovable pages stand between them is not in the report"
                ),
            )
        };
        Some(Remedy { change: Change::Compaction, helps, amount: Some(pieces), text })
    }

    fn other_types(&self) -> Option<Remedy> {
        let (_, locked) = large_blocks(&self.zones, self.row);
        (locked > 0).then(|| Remedy {
            change: Change::OtherTypes,
            helps: Helps::Yes,
            amount: Some(locked),
            text: format!("{locked} large enough blocks are free for CMA, for urgent requests or isolated: this request may not take them"),
        })
    }

    fn smaller_order(&self, verdict: &Verdict) -> Option<Remedy> {
        let gives = verdict
            .zones
            .iter()
            .filter(|zone| zone.excluded.is_none())
            .filter_map(|zone| zone.gives_order)
            .max();
        if self.zones.order == Order(0) {
            return None;
        }
        let change = Change::SmallerOrder;
        Some(match gives.filter(|&order| order < self.zones.order.0) {
            Some(order) => {
                let kib = self.zones.kib(1 << order);
                Remedy {
                    change,
                    helps: Helps::Yes,
                    amount: Some(order.into()),
                    text: format!(
                        "order {order} ({kib} KiB) would have passed: pages that need not lie together (kvmalloc) would do"
                    ),
                }
            }
            None => Remedy {
                change,
                helps: Helps::No,
                amount: None,
                text: "not even a single page passes".into(),
            },
        })
    }
}

/// The check with more free pages.
fn with_free(check: WatermarkCheck, more: u64) -> WatermarkCheck {
    WatermarkCheck { free: PageCount(check.free.0.saturating_add(more)), ..check }
}

/// The least value between `from` and `to` for which something holds that keeps on holding.
fn least(from: u64, to: u64, holds: impl Fn(u64) -> bool) -> Option<u64> {
    let (mut low, mut high) = (from, to);
    if high < low || !holds(high) {
        return None;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle) { high = middle } else { low = middle + 1 }
    }
    Some(low)
}

fn kind(name: &str) -> ZoneKind {
    match name {
        "DMA" => ZoneKind::Dma,
        "DMA32" => ZoneKind::Dma32,
        "HighMem" | "Movable" => ZoneKind::Movable,
        "Device" => ZoneKind::Device,
        _ => ZoneKind::Normal,
    }
}
