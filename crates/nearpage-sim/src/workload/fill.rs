//! Processes that fill memory page by page and give all of it back at once, again and again. What CPUs wait for then is the
//! lock of their zone.
//!
//! They may wait for each other before they give back, so that all leave at once; and bystanders may fill and free a
//! little meanwhile, who have nothing to do with them but the zone.

use std::cell::{Cell, RefCell};

use fastrand::Rng;
use nearpage::{CpuId, Gfp, Order, Pfn, Request};

use super::ticks;
use crate::executor::{Deadlock, Tasks};
use crate::sim::Sim;
use crate::world::TaskId;

/// Processes that fill and free.
#[derive(Clone, Debug)]
pub struct Fill {
    /// Each runs one process.
    pub cpus: Vec<CpuId>,
    /// Pages of a process.
    pub pages: u64,
    /// How often each fills and frees.
    pub rounds: u64,
    /// Whether they wait for each other before they free.
    pub leave_together: bool,
    /// If they free in random order, the seed of it; else first come, first go.
    pub shuffled_by: Option<u64>,
    /// Each runs one bystander, until the others have ended.
    pub bystanders: Vec<CpuId>,
    /// Pages of a bystander.
    pub bystander_pages: u64,
    /// Time for a page that is filled, beside the allocator (ps).
    pub page_ps: u64,
    /// Time for a page that is freed (ps).
    pub free_ps: u64,
}

/// How long something took, how often.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// How often from 2^n up to 2^(n+1) ns; at 0 also what took less.
    pub by_power: [u64; 40],
    /// All of it (ps).
    pub sum_ps: u64,
    /// The longest (ps).
    pub longest_ps: u64,
}

impl Default for Times {
    fn default() -> Self {
        Self { by_power: [0; 40], sum_ps: 0, longest_ps: 0 }
    }
}

impl Times {
    fn note(&mut self, ps: u64) {
        let power = (ps / 1000).checked_ilog2().unwrap_or(0) as usize;
        self.by_power[power.min(self.by_power.len() - 1)] += 1;
        self.sum_ps += ps;
        self.longest_ps = self.longest_ps.max(ps);
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.by_power.iter().sum()
    }

    /// The mean (ns).
    pub fn mean_ns(&self) -> f64 {
        self.sum_ps as f64 / 1000.0 / self.count().max(1) as f64
    }

    /// Of a hundred, those from 2^`from` up to 2^`to` ns.
    pub fn percent(&self, from: usize, to: usize) -> f64 {
        let some: u64 = self.by_power[from..to.min(self.by_power.len())].iter().sum();
        100.0 * some as f64 / self.count().max(1) as f64
    }
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FillResult {
    /// Pages that were filled, those of bystanders left out.
    pub pages: u64,
    /// Pages that were not to be had.
    pub refused: u64,
    /// Time that the processes took together (ps), but for the wait for each other.
    pub busy_ps: u64,
    /// Time that the bystanders took together (ps).
    pub bystander_ps: u64,
    /// Refills of pagesets by the processes: from the request to the page, the wait for the lock included.
    pub refills: Times,
    /// The same by bystanders, while the others worked.
    pub bystander_refills: Times,
    /// Pages in pagesets, at most, when a process had freed.
    pub cached_most: u64,
}

/// What the processes share.
struct Shared<'a> {
    work: &'a Fill,
    result: Cell<FillResult>,
    working: Cell<usize>,
    /// Those that have filled, and wait for the others.
    waiting: RefCell<Vec<TaskId>>,
}

impl Fill {
    /// Runs them.
    ///
    /// # Errors
    /// [`Deadlock`]: that would be a bug here.
    pub fn run(&self, sim: &Sim<'_, '_>) -> Result<FillResult, Deadlock> {
        let shared = Shared {
            work: self,
            result: Cell::default(),
            working: Cell::new(self.cpus.len()),
            waiting: RefCell::default(),
        };
        let mut tasks = Tasks::default();
        for (index, &cpu) in self.cpus.iter().enumerate() {
            let shared = &shared;
            tasks.add(cpu, move || shared.process(sim, index as u64));
        }
        for &cpu in &self.bystanders {
            tasks.add(cpu, || shared.bystander(sim));
        }
        let is_idle = |cpu: &&CpuId| !self.cpus.contains(cpu) && !self.bystanders.contains(cpu);
        let idle = sim.world.cpus().iter().find(is_idle).copied();
        ticks::add(&mut tasks, sim, idle.unwrap_or_default(), &shared.working);
        sim.run(tasks)?;
        Ok(shared.result.get())
    }
}

impl Shared<'_> {
    fn note(&self, change: impl FnOnce(&mut FillResult)) {
        let mut result = self.result.get();
        change(&mut result);
        self.result.set(result);
    }

    fn process(&self, sim: &Sim<'_, '_>, index: u64) {
        let work = self.work;
        // Nobody begins together with others: they are spread over a round.
        let round_ps = work.pages.saturating_mul(work.page_ps + work.free_ps);
        sim.world.idle_until_ps(round_ps / work.cpus.len() as u64 * index);
        let mut times = Times::default();
        let (mut pages, mut busy_ps) = (Vec::new(), 0);
        for _ in 0..work.rounds {
            let start_ps = sim.world.now_ps();
            self.fill(sim, work.pages, &mut pages, &mut times);
            busy_ps += sim.world.now_ps() - start_ps;
            self.note(|sum| sum.pages += pages.len() as u64);
            if work.leave_together {
                self.wait_for_all(sim);
            }
            if let Some(seed) = work.shuffled_by {
                Rng::with_seed(seed.wrapping_add(index)).shuffle(&mut pages);
            }
            let start_ps = sim.world.now_ps();
            self.free(sim, &mut pages);
            busy_ps += sim.world.now_ps() - start_ps;
            let cached = sim.allocator.totals().cached_pages.0;
            self.note(|sum| sum.cached_most = sum.cached_most.max(cached));
        }
        self.note(|sum| {
            sum.busy_ps += busy_ps;
            merge(&mut sum.refills, &times);
        });
        self.working.set(self.working.get() - 1);
    }

    /// Fills and frees a little as long as others work.
    fn bystander(&self, sim: &Sim<'_, '_>) {
        let (mut times, mut pages) = (Times::default(), Vec::new());
        let start_ps = sim.world.now_ps();
        while self.working.get() > 0 {
            self.fill(sim, self.work.bystander_pages, &mut pages, &mut times);
            self.free(sim, &mut pages);
        }
        let busy_ps = sim.world.now_ps() - start_ps;
        self.note(|sum| {
            sum.bystander_ps += busy_ps;
            merge(&mut sum.bystander_refills, &times);
        });
    }

    fn fill(&self, sim: &Sim<'_, '_>, count: u64, pages: &mut Vec<Pfn>, times: &mut Times) {
        let request = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN));
        let pagesets = sim.allocator.pagesets(sim.world.cpu_id()).unwrap_or_default();
        let refills = || pagesets.iter().map(|pageset| pageset.counts().refills).sum::<u64>();
        let mut before = refills();
        for _ in 0..count {
            sim.world.point();
            sim.world.charge_ps(self.work.page_ps);
            let start_ps = sim.world.now_ps();
            let Ok(page) = sim.allocator.alloc(request) else {
                self.note(|sum| sum.refused += 1);
                continue;
            };
            pages.push(page);
            let after = refills();
            if after != before {
                times.note(sim.world.now_ps() - start_ps);
                before = after;
            }
        }
    }

    fn free(&self, sim: &Sim<'_, '_>, pages: &mut Vec<Pfn>) {
        for page in pages.drain(..) {
            sim.world.point();
            sim.world.charge_ps(self.work.free_ps);
            sim.allocator.free(page, Order(0)).expect("it was allocated");
        }
    }

    /// Until all processes have come here.
    fn wait_for_all(&self, sim: &Sim<'_, '_>) {
        if self.waiting.borrow().len() + 1 < self.work.cpus.len() {
            self.waiting.borrow_mut().push(sim.world.task());
            return sim.world.block();
        }
        for task in self.waiting.take() {
            sim.world.wake(task);
        }
    }
}

fn merge(sum: &mut Times, other: &Times) {
    for (sum, other) in sum.by_power.iter_mut().zip(other.by_power) {
        *sum += other;
    }
    sum.sum_ps += other.sum_ps;
    sum.longest_ps = sum.longest_ps.max(other.longest_ps);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::machine::Machine;
    use crate::scheduler::VirtualTime;
    use crate::sim::{self, Setup};
    use nearpage::{Config, Model};

    #[test]
    fn times_are_sorted_by_powers_of_two() {
        let mut times = Times::default();
        for ns in [0, 1, 2, 3, 1023, 1024] {
            times.note(ns * 1000);
        }
        assert_eq!((times.by_power[0], times.by_power[1], times.by_power[9]), (2, 2, 1));
        assert_eq!((times.count(), times.by_power[10], times.longest_ps), (6, 1, 1_024_000));
        assert_eq!((times.percent(0, 2), times.mean_ns()), (400.0 / 6.0, 2053.0 / 6.0));
    }

    #[test]
    fn all_pages_are_filled_and_come_back_and_those_who_leave_together_wait() {
        let machine = Machine::uniform(1, 8, 512 << 20);
        let costs = Costs::flat();
        let models = [Model::NEARPAGE, Model::LINUX_6_18];
        for (model, leave_together) in models.into_iter().flat_map(|of| [(of, false), (of, true)]) {
            let config = Config::new().with_model(model);
            let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
            let work = Fill {
                cpus: (0..4).map(CpuId).collect(),
                pages: 5000,
                rounds: 3,
                leave_together,
                bystanders: vec![CpuId(5), CpuId(6)],
                bystander_pages: 100,
                page_ps: 500_000,
                free_ps: 50_000,
                shuffled_by: None,
            };
            let run = |sim: &Sim<'_, '_>| {
                let result = work.run(sim).unwrap();
                assert_eq!((result.pages, result.refused), (4 * 5000 * 3, 0));
                assert!(result.refills.count() > 0 && result.bystander_refills.count() > 0);
                let least = 4 * 3 * 5000 * (work.page_ps + work.free_ps);
                assert!((least..2 * least).contains(&result.busy_ps), "{}", result.busy_ps);
                assert_eq!(sim.allocator.check().unwrap().allocated.0, 0);
                let locks = sim.world.lock_counts();
                // Our own rules hold no lock.
                assert_eq!(locks.held_ps > 0, model != Model::NEARPAGE);
                assert!(locks.longest_hold_ps <= locks.held_ps);
                assert!(locks.longest_wait_ps <= locks.waited_ps);
            };
            sim::simulate(&setup, Box::new(VirtualTime::default()), run).unwrap();
        }
    }
}
