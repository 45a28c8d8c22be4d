//! Requests to a block driver in user space: jobs send them, queues serve them, in pairs of CPUs of one node. Each
//! request is one object, which the job allocates. It is freed where it is completed: by the queue, or by the job.

use std::cell::{Cell, RefCell};

use nearpage::{Address, Gfp};
use nearpage_slab::{CacheOptions, KmemCache};

use crate::executor::{Deadlock, Tasks};
use crate::platform::SimPlatform;
use crate::sim::Sim;

/// Who frees the object of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FreedOn {
    /// The job that allocated it.
    SameCpu,
    /// The queue.
    OtherCpu,
}

/// Jobs and queues.
#[derive(Clone, Copy, Debug)]
pub struct BlockRequests {
    /// Bytes of an object.
    pub object: u64,
    /// Who frees it.
    pub freed_on: FreedOn,
    /// Requests of a job on their way, at most.
    pub depth: usize,
    /// Requests that a job sends before it looks at what was served.
    pub turn: usize,
    /// Time of a request on each of its two CPUs, beside the allocator (ps).
    pub request_ps: u64,
    /// Time before anything counts (ps).
    pub warm_up_ps: u64,
    /// Time that counts (ps).
    pub window_ps: u64,
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct BlockRequestsResult {
    /// Pairs of CPUs.
    pub pairs: u64,
    /// Requests served.
    pub requests: u64,
    /// Objects that were not to be had.
    pub refused: u64,
    /// Acquisitions of list locks.
    pub list_locks: u64,
    /// Acquisitions of locks of barns.
    pub barn_locks: u64,
    /// Acquisitions of locks of alien stacks.
    pub alien_locks: u64,
    /// Objects freed past the sheaves.
    pub bypasses: u64,
    /// Time waited for locks of any kind (ps).
    pub waited_ps: u64,
}

/// A bio comes from a memory pool, which asks first without waiting.
const MEMPOOL: Gfp = Gfp::NOWAIT.union(Gfp::NORETRY);

/// How long a CPU that has nothing to do waits before it looks again (ps).
const POLL_PS: u64 = 200_000;

/// A job and its queue.
#[derive(Default)]
struct Pair {
    sent: RefCell<Vec<Option<Address>>>,
    /// Served requests, with their objects unless those are freed.
    served: RefCell<Vec<Option<Address>>>,
    on_their_way: Cell<usize>,
}

/// One phase of a run.
struct Phase<'r, 't, 'm> {
    work: &'r BlockRequests,
    sim: &'r Sim<'t, 'm>,
    cache: &'r KmemCache<'m, SimPlatform<'t>>,
    end_ps: u64,
    requests: Cell<u64>,
    refused: Cell<u64>,
}

impl BlockRequests {
    /// Runs it on pairs of all CPUs of each node; a last one without a partner has nothing to do.
    ///
    /// # Errors
    /// [`Deadlock`]: that would be a bug here.
    ///
    /// # Panics
    /// If the run has no slab allocator.
    pub fn run<'t, 'm>(&self, sim: &Sim<'t, 'm>) -> Result<BlockRequestsResult, Deadlock> {
        let slab = sim.slab.expect("the run has a slab allocator");
        let cache = slab.create(CacheOptions::new("request", self.object)).expect("room for one");
        let cpus = pairs(sim);
        let pairs: Vec<Pair> = cpus.iter().map(|_| Pair::default()).collect();
        self.phase(sim, &cache, &cpus, &pairs, self.warm_up_ps)?;
        let before = counts(sim, &cache);
        let (requests, refused) = self.phase(sim, &cache, &cpus, &pairs, self.window_ps)?;
        let after = counts(sim, &cache);
        for pair in &pairs {
            let left = pair.sent.take().into_iter().chain(pair.served.take());
            left.flatten().for_each(|object| free(sim, &cache, object));
        }
        Ok(BlockRequestsResult {
            pairs: pairs.len() as u64,
            requests,
            refused,
            list_locks: after.list_locks - before.list_locks,
            barn_locks: after.barn_locks - before.barn_locks,
            alien_locks: after.alien_locks - before.alien_locks,
            bypasses: after.bypasses - before.bypasses,
            waited_ps: after.waited_ps - before.waited_ps,
        })
    }

    /// So long; returns requests served, and those that got no object.
    fn phase<'t, 'm>(
        &self,
        sim: &Sim<'t, 'm>,
        cache: &KmemCache<'m, SimPlatform<'t>>,
        cpus: &[[nearpage::CpuId; 2]],
        pairs: &[Pair],
        window_ps: u64,
    ) -> Result<(u64, u64), Deadlock> {
        let begin_ps = sim.world.now_ps();
        let end_ps = begin_ps + window_ps;
        let (requests, refused) = (Cell::new(0), Cell::new(0));
        let phase = Phase { work: self, sim, cache, end_ps, requests, refused };
        let mut tasks = Tasks::default();
        for (&[job, queue], pair) in cpus.iter().zip(pairs) {
            let phase = &phase;
            tasks.add(job, move || {
                sim.world.idle_until_ps(begin_ps);
                phase.job(pair);
            });
            tasks.add(queue, move || {
                sim.world.idle_until_ps(begin_ps);
                phase.queue(pair);
            });
        }
        sim.run(tasks)?;
        Ok((phase.requests.get(), phase.refused.get()))
    }
}

impl Phase<'_, '_, '_> {
    fn is_over(&self) -> bool {
        self.sim.world.now_ps() >= self.end_ps
    }

    fn poll(&self) {
        self.sim.world.idle_until_ps(self.sim.world.now_ps() + POLL_PS);
        self.sim.world.point();
    }

    fn job(&self, pair: &Pair) {
        while !self.is_over() {
            let served = pair.served.take();
            pair.on_their_way.set(pair.on_their_way.get() - served.len());
            for &object in &served {
                self.sim.world.point();
                if let Some(object) = object {
                    free(self.sim, self.cache, object);
                }
            }
            self.requests.set(self.requests.get() + served.len() as u64);
            let turn = self.work.turn.min(self.work.depth - pair.on_their_way.get());
            for _ in 0..turn {
                self.sim.world.point();
                self.sim.world.charge_ps(self.work.request_ps);
                let slab = self.sim.slab.expect("the run has a slab allocator");
                let object = slab.alloc(self.cache, MEMPOOL).ok();
                self.refused.set(self.refused.get() + u64::from(object.is_none()));
                pair.sent.borrow_mut().push(object);
                pair.on_their_way.set(pair.on_their_way.get() + 1);
            }
            if turn == 0 && served.is_empty() {
                self.poll();
            }
        }
    }

    fn queue(&self, pair: &Pair) {
        while !self.is_over() {
            let sent = pair.sent.take();
            for &object in &sent {
                self.sim.world.point();
                self.sim.world.charge_ps(self.work.request_ps);
                let object = match (object, self.work.freed_on) {
                    (Some(object), FreedOn::OtherCpu) => {
                        free(self.sim, self.cache, object);
                        None
                    }
                    (object, _) => object,
                };
                pair.served.borrow_mut().push(object);
            }
            if sent.is_empty() {
                self.poll();
            }
        }
    }
}

/// Neighbouring CPUs of each node, two by two.
fn pairs(sim: &Sim<'_, '_>) -> Vec<[nearpage::CpuId; 2]> {
    let cpus = sim.world.cpus();
    let mut by_node: Vec<Vec<nearpage::CpuId>> = Vec::new();
    for (at, &cpu) in cpus.iter().enumerate() {
        let node = sim.world.node_of(at);
        by_node.resize(by_node.len().max(node + 1), Vec::new());
        by_node[node].push(cpu);
    }
    by_node.iter().flat_map(|cpus| cpus.chunks_exact(2)).map(|pair| [pair[0], pair[1]]).collect()
}

fn free<'t, 'm>(sim: &Sim<'t, 'm>, cache: &KmemCache<'m, SimPlatform<'t>>, object: Address) {
    let slab = sim.slab.expect("the run has a slab allocator");
    slab.free(cache, object).expect("the object was allocated");
}

fn counts<'t, 'm>(
    sim: &Sim<'t, 'm>,
    cache: &KmemCache<'m, SimPlatform<'t>>,
) -> BlockRequestsResult {
    let slab = sim.slab.expect("the run has a slab allocator");
    let mut sum = BlockRequestsResult::default();
    for node in sim.allocator.topology().indexes() {
        let stats = slab.node_stats(cache, node);
        sum.list_locks += stats.list_locks;
        sum.barn_locks += stats.barn_locks;
        sum.alien_locks += stats.alien_locks;
        sum.bypasses += stats.bypasses;
    }
    sum.waited_ps = sim.world.lock_counts().waited_ps;
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::machine::{Machine, NodeSpec};
    use crate::scheduler::VirtualTime;
    use crate::sim::{self, Setup};
    use nearpage::Config;
    use nearpage_slab::SlabConfig;

    const WORK: BlockRequests = BlockRequests {
        object: 256,
        freed_on: FreedOn::OtherCpu,
        depth: 128,
        turn: 32,
        request_ps: 1_000_000,
        warm_up_ps: 1_000_000_000,
        window_ps: 1_000_000_000,
    };

    fn run(slab: SlabConfig, work: BlockRequests, has_memory: bool) -> BlockRequestsResult {
        let (costs, config) = (Costs::flat(), Config::default());
        let mut machine = Machine::uniform(2, 4, 64 << 20);
        if !has_memory {
            machine.nodes[1] = NodeSpec { bytes: 0, ..machine.nodes[1].clone() };
        }
        let setup = Setup { machine: &machine, costs: &costs, config, slab: Some(slab) };
        let run = |sim: &Sim<'_, '_>| {
            let result = work.run(sim).expect("nobody waits");
            assert_eq!(sim.allocator.platform().misuses.get(), 0);
            result
        };
        sim::simulate(&setup, Box::new(VirtualTime::default()), run).expect("a machine")
    }

    #[test]
    fn a_request_a_microsecond_is_served_by_each_pair() {
        let result = run(SlabConfig::LINUX_2_6_35, WORK, true);
        assert_eq!((result.pairs, result.refused), (4, 0));
        assert!((3200..=4100).contains(&result.requests), "{result:?}");
    }

    #[test]
    fn half_of_the_objects_bypass_if_half_of_the_cpus_have_no_memory() {
        for freed_on in [FreedOn::SameCpu, FreedOn::OtherCpu] {
            let work = BlockRequests { freed_on, ..WORK };
            let part = |slab, has_memory| {
                let result = run(slab, work, has_memory);
                result.bypasses as f64 / result.requests as f64
            };
            let before = part(SlabConfig::LINUX_7_0, false);
            assert!((0.4..0.55).contains(&before), "{freed_on:?}: {before}");
            assert_eq!(part(SlabConfig::LINUX_7_1, false), 0.0);
            assert_eq!(part(SlabConfig::LINUX_7_0, true), 0.0);
        }
    }
}
