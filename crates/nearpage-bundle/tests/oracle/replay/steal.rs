//! Requests of types that have nothing: what they take, and what is left to whom.

use nearpage::{Gfp, Migratetype, Model, Order, Pfn};

use super::target;
use crate::lab::{CoreZone, Lab};
use crate::layout::Layout;
use crate::recordings::Recording;
use crate::tally::Tally;
use crate::text::steal::{Given, Steal, Table, read};

/// Kernel pages on this node only; nobody reclaims.
pub const UNMOVABLE: Gfp = Gfp::THISNODE.union(Gfp::NORETRY).union(Gfp::NOWARN);
/// The same for pages that could be reclaimed.
pub const RECLAIMABLE: Gfp = UNMOVABLE.union(Gfp::RECLAIMABLE);

/// Types that have blocks at the start. Those of kernel pages have some where the module could take none,
/// because they are of a Movable zone.
const TYPES: [Migratetype; 3] =
    [Migratetype::Movable, Migratetype::Unmovable, Migratetype::Reclaimable];

/// Replays all allocations of a text.
pub fn replay(
    recording: &Recording,
    text: &str,
    model: Model,
    tally: &mut Tally,
) -> Result<(), String> {
    let experiment = read(text)?;
    let target = experiment.target;
    let first = experiment.steals.first().ok_or("no allocation")?;
    let blocks = |of: Migratetype| first.before.get(&of.index()).cloned().ok_or("no such lists");
    let blocks = Layout::Blocks(TYPES.map(blocks).into_iter().collect::<Result<_, _>>()?);
    target::with(recording, &target, model, blocks.clone(), |lab, zone| {
        for (migratetype, ranges) in TYPES.into_iter().zip(blocks.of_types(zone.span())) {
            lab.retype(zone, &ranges, migratetype);
        }
        lab.pagesets_off(zone);
        for (number, steal) in experiment.steals.iter().enumerate() {
            tally.at(format!("{}: allocation {number}", recording.name));
            again(lab, zone, target.zone.node, steal, tally)?;
        }
        Ok(())
    })
}

fn again(
    lab: &Lab<'_, '_>,
    zone: &CoreZone<'_>,
    node: u32,
    steal: &Steal,
    tally: &mut Tally,
) -> Result<(), String> {
    take_all(lab, zone, node, Migratetype::Unmovable, UNMOVABLE);
    take_all(lab, zone, node, Migratetype::Reclaimable, RECLAIMABLE);
    tally.compare("blocks by type and order, before", &steal.before, &table(zone));
    let gfp = match steal.migratetype {
        Migratetype::Unmovable => UNMOVABLE,
        Migratetype::Reclaimable => RECLAIMABLE,
        other => return Err(format!("a request for {} pages", other.name())),
    };
    let place = |pfn: Pfn| {
        let pageblock = zone.pageblock_type(pfn);
        (pfn.0 % Order::MAX.pages().0, pageblock)
    };
    let given = lab.alloc(steal.order, gfp, node).map(|pfn| Given {
        place: zone.span().contains(pfn).then(|| place(pfn)),
        after: table(zone),
    });
    tally.compare("block, its pageblock's type, blocks after", &steal.given, &given);
    Ok(())
}

/// Takes all blocks of a type, smallest first, as far as requests for it get them.
pub fn take_all(
    lab: &Lab<'_, '_>,
    zone: &CoreZone<'_>,
    node: u32,
    migratetype: Migratetype,
    gfp: Gfp,
) {
    let has_block = |order| zone.free_blocks(order, migratetype) > 0;
    for order in (0..=Order::MAX.0).map(Order) {
        while has_block(order)
            && let Some(pfn) = lab.alloc(order, gfp, node)
        {
            if !zone.span().contains(pfn) {
                lab.free(pfn, order);
                break;
            }
        }
    }
}

fn table(zone: &CoreZone<'_>) -> Table {
    let types = [
        Migratetype::Unmovable,
        Migratetype::Movable,
        Migratetype::Reclaimable,
        Migratetype::HighAtomic,
    ];
    let blocks = |of| {
        let orders = (0..=Order::MAX.0).map(Order);
        orders.map(|order| u64::from(zone.free_blocks(order, of))).collect()
    };
    types.map(|of| (of.index(), blocks(of))).into()
}
