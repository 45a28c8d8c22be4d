//! What a zone says to a request, with the best and the worst of the figures that are possible.

use nearpage::rules::watermarks::WatermarkCheck;
use nearpage::{Gfp, Order};

use crate::figure::{Figure, Side};
use crate::report::{Kind, ZoneRow};
use crate::verdict::{Answer, Judgement, Parts, Rule, ZoneVerdict};
use crate::zones::{Figures, Mark, Zones};

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
    // For a single page each block is large enough.
    if best == Rule::NoBlock && zones.order == Order(0) {
        return Rule::HighatomicReserve;
    }
    let mut unprinted = *figures;
    // The row ends with the pages of CMA, from 3.7 on.
    if !zone.is_damaged && (zones.free_cma(zone).is_exact() || zones.may_use_cma()) {
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
    if order > 0 && zones.lists().is_some_and(|lists| order >= lists) {
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
