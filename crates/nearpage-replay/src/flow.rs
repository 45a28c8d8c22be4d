//! What the kernel logged of the zones' locks, counted the same way for the recording and for a run.
//!
//! The kernel logs a line for each page, not for each hold of the lock. A run of lines on one CPU is one *refill* as long
//! as they are by one task and of one order, and one *drain* as long as they are by one task and of one zone; an
//! allocation, or the other of the two, ends it.

use std::collections::{BTreeMap, BTreeSet};

use nearpage::{CpuId, Order};

/// Pages through the lock of a zone, and runs of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flow {
    /// Runs of pages from the zone.
    pub refills: u64,
    /// Pages from the zone, through pagesets or past them.
    pub refill_pages: u64,
    /// Runs of pages to the zone.
    pub drains: u64,
    /// Pages to the zone, from pagesets.
    pub drain_pages: u64,
}

impl Flow {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Flow) -> Flow {
        Flow {
            refills: self.refills + other.refills,
            refill_pages: self.refill_pages + other.refill_pages,
            drains: self.drains + other.drains,
            drain_pages: self.drain_pages + other.drain_pages,
        }
    }
}

/// How many runs moved so many pages, of each zone and direction.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lengths(BTreeMap<(usize, bool), BTreeMap<u64, u64>>);

impl Lengths {
    fn add(&mut self, zone: usize, is_refill: bool, pages: u64) {
        *self.0.entry((zone, is_refill)).or_default().entry(pages).or_default() += 1;
    }

    /// The pages of all runs.
    pub fn pages(&self) -> u64 {
        self.0.values().flatten().map(|(pages, runs)| pages * runs).sum()
    }

    /// The pages of the longest run.
    pub fn longest(&self) -> u64 {
        self.0.values().filter_map(|lengths| Some(*lengths.last_key_value()?.0)).max().unwrap_or(0)
    }

    /// The pages by which runs differ, zone by zone, refills and drains apart, the longest beside the longest and so on; beside a run too
    /// many there is nothing.
    pub fn differing_pages(&self, other: &Lengths) -> u64 {
        let keys: BTreeSet<_> = self.0.keys().chain(other.0.keys()).collect();
        let none = BTreeMap::new();
        let of_key = |key| [self, other].map(|lengths| lengths.0.get(key).unwrap_or(&none));
        keys.into_iter().map(of_key).map(|[one, other]| differing(one, other)).sum()
    }
}

/// Of two sorted rows of lengths, the sum of all differences: for each length, by how many runs one has more of at least this length.
fn differing(one: &BTreeMap<u64, u64>, other: &BTreeMap<u64, u64>) -> u64 {
    let mut changes: BTreeMap<u64, i64> = BTreeMap::new();
    one.iter().for_each(|(&pages, &runs)| *changes.entry(pages).or_default() += runs as i64);
    other.iter().for_each(|(&pages, &runs)| *changes.entry(pages).or_default() -= runs as i64);
    let (mut sum, mut more, mut above) = (0, 0i64, 0);
    for (pages, change) in changes.into_iter().rev() {
        sum += more.unsigned_abs() * (above - pages.min(above));
        (more, above) = (more + change, pages);
    }
    sum + more.unsigned_abs() * above
}

/// The run of lines that is under way on each CPU.
#[derive(Debug, Default)]
pub struct Bursts {
    open: Vec<(CpuId, Burst)>,
    /// How many pages each run moved that ended.
    pub lengths: Lengths,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Burst {
    pid: u32,
    /// The order of a refill; a drain has none.
    order: Option<Order>,
    zone: usize,
    pages: u64,
}

impl Bursts {
    /// Pages came from a zone.
    pub fn refill(
        &mut self,
        (cpu, pid): (CpuId, u32),
        order: Order,
        zone: usize,
        pages: u64,
        flows: &mut [Flow],
    ) {
        flows[zone].refill_pages += pages;
        let burst = Burst { pid, order: Some(order), zone, pages };
        self.go_on(cpu, burst, |open| (open.pid, open.order) == (pid, Some(order)), flows);
    }

    /// Pages went to a zone.
    pub fn drain(&mut self, (cpu, pid): (CpuId, u32), zone: usize, pages: u64, flows: &mut [Flow]) {
        flows[zone].drain_pages += pages;
        let burst = Burst { pid, order: None, zone, pages };
        self.go_on(cpu, burst, |open| Burst { pages, ..open } == burst, flows);
    }

    fn go_on(
        &mut self,
        cpu: CpuId,
        burst: Burst,
        goes_on: impl Fn(Burst) -> bool,
        flows: &mut [Flow],
    ) {
        if let Some((_, open)) = self.open.iter_mut().find(|(of, _)| *of == cpu) {
            if goes_on(*open) {
                open.pages += burst.pages;
                return;
            }
            self.close(cpu, flows);
        }
        self.open.push((cpu, burst));
    }

    /// Ends the run that is under way on a CPU.
    pub fn close(&mut self, cpu: CpuId, flows: &mut [Flow]) {
        if let Some(at) = self.open.iter().position(|(of, _)| *of == cpu) {
            let (_, burst) = self.open.swap_remove(at);
            self.count(burst, flows);
        }
    }

    /// Ends all runs.
    pub fn close_all(&mut self, flows: &mut [Flow]) {
        for (_, burst) in std::mem::take(&mut self.open) {
            self.count(burst, flows);
        }
    }

    fn count(&mut self, Burst { order, zone, pages, .. }: Burst, flows: &mut [Flow]) {
        match order {
            Some(_) => flows[zone].refills += 1,
            None => flows[zone].drains += 1,
        }
        self.lengths.add(zone, order.is_some(), pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_make_runs() {
        let (mut bursts, mut flows) = (Bursts::default(), [Flow::default(); 2]);
        let (a, b) = ((CpuId(0), 7), (CpuId(1), 8));
        for _ in 0..3 {
            bursts.refill(a, Order(0), 0, 1, &mut flows);
            bursts.drain(b, 1, 8, &mut flows);
        }
        bursts.refill(a, Order(1), 0, 2, &mut flows);
        bursts.close(a.0, &mut flows);
        bursts.refill(a, Order(1), 0, 2, &mut flows);
        bursts.drain((a.0, 9), 0, 1, &mut flows);
        bursts.close_all(&mut flows);
        assert_eq!(flows[0], Flow { refills: 3, refill_pages: 7, drains: 1, drain_pages: 1 });
        assert_eq!(flows[1], Flow { refills: 0, refill_pages: 0, drains: 1, drain_pages: 24 });
        assert_eq!((bursts.lengths.pages(), bursts.lengths.longest()), (32, 24));
    }

    #[test]
    fn lengths_differ_by_pages() {
        let of = |runs: &[(usize, bool, u64)]| {
            let mut lengths = Lengths::default();
            runs.iter().for_each(|&(zone, is_refill, pages)| lengths.add(zone, is_refill, pages));
            lengths
        };
        let differ = |one: &[_], other: &[_]| {
            let (one, other) = (of(one), of(other));
            assert_eq!(one.differing_pages(&other), other.differing_pages(&one));
            one.differing_pages(&other)
        };
        let batches = [(0, true, 63), (0, true, 63), (0, true, 31)];
        assert_eq!(differ(&batches, &batches), 0);
        // The longest beside the longest; beside one too many there is nothing.
        assert_eq!(differ(&batches, &[(0, true, 31), (0, true, 63), (0, true, 60)]), 3);
        assert_eq!(differ(&batches, &batches[..2]), 31);
        assert_eq!(differ(&batches, &[]), 157);
        // As many pages in fewer holds, in another zone, in the other direction.
        assert_eq!(differ(&[(0, true, 64)], &[(0, true, 32), (0, true, 32)]), 64);
        assert_eq!(differ(&[(0, true, 8)], &[(1, true, 8)]), 16);
        assert_eq!(differ(&[(0, true, 8)], &[(0, false, 8)]), 16);
    }
}
