//! Two CPUs of two nodes take a page each and give it back, in virtual time.

use nearpage::{Config, CpuId, Gfp, Order, Request};
use nearpage_sim::scheduler::VirtualTime;
use nearpage_sim::{Costs, Machine, MachineError, Setup, Tasks, simulate};

fn main() -> Result<(), MachineError> {
    let machine = Machine::uniform(2, 1, 64 << 20);
    let (costs, config) = (Costs::flat(), Config::default());
    let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
    let elapsed_ns = simulate(&setup, Box::new(VirtualTime::default()), |sim| {
        let mut tasks = Tasks::default();
        for cpu in [CpuId(0), CpuId(1)] {
            tasks.add(cpu, || {
                let page = sim.allocator.alloc(Request::new(Order(0), Gfp::KERNEL)).unwrap();
                sim.world.charge_ns(1000.0);
                sim.allocator.free(page, Order(0)).unwrap();
            });
        }
        sim.run(tasks).expect("nobody waits for anybody");
        sim.world.now_ns()
    })?;
    println!("{elapsed_ns} ns of model time");
    assert!(elapsed_ns >= 1000);
    Ok(())
}
