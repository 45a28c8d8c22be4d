//! Frees that must be refused and change nothing.

use nearpage::{FreeError, Order, Pfn, PfnRange};

use super::Pair;
use crate::compare::{self, Difference, same};

impl Pair<'_, '_> {
    /// A single free that is wrong; sometimes none, if what was picked may be freed.
    pub(super) fn free_wrongly(&mut self) -> Result<(), Difference> {
        let (pfn, order) = self.wrong_free();
        // What was freed may be in somebody's hands again.
        if self.naive.why_not_free(pfn, order).is_none() {
            return Ok(());
        }
        self.narrate(format_args!("wrong free({pfn}, order {order})"));
        let got = self.allocator.free(pfn, order);
        let expected = self.naive.free(self.cpu, pfn, order);
        let (Err(got), Err(expected)) = (got, expected) else {
            return same("answer", got, expected);
        };
        compare::same_refusal(got, expected)?;
        compare::same_counters(self.allocator, &self.naive, &[])?;
        let name = match expected {
            FreeError::Foreign { .. } => "Foreign",
            FreeError::Misaligned { .. } => "Misaligned",
            FreeError::OrderTooLarge { .. } => "OrderTooLarge (free)",
            FreeError::WrongOrder { .. } => "WrongOrder",
            FreeError::NotAllocated { .. } => "NotAllocated",
            FreeError::Locked { .. } => "Locked",
            other => panic!("an error without a name: {other}"),
        };
        self.tally.count(name);
        self.done("free", pfn.0);
        Ok(())
    }

    /// A free that is likely to be wrong.
    fn wrong_free(&mut self) -> (Pfn, Order) {
        let order = Order(self.random.below(11) as u8);
        let held = self.held[order.0 as usize].last().copied().unwrap_or(Pfn(order.0.into()));
        let other = Order(self.random.below(256) as u8);
        match self.random.below(7) {
            0 if !self.freed.is_empty() => self.random.one_of(&self.freed),
            1 => (Pfn(self.random.one_of(&[u64::MAX, 1 << 40, 0, 1 << 25])), order),
            2 => (held, other),
            3 => (held, Order(other.0 % 11)),
            4 => (Pfn(held.0 ^ 1), order),
            5 => (Pfn(held.0 + order.pages().0 / 2), Order(order.0.saturating_sub(1))),
            _ => (self.any_frame(), Order(order.0 % 4)),
        }
    }

    /// A frame of the topology's memory or near it.
    pub(super) fn any_frame(&mut self) -> Pfn {
        let nodes = &self.machine.topology.nodes;
        let ranges: Vec<PfnRange> = nodes.iter().flat_map(|node| node.memory.clone()).collect();
        let range = self.random.one_of(&ranges);
        Pfn(range.start.0.saturating_sub(2) + self.random.below(range.pages().0 + 4))
    }

    /// A page that is not the caller's to free, or is freed in the same call.
    pub(super) fn wrong_page(&mut self, freed: &[Pfn]) -> Option<Pfn> {
        let page = match self.random.below(3) {
            0 if !freed.is_empty() => return Some(self.random.one_of(freed)),
            1 => self.freed.last()?.0,
            _ => self.any_frame(),
        };
        self.naive.why_not_free(page, Order(0)).map(|_| page)
    }
}
