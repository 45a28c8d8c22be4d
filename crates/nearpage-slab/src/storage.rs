//! Per-CPU stacks of objects: the four operations of [`nearpage::platform::Storage`], on entries that are not frames.
//!
//! Rings keep objects as they keep frames. Storages that link frames cannot link objects, whose memory the core
//! does not touch: they get an array.

use core::sync::atomic::{AtomicU32, Ordering};

use nearpage::CpuId;
use nearpage::internals::OwnedCounter;
use nearpage::platform::{
    CountedList, EachList, Exclusion, ListCounts, Pop, Push, SerialStorage, Storage,
};

/// How the stacks of objects are kept: exclusive in the same way as a CPU's lists of frames.
pub trait ObjectStorage: Storage {
    /// One stack.
    type Stack<'m>: CountedList;

    /// An empty stack of `cpu` on `entries`, whose number is a power of two.
    fn stack<'m>(cpu: CpuId, entries: &'m [AtomicU32]) -> Self::Stack<'m>;

    /// Takes the hottest entry.
    fn pop_object(&self, on: &Self::OnCpu<'_>, stack: &Self::Stack<'_>) -> Pop;

    /// Puts an entry at the hot end.
    fn push_object(&self, on: &Self::OnCpu<'_>, stack: &Self::Stack<'_>, entry: u32) -> Push;

    /// As [`Storage::pop_batch`].
    fn pop_objects(&self, on: &Self::OnCpu<'_>, stack: &Self::Stack<'_>, out: &mut [u32]) -> usize;

    /// As [`Storage::push_batch`].
    fn push_objects(&self, on: &Self::OnCpu<'_>, stack: &Self::Stack<'_>, entries: &[u32])
    -> usize;

    /// As [`Storage::pop_cold`]: the oldest entries.
    fn pop_oldest(&self, on: &Self::OnCpu<'_>, stack: &Self::Stack<'_>, out: &mut [u32]) -> usize;

    /// Calls `each` for every entry, hottest first. While others use the stack, some may be missing or told that are not
    /// there any more.
    fn each_entry(stack: &Self::Stack<'_>, each: &mut dyn FnMut(u32));

    /// As [`Storage::stop`].
    fn stop_stacks<'a>(
        &'a self,
        cpu: CpuId,
        per_cpu: &'a Self::PerCpu,
        stacks: &EachList<'_, Self::Stack<'_>>,
    ) -> Option<Self::OnCpu<'a>>;

    /// As [`Storage::resume`].
    fn resume_stacks(&self, on: Self::OnCpu<'_>, stacks: &EachList<'_, Self::Stack<'_>>);
}

/// An array of entries, the oldest first. Whoever uses it holds its CPU.
#[derive(Debug)]
pub struct ArrayStack<'m> {
    entries: &'m [AtomicU32],
    count: AtomicU32,
    limit: AtomicU32,
    pops: OwnedCounter,
    pushes: OwnedCounter,
}

impl ArrayStack<'_> {
    fn held(&self) -> &[AtomicU32] {
        &self.entries[..self.count.load(Ordering::Relaxed) as usize]
    }

    #[inline]
    fn pop(&self) -> Option<u32> {
        let count = self.count.load(Ordering::Relaxed).checked_sub(1)?;
        self.count.store(count, Ordering::Relaxed);
        Some(self.entries[count as usize].load(Ordering::Relaxed))
    }

    #[inline]
    fn push(&self, entry: u32) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        if count >= self.limit.load(Ordering::Relaxed) {
            return false;
        }
        self.entries[count as usize].store(entry, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Relaxed);
        true
    }
}

impl CountedList for ArrayStack<'_> {
    fn counts(&self) -> ListCounts {
        ListCounts {
            count: self.count.load(Ordering::Relaxed),
            pops: self.pops.get(),
            pushes: self.pushes.get(),
        }
    }

    fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    fn set_limit(&self, entries: u32) -> u32 {
        let limit = entries.min(self.capacity());
        self.limit.store(limit, Ordering::Relaxed);
        limit
    }

    fn capacity(&self) -> u32 {
        self.entries.len() as u32
    }
}

impl<X: Exclusion> ObjectStorage for SerialStorage<X> {
    type Stack<'m> = ArrayStack<'m>;

    fn stack<'m>(_cpu: CpuId, entries: &'m [AtomicU32]) -> ArrayStack<'m> {
        ArrayStack {
            entries,
            count: AtomicU32::new(0),
            limit: AtomicU32::new(entries.len() as u32),
            pops: OwnedCounter::new(),
            pushes: OwnedCounter::new(),
        }
    }

    #[inline]
    fn pop_object(&self, _on: &X::OnCpu<'_>, stack: &ArrayStack<'_>) -> Pop {
        let Some(entry) = stack.pop() else { return Pop::EMPTY };
        stack.pops.add(1);
        Pop(entry)
    }

    #[inline]
    fn push_object(&self, _on: &X::OnCpu<'_>, stack: &ArrayStack<'_>, entry: u32) -> Push {
        if !stack.push(entry) {
            return Push::FULL;
        }
        stack.pushes.add(1);
        Push::DONE
    }

    fn pop_objects(&self, _on: &X::OnCpu<'_>, stack: &ArrayStack<'_>, out: &mut [u32]) -> usize {
        let mut taken = 0;
        while taken < out.len()
            && let Some(entry) = stack.pop()
        {
            out[taken] = entry;
            taken += 1;
        }
        stack.pops.add(taken as u64);
        taken
    }

    fn push_objects(&self, _on: &X::OnCpu<'_>, stack: &ArrayStack<'_>, entries: &[u32]) -> usize {
        let pushed = entries.iter().take_while(|&&entry| stack.push(entry)).count();
        stack.pushes.add(pushed as u64);
        pushed
    }

    fn pop_oldest(&self, _on: &X::OnCpu<'_>, stack: &ArrayStack<'_>, out: &mut [u32]) -> usize {
        let held = stack.held();
        let taken = out.len().min(held.len());
        for (slot, entry) in out.iter_mut().zip(held) {
            *slot = entry.load(Ordering::Relaxed);
        }
        for (to, from) in held.iter().zip(&held[taken..]) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        stack.count.store((held.len() - taken) as u32, Ordering::Relaxed);
        taken
    }

    fn each_entry(stack: &ArrayStack<'_>, each: &mut dyn FnMut(u32)) {
        stack.held().iter().rev().for_each(|entry| each(entry.load(Ordering::Relaxed)));
    }

    fn stop_stacks<'a>(
        &'a self,
        _cpu: CpuId,
        per_cpu: &'a X::PerCpu,
        _stacks: &EachList<'_, ArrayStack<'_>>,
    ) -> Option<X::OnCpu<'a>> {
        self.0.enter(per_cpu)
    }

    fn resume_stacks(&self, _on: X::OnCpu<'_>, _stacks: &EachList<'_, ArrayStack<'_>>) {}
}

#[cfg(test)]
mod tests {
    use nearpage::platform::{ChosenCpu, Single};

    use super::*;

    #[test]
    fn an_array_is_taken_from_both_ends() {
        let storage = SerialStorage(Single(ChosenCpu::default()));
        let entries = [const { AtomicU32::new(0) }; 8];
        let stack = SerialStorage::<Single<ChosenCpu>>::stack(CpuId(0), &entries);
        storage.enter(CpuId(0), &()).unwrap();
        let on = ();
        assert_eq!(stack.set_limit(6), 6);
        assert_eq!(storage.push_objects(&on, &stack, &[1, 2, 3, 4, 5, 6, 7]), 6);
        assert_eq!(storage.push_object(&on, &stack, 7), Push::FULL);
        assert_eq!(storage.pop_object(&on, &stack), Pop(6));
        let mut out = [0; 3];
        assert_eq!(storage.pop_oldest(&on, &stack, &mut out[..2]), 2);
        assert_eq!(out[..2], [1, 2]);
        assert_eq!(storage.pop_objects(&on, &stack, &mut out), 3);
        assert_eq!(out, [5, 4, 3]);
        assert_eq!(storage.pop_object(&on, &stack), Pop::EMPTY);
        assert_eq!(storage.pop_oldest(&on, &stack, &mut out), 0);
    }
}
