//! The platforms of the documentation, on the conformance suite and at work.

use nearpage::platform::SerialStorage;
use nearpage::testing::storage::{check_exclusion, check_storage};
use nearpage::{CpuId, Gfp, Order, Request};

#[path = "../examples/toy_kernel.rs"]
mod toy_kernel;

use toy_kernel::{ThisCpu, run_on};

const SEEDS: u64 = 5;
const OPERATIONS: u32 = 50_000;

#[test]
fn the_toy_kernel_conforms() {
    run_on(0);
    let storage = SerialStorage(ThisCpu);
    for seed in 0..SEEDS {
        if let Err(difference) = check_storage(&storage, CpuId(0), seed, OPERATIONS) {
            panic!("seed {seed}: {difference}");
        }
    }
    check_exclusion(&storage, CpuId(0));
}

#[test]
fn the_toy_kernel_allocates_on_all_its_cpus() {
    toy_kernel::main().expect("it boots");
}

#[test]
fn a_cpu_without_memory_is_served_by_the_nearest_node() {
    toy_kernel::boot(|pages| {
        run_on(4);
        let block = pages.alloc(Request::new(Order(0), Gfp::KERNEL)).expect("there is room");
        let node = pages.topology().node_of_pfn(block).map(|node| node.0);
        assert_eq!(node, Some(1));
        pages.free(block, Order(0)).expect("it is this thread's");
    })
    .expect("it boots");
}
