//! Slab message traffic: what hackbench asks of a kernel. Each message is one object of each of a few caches,
//! allocated by who sends it and freed by who receives it, on another CPU.

use std::cell::{Cell, RefCell};

use fastrand::Rng;
use nearpage::{Address, Gfp};
use nearpage_slab::{CacheOptions, KmemCache};

use crate::executor::{Deadlock, Tasks};
use crate::platform::SimPlatform;
use crate::sim::Sim;

/// Messages between all CPUs.
#[derive(Clone, Debug)]
pub struct SlabMessages {
    /// Sizes of a message's objects, bytes.
    pub objects: Vec<u64>,
    /// Messages that each CPU sends before anything counts: slabs are made then.
    pub warm_up: u64,
    /// Messages that each CPU sends.
    pub messages: u64,
    /// Messages that a CPU sends before it looks at what it received: many processes share a CPU, and send until
    /// sockets are full.
    pub burst: u64,
    /// Time of a CPU for a message, sent and received, beside the allocator (ps).
    pub message_ps: u64,
    /// Seed of who sends to whom.
    pub seed: u64,
}

/// What it came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct SlabMessagesResult {
    /// Messages received.
    pub messages: u64,
    /// Objects that were not to be had.
    pub refused: u64,
    /// From begin to end (ps).
    pub real_ps: u64,
    /// Acquisitions of list locks of nodes that have memory.
    pub memory_node_locks: u64,
    /// Acquisitions of list locks of memoryless nodes.
    pub memoryless_node_locks: u64,
    /// Slabs that could not be made on exactly one node: failed `__GFP_THISNODE` requests.
    pub this_node_failures: u64,
    /// Acquisitions of locks of alien stacks.
    pub alien_locks: u64,
    /// Allocations that a CPU's stack served.
    pub stack_hits: u64,
}

impl SlabMessagesResult {
    /// Counts since an earlier look.
    fn since(self, before: &Self) -> Self {
        Self {
            memory_node_locks: self.memory_node_locks - before.memory_node_locks,
            memoryless_node_locks: self.memoryless_node_locks - before.memoryless_node_locks,
            this_node_failures: self.this_node_failures - before.this_node_failures,
            alien_locks: self.alien_locks - before.alien_locks,
            stack_hits: self.stack_hits - before.stack_hits,
            ..self
        }
    }
}

type Caches<'m, 't> = [KmemCache<'m, SimPlatform<'t>>];

/// Caches at most.
const CACHES_MAX: usize = 4;
const NAMES: [&str; CACHES_MAX] = ["message-0", "message-1", "message-2", "message-3"];

/// Objects of messages that were sent to a CPU: for each message one of each cache, in their order; `None` where there
/// was none to be had. One list, so that a message allocates nothing and the next one's objects lie beside it.
#[derive(Default)]
struct Inbox {
    objects: RefCell<Vec<Option<Address>>>,
}

impl SlabMessages {
    /// Runs it.
    ///
    /// # Errors
    /// [`Deadlock`]: that would be a bug here.
    ///
    /// # Panics
    /// If the run has no slab allocator, or a message has no objects or more than four.
    pub fn run<'t, 'm>(&self, sim: &Sim<'t, 'm>) -> Result<SlabMessagesResult, Deadlock> {
        let slab = sim.slab.expect("the run has a slab allocator");
        assert!((1..=CACHES_MAX).contains(&self.objects.len()), "one to four objects a message");
        let create = |(&size, name): (&u64, &'static str)| {
            slab.create(CacheOptions::new(name, size)).expect("room for a few caches")
        };
        let caches: Vec<_> = self.objects.iter().zip(NAMES).map(create).collect();
        let inboxes: Vec<Inbox> = sim.world.cpus().iter().map(|_| Inbox::default()).collect();
        self.phase(sim, &caches, &inboxes, self.warm_up)?;
        let (begin_ps, before) = (sim.world.now_ps(), counts(sim, &caches));
        let SlabMessagesResult { messages, refused, .. } =
            self.phase(sim, &caches, &inboxes, self.messages)?;
        let (end_ps, after) = (sim.world.now_ps(), counts(sim, &caches));
        // What is still on its way when all have sent is received by nobody: free it.
        for inbox in inboxes {
            inbox
                .objects
                .take()
                .chunks_exact(caches.len())
                .for_each(|objects| free(sim, &caches, objects));
        }
        let counts = after.since(&before);
        Ok(SlabMessagesResult { messages, refused, real_ps: end_ps - begin_ps, ..counts })
    }

    /// All CPUs send so many messages; they begin together.
    fn phase<'t, 'm>(
        &self,
        sim: &Sim<'t, 'm>,
        caches: &Caches<'m, 't>,
        inboxes: &[Inbox],
        messages: u64,
    ) -> Result<SlabMessagesResult, Deadlock> {
        let (result, begin_ps) = (Cell::new(SlabMessagesResult::default()), sim.world.now_ps());
        let mut tasks = Tasks::default();
        for (index, &cpu) in sim.world.cpus().iter().enumerate() {
            let result = &result;
            tasks.add(cpu, move || {
                sim.world.idle_until_ps(begin_ps);
                self.play(sim, caches, inboxes, index, messages, result);
            });
        }
        sim.run(tasks)?;
        Ok(result.get())
    }

    fn play<'t, 'm>(
        &self,
        sim: &Sim<'t, 'm>,
        caches: &Caches<'m, 't>,
        inboxes: &[Inbox],
        me: usize,
        messages: u64,
        result: &Cell<SlabMessagesResult>,
    ) {
        let mut rng = Rng::with_seed(self.seed.wrapping_add(me as u64));
        // The first burst has any length, so that at any time some send and some receive.
        let (mut sent, mut burst) = (0, rng.u64(1..=self.burst));
        let mut received = Vec::new();
        while sent < messages {
            let this_burst = std::mem::replace(&mut burst, self.burst);
            for _ in 0..this_burst.min(messages - sent) {
                sim.world.point();
                sim.world.charge_ps(self.message_ps / 2);
                let mut objects = [None; CACHES_MAX];
                let objects = &mut objects[..caches.len()];
                allocate(sim, caches, objects, result);
                // Another one than this, if there is one.
                let others = (inboxes.len() - 1).max(1);
                let to = (me + 1 + rng.usize(..others)) % inboxes.len();
                inboxes[to].objects.borrow_mut().extend_from_slice(objects);
                sent += 1;
            }
            // Messages that come meanwhile are received after the next burst.
            std::mem::swap(&mut received, &mut *inboxes[me].objects.borrow_mut());
            self.receive(sim, caches, &received, result);
            received.clear();
        }
    }

    fn receive<'t, 'm>(
        &self,
        sim: &Sim<'t, 'm>,
        caches: &Caches<'m, 't>,
        received: &[Option<Address>],
        result: &Cell<SlabMessagesResult>,
    ) {
        for objects in received.chunks_exact(caches.len()) {
            sim.world.point();
            sim.world.charge_ps(self.message_ps / 2);
            free(sim, caches, objects);
            let all = result.get();
            result.set(SlabMessagesResult { messages: all.messages + 1, ..all });
        }
    }
}

fn allocate<'t, 'm>(
    sim: &Sim<'t, 'm>,
    caches: &Caches<'m, 't>,
    objects: &mut [Option<Address>],
    result: &Cell<SlabMessagesResult>,
) {
    let slab = sim.slab.expect("the run has a slab allocator");
    for (cache, object) in caches.iter().zip(objects) {
        *object = slab.alloc(cache, Gfp::KERNEL).ok();
        if object.is_none() {
            let all = result.get();
            result.set(SlabMessagesResult { refused: all.refused + 1, ..all });
        }
    }
}

fn free<'t, 'm>(sim: &Sim<'t, 'm>, caches: &Caches<'m, 't>, objects: &[Option<Address>]) {
    let slab = sim.slab.expect("the run has a slab allocator");
    for (cache, &object) in caches.iter().zip(objects) {
        let Some(object) = object else { continue };
        slab.free(cache, object).expect("the object was allocated");
    }
}

fn counts<'t, 'm>(sim: &Sim<'t, 'm>, caches: &Caches<'m, 't>) -> SlabMessagesResult {
    let slab = sim.slab.expect("the run has a slab allocator");
    let topology = sim.allocator.topology();
    let mut sum = SlabMessagesResult::default();
    for cache in caches {
        sum.stack_hits += slab.stats(cache).alloc_hits;
        for node in topology.indexes() {
            let stats = slab.node_stats(cache, node);
            let has_memory = !topology.node(node).memory.is_empty();
            *(if has_memory {
                &mut sum.memory_node_locks
            } else {
                &mut sum.memoryless_node_locks
            }) += stats.list_locks;
            sum.alien_locks += stats.alien_locks;
            sum.this_node_failures += stats.grow_failures;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::machine::Machine;
    use crate::scheduler::VirtualTime;
    use crate::sim::{self, Setup};
    use nearpage::Config;
    use nearpage_slab::SlabConfig;

    fn run(machine: &Machine, burst: u64) -> SlabMessagesResult {
        let (costs, config) = (Costs::flat(), Config::default());
        let slab = Some(SlabConfig::LINUX_2_6_35);
        let setup = Setup { machine, costs: &costs, config, slab };
        let work = SlabMessages {
            objects: vec![256, 512],
            warm_up: 0,
            messages: 2 * burst,
            burst,
            message_ps: 1_000_000,
            seed: 1,
        };
        let run = |sim: &Sim<'_, '_>| {
            let result = work.run(sim).expect("nobody waits");
            assert_eq!(sim.allocator.platform().misuses.get(), 0);
            result
        };
        sim::simulate(&setup, Box::new(VirtualTime::default()), run).expect("a machine")
    }

    #[test]
    fn objects_that_are_not_to_be_had_are_counted() {
        let result = run(&Machine::uniform(2, 2, 4 << 20), 20_000);
        assert!(result.refused > 1000, "{result:?}");
    }

    #[test]
    fn a_single_cpu_sends_to_itself() {
        let result = run(&Machine::uniform(1, 1, 64 << 20), 100);
        assert_eq!((result.messages, result.refused), (200, 0));
    }
}
