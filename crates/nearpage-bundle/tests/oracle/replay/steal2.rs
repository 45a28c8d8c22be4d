//! Scenarios between migratetypes in a zone where nothing else is free.

use nearpage::{Gfp, Migratetype, Model, Order, Pfn, PfnRange};

use super::HERE;
use super::lists::{Numbers, lists};
use super::steal::{RECLAIMABLE, UNMOVABLE, take_all};
use super::target;
use crate::lab::{CoreZone, Lab};
use crate::layout::Layout;
use crate::recordings::Recording;
use crate::tally::Tally;
use crate::text::steal2::{Operation, SHOWN, Scenario, TYPES, View, What, read};

/// Replays all scenarios of a text, each in two pageblocks of its own.
pub fn replay(
    recording: &Recording,
    text: &str,
    model: Model,
    tally: &mut Tally,
) -> Result<(), String> {
    let experiment = read(text)?;
    let target = experiment.target;
    let layout = Layout::Largest(experiment.scenarios.len() as u64);
    target::with(recording, &target, model, layout, |lab, zone| {
        lab.pagesets_off(zone);
        let node = target.zone.node;
        // Page by page, so that a scenario can free any of them.
        while zone.free_pages().0 > 0 {
            lab.alloc(Order(0), gfp(Migratetype::Movable), node).ok_or("pages that nobody gets")?;
        }
        for (scenario, block) in experiment.scenarios.iter().zip(blocks(lab, zone)) {
            let place = format!("{}: {}", recording.name, scenario.text);
            let mut run = Run { lab, zone, node, block, numbers: Numbers::default() };
            run.scenario(scenario, &place, tally);
        }
        Ok(())
    })
}

/// What the module asks for: the last pages too.
fn gfp(migratetype: Migratetype) -> Gfp {
    let gfp = match migratetype {
        Migratetype::Unmovable => UNMOVABLE,
        Migratetype::Reclaimable => RECLAIMABLE,
        _ => HERE,
    };
    gfp.union(Gfp::MEMALLOC)
}

/// The blocks of the highest order in a zone of nothing else.
fn blocks(lab: &Lab<'_, '_>, zone: &CoreZone<'_>) -> Vec<Pfn> {
    let ranges = lab.core.topology().ranges_in(zone.node(), zone.span());
    let starts = |PfnRange { start, end }: PfnRange| (start.0..end.0).step_by(1 << Order::MAX.0);
    ranges.flat_map(starts).map(Pfn).collect()
}

struct Run<'a, 'm> {
    lab: &'a Lab<'a, 'm>,
    zone: &'m CoreZone<'m>,
    node: u32,
    /// The first page of both pageblocks.
    block: Pfn,
    numbers: Numbers,
}

impl Run<'_, '_> {
    fn scenario(&mut self, scenario: &Scenario, place: &str, tally: &mut Tally) {
        self.numbers.position(self.block);
        for page in &scenario.free {
            self.lab.free(self.page(*page), Order(0));
        }
        tally.at(format!("{place}: freed"));
        tally.compare("pageblocks and lists", &scenario.freed, &self.view());
        let mut given = Vec::new();
        for (number, operation) in scenario.operations.iter().enumerate() {
            tally.at(format!("{place}: operation {number}"));
            self.operation(operation, &mut given, tally);
        }
        self.free_all(&mut given);
        let held = |page: &u64| !scenario.free.contains(page);
        for page in (0..Order::MAX.pages().0).filter(held) {
            self.lab.free(self.page(page), Order(0));
        }
        tally.at(format!("{place}: end"));
        tally.compare("pageblocks and lists", &scenario.end, &self.view());
        self.take_all();
    }

    fn page(&self, page: u64) -> Pfn {
        Pfn(self.block.0 + page)
    }

    fn operation(
        &mut self,
        operation: &Operation,
        given: &mut Vec<(Pfn, Order)>,
        tally: &mut Tally,
    ) {
        match operation.what {
            What::FreeAll => self.free_all(given),
            What::Alloc { migratetype, order, at } => {
                let pfn = self.lab.alloc(order, gfp(migratetype), self.node);
                tally.compare("position", at, pfn.map(|pfn| self.numbers.position(pfn)));
                given.extend(pfn.map(|pfn| (pfn, order)));
            }
        }
        tally.compare("pageblocks and lists", &operation.after, &self.view());
    }

    fn free_all(&self, given: &mut Vec<(Pfn, Order)>) {
        given.drain(..).for_each(|(pfn, order)| self.lab.free(pfn, order));
    }

    fn view(&mut self) -> View {
        let zone = self.zone;
        let pageblocks = [0, Order::PAGEBLOCK.pages().0];
        let pageblocks = pageblocks.map(|page| zone.pageblock_type(self.page(page)));
        let lists = TYPES.map(|(_, of)| lists(zone, of, SHOWN, &mut self.numbers));
        View { pageblocks: pageblocks.to_vec(), lists }
    }

    /// Empties the zone for the next scenario.
    fn take_all(&self) {
        for (_, of) in TYPES {
            take_all(self.lab, self.zone, self.node, of, gfp(of));
        }
    }
}
