//! A kernel on OSTD: OSDK's own cases for a frame allocator, a workload of tasks and timer callbacks, and instructions of
//! operations.
#![no_std]

extern crate alloc;

mod cases;
#[cfg(feature = "nearpage")]
mod frames;
mod instructions;
mod workload;

#[cfg(feature = "nearpage")]
use core::sync::atomic::Ordering;

use ostd::power::{ExitCode, poweroff};
use ostd::prelude::*;

#[ostd::main]
fn kernel_main() {
    // A context that is no task does not come back once it gave its CPU to one.
    ostd::task::TaskOptions::new(first_task).spawn().expect("a task");
    loop {
        ostd::task::Task::yield_now();
    }
}

fn first_task() {
    let name = if cfg!(feature = "nearpage") { "nearpage" } else { "osdk-frame-allocator" };
    println!("frames of {}, {} CPUs", name, ostd::cpu::num_cpus());
    cases::run();
    instructions::run();
    workload::run();
    #[cfg(feature = "nearpage")]
    {
        let pages = frames::pages().expect("it booted");
        let nodes = pages.topology().len();
        let [near, farther] =
            [&frames::NEAR, &frames::FARTHER].map(|count| count.load(Ordering::Relaxed));
        println!(
            "nodes: {}; {} frames from the nearest memory, {} from farther",
            nodes, near, farther
        );
        assert_eq!(farther, 0, "frames of a farther node while there is memory near");
        let trips: u64 = pages.zones().iter().map(|zone| zone.work().holds).sum();
        println!("locks: {} takes of a zone's lock", trips);
        pages.check().unwrap_or_else(|error| panic!("the walker: {error}"));
        println!("walker: every frame is in one place");
    }
    println!("PASSED");
    poweroff(ExitCode::Success);
}
