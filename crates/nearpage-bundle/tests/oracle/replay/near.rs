//! Near its high mark a few pages decide. What a text tells of the start of such an experiment, and what not.
//!
//! A zone without single pages of the wanted type gives some of another type's pageblocks. Freed, they go to that type's
//! list of the pageset, where the next allocations do not find them: a refill then comes although the pageset has pages.
//! Which pageblocks were of which type is not recorded, so from there on the text cannot be predicted.

use crate::text::pcp::{Burst, BurstRecord, Ending, Experiment, Held, Record};

/// A zone that the module brings near its high mark.
#[derive(Clone, Copy)]
pub struct Start {
    /// Free pages before anything was taken.
    pub pages: u64,
    /// Free pages before the first burst.
    pub left: u64,
    /// How many were to be left.
    pub goal: u64,
    /// Records before the first in which pages of another type show.
    pub predictable: usize,
}

impl Start {
    /// The start of an experiment, if it is one of those. Before its first burst the zone must have had what it, the
    /// pageset and the module have after it.
    pub fn of(experiment: &Experiment) -> Result<Option<Self>, String> {
        let mut records = experiment.records.iter();
        let held = records.by_ref().find_map(|record| match record {
            Record::Held(held) => Some(*held),
            _ => None,
        });
        let Some(Held { pages, goal }) = held else { return Ok(None) };
        let bursts: Vec<&BurstRecord> = records.filter_map(burst).collect();
        let first = bursts.first().filter(|first| first.burst == Burst::Alloc);
        let told = first.and_then(|first| Some((first, allocated(&bursts)? << first.order.0)));
        let (first, allocated) =
            told.ok_or("the first burst near the watermark does not tell the pages before it")?;
        let left = first.zone_free + first.after.count + allocated;
        let predictable = pure_records(&experiment.records);
        Ok(Some(Self { pages: pages + left, left, goal, predictable }))
    }
}

/// Records before the first refill of a pageset that still had pages.
fn pure_records(records: &[Record]) -> usize {
    let mut cached = 0;
    let is_mixed = |record: &Record| {
        let before = cached;
        cached = match record {
            Record::Reset(after) | Record::Decay { after, .. } => after.count,
            Record::Held(_) => 0,
            Record::Burst(burst) => burst.after.count,
        };
        burst(record)
            .is_some_and(|burst| burst.burst == Burst::Alloc && refills_early(burst, before))
    };
    records.iter().position(is_mixed).unwrap_or(records.len())
}

/// Whether one of the refills came while pages were left, of so many before the burst.
fn refills_early(burst: &BurstRecord, mut cached: u64) -> bool {
    let mut next = 0;
    burst.events.iter().any(|event| {
        let left = cached.saturating_sub((event.operation - next) << burst.order.0);
        (cached, next) = (event.state.count, event.operation + 1);
        left > 0
    })
}

fn burst(record: &Record) -> Option<&BurstRecord> {
    match record {
        Record::Burst(burst) => Some(burst),
        _ => None,
    }
}

/// Blocks that the first burst allocated. A burst that failed does not say how many: all were freed after the
/// allocations, and those that followed a failure failed at once.
fn allocated(bursts: &[&BurstRecord]) -> Option<u64> {
    let told = |burst: &&BurstRecord| match burst.ending {
        Ending::Complete => Some(burst.operations),
        Ending::OtherZone(at) => Some(at),
        Ending::Failure => None,
    };
    let (first, rest) = bursts.split_first()?;
    if let Some(blocks) = told(first) {
        return Some(blocks);
    }
    let allocations = rest.iter().take_while(|burst| burst.burst == Burst::Alloc);
    let more = allocations.clone().filter_map(told).sum::<u64>();
    let frees = rest.iter().skip(allocations.count());
    let freed = frees.take_while(|burst| burst.burst != Burst::Alloc).map(|burst| burst.operations);
    freed.sum::<u64>().checked_sub(more)
}

mod tests {
    use super::*;
    use crate::text::pcp::read;

    const HEAD: &str = "ORACLE what=pcp cpu=5\nTARGET node=0 zone=Normal managed=9 min=1 low=2 high=3 free=-1 \
        batch=63 high_min=252 high_max=1884 cpu=5 reserve=0\nEXP name=c8\nHELD pages=100 zfree=40 target=-7\n";

    #[test]
    fn a_refill_of_a_pageset_with_pages_is_of_another_type() {
        let told = |second: &str| {
            let state = "high=252 af=0 fc=0 fl=0 zfree=37 zflags=0";
            let first = format!("B a n=10 order=0 : 0/6/9/0/0 7/6/9/0/0 | count=4 {state}\n");
            let text = format!("{HEAD}{first}B a n=9 order=0 : {second} | count=4 {state}\n");
            let start = Start::of(&read(&text).unwrap().1[0]).unwrap();
            start.map(|start| start.predictable)
        };
        assert_eq!(told("4/6/9/0/0"), Some(3));
        assert_eq!(told("3/6/9/0/0"), Some(2));
        assert_eq!(told("4/6/9/0/0 10/6/9/0/0"), Some(2));
        assert_eq!(told(""), Some(3));
    }

    fn start(bursts: &[&str]) -> Option<[u64; 3]> {
        let state = "count=3 high=252 af=0 fc=0 fl=0 zfree=37 zflags=0";
        let burst = |line: &&str| {
            let (head, ending) = line.split_once('|').expect("a burst and how it ended");
            format!("B {head} : | {state}{ending}\n")
        };
        let text = HEAD.to_owned() + &bursts.iter().map(burst).collect::<String>();
        let (target, experiments) = read(&text).unwrap();
        assert_eq!(target.free, 0, "a counter below zero reads as nothing");
        let start = Start::of(&experiments[0]).ok()??;
        Some([start.pages, start.left, start.goal])
    }

    #[test]
    fn the_first_burst_or_what_was_freed_tells_the_pages() {
        assert_eq!(start(&["a n=10 order=0|"]), Some([150, 50, 0]));
        assert_eq!(start(&["a n=10 order=1| spilled_at=4"]), Some([148, 48, 0]));
        assert_eq!(start(&["a n=10 order=0| spilled_at=0"]), Some([140, 40, 0]));
        let fails = "a n=10 order=0| fails=1";
        let freed = ["f n=4 order=0|", "f n=2 order=0|", "a n=9 order=0|"];
        assert_eq!(start(&[&[fails, fails], &freed[..]].concat()), Some([146, 46, 0]));
        assert_eq!(start(&[fails, "a n=7 order=0| spilled_at=1", freed[0]]), Some([143, 43, 0]));
        assert_eq!(start(&[fails]), Some([140, 40, 0]));
        assert_eq!(start(&[fails, "a n=7 order=0|", freed[0]]), None);
        assert_eq!(start(&[freed[0]]), None);
        assert_eq!(start(&[]), None);
    }
}
