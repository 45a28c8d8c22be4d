//! A sample as a list of numbers and back. One walk over its fields serves both directions, so they cannot differ.

use std::collections::HashMap;

use crate::placement::{Placement, ProcessSample, Processes};
use crate::sample::{EVENTS, NUMA, NodeSample, PagesetSample, Sample, ZoneSample};

/// The texts that a slot has had, by their numbers; of a file that is read.
pub(super) type ReadTexts = Vec<Box<str>>;

/// The same of a file that is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Texts {
    list: Vec<String>,
    numbers: HashMap<String, u64>,
}

impl Texts {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Those from the `first` on.
    pub(super) fn since(&self, first: usize) -> &[String] {
        &self.list[first..]
    }

    fn push(&mut self, text: String) {
        self.numbers.insert(text.clone(), self.list.len() as u64);
        self.list.push(text);
    }

    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        self.push(text.to_owned());
        self.list.len() as u64 - 1
    }
}

/// What a text costs beside its bytes.
const TEXT_COSTS: usize = 16;

/// One direction. `None` ends a walk over numbers that nobody wrote.
trait Walk {
    /// Takes room for something of a list.
    fn room(&mut self, bytes: usize) -> Option<()>;
    fn number(&mut self, number: &mut u64) -> Option<()>;
    fn text(&mut self, text: &mut String) -> Option<()>;
    /// The names of counters are those of this program; others are dropped.
    fn counters(
        &mut self,
        list: &mut Vec<(&'static str, u64)>,
        names: &[&'static str],
    ) -> Option<()>;
}

struct Out<'a> {
    numbers: &'a mut Vec<u64>,
    texts: &'a mut Texts,
}

impl Walk for Out<'_> {
    fn room(&mut self, _: usize) -> Option<()> {
        Some(())
    }

    fn number(&mut self, number: &mut u64) -> Option<()> {
        self.numbers.push(*number);
        Some(())
    }

    fn text(&mut self, text: &mut String) -> Option<()> {
        let number = self.texts.number(text);
        self.numbers.push(number);
        Some(())
    }

    fn counters(&mut self, list: &mut Vec<(&'static str, u64)>, _: &[&'static str]) -> Option<()> {
        self.numbers.push(list.len() as u64);
        for (name, count) in list {
            let name = self.texts.number(name);
            self.numbers.extend([name, *count]);
        }
        Some(())
    }
}

struct In<'a> {
    numbers: &'a [u64],
    texts: &'a ReadTexts,
    /// What the sample may still have.
    bytes_left: usize,
}

/// What a sample is in memory, at most. A number may name a text of any length, over and over: that is no length to believe.
const SAMPLE_BYTES_MOST: usize = 24 << 20;

impl In<'_> {
    fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.numbers.split_first()?;
        self.numbers = rest;
        Some(*first)
    }

    fn known_text(&mut self) -> Option<&'_ str> {
        let number = usize::try_from(self.next()?).ok()?;
        self.texts.get(number).map(|text| &**text)
    }
}

impl Walk for In<'_> {
    fn room(&mut self, bytes: usize) -> Option<()> {
        self.bytes_left = self.bytes_left.checked_sub(bytes)?;
        Some(())
    }

    fn number(&mut self, number: &mut u64) -> Option<()> {
        *number = self.next()?;
        Some(())
    }

    fn text(&mut self, text: &mut String) -> Option<()> {
        let known = self.known_text()?.to_owned();
        self.room(known.len() + TEXT_COSTS)?;
        *text = known;
        Some(())
    }

    fn counters(
        &mut self,
        list: &mut Vec<(&'static str, u64)>,
        names: &[&'static str],
    ) -> Option<()> {
        for _ in 0..self.next()? {
            let name = self.known_text()?;
            let name = names.iter().find(|known| **known == name).copied();
            let count = self.next()?;
            if let Some(name) = name {
                self.room(2 * size_of::<(&str, u64)>())?;
                list.push((name, count));
            }
        }
        Some(())
    }
}

/// Adds a sample's numbers to a list, and its texts to those of the slot.
pub(super) fn flatten(mut sample: Sample, numbers: &mut Vec<u64>, texts: &mut Texts) {
    numbers.clear();
    let walked = of_sample(&mut Out { numbers, texts }, &mut sample);
    debug_assert!(walked.is_some(), "a walk that writes does not end early");
}

/// The sample of a list of numbers.
pub(super) fn unflatten(numbers: &[u64], texts: &ReadTexts) -> Option<Sample> {
    let mut sample = Sample::default();
    of_sample(&mut In { numbers, texts, bytes_left: SAMPLE_BYTES_MOST }, &mut sample)?;
    Some(sample)
}

fn of_sample(walk: &mut impl Walk, sample: &mut Sample) -> Option<()> {
    walk.number(&mut sample.time_ms)?;
    let mut kernel = sample.kernel.take().unwrap_or_default();
    walk.text(&mut kernel)?;
    sample.kernel = Some(kernel).filter(|kernel| !kernel.is_empty());
    optional(walk, &mut sample.zone_reclaim_mode)?;
    list(walk, &mut sample.nodes, of_node)?;
    list(walk, &mut sample.zones, of_zone)?;
    walk.counters(&mut sample.events, &EVENTS)?;
    list(walk, &mut sample.unreadable, |walk, text| walk.text(text))?;
    of_processes(walk, &mut sample.processes)
}

fn of_node(walk: &mut impl Walk, node: &mut NodeSample) -> Option<()> {
    narrow(walk, &mut node.node)?;
    walk.text(&mut node.cpus)?;
    for kib in [
        &mut node.total,
        &mut node.free,
        &mut node.file,
        &mut node.anon,
        &mut node.slab,
        &mut node.shmem,
        &mut node.anon_huge,
    ] {
        optional(walk, kib)?;
    }
    let (mut all, mut free) = (node.hugetlb.map(|huge| huge.0), node.hugetlb.map(|huge| huge.1));
    optional(walk, &mut all)?;
    optional(walk, &mut free)?;
    node.hugetlb = all.zip(free);
    list(walk, &mut node.distances, narrow)?;
    walk.counters(&mut node.numa, &NUMA)
}

fn of_zone(walk: &mut impl Walk, zone: &mut ZoneSample) -> Option<()> {
    narrow(walk, &mut zone.node)?;
    walk.text(&mut zone.zone)?;
    narrow(walk, &mut zone.cpus)?;
    for pages in [
        &mut zone.free,
        &mut zone.boost,
        &mut zone.min,
        &mut zone.low,
        &mut zone.high,
        &mut zone.promo,
        &mut zone.present,
        &mut zone.managed,
        &mut zone.pageset_pages,
        &mut zone.numa_hit,
        &mut zone.numa_miss,
        &mut zone.numa_foreign,
    ] {
        optional(walk, pages)?;
    }
    list(walk, &mut zone.protection, |walk, pages| walk.number(pages))?;
    list(walk, &mut zone.blocks, |walk, count| walk.number(count))?;
    list(walk, &mut zone.pagesets, of_pageset)
}

fn of_pageset(walk: &mut impl Walk, pageset: &mut PagesetSample) -> Option<()> {
    narrow(walk, &mut pageset.cpu)?;
    walk.number(&mut pageset.count)?;
    walk.number(&mut pageset.high)?;
    walk.number(&mut pageset.batch)
}

fn of_processes(walk: &mut impl Walk, processes: &mut Processes) -> Option<()> {
    for count in [&mut processes.seen, &mut processes.denied, &mut processes.waiting] {
        let mut number = *count as u64;
        walk.number(&mut number)?;
        *count = usize::try_from(number).ok()?;
    }
    // By PID, so that two that change places differ in nothing.
    processes.list.sort_unstable_by_key(|process| process.pid);
    list(walk, &mut processes.list, of_process)?;
    processes.list.sort_unstable_by_key(|process| (u64::MAX - process.rss, process.pid));
    Some(())
}

fn of_process(walk: &mut impl Walk, process: &mut ProcessSample) -> Option<()> {
    narrow(walk, &mut process.pid)?;
    walk.text(&mut process.name)?;
    walk.text(&mut process.may_use)?;
    walk.number(&mut process.rss)?;
    for number in [&mut process.uid, &mut process.runs_on] {
        let mut wide = number.map(u64::from);
        optional(walk, &mut wide)?;
        *number = wide.and_then(|wide| u32::try_from(wide).ok());
    }
    optional(walk, &mut process.placed_ago)?;
    optional(walk, &mut process.minor_faults)?;
    optional(walk, &mut process.major_faults)?;
    let at = Placement::ALL.iter().position(|placement| *placement == process.placement);
    let mut at = at.unwrap_or(0) as u64;
    walk.number(&mut at)?;
    process.placement = *Placement::ALL.get(usize::try_from(at).ok()?)?;
    list(walk, &mut process.nodes, |walk, (node, kib)| {
        narrow(walk, node)?;
        walk.number(kib)
    })
}

fn optional(walk: &mut impl Walk, number: &mut Option<u64>) -> Option<()> {
    let (mut is_there, mut value) = (u64::from(number.is_some()), number.unwrap_or(0));
    walk.number(&mut is_there)?;
    walk.number(&mut value)?;
    *number = (is_there == 1).then_some(value);
    Some(())
}

fn narrow(walk: &mut impl Walk, number: &mut u32) -> Option<()> {
    let mut wide = u64::from(*number);
    walk.number(&mut wide)?;
    *number = u32::try_from(wide).ok()?;
    Some(())
}

/// Elements one by one: a length that nobody wrote ends with the numbers.
fn list<W: Walk, T: Default>(
    walk: &mut W,
    list: &mut Vec<T>,
    mut each: impl FnMut(&mut W, &mut T) -> Option<()>,
) -> Option<()> {
    let mut length = list.len() as u64;
    walk.number(&mut length)?;
    for at in 0..usize::try_from(length).ok()? {
        if at == list.len() {
            // A list that grows has room for as many again.
            walk.room(2 * size_of::<T>())?;
            list.push(T::default());
        }
        each(walk, &mut list[at])?;
    }
    Some(())
}
