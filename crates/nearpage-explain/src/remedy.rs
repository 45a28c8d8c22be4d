//! What would have helped: each change tried by itself, in the core's rules, on the numbers of the report.

use nearpage::rules::watermarks::{AllocFlags, WatermarkCheck};
use nearpage::{Gfp, Order, PageCount};
use serde::Serialize;

use crate::cause::kib;
use crate::figure::{Figure, Side};
use crate::held::NoProgress;
use crate::judge::{Rule, ZoneVerdict};
use crate::report::{Kind, Reached, Report, ZoneRow};
use crate::verdict::{Verdict, large_blocks};
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
    /// `vm.watermark_boost_factor`: no boost.
    WatermarkBoostFactor,
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
    /// The limit of memory and swap together of the memory cgroup.
    MemcgSwapLimit,
    /// More swap.
    Swap,
    /// Huge pages of the pool that nobody uses given back.
    HugePages,
}

impl Change {
    /// The name of the change, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Change::FreePages => "free_pages",
            Change::MinFreeKbytes => "min_free_kbytes",
            Change::WatermarkScaleFactor => "watermark_scale_factor",
            Change::WatermarkBoostFactor => "watermark_boost_factor",
            Change::LowmemReserveRatio => "lowmem_reserve_ratio",
            Change::DrainedPagesets => "drained_pagesets",
            Change::Compaction => "compaction",
            Change::SmallerOrder => "smaller_order",
            Change::OtherTypes => "other_types",
            Change::OtherNodes => "other_nodes",
            Change::OtherZones => "other_zones",
            Change::MemcgLimit => "memcg_limit",
            Change::MemcgSwapLimit => "memcg_swap_limit",
            Change::Swap => "swap",
            Change::HugePages => "huge_pages",
        }
    }
}

/// What a change would have done. Their order is that of advice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// The request passes with the change.
    Helps,
    /// This request passes, and the load that made it wants more.
    HelpsALittle,
    /// The report does not have what would tell.
    Unknown,
    /// It is refused all the same.
    NoEffect,
    /// The next request is refused earlier.
    Harmful,
}

impl Effect {
    /// The effect, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Effect::Helps => "helps",
            Effect::HelpsALittle => "helps_a_little",
            Effect::Unknown => "unknown",
            Effect::NoEffect => "no_effect",
            Effect::Harmful => "harmful",
        }
    }

    /// The effect in words.
    pub const fn words(self) -> &'static str {
        match self {
            Effect::Helps => "helps",
            Effect::HelpsALittle => "helps a little",
            Effect::Unknown => "unknown",
            Effect::NoEffect => "no effect",
            Effect::Harmful => "harmful",
        }
    }
}

/// A change that was tried.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Remedy {
    /// The change.
    pub change: Change,
    /// What it would have done.
    pub effect: Effect,
    /// How much of it: KiB of sizes, 1/10000 of the factor, the order of a block.
    pub amount: Option<u64>,
    /// What was changed, what is assumed and why it has that effect, in words.
    pub text: String,
}

/// Tries every change that has to do with the rule which refused: what helps comes first.
pub(crate) fn of(zones: &Zones<'_>, verdict: &Verdict, held: &NoProgress) -> Vec<Remedy> {
    let report = zones.report;
    let mut remedies = match verdict.rule {
        Rule::Memcg => memcg(report),
        Rule::NoZone => elsewhere(report, verdict).into_iter().collect(),
        Rule::Passes | Rule::Unknown | Rule::NoRequest => Vec::new(),
        rule if rule.is_of_area() => Vec::new(),
        _ => of_zone(zones, verdict, held),
    };
    remedies.sort_by_key(|remedy| remedy.effect);
    remedies
}

fn of_zone(zones: &Zones<'_>, verdict: &Verdict, held: &NoProgress) -> Vec<Remedy> {
    let report = zones.report;
    let Some(row) = verdict.row(report) else { return Vec::new() };
    let figures = zones.figures(row, verdict.mark);
    let left = left_to_reclaim(held);
    // A zone that tells of its slab tells all that can be reclaimed there.
    let in_zone = row.file.plus(row.anon).plus(row.slab_reclaimable).known();
    let is_alone = report.zones.iter().all(|zone| zones.excluded(zone).is_some() || zone == row);
    let left = in_zone.filter(|_| is_alone).map_or(left, |most| left.map(|left| left.min(most)));
    let tried = Tried { zones, row, figures, left, anon: held.anon };
    let by_pages =
        matches!(verdict.rule, Rule::Watermark | Rule::LowmemReserve | Rule::HighatomicReserve);
    let changes = match by_pages {
        true => vec![
            tried.free_pages(),
            tried.drained(),
            tried.min_free_kbytes(),
            tried.scale_factor(),
            tried.boost_factor(),
            tried.reserve(),
            tried.huge_pages(),
            tried.swap(),
        ],
        false => vec![tried.compaction(), tried.other_types(), tried.drained()],
    };
    let others = [tried.smaller_order(verdict), elsewhere(report, verdict)];
    changes.into_iter().chain(others).flatten().collect()
}

/// KiB that reclaim could still free; `None` if that is not told.
fn left_to_reclaim(held: &NoProgress) -> Option<u64> {
    let file = held.file.known()?.saturating_add(held.slab_reclaimable.known().unwrap_or(0));
    let anon = match held.swap_free {
        Some(free) => held.anon.known()?.min(free),
        None => 0,
    };
    Some(file.saturating_add(anon))
}

fn memcg(report: &Report) -> Vec<Remedy> {
    let Some(memcg) = &report.memcg else { return Vec::new() };
    let block = report.page_kib() << report.order.unwrap_or(0).min(20);
    let group = memcg.path.as_deref().unwrap_or("the group");
    let reached = memcg.reached(block);
    let limit = match reached {
        Reached::MemoryAndSwap => memcg.memory_and_swap.map(|both| both.limit),
        _ => memcg.limit,
    };
    // The load had all of the limit, what was swapped out beside it, and asked for more.
    let swapped = match reached {
        Reached::Memory => match (memcg.swap, memcg.memory_and_swap.zip(memcg.usage)) {
            (Some(swap), _) => swap.usage,
            (None, Some((both, usage))) => both.usage.saturating_sub(usage),
            (None, None) => 0,
        },
        _ => 0,
    };
    let wanted = match limit {
        Some(limit) => format!(
            "more than {}: the group had all of its {}{}, and how much more it would have taken is not in the report",
            kib(limit.saturating_add(swapped)),
            kib(limit),
            if swapped > 0 { format!(" and {} in swap", kib(swapped)) } else { String::new() },
        ),
        None => "more than it has, which is not in the lines".into(),
    };
    let mut remedies = Vec::new();
    let mut say =
        |change, effect, amount, text| remedies.push(Remedy { change, effect, amount, text });
    let kernel = memcg.kernel.max(memcg.kmem.map(|kmem| kmem.usage)).unwrap_or(0);
    let is_kernels = memcg.usage.is_some_and(|usage| kernel > usage / 2);
    let effect = match is_kernels || memcg.is_unwritten() {
        // No limit is above what is no number.
        _ if memcg.below_zero().is_some() => Effect::NoEffect,
        true => Effect::HelpsALittle,
        false => Effect::Helps,
    };
    match reached {
        Reached::MemoryAndSwap => {
            say(
                Change::MemcgSwapLimit,
                effect,
                limit,
                format!("a limit of memory and swap of {group} of {wanted}"),
            );
            let text = format!("a higher limit of memory of {group}: it is not reached");
            say(Change::MemcgLimit, Effect::NoEffect, None, text);
        }
        _ if memcg.came_back().is_some() => {
            let left = kib(memcg.came_back().unwrap_or(0));
            let text = format!(
                "a higher limit of {group}: {left} are left by these numbers, how much the load had before is not in the report"
            );
            say(Change::MemcgLimit, Effect::Unknown, limit, text);
        }
        _ if memcg.left_with_swap().is_some() => {
            let both = memcg.memory_and_swap.map_or(0, |both| both.limit);
            let text = format!(
                "two higher limits of {group}, of memory ({}) and of memory and swap ({}): it had all of both, and how much more it would have taken is not in the report; one alone gives nothing",
                kib(limit.unwrap_or(0)),
                kib(both)
            );
            say(Change::MemcgLimit, effect, limit, text);
        }
        _ => say(Change::MemcgLimit, effect, limit, format!("a limit of {group} of {wanted}")),
    }
    if let Some(task) = memcg.task.as_ref().filter(|_| memcg.is_parent()) {
        let text =
            format!("a higher limit of {task} alone: the limit of {group} above it is reached");
        say(Change::MemcgLimit, Effect::NoEffect, None, text);
    }
    let text = "no zone was short: the marks were not asked".to_owned();
    say(Change::MinFreeKbytes, Effect::NoEffect, None, text);
    remedies
}

fn elsewhere(report: &Report, verdict: &Verdict) -> Option<Remedy> {
    let confinement = verdict.confined_by.as_ref()?;
    let is_zone_missing = verdict.rule == Rule::NoZone;
    let by = match confinement.by {
        // Other zones of the node are what it lacks, and what is confined is so by its cpuset or policy.
        Excluded::Kind if is_zone_missing => match report.nodemask {
            Some(_) => Excluded::Policy,
            None => Excluded::Cpuset,
        },
        by => by,
    };
    let is_little = |node: u32, name: &str| {
        let is_it = |zone: &&ZoneVerdict| zone.node == node && zone.zone == name;
        verdict.zones.iter().find(is_it).is_some_and(ZoneVerdict::gives_little)
    };
    let (change, what) = match by {
        Excluded::Kind if verdict.highest_zone == "Normal" => (
            Change::OtherZones,
            "a kernel of 64 bits, or flags that allow higher zones for what the kernel need not map",
        ),
        Excluded::Kind => (Change::OtherZones, "flags that allow higher zones"),
        Excluded::Policy => (Change::OtherNodes, "a policy that allows other nodes"),
        Excluded::ThisNode => (Change::OtherNodes, "a request without __GFP_THISNODE"),
        Excluded::Cpuset => (Change::OtherNodes, "a cpuset with other nodes"),
    };
    let (effect, text) = match &confinement.elsewhere {
        _ if is_zone_missing => (
            Effect::Helps,
            format!("{what}, one of which has a zone up to {}", verdict.highest_zone),
        ),
        Some((node, zone)) if is_little(*node, zone) => (
            Effect::HelpsALittle,
            format!(
                "{what}: {zone} of node {node} would have given this block, and has next to nothing free"
            ),
        ),
        Some((node, zone)) => {
            (Effect::Helps, format!("{what}: {zone} of node {node} would have given the block"))
        }
        None => (
            Effect::Unknown,
            format!(
                "{what}: the report leaves out {} there",
                kib(report.page_kib().saturating_mul(confinement.hidden_pages))
            ),
        ),
    };
    Some(Remedy { change, effect, amount: None, text })
}

/// The zone that decided, on which changes are tried.
pub(crate) struct Tried<'a> {
    pub(crate) zones: &'a Zones<'a>,
    pub(crate) row: &'a ZoneRow,
    pub(crate) figures: Figures,
    /// KiB that reclaim could still free.
    pub(crate) left: Option<u64>,
    /// Anonymous memory in zones that the request may use.
    anon: Figure,
}

impl Tried<'_> {
    /// Whether something holds of the check, whatever the figures are that the report lacks.
    fn whether(&self, holds: impl Fn(WatermarkCheck, Side) -> bool) -> Effect {
        let on = |side| holds(self.zones.check(&self.figures, side), side);
        match (on(Side::Best), on(Side::Worst)) {
            (_, true) => Effect::Helps,
            (true, false) => Effect::Unknown,
            (false, false) => Effect::NoEffect,
        }
    }

    /// Whether the request passes after a change.
    pub(crate) fn passes(&self, change: impl Fn(WatermarkCheck) -> WatermarkCheck) -> Effect {
        self.whether(|check, side| self.zones.passes_check(self.row, &change(check), side))
    }

    pub(crate) fn is_kill(&self) -> bool {
        self.zones.report.kind == Kind::Oom
    }

    /// Whether no mark applies.
    pub(crate) fn ignores_marks(&self) -> bool {
        self.figures.flags.contains(AllocFlags::NO_WATERMARKS)
    }

    fn free_pages(&self) -> Option<Remedy> {
        let change = Change::FreePages;
        if self.zones.has_wrong_mark(self.row) {
            let text = "no number of free pages is above such a mark".into();
            return Some(Remedy { change, effect: Effect::NoEffect, amount: None, text });
        }
        let check = self.zones.check(&self.figures, Side::Best);
        let more = match self.ignores_marks() {
            true => self.zones.order.pages().0.saturating_sub(check.free.0),
            false => check.free_needed().0.saturating_sub(check.free.0),
        };
        let amount = self.zones.kib(more);
        let managed = self.zones.managed(self.row).known();
        if managed.is_some_and(|managed| managed < check.free.0.saturating_add(more)) {
            let text = format!("{} has less than {} more", self.row.name, kib(amount));
            return Some(Remedy { change, effect: Effect::NoEffect, amount: Some(amount), text });
        }
        let size = format!("{} ({more} pages)", kib(amount));
        let (effect, text) = match self.passes(|check| with_free(check, more)) {
            Effect::Helps if self.is_kill() => (
                Effect::HelpsALittle,
                format!("{size} more free admits this one request; {}", self.wanted()),
            ),
            Effect::Helps => (
                Effect::Helps,
                format!("{size} more free, by reclaim or an end of a process, and the zone gives"),
            ),
            Effect::Unknown => (
                Effect::Unknown,
                format!(
                    "at least {size} more free: how many depends on figures that the report lacks"
                ),
            ),
            other => (
                other,
                format!(
                    "{size} more free are enough pages, but then there is no block of the order"
                ),
            ),
        };
        Some(Remedy { change, effect, amount: Some(amount), text })
    }

    /// How much the load wants, as far as the report tells.
    fn wanted(&self) -> String {
        let report = self.zones.report;
        let anon = report.nodes.iter().map(|node| node.anon).sum::<Figure>();
        let swapped = report.swap_total.zip(report.swap_free);
        let swapped = swapped.map_or(0, |(total, free)| total.saturating_sub(free));
        let victim = report.victim.as_ref().and_then(|victim| victim.anon);
        let victim = victim
            .map_or(String::new(), |anon| format!(", the one that was ended {} of it", kib(anon)));
        match anon.known().filter(|anon| *anon > 0) {
            Some(anon) => format!(
                "the load had {} of anonymous memory{}{victim}, and how much more it would have taken is not in the report",
                kib(anon),
                if swapped > 0 { format!(" and {} in swap", kib(swapped)) } else { String::new() },
            ),
            None => "how much the load wants is not in the report".into(),
        }
    }

    /// Memory of programs that cannot leave.
    fn swap(&self) -> Option<Remedy> {
        let report = self.zones.report;
        let (free, total) = report.swap_free.zip(report.swap_total)?;
        let anon = self.anon.known().filter(|anon| *anon >= 64 << 10)?;
        let change = Change::Swap;
        if !self.is_kill() {
            return None;
        }
        let (effect, text) = if let Some(leaving) = report.swap_leaving {
            (Effect::Helps, format!("swap that stays on: {} are still to come back", kib(leaving)))
        } else if free > total / 100 && free > 0 {
            (Effect::NoEffect, format!("more swap: {} of {} are free", kib(free), kib(total)))
        } else if !self.zones.gfp.contains(Gfp::IO) {
            (
                Effect::Unknown,
                "more swap: this request could not write to it itself, others and kswapd could"
                    .into(),
            )
        } else {
            (
                Effect::Helps,
                format!(
                    "more swap (zram, a file): {} of anonymous memory have nowhere to go ({} of swap, {} free)",
                    kib(anon),
                    kib(total),
                    kib(free)
                ),
            )
        };
        Some(Remedy { change, effect, amount: None, text })
    }

    fn huge_pages(&self) -> Option<Remedy> {
        let (free, pool) = self.zones.report.hugetlb?;
        if free == 0 || pool == 0 {
            return None;
        }
        let pages = self.zones.pages(Figure::exact(free)).least();
        let helps = self.passes(|check| with_free(check, pages));
        // Which node they lie on is summed up.
        let effect = if helps == Effect::Helps && self.zones.report.nodes.len() > 1 {
            Effect::Unknown
        } else {
            helps
        };
        let text = format!(
            "{} of the pool of huge pages that nobody uses given back (vm.nr_hugepages)",
            kib(free)
        );
        Some(Remedy { change: Change::HugePages, effect, amount: Some(free), text })
    }

    fn drained(&self) -> Option<Remedy> {
        let cached = self.row.free_pcp.known()?;
        let pages = self.zones.pages(self.row.free_pcp).least();
        let change = Change::DrainedPagesets;
        let enough = self.whether(|check, _| self.zones.has_pages(&with_free(check, pages)));
        let lie = format!("{} lie in pagesets of CPUs", kib(cached));
        let can_wait = self.zones.gfp.contains(Gfp::DIRECT_RECLAIM);
        let (effect, text) = match enough {
            Effect::Helps if self.zones.order > Order(0) && cached == 0 => (Effect::NoEffect, lie),
            Effect::Helps if self.zones.order > Order(0) => (
                Effect::Unknown,
                format!("{lie}: whether they merge to a block is not in the report"),
            ),
            Effect::Helps if can_wait => (
                Effect::HelpsALittle,
                format!(
                    "{lie}: the kernel drains them when reclaim did not help, and they fill again"
                ),
            ),
            enough => (enough, lie),
        };
        Some(Remedy { change, effect, amount: Some(cached), text })
    }

    fn reserve(&self) -> Option<Remedy> {
        let reserve = self.figures.reserve.known().filter(|&reserve| reserve > 0)?;
        let effect = self.passes(|check| WatermarkCheck { reserve: PageCount(0), ..check });
        let amount = self.zones.kib(reserve);
        let mut text = format!(
            "without the {} that {} keeps from requests that could use {}",
            kib(amount),
            self.row.name,
            self.zones.highest_name()
        );
        // What the load takes next is not there.
        let is_little = self.is_kill() && effect == Effect::Helps && self.anon.least() / 4 > amount;
        let effect = if is_little { Effect::HelpsALittle } else { effect };
        if is_little {
            text += &format!(", this one request passes; {}", self.wanted());
        }
        Some(Remedy { change: Change::LowmemReserveRatio, effect, amount: Some(amount), text })
    }

    fn compaction(&self) -> Option<Remedy> {
        let order = self.zones.order;
        let block_kib = self.zones.kib(order.pages().0);
        let block = kib(block_kib);
        // Compaction asks for room to move pages to: twice the block above the mark.
        let has_room = self.whether(|check, _| {
            let mark = PageCount(check.mark.0.saturating_add(order.pages().0 << 1));
            self.zones.has_pages(&WatermarkCheck { mark, ..check })
        });
        let small = self.row.blocks.iter().take(usize::from(order.0));
        let amount: u64 = small
            .map(|blocks| blocks.count.saturating_mul(blocks.kib))
            .fold(0, u64::saturating_add);
        let pieces = kib(amount);
        let movable = self.row.anon.plus(self.row.file);
        let (effect, text) = if has_room == Effect::NoEffect {
            (
                Effect::NoEffect,
                format!(
                    "too few free pages to move others to: a block takes {block}, {pieces} are free in smaller ones"
                ),
            )
        } else if movable.most() < block_kib {
            (
                Effect::NoEffect,
                format!(
                    "{pieces} are free in smaller blocks, but only {} of the zone can be moved",
                    kib(movable.most())
                ),
            )
        } else {
            let movable = movable.known().map_or("nobody knows how much".into(), kib);
            (
                Effect::Unknown,
                format!(
                    "{pieces} are free in blocks below {block} and {movable} can be moved; whether unmovable pages stand between them is not in the report"
                ),
            )
        };
        Some(Remedy { change: Change::Compaction, effect, amount: Some(amount), text })
    }

    fn other_types(&self) -> Option<Remedy> {
        let (_, locked) = large_blocks(self.zones, self.row);
        (locked > 0).then(|| Remedy {
            change: Change::OtherTypes,
            effect: Effect::Helps,
            amount: Some(locked),
            text: format!("{locked} large enough blocks are free for CMA, for urgent requests or isolated: this request may not take them"),
        })
    }

    fn smaller_order(&self, verdict: &Verdict) -> Option<Remedy> {
        let wanted = self.zones.order.0;
        if wanted == 0 {
            return None;
        }
        let asked = verdict.zones.iter().filter(|zone| zone.excluded.is_none());
        let gives = asked.filter_map(|zone| zone.gives_order).max().filter(|&order| order < wanted);
        // With the best of the figures that are open.
        let may_give = || {
            let check = self.zones.check(&self.figures, Side::Best);
            let passes = |order: &u8| {
                let check = WatermarkCheck { order: Order(*order), ..check };
                self.zones.passes_check(self.row, &check, Side::Best)
            };
            (0..wanted).rev().find(passes)
        };
        let change = Change::SmallerOrder;
        let size = |order: u8| kib(self.zones.kib(1 << order.min(31)));
        Some(match (gives, may_give()) {
            (Some(order), _) => Remedy {
                change,
                effect: Effect::Helps,
                amount: Some(order.into()),
                text: match self.zones.report.length {
                    Some(_) => {
                        format!(
                            "order {order} ({}) would have passed: a smaller mapping",
                            size(order)
                        )
                    }
                    None => format!(
                        "order {order} ({}) would have passed: pages that need not lie together (kvmalloc) would do",
                        size(order)
                    ),
                },
            },
            (None, Some(order)) => Remedy {
                change,
                effect: Effect::Unknown,
                amount: Some(order.into()),
                text: format!(
                    "order {order} ({}) may have passed: that depends on figures which the report lacks",
                    size(order)
                ),
            },
            (None, None) => Remedy {
                change,
                effect: Effect::NoEffect,
                amount: None,
                text: "not even a single page passes".into(),
            },
        })
    }
}

/// The check with more free pages.
pub(crate) fn with_free(check: WatermarkCheck, more: u64) -> WatermarkCheck {
    WatermarkCheck { free: PageCount(check.free.0.saturating_add(more)), ..check }
}
