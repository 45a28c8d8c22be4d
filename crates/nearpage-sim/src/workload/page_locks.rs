//! Page-lock storm: processes that fault in pages of files, and lock and unlock one at each fault.
//!
//! Each process has pages of its own, on its own node, and nobody waits for anybody; with `sharers` above 1 that many
//! neighbouring CPUs fault in the same pages and meet at their locks.

use std::cell::{Cell, RefCell};

use fastrand::Rng;
use nearpage::stats::WaitCounts;
use nearpage::{CpuId, Gfp, Order, Pfn, Request};
use nearpage_pagelock::PageLocks as _;

use crate::executor::{Deadlock, Tasks};
use crate::lines::LineCounts;
use crate::sim::Sim;

/// How many, and on which CPUs.
#[derive(Clone, Debug)]
pub struct PageLocks {
    /// One process on each.
    pub cpus: Vec<CpuId>,
    /// Pages of each process, or of those who share them.
    pub pages: usize,
    /// Faults of each process.
    pub faults: u64,
    /// Neighbouring CPUs that fault in the same pages: 1 or more.
    pub sharers: usize,
    /// A fault beside the lock's table, on average (ps); each takes half of it to one and a half times as long.
    pub fault_ps: u64,
    /// How much of that the page is locked (ps).
    pub locked_ps: u64,
    /// What goes through the cache of the CPU's node with each fault.
    pub streamed_bytes: u64,
    /// Seed of how long faults take, and of which page is next.
    pub seed: u64,
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PageLocksResult {
    /// Faults of all processes.
    pub faults: u64,
    /// Pages that were not to be had: who has none does not run.
    pub refused: u64,
    /// From the first fault to the last one (ps).
    pub real_ps: u64,
    /// Lines of wait tables, and of zones on the way there.
    pub lines: LineCounts,
    /// Waits for locks and what ended them.
    pub waits: WaitCounts,
}

impl PageLocks {
    /// Runs it.
    ///
    /// # Errors
    /// [`Deadlock`]: a wake-up was lost.
    pub fn run(&self, sim: &Sim<'_, '_>) -> Result<PageLocksResult, Deadlock> {
        let groups: Vec<&[CpuId]> = self.cpus.chunks(self.sharers.max(1)).collect();
        let files: Vec<RefCell<Vec<Pfn>>> = groups.iter().map(|_| RefCell::default()).collect();
        let mut tasks = Tasks::default();
        for (cpus, file) in groups.iter().zip(&files) {
            tasks.add(cpus[0], || *file.borrow_mut() = self.first_pass(sim));
        }
        sim.run(tasks)?;
        let pages: usize = files.iter().map(|file| file.borrow().len()).sum();
        let (begin_ps, before) = (sim.world.now_ps(), sim.world.line_counts());
        let faults = Cell::new(0);
        let mut tasks = Tasks::default();
        for (cpus, file) in groups.iter().zip(&files) {
            for &cpu in *cpus {
                let faults = &faults;
                tasks.add(cpu, move || {
                    sim.world.idle_until_ps(begin_ps);
                    self.fault(sim, &file.borrow(), faults);
                });
            }
        }
        sim.run(tasks)?;
        let (end_ps, after) = (sim.world.now_ps(), sim.world.line_counts());
        for page in files.iter().flat_map(RefCell::take) {
            sim.allocator.free(page, Order(0)).expect("it was allocated, and nobody locks it");
        }
        Ok(PageLocksResult {
            faults: faults.get(),
            refused: (self.pages * groups.len() - pages) as u64,
            real_ps: end_ps - begin_ps,
            lines: after.since(before),
            waits: waits(sim),
        })
    }

    fn first_pass(&self, sim: &Sim<'_, '_>) -> Vec<Pfn> {
        let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN));
        let page = |_| {
            sim.world.point();
            sim.allocator.alloc(request).ok()
        };
        // Where one is refused, the next one would be.
        (0..self.pages).map_while(page).collect()
    }

    fn fault(&self, sim: &Sim<'_, '_>, file: &[Pfn], faults: &Cell<u64>) {
        if file.is_empty() {
            return;
        }
        let cpu = sim.world.cpu_id();
        let mut rng = Rng::with_seed(self.seed.wrapping_mul(1 << 20).wrapping_add(cpu.0.into()));
        for _ in 0..self.faults {
            sim.world.charge_ps(self.fault_ps / 2 + rng.u64(..self.fault_ps.max(1)));
            // Whose fault was shorter comes first.
            sim.world.point();
            sim.world.stream(self.streamed_bytes);
            let page = file[rng.usize(..file.len())];
            sim.allocator.lock_page(page).expect("nobody frees or cancels");
            if self.locked_ps > 0 {
                sim.world.charge_ps(self.locked_ps);
                // Others may come meanwhile.
                sim.world.point();
            }
            sim.allocator.unlock_page(page).expect("it was locked here");
            faults.set(faults.get() + 1);
        }
    }
}

fn waits(sim: &Sim<'_, '_>) -> WaitCounts {
    let of_nodes = sim.allocator.topology().indexes().map(|node| sim.allocator.wait_counts(node));
    of_nodes.fold(WaitCounts::default(), WaitCounts::merged)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::machine::Machine;
    use crate::scheduler::VirtualTime;
    use crate::sim::{self, Setup};
    use nearpage::rules::{PageLockRules, WaitTables, WaitersBit};
    use nearpage::{Config, Model};

    fn run(tables: WaitTables, waiters_bit: WaitersBit, sharers: usize) -> PageLocksResult {
        let machine = Machine::uniform(4, 2, 64 << 20);
        let page_lock = PageLockRules { tables, waiters_bit };
        let model = Model::NEARPAGE.with(|changed| changed.page_lock = page_lock);
        let config = Config::new().with_model(model);
        let setup = Setup { machine: &machine, costs: &Costs::flat(), config, slab: None };
        let work = PageLocks {
            cpus: machine.cpus().map(|(cpu, _)| cpu).collect(),
            pages: 64,
            faults: 500,
            sharers,
            fault_ps: 1_000_000,
            locked_ps: if sharers > 1 { 500_000 } else { 0 },
            streamed_bytes: 1 << 20,
            seed: 1,
        };
        let run = |sim: &Sim<'_, '_>| {
            let result = work.run(sim).expect("no wake-up is lost");
            assert!(sim.allocator.check().is_ok());
            result
        };
        sim::simulate(&setup, Box::new(VirtualTime::default()), run).expect("a machine")
    }

    #[test]
    fn buckets_come_from_the_node_that_has_the_table() {
        let far = |tables| {
            let result = run(tables, WaitersBit::Off, 1);
            assert_eq!(result.faults, 4000);
            result.lines.moved_far as f64 / result.faults as f64
        };
        assert_eq!(far(WaitTables::Global), 0.75, "of four nodes one has the table");
        assert_eq!(far(WaitTables::PerNode), 0.0);
        assert_eq!(far(WaitTables::PerZone), 0.0);
        let result = run(WaitTables::Global, WaitersBit::On, 1);
        assert_eq!(result.lines, LineCounts::default(), "nobody waits, so nobody looks");
    }

    #[test]
    fn who_shares_pages_waits_and_is_woken() {
        for waiters_bit in [WaitersBit::On, WaitersBit::Off] {
            let result = run(WaitTables::PerNode, waiters_bit, 8);
            assert_eq!(result.faults, 4000);
            assert!(result.waits.waits > 100, "{result:?}");
            assert!(result.waits.wakes > 0 && result.waits.wakes <= result.waits.waits);
        }
    }
}
