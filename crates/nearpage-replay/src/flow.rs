//! What the kernel logged of the zones' locks, counted the same way for the recording and for a run.
//!
//! The kernel logs a line for each page, not for each hold of the lock. A run of lines on one CPU is one *refill* as long
//! as they are by one task and of one order, and one *drain* as long as they are by one task and of one zone; an
//! allocation, or the other of the two, ends it.

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

/// The run of lines that is under way on each CPU.
#[derive(Debug, Default)]
pub struct Bursts {
    open: Vec<(CpuId, Burst)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Burst {
    Refill { pid: u32, order: Order, zone: usize },
    Drain { pid: u32, zone: usize },
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
        let goes_on = |open: Burst| matches!(open, Burst::Refill { pid: of, order: size, .. } if (of, size) == (pid, order));
        self.go_on(cpu, Burst::Refill { pid, order, zone }, goes_on, flows);
    }

    /// Pages went to a zone.
    pub fn drain(&mut self, (cpu, pid): (CpuId, u32), zone: usize, pages: u64, flows: &mut [Flow]) {
        flows[zone].drain_pages += pages;
        let burst = Burst::Drain { pid, zone };
        self.go_on(cpu, burst, |open| open == burst, flows);
    }

    fn go_on(
        &mut self,
        cpu: CpuId,
        burst: Burst,
        goes_on: impl Fn(Burst) -> bool,
        flows: &mut [Flow],
    ) {
        if let Some((_, open)) = self.open.iter().find(|(of, _)| *of == cpu) {
            if goes_on(*open) {
                return;
            }
            self.close(cpu, flows);
        }
        self.open.push((cpu, burst));
    }

    /// Ends the run that is under way on a CPU.
    pub fn close(&mut self, cpu: CpuId, flows: &mut [Flow]) {
        if let Some(at) = self.open.iter().position(|(of, _)| *of == cpu) {
            count(self.open.swap_remove(at).1, flows);
        }
    }

    /// Ends all runs.
    pub fn close_all(&mut self, flows: &mut [Flow]) {
        self.open.drain(..).for_each(|(_, burst)| count(burst, flows));
    }
}

fn count(burst: Burst, flows: &mut [Flow]) {
    match burst {
        Burst::Refill { zone, .. } => flows[zone].refills += 1,
        Burst::Drain { zone, .. } => flows[zone].drains += 1,
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
    }
}
