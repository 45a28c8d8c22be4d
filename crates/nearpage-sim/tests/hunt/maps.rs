//! Schedules over CPUs that own pageblocks with maps: pages that go home, CPUs that go and come, memory that goes and comes
//! in parts of pageblocks, forks, and drains from outside.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use fastrand::Rng;
use nearpage::platform::Platform;
use nearpage::rules::pagesets::LISTS;
use nearpage::stats::Pageset;
use nearpage::{Config, Gfp, Model, NodeId, Order, PageCount, Pfn, PfnRange, Request};
use nearpage_sim::{Costs, Machine, Setup, Sim, Tasks, simulate};
use rayon::prelude::*;

use super::{Verdict, message, number, scheduler};

const PAGEBLOCK: u64 = 512;

/// A bug that is put in on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    Nothing,
    /// Locks let everybody in.
    MissingLocks,
    /// Who drains a CPU does not wait for it.
    DrainAgainstPush,
    /// A block that another task freed already is freed again.
    DoubleFree,
    /// A fork stops nobody.
    ForkStopsNobody,
}

/// Blocks that anybody frees, and memory that is offline.
struct Shared {
    blocks: RefCell<Vec<(Pfn, Order)>>,
    offline: RefCell<Vec<PfnRange>>,
    plant: Plant,
    /// How often memory went, and CPUs went.
    went: Cell<[u64; 2]>,
}

/// What a schedule came to: how often tasks were resumed, and how often memory and CPUs went.
fn hunt(seed: u64, plant: Plant) -> Result<[u64; 3], String> {
    let mut rng = Rng::with_seed(seed ^ 0x6d61_7073);
    let mut machine = Machine::uniform(rng.u32(1..3), rng.u32(1..4), rng.u64(2..9) << 20);
    if machine.nodes.len() == 2 && rng.bool() {
        machine.nodes[1].bytes = rng.u64(0..3) << 20;
    }
    let (config, costs) = (Config::new().with_model(Model::NEARPAGE), Costs::flat());
    let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
    let run = |sim: &Sim<'_, '_>| {
        match plant {
            Plant::MissingLocks => sim.world.plant_missing_locks(),
            Plant::DrainAgainstPush => {
                sim.allocator.platform().storage().plant_drain_against_push()
            }
            _ => {}
        }
        let shared = Shared {
            blocks: RefCell::default(),
            offline: RefCell::default(),
            plant,
            went: Cell::default(),
        };
        let switches = script(sim, rng.u64(..), &shared)?;
        let [memory, cpus] = shared.went.get();
        Ok([switches, memory, cpus])
    };
    match catch_unwind(AssertUnwindSafe(|| simulate(&setup, scheduler(seed), run))) {
        Ok(result) => result.map_err(|error| error.to_string())?,
        Err(panic) => Err(message(&*panic)),
    }
}

fn script(sim: &Sim<'_, '_>, seed: u64, shared: &Shared) -> Verdict {
    let mut tasks = Tasks::default();
    for (index, &cpu) in sim.world.cpus().iter().enumerate() {
        let seed = seed.wrapping_add(2 * index as u64);
        tasks.add(cpu, move || Worker::new(sim, seed, shared).work());
        // What comes in between on the same CPU, as interrupts do.
        tasks.add(cpu, move || Worker::new(sim, seed + 1, shared).interrupt());
    }
    let switches = sim.run(tasks).map_err(|deadlock| deadlock.to_string())?;
    let pages = sim.allocator;
    let checked = pages.check().map_err(|error| error.to_string())?;
    let left = shared.blocks.take();
    let held: u64 = left.iter().map(|(_, order)| order.pages().0).sum();
    assert_eq!(checked.allocated.0, held, "pages are lost, or freed twice");
    left.into_iter().for_each(|(page, order)| pages.free(page, order).expect("it is held"));
    for range in shared.offline.take() {
        pages.online(range).expect("it is offline");
    }
    // Those that are on are so already.
    for &cpu in sim.world.cpus() {
        let _ = pages.online_cpu(cpu);
    }
    pages.drain_all().map_err(|busy| busy.to_string())?;
    let checked = pages.check().map_err(|error| error.to_string())?;
    assert_eq!((checked.allocated, checked.cached), (PageCount(0), PageCount(0)));
    let free: u64 = pages.zones().iter().map(|zone| zone.free_pages().0).sum();
    let memory = pages.topology().nodes().iter().flat_map(|node| node.memory);
    assert_eq!(free, memory.map(|range| range.pages().0).sum::<u64>(), "nothing is lost");
    assert_eq!(pages.platform().misuses.get(), 0, "no free was refused");
    Ok(switches)
}

struct Worker<'a, 't, 'm> {
    sim: &'a Sim<'t, 'm>,
    rng: Rng,
    shared: &'a Shared,
    own: Vec<(Pfn, Order)>,
}

impl<'a, 't, 'm> Worker<'a, 't, 'm> {
    fn new(sim: &'a Sim<'t, 'm>, seed: u64, shared: &'a Shared) -> Self {
        Self { sim, rng: Rng::with_seed(seed), shared, own: Vec::new() }
    }

    fn work(mut self) {
        for _ in 0..self.rng.usize(5..30) {
            match self.rng.u8(..26) {
                0..=4 => self.take_many(),
                5..=7 => self.take_block(),
                8..=10 => self.free_many(),
                11..=13 => self.exchange(),
                14..=15 => self.bulk(),
                16..=17 => drop(self.sim.allocator.drain_cpu(self.any_cpu())),
                18 => drop(self.sim.allocator.drain_all()),
                19 => drop(self.sim.allocator.decay_cpu(self.any_cpu())),
                20 => self.cpu_off_or_on(),
                21..=22 => self.memory_off_or_on(),
                _ => self.fork(),
            }
        }
        self.end();
    }

    /// A few urgent requests, and a free.
    fn interrupt(mut self) {
        for _ in 0..self.rng.usize(1..8) {
            let request = Request::new(Order(self.rng.u8(..2)), Gfp::ATOMIC);
            self.take(request);
            if self.rng.bool() {
                self.exchange();
            }
        }
        self.end();
    }

    /// Some is freed, the rest left to others.
    fn end(mut self) {
        while let Some(block) = self.own.pop() {
            match self.rng.u8(..4) {
                0 => self.shared.blocks.borrow_mut().push(block),
                _ => self.free(block),
            }
        }
    }

    fn any_cpu(&mut self) -> nearpage::CpuId {
        let cpus = self.sim.world.cpus();
        cpus[self.rng.usize(..cpus.len())]
    }

    fn request(&mut self, order: u8) -> Request {
        let gfps = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL.union(Gfp::RECLAIMABLE)];
        let request = Request::new(Order(order), gfps[self.rng.usize(..3)].union(Gfp::NORETRY));
        if self.rng.u8(..4) == 0 { request.on(NodeId(0)) } else { request }
    }

    fn take(&mut self, request: Request) -> bool {
        let page = self.sim.allocator.alloc(request).ok();
        self.own.extend(page.map(|page| (page, request.order)));
        page.is_some()
    }

    /// Enough to come to the ends of lists and of pageblocks.
    fn take_many(&mut self) {
        let request = self.request(0);
        let _ = (0..self.rng.usize(1..200)).all(|_| self.take(request));
    }

    fn take_block(&mut self) {
        let order = self.rng.u8(..11);
        let request = self.request(order);
        self.take(request);
    }

    fn free(&self, (page, order): (Pfn, Order)) {
        self.sim.allocator.free(page, order).expect("it was allocated");
    }

    fn free_many(&mut self) {
        for _ in 0..self.rng.usize(1..200).min(self.own.len()) {
            let block = self.own.swap_remove(self.rng.usize(..self.own.len()));
            self.free(block);
        }
    }

    /// Leaves blocks to others, and frees some of theirs.
    fn exchange(&mut self) {
        let at = self.own.len() - self.rng.usize(..=self.own.len().min(60));
        let given = self.own.split_off(at);
        self.shared.blocks.borrow_mut().extend(given);
        for _ in 0..self.rng.usize(..60) {
            let Some(block) = self.shared.blocks.borrow_mut().pop() else { return };
            self.free(block);
            if self.shared.plant == Plant::DoubleFree && self.rng.u8(..50) == 0 {
                let _ = self.sim.allocator.free(block.0, block.1);
            }
        }
    }

    fn bulk(&mut self) {
        let mut pages = vec![Pfn(0); self.rng.usize(1..150)];
        let request = self.request(0);
        if let Ok(got) = self.sim.allocator.alloc_bulk(request, &mut pages) {
            self.own.extend(pages[..got].iter().map(|&page| (page, Order(0))));
        }
        let is_single = |block: &mut (Pfn, Order)| block.1 == Order(0);
        let mut singles: Vec<Pfn> =
            self.own.extract_if(.., is_single).map(|(page, _)| page).collect();
        self.rng.shuffle(&mut singles);
        let kept = singles.split_off(self.rng.usize(..=singles.len()));
        self.sim.allocator.free_bulk(&singles).expect("they were allocated");
        self.own.extend(kept.into_iter().map(|page| (page, Order(0))));
    }

    fn cpu_off_or_on(&mut self) {
        let cpu = self.any_cpu();
        if self.sim.allocator.offline_cpu(cpu).is_ok() {
            let [memory, cpus] = self.shared.went.get();
            self.shared.went.set([memory, cpus + 1]);
        }
        self.sim.world.point();
        // Another may have brought it on by now.
        let _ = self.sim.allocator.online_cpu(cpu);
    }

    fn memory_off_or_on(&mut self) {
        let gone = self.shared.offline.borrow_mut().pop();
        if let Some(range) = gone.filter(|_| self.rng.u8(..3) > 0) {
            // Part of it comes, up to any frame; the rest later, if any is left.
            let middle = Pfn(self.rng.u64(range.start.0 + 1..=range.end.0));
            self.sim.allocator.online(PfnRange { end: middle, ..range }).expect("it is offline");
            let rest = PfnRange { start: middle, ..range };
            self.shared.offline.borrow_mut().extend(Some(rest).filter(|rest| !rest.is_empty()));
            return;
        }
        self.shared.offline.borrow_mut().extend(gone);
        let nodes = self.sim.allocator.topology().nodes();
        let memory: Vec<PfnRange> = nodes.iter().flat_map(|node| node.memory).copied().collect();
        let whole = memory[self.rng.usize(..memory.len())];
        let pageblocks = whole.pages().0 / PAGEBLOCK;
        if pageblocks == 0 {
            return;
        }
        let first = self.rng.u64(..pageblocks);
        let count = self.rng.u64(1..=(pageblocks - first).min(3));
        let start = whole.start.0 + first * PAGEBLOCK;
        let range = PfnRange::new(start, start + count * PAGEBLOCK);
        if self.sim.allocator.offline(range).is_ok() {
            let [memory, cpus] = self.shared.went.get();
            self.shared.went.set([memory + 1, cpus]);
            self.shared.offline.borrow_mut().push(range);
        }
    }

    /// A CPU is stopped for a while: what is on its lists stays as it is. Its thread may go past them.
    fn fork(&mut self) {
        let pages = self.sim.allocator;
        let cpu = self.any_cpu();
        let stillness = pages.stillness();
        let of = stillness.cpus().find(|pagesets| pagesets.cpu() == cpu).expect("a CPU");
        let Some(stopped) = of.try_stop(pages.platform().storage()) else { return };
        let stopped = Some(stopped).filter(|_| self.shared.plant != Plant::ForkStopsNobody);
        let kept = || -> u32 {
            let pagesets = pages.pagesets(cpu).expect("a CPU").iter();
            let of_each = |list| move |pageset: &_| Pageset::list_counts(pageset, list).count;
            (0..LISTS).map(|list| pagesets.clone().map(of_each(list)).sum::<u32>()).sum()
        };
        let before = kept();
        for _ in 0..self.rng.u8(1..100) {
            self.sim.world.point();
        }
        assert_eq!(kept(), before, "a CPU works that is stopped");
        drop(stopped);
    }
}

#[test]
fn owners_leave_every_frame_in_one_place() {
    let (first, usual) = match number("NEARPAGE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, 10_000),
    };
    let schedules = number("NEARPAGE_SCHEDULES").unwrap_or(usual).div_ceil(50);
    let figures_of = |seed| {
        hunt(seed, Plant::Nothing).unwrap_or_else(|found| {
            panic!("{found}\nreplay: NEARPAGE_SEED={seed} cargo test -p nearpage-sim --test hunt owners")
        })
    };
    let sum = |a: [u64; 3], b: [u64; 3]| std::array::from_fn(|at| a[at] + b[at]);
    let [switches, memory, cpus] =
        (first..first + schedules).into_par_iter().map(figures_of).reduce(|| [0; 3], sum);
    println!("{schedules} schedules, {switches} switches, memory went {memory} times, CPUs {cpus}");
    assert!(schedules < 100 || memory > schedules / 10 && cpus > schedules / 10);
}

#[test]
fn bugs_planted_among_owners_are_found_and_replayed() {
    let plants =
        [Plant::MissingLocks, Plant::DrainAgainstPush, Plant::DoubleFree, Plant::ForkStopsNobody];
    for plant in plants {
        let find = |seed| hunt(seed, plant).err().map(|found| (seed, found));
        let (seed, found) =
            (0..5_000).find_map(find).unwrap_or_else(|| panic!("{plant:?}: not found"));
        println!("{plant:?}: found with seed {seed}: {found}");
        assert_eq!(hunt(seed, plant).err(), Some(found), "{plant:?}: seed {seed} does not replay");
    }
}
