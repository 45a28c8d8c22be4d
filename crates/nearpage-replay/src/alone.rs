//! A trace without captures: its load is played on a machine that the caller names, all of whose memory is free.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::Path;

use nearpage::{AddressMap, CpuId, Model, NodeBuf, NodeId, Settings, TopologyBuf};
use nearpage_bundle::predict::ModelChoice;
use nearpage_machine::work::Observer;
use nearpage_machine::{Budget, KernelSettings, MachineDescription, Packing, shown};
use nearpage_trace::{CTF_NOT_READ, Event, TraceCounts, TraceError, TraceEvent, read_trace};
use serde::Serialize;

use crate::bundle::{Bundle, lost_sentence};
use crate::cpus::CpuRule;
use crate::error::ReplayError;
use crate::packed::Packed;
use crate::source::{Place, Source, unpack_error, unreadable};
use crate::start::Start;
use crate::watch::Watch;
use crate::zones::ZoneMap;

/// What a load is read from: a bundle, or a trace alone.
#[derive(Debug)]
pub enum Input {
    /// Captures, and a trace between them.
    Bundle(Box<Bundle>),
    /// No more than a trace.
    Trace(Box<LoneTrace>),
}

impl Input {
    /// Opens a folder or a file: a folder and a tar archive are bundles, anything else is a trace.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is neither; [`ReplayError::Stopped`].
    pub fn open(
        path: &Path,
        budget: &Budget,
        observer: &dyn Observer,
    ) -> Result<Input, ReplayError> {
        if path.is_dir() {
            if let Some(lacks) = is_ctf(path).then_some(CTF_NOT_READ) {
                let input = shown(path).to_string();
                return Err(TraceError::Lacking { input, offset: 0, lacks }.into());
            }
            return Ok(Input::Bundle(Bundle::open(path, budget)?.into()));
        }
        let packed = Packed::open(path).map_err(|error| unreadable(path, error))?;
        Input::of(packed, budget, observer)
    }

    /// The same from a stream, which is kept in an unnamed temporary file; `name` is for messages.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn read(
        name: &str,
        source: impl Read,
        budget: &Budget,
        observer: &dyn Observer,
    ) -> Result<Input, ReplayError> {
        let packed = Packed::kept(name.into(), source);
        Input::of(packed.map_err(|error| unreadable(Path::new(name), error))?, budget, observer)
    }

    fn of(packed: Packed, budget: &Budget, observer: &dyn Observer) -> Result<Input, ReplayError> {
        let is_archive = is_archive(&packed, budget);
        let is_archive = is_archive.map_err(|error| unpack_error(packed.name(), error))?;
        Ok(match is_archive {
            true => Input::Bundle(Bundle::archived(packed, budget)?.into()),
            false => Input::Trace(
                LoneTrace::of(Source::new(Place::Alone(packed), budget), observer)?.into(),
            ),
        })
    }
}

/// Whether a folder is of LTTng: it has metadata, as have the folders of the kernel's part.
fn is_ctf(path: &Path) -> bool {
    ["metadata", "kernel/metadata"].iter().any(|name| path.join(name).is_file())
}

/// Whether a file is a tar archive, packed or not.
fn is_archive(packed: &Packed, budget: &Budget) -> io::Result<bool> {
    const BLOCK_BYTES: u64 = 512;
    Ok(Packing::of(&packed.beginning(budget, BLOCK_BYTES)?) == Some(Packing::Tar))
}

/// A trace without captures.
pub struct LoneTrace {
    source: Source,
    facts: LoneFacts,
    cpus: BTreeSet<CpuId>,
}

/// What a trace without captures tells.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct LoneFacts {
    /// The release of its kernel; `None` if it is not told.
    pub kernel: Option<String>,
    /// Events of any kind.
    pub events: u64,
    /// Events lost; `None` if the trace does not tell how many.
    pub lost_events: Option<u64>,
    /// Lines that say that events were lost.
    pub lost_lines: u64,
    /// Which events of pages were recorded, in words; `None` if all were, as far as the trace tells.
    pub sampling: Option<String>,
    /// Blocks allocated.
    pub allocs: u64,
    /// Blocks freed.
    pub frees: u64,
    /// CPUs that allocated or freed.
    pub cpus: u64,
    /// Seconds from the first event to the last.
    pub seconds: f64,
}

impl LoneFacts {
    /// What of the load was not recorded, a sentence each.
    pub(crate) fn lost(&self) -> Vec<String> {
        let sampled = self.sampling.as_ref().map(|sampling| {
            format!(
                "unknown: most of the load: {sampling} was recorded, and is played as if it were all (perf record -c 1 records all)"
            )
        });
        let lost = match self.lost_events {
            Some(0) => None,
            Some(events) => Some(lost_sentence(events)),
            None => Some(
                "unknown: how many events were lost, which the trace does not tell (perf script --show-lost-events does)".into(),
            ),
        };
        let no_frees = (self.frees == 0).then(|| {
            "unknown: what was freed: no free is in the trace, and none is played (record kmem:mm_page_free, too)".into()
        });
        sampled.into_iter().chain(lost).chain(no_frees).collect()
    }
}

/// The most names of events that are told apart.
const NAMES_MOST: usize = 64;

impl std::fmt::Debug for LoneTrace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.source.name();
        f.debug_struct("LoneTrace").field("name", &name).field("facts", &self.facts).finish()
    }
}

impl LoneTrace {
    /// Looks through a trace.
    fn of(source: Source, observer: &dyn Observer) -> Result<LoneTrace, ReplayError> {
        let watch = Watch::new(observer, source.pass_bytes(), 1);
        let (mut cpus, mut others) = (BTreeSet::new(), BTreeMap::<String, u64>::new());
        let (mut allocs, mut frees) = (0, 0);
        let (mut first_ns, mut last_ns) = (u64::MAX, 0);
        let counts = source.with_trace_text(&watch, |name, text| {
            let counts = read_trace::<ReplayError>(name, text, |event| {
                (first_ns, last_ns) = (first_ns.min(event.time_ns), last_ns.max(event.time_ns));
                match event.event {
                    Event::Alloc { pfn: Some(_), .. } => allocs += 1,
                    Event::Free { .. } => frees += 1,
                    ref other => {
                        let name = match other {
                            Event::Other(name) => String::from_utf8_lossy(name),
                            _ => "other events of the kernel's memory".into(),
                        };
                        if let Some(count) = others.get_mut(&*name) {
                            *count += 1;
                        } else if others.len() < NAMES_MOST {
                            others.insert(name.into_owned(), 1);
                        }
                        return Ok(());
                    }
                }
                cpus.insert(event.cpu);
                Ok(())
            })?;
            match allocs + frees {
                0 => Err(ReplayError::NotOfAllocator {
                    input: name.into(),
                    events: counts.events,
                    names: most(&others),
                }),
                _ => Ok(counts),
            }
        })?;
        let facts = LoneFacts {
            lost_events: counts.lost(),
            kernel: counts.kernel,
            events: counts.events,
            lost_lines: counts.lost_lines,
            sampling: counts.sampling.map(|sampling| sampling.to_string()),
            allocs,
            frees,
            cpus: cpus.len() as u64,
            seconds: last_ns.saturating_sub(first_ns) as f64 / 1e9,
        };
        Ok(LoneTrace { source, facts, cpus })
    }

    /// Its name, for messages.
    pub fn name(&self) -> &str {
        self.source.name()
    }

    /// What it tells.
    pub fn facts(&self) -> &LoneFacts {
        &self.facts
    }

    /// Hands on each of its events, first to last, in one pass.
    ///
    /// # Errors
    ///
    /// The trace cannot be read; what `each` says; [`ReplayError::Stopped`].
    pub fn events(
        &self,
        observer: &dyn Observer,
        each: impl FnMut(&TraceEvent<'_>) -> Result<(), ReplayError>,
    ) -> Result<TraceCounts, ReplayError> {
        let watch = Watch::new(observer, self.source.pass_bytes(), 1);
        self.source.with_trace_text(&watch, |input, text| read_trace(input, text, each))
    }

    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// The rules of its kernel, and whether they are those of another: of one that it does not name, the ones of `stand_in`, or a
    /// recent kernel's.
    pub(crate) fn model(&self, stand_in: Option<Model>) -> (Model, bool) {
        let chosen = ModelChoice::Auto.for_kernel(self.facts.kernel.as_deref().unwrap_or(""));
        match (&self.facts.kernel, stand_in) {
            (None, Some(model)) => (model, true),
            _ => (chosen.model, chosen.is_of_other_kernel),
        }
    }

    /// Whether all its CPUs are those of a machine.
    pub(crate) fn fits(&self, machine: &MachineDescription) -> bool {
        let cpus = machine.topology.nodes.iter().flat_map(|node| &node.cpus);
        let cpus: BTreeSet<CpuId> = cpus.copied().collect();
        self.cpus.is_subset(&cpus)
    }

    /// What is known of the machine that recorded it, and how its CPUs go to those of another.
    pub(crate) fn recorded(&self, machine: &MachineDescription, model: Model) -> (Start, CpuRule) {
        let (topology, rule) = match self.fits(machine) {
            true => (machine.topology.clone(), CpuRule::Socket),
            // One node for all of them: which of them were near each other is not told.
            false => {
                let cpus = self.cpus.iter().copied().collect();
                let node = NodeBuf { id: NodeId(0), cpus, ..NodeBuf::default() };
                let (nodes, distances) = (vec![node], vec![10]);
                let topology = TopologyBuf { nodes, distances, address_map: AddressMap::Flat };
                (topology, CpuRule::RoundRobin)
            }
        };
        let settings = Settings::default();
        let start = Start {
            model,
            topology,
            zones: Vec::new(),
            map: ZoneMap::new(&[]),
            page_shift: machine.machine.page_bytes.trailing_zeros(),
            boost_factor: settings.watermark_boost_factor,
            settings,
            kernel: KernelSettings::default(),
            cache_slices: Vec::new(),
            state: None,
        };
        (start, rule)
    }
}

/// The events that are most, in words.
fn most(others: &BTreeMap<String, u64>) -> String {
    const SHOWN: usize = 3;
    let mut all: Vec<(&String, &u64)> = others.iter().collect();
    all.sort_by(|one, other| other.1.cmp(one.1));
    let shown = all.iter().take(SHOWN).map(|(name, count)| format!("{count} of {name}"));
    shown.collect::<Vec<_>>().join(", ")
}
