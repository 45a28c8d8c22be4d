//! Allocator operations a second in virtual time: 56 CPUs on 28 nodes allocate and free in batches.

use std::time::Instant;

use nearpage::{Config, Gfp, Model, Order, Pfn, Request};
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::{Costs, Machine, Setup, Sim, Tasks, simulate};

fn main() {
    let machine = Machine::uniform(28, 2, 3 << 30);
    for (name, model) in [("nearpage", Model::NEARPAGE), ("linux-6.12", Model::LINUX_6_12)] {
        let config = Config::new().with_model(model);
        let costs = Costs::flat();
        let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
        for batch in [1, 500] {
            let rounds = 2_000_000 / 56 / batch;
            let run = |sim: &Sim<'_, '_>| {
                let mut tasks = Tasks::default();
                for &cpu in sim.world.cpus() {
                    tasks.add(cpu, move || work(sim, batch, rounds));
                }
                let start = Instant::now();
                let switches = sim.run(tasks).expect("nobody waits");
                let seconds = start.elapsed().as_secs_f64();
                let operations = (56 * batch * rounds * 2) as f64;
                println!(
                    "{name}, batches of {batch}: {:.1} million operations/s, {switches} switches, {} ms of model time, {:?}",
                    operations / seconds / 1e6,
                    sim.world.now_ns() / 1_000_000,
                    sim.world.line_counts(),
                );
            };
            simulate(&setup, Box::new(VirtualTime::default()), run).expect("a machine");
        }
    }
}

fn work(sim: &Sim<'_, '_>, batch: usize, rounds: usize) {
    let mut pages: Vec<Pfn> = Vec::with_capacity(batch);
    for _ in 0..rounds {
        for _ in 0..batch {
            sim.world.point();
            let page = sim.allocator.alloc(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE));
            pages.push(page.expect("memory enough"));
            sim.world.charge_ns(30.0);
        }
        for page in pages.drain(..) {
            sim.world.point();
            sim.allocator.free(page, Order(0)).expect("it was allocated");
            sim.world.charge_ns(20.0);
        }
    }
}
