//! Tasks on virtual CPUs.
#![allow(unsafe_code)]

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::ptr;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use nearpage::CpuId;

use crate::world::{Stop, TaskId, World};

/// Bytes of a task's stack: the core's deepest path, with runs and chunks on it, takes a tenth.
const STACK_BYTES: usize = 64 << 10;

/// What is to run, and where.
#[derive(Default)]
pub struct Tasks<'a> {
    list: Vec<(CpuId, Box<dyn FnOnce() + 'a>)>,
}

impl fmt::Debug for Tasks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks").finish_non_exhaustive()
    }
}

impl<'a> Tasks<'a> {
    /// Adds a task on a CPU. Those on one CPU take turns when they wait. Their ids count from 0.
    pub fn add(&mut self, cpu: CpuId, body: impl FnOnce() + 'a) -> TaskId {
        self.list.push((cpu, Box::new(body)));
        TaskId(self.list.len() as u32 - 1)
    }
}

/// A task in a run.
struct Task {
    cpu: usize,
    /// `None` once it has ended.
    coroutine: Option<Coroutine<(), Stop, ()>>,
    yielder: *const Yielder<(), Stop>,
    is_blocked: bool,
    /// How often it has waited: a timer that it no longer waits for has an older number.
    waits: u32,
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(coroutine) = self.coroutine.as_mut().filter(|coroutine| !coroutine.done()) {
            // SAFETY: nothing that the body holds is used again: the run has failed, and its world refuses locks
            // that are still held. Unwinding instead is not possible where panics abort.
            unsafe { coroutine.force_reset() };
        }
    }
}

/// Tasks that wait and nobody who could wake them.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{blocked} of {tasks} tasks wait for ever, the first on CPU {cpu}: a wake-up was lost, or two wait for each other"
)]
pub struct Deadlock {
    /// Tasks that wait.
    pub blocked: usize,
    /// Tasks that were spawned.
    pub tasks: usize,
    /// Position of the CPU of the first.
    pub cpu: usize,
}

/// The tasks of a run.
struct Executor<'w> {
    world: &'w World,
    tasks: Vec<Task>,
    /// Tasks with work, by CPU; the first is the one that runs, or runs next.
    of_cpus: Vec<VecDeque<TaskId>>,
    /// When, whose, and for which of its waits.
    timers: BinaryHeap<Reverse<(u64, TaskId, u32)>>,
    switches: u64,
}

/// Runs all tasks to their ends; returns how often one was resumed. `look` hears of the CPU that runs next, and of its
/// clock, when a sample is due.
///
/// # Errors
/// [`Deadlock`].
///
/// # Panics
/// If the machine has no CPU that a task is for, or a task panics.
pub(crate) fn run(
    world: &World,
    tasks: Tasks<'_>,
    look: &dyn Fn(CpuId, u64),
) -> Result<u64, Deadlock> {
    let mut executor = Executor {
        world,
        tasks: Vec::with_capacity(tasks.list.len()),
        of_cpus: vec![VecDeque::new(); world.cpus().len()],
        timers: BinaryHeap::new(),
        switches: 0,
    };
    for (cpu, body) in tasks.list {
        let cpu = world.position(cpu).expect("a task is for a CPU of the machine");
        executor.add(cpu, body);
    }
    executor.run(look)?;
    Ok(executor.switches)
}

impl Executor<'_> {
    fn add(&mut self, cpu: usize, body: Box<dyn FnOnce() + '_>) {
        let stack = DefaultStack::new(STACK_BYTES).expect("address space for a stack");
        let world: *const World = self.world;
        let func = move |yielder: &Yielder<(), Stop>, ()| {
            // SAFETY: the world outlives the run, and this runs within it.
            unsafe { (*world).set_yielder(yielder) };
            body();
        };
        // SAFETY: what `body` borrows outlives the call of `run` that it was passed to; all coroutines are
        // finished or dropped when that returns, and never forgotten.
        let coroutine = unsafe { Coroutine::with_stack_unchecked(stack, func) };
        let id = TaskId(self.tasks.len() as u32);
        let (coroutine, yielder, is_blocked) = (Some(coroutine), ptr::null(), false);
        self.tasks.push(Task { cpu, coroutine, yielder, is_blocked, waits: 0 });
        self.enqueue(cpu, id);
    }

    fn run(&mut self, look: &dyn Fn(CpuId, u64)) -> Result<(), Deadlock> {
        loop {
            self.admit_woken();
            self.wake_timers();
            let next = self.world.scheduler.borrow_mut().next();
            let Some(cpu) = next else { return self.at_rest() };
            let clock_ps = self.world.clock_ps(cpu);
            if clock_ps >= self.world.next_sample_ps() {
                look(self.world.cpus()[cpu], clock_ps);
            }
            self.run_on(cpu);
        }
    }

    fn admit_woken(&mut self) {
        if self.world.woken.borrow().is_empty() {
            return;
        }
        let mut woken = self.world.woken.take();
        for (id, at_ps) in woken.drain(..) {
            let task = &mut self.tasks[id.0 as usize];
            if task.is_blocked {
                task.is_blocked = false;
                let cpu = task.cpu;
                self.wake(cpu, id, at_ps);
            }
        }
        // No task ran meanwhile, so none was woken: the list goes back with the room that it has.
        self.world.woken.replace(woken);
    }

    /// Wakes those whose time has come before any CPU's.
    fn wake_timers(&mut self) {
        while let Some(&Reverse((at_ps, id, wait))) = self.timers.peek() {
            let task = &mut self.tasks[id.0 as usize];
            if !task.is_blocked || task.waits != wait {
                self.timers.pop();
                continue;
            }
            let earliest = self.world.scheduler.borrow().earliest_ps();
            if earliest.is_some_and(|earliest| earliest < at_ps) {
                return;
            }
            self.timers.pop();
            task.is_blocked = false;
            let cpu = task.cpu;
            self.wake(cpu, id, at_ps);
        }
    }

    /// Lets the first task of a CPU run until it stops.
    fn run_on(&mut self, cpu: usize) {
        let id = *self.of_cpus[cpu].front().expect("a CPU that is ready has a task");
        let task = &mut self.tasks[id.0 as usize];
        let coroutine = task.coroutine.as_mut().expect("a task with work has not ended");
        self.switches += 1;
        self.world.dispatch(cpu, id, task.yielder);
        let result = coroutine.resume(());
        self.world.leave();
        match result {
            CoroutineResult::Yield(Stop::Preempted) => task.yielder = self.world.yielder(),
            CoroutineResult::Yield(stop) => {
                task.yielder = self.world.yielder();
                task.is_blocked = true;
                task.waits = task.waits.wrapping_add(1);
                match stop {
                    Stop::Until(ps) => self.timers.push(Reverse((ps, id, task.waits))),
                    Stop::Spins => return,
                    _ => {}
                }
                self.of_cpus[cpu].pop_front();
            }
            CoroutineResult::Return(()) => {
                task.coroutine = None;
                self.of_cpus[cpu].pop_front();
            }
        }
        if !self.of_cpus[cpu].is_empty() {
            self.world.scheduler.borrow_mut().ready(cpu, self.world.clock_ps(cpu));
        }
    }

    fn at_rest(&self) -> Result<(), Deadlock> {
        let waiting = || self.tasks.iter().filter(|task| task.coroutine.is_some());
        match waiting().next() {
            Some(first) => {
                let (blocked, tasks) = (waiting().count(), self.tasks.len());
                Err(Deadlock { blocked, tasks, cpu: first.cpu })
            }
            None => Ok(()),
        }
    }

    fn enqueue(&mut self, cpu: usize, id: TaskId) {
        self.of_cpus[cpu].push_back(id);
        if self.of_cpus[cpu].len() == 1 {
            self.world.scheduler.borrow_mut().ready(cpu, self.world.clock_ps(cpu));
        }
    }

    /// A CPU that had nothing to do, or whose task spun, has waited until now.
    fn wake(&mut self, cpu: usize, id: TaskId, at_ps: u64) {
        let spun = self.of_cpus[cpu].front() == Some(&id);
        if spun || self.of_cpus[cpu].is_empty() {
            self.world.set_clock_ps(cpu, self.world.clock_ps(cpu).max(at_ps));
        }
        match spun {
            true => self.world.scheduler.borrow_mut().ready(cpu, self.world.clock_ps(cpu)),
            false => self.enqueue(cpu, id),
        }
    }
}
