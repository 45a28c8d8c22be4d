//! Memory hog: threads of one process write to new memory, first to last; at the end one of them gives all back.

use std::cell::{Cell, RefCell};

use nearpage::{CpuId, Gfp, Order, Pfn, Request};

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
///
/// A thread to which a page is refused ends there, as if the kernel had killed it; the memory that it has stays
/// until the end.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct HogResult {
    /// Time in the kernel, all threads (ps).
    pub sys_ps: u64,
    /// Time in the program, all threads (ps).
    pub user_ps: u64,
    /// From begin to end (ps).
    pub real_ps: u64,
    /// Pages that were not to be had: those that threads had still to write to when one was refused.
    pub refused: u64,
    /// Pages of another node than the thread's.
    pub remote: u64,
    /// Pages of nodes without CPUs.
    pub of_cpuless: u64,
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
        let (threads, begin_ps) = (self.cpus.len() as u64, sim.world.now_ps());
        for (index, &cpu) in (0..).zip(&self.cpus) {
            let share = self.pages / threads + u64::from(index < self.pages % threads);
            let (costs, pages, result) = (&costs, &pages, &result);
            tasks.add(cpu, move || {
                // All begin together, whatever their CPUs did before.
                sim.world.idle_until_ps(begin_ps);
                self.grow(sim, costs, share, pages, result);
            });
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
        Ok(HogResult { real_ps: sim.world.now_ps() - begin_ps, ..result.get() })
    }

    fn grow(
        &self,
        sim: &Sim<'_, '_>,
        costs: &FaultCosts,
        share: u64,
        pages: &RefCell<Vec<Pfn>>,
        result: &Cell<HogResult>,
    ) {
        let request = Request::new(Order(0), Gfp::HIGHUSER.union(Gfp::ZERO));
        let (mut own, mut sum) = (Vec::new(), HogResult::default());
        let node = sim.world.running().map_or(0, |cpu| sim.world.node_of(cpu));
        for written in 0..share {
            sim.world.point();
            let mut is_refused = false;
            sum.sys_ps += timed(sim, || {
                sim.world.charge_ps(costs.fault);
                match sim.allocator.alloc(request) {
                    Ok(page) => {
                        sim.world.clear_page(page, self.page_bytes);
                        let home = sim.world.node_of_page(page);
                        sum.remote += u64::from(home != node);
                        sum.of_cpuless += u64::from(!sim.world.has_cpus(home));
                        own.push(page);
                    }
                    Err(_) => is_refused = true,
                }
            });
            if is_refused {
                sum.refused = share - written;
                break;
            }
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
            of_cpuless: all.of_cpuless + sum.of_cpuless,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Figure;
    use crate::machine::Machine;
    use crate::scheduler::VirtualTime;
    use crate::sim::{self, Setup};
    use nearpage::Config;

    fn costs() -> Costs {
        let mut costs = Costs::flat();
        for name in ["fault_ns", "store_ns", "teardown_ns"] {
            costs.more.insert(name.into(), Figure::assumed(100.0));
        }
        costs
    }

    /// One run after the other on a machine of two nodes of 64 MiB.
    fn runs(mebibytes: &[u64]) -> Vec<HogResult> {
        let (machine, costs) = (Machine::uniform(2, 2, 64 << 20), costs());
        let setup =
            Setup { machine: &machine, costs: &costs, config: Config::default(), slab: None };
        let run = |sim: &Sim<'_, '_>| {
            let hog = |mebibytes: &u64| Hog {
                cpus: machine.cpus().map(|(cpu, _)| cpu).collect(),
                pages: mebibytes << 8,
                page_bytes: 4096,
                further_stores: 0,
            };
            mebibytes.iter().map(|size| hog(size).run(sim, &costs).expect("all costs")).collect()
        };
        sim::simulate(&setup, Box::new(VirtualTime::default()), run).expect("a machine")
    }

    #[test]
    fn a_second_run_costs_what_the_first_did() {
        let runs = runs(&[64, 64]);
        let [first, second] = [runs[0], runs[1]];
        // Lines of frames lie elsewhere than the first time.
        let near = |one: u64, other: u64| one.abs_diff(other) <= one / 10;
        assert!(near(first.sys_ps, second.sys_ps), "{first:?} {second:?}");
        assert!(near(first.real_ps, second.real_ps), "{first:?} {second:?}");
    }

    #[test]
    fn whatever_is_asked_for_beyond_memory_is_refused() {
        for size in [256, 1 << 40] {
            let HogResult { refused, .. } = runs(&[size])[0];
            let most = (size - 128) << 8;
            assert!((most..most + (16 << 8)).contains(&refused), "{refused}");
        }
    }
}
