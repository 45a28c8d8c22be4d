//! `/proc/zoneinfo` of a machine. Values that only a running kernel has are 0.

use std::fmt::{self, Display, Formatter};

use nearpage::PageCount;
use nearpage::stats::{PagesetLines, ZonePages, ZoneStats, ZoneinfoWriter};

use crate::plan::{Plan, PlannedNode, PlannedZone};

/// What the text has for values that do not follow from sizes and settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// The state before the first allocation: all managed pages are free.
    AllFree,
    /// 0. Each pageset has the bounds of its `high` too, which texts before Linux 6.18 lack.
    Zero,
}

/// `/proc/zoneinfo` as the plan's kernel prints it.
pub fn zoneinfo(plan: &Plan, unknown: Unknown) -> impl Display {
    fmt::from_fn(move |out| {
        let writer = ZoneinfoWriter::new(out, plan.model.text_layout);
        let mut writer = match unknown {
            Unknown::Zero if plan.model.pcp.tunes_high => writer.with_pageset_bounds(),
            _ => writer,
        };
        plan.nodes.iter().try_for_each(|node| write_node(&mut writer, plan, node, unknown))
    })
}

fn write_node(
    writer: &mut ZoneinfoWriter<'_, Formatter<'_>>,
    plan: &Plan,
    node: &PlannedNode,
    unknown: Unknown,
) -> fmt::Result {
    let mut has_node_items = false;
    for zone in &node.zones {
        let free = match unknown {
            Unknown::AllFree => zone.extent.managed,
            Unknown::Zero => PageCount(0),
        };
        writer.heading(node.id, zone.extent.kind)?;
        if zone.is_populated() && !has_node_items {
            writer.node_items()?;
            has_node_items = true;
        }
        writer.pages(&pages(zone, free))?;
        if zone.is_populated() {
            writer.items(free, free, &ZoneStats::default())?;
            for &cpu in &plan.cpus {
                writer.pageset(cpu, &pageset(plan, zone))?;
            }
            writer.end(zone.extent.start)?;
        }
    }
    Ok(())
}

fn pages(zone: &PlannedZone, free: PageCount) -> ZonePages {
    ZonePages {
        free,
        boost: zone.extent.boost,
        marks: zone.marks.boosted(zone.extent.boost),
        spanned: zone.extent.spanned,
        present: zone.extent.present,
        managed: zone.extent.managed,
        protection: zone.protection,
    }
}

fn pageset(plan: &Plan, zone: &PlannedZone) -> PagesetLines {
    let sizes = zone.pageset;
    // A limit that tunes itself is 0 until the first refill or drain.
    let high = if plan.model.pcp.tunes_high { PageCount(0) } else { sizes.high_min };
    PagesetLines {
        count: PageCount(0),
        high,
        batch: sizes.batch,
        high_min: sizes.high_min,
        high_max: sizes.high_max,
        stat_threshold: zone.stat_threshold,
    }
}
