//! Process lifetimes: each CPU runs one process after the other, each of which asks for pages and frees them as one did in
//! a recorded trace, with an exit that frees nearly all at once.
//!
//! Which page a process frees is not recorded: its oldest. Some processes move: another CPU frees what they hold at their
//! exit. Before anything counts each CPU runs some, so that pagesets are as they are in the middle of a long build.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use fastrand::Rng;
use nearpage::{CpuId, Gfp, Order, Pfn, Request};

use super::ticks;
use crate::executor::{Deadlock, Tasks};
use crate::sim::Sim;

/// The recorded compile that comes along, for [`parse`].
pub const GCC: &str = include_str!("../../traces/gcc.txt");
/// A process that fills a container and exits.
pub const CONTAINER: &str = include_str!("../../traces/container.txt");

/// So many blocks of an order, allocated or freed one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// Whether they are allocated.
    pub allocates: bool,
    /// How many.
    pub blocks: u32,
    /// Their order.
    pub order: Order,
}

/// What one process does, first to last.
pub type Lifetime = Vec<Run>;

/// A recording that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "line {line}: {token:?}: accepted: a name, then +N or -N, with @ORDER (0 to 10) if it is not 0"
)]
pub struct LifetimesError {
    /// The line, from 1.
    pub line: usize,
    /// What cannot be read.
    pub token: String,
}

/// Reads groups of processes: a line each, groups with blank lines between, comments with `#`.
///
/// # Errors
/// [`LifetimesError`].
pub fn parse(text: &str) -> Result<Vec<Vec<Lifetime>>, LifetimesError> {
    let mut groups: Vec<Vec<Lifetime>> = vec![Vec::new()];
    for (line, text) in (1..).zip(text.lines()) {
        let mut tokens = text.split_whitespace();
        match tokens.next() {
            None => groups.push(Vec::new()),
            Some(name) if name.starts_with('#') => {}
            Some(name) => {
                let of = |token: &str| {
                    run_of(token).ok_or_else(|| LifetimesError { line, token: token.into() })
                };
                let runs = tokens.map(of).collect::<Result<Lifetime, _>>()?;
                if runs.is_empty() {
                    return Err(LifetimesError { line, token: name.into() });
                }
                groups.last_mut().expect("there is one from the start").push(runs);
            }
        }
    }
    groups.retain(|group| !group.is_empty());
    Ok(groups)
}

fn run_of(token: &str) -> Option<Run> {
    let (sign, rest) = token.split_at_checked(1)?;
    let (blocks, order) = rest.split_once('@').unwrap_or((rest, "0"));
    let order = order.parse().ok().map(Order).filter(|&order| order <= Order::MAX)?;
    let allocates = sign == "+";
    (allocates || sign == "-").then_some(())?;
    Some(Run { allocates, blocks: blocks.parse().ok()?, order })
}

/// Processes on CPUs.
#[derive(Clone, Debug)]
pub struct Lifetimes {
    /// Each runs one process at a time.
    pub cpus: Vec<CpuId>,
    /// Groups of processes, of which each CPU takes any, one after the other.
    pub groups: Vec<Vec<Lifetime>>,
    /// Groups that each CPU runs before anything counts.
    pub warm_up: u64,
    /// Groups that each CPU runs.
    pub count: u64,
    /// Time between two pages that a process asks for, beside the allocator (ps).
    pub page_ps: u64,
    /// Time between two pages that it frees (ps).
    pub free_ps: u64,
    /// Of a hundred processes, those whose pages another CPU frees.
    pub moves_percent: u32,
    /// Seed of which groups, and who moves where.
    pub seed: u64,
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LifetimesResult {
    /// Pages that processes got.
    pub pages: u64,
    /// Blocks that were not to be had.
    pub refused: u64,
    /// Time that all CPUs together took (ps).
    pub busy_ps: u64,
    /// Pages that were not free, at most.
    pub used_most: u64,
    /// Pages in pagesets, at most.
    pub cached_most: u64,
}

/// Pages of a process, by order, oldest first.
type Own = [VecDeque<Pfn>; Order::MAX.0 as usize + 1];

/// What another CPU does for a process that moved: the rest of its runs.
struct Moved<'a> {
    own: Box<Own>,
    rest: &'a [Run],
}

/// What all CPUs share.
struct Build<'a> {
    work: &'a Lifetimes,
    moved: Vec<RefCell<Vec<Moved<'a>>>>,
    result: Cell<LifetimesResult>,
    working: Cell<usize>,
}

impl Lifetimes {
    /// Runs them; `at_begin` is called when all CPUs are warm.
    ///
    /// # Errors
    /// [`Deadlock`]: that would be a bug here.
    pub fn run(
        &self,
        sim: &Sim<'_, '_>,
        at_begin: impl FnOnce(),
    ) -> Result<LifetimesResult, Deadlock> {
        self.phase(sim, self.warm_up, self.seed)?;
        at_begin();
        self.phase(sim, self.count, self.seed.wrapping_add(1 << 32))
    }

    fn phase(&self, sim: &Sim<'_, '_>, count: u64, seed: u64) -> Result<LifetimesResult, Deadlock> {
        let build = Build {
            work: self,
            moved: self.cpus.iter().map(|_| RefCell::default()).collect(),
            result: Cell::default(),
            working: Cell::new(self.cpus.len()),
        };
        let begin_ps = sim.world.now_ps();
        let mut tasks = Tasks::default();
        for (index, &cpu) in self.cpus.iter().enumerate() {
            let build = &build;
            tasks.add(cpu, move || {
                let mut rng = Rng::with_seed(seed.wrapping_add(index as u64));
                // Nobody begins together with others.
                let start_ps = begin_ps.saturating_add(rng.u64(..self.group_ps().max(1)));
                sim.world.idle_until_ps(start_ps);
                (0..count).for_each(|_| build.group(sim, index, &mut rng));
                build.free_moved(sim, index);
                let busy_ps = sim.world.now_ps() - start_ps;
                build.note(|sum| sum.busy_ps += busy_ps);
                build.working.set(build.working.get() - 1);
            });
        }
        let is_idle = |cpu: &&CpuId| !self.cpus.contains(cpu);
        let watcher = sim.world.cpus().iter().find(is_idle).copied().unwrap_or(self.cpus[0]);
        ticks::add(&mut tasks, sim, watcher, &build.working);
        tasks.add(watcher, || build.watch(sim));
        sim.run(tasks)?;
        // Who moved to a CPU that had ended already.
        (0..self.cpus.len()).for_each(|index| build.free_moved(sim, index));
        Ok(build.result.get())
    }

    /// How long a group takes, on average, if nobody waits (ps).
    fn group_ps(&self) -> u64 {
        let blocks = |run: &Run| u64::from(run.blocks);
        let all = self.groups.iter().flatten().flatten();
        let allocated: u64 = all.filter(|run| run.allocates).map(blocks).sum();
        let all_ps = allocated.saturating_mul(self.page_ps + self.free_ps);
        all_ps / self.groups.len().max(1) as u64
    }
}

impl<'a> Build<'a> {
    fn note(&self, change: impl FnOnce(&mut LifetimesResult)) {
        let mut result = self.result.get();
        change(&mut result);
        self.result.set(result);
    }

    /// One group, process by process.
    fn group(&self, sim: &Sim<'_, '_>, me: usize, rng: &mut Rng) {
        let group = &self.work.groups[rng.usize(..self.work.groups.len())];
        for lifetime in group {
            self.free_moved(sim, me);
            let mut own = Box::<Own>::default();
            let exit = exit_of(lifetime);
            self.play(sim, &lifetime[..exit], &mut own);
            if rng.u32(..100) < self.work.moves_percent {
                let to = rng.usize(..self.moved.len());
                self.moved[to].borrow_mut().push(Moved { own, rest: &lifetime[exit..] });
            } else {
                self.end(sim, &lifetime[exit..], &mut own);
            }
        }
    }

    fn free_moved(&self, sim: &Sim<'_, '_>, me: usize) {
        let all = self.moved[me].take();
        for Moved { mut own, rest } in all {
            self.end(sim, rest, &mut own);
        }
    }

    /// The exit, and what is left then.
    fn end(&self, sim: &Sim<'_, '_>, rest: &[Run], own: &mut Own) {
        self.play(sim, rest, own);
        for order in (0..=Order::MAX.0).map(Order) {
            self.free(sim, own, order, u32::MAX);
        }
    }

    fn play(&self, sim: &Sim<'_, '_>, runs: &[Run], own: &mut Own) {
        for run in runs {
            if run.allocates {
                self.allocate(sim, own, run.order, run.blocks);
            } else {
                self.free(sim, own, run.order, run.blocks);
            }
        }
    }

    fn allocate(&self, sim: &Sim<'_, '_>, own: &mut Own, order: Order, blocks: u32) {
        let user = Gfp::HIGHUSER_MOVABLE;
        let gfp = if order == Order(0) { user } else { Gfp::KERNEL.union(Gfp::COMP) };
        let request = Request::new(order, gfp.union(Gfp::NOWARN));
        let mut got = 0;
        for _ in 0..blocks {
            sim.world.point();
            sim.world.charge_ps(self.work.page_ps);
            // Where one is refused, the rest of the run would be.
            let Ok(page) = sim.allocator.alloc(request) else { break };
            own[order.0 as usize].push_back(page);
            got += 1;
        }
        self.note(|sum| {
            sum.pages += got << order.0;
            sum.refused += u64::from(blocks) - got;
        });
    }

    fn free(&self, sim: &Sim<'_, '_>, own: &mut Own, order: Order, blocks: u32) {
        let list = &mut own[order.0 as usize];
        let count = list.len().min(blocks as usize);
        for page in list.drain(..count) {
            sim.world.point();
            sim.world.charge_ps(self.work.free_ps);
            sim.allocator.free(page, order).expect("it was allocated");
        }
    }

    /// Looks at how much memory is used while the others work.
    fn watch(&self, sim: &Sim<'_, '_>) {
        const EVERY_PS: u64 = 5_000_000_000;
        let mut next = sim.world.now_ps();
        while self.working.get() > 0 {
            let zones = sim.allocator.zones().iter();
            let used: u64 = zones.map(|zone| zone.managed().0 - zone.free_pages().0).sum();
            let cached = sim.allocator.totals().cached_pages.0;
            self.note(|sum| {
                sum.used_most = sum.used_most.max(used);
                sum.cached_most = sum.cached_most.max(cached);
            });
            next += EVERY_PS;
            sim.world.sleep_until_ps(next);
        }
    }
}

/// Where a process begins to end: its longest run of frees.
fn exit_of(lifetime: &[Run]) -> usize {
    let frees = |(at, run): (usize, &Run)| (!run.allocates).then_some((run.blocks, at));
    let longest = lifetime.iter().enumerate().filter_map(frees).max();
    longest.map_or(lifetime.len(), |(_, at)| at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::machine::Machine;
    use crate::scheduler::VirtualTime;
    use crate::sim::{self, Setup};
    use nearpage::Config;

    #[test]
    fn recordings_are_read() {
        let groups = parse(GCC).unwrap();
        assert_eq!(groups.len(), 4);
        assert!(groups.iter().all(|group| group.len() == 3));
        let small = parse("# nothing\na +2 -1@3\n\n\nb +1\n").unwrap();
        let order = Order(3);
        assert_eq!(small[0][0][1], Run { allocates: false, blocks: 1, order });
        for (text, line, token) in
            [("a\n", 1, "a"), ("a +1\nb x1", 2, "x1"), ("a +1@11", 1, "+1@11"), ("a +", 1, "+")]
        {
            assert_eq!(parse(text), Err(LifetimesError { line, token: token.into() }));
        }
    }

    #[test]
    fn all_pages_come_back_and_other_cpus_free_some() {
        let machine = Machine::uniform(1, 5, 256 << 20);
        let costs = Costs::flat();
        let config = Config::default();
        let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
        let work = Lifetimes {
            cpus: (0..4).map(CpuId).collect(),
            groups: parse("a +300 -2 +1@1 +100 -300 +2\nb +50 -40").unwrap(),
            warm_up: 1,
            count: 20,
            page_ps: 1_000_000,
            free_ps: 100_000,
            moves_percent: 50,
            seed: 1,
        };
        let run = |sim: &Sim<'_, '_>| {
            let result = work.run(sim, || ()).unwrap();
            assert_eq!(result.pages, 4 * 20 * (402 + 2 + 50));
            assert!(result.used_most >= result.cached_most && result.cached_most > 0);
            assert_eq!(sim.allocator.check().unwrap().allocated.0, 0);
        };
        sim::simulate(&setup, Box::new(VirtualTime::default()), run).unwrap();
    }
}
