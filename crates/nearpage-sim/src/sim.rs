//! A machine, the core on it, and tasks.

use std::cell::RefCell;
use std::fmt;

use nearpage::{
    BuildError, Config, CpuId, PageAllocator, PfnRange, Topology, TopologyError, metadata_size,
};
use nearpage_slab::{SlabAllocator, SlabBuildError, SlabConfig};

use crate::costs::Costs;
use crate::executor::{self, Deadlock, Tasks};
use crate::machine::Machine;
use crate::platform::{Help, NoHelp, SimPlatform};
use crate::samples::Samples;
use crate::scheduler::Scheduler;
use crate::world::{Layout, World};

/// What a run is made with.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// What things cost.
    pub costs: &'a Costs,
    /// The rules and settings of the allocator; the page size is the machine's.
    pub config: Config,
    /// The slab allocator on top, if there is to be one.
    pub slab: Option<SlabConfig>,
}

/// A machine that cannot be.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MachineError {
    /// The topology is wrong.
    #[error("{0}")]
    Topology(TopologyError),
    /// No allocator can be made for it.
    #[error("{0}")]
    Build(BuildError),
    /// No slab allocator can be made on it.
    #[error("{0}")]
    Slab(SlabBuildError),
    /// More than is simulated.
    #[error("{count} {of}; at most {most} are simulated")]
    TooLarge {
        /// How many there are.
        count: u64,
        /// Of what.
        of: &'static str,
        /// How many may be.
        most: u64,
    },
}

/// Nodes, CPUs and pages of a machine: what Linux stops at, and for pages what the tables of lines of cache have room for
/// in address space (1 TiB of memory with pages of 4 KiB). Only what a run touches becomes resident.
const MOST: (u64, u64, u64) = (1024, 8192, 1 << 28);

/// Whether there can be such a machine.
///
/// # Errors
/// [`MachineError`].
pub fn check_machine(machine: &Machine) -> Result<(), MachineError> {
    let at_most = |count: u64, of, most| match count {
        count if count > most => Err(MachineError::TooLarge { count, of, most }),
        _ => Ok(()),
    };
    let pages = machine.nodes.iter().map(|node| node.bytes >> machine.page_shift);
    at_most(machine.nodes.len() as u64, "nodes", MOST.0)?;
    at_most(machine.cpus().count() as u64, "CPUs", MOST.1)?;
    at_most(pages.fold(0, u64::saturating_add), "pages", MOST.2)?;
    let sizes = |topology: &Topology<'_>| {
        let size = |node| metadata_size::<SimPlatform<'_>>(topology, &Config::new(), node);
        topology.indexes().try_for_each(|node| size(node).map(|_| ()))
    };
    let sizes = machine.topology().with(sizes).map_err(MachineError::Topology)?;
    sizes.map_err(MachineError::Build)
}

/// A run: the core on a simulated machine.
pub struct Sim<'t, 'm> {
    /// Clocks, lines and locks.
    pub world: &'t World,
    /// The core.
    pub allocator: &'t PageAllocator<'m, SimPlatform<'t>>,
    /// The slab allocator, if the run has one.
    pub slab: Option<&'t SlabAllocator<'t, 'm, SimPlatform<'t>>>,
    samples: RefCell<Option<Samples>>,
}

impl fmt::Debug for Sim<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sim").finish_non_exhaustive()
    }
}

impl Sim<'_, '_> {
    /// Runs tasks to their ends; returns how often one was resumed.
    ///
    /// # Errors
    /// [`Deadlock`] if some wait for ever.
    ///
    /// # Panics
    /// If the machine has no CPU that a task is for, or a task panics.
    pub fn run(&self, tasks: Tasks<'_>) -> Result<u64, Deadlock> {
        let result = executor::run(self.world, tasks, &|cpu, at_ps| self.look(cpu, at_ps));
        self.look(self.world.cpus()[0], self.world.now_ps());
        result
    }

    /// From now on the run is sampled.
    pub fn sample(&self) {
        *self.samples.borrow_mut() = Some(Samples::default());
        self.world.set_next_sample_ps(0);
    }

    /// The samples so far; no more are taken.
    pub fn take_samples(&self) -> Option<Samples> {
        self.world.set_next_sample_ps(u64::MAX);
        let mut samples = self.samples.take()?;
        samples.trim();
        Some(samples)
    }

    fn look(&self, cpu: CpuId, at_ps: u64) {
        if let Some(samples) = &mut *self.samples.borrow_mut() {
            let next_ps = samples.look(self.world, self.allocator, cpu, at_ps);
            self.world.set_next_sample_ps(next_ps);
        }
    }
}

/// Makes a machine with all its memory online and calls `f` with it.
///
/// # Errors
/// [`MachineError`] if there can be no such machine.
pub fn simulate<R>(
    setup: &Setup<'_>,
    scheduler: Box<dyn Scheduler>,
    f: impl FnOnce(&Sim<'_, '_>) -> R,
) -> Result<R, MachineError> {
    simulate_with_help(setup, scheduler, &NoHelp, f)
}

/// As [`simulate`], on a host that helps when memory is short.
///
/// # Errors
/// As [`simulate`].
pub fn simulate_with_help<R>(
    setup: &Setup<'_>,
    scheduler: Box<dyn Scheduler>,
    help: &dyn Help,
    f: impl FnOnce(&Sim<'_, '_>) -> R,
) -> Result<R, MachineError> {
    check_machine(setup.machine)?;
    let topology = setup.machine.topology();
    let run = |topology: &Topology<'_>| {
        let sizes: Vec<usize> = topology
            .indexes()
            .map(|node| metadata_size::<SimPlatform<'_>>(topology, &setup.config, node))
            .collect::<Result<_, _>>()
            .map_err(MachineError::Build)?;
        let object_sizes: Vec<usize> = match &setup.slab {
            Some(config) => topology
                .indexes()
                .map(|node| config.metadata_size::<SimPlatform<'_>>(topology, node))
                .collect::<Result<_, _>>()
                .map_err(MachineError::Slab)?,
            None => Vec::new(),
        };
        let (mut metadata, mut object_metadata) =
            (Metadata::new(&sizes), Metadata::new(&object_sizes));
        let layout = metadata.layout(topology);
        let world = World::new(setup.machine, setup.costs, layout, scheduler);
        let _installed = world.install();
        let (mut buffers, mut object_buffers) = (metadata.buffers(), object_metadata.buffers());
        let config = setup.config.with_page_shift(setup.machine.page_shift);
        let platform = SimPlatform::new(&world, help);
        let allocator = PageAllocator::new(platform, *topology, config, |node, _| {
            std::mem::take(&mut buffers[node.0 as usize])
        })
        .map_err(MachineError::Build)?;
        let all: Vec<PfnRange> =
            topology.nodes().iter().flat_map(|node| node.memory).copied().collect();
        allocator.online_all(&all).expect("memory of the topology, offline until now");
        let slab = setup.slab.map(|config| {
            SlabAllocator::new(&allocator, config, |node, _| {
                std::mem::take(&mut object_buffers[node.0 as usize])
            })
        });
        let slab = slab.transpose().map_err(MachineError::Slab)?;
        let (allocator, slab, samples) = (&allocator, slab.as_ref(), RefCell::new(None));
        Ok(f(&Sim { world: &world, allocator, slab, samples }))
    };
    topology.with(run).map_err(MachineError::Topology)?
}

/// Metadata of all nodes in one piece, so that a line has the same number in each run.
struct Metadata {
    bytes: Vec<u8>,
    /// Where the first node's begin: at a page.
    start: usize,
    sizes: Vec<usize>,
}

/// What each node's metadata begin at a multiple of: more than any alignment within.
const ALIGN: usize = 4096;

impl Metadata {
    fn new(sizes: &[usize]) -> Self {
        let sizes: Vec<usize> = sizes.iter().map(|size| size.next_multiple_of(ALIGN)).collect();
        // Fresh zeroes from the system: only what is touched becomes resident.
        let bytes = vec![0; sizes.iter().sum::<usize>() + ALIGN];
        let start = bytes.as_ptr().align_offset(ALIGN);
        Self { bytes, start, sizes }
    }

    fn layout(&self, topology: &Topology<'_>) -> Layout {
        let mut next = 0;
        let mut first_byte = |size: &usize| {
            next += size;
            next - size
        };
        let starts =
            topology.nodes().iter().flat_map(|node| node.memory).map(|range| range.start.0);
        let ends = topology.nodes().iter().flat_map(|node| node.memory).map(|range| range.end.0);
        let (first, end) = (starts.min().unwrap_or(0), ends.max().unwrap_or(0));
        // A memoryless node begins where the next one does, so that no frame is its own.
        let first_frame = |index: usize| {
            let mut later = topology.nodes()[index..].iter().flat_map(|node| node.memory);
            later.next().map_or(end, |range| range.start.0)
        };
        Layout {
            metadata: (self.bytes.as_ptr().addr() + self.start, self.sizes.iter().sum()),
            metadata_of_nodes: self.sizes.iter().map(&mut first_byte).collect(),
            frames: (first, end - first),
            frames_of_nodes: (0..topology.len()).map(first_frame).collect(),
        }
    }

    fn buffers(&mut self) -> Vec<&mut [u8]> {
        let mut rest = &mut self.bytes[self.start..];
        let mut buffers = Vec::with_capacity(self.sizes.len());
        for &size in &self.sizes {
            let (buffer, after) = rest.split_at_mut(size);
            buffers.push(buffer);
            rest = after;
        }
        buffers
    }
}
