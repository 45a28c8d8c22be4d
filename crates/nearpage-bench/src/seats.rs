//! Memories of one node that has as many CPUs as there are threads, whatever this machine has.
//!
//! Sizes of pagesets follow from the CPUs of a node, so that counts of one such memory are those of any machine. More
//! threads than this machine has CPUs share them, and each works as a CPU of its own all the same: the memory then has
//! pagesets with locks, which any thread may use in the name of any CPU.

use std::cell::Cell;

use nearpage::{CpuId, Model, NodeId, Settings};
use nearpage_linux::{HostMachine, HostNode, Memory, MemoryBuilder, MemoryError};

use crate::step::StepError;
use crate::threads::{Cpus, Gate};

thread_local! {
    /// The CPU that this thread works as.
    static SEAT: Cell<u32> = const { Cell::new(0) };
}

/// Threads, and the CPUs that they work as.
#[derive(Clone, Copy, Debug)]
pub struct Seats<'a> {
    cpus: &'a Cpus,
    threads: usize,
}

impl<'a> Seats<'a> {
    /// Seats for so many threads.
    pub fn new(cpus: &'a Cpus, threads: usize) -> Self {
        Self { cpus, threads }
    }

    /// How many there are.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// CPUs of this machine that the threads run on.
    pub fn cpus(&self) -> usize {
        self.threads.min(self.cpus.count())
    }

    /// A memory of these rules and this size, which begins as `begin` says. It keeps no pages back for urgent requests.
    ///
    /// # Errors
    ///
    /// [`MemoryError`].
    pub fn memory(
        &self,
        begin: MemoryBuilder,
        model: Model,
        bytes: u64,
    ) -> Result<Memory, MemoryError> {
        let settings = Settings::default().with(|settings| settings.min_free_kbytes = Some(0));
        let builder = begin.machine(self.machine()).bytes_per_node(bytes);
        let builder = builder.model(model).settings(settings);
        if self.are_shared() { builder.cpu_of_thread(seat).build() } else { builder.build() }
    }

    /// Does `work` on all threads at once, as [`Cpus::run`].
    ///
    /// # Errors
    ///
    /// What [`Cpus::run`] returns.
    pub fn run<T: Send>(
        &self,
        work: impl Fn(usize, &Gate) -> Result<T, StepError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        self.run_on(self.threads, work)
    }

    /// The same on the first of the threads, while nobody has the seats of the others.
    ///
    /// # Errors
    ///
    /// What [`Cpus::run`] returns.
    pub fn run_on<T: Send>(
        &self,
        threads: usize,
        work: impl Fn(usize, &Gate) -> Result<T, StepError> + Sync,
    ) -> Result<Vec<T>, StepError> {
        self.cpus.run(threads, |thread, gate| {
            SEAT.set(thread as u32);
            work(thread, gate)
        })
    }

    fn are_shared(&self) -> bool {
        self.threads > self.cpus.count()
    }

    fn machine(&self) -> HostMachine {
        let cpus = match self.are_shared() {
            true => (0..self.threads as u32).map(CpuId).collect(),
            false => self.cpus.ids()[..self.threads].to_vec(),
        };
        let node = HostNode { id: NodeId(0), cpus, has_memory: true };
        HostMachine { nodes: vec![node], distances: vec![10], emulated: true }
    }
}

/// The CPU that this thread works as: its number among the threads.
pub fn seat() -> CpuId {
    CpuId(SEAT.get())
}

#[cfg(test)]
mod tests {
    use nearpage::{Order, PageCount, Request};

    use super::*;
    use crate::source::GFP;

    /// A page that a thread frees stays in its own pageset, also if the thread shares a CPU.
    #[test]
    fn each_thread_has_a_pageset_of_its_own() {
        let cpus = Cpus::allowed().unwrap();
        for threads in [1, cpus.count(), 2 * cpus.count() + 1] {
            let seats = Seats::new(&cpus, threads);
            let memory = seats.memory(Memory::builder(), Model::LINUX_6_18, 64 << 20).unwrap();
            let ids = memory.topology().nodes()[0].cpus.to_vec();
            assert_eq!(ids.len(), threads);
            let free_one = |_, gate: &Gate| {
                let page = memory.alloc_frames(Request::new(Order(0), GFP)).unwrap();
                gate.wait();
                // SAFETY: just allocated, and nobody knows it.
                unsafe { memory.free_frames(page, Order(0)) }.unwrap();
                Ok(())
            };
            seats.run(free_one).unwrap();
            for id in ids {
                assert_ne!(memory.drain_cpu(id), Ok(PageCount(0)), "CPU {id} of {threads}");
            }
            assert_eq!(memory.check().unwrap().allocated, PageCount(0));
        }
    }
}
