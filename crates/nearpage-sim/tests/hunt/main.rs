//! Random and PCT schedules over small machines: every touch of a shared line is a point where another CPU may go on.
//! After each schedule the walker looks at every frame.
//!
//! `NEARPAGE_SEED=n` replays one schedule, `NEARPAGE_SCHEDULES=n` runs more; both together run so many from there on.

mod maps;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use fastrand::Rng;
use nearpage::platform::Platform;
use nearpage::{Config, Gfp, Model, NodeId, Order, PageblockOwners, Pfn, Request, ZoneInstances};
use nearpage_sim::scheduler::{Decisions, Pct, Random, Recorded, Replay, Scheduler};
use nearpage_sim::{Costs, Machine, Setup, Sim, TaskId, Tasks, simulate};
use rayon::prelude::*;

/// A bug that is put in on purpose: whoever finds nothing then, finds nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    Nothing,
    MissingLocks,
    LostWakeUp,
    DrainAgainstPush,
}

/// What a schedule came to: how many times tasks were resumed, or what was found.
type Verdict = Result<u64, String>;

fn scheduler(seed: u64) -> Box<dyn Scheduler> {
    let mut rng = Rng::with_seed(seed);
    match rng.u8(..3) {
        0 => Box::new(Random::new(rng.u64(..))),
        _ => Box::new(Pct::new(rng.u64(..), 4000, rng.u32(2..5))),
    }
}

/// The rules that a schedule runs under.
fn model(rng: &mut Rng) -> Model {
    let in_two = ZoneInstances::Count(2);
    let models = [
        Model::NEARPAGE,
        Model::LINUX_6_12,
        Model::LINUX_6_1,
        Model::RFC_2026_OWNED,
        Model::RFC_2023_ZONES.with(|model| model.zone_instances = in_two),
    ];
    models[rng.usize(..models.len())]
}

/// A machine with constants as small as they can be: CPUs own pageblocks if a pageset may keep one, and a zone is divided if
/// it has two blocks of the largest order.
fn machine(rng: &mut Rng, model: &Model) -> Machine {
    let nodes = rng.u32(1..3);
    let bytes = match (model.owners, model.zone_instances) {
        (PageblockOwners::Cpus, _) => 32 << 20,
        (_, ZoneInstances::Count(2)) => 8 << 20,
        _ => 2 << 20,
    };
    let mut machine = Machine::uniform(nodes, rng.u32(1..3), bytes);
    if nodes == 2 && rng.bool() {
        machine.nodes[1].bytes = 0;
    }
    machine
}

fn hunt(seed: u64, plant: Plant) -> Verdict {
    hunt_with(seed, plant, scheduler(seed))
}

fn hunt_with(seed: u64, plant: Plant, scheduler: Box<dyn Scheduler>) -> Verdict {
    let mut rng = Rng::with_seed(!seed);
    let model = model(&mut rng);
    let machine = machine(&mut rng, &model);
    let mut config = Config::new().with_model(model);
    if model.owners == PageblockOwners::Cpus {
        config.settings.percpu_pagelist_high_fraction = 8;
    }
    let costs = Costs::flat();
    let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
    let run = |sim: &Sim<'_, '_>| {
        match plant {
            Plant::MissingLocks => sim.world.plant_missing_locks(),
            Plant::DrainAgainstPush => {
                sim.allocator.platform().storage().plant_drain_against_push()
            }
            Plant::Nothing | Plant::LostWakeUp => {}
        }
        script(sim, rng.u64(..), plant)
    };
    match catch_unwind(AssertUnwindSafe(|| simulate(&setup, scheduler, run))) {
        Ok(result) => result.map_err(|error| error.to_string())?,
        Err(panic) => Err(message(&*panic)),
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}

/// Blocks on their way from one task to another.
#[derive(Default)]
struct Mailbox {
    blocks: VecDeque<(Pfn, Order)>,
    waiting: Option<TaskId>,
    is_closed: bool,
}

fn script(sim: &Sim<'_, '_>, seed: u64, plant: Plant) -> Verdict {
    let mailbox = RefCell::new(Mailbox::default());
    let senders = Cell::new(sim.world.cpus().len());
    let mut tasks = Tasks::default();
    for (index, &cpu) in sim.world.cpus().iter().enumerate() {
        let (mailbox, senders) = (&mailbox, &senders);
        tasks.add(cpu, move || {
            work(sim, &mut Rng::with_seed(seed.wrapping_add(index as u64)), mailbox);
            senders.set(senders.get() - 1);
            if senders.get() == 0 {
                mailbox.borrow_mut().is_closed = true;
                wake(sim, mailbox);
            }
        });
    }
    tasks.add(sim.world.cpus()[0], || receive(sim, &mailbox, plant));
    let switches = sim.run(tasks).map_err(|deadlock| deadlock.to_string())?;
    let checked = sim.allocator.check().map_err(|error| error.to_string())?;
    assert_eq!(checked.allocated.0, 0, "all blocks were freed");
    sim.allocator.drain_all().map_err(|busy| busy.to_string())?;
    let free: u64 = sim.allocator.zones().iter().map(|zone| zone.free_pages().0).sum();
    let managed: u64 = sim.allocator.zones().iter().map(|zone| zone.managed().0).sum();
    assert_eq!(free, managed, "nothing is lost");
    assert_eq!(sim.allocator.platform().misuses.get(), 0, "no free was refused");
    Ok(switches)
}

/// Allocates, frees, sends blocks to others, drains others.
fn work(sim: &Sim<'_, '_>, rng: &mut Rng, mailbox: &RefCell<Mailbox>) {
    let mut own: Vec<(Pfn, Order)> = Vec::new();
    for _ in 0..rng.usize(5..40) {
        match rng.u8(..16) {
            0..=6 => own.extend(allocate(sim, rng)),
            7..=10 if !own.is_empty() => free(sim, own.swap_remove(rng.usize(..own.len()))),
            11..=12 if !own.is_empty() => {
                let block = own.swap_remove(rng.usize(..own.len()));
                mailbox.borrow_mut().blocks.push_back(block);
                wake(sim, mailbox);
            }
            13 => bulk(sim, rng, &mut own),
            14 => {
                let cpus = sim.world.cpus();
                // Who is busy is drained another time.
                let _ = sim.allocator.drain_cpu(cpus[rng.usize(..cpus.len())]);
            }
            _ => {
                let cpus = sim.world.cpus();
                let _ = sim.allocator.decay_cpu(cpus[rng.usize(..cpus.len())]);
            }
        }
    }
    own.into_iter().for_each(|block| free(sim, block));
}

fn allocate(sim: &Sim<'_, '_>, rng: &mut Rng) -> Option<(Pfn, Order)> {
    let order = Order([0, 0, 0, 1, 2, 3, 4, 9][rng.usize(..8)]);
    let gfp = [Gfp::KERNEL, Gfp::HIGHUSER_MOVABLE, Gfp::ATOMIC][rng.usize(..3)].union(Gfp::NORETRY);
    let mut request = Request::new(order, gfp);
    if rng.u8(..4) == 0 {
        request = request.on(NodeId(0));
    }
    sim.allocator.alloc(request).ok().map(|page| (page, order))
}

fn bulk(sim: &Sim<'_, '_>, rng: &mut Rng, own: &mut Vec<(Pfn, Order)>) {
    let mut pages = vec![Pfn(0); rng.usize(1..40)];
    let request = Request::new(Order(0), Gfp::KERNEL.union(Gfp::NORETRY));
    if let Ok(got) = sim.allocator.alloc_bulk(request, &mut pages) {
        own.extend(pages[..got].iter().map(|&page| (page, Order(0))));
    }
}

fn free(sim: &Sim<'_, '_>, (page, order): (Pfn, Order)) {
    sim.allocator.free(page, order).expect("it was allocated");
}

fn wake(sim: &Sim<'_, '_>, mailbox: &RefCell<Mailbox>) {
    let waiting = mailbox.borrow_mut().waiting.take();
    if let Some(task) = waiting {
        sim.world.wake(task);
    }
}

fn receive(sim: &Sim<'_, '_>, mailbox: &RefCell<Mailbox>, plant: Plant) {
    loop {
        let next = mailbox.borrow_mut().blocks.pop_front();
        match next {
            Some(block) => free(sim, block),
            None if mailbox.borrow().is_closed => return,
            None => {
                if plant == Plant::LostWakeUp {
                    // Between the look and the note that somebody waits, a wake-up finds nobody.
                    sim.world.point();
                }
                mailbox.borrow_mut().waiting = Some(sim.world.task());
                sim.world.block();
            }
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn schedules_leave_every_frame_in_one_place() {
    let (first, usual) = match number("NEARPAGE_SEED") {
        Some(seed) => (seed, 1),
        None => (0, 10_000),
    };
    let schedules = number("NEARPAGE_SCHEDULES").unwrap_or(usual);
    let switches_of = |seed| {
        hunt(seed, Plant::Nothing).unwrap_or_else(|found| {
            panic!("{found}\nreplay: NEARPAGE_SEED={seed} cargo test -p nearpage-sim --test hunt schedules")
        })
    };
    let switches: u64 = (first..first + schedules).into_par_iter().map(switches_of).sum();
    println!("{schedules} schedules, {switches} switches");
}

#[test]
fn planted_bugs_are_found_and_replayed() {
    for plant in [Plant::MissingLocks, Plant::LostWakeUp, Plant::DrainAgainstPush] {
        let find = |seed| hunt(seed, plant).err().map(|found| (seed, found));
        let (seed, found) =
            (0..20_000).find_map(find).unwrap_or_else(|| panic!("{plant:?}: not found"));
        println!("{plant:?}: found with seed {seed}: {found}");
        assert_eq!(hunt(seed, plant), Err(found), "{plant:?}: seed {seed} does not replay");
    }
}

#[test]
fn the_same_seed_decides_the_same() {
    for seed in 0..200 {
        let record = || {
            let decisions = Rc::new(RefCell::new(Decisions::default()));
            let recorded = Recorded::new(Pct::new(seed, 1000, 3), decisions.clone());
            let verdict = hunt_with(seed, Plant::Nothing, Box::new(recorded));
            (decisions.take(), verdict)
        };
        let (first, verdict) = record();
        assert_eq!((&first, &verdict), (&record().0, &verdict), "seed {seed}");
        let replayed = hunt_with(seed, Plant::Nothing, Box::new(Replay::new(first)));
        assert_eq!(replayed, verdict, "seed {seed}");
    }
}
