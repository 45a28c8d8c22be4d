//! What a run costs: holds of zone locks by cause, and pages kept in pagesets over time.
//!
//! Holds are counted twice. *Acquisitions* are those that move pages ([`Zone::holds`](nearpage::stats::Zone::holds)): the bound
//! is compared with them. *All holds* are those of [`Zone::work`](nearpage::stats::Zone::work), and takes of another CPU's
//! pagesets: rules are compared by them. Rules that move pages without a zone's lock write words that all CPUs share: each
//! write counts as a hold.

use std::collections::BTreeMap;

use nearpage::stats::LockWork;
use nearpage::{CpuId, Order, Pfn};
use serde::Serialize;

use crate::bound::Asked;
use crate::events::Actor;
use crate::machine::Core;

use super::whole::Whole;

/// Holds of zone locks, by what caused them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Causes {
    /// An allocation for which a pageset was refilled.
    pub refill: u64,
    /// A free after which a pageset was drained.
    pub drain: u64,
    /// Allocations and frees past the pagesets, by order.
    pub direct: BTreeMap<u8, u64>,
    /// Drains of another CPU's pagesets.
    pub foreign: u64,
    /// The once-a-second work of each CPU.
    pub upkeep: u64,
}

impl Causes {
    /// All holds.
    pub fn sum(&self) -> u64 {
        let Causes { refill, drain, direct, foreign, upkeep } = self;
        refill + drain + direct.values().sum::<u64>() + foreign + upkeep
    }
}

/// Pages in the pagesets of all CPUs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Kept {
    /// The mean over time.
    pub(crate) mean: f64,
    /// The most after any request.
    pub(crate) most: u64,
    /// The most in those of one CPU.
    pub(crate) most_of_cpu: u64,
    /// At the end.
    pub(crate) at_end: u64,
}

/// What a run did.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// It allocated blocks of this order.
    Alloc(Order),
    /// It freed a block of this order.
    Free(Order),
    /// It did a CPU's once-a-second work.
    Upkeep,
}

/// What locks a core took so far.
#[derive(Clone, Copy, Debug, Default)]
struct Locks {
    /// Holds of zone locks that moved pages, and under rules without them writes to words that all CPUs share.
    acquisitions: u64,
    /// All holds of zone locks, and such writes.
    holds: u64,
    /// Takes of another CPU's pagesets.
    takes: u64,
}

impl Locks {
    fn of(core: &Core<'_>) -> Locks {
        let mut locks = Locks::default();
        for zone in core.zones() {
            let writes = core.shared_writes(zone).unwrap_or(0);
            locks.acquisitions += zone.holds().acquisitions + writes;
            locks.holds += zone.work().holds + writes;
        }
        locks.takes = core.cpus().map(|(cpu, ..)| core.taken_by_others(cpu).holds).sum();
        locks
    }
}

/// What was done under all locks so far.
fn work(core: &Core<'_>) -> LockWork {
    let zones = core.zones().iter().map(|zone| zone.work());
    let taken = core.cpus().map(|(cpu, ..)| core.taken_by_others(cpu));
    zones.chain(taken).fold(LockWork::default(), LockWork::and)
}

/// What a run came to since its tally began.
#[derive(Clone, Debug)]
pub(crate) struct Tallied {
    /// All holds, by cause.
    pub(crate) causes: Causes,
    /// Takes of another CPU's pagesets.
    pub(crate) foreign_takes: u64,
    /// Operations under holds.
    pub(crate) operations: u64,
    /// The most of one hold.
    pub(crate) most_operations: u64,
    /// Pages in pagesets.
    pub(crate) kept: Kept,
    /// Whole ranges, the mean over time.
    pub(crate) whole_mean: f64,
    /// How many they were at the end.
    pub(crate) whole_end: u64,
    /// CPUs with pagesets.
    pub(crate) cpus: u64,
}

/// A CPU's pagesets, as they were last looked at.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    cpu: CpuId,
    pages: u64,
    refills: u64,
    drains: u64,
}

/// Looks at a core after each request.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) causes: Causes,
    /// The same of all holds.
    all: Causes,
    /// What was asked for, if that is to be known.
    pub(crate) asked: Option<Asked>,
    seen: Vec<Seen>,
    /// By the number of the CPU, its place in `seen`.
    places: Vec<usize>,
    /// As they were when they were last noted.
    locks: Locks,
    takes_before: u64,
    operations_before: u64,
    /// Whole ranges, if they are kept.
    whole: Option<Whole>,
    pages: u64,
    most: u64,
    most_of_cpu: u64,
    begin_ns: u64,
    now_ns: u64,
    /// Pages times nanoseconds.
    area: f64,
    /// Whole ranges times nanoseconds.
    whole_area: f64,
}

impl Tally {
    /// Begins with a core whose pagesets are filled.
    pub(crate) fn new(core: &Core<'_>, begin_ns: u64) -> Tally {
        Tally::with(core, begin_ns, None)
    }

    /// Begins anew, as of the time that was last noted.
    pub(crate) fn restart(&mut self, core: &Core<'_>) {
        let whole = self.whole.take();
        *self = Tally::with(core, self.now_ns, whole);
    }

    fn with(core: &Core<'_>, begin_ns: u64, whole: Option<Whole>) -> Tally {
        core.forget_most_work();
        let locks = Locks::of(core);
        let seen = core.cpus().map(|(cpu, ..)| look(core, cpu)).collect::<Vec<Seen>>();
        let limit = seen.iter().map(|seen| seen.cpu.0 as usize + 1).max().unwrap_or(0);
        let mut places = vec![usize::MAX; limit];
        seen.iter().enumerate().for_each(|(at, seen)| places[seen.cpu.0 as usize] = at);
        let pages = seen.iter().map(|seen| seen.pages).sum();
        Tally {
            causes: Causes::default(),
            all: Causes::default(),
            asked: None,
            locks,
            takes_before: locks.takes,
            operations_before: work(core).operations,
            whole,
            pages,
            most: pages,
            most_of_cpu: seen.iter().map(|seen| seen.pages).max().unwrap_or(0),
            seen,
            places,
            begin_ns,
            now_ns: begin_ns,
            area: 0.0,
            whole_area: 0.0,
        }
    }

    /// Keeps which ranges are whole from now on. From then on, pagesets change by requests alone.
    pub(crate) fn keep_whole(&mut self, core: &Core<'_>) {
        self.whole.get_or_insert_with(|| Whole::of(core));
    }

    /// Keeps what is asked for from now on, and which ranges are whole.
    pub(crate) fn keep_asked(&mut self, core: &Core<'_>) {
        self.keep_whole(core);
        self.asked =
            Some(Asked::new(self.seen.iter().map(|seen| (seen.cpu, seen.pages)).collect()));
    }

    /// Counts what an act came to.
    pub(crate) fn note(&mut self, core: &Core<'_>, actor: Actor, act: Act) {
        self.pass_to(actor.now_ns);
        let now = Locks::of(core);
        let seen = std::mem::replace(&mut self.locks, now);
        let taken = now.acquisitions - seen.acquisitions;
        let (held, takes) = (now.holds - seen.holds, now.takes - seen.takes);
        let before =
            self.places.get(actor.cpu.0 as usize).and_then(|&at| self.seen.get(at)).copied();
        self.look_at(core, actor.cpu);
        let after =
            self.places.get(actor.cpu.0 as usize).and_then(|&at| self.seen.get(at)).copied();
        let (before, after) = (before.unwrap_or_default(), after.unwrap_or_default());
        // Pages that a free or upkeep sent to other CPUs are kept there at once; they count as a take only when they are received.
        let may_have_sent = match act {
            Act::Upkeep => true,
            Act::Free(_) => after.pages <= before.pages,
            Act::Alloc(_) => false,
        };
        if held > 0 || takes > 0 || may_have_sent {
            let drains = self.look_at_others(core, actor.cpu);
            let foreign = drains.min(taken);
            self.causes.foreign += foreign;
            let moved = [after.refills > before.refills, after.drains > before.drains];
            if taken > foreign {
                *self.causes.of(act, moved) += taken - foreign;
            }
            let foreign = drains.min(held);
            self.all.foreign += foreign + takes;
            if held > foreign {
                *self.all.of(act, moved) += held - foreign;
            }
        }
        self.most = self.most.max(self.pages);
        #[cfg(test)]
        assert!(
            self.whole.is_none() || self.pages == kept_now(core),
            "all that is kept is counted"
        );
    }

    /// Time goes on with what is kept now.
    pub(crate) fn pass_to(&mut self, now_ns: u64) {
        if now_ns > self.now_ns {
            let ns = (now_ns - self.now_ns) as f64;
            self.area += self.pages as f64 * ns;
            self.whole_area += self.whole_count() as f64 * ns;
            self.now_ns = now_ns;
        }
    }

    fn look_at(&mut self, core: &Core<'_>, cpu: CpuId) {
        let Some(seen) = self.places.get(cpu.0 as usize).and_then(|&at| self.seen.get_mut(at))
        else {
            return;
        };
        let before = std::mem::replace(seen, look(core, cpu));
        self.pages = self.pages + seen.pages - before.pages;
        self.most_of_cpu = self.most_of_cpu.max(seen.pages);
    }

    /// Looks at the pagesets of all CPUs but one. Returns how often they were drained.
    fn look_at_others(&mut self, core: &Core<'_>, own: CpuId) -> u64 {
        let mut drains = 0;
        for seen in self.seen.iter_mut().filter(|seen| seen.cpu != own) {
            let before = std::mem::replace(seen, look(core, seen.cpu));
            drains += seen.drains - before.drains;
            self.pages = self.pages + seen.pages - before.pages;
            self.most_of_cpu = self.most_of_cpu.max(seen.pages);
        }
        drains
    }

    /// A block was given to somebody, after [`note`](Self::note) of that.
    pub(crate) fn took(&mut self, pfn: Pfn, order: Order) {
        if let Some(whole) = &mut self.whole {
            whole.took(pfn, order);
        }
    }

    /// A block came back, after [`note`](Self::note) of that.
    pub(crate) fn gave(&mut self, pfn: Pfn, order: Order) {
        if let Some(whole) = &mut self.whole {
            whole.gave(pfn, order);
        }
    }

    /// What there was so far.
    pub(crate) fn tallied(&self, core: &Core<'_>) -> Tallied {
        let work = work(core);
        let ns = self.now_ns - self.begin_ns;
        let whole_end = self.whole_count();
        Tallied {
            causes: self.all.clone(),
            foreign_takes: self.locks.takes - self.takes_before,
            operations: work.operations - self.operations_before,
            most_operations: work.most_operations,
            kept: self.kept(),
            whole_mean: if ns > 0 { self.whole_area / ns as f64 } else { whole_end as f64 },
            whole_end,
            cpus: self.cpus(),
        }
    }

    fn whole_count(&self) -> u64 {
        self.whole.as_ref().map_or(0, Whole::count)
    }

    /// Whether what is counted as free is free in the core, and nothing else.
    #[cfg(test)]
    pub(crate) fn is_exact(&self, core: &Core<'_>) -> bool {
        self.whole.as_ref().is_none_or(|whole| whole.is_as_in(core))
    }

    /// What was kept so far.
    pub(crate) fn kept(&self) -> Kept {
        let ns = self.now_ns - self.begin_ns;
        let mean = if ns > 0 { self.area / ns as f64 } else { self.pages as f64 };
        let Tally { most, most_of_cpu, pages: at_end, .. } = *self;
        Kept { mean, most, most_of_cpu, at_end }
    }

    /// CPUs with pagesets.
    pub(crate) fn cpus(&self) -> u64 {
        self.seen.len() as u64
    }
}

impl Causes {
    /// The cause of holds in an act that refilled or drained a pageset of its CPU, or neither.
    fn of(&mut self, act: Act, moved: [bool; 2]) -> &mut u64 {
        match (act, moved) {
            (Act::Upkeep, _) => &mut self.upkeep,
            (Act::Alloc(_), [true, _]) | (Act::Free(_), [true, false]) => &mut self.refill,
            (Act::Free(_), [_, true]) | (Act::Alloc(_), [false, true]) => &mut self.drain,
            (Act::Alloc(order) | Act::Free(order), [false, false]) => {
                self.direct.entry(order.0).or_default()
            }
        }
    }
}

/// Pages in the pagesets of all CPUs.
#[cfg(test)]
fn kept_now(core: &Core<'_>) -> u64 {
    core.cpus().map(|(cpu, ..)| look(core, cpu).pages).sum()
}

fn look(core: &Core<'_>, cpu: CpuId) -> Seen {
    let mut seen = Seen { cpu, ..Seen::default() };
    for pageset in core.pagesets(cpu).into_iter().flatten() {
        let counts = pageset.counts();
        seen.pages += pageset.count().0;
        seen.refills += counts.refills;
        seen.drains += counts.drains;
    }
    seen
}

#[cfg(test)]
mod tests {
    use nearpage::{
        AddressMap, Config, Gfp, Model, NodeBuf, NodeId, NodeIndex, PageAllocator, PfnRange,
        Request, TopologyBuf, metadata_size,
    };

    use super::*;
    use crate::platform::ReplayPlatform;

    /// A node with two CPUs.
    fn with_core(model: Model, act: impl FnOnce(&Core<'_>)) {
        let memory = PfnRange::new(0, 1 << 14);
        let node = NodeBuf {
            id: NodeId(0),
            memory: vec![memory],
            cpus: vec![CpuId(0), CpuId(1)],
            movable_from: None,
        };
        let machine =
            TopologyBuf { nodes: vec![node], distances: vec![10], address_map: AddressMap::Flat };
        let done = machine.with(|topology| {
            let config = Config::new().with_model(model);
            let bytes = metadata_size::<ReplayPlatform>(topology, &config, NodeIndex(0)).unwrap();
            let mut metadata = vec![0; bytes];
            let mut buffer = Some(metadata.as_mut_slice());
            let take = |_, _| buffer.take().unwrap_or_default();
            let core = PageAllocator::new(ReplayPlatform::default(), *topology, config, take);
            let core = core.unwrap();
            core.online(memory).unwrap();
            act(&core);
        });
        done.unwrap();
    }

    /// What is counted step by step as kept is what is kept, whoever frees what another allocated.
    #[test]
    fn pages_of_other_cpus_are_kept_where_they_are_freed() {
        for model in [Model::NEARPAGE, Model::LINUX_6_18, Model::RFC_2026_OWNED] {
            with_core(model, |core| {
                let page = Request::new(Order(0), Gfp::HIGHUSER_MOVABLE);
                core.platform().play(CpuId(1), 0);
                let pages: Vec<Pfn> = (0..448).map(|_| core.alloc(page).unwrap()).collect();
                let mut tally = Tally::new(core, 0);
                for (page, now_ns) in pages.into_iter().zip(1..) {
                    core.platform().play(CpuId(0), now_ns);
                    core.free(page, Order(0)).unwrap();
                    let actor = Actor { cpu: CpuId(0), pid: 0, now_ns };
                    tally.note(core, actor, Act::Free(Order(0)));
                    assert_eq!(tally.pages, kept_now(core), "{}", model.name);
                }
            });
        }
    }
}
