//! The bare restartable sequences, with nothing around them: the limit that benchmarks compare with.

use nearpage::CpuId;
use nearpage::platform::{Pop, Push};
use nearpage::rules::pagesets::LISTS;
use std::sync::atomic::AtomicU32;

use super::{Area, RseqUnavailable, sequences};
use crate::ring::RingList;

/// A list of numbers for each CPU, and nothing else: no frames, no zones, no tuning.
#[derive(Debug)]
pub struct BareLists {
    area: Area,
    lists: Vec<[RingList<'static>; LISTS]>,
}

impl BareLists {
    /// Lists for CPUs 0 to `cpus - 1`, each with `entries` numbers on it and room for as many more. Their
    /// memory is never freed.
    ///
    /// # Errors
    /// [`RseqUnavailable`] without restartable sequences.
    pub fn new(cpus: u32, entries: u32) -> Result<Self, RseqUnavailable> {
        let area = Area::of_glibc()?;
        let lists = (0..cpus).map(CpuId).map(|cpu| {
            std::array::from_fn(|_| {
                let ring: Vec<AtomicU32> =
                    (0..(2 * entries).next_power_of_two()).map(AtomicU32::new).collect();
                RingList::new(cpu, ring.leak())
            })
        });
        let lists: Vec<[RingList<'static>; LISTS]> = lists.collect();
        for list in lists.iter().flatten() {
            list.cursor.store(entries as u64, std::sync::atomic::Ordering::Relaxed);
        }
        Ok(Self { area, lists })
    }

    /// Takes a number from this CPU's list. `None` if it is empty, or this thread was moved meanwhile.
    #[inline(always)]
    pub fn pop(&self) -> Option<u32> {
        let area = self.area.offset();
        let lists = self.lists.get(sequences::current_cpu(area) as usize)?;
        Pop(sequences::pop(area, &lists[0])).frame()
    }

    /// Puts a number on this CPU's list; returns whether it is there.
    #[inline(always)]
    pub fn push(&self, number: u32) -> bool {
        let area = self.area.offset();
        let Some(lists) = self.lists.get(sequences::current_cpu(area) as usize) else {
            return false;
        };
        Push(sequences::push(area, &lists[0], number)).is_done()
    }

    /// One pop and one push; returns the number.
    #[inline(always)]
    pub fn pop_and_push(&self) -> Option<u32> {
        let number = self.pop()?;
        self.push(number).then_some(number)
    }
}
