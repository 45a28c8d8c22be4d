//! Objects: the events of a kernel's slab, replayed through nearpage's slab caches.
//!
//! A cache is made for each name and size that the trace has, and each object is allocated and freed by the CPU that did so. Where a
//! free has no allocation in the window, its object was there before: it is left out, and counted. The slab is on a core of its own:
//! the pages of the trace, of which the slab's are some, do not go through it.
//!
//! Two runs on the machine that is asked about: objects by the CPU's own node, as Linux had it before 2010 and, in other
//! words, again in 2026, and by the nearest node with memory ([`LocalNode`]). One run more for each set of rules that is
//! asked for ([`SlabRules`]).

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::LazyLock;

use nearpage::{Address, CpuId, Gfp, NodeIndex, TopologyBuf};
use nearpage_slab::{
    CacheOptions, KmemCache, LocalNode, REAP_PERIOD_NS, SlabAllocator, SlabConfig, SlabRules,
};
use nearpage_trace::{Event, TraceEvent, read_trace};
use serde::Serialize;

use crate::bundle::Bundle;
use crate::cpus::{CpuMap, CpuRule};
use crate::error::ReplayError;
use crate::machine::{Core, Memory};
use crate::platform::ReplayPlatform;
use crate::start::Start;
use crate::survey::Survey;
use crate::watch::Watch;

/// Caches that a replay makes; objects of further ones are left out.
const CACHES_MOST: usize = 1024;
/// Names for them: what the trace calls them does not live as long.
static NAMES: LazyLock<Vec<String>> =
    LazyLock::new(|| (0..CACHES_MOST).map(|at| format!("replayed-{at}")).collect());

/// The replay of a trace's objects: how its events went together, and what the slab came to on each machine.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Objects {
    /// Objects allocated in the window.
    pub allocated: u64,
    /// A column for each machine and rule: the recorded machine, then the one that is asked about.
    pub columns: Vec<ObjectTotals>,
    /// Objects freed in the window.
    pub freed: u64,
    /// Objects that no cache takes: too large, or of too many caches.
    pub left_out: u64,
    /// Allocations at an address that was not freed before: the free had no event.
    pub lost_frees: u64,
    /// Frees of objects whose allocation is not in the window.
    pub unpaired_frees: u64,
    /// Frees and lost frees that could not be paired, in percent of all frees.
    pub unpaired_percent: f64,
}

/// What the slab came to on a machine.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ObjectTotals {
    /// Acquisitions of locks of alien stacks.
    pub alien_locks: u64,
    /// Objects allocated.
    pub allocated: u64,
    /// Acquisitions of locks of barns.
    pub barn_locks: u64,
    /// Objects that passed by the sheaves.
    pub bypasses: u64,
    /// Slabs that could not be had from one node alone.
    pub failed_this_node: u64,
    /// Acquisitions of list locks of nodes with memory.
    pub memory_node_locks: u64,
    /// Acquisitions of list locks of memoryless nodes.
    pub memoryless_node_locks: u64,
    /// The machine and the rule, in words.
    pub name: &'static str,
    /// Objects that were not to be had.
    pub refused: u64,
    /// Those of `allocated` that a CPU's stack served.
    pub stack_hits: u64,
}

/// How the events of objects went together.
#[derive(Clone, Copy, Debug, Default)]
struct Pairing {
    allocs: u64,
    frees: u64,
    unpaired_frees: u64,
    lost_frees: u64,
    left_out: u64,
}

impl Pairing {
    fn unpaired_percent(&self) -> f64 {
        let frees = (self.frees + self.lost_frees).max(1);
        (self.unpaired_frees + self.lost_frees) as f64 / frees as f64 * 100.0
    }
}

/// A machine for a column.
#[derive(Clone, Copy)]
struct Place<'a> {
    name: &'static str,
    start: &'a Start,
    /// How CPUs go to it.
    cpus: CpuRule,
    config: SlabConfig,
}

/// How many passes [`replay_objects`] makes.
pub(crate) fn passes(survey: &Survey, has_other: bool, rules: usize) -> u64 {
    match (survey.has_objects, has_other) {
        (false, _) => 0,
        (true, false) => 1 + rules as u64,
        (true, true) => 3 + rules as u64,
    }
}

/// Replays the objects of a trace on the recorded machine, and by both rules on `other`, if that is given, where CPUs go
/// by `cpus`; there, or else on the recorded machine, also by each set of `rules`. `None` if the trace has no objects.
///
/// # Errors
///
/// The trace cannot be read, or there can be no such machine; [`ReplayError::Stopped`].
pub(crate) fn replay_objects(
    bundle: &Bundle,
    survey: &Survey,
    recorded: &Start,
    other: Option<(&Start, CpuRule)>,
    rules: &[SlabRules],
    watch: &Watch<'_>,
) -> Result<Option<Objects>, ReplayError> {
    if !survey.has_objects {
        return Ok(None);
    }
    // The recorded machine plays its own CPUs.
    let nearest = SlabConfig::LINUX_2_6_35;
    let (name, cpus) = ("recorded machine", CpuRule::Socket);
    let mut places = vec![Place { name, start: recorded, cpus, config: nearest }];
    if let Some((start, cpus)) = other {
        let own = nearest.with_local(LocalNode::OwnNode);
        places.push(Place { name: "own node: 2010, 2026", start, cpus, config: own });
        places.push(Place { name: "nearest memory", start, cpus, config: nearest });
    }
    let (start, cpus) = other.unwrap_or((recorded, CpuRule::Socket));
    let of_rules = |&rules: &SlabRules| {
        let config = match rules {
            SlabRules::Slab2010 => nearest,
            sheaves => SlabConfig::LINUX_7_0.with_rules(sheaves),
        };
        Place { name: rules.name(), start, cpus, config }
    };
    places.extend(rules.iter().map(of_rules));
    let mut objects = Objects::default();
    for place in &places {
        let (pairing, totals) = replay_at(bundle, survey, &recorded.topology, place, watch)?;
        // The same in all places: it depends on the trace alone.
        let Pairing { allocs, frees, unpaired_frees, lost_frees, left_out } = pairing;
        objects = Objects {
            allocated: allocs,
            freed: frees,
            unpaired_frees,
            lost_frees,
            left_out,
            unpaired_percent: pairing.unpaired_percent(),
            ..objects
        };
        objects.columns.push(totals);
    }
    Ok(Some(objects))
}

fn replay_at(
    bundle: &Bundle,
    survey: &Survey,
    recorded: &TopologyBuf,
    place: &Place<'_>,
    watch: &Watch<'_>,
) -> Result<(Pairing, ObjectTotals), ReplayError> {
    let input = bundle.name();
    let build_error = |source| ReplayError::Slab { input: input.into(), source };
    let config = place.config.with_caches_max(CACHES_MOST);
    let mut buffers: Vec<Vec<u8>> = Vec::new();
    let mut memory = Memory::new(input, place.start, 1)?;
    let Some((core, _)) = memory.cores(input, &[])?.pop() else {
        unreachable!("one core was asked for")
    };
    for node in core.topology().indexes() {
        let bytes = config.metadata_size::<ReplayPlatform>(core.topology(), node);
        buffers.push(vec![0; bytes.map_err(build_error)?]);
    }
    let mut slots: Vec<&mut [u8]> = buffers.iter_mut().map(Vec::as_mut_slice).collect();
    let take = |node: NodeIndex, _| std::mem::take(&mut slots[node.0 as usize]);
    let slab = SlabAllocator::new(&core, config, take).map_err(build_error)?;
    let mut player = Player {
        core: &core,
        slab: &slab,
        map: CpuMap::new(place.cpus, recorded, &place.start.topology, &survey.actors),
        caches: Vec::new(),
        by_name: HashMap::new(),
        live: HashMap::new(),
        reaped_ns: HashMap::new(),
        pairing: Pairing::default(),
        refused: 0,
    };
    let mut window = survey.window();
    bundle.with_trace_text(watch, |name, text| {
        read_trace::<ReplayError>(name, text, |event| {
            if window.admits(&event.event) {
                player.note(event);
            }
            Ok(())
        })
    })?;
    Ok((player.pairing, player.totals(place.name)))
}

type Cache<'m> = KmemCache<'m, ReplayPlatform>;

struct Player<'a, 'm> {
    core: &'a Core<'m>,
    slab: &'a SlabAllocator<'a, 'm, ReplayPlatform>,
    map: CpuMap,
    caches: Vec<Cache<'m>>,
    /// By name and size: which cache; `None` if it could not be made.
    by_name: HashMap<(Box<[u8]>, u64), Option<usize>>,
    /// By recorded address.
    live: HashMap<u64, (usize, Address)>,
    /// When the stacks of a CPU were reaped last.
    reaped_ns: HashMap<CpuId, u64>,
    pairing: Pairing,
    refused: u64,
}

impl Player<'_, '_> {
    fn note(&mut self, event: &TraceEvent<'_>) {
        let cpu = self.map.cpu(event.cpu, event.pid, 0);
        match event.event {
            Event::ObjectAlloc { pointer, cache, bytes } if pointer != 0 => {
                self.play(cpu, event.time_ns);
                self.alloc(pointer, cache, bytes);
            }
            Event::ObjectFree { pointer } if pointer != 0 => {
                self.play(cpu, event.time_ns);
                self.pairing.frees += 1;
                match self.live.remove(&pointer) {
                    Some(object) => self.free(object),
                    None => self.pairing.unpaired_frees += 1,
                }
            }
            _ => {}
        }
    }

    /// Goes on as a CPU; its stacks are reaped if that is due.
    fn play(&mut self, cpu: CpuId, now_ns: u64) {
        self.core.platform().play(cpu, now_ns);
        let last = self.reaped_ns.entry(cpu).or_insert(now_ns);
        if now_ns.saturating_sub(*last) >= REAP_PERIOD_NS {
            *last = now_ns;
            self.slab.reap_cpu(cpu).expect("nobody else has the stacks");
        }
    }

    fn alloc(&mut self, pointer: u64, name: &[u8], bytes: u64) {
        self.pairing.allocs += 1;
        if let Some(live) = self.live.remove(&pointer) {
            self.pairing.lost_frees += 1;
            self.free(live);
        }
        let Some(cache) = self.cache(name, bytes) else {
            self.pairing.left_out += 1;
            return;
        };
        match self.slab.alloc(&self.caches[cache], Gfp::KERNEL) {
            Ok(address) => drop(self.live.insert(pointer, (cache, address))),
            Err(_) => self.refused += 1,
        }
    }

    fn free(&mut self, (cache, address): (usize, Address)) {
        self.slab.free(&self.caches[cache], address).expect("the object was allocated");
    }

    fn cache(&mut self, name: &[u8], bytes: u64) -> Option<usize> {
        match self.by_name.entry((name.into(), bytes)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let name = NAMES.get(self.caches.len());
                let create =
                    |name: &'static String| self.slab.create(CacheOptions::new(name, bytes)).ok();
                let cache = name.and_then(create);
                let index = cache.map(|cache| {
                    self.caches.push(cache);
                    self.caches.len() - 1
                });
                *new.insert(index)
            }
        }
    }

    fn totals(&self, name: &'static str) -> ObjectTotals {
        let topology = self.core.topology();
        let mut totals = ObjectTotals { name, refused: self.refused, ..ObjectTotals::default() };
        for cache in &self.caches {
            let stats = self.slab.stats(cache);
            totals.stack_hits += stats.alloc_hits;
            totals.allocated += stats.alloc_hits + stats.alloc_misses;
            for node in topology.indexes() {
                let stats = self.slab.node_stats(cache, node);
                let has_memory = !topology.node(node).memory.is_empty();
                let locks = if has_memory {
                    &mut totals.memory_node_locks
                } else {
                    &mut totals.memoryless_node_locks
                };
                *locks += stats.list_locks;
                totals.alien_locks += stats.alien_locks;
                totals.barn_locks += stats.barn_locks;
                totals.bypasses += stats.bypasses;
                totals.failed_this_node += stats.grow_failures;
            }
        }
        totals
    }
}
