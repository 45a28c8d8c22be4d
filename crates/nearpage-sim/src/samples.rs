//! What a run looked like over its model time, for plots.
//!
//! The executor looks between two tasks, once the lowest clock passes the next moment. Nothing is charged and no lock is
//! taken, so a run that is looked at does what it does otherwise. When there are too many samples, every other
//! one goes and the distance doubles: nobody needs to know beforehand how long a run takes.

use nearpage::{CpuId, PageAllocator};

use crate::platform::SimPlatform;
use crate::world::World;

/// Samples of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Samples {
    /// Time between two (ps).
    every_ps: u64,
    /// The CPU whose pagesets are looked at: the first one that ran.
    pub cpu: Option<CpuId>,
    /// Ascending by time.
    pub all: Vec<Sample>,
}

/// A moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// When (ps).
    pub at_ps: u64,
    /// Zones, by index.
    pub zones: Vec<ZoneSample>,
    /// The pagesets of the CPU that is looked at, one a zone.
    pub pagesets: Vec<PagesetSample>,
    /// Most CPUs that waited for one lock at once since the last sample.
    pub longest_queue: u64,
}

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSample {
    /// The position of its node.
    pub node: usize,
    /// Pages that it manages.
    pub managed: u64,
    /// Of those, the free ones.
    pub free: u64,
    /// Its watermarks min, low and high, pages.
    pub marks: [u64; 3],
}

/// A pageset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagesetSample {
    /// Pages in it.
    pub count: u64,
    /// The limit that it has now, pages.
    pub high: u64,
}

/// More samples than this are thinned.
const MOST: usize = 256;
/// So many distances without a sample: nothing ran.
const GAP: u64 = 16;
/// Samples that a last tick leaves, at most.
const TAIL: usize = 4;
/// The first distance.
const FIRST_PS: u64 = 1_000_000;

impl Default for Samples {
    fn default() -> Self {
        Self { every_ps: FIRST_PS, cpu: None, all: Vec::new() }
    }
}

impl Samples {
    /// Takes a sample; returns when the next one is due (ps).
    pub(crate) fn look(
        &mut self,
        world: &World,
        allocator: &PageAllocator<'_, SimPlatform<'_>>,
        cpu: CpuId,
        at_ps: u64,
    ) -> u64 {
        let cpu = *self.cpu.get_or_insert(cpu);
        let zones = allocator.zones().iter().map(|zone| {
            let marks = zone.marks();
            ZoneSample {
                node: zone.node().0 as usize,
                managed: zone.managed().0,
                free: zone.free_pages().0,
                marks: [marks.min.0, marks.low.0, marks.high.0],
            }
        });
        let pagesets = allocator.pagesets(cpu).unwrap_or_default().iter();
        let pagesets =
            pagesets.map(|set| PagesetSample { count: set.count().0, high: set.tuning().high.0 });
        let (zones, pagesets) = (zones.collect(), pagesets.collect());
        let longest_queue = world.take_longest_queue();
        self.all.push(Sample { at_ps, zones, pagesets, longest_queue });
        if self.all.len() >= MOST {
            self.thin();
        }
        (at_ps / self.every_ps + 1) * self.every_ps
    }

    /// Leaves out what a last tick of a clock shows long after the last work.
    pub(crate) fn trim(&mut self) {
        let is_gap = |pair: &[Sample]| pair[1].at_ps - pair[0].at_ps > GAP * self.every_ps;
        let tail = self.all.len().saturating_sub(TAIL + 1);
        if let Some(at) = self.all[tail..].windows(2).position(is_gap) {
            self.all.truncate(tail + at + 1);
        }
    }

    /// The later one of each two stays, with the longer queue of both.
    fn thin(&mut self) {
        self.every_ps *= 2;
        let pairs = self.all.chunks(2).filter_map(|pair| {
            let longest_queue = pair.iter().map(|sample| sample.longest_queue).max()?;
            Some(Sample { longest_queue, ..pair.last()?.clone() })
        });
        self.all = pairs.collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Costs;
    use crate::executor::Tasks;
    use crate::machine::Machine;
    use crate::scheduler::VirtualTime;
    use crate::sim::{self, Setup, Sim};
    use nearpage::{Config, Gfp, Order, Pfn, Request};

    /// CPUs allocate and free by turns; answers clocks, lines and locks at the end, and the samples.
    fn run(cpus: u32, is_sampled: bool) -> (String, Option<Samples>) {
        let machine = Machine::uniform(2, cpus.div_ceil(2), 64 << 20);
        let (costs, config) = (Costs::flat(), Config::default());
        let setup = Setup { machine: &machine, costs: &costs, config, slab: None };
        let work = |sim: &Sim<'_, '_>| {
            let mut pages: Vec<Pfn> = Vec::new();
            for round in 0..4000 {
                sim.world.point();
                sim.world.charge_ns(300.0);
                match round / 1000 % 2 {
                    0 => pages
                        .extend(sim.allocator.alloc(Request::new(Order(0), Gfp::HIGHUSER_MOVABLE))),
                    _ => sim.allocator.free(pages.pop().unwrap(), Order(0)).unwrap(),
                }
            }
        };
        let run = |sim: &Sim<'_, '_>| {
            if is_sampled {
                sim.sample();
            }
            let mut tasks = Tasks::default();
            for &cpu in sim.world.cpus().iter().take(cpus as usize) {
                tasks.add(cpu, || work(sim));
            }
            sim.run(tasks).unwrap();
            let end = (sim.world.now_ps(), sim.world.line_counts(), sim.world.lock_counts());
            (format!("{end:?}"), sim.take_samples())
        };
        sim::simulate(&setup, Box::new(VirtualTime::default()), run).unwrap()
    }

    #[test]
    fn looking_changes_nothing() {
        for cpus in [1, 4] {
            let ((without, none), (with, samples)) = (run(cpus, false), run(cpus, true));
            assert_eq!(without, with, "{cpus} CPUs");
            assert_eq!(none, None);
            assert_eq!(samples, run(cpus, true).1, "the same run, the same samples");
        }
    }

    #[test]
    fn samples_cover_the_run_and_are_few() {
        for cpus in [1, 4] {
            let samples = run(cpus, true).1.unwrap();
            let all = &samples.all;
            assert!((MOST / 4..MOST).contains(&all.len()), "{} samples", all.len());
            assert!(all.is_sorted_by(|one, other| one.at_ps <= other.at_ps));
            let free = |sample: &Sample| sample.zones.iter().map(|zone| zone.free).sum::<u64>();
            let least = all.iter().map(free).min().unwrap();
            assert!(least + 900 * u64::from(cpus) < free(&all[0]), "it sees the pages go");
            assert!(all.iter().any(|sample| sample.pagesets.iter().any(|set| set.count > 0)));
            let gaps = all.windows(2).map(|pair| pair[1].at_ps - pair[0].at_ps);
            assert!(gaps.max().unwrap() < 5 * samples.every_ps, "no part of it is left out");
        }
    }

    #[test]
    fn what_comes_long_after_the_work_is_left_out() {
        let mut samples = run(4, true).1.unwrap();
        let (count, last) = (samples.all.len(), samples.all.last().unwrap().clone());
        samples.trim();
        assert_eq!(samples.all.len(), count);
        for later in [1, 2] {
            let at_ps = last.at_ps + 100 * samples.every_ps + later;
            samples.all.push(Sample { at_ps, ..last.clone() });
        }
        samples.trim();
        assert_eq!(samples.all.len(), count);
    }
}
