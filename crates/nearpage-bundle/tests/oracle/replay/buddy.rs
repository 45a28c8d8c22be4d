//! Scripts and random operations: where the blocks lie, and the movable free lists after each.

use nearpage::{Migratetype, Model, Order, Pfn};

use super::HERE;
use super::lists::{Numbers, lists};
use super::pageset::state;
use super::target;
use crate::lab::{CoreZone, Lab};
use crate::layout::Layout;
use crate::recordings::Recording;
use crate::tally::Tally;
use crate::text::buddy::{After, PageOrder, SHOWN_BY_RANDOM, SHOWN_BY_SCRIPTS, Step, read};
use crate::text::lists::{Lists, Position};

/// Replays all steps of a text.
pub fn replay(
    recording: &Recording,
    text: &str,
    model: Model,
    tally: &mut Tally,
) -> Result<(), String> {
    let experiment = read(text)?;
    let target = experiment.target;
    let layout = Layout::Largest(experiment.blocks);
    target::with(recording, &target, model, layout, |lab, zone| {
        if !experiment.pagesets {
            lab.pagesets_off(zone);
        }
        let (numbers, slots) = (Numbers::default(), Slots::Script(Vec::new()));
        let mut run = Run { lab, zone, node: target.zone.node, numbers, slots, pages: Vec::new() };
        for (number, step) in experiment.steps.iter().enumerate() {
            tally.at(format!("{}: step {number}", recording.name));
            run.step(step, tally)?;
        }
        Ok(())
    })
}

#[derive(Clone, Copy)]
struct Block {
    pfn: Pfn,
    order: Order,
}

/// Blocks that the module has.
enum Slots {
    /// By the order of their allocations.
    Script(Vec<Option<Block>>),
    /// Without gaps: the last one moves into the slot of one that is freed.
    Random(Vec<Block>),
}

struct Run<'a, 'm> {
    lab: &'a Lab<'a, 'm>,
    zone: &'m CoreZone<'m>,
    node: u32,
    numbers: Numbers,
    slots: Slots,
    /// Pages of the experiment with their order.
    pages: Vec<Pfn>,
}

impl Run<'_, '_> {
    fn step(&mut self, step: &Step, tally: &mut Tally) -> Result<(), String> {
        match step {
            Step::Script => self.begin(Slots::Script(Vec::new())),
            Step::Random => self.begin(Slots::Random(Vec::new())),
            Step::ScriptEnd(lists) | Step::RandomEnd(lists) => {
                self.free_slots();
                tally.compare("lists at the end", lists, &self.lists(SHOWN_BY_SCRIPTS));
            }
            Step::Alloc { order, at, after } => {
                let block = self.alloc(*order)?;
                tally.compare("position", *at, self.numbers.position(block.pfn));
                self.after(after, tally);
            }
            Step::Free { at, after } => {
                let block = self.take_slot(*at)?;
                self.lab.free(block.pfn, block.order);
                self.after(after, tally);
            }
            Step::Reset(after) => {
                self.lab.reset(self.zone, after.free_high_batch());
                tally.compare("reset", *after, state(self.lab, self.zone));
                self.numbers = Numbers::default();
            }
            Step::Drained(lists) => {
                self.lab.core.drain_cpu(self.lab.cpu).expect("nobody else drains");
                tally.compare("lists after a drain", lists, &self.lists(SHOWN_BY_SCRIPTS));
            }
            Step::NotClean => self.take_small_blocks(),
            Step::Order(order) => self.page_order(order, tally)?,
        }
        Ok(())
    }

    fn begin(&mut self, slots: Slots) {
        self.numbers = Numbers::default();
        self.slots = slots;
    }

    fn alloc(&mut self, order: Order) -> Result<Block, String> {
        let pfn = self.lab.alloc(order, HERE, self.node);
        let pfn = pfn.ok_or_else(|| format!("the core has no block of order {}", order.0))?;
        let block = Block { pfn, order };
        match &mut self.slots {
            Slots::Script(slots) => slots.push(Some(block)),
            Slots::Random(slots) => slots.push(block),
        }
        Ok(block)
    }

    fn take_slot(&mut self, at: Position) -> Result<Block, String> {
        let numbers = &mut self.numbers;
        let mut is_there = |block: &Block| numbers.position(block.pfn) == at;
        let found = match &mut self.slots {
            Slots::Script(slots) => {
                slots.iter_mut().find_map(|slot| slot.take_if(|block| is_there(block)))
            }
            Slots::Random(slots) => {
                let slot = slots.iter().position(is_there);
                slot.map(|slot| slots.swap_remove(slot))
            }
        };
        found.ok_or_else(|| format!("the core handed out no block at {at:?}"))
    }

    fn free_slots(&mut self) {
        let blocks = match &mut self.slots {
            Slots::Script(slots) => slots.drain(..).flatten().collect::<Vec<_>>(),
            Slots::Random(slots) => std::mem::take(slots),
        };
        for block in blocks {
            self.lab.free(block.pfn, block.order);
        }
    }

    fn after(&mut self, after: &Option<After>, tally: &mut Tally) {
        let Some(after) = after else { return };
        let shown = match self.slots {
            Slots::Script(_) => SHOWN_BY_SCRIPTS,
            Slots::Random(_) => SHOWN_BY_RANDOM,
        };
        tally.compare("lists after an operation", &after.lists, &self.lists(shown));
        if let Some(cached) = after.cached {
            tally.compare("pages in the pageset", cached, self.lab.pageset(self.zone).count().0);
        }
    }

    fn lists(&mut self, shown: usize) -> Lists {
        lists(self.zone, Migratetype::Movable, shown, &mut self.numbers)
    }

    fn take_small_blocks(&mut self) {
        for order in (0..Order::MAX.0).map(Order) {
            while self.zone.free_blocks(order, Migratetype::Movable) > 0
                && self.lab.alloc(order, HERE, self.node).is_some()
            {}
        }
    }

    fn page_order(&mut self, order: &PageOrder, tally: &mut Tally) -> Result<(), String> {
        match order {
            PageOrder::Given(kernel) => self.give_pages(kernel, tally)?,
            PageOrder::Freed { cached } => {
                let pages = std::mem::take(&mut self.pages);
                self.free_pages(pages);
                tally.compare(
                    "pages in the pageset",
                    *cached,
                    self.lab.pageset(self.zone).count().0,
                );
            }
            PageOrder::FreedInReverse(kernel) => {
                let pages = std::mem::take(&mut self.pages);
                self.free_pages(pages.into_iter().rev());
                self.give_pages(kernel, tally)?;
            }
        }
        Ok(())
    }

    fn give_pages(&mut self, kernel: &[Position], tally: &mut Tally) -> Result<(), String> {
        for at in kernel {
            let pfn = self.lab.alloc(Order(0), HERE, self.node).ok_or("the core has no page")?;
            tally.compare("order of pages", *at, self.numbers.position(pfn));
            self.pages.push(pfn);
        }
        Ok(())
    }

    fn free_pages(&self, pages: impl IntoIterator<Item = Pfn>) {
        pages.into_iter().for_each(|page| self.lab.free(page, Order(0)));
    }
}
