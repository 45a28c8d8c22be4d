//! `/proc/zoneinfo` of a machine on which nobody has allocated: free is what is managed, every other
//! counter 0, every pageset empty and not yet used.
//!
//! Source of the layout: recordings of Debian's 6.1.192 and 6.12.95.

use std::fmt::{self, Write};

use nearpage::units::{CpuId, PageCount};

use crate::plan::{Model, Plan, PlannedNode, PlannedZone};

/// Counters of a node, in both kernels.
const NODE_ITEMS: [&str; 40] = [
    "nr_inactive_anon",
    "nr_active_anon",
    "nr_inactive_file",
    "nr_active_file",
    "nr_unevictable",
    "nr_slab_reclaimable",
    "nr_slab_unreclaimable",
    "nr_isolated_anon",
    "nr_isolated_file",
    "workingset_nodes",
    "workingset_refault_anon",
    "workingset_refault_file",
    "workingset_activate_anon",
    "workingset_activate_file",
    "workingset_restore_anon",
    "workingset_restore_file",
    "workingset_nodereclaim",
    "nr_anon_pages",
    "nr_mapped",
    "nr_file_pages",
    "nr_dirty",
    "nr_writeback",
    "nr_writeback_temp",
    "nr_shmem",
    "nr_shmem_hugepages",
    "nr_shmem_pmdmapped",
    "nr_file_hugepages",
    "nr_file_pmdmapped",
    "nr_anon_transparent_hugepages",
    "nr_vmscan_write",
    "nr_vmscan_immediate_reclaim",
    "nr_dirtied",
    "nr_written",
    "nr_throttled_written",
    "nr_kernel_misc_reclaimable",
    "nr_foll_pin_acquired",
    "nr_foll_pin_released",
    "nr_kernel_stack",
    "nr_page_table_pages",
    "nr_sec_page_table_pages",
];
/// What follows in 6.1.
const NODE_ITEMS_6_1: [&str; 3] = ["nr_swapcached", "pgpromote_success", "pgpromote_candidate"];
/// What follows in 6.12.
const NODE_ITEMS_6_12: [&str; 7] = [
    "nr_iommu_pages",
    "nr_swapcached",
    "pgpromote_success",
    "pgpromote_candidate",
    "pgdemote_kswapd",
    "pgdemote_direct",
    "pgdemote_khugepaged",
];
/// Counters of a zone between `nr_free_pages` and the `numa_*` ones, in both kernels.
const ZONE_ITEMS: [&str; 10] = [
    "nr_zone_inactive_anon",
    "nr_zone_active_anon",
    "nr_zone_inactive_file",
    "nr_zone_active_file",
    "nr_zone_unevictable",
    "nr_zone_write_pending",
    "nr_mlock",
    "nr_bounce",
    "nr_zspages",
    "nr_free_cma",
];
const NUMA_ITEMS: [&str; 6] =
    ["numa_hit", "numa_miss", "numa_foreign", "numa_interleave", "numa_local", "numa_other"];

/// The whole text.
pub(super) fn format(plan: &Plan) -> String {
    let mut text = String::new();
    let cpus = plan.cpus();
    for node in &plan.nodes {
        write_node(&mut text, plan.model, node, &cpus).expect("writing to a string cannot fail");
    }
    text
}

fn write_node(out: &mut String, model: Model, node: &PlannedNode, cpus: &[CpuId]) -> fmt::Result {
    let first = node.zones.iter().find(|zone| zone.is_populated()).map(|zone| zone.kind);
    for zone in &node.zones {
        writeln!(out, "Node {}, zone {:>8}", node.id, zone.kind.name())?;
        if Some(zone.kind) == first {
            writeln!(out, "  per-node stats")?;
            let more = match model {
                Model::Linux6_1 => NODE_ITEMS_6_1.as_slice(),
                Model::Linux6_12 | Model::Nearpage => NODE_ITEMS_6_12.as_slice(),
            };
            NODE_ITEMS
                .iter()
                .chain(more)
                .try_for_each(|name| write_item(out, name, PageCount(0)))?;
        }
        write_pages(out, model, zone)?;
        if zone.is_populated() {
            write_counters(out, model, zone)?;
            write_pagesets(out, model, zone, cpus)?;
        }
    }
    Ok(())
}

/// The block from `pages free` to `protection`, which every zone has.
fn write_pages(out: &mut String, model: Model, zone: &PlannedZone) -> fmt::Result {
    writeln!(out, "  pages free     {}", zone.managed)?;
    let mut write = |name: &str, pages: PageCount| writeln!(out, "        {name:<8} {pages}");
    write("boost", PageCount(0))?;
    write("min", zone.marks.min)?;
    write("low", zone.marks.low)?;
    write("high", zone.marks.high)?;
    if model != Model::Linux6_1 {
        write("promo", zone.marks.promo)?;
    }
    write("spanned", zone.spanned)?;
    write("present", zone.present)?;
    write("managed", zone.managed)?;
    write("cma", PageCount(0))?;
    let protection: Vec<String> = zone.protection.iter().map(ToString::to_string).collect();
    writeln!(out, "        protection: ({})", protection.join(", "))
}

fn write_counters(out: &mut String, model: Model, zone: &PlannedZone) -> fmt::Result {
    write_item(out, "nr_free_pages", zone.managed)?;
    let unaccepted = (model != Model::Linux6_1).then_some("nr_unaccepted");
    let names = ZONE_ITEMS.into_iter().chain(unaccepted).chain(NUMA_ITEMS);
    names.into_iter().try_for_each(|name| write_item(out, name, PageCount(0)))
}

fn write_item(out: &mut String, name: &str, pages: PageCount) -> fmt::Result {
    writeln!(out, "      {name:<12} {pages}")
}

fn write_pagesets(
    out: &mut String,
    model: Model,
    zone: &PlannedZone,
    cpus: &[CpuId],
) -> fmt::Result {
    // Since 6.7 a pageset's own limit is 0 until its first refill or drain.
    let high = match model {
        Model::Linux6_1 => zone.pageset.high_min,
        Model::Linux6_12 | Model::Nearpage => PageCount(0),
    };
    writeln!(out, "  pagesets")?;
    for cpu in cpus {
        writeln!(out, "    cpu: {cpu}")?;
        writeln!(out, "              count: 0")?;
        writeln!(out, "              high:  {high}")?;
        writeln!(out, "              batch: {}", zone.pageset.batch)?;
        writeln!(out, "  vm stats threshold: {}", zone.stat_threshold)?;
    }
    writeln!(out, "  node_unreclaimable:  0")?;
    writeln!(out, "  start_pfn:           {}", zone.start.0)
}
