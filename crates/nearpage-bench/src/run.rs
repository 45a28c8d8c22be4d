//! One run: what is measured, on what, and what it comes to.

use nearpage::Model;
use nearpage_linux::internals::address_limit;
use nearpage_linux::{
    Environment, FRAME_BYTES, HostNode, Memory, MemoryBuilder, MemoryError, StorageInUse,
};
use nearpage_machine::work::Observer;

use crate::addresses::Memories;
use crate::bench::Bench;
use crate::contender::{Rules, Setting};
use crate::counts::Counters;
use crate::error::{BenchError, SizeError};
use crate::field::{Context, Effort, Field};
use crate::machine::{Conditions, Machine};
use crate::measure::Clock;
use crate::options::Options;
use crate::rows::Row;
use crate::step::{Ended, Step, run_rounds};
use crate::threads::Cpus;
use crate::ticks::Ticks;
use crate::work::bulk::SingleLoop;
use crate::work::fragmentation::{self, Fragmentation, Shape};
use crate::work::zonelist::Scans;
use crate::work::{cross, mixed, order9, random, slab, tails, zonelist};

/// Options that make sense on this machine.
#[derive(Debug)]
pub struct Run {
    benches: Vec<Bench>,
    single_loop: SingleLoop,
    effort: Effort,
    bytes_per_node: u64,
    shapes: Vec<Shape>,
    order9_sizes: Vec<u64>,
    /// nearpage's own rules, and those beside them.
    models: Vec<Model>,
    commit: Option<&'static str>,
    environment: Environment,
    cpus: Cpus,
    clock: Clock,
}

/// What a benchmark came to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Measured {
    /// Times.
    pub rows: Vec<Row>,
    /// The clock of single calls, `rdtscp` or `clock`, in [`Bench::Mixed`].
    pub call_clock: Option<&'static str>,
    /// What scans did, in [`Bench::Zonelist`].
    pub scans: Vec<Scans>,
    /// What stayed whole, in [`Bench::Fragmentation`].
    pub fragmentation: Vec<Fragmentation>,
}

/// Memory on each node of a field of which nobody uses the memories.
const UNUSED_BYTES: u64 = 16 << 20;

impl Run {
    /// Looks at the machine, and whether the options fit it.
    ///
    /// # Errors
    ///
    /// [`BenchError::Cpus`], [`BenchError::Size`], [`BenchError::Model`] and [`BenchError::NoAddressesForNodes`].
    pub fn new(options: &Options) -> Result<Self, BenchError> {
        options.check()?;
        let run = Self {
            benches: options.chosen().to_vec(),
            single_loop: options.how_single(),
            effort: options.effort(),
            bytes_per_node: options.bytes(),
            shapes: options.shapes(),
            order9_sizes: options.order9_sizes(),
            models: options.all_models(),
            commit: options.commit(),
            environment: options.asked().clone(),
            cpus: Cpus::allowed().map_err(BenchError::Cpus)?,
            clock: Clock::calibrate(),
        };
        run.benches.iter().try_for_each(|&bench| run.check_bytes(bench))?;
        let limit = address_limit();
        if let Some(bytes) = limit.filter(|&bytes| bytes < zonelist::ADDRESS_BYTES)
            && run.benches.contains(&Bench::Zonelist)
        {
            return Err(BenchError::no_addresses_for_nodes(bytes));
        }
        let reserved = run.large_bytes();
        if let Some(allowed) = limit.filter(|&bytes| bytes < reserved)
            && run.benches.contains(&Bench::Random)
        {
            let (bench, pages) = (Bench::Random, run.effort.fill_pages * random::LARGE);
            return Err(BenchError::NoAddressesForPages { bench, pages, reserved, allowed });
        }
        let memories = run.memories();
        let enough = memories.check(limit);
        enough.map_err(|error| of_size(memories.bytes, SizeError::NoAddresses(error.into())))?;
        Ok(run)
    }

    /// What is measured, in this order.
    pub fn benches(&self) -> &[Bench] {
        &self.benches
    }

    /// How [`Bench::Bulk`] handles pages one at a time.
    pub fn single_loop(&self) -> SingleLoop {
        self.single_loop
    }

    /// Why a benchmark is impossible here; `None` if it is possible.
    pub fn why_not(&self, bench: Bench) -> Option<&'static str> {
        let needed = match bench {
            Bench::Cross => cross::THREADS,
            Bench::Tails => tails::THREADS,
            Bench::Mixed => mixed::THREADS,
            _ => 1,
        };
        (self.cpus.count() < needed).then_some("it takes two CPUs and this process may use one")
    }

    /// Describes this machine, and what takes no part in its runs, with the reasons.
    ///
    /// The memories that it looks at are gone when it returns: a limit of addresses (`ulimit -v`) has room for those
    /// of one benchmark at a time.
    ///
    /// # Errors
    ///
    /// [`BenchError::Size`] and [`BenchError::Environment`].
    pub fn machine(&self) -> Result<(Machine, Vec<String>), BenchError> {
        let uses_field = self.benches.iter().any(|bench| !bench.has_one_memory());
        let field = self.field(if uses_field { self.bytes_per_node } else { UNUSED_BYTES })?;
        let conditions = Conditions {
            cpus: &self.cpus,
            clock: self.clock,
            bytes_per_node: self.bytes_per_node,
            rounds: self.effort.rounds,
            commit: self.commit,
        };
        Ok((Machine::this(&field.nearpage, &conditions), field.absent))
    }

    /// Measures on fresh memories, so that the figures don't depend on what was measured before.
    ///
    /// The observer hears of each step, a measurement of some milliseconds.
    ///
    /// # Errors
    ///
    /// [`BenchError`].
    pub fn measure(&self, bench: Bench, observer: &dyn Observer) -> Result<Measured, BenchError> {
        let begin: &dyn Fn() -> MemoryBuilder = &|| self.builder();
        let rules = |&model: &Model| Rules { name: model.name, model, begin };
        let rules: Vec<Rules<'_>> = self.models.iter().map(rules).collect();
        let locked: &dyn Fn() -> MemoryBuilder = &|| self.builder().use_rseq(false);
        let has_sequences = StorageInUse::of_this_process(&self.environment) == StorageInUse::Rseq;
        let locked = has_sequences.then_some(Rules {
            name: "nearpage-locked",
            model: Model::NEARPAGE,
            begin: locked,
        });
        let with_locked: Vec<Rules<'_>> =
            rules[..1].iter().copied().chain(locked).chain(rules[1..].iter().copied()).collect();
        let setting = Setting {
            cpus: &self.cpus,
            clock: self.clock,
            effort: self.effort,
            bytes: self.bytes_per_node,
        };
        let rounds = |steps| self.rounds(bench, steps, &|_| None, observer);
        match bench {
            Bench::Fragmentation => Ok(Measured {
                fragmentation: self.fragmentation(&rules, observer)?,
                ..Measured::of(Vec::new())
            }),
            Bench::Order9 => {
                let of_size = |&bytes| rules.iter().map(move |of| (of, bytes));
                let all = self.order9_sizes.iter().flat_map(of_size);
                let steps = all.map(|(rules, bytes)| order9::step(&self.cpus, rules, bytes));
                Ok(Measured::of(rounds(steps.collect())?))
            }
            Bench::Tails => {
                let steps = with_locked.iter().flat_map(|rules| tails::steps(setting, rules));
                Ok(Measured::of(rounds(steps.collect())?))
            }
            Bench::Mixed => {
                let ticks = Ticks::calibrate();
                let steps = with_locked.iter().map(|rules| mixed::step(setting, ticks, rules));
                let rows = rounds(steps.collect())?;
                Ok(Measured { call_clock: Some(ticks.name()), ..Measured::of(rows) })
            }
            Bench::Random => {
                let mut measured = self.measure_field(bench, observer)?;
                let pages = self.effort.fill_pages * random::LARGE;
                let setting = Setting { bytes: self.large_bytes(), ..setting };
                let steps = rules.iter().flat_map(|of| random::fresh_steps(setting, of, pages));
                measured.rows.extend(rounds(steps.collect())?);
                Ok(measured)
            }
            _ => self.measure_field(bench, observer),
        }
    }

    /// Does the rounds of a benchmark.
    fn rounds(
        &self,
        bench: Bench,
        steps: Vec<Step<'_>>,
        counters: &dyn Fn(&str) -> Option<Counters>,
        observer: &dyn Observer,
    ) -> Result<Vec<Row>, BenchError> {
        let ended = |ended| match ended {
            Ended::Step { allocator, error } => BenchError::Step { bench, allocator, error },
            Ended::Stopped(stopped) => stopped.into(),
        };
        run_rounds(&steps, self.effort.rounds, counters, observer).map_err(ended)
    }

    /// Each experiment under all rules.
    fn fragmentation(
        &self,
        rules: &[Rules<'_>],
        observer: &dyn Observer,
    ) -> Result<Vec<Fragmentation>, BenchError> {
        let untils = fragmentation::Until::ALL;
        let all = (self.shapes.len() * rules.len() * untils.len()) as u64;
        let (mut measured, mut done) = (Vec::new(), 0);
        for &shape in &self.shapes {
            for rules in rules {
                for until in untils {
                    observer.step(done, all)?;
                    done += 1;
                    let counts = fragmentation::measure(&self.cpus, rules, shape, until);
                    measured.extend(counts.map_err(|error| BenchError::Step {
                        bench: Bench::Fragmentation,
                        allocator: rules.name,
                        error,
                    })?);
                }
            }
        }
        observer.step(all, all)?;
        Ok(measured)
    }

    /// Measures what allocators of the field do.
    fn measure_field(&self, bench: Bench, observer: &dyn Observer) -> Result<Measured, BenchError> {
        let field = self.field(self.bytes_per_node)?;
        let counters = |allocator: &str| {
            let found = field.memories().find(|(name, _)| *name == allocator);
            found.map(|(_, memory)| Counters::of(memory))
        };
        let rounds = |steps| self.rounds(bench, steps, &counters, observer);
        let context =
            Context { field: &field, cpus: &self.cpus, effort: self.effort, clock: self.clock };
        let refuse = |allocator, misuses| match misuses {
            0 => Ok(()),
            misuses => Err(BenchError::Refused { bench, allocator, misuses }),
        };
        let mut scans = Vec::new();
        let rows = match bench {
            Bench::Zonelist => {
                let filled =
                    zonelist::fill(|| self.builder(), &self.cpus).map_err(BenchError::nodes)?;
                let rows = rounds(zonelist::steps(context, &filled))?;
                for filled in &filled {
                    refuse(filled.scans().allocator, filled.misuses())?;
                    scans.push(filled.scans());
                }
                rows
            }
            Bench::Slab => {
                let refused = |error| self.refused(error);
                let memories =
                    slab::Memories::new(|| self.builder(), self.bytes_per_node, &self.cpus);
                let memories = memories.map_err(refused)?;
                let allocators = memories.allocators().map_err(refused)?;
                let caches = slab::Caches::of(&allocators);
                let rows = rounds(slab::steps(context, &caches))?;
                refuse("nearpage", memories.misuses())?;
                rows
            }
            _ => rounds(bench.steps(context, self.single_loop))?,
        };
        for (allocator, memory) in field.memories() {
            refuse(allocator, memory.misuses())?;
        }
        Ok(Measured { scans, ..Measured::of(rows) })
    }

    fn field(&self, bytes: u64) -> Result<Field, BenchError> {
        let field = Field::new(|| self.builder(), bytes, &self.cpus, &self.models[1..]);
        field.map_err(|error| self.refused(error))
    }

    fn check_bytes(&self, bench: Bench) -> Result<(), BenchError> {
        let check = |bytes, threads| {
            let pages = bench.pages(&self.effort, threads);
            let needed = needed_bytes(pages);
            match bytes < needed {
                true => Err(of_size(bytes, SizeError::TooSmall { bench, pages, needed })),
                false => Ok(()),
            }
        };
        match bench {
            Bench::Fragmentation => {
                self.shapes.iter().try_for_each(|shape| check(shape.bytes, shape.threads))
            }
            Bench::Order9 => self.order9_sizes.iter().try_for_each(|&bytes| check(bytes, 1)),
            _ => check(self.bytes_per_node, self.cpus.count()),
        }
    }

    /// Bytes of each memory that a benchmark has.
    fn bytes_of(&self, bench: Bench) -> u64 {
        let largest = match bench {
            Bench::Fragmentation => self.shapes.iter().map(|shape| shape.bytes).max(),
            Bench::Order9 => self.order9_sizes.iter().copied().max(),
            _ => None,
        };
        largest.unwrap_or(self.bytes_per_node)
    }

    /// The size of the memories of [`Bench::Random`] that hold more.
    fn large_bytes(&self) -> u64 {
        needed_bytes(self.effort.fill_pages * random::LARGE).max(self.bytes_per_node)
    }

    /// The most memories that there are at once.
    fn memories(&self) -> Memories {
        // A machine that cannot be read is an error when the memories are made.
        let environment = &self.environment;
        let has_memory = |node: &&HostNode| node.has_memory;
        let nodes = environment
            .machine()
            .map_or(1, |machine| machine.nodes.iter().filter(has_memory).count());
        let storage = StorageInUse::of_this_process(environment);
        let count = |bench: Bench| bench.memories(nodes, storage, self.models.len() - 1) as u64;
        let all = |bench| count(bench).saturating_mul(self.bytes_of(bench));
        let largest = self.benches.iter().copied().rev().max_by_key(|&bench| all(bench));
        let largest = largest.unwrap_or(Bench::Bulk);
        let least = |&bench: &Bench| needed_bytes(bench.pages(&self.effort, self.cpus.count()));
        Memories {
            bench: largest,
            count: count(largest),
            bytes: self.bytes_of(largest),
            least: self.benches.iter().map(least).max().unwrap_or(0),
            cpus: self.cpus.count() as u64,
        }
    }

    /// Why memories could not be made.
    fn refused(&self, error: MemoryError) -> BenchError {
        match error {
            MemoryError::NoAddresses { error, .. } | MemoryError::NoMemory { error, .. } => {
                let memories = self.memories();
                let why = memories.refused(address_limit(), &error);
                of_size(memories.bytes, SizeError::NoAddresses(why.into()))
            }
            error @ MemoryError::Environment(_) => BenchError::Environment(error.into()),
            error => of_size(self.bytes_per_node, SizeError::Memory(error.into())),
        }
    }

    /// How each memory of this run begins.
    fn builder(&self) -> MemoryBuilder {
        Memory::builder().environment(self.environment.clone())
    }
}

impl Measured {
    fn of(rows: Vec<Row>) -> Self {
        Self { rows, call_clock: None, scans: Vec::new(), fragmentation: Vec::new() }
    }
}

fn of_size(bytes: u64, why: SizeError) -> BenchError {
    BenchError::Size { bytes, why }
}

/// Memory that lets `pages` be held: watermarks and pagesets keep some to themselves.
fn needed_bytes(pages: usize) -> u64 {
    const MEBIBYTE: u64 = 1 << 20;
    let pages_bytes = pages as u64 * FRAME_BYTES;
    (pages_bytes + pages_bytes / 4).next_multiple_of(MEBIBYTE) + 16 * MEBIBYTE
}
