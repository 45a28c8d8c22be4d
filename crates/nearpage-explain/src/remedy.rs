//! What would have helped: each change tried by itself, in the core's rules, on the numbers of the report.

use nearpage::rules::watermarks::{WatermarkCheck, Watermarks, ZoneSize};
use nearpage::{Order, PageCount, Settings, ZoneKind};
use serde::Serialize;

use crate::report::{Report, ZoneRow};
use crate::verdict::{Rule, Verdict, large_blocks};
use crate::zones::{Excluded, Zones};

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
    let tried = Tried { zones, row };
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
}

impl Tried<'_> {
    fn passes(&self, check: &WatermarkCheck) -> Helps {
        if self.zones.passes(self.row, check) { Helps::Yes } else { Helps::No }
    }

    fn free_pages(&self) -> Option<Remedy> {
        let check = self.zones.check(self.row);
        let more = self.zones.needed(&check).0.saturating_sub(check.free.0);
        let kib = self.zones.kib(more);
        let helps = self.passes(&WatermarkCheck {
            free: PageCount(check.free.0.saturating_add(more)),
            ..check
        });
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
        let cached = self.row.free_pcp?;
        let check = self.zones.check(self.row);
        let free = PageCount(check.free.0.saturating_add(self.zones.pages(cached).0));
        let enough = self.zones.has_pages(&WatermarkCheck { free, ..check });
        let helps = match enough {
            false => Helps::No,
            true if check.order == Order(0) => Helps::Yes,
            // Whether pages merge depends on their places.
            true if cached == 0 => Helps::No,
            true => Helps::Unknown,
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
        let check = self.zones.check(self.row);
        if check.reserve == PageCount(0) {
            return None;
        }
        let helps = self.passes(&WatermarkCheck { reserve: PageCount(0), ..check });
        let kib = self.zones.kib(check.reserve.0);
        let text = format!(
            "without the {kib} KiB that {} keeps from requests that could use {}",
            self.row.name,
            self.zones.highest_name()
        );
        Some(Remedy { change: Change::LowmemReserveRatio, helps, amount: Some(kib), text })
    }

    /// The zones as the formulas take them. `None` where a zone has no row of the core's: HighMem counts as Movable,
    /// whose small `min` has the same formula.
    fn sizes(&self) -> Vec<ZoneSize> {
        let sizes = self
            .zones
            .report
            .zones
            .iter()
            .map(|row| ZoneSize { kind: kind(&row.name), managed: self.zones.managed(row) });
        sizes.collect()
    }

    /// The `min_free_kbytes` in force: what the marks of the zones come to. All zones must be in the report.
    fn min_free_now(&self) -> Option<u64> {
        let report = self.zones.report;
        let present = report
            .zones
            .iter()
            .map(|row| self.zones.pages(row.present).0)
            .fold(0, u64::saturating_add);
        let ram = report.ram_pages?;
        if present < ram - ram / 64 {
            return None;
        }
        let sharing = report.zones.iter().filter(|row| kind(&row.name) != ZoneKind::Movable);
        Some(
            sharing
                .map(|row| row.min.saturating_sub(row.boost.unwrap_or(0)))
                .fold(0, u64::saturating_add),
        )
    }

    /// The factor in force: the distance of two marks of the largest zone, unless a quarter of `min` is larger.
    fn factor_now(&self) -> u32 {
        let row = self.row;
        let step = row.low.saturating_sub(row.min);
        let quarter = row.min.saturating_sub(row.boost.unwrap_or(0)) / 4;
        let managed = self.zones.kib(self.zones.managed(row).0).max(1);
        if step <= quarter.saturating_add(self.zones.kib(1)) {
            return 10;
        }
        (u128::from(step) * 10_000 / u128::from(managed)).clamp(10, 3000) as u32
    }

    /// The check with the marks of other settings. kswapd is taken to keep as many more pages free as `low` is higher:
    /// it would have been woken so much earlier.
    fn with(&self, min_free_kbytes: u64, factor: u32) -> WatermarkCheck {
        let check = self.zones.check(self.row);
        let shift = self.zones.kib(1).max(1).ilog2() + 10;
        let marks = |min_free, factor| {
            let settings =
                Settings::default().with(|settings| settings.watermark_scale_factor = factor);
            let size =
                ZoneSize { kind: kind(&self.row.name), managed: self.zones.managed(self.row) };
            Watermarks::new(self.sizes().into_iter(), min_free, &settings, shift).marks(size)
        };
        let now = marks(self.min_free_now().unwrap_or(0), self.factor_now());
        let then = marks(min_free_kbytes, factor);
        let earlier = then.low.0.saturating_sub(now.low.0);
        WatermarkCheck {
            free: PageCount(check.free.0.saturating_add(earlier)),
            mark: PageCount(check.mark.0.saturating_add(then.min.0.saturating_sub(now.min.0))),
            ..check
        }
    }

    fn min_free_kbytes(&self) -> Option<Remedy> {
        let change = Change::MinFreeKbytes;
        let Some(now) = self.min_free_now() else {
            let text = "the report leaves out zones, whose share of it is needed".into();
            return Some(Remedy { change, helps: Helps::Unknown, amount: None, text });
        };
        let managed: u64 =
            self.sizes().iter().map(|zone| zone.managed.0).fold(0, u64::saturating_add);
        // More than a twentieth of memory is not left free for the sake of one request.
        let most = (self.zones.kib(managed) / 20).max(now);
        let passes = |kbytes| self.zones.passes(self.row, &self.with(kbytes, self.factor_now()));
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
        let (Some(min_free), now) = (self.min_free_now(), self.factor_now()) else { return None };
        let passes = |factor| self.zones.passes(self.row, &self.with(min_free, factor as u32));
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
        let check = self.zones.check(self.row);
        let block = self.zones.kib(check.order.pages().0);
        // Compaction asks for room to move pages to: twice the block above the mark.
        let room = WatermarkCheck {
            mark: PageCount(check.mark.0.saturating_add(check.order.pages().0 << 1)),
            ..check
        };
        let small = self.row.blocks.iter().take(usize::from(check.order.0));
        let pieces: u64 = small
            .map(|blocks| blocks.count.saturating_mul(blocks.kib))
            .fold(0, u64::saturating_add);
        let movable =
            self.row.anon.zip(self.row.file).map(|(anon, file)| anon.saturating_add(file));
        let is_too_little = movable.is_some_and(|movable| movable < block);
        let movable =
            movable.map_or("nobody knows how much".into(), |movable| format!("{movable} KiB"));
        let (helps, text) = if !self.zones.has_pages(&room) {
            (
                Helps::No,
                format!(
                    "too few free pages to move others to: a block takes {block} KiB, {pieces} KiB are free in smaller ones"
                ),
            )
        } else if is_too_little {
            (
                Helps::No,
                format!(
                    "{pieces} KiB are free in smaller blocks, but only {movable} of the zone can be moved"
                ),
            )
        } else {
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
