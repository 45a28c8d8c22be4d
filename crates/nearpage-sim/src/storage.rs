//! Pagesets of a simulated machine: the core's linked lists, exclusive by construction.
//!
//! Under a hunting scheduler each change of a list has a point before and after it, and checks that nobody else
//! changed the list in between: whoever proved to be alone at a CPU's lists must be.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use nearpage::platform::{
    CountedList, CurrentCpu, EachList, Exclusion, LinkedList, Pop, Push, SerialStorage, Storage,
    ZoneFrames,
};
use nearpage::{CpuId, Order};
use nearpage_slab::{ArrayStack, ObjectStorage};

use crate::world::World;

/// The CPU that runs, and who is at whose pagesets.
pub struct SimCpus<'w> {
    pub(crate) world: &'w World,
    /// Planted in tests: whoever comes may.
    pub(crate) lets_everybody_in: Cell<bool>,
}

impl CurrentCpu for SimCpus<'_> {
    #[inline]
    fn current_cpu(&self) -> CpuId {
        self.world.cpu_id()
    }
}

/// Whether somebody is at a CPU's pagesets. One thread runs everything: the atomic is for the trait's sake, and
/// plain loads and stores do.
#[derive(Debug, Default)]
pub struct Busy(AtomicBool);

/// Proof of being alone at a CPU's pagesets.
pub struct Alone<'a>(&'a Busy);

impl fmt::Debug for Alone<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}

impl Drop for Alone<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Relaxed);
    }
}

impl Exclusion for SimCpus<'_> {
    type PerCpu = Busy;
    type OnCpu<'a>
        = Alone<'a>
    where
        Self: 'a;

    #[inline]
    fn enter<'a>(&'a self, per_cpu: &'a Busy) -> Option<Alone<'a>> {
        if per_cpu.0.load(Ordering::Relaxed) && !self.lets_everybody_in.get() {
            return None;
        }
        per_cpu.0.store(true, Ordering::Relaxed);
        Some(Alone(per_cpu))
    }
}

type Inner<'w> = SerialStorage<SimCpus<'w>>;

/// The storage.
pub struct SimStorage<'w>(Inner<'w>);

impl fmt::Debug for SimStorage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimStorage").finish_non_exhaustive()
    }
}

impl<'w> SimStorage<'w> {
    pub(crate) fn new(world: &'w World) -> Self {
        Self(SerialStorage(SimCpus { world, lets_everybody_in: Cell::new(false) }))
    }

    /// Plants a bug: a drain from outside does not wait for the CPU that is at its lists.
    pub fn plant_drain_against_push(&self) {
        self.0.0.lets_everybody_in.set(true);
    }

    /// A change of a list, in three steps if somebody may interrupt.
    #[inline]
    fn change<R>(&self, list: &LinkedList, change: impl FnOnce() -> R) -> R {
        let world = self.0.0.world;
        if !world.is_hunted() {
            return change();
        }
        let before = list.counts();
        world.point();
        assert_eq!(list.counts(), before, "two are at the lists of one CPU");
        let result = change();
        let after = list.counts();
        world.point();
        assert_eq!(list.counts(), after, "two are at the lists of one CPU");
        result
    }
}

impl<'w> Storage for SimStorage<'w> {
    type List<'m> = LinkedList;
    type PerCpu = Busy;
    type OnCpu<'a>
        = Alone<'a>
    where
        Self: 'a;
    const EXACT: bool = true;

    fn ring_entries(order: Order, high_max: u32) -> u32 {
        Inner::ring_entries(order, high_max)
    }

    fn per_cpu(cpu: CpuId) -> Busy {
        Inner::per_cpu(cpu)
    }

    fn list(cpu: CpuId, ring: &[AtomicU32]) -> LinkedList {
        Inner::list(cpu, ring)
    }

    #[inline]
    fn current_cpu(&self) -> CpuId {
        self.0.current_cpu()
    }

    #[inline]
    fn enter<'a>(&'a self, cpu: CpuId, per_cpu: &'a Busy) -> Option<Alone<'a>> {
        self.0.enter(cpu, per_cpu)
    }

    #[inline]
    fn pop(&self, on: &Alone<'_>, list: &LinkedList, frames: &ZoneFrames<'_>) -> Pop {
        self.change(list, || self.0.pop(on, list, frames))
    }

    #[inline]
    fn push(
        &self,
        on: &Alone<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        number: u32,
    ) -> Push {
        self.change(list, || self.0.push(on, list, frames, number))
    }

    fn pop_batch(
        &self,
        on: &Alone<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        self.change(list, || self.0.pop_batch(on, list, frames, out))
    }

    fn push_batch(
        &self,
        on: &Alone<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        numbers: &[u32],
    ) -> usize {
        self.change(list, || self.0.push_batch(on, list, frames, numbers))
    }

    fn append_run(
        &self,
        on: &Alone<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        first: u32,
        order: Order,
        blocks: u32,
    ) -> u32 {
        self.change(list, || self.0.append_run(on, list, frames, first, order, blocks))
    }

    fn pop_cold(
        &self,
        on: &Alone<'_>,
        list: &LinkedList,
        frames: &ZoneFrames<'_>,
        out: &mut [u32],
    ) -> usize {
        self.change(list, || self.0.pop_cold(on, list, frames, out))
    }

    fn for_each(list: &LinkedList, frames: &ZoneFrames<'_>, each: &mut dyn FnMut(u32)) {
        Inner::for_each(list, frames, each);
    }

    fn stop<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a Busy,
        lists: &EachList<'_, LinkedList>,
    ) -> Option<Alone<'a>> {
        self.0.stop(cpu, per_cpu, lists)
    }

    fn resume(&self, on: Alone<'_>, lists: &EachList<'_, LinkedList>) {
        self.0.resume(on, lists);
    }
}

/// Objects: as frames, without the steps.
impl ObjectStorage for SimStorage<'_> {
    type Stack<'m> = ArrayStack<'m>;

    fn stack<'m>(cpu: CpuId, entries: &'m [AtomicU32]) -> ArrayStack<'m> {
        Inner::stack(cpu, entries)
    }

    #[inline]
    fn pop_object(&self, on: &Alone<'_>, stack: &ArrayStack<'_>) -> Pop {
        self.0.pop_object(on, stack)
    }

    #[inline]
    fn push_object(&self, on: &Alone<'_>, stack: &ArrayStack<'_>, entry: u32) -> Push {
        self.0.push_object(on, stack, entry)
    }

    fn pop_objects(&self, on: &Alone<'_>, stack: &ArrayStack<'_>, out: &mut [u32]) -> usize {
        self.0.pop_objects(on, stack, out)
    }

    fn push_objects(&self, on: &Alone<'_>, stack: &ArrayStack<'_>, entries: &[u32]) -> usize {
        self.0.push_objects(on, stack, entries)
    }

    fn pop_oldest(&self, on: &Alone<'_>, stack: &ArrayStack<'_>, out: &mut [u32]) -> usize {
        self.0.pop_oldest(on, stack, out)
    }

    fn each_entry(stack: &ArrayStack<'_>, each: &mut dyn FnMut(u32)) {
        Inner::each_entry(stack, each);
    }

    fn stop_stacks<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a Busy,
        stacks: &EachList<'_, ArrayStack<'_>>,
    ) -> Option<Alone<'a>> {
        self.0.stop_stacks(cpu, per_cpu, stacks)
    }

    fn resume_stacks(&self, on: Alone<'_>, stacks: &EachList<'_, ArrayStack<'_>>) {
        self.0.resume_stacks(on, stacks);
    }
}
