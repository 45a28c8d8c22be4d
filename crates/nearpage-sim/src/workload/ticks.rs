//! What a kernel does once a second on each CPU: pagesets decay.

use std::cell::Cell;

use nearpage::CpuId;

use crate::executor::Tasks;
use crate::sim::Sim;

/// Picoseconds of a second.
const SECOND_PS: u64 = 1_000_000_000_000;

/// Adds a task on a CPU that lets the pagesets of all CPUs decay once a second, as long as some of `working` tasks
/// have not ended. It costs its CPU no time: a kernel's workers run on each CPU, and rarely.
pub fn add<'a>(tasks: &mut Tasks<'a>, sim: &'a Sim<'_, '_>, cpu: CpuId, working: &'a Cell<usize>) {
    tasks.add(cpu, move || {
        for second in 1.. {
            sim.world.sleep_until_ps(second * SECOND_PS);
            if working.get() == 0 {
                return;
            }
            for &cpu in sim.world.cpus() {
                // Who is in the middle of an operation decays the next time.
                let _ = sim.allocator.decay_cpu(cpu);
            }
        }
    });
}
