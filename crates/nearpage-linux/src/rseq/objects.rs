//! Stacks of objects as rings: the same sequences, on entries that are not frames.

use nearpage::pcp::storage::{EachList, Pop, Push, Storage};
use nearpage::slab::ObjectStorage;
use nearpage::sync::AtomicU32;
use nearpage::units::CpuId;

use super::{CpuState, Here, RingStorage, batch, sequences};
use crate::ring::RingList;

impl ObjectStorage for RingStorage {
    type Stack<'m> = RingList<'m>;

    fn stack<'m>(cpu: CpuId, entries: &'m [AtomicU32]) -> RingList<'m> {
        RingList::new(cpu, entries)
    }

    #[inline(always)]
    fn pop_object(&self, on: &Here<'_>, stack: &RingList<'_>) -> Pop {
        Pop(sequences::pop(on.area, stack))
    }

    #[inline(always)]
    fn push_object(&self, on: &Here<'_>, stack: &RingList<'_>, entry: u32) -> Push {
        Push(sequences::push(on.area, stack, entry))
    }

    fn pop_objects(&self, on: &Here<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        batch(on, stack, || sequences::pop_batch(on.area, stack, out)) as usize
    }

    fn push_objects(&self, on: &Here<'_>, stack: &RingList<'_>, entries: &[u32]) -> usize {
        batch(on, stack, || sequences::push_batch(on.area, stack, entries)) as usize
    }

    fn pop_oldest(&self, on: &Here<'_>, stack: &RingList<'_>, out: &mut [u32]) -> usize {
        if on.stopped.is_some() {
            return stack.pop_cold(out);
        }
        batch(on, stack, || sequences::pop_cold(on.area, stack, out)) as usize
    }

    fn each_entry(stack: &RingList<'_>, each: &mut dyn FnMut(u32)) {
        stack.for_each(each);
    }

    fn stop_stacks<'a>(
        &'a self,
        cpu: CpuId,
        state: &'a CpuState,
        stacks: &EachList<'_, RingList<'_>>,
    ) -> Option<Here<'a>> {
        <Self as Storage>::stop(self, cpu, state, stacks)
    }

    fn resume_stacks(&self, on: Here<'_>, stacks: &EachList<'_, RingList<'_>>) {
        <Self as Storage>::resume(self, on, stacks);
    }
}
