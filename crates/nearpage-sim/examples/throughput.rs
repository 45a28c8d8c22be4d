//! Allocator operations a second: 56 CPUs on 28 nodes allocate and free in batches, in virtual time.

use nearpage::{Config, Gfp, Model, Order, Request};
use nearpage_sim::{Costs, Machine, Setup, Sim, Tasks, scheduler, simulate};

fn main() {
    let (machine, costs) = (Machine::uniform(28, 2, 3 << 30), Costs::flat());
    let loads = |model| [(model, 1), (model, 500)];
    for (model, batch) in [Model::NEARPAGE, Model::LINUX_6_12].into_iter().flat_map(loads) {
        let config = Config::new().with_model(model);
        let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
        let run = |sim: &Sim<'_, '_>| {
            let mut tasks = Tasks::default();
            for &cpu in sim.world.cpus() {
                tasks.add(cpu, move || work(sim, batch));
            }
            let start = std::time::Instant::now();
            let switches = sim.run(tasks).expect("nobody waits");
            let rate = (56 * OPERATIONS) as f64 / start.elapsed().as_secs_f64() / 1e6;
            println!("{}, {batch}: {rate:.1} million/s, {switches} switches", model.name);
        };
        simulate(&setup, Box::new(scheduler::VirtualTime::default()), run).expect("a machine");
    }
}

const OPERATIONS: usize = 71_000;

fn work(sim: &Sim<'_, '_>, batch: usize) {
    let mut pages = Vec::with_capacity(batch);
    for turn in (0..2 * batch).cycle().take(OPERATIONS) {
        sim.world.point();
        sim.world.charge_ns(25.0);
        if turn < batch {
            let page = sim.allocator.alloc(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE));
            pages.push(page.expect("memory enough"));
        } else {
            sim.allocator.free(pages.pop().expect("a page"), Order(0)).expect("it was allocated");
        }
    }
}
