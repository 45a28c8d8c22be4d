//! Memory that goes, CPUs that go and come again.

use std_alloc::vec::Vec;

use super::{NaiveAllocator, NaiveCpu};
use crate::alloc::CpuError;
use crate::error::{OfflineError, UnknownNode};
use crate::units::{CpuId, NodeId, PageCount, Pfn, PfnRange};

const PAGEBLOCK: u64 = 512;

impl NaiveAllocator {
    /// Memory goes offline, all of the ranges or none.
    pub fn offline_all(&mut self, ranges: &[PfnRange]) -> Result<PageCount, OfflineError> {
        for (at, &range) in ranges.iter().enumerate() {
            if ranges[..at].iter().any(|other| !other.intersection(range).is_empty()) {
                return Err(OfflineError::NotOnline { range });
            }
        }
        for &range in ranges {
            self.check_online(range)?;
        }
        let parts: Vec<(PfnRange, usize)> = ranges.iter().flat_map(|&it| self.parts(it)).collect();
        for pageblock in pageblocks(&parts) {
            self.zones[pageblock.1].isolate(pageblock.0, &mut self.pageblocks);
        }
        self.drain_where(|_, zone| parts.iter().any(|(_, of)| *of == zone));
        let held: Vec<Pfn> =
            parts.iter().flat_map(|&(part, zone)| self.zones[zone].held_in(part)).collect();
        if let Some(&first) = held.first() {
            for pageblock in pageblocks(&parts) {
                self.zones[pageblock.1].end_isolation(pageblock.0, &mut self.pageblocks);
            }
            self.plugged.memory_in_use += 1;
            let (pages, undrained) = (PageCount(held.len() as u64), None);
            return Err(OfflineError::InUse { pages, first, undrained });
        }
        let zones_before = self.zones_with_memory();
        for &(part, zone) in &parts {
            self.zones[zone].take_out(part, &mut self.pageblocks);
        }
        let pages: u64 = ranges.iter().map(|range| range.pages().0).sum();
        self.plugged.memory_offlines += u64::from(pages > 0);
        self.plugged.offlined_pages.0 += pages;
        ranges.iter().for_each(|&range| self.forget(range));
        self.resize();
        self.memory_changed(&zones_before);
        Ok(PageCount(pages))
    }

    /// All memory of a node goes offline.
    pub fn offline_node(&mut self, node: NodeId) -> Result<PageCount, OfflineError> {
        let Some(at) = self.nodes.iter().position(|known| known.id == node) else {
            return Err(OfflineError::UnknownNode { node });
        };
        let of_node = |&&(_, zone): &&(PfnRange, usize)| self.zones[zone].node.0 as usize == at;
        let memory: Vec<PfnRange> = self.memory.iter().filter(of_node).map(|it| it.0).collect();
        let mut ranges: Vec<PfnRange> = self
            .online
            .iter()
            .flat_map(|online| memory.iter().map(|memory| memory.intersection(*online)))
            .filter(|range| !range.is_empty())
            .collect();
        ranges.sort();
        // Zones that adjoin, and memory that came in pieces, are one range.
        let bounds = &self.node_memory[at];
        let mut merged: Vec<PfnRange> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if last.end == range.start && !bounds.contains(&range.start) => {
                    last.end = range.end;
                }
                _ => merged.push(range),
            }
        }
        self.offline_all(&merged)
    }

    /// What is online of a range.
    pub fn online_in(&self, range: PfnRange) -> u64 {
        let pages = |online: &PfnRange| online.intersection(range).pages().0;
        self.online.iter().map(pages).sum()
    }

    /// All that is online.
    pub fn online_ranges(&self) -> &[PfnRange] {
        &self.online
    }

    fn parts(&self, range: PfnRange) -> Vec<(PfnRange, usize)> {
        let part = |&(memory, zone): &(PfnRange, usize)| (memory.intersection(range), zone);
        let mut parts: Vec<_> =
            self.memory.iter().map(part).filter(|(part, _)| !part.is_empty()).collect();
        parts.sort_by_key(|&(_, zone)| zone);
        let mut whole: Vec<(PfnRange, usize)> = Vec::new();
        for (part, zone) in parts {
            match whole.last_mut() {
                Some((last, of)) if *of == zone && last.end == part.start => last.end = part.end,
                _ => whole.push((part, zone)),
            }
        }
        whole
    }

    fn check_online(&self, range: PfnRange) -> Result<(), OfflineError> {
        if range.is_empty() {
            return Err(OfflineError::Empty { range });
        }
        if self.online_in(range) != range.pages().0 {
            return Err(OfflineError::NotOnline { range });
        }
        let before = Pfn(range.start.0 - range.start.0 % PAGEBLOCK);
        let after = Pfn(range.end.0.div_ceil(PAGEBLOCK) * PAGEBLOCK);
        let parts = self.parts(range);
        let shared = parts.iter().find_map(|&(part, zone)| {
            let pageblocks = pageblocks(&[(part, zone)]);
            pageblocks.into_iter().map(|it| it.0).find(|&pfn| self.pageblocks.is_shared(pfn))
        });
        let pfn = if self.online_in(PfnRange { start: before, end: range.start }) > 0 {
            range.start
        } else if self.online_in(PfnRange { start: range.end, end: after }) > 0 {
            Pfn(range.end.0 - 1)
        } else if let Some(shared) = shared {
            shared
        } else {
            return Ok(());
        };
        Err(OfflineError::PartOfPageblock { range, pfn })
    }

    fn forget(&mut self, range: PfnRange) {
        let rest = |online: PfnRange| {
            let below = PfnRange { end: online.end.min(range.start), ..online };
            let above = PfnRange { start: online.start.max(range.end), ..online };
            [below, above].into_iter().filter(|part| part.start < part.end)
        };
        self.online = self.online.iter().flat_map(|&online| rest(online)).collect();
    }

    /// All memory of a node that is offline comes online.
    pub fn online_node(&mut self, node: NodeId) -> Result<PageCount, UnknownNode> {
        let Some(at) = self.nodes.iter().position(|known| known.id == node) else {
            return Err(UnknownNode { node });
        };
        let of_node = |&&(_, zone): &&(PfnRange, usize)| self.zones[zone].node.0 as usize == at;
        let mut memory: Vec<(PfnRange, usize)> =
            self.memory.iter().filter(of_node).copied().collect();
        memory.sort();
        let (mut pages, zones_before) = (0, self.zones_with_memory());
        for (range, zone) in memory {
            let mut at = range.start;
            while at < range.end {
                let is_online = self.is_online(at);
                let end = (at.0..range.end.0).map(Pfn).find(|&it| self.is_online(it) != is_online);
                let part = PfnRange { start: at, end: end.unwrap_or(range.end) };
                if !is_online {
                    pages += part.pages().0;
                    self.online.push(part);
                    self.zones[zone].online(part, &mut self.pageblocks);
                }
                at = part.end;
            }
        }
        self.resize();
        self.memory_changed(&zones_before);
        self.plugged.memory_onlines += u64::from(pages > 0);
        self.plugged.onlined_pages.0 += pages;
        Ok(PageCount(pages))
    }

    /// A CPU goes. Without `drains` its pages are forgotten there: the mistake of a canary.
    pub fn offline_cpu(&mut self, cpu: CpuId, drains: bool) -> Result<PageCount, CpuError> {
        let known = self.cpus.get_mut(&cpu).ok_or(CpuError::Unknown { cpu })?;
        if !known.is_on {
            return Err(CpuError::AlreadyOff { cpu });
        }
        known.is_on = false;
        let drained = if drains { self.drain_cpu(cpu) } else { PageCount(0) };
        self.resize_pagesets();
        self.plugged.cpu_offlines += 1;
        Ok(drained)
    }

    /// A CPU comes again.
    pub fn online_cpu(&mut self, cpu: CpuId) -> Result<(), CpuError> {
        let known = self.cpus.get_mut(&cpu).ok_or(CpuError::Unknown { cpu })?;
        if known.is_on {
            return Err(CpuError::AlreadyOn { cpu });
        }
        known.is_on = true;
        self.resize_pagesets();
        self.plugged.cpu_onlines += 1;
        Ok(())
    }

    /// A CPU of the topology that is on.
    pub(super) fn cpu_on(&self, cpu: CpuId) -> Option<&NaiveCpu> {
        self.cpus.get(&cpu).filter(|cpu| cpu.is_on)
    }

    /// CPUs of a node that are on.
    pub(super) fn cpus_on_node(&self, node: usize) -> usize {
        self.nodes[node].cpus.iter().filter(|&&cpu| self.cpu_on(cpu).is_some()).count()
    }
}

/// A frame of each pageblock, and its zone.
fn pageblocks(parts: &[(PfnRange, usize)]) -> Vec<(Pfn, usize)> {
    let of = |&(part, zone): &(PfnRange, usize)| {
        let pageblocks = part.start.0 / PAGEBLOCK..part.end.0.div_ceil(PAGEBLOCK);
        pageblocks.map(move |at| (Pfn((at * PAGEBLOCK).max(part.start.0)), zone))
    };
    parts.iter().flat_map(of).collect()
}
