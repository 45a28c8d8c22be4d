//! Memory hog: threads of one process write to new memory, first to last; at the end one of them gives all back.

use std::cell::{Cell, RefCell};

use nearpage::alloc::Request;
use nearpage::gfp::Gfp;
use nearpage::units::{CpuId, Order, Pfn};

use crate::costs::{Costs, CostsError, picoseconds};
use crate::executor::{Deadlock, Tasks};
use crate::sim::Sim;

/// How much, and on which CPUs.
#[derive(Clone, Debug)]
pub struct Hog {
    /// One thread on each.
    pub cpus: Vec<CpuId>,
    /// Pages that all threads together write to.
    pub pages: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Writes to a page after the one that brought it in.
    pub further_stores: u64,
}

/// What it cost.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HogResult {
    /// Time in the kernel, all threads (ps).
    pub sys_ps: u64,
    /// Time in the program, all threads (ps).
    pub user_ps: u64,
    /// From begin to end (ps).
    pub real_ps: u64,
    /// Pages that were not to be had.
    pub refused: u64,
    /// Pages of another node than the thread's.
    pub remote: u64,
}

/// Costs of a fault beside the allocator's and those of clearing the page.
struct FaultCosts {
    fault: u64,
    store: u64,
    teardown: u64,
}

impl Hog {
    /// Runs it.
    ///
    /// # Errors
    /// A figure that the table of costs lacks.
    pub fn run(&self, sim: &Sim<'_, '_>, costs: &Costs) -> Result<HogResult, CostsError> {
        let more = |name| costs.more(name).map(picoseconds);
        let costs = FaultCosts {
            fault: more("fault_ns")?,
            store: more("store_ns")?,
            teardown: more("teardown_ns")?,
        };
        let (pages, result) = (RefCell::new(Vec::new()), Cell::new(HogResult::default()));
        let mut tasks = Tasks::default();
        let threads = self.cpus.len() as u64;
        for (index, &cpu) in (0..).zip(&self.cpus) {
            let share = self.pages / threads + u64::from(index < self.pages % threads);
            let (costs, pages, result) = (&costs, &pages, &result);
            tasks.add(cpu, move || self.grow(sim, costs, share, pages, result));
        }
        let _: Result<u64, Deadlock> = sim.run(tasks);
        let mut tasks = Tasks::default();
        let end_of_growth = sim.world.now_ps();
        tasks.add(self.cpus[0], || {
            sim.world.idle_until_ps(end_of_growth);
            let free = || self.tear_down(sim, &costs, &mut pages.borrow_mut());
            let sys = timed(sim, free);
            result.set(HogResult { sys_ps: result.get().sys_ps + sys, ..result.get() });
        });
        let _: Result<u64, Deadlock> = sim.run(tasks);
        Ok(HogResult { real_ps: sim.world.now_ps(), ..result.get() })
    }

    fn grow(
        &self,
        sim: &Sim<'_, '_>,
        costs: &FaultCosts,
        share: u64,
        pages: &RefCell<Vec<Pfn>>,
        result: &Cell<HogResult>,
    ) {
        let request = Request::new(Order(0), Gfp::HIGHUSER.or(Gfp::ZERO));
        let (mut own, mut sum) = (Vec::with_capacity(share as usize), HogResult::default());
        let node = sim.world.running().map_or(0, |cpu| sim.world.node_of(cpu));
        for _ in 0..share {
            sim.world.point();
            sum.sys_ps += timed(sim, || {
                sim.world.charge_ps(costs.fault);
                match sim.allocator.alloc(request) {
                    Ok(page) => {
                        sim.world.clear_page(page, self.page_bytes);
                        sum.remote += u64::from(sim.world.node_of_page(page) != node);
                        own.push(page);
                    }
                    Err(_) => sum.refused += 1,
                }
            });
            let user = costs.store * (1 + self.further_stores);
            sum.user_ps += user;
            sim.world.charge_ps(user);
        }
        let all = result.get();
        result.set(HogResult {
            sys_ps: all.sys_ps + sum.sys_ps,
            user_ps: all.user_ps + sum.user_ps,
            refused: all.refused + sum.refused,
            remote: all.remote + sum.remote,
            ..all
        });
        pages.borrow_mut().append(&mut own);
    }

    fn tear_down(&self, sim: &Sim<'_, '_>, costs: &FaultCosts, pages: &mut Vec<Pfn>) {
        for page in pages.drain(..) {
            sim.world.charge_ps(costs.teardown);
            sim.allocator.free(page, Order(0)).expect("the page was allocated");
        }
    }
}

/// The model time that something takes on the running CPU (ps).
fn timed(sim: &Sim<'_, '_>, work: impl FnOnce()) -> u64 {
    let before = sim.world.now_ps();
    work();
    sim.world.now_ps() - before
}
