//! What a zone says to a request, with the best and the worst of the figures that are possible.

use nearpage::rules::watermarks::{AllocFlags, WatermarkCheck};
use nearpage::{Gfp, Order};
use serde::Serialize;

use crate::figure::{Figure, Side};
use crate::report::{Kind, ZoneRow};
use crate::zones::{Excluded, Figures, Mark, Zones};

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
    /// vmalloc, vmap: no addresses for the area; no zone was asked.
    Addresses,
    /// vmalloc: the area has no size; no zone was asked, and nothing was short.
    EmptyArea,
    /// No request is known: somebody asked for a kill (sysrq, a program), or a fault that got no page before.
    NoRequest,
    /// No zone that the flags allow is on a node that may be used.
    NoZone,
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
            Rule::Addresses => "addresses",
            Rule::EmptyArea => "empty_area",
            Rule::NoRequest => "no_request",
            Rule::NoZone => "no_zone",
            Rule::Passes => "passes",
            Rule::Unknown => "unknown",
        }
    }

    /// Whether vmalloc refused the area itself: no zone was asked.
    pub(crate) fn is_of_area(self) -> bool {
        matches!(self, Rule::AreaTooLarge | Rule::Addresses | Rule::EmptyArea)
    }
}

/// How sure a judgement is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Refused, whatever the figures are that the report lacks.
    Refused,
    /// Passes, whatever they are.
    Passes,
    /// It depends on them.
    Open,
}

impl Answer {
    /// The name of the answer, as in JSON; names do not change.
    pub const fn name(self) -> &'static str {
        match self {
            Answer::Refused => "refused",
            Answer::Passes => "passes",
            Answer::Open => "open",
        }
    }
}

/// What a zone says to a request that has to leave a mark. Figures are pages.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Judgement {
    /// The rule that refuses; [`Rule::Unknown`] where the answer is open, or figures are lost that would tell which of several.
    pub rule: Rule,
    /// How sure that is.
    pub answer: Answer,
    /// The figures on which an open answer depends, by their names in the report; `blocks` are the free blocks by order.
    pub depends_on: Vec<&'static str>,
    /// Pages free to the request: at most of a refusal, at least where it passes.
    pub free: Figure,
    /// Pages that would have to be: at least of a refusal, at most where it passes.
    pub needed: Figure,
    /// The mark, before what an urgent request may go below it.
    pub mark: Figure,
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
    /// What it said, or would have, against `min`.
    #[serde(flatten)]
    pub at_min: Judgement,
    /// What it said to the last try before a kill, which is against `high`; of OOM reports only.
    pub at_high: Option<Judgement>,
    /// The reserve against requests that could have used a higher zone.
    pub reserve: Figure,
    /// Pages of CMA among those free, which are not for this request.
    pub cma: Figure,
    /// Pages that the zone has.
    pub managed: Figure,
    /// The highest order of which it would have given a block for sure.
    pub gives_order: Option<u8>,
    /// Whether the row was cut, or figures of it cannot be read.
    pub is_damaged: bool,
    /// What its marks say of its size, in proportion to other zones.
    #[serde(skip)]
    pub(crate) parts: Parts,
}

/// What is in proportion to a zone's size by its marks: each gets its part of `min_free_kbytes`, with which `min` grows and the
/// distance of the marks, too.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Parts {
    /// From `min` to `low`: no boost changes it.
    pub(crate) step: Option<u64>,
    /// `min` without its boost; of high memory it is bounded.
    pub(crate) min: Option<u64>,
}

impl Parts {
    pub(crate) fn of(zone: &ZoneRow) -> Parts {
        let (min, boost) = (zone.min.known(), zone.boost.known().unwrap_or(0));
        let step = min.zip(zone.low.known()).map(|(min, low)| low.saturating_sub(min));
        let min = min.filter(|_| zone.name != "HighMem").map(|min| min.saturating_sub(boost));
        Parts { step, min }
    }
}

impl ZoneVerdict {
    /// Opens what depends on something that the report lacks.
    pub(crate) fn open(&mut self, depends_on: &'static str) {
        for judgement in [Some(&mut self.at_min), self.at_high.as_mut()].into_iter().flatten() {
            (judgement.rule, judgement.answer) = (Rule::Unknown, Answer::Open);
            judgement.depends_on = vec![depends_on];
            judgement.needed = Figure::UNKNOWN;
        }
        self.gives_order = None;
    }

    /// Whether it gives, and next to nothing: less than a sixty-fourth of it is free.
    pub(crate) fn gives_little(&self) -> bool {
        let size = self.managed.most();
        size < u64::MAX && self.at_min.free.least() < size / 64
    }

    /// The judgement against a mark.
    pub fn at(&self, mark: Mark) -> &Judgement {
        match (&self.at_high, mark) {
            (Some(at_high), Mark::High) => at_high,
            _ => &self.at_min,
        }
    }
}

pub(crate) fn of_zone(zones: &Zones<'_>, zone: &ZoneRow) -> ZoneVerdict {
    let figures = zones.figures(zone, Mark::Min);
    let check = zones.check(&figures, Side::Worst);
    let gives = |order: u8| {
        zones.passes_check(zone, &WatermarkCheck { order: Order(order), ..check }, Side::Worst)
    };
    // Of a sysrq and of a fault that asks anew there was no last try.
    let report = zones.report;
    let has_last_try = report.kind == Kind::Oom && report.order.is_some() && zones.gfp != Gfp::NONE;
    ZoneVerdict {
        node: zone.node,
        zone: zone.name.clone(),
        excluded: zones.excluded(zone),
        at_min: judge(zones, zone, &figures),
        at_high: has_last_try.then(|| judge(zones, zone, &zones.figures(zone, Mark::High))),
        reserve: figures.reserve,
        cma: figures.cma,
        managed: zones.managed(zone),
        gives_order: (0..zone.blocks.len().max(1) as u8).rev().find(|&order| gives(order)),
        is_damaged: zone.is_damaged,
        parts: Parts::of(zone),
    }
}

fn judge(zones: &Zones<'_>, zone: &ZoneRow, figures: &Figures) -> Judgement {
    let answer = answer_of(zones, zone, figures);
    let free = |side| figures.usable().if_good(side);
    let needed = |side| zones.needed(figures, side);
    let exact = |side| (Figure::exact(free(side)), Figure::exact(needed(side)));
    let is_told = figures.usable().most() < u64::MAX;
    let (free, needed) = match answer {
        Answer::Refused if is_told => exact(Side::Best),
        Answer::Refused => (figures.usable(), Figure::exact(needed(Side::Best))),
        Answer::Passes => exact(Side::Worst),
        Answer::Open => {
            (figures.usable(), Figure::between(needed(Side::Best), needed(Side::Worst)))
        }
    };
    Judgement {
        rule: match answer {
            Answer::Refused => rule_of(zones, zone, figures),
            Answer::Passes => Rule::Passes,
            Answer::Open => Rule::Unknown,
        },
        answer,
        depends_on: match answer {
            Answer::Open => depends_on(zones, zone, figures),
            _ => Vec::new(),
        },
        free,
        needed,
        mark: figures.mark,
    }
}

fn answer_of(zones: &Zones<'_>, zone: &ZoneRow, figures: &Figures) -> Answer {
    let passes = |side| zones.passes(zone, figures, side);
    match (passes(Side::Best), passes(Side::Worst)) {
        (_, true) => Answer::Passes,
        (true, false) => Answer::Open,
        (false, false) => Answer::Refused,
    }
}

/// The figures of which the worst alone refuses; else all that are open.
fn depends_on(zones: &Zones<'_>, zone: &ZoneRow, figures: &Figures) -> Vec<&'static str> {
    // No list has a page for it: a CPU's pageset may.
    if zones.order == Order(0) && !zones.may_take_any(zone, figures.flags) {
        return vec!["free_pcp"];
    }
    let mut best = *figures;
    for (_, figure, is_good) in best.named() {
        *figure = Figure::exact(figure.bound(Side::Best, is_good));
    }
    let (mut open, mut alone) = (Vec::new(), Vec::new());
    let mut of = *figures;
    for (at, (name, figure, is_good)) in of.named().into_iter().enumerate() {
        if figure.is_exact() {
            continue;
        }
        open.push(name);
        let mut changed = best;
        *changed.named()[at].1 = Figure::exact(figure.bound(Side::Worst, is_good));
        if !zones.passes(zone, &changed, Side::Best) {
            alone.push(name);
        }
    }
    // All figures at their best, and the blocks at their worst.
    if !zone.has_all_blocks && !zones.passes(zone, &best, Side::Worst) {
        open.push("blocks");
        alone.push("blocks");
    }
    if alone.is_empty() { open } else { alone }
}

/// The rule that refuses with the best of the possible figures. Where a row lost some, it is known only if it refuses with the
/// worst of those, too: several rules may refuse at once.
fn rule_of(zones: &Zones<'_>, zone: &ZoneRow, figures: &Figures) -> Rule {
    let best = rule_on(zones, figures, Side::Best);
    // For a single page each block is large enough. A request that ignores marks is refused only where no block is free.
    let has_none = zone.has_empty_lists() && figures.flags.contains(AllocFlags::NO_WATERMARKS);
    if best == Rule::NoBlock && zones.order == Order(0) && !has_none {
        return Rule::HighatomicReserve;
    }
    let mut unprinted = *figures;
    // The row ends with the pages of CMA, from 3.7 on.
    // A row that was cut may have had the reserve, of kernels that print it.
    let may_have_urgent = zone.is_damaged && zones.is_before((5, 5)) != Some(true);
    if !may_have_urgent && (zones.free_cma(zone).is_exact() || zones.may_use_cma()) {
        unprinted.urgent = Figure::exact(figures.urgent.least());
        unprinted.boost = Figure::exact(figures.boost.most());
    }
    let worst = rule_on(zones, &unprinted, Side::Worst);
    if best == worst { best } else { Rule::Unknown }
}

fn rule_on(zones: &Zones<'_>, figures: &Figures, side: Side) -> Rule {
    let has_pages = |changed: &Figures| zones.has_pages(&zones.check(changed, side));
    let none = Figure::exact(0);
    let without_reserve = Figures { reserve: none, ..*figures };
    let order = usize::from(figures.order.0);
    if order > 0 && zones.lists.is_some_and(|lists| order >= lists) {
        Rule::OrderTooLarge
    } else if has_pages(figures) {
        Rule::NoBlock
    } else if has_pages(&without_reserve) {
        Rule::LowmemReserve
    } else if has_pages(&Figures { urgent: none, ..*figures }) {
        Rule::HighatomicReserve
    } else {
        Rule::Watermark
    }
}
