//! Memory, nodes and CPUs go and come.

use nearpage::{
    CpuError, CpuId, Migratetype, NodeId, OfflineError, Order, PageCount, Pfn, PfnRange,
};

use super::Pair;
use crate::compare::{Difference, same};
use crate::run::Planted;

const PAGEBLOCK: u64 = 512;

impl Pair<'_, '_> {
    /// Some pageblocks go offline, or an attempt that must fail.
    pub(super) fn shrink_memory(&mut self) -> Result<(), Difference> {
        let range = match self.random.below(4) {
            0 | 1 => self.free_pageblocks(),
            2 => self.online_pageblocks(),
            _ => None,
        };
        let range = match range {
            Some(range) => range,
            None => {
                let (start, pages) = (self.any_frame(), self.random.below(3000));
                PfnRange { start, end: start + PageCount(pages) }
            }
        };
        self.narrate(format_args!("offline({range})"));
        let expected = self.naive.offline_all(&[range]);
        same("answer", self.allocator.offline(range), expected)?;
        if expected.is_ok() {
            self.later.push(range);
        }
        self.went_offline("offline", expected);
        Ok(())
    }

    /// A free block of a pageblock or two.
    fn free_pageblocks(&mut self) -> Option<PfnRange> {
        let zone = self.random.below(self.naive.zones().len() as u64) as usize;
        let order = Order(9 + self.random.below(2) as u8);
        let mut blocks = self.naive.zones()[zone].list(order, Migratetype::Movable);
        let start = blocks.next()?;
        Some(PfnRange { start, end: start + order.pages() })
    }

    /// Pageblocks that are online, with whatever is in them; sometimes all that came at once.
    fn online_pageblocks(&mut self) -> Option<PfnRange> {
        let ranges = self.naive.online_ranges();
        if ranges.is_empty() {
            return None;
        }
        let range = ranges[self.random.below(ranges.len() as u64) as usize];
        if self.one_in(3) {
            return Some(range);
        }
        let first = range.start.0.next_multiple_of(PAGEBLOCK);
        let count = (range.end.0 / PAGEBLOCK).saturating_sub(first / PAGEBLOCK);
        if count == 0 {
            return Some(range);
        }
        let at = self.random.below(count);
        let pageblocks = 1 + self.random.below((count - at).min(8));
        let start = Pfn(first + at * PAGEBLOCK);
        Some(PfnRange { start, end: start + PageCount(pageblocks * PAGEBLOCK) })
    }

    /// All memory of a node goes offline, if nobody has any of it; one in three times nobody has.
    pub(super) fn shrink_node(&mut self) -> Result<(), Difference> {
        let node = self.any_node();
        if self.one_in(3) {
            self.give_node_back(node)?;
        }
        self.narrate(format_args!("offline_node({node})"));
        let expected = self.naive.offline_node(node);
        same("answer", self.allocator.offline_node(node), expected)?;
        self.went_offline("offline_node", expected);
        Ok(())
    }

    fn any_node(&mut self) -> NodeId {
        let ids = self.node_ids();
        if self.one_in(20) { NodeId(4999) } else { self.random.one_of(&ids) }
    }

    fn give_node_back(&mut self, node: NodeId) -> Result<(), Difference> {
        let topology = self.allocator.topology();
        let index = topology.index_of(node);
        for order in (0..11_u8).map(Order) {
            let held = std::mem::take(&mut self.held[order.0 as usize]);
            let is_there = |pfn: &Pfn| topology.node_of_pfn(*pfn) == index;
            let (there, elsewhere): (Vec<Pfn>, Vec<Pfn>) = held.into_iter().partition(is_there);
            self.held[order.0 as usize] = elsewhere;
            for pfn in there {
                self.narrate(format_args!("free({pfn}, order {order})"));
                let expected = self.naive.free(self.cpu, pfn, order);
                same("answer", self.allocator.free(pfn, order), expected)?;
                self.note_freed(pfn, order);
                self.done("free", 0);
            }
        }
        Ok(())
    }

    fn went_offline(&mut self, operation: &'static str, answer: Result<PageCount, OfflineError>) {
        let (name, answer) = match answer {
            Ok(pages) => (operation, pages.0),
            Err(OfflineError::Empty { .. }) => ("Empty (offline)", 0),
            Err(OfflineError::NotOnline { .. }) => ("NotOnline", 0),
            Err(OfflineError::PartOfPageblock { .. }) => ("PartOfPageblock", 0),
            Err(OfflineError::InUse { pages, .. }) => ("InUse", pages.0),
            Err(OfflineError::UnknownNode { .. }) => ("UnknownNode (offline)", 0),
            Err(other) => panic!("an error without a name: {other}"),
        };
        self.done(name, answer);
    }

    /// All memory of a node is there again.
    pub(super) fn grow_node(&mut self) -> Result<(), Difference> {
        let node = self.any_node();
        self.narrate(format_args!("online_node({node})"));
        let expected = self.naive.online_node(node);
        same("answer", self.allocator.online_node(node).ok(), expected.ok())?;
        if let Some(known) = self.machine.topology.nodes.iter().find(|known| known.id == node) {
            let is_its = |range: &PfnRange| {
                known.memory.iter().any(|memory| !memory.intersection(*range).is_empty())
            };
            self.later.retain(|range| !is_its(range));
        }
        self.done("online_node", expected.map_or(0, |pages| pages.0));
        Ok(())
    }

    /// A CPU goes off or on, whichever it is not; sometimes whichever it is.
    pub(super) fn switch_cpu(&mut self) -> Result<(), Difference> {
        let is_known = !self.cpus.is_empty() && !self.one_in(20);
        let cpu = if is_known { self.random.one_of(&self.cpus) } else { CpuId(4999) };
        let off = self.allocator.is_cpu_on(cpu) != self.one_in(20);
        if off {
            self.narrate(format_args!("offline_cpu({cpu})"));
            let drains = !matches!(self.planted, Planted::MissingDrain);
            let expected = self.naive.offline_cpu(cpu, drains);
            same("answer", self.allocator.offline_cpu(cpu), expected)?;
            self.switched("offline_cpu", expected.map(|pages| pages.0));
        } else {
            self.narrate(format_args!("online_cpu({cpu})"));
            let expected = self.naive.online_cpu(cpu);
            same("answer", self.allocator.online_cpu(cpu), expected)?;
            self.switched("online_cpu", expected.map(|()| 0));
        }
        Ok(())
    }

    fn switched(&mut self, operation: &'static str, answer: Result<u64, CpuError>) {
        let (name, answer) = match answer {
            Ok(pages) => (operation, pages),
            Err(_) => ("CpuError", 0),
        };
        self.done(name, answer);
    }
}
