//! Allocations until the first failure: which zones, how many from each, and the NUMA events.
//!
//! With the pageset off everything is exact. With it on a run ends at the first refill that passes a mark,
//! and where the refills lie depends on what the pageset learnt before, which is not recorded. So the blocks
//! of a zone up to the end of a run may differ by one refill: `batch << 5` pages on 6.12, `batch` on 6.1. Watermark
//! checks read a counter to which a CPU adds its pages when they pass a threshold, so the blocks may differ by
//! that threshold, too.

use std::collections::BTreeMap;

use nearpage::rules::pagesets::RefillScale;
use nearpage::{CpuId, Migratetype, Model, Order, ZoneKind};

use crate::lab::{self, Lab};
use crate::layout::Layout;
use crate::machine::{Machine, Zone, ZoneName};
use crate::recordings::Recording;
use crate::tally::Tally;
use crate::text::spill::{Entry, Level, Run, Spill, read};

/// Replays all entries of a text.
pub fn replay(
    recording: &Recording,
    text: &str,
    model: Model,
    tally: &mut Tally,
) -> Result<(), String> {
    let machine = Machine::of(recording)?;
    for entry in read(text)? {
        match entry {
            Entry::Skipped => tally.unanswered("SPILL_SKIP: the module's budget was used up"),
            Entry::Spill(spill) => {
                let Spill { node, gfp_name, .. } = &spill;
                tally.at(format!("{}: node {node}, {gfp_name}", recording.name));
                again(&machine, &spill, model, tally)?;
            }
        }
    }
    Ok(())
}

fn again(machine: &Machine, spill: &Spill, model: Model, tally: &mut Tally) -> Result<(), String> {
    let topology = machine.topology(|zone| layout(spill, zone))?;
    lab::with(machine, topology, model, CpuId(spill.cpu), |lab| {
        if spill.pagesets_off {
            lab.core.zones().iter().for_each(|zone| lab.pagesets_off(zone));
        }
        give_fragments_away(lab, machine, spill)?;
        let runs = runs(lab, spill);
        compare(lab, machine, spill, &runs, tally)
    })
}

/// The free memory of a zone at the start. Only its pages are recorded; what of it was in blocks too small
/// for the request shows where the zone stopped giving although it was above its mark.
fn layout(spill: &Spill, zone: &Zone) -> Layout {
    let before = spill.before.iter().find(|level| level.zone == zone.name);
    let free = before.map_or(0, |level| level.free);
    match short_of_blocks(spill, zone) {
        Some(fragments) => {
            let limit = if spill.order == Order(0) { Order::PAGEBLOCK } else { spill.order };
            let given = free.saturating_sub(fragments);
            let rest = given % limit.pages().0;
            Layout::Fragmented { whole: given - rest, fragments, rest, limit }
        }
        None => Layout::Whole(free),
    }
}

/// A single page is refused only where the small blocks are of another type; those that were given were of
/// its own.
fn give_fragments_away(lab: &Lab<'_, '_>, machine: &Machine, spill: &Spill) -> Result<(), String> {
    for recorded in machine.zones.iter().filter(|zone| short_of_blocks(spill, zone).is_some()) {
        let zone = lab.zone(recorded.name)?;
        let layout = layout(spill, recorded);
        match (spill.order, spill.gfp.migratetype()) {
            (Order(0), Some(Migratetype::Movable)) => {
                lab.retype(zone, &layout.fragments(recorded.span), Migratetype::Unmovable);
            }
            (Order(0), Some(own)) => lab.retype(zone, &layout.rest(recorded.span), own),
            _ => {}
        }
    }
    Ok(())
}

/// Pages that a zone had left when it stopped giving for want of large blocks, if it did.
fn short_of_blocks(spill: &Spill, zone: &Zone) -> Option<u64> {
    let kind = spill.gfp.zone_kind().filter(|_| !spill.limited)?;
    let mut runs = spill.runs.iter().filter(|run| run.after.zone == zone.name);
    let (run, mark) = if spill.order == Order(0) {
        // Other types' pageblocks are left alone if the preferred zone is a Normal one (`ALLOC_NOFRAGMENT`),
        // and only before the first round ends.
        spill.runs.first().filter(|run| run.after.zone.kind == ZoneKind::Normal)?;
        (runs.next()?, zone.marks.low)
    } else {
        (runs.next_back()?, zone.marks.min)
    };
    // A check may see a few pages more or less than there are: what the CPU has not added up yet.
    let lag = if spill.pagesets_off { 0 } else { zone.stat_threshold };
    let enough = mark.0 + zone.reserve[kind.index()].0 + spill.order.pages().0 - 1 + lag;
    (run.after.free > enough).then_some(run.after.free)
}

/// Allocates as the module did.
fn runs(lab: &Lab<'_, '_>, spill: &Spill) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    let mut zone = None;
    let most = if spill.limited { spill.total } else { u64::MAX };
    let mut total = 0;
    while total < most
        && let Some(pfn) = lab.alloc(spill.order, spill.gfp, spill.node)
    {
        let same = zone.is_some_and(|zone: &lab::CoreZone<'_>| {
            // A page of the run's zone, in nearly all cases.
            zone.span().contains(pfn) && core::ptr::addr_eq(lab.zone_of(pfn), zone)
        });
        if !same {
            close(lab, &mut runs);
            let now = lab.zone_of(pfn);
            runs.push(Run { blocks: 0, after: level(lab, now) });
            zone = Some(now);
        }
        if let Some(run) = runs.last_mut() {
            run.blocks += 1;
        }
        total += 1;
    }
    close(lab, &mut runs);
    runs
}

fn close(lab: &Lab<'_, '_>, runs: &mut [Run]) {
    if let Some(run) = runs.last_mut() {
        let zone = lab.zone(run.after.zone).expect("the run is of a zone");
        run.after = level(lab, zone);
    }
}

fn level(lab: &Lab<'_, '_>, zone: &lab::CoreZone<'_>) -> Level {
    let cached = lab.pageset(zone).count().0;
    Level { zone: lab.name(zone), free: zone.free_pages().0, cached }
}

fn compare(
    lab: &Lab<'_, '_>,
    machine: &Machine,
    spill: &Spill,
    core: &[Run],
    tally: &mut Tally,
) -> Result<(), String> {
    if spill.pagesets_off {
        compare_exactly(machine, spill, core, tally)?;
    } else {
        compare_within_a_refill(lab, machine, spill, core, tally)?;
    }
    let slack = |name: ZoneName| {
        let others = spill.others(name).min(OTHERS_MOST) >> spill.order.0;
        match spill.pagesets_off {
            true => Ok(others),
            false => machine.zone(name).map(|zone| others + within(lab, zone, spill)),
        }
    };
    for kernel in &spill.end {
        let core = level(lab, lab.zone(kernel.zone)?);
        let pages = |level: &Level| level.free + level.cached;
        let slack = slack(kernel.zone)? << spill.order.0;
        tally.compare_within("free and cached at the end", pages(kernel), pages(&core), slack);
    }
    for (zone, kernel) in &spill.numa {
        let core = numa_events(lab, lab.zone(*zone)?);
        // Misses of all other zones are this zone's `foreign`.
        let others = spill.numa.iter().map(|(other, _)| slack(*other)).sum::<Result<u64, _>>()?;
        for (event, (&kernel, core)) in kernel.iter().zip(core).enumerate() {
            let slack = if event == FOREIGN { others } else { slack(*zone)? };
            tally.compare_within("NUMA events", kernel, core, slack);
        }
    }
    Ok(())
}

/// Which of the five events is counted where pages were wanted and not where they came from.
const FOREIGN: usize = 2;

fn numa_events<'m>(lab: &Lab<'_, 'm>, zone: &lab::CoreZone<'m>) -> [u64; 5] {
    let stats = lab.core.zone_stats(zone);
    [stats.numa_hit, stats.numa_miss, stats.numa_foreign, stats.numa_local, stats.numa_other]
}

fn zones(runs: &[Run]) -> Vec<ZoneName> {
    runs.iter().map(|run| run.after.zone).collect()
}

fn compare_exactly(
    machine: &Machine,
    spill: &Spill,
    core: &[Run],
    tally: &mut Tally,
) -> Result<(), String> {
    tally.compare("zones in order", zones(&spill.runs), zones(core));
    for (kernel, core) in spill.runs.iter().zip(core) {
        if short_of_blocks(spill, machine.zone(kernel.after.zone)?).is_some() {
            tally.unanswered(UNKNOWN_BLOCKS);
        } else if (1..=OTHERS_MOST).contains(&spill.others(kernel.after.zone)) {
            tally.unanswered("run: its blocks, as others took pages of the zone meanwhile");
            tally.compare("run: free pages after it", kernel.after, core.after);
        } else {
            tally.compare("run: blocks, free pages after it", kernel, core);
        }
    }
    Ok(())
}

/// More pages than other tasks take while one allocates with interrupts off, but for moments.
const OTHERS_MOST: u64 = 512;

const UNKNOWN_BLOCKS: &str = "run: what the zone had in large blocks at the start is not recorded";

fn compare_within_a_refill(
    lab: &Lab<'_, '_>,
    machine: &Machine,
    spill: &Spill,
    core: &[Run],
    tally: &mut Tally,
) -> Result<(), String> {
    if zones(&spill.runs) != zones(core) {
        // Marks less than two refills apart: whether a zone has a second run is up to the refills.
        let long = |runs: &[Run]| long_runs(lab, machine, runs, spill.order);
        tally.compare("zones in order, of long runs", long(&spill.runs)?, long(core)?);
        return Ok(());
    }
    tally.compare("zones in order", zones(&spill.runs), zones(core));
    let mut so_far: BTreeMap<ZoneName, [u64; 2]> = BTreeMap::new();
    for (kernel, core) in spill.runs.iter().zip(core) {
        let zone = machine.zone(kernel.after.zone)?;
        if short_of_blocks(spill, zone).is_some() {
            tally.unanswered(UNKNOWN_BLOCKS);
            continue;
        }
        let [in_kernel, in_core] = so_far.entry(zone.name).or_default();
        *in_kernel += kernel.blocks;
        *in_core += core.blocks;
        let what = "blocks of a zone up to the end of a run";
        tally.compare_within(what, *in_kernel, *in_core, within(lab, zone, spill));
    }
    Ok(())
}

/// Blocks by which a run may differ with pagesets on: a refill, and what a CPU has not added up.
fn within(lab: &Lab<'_, '_>, zone: &Zone, spill: &Spill) -> u64 {
    let lag = zone.stat_threshold.div_ceil(spill.order.pages().0);
    refill_blocks(lab, zone, spill.order) + lag
}

/// Blocks that the largest refill of a zone's pageset brings.
fn refill_blocks(lab: &Lab<'_, '_>, zone: &Zone, order: Order) -> u64 {
    let rules = lab.rules();
    let doublings = if rules.refill == RefillScale::Fixed { 0 } else { rules.batch_scale_max };
    match order {
        Order(0) => zone.sizes.batch.0 << doublings,
        Order(order) => (zone.sizes.batch.0 >> order).max(2),
    }
}

/// The zones of runs of more than two refills.
fn long_runs(
    lab: &Lab<'_, '_>,
    machine: &Machine,
    runs: &[Run],
    order: Order,
) -> Result<Vec<ZoneName>, String> {
    let mut zones = Vec::new();
    for run in runs {
        let zone = machine.zone(run.after.zone)?;
        if run.blocks > 2 * refill_blocks(lab, zone, order) {
            zones.push(zone.name);
        }
    }
    zones.dedup();
    Ok(zones)
}
