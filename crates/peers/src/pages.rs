//! `peers pages`: the same page work on all allocators, in interleaved rounds.
//!
//! A round does every piece of work on every allocator once, and starts each piece with another one,
//! so that what drifts (clock of the CPU, other load) hits all alike. A first round is not counted: it
//! warms caches and brings the allocators' memory in.

use std::io;

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::contestant::Contestant;
use crate::fact::Fact;
use crate::footprint::{Footprint, resident_bytes};
use crate::machine::Machine;
use crate::sample::{Row, Samples};
use crate::source::Role;
use crate::task::Work;
use crate::timing::Effort;
use crate::workers::Workers;
use crate::{nearpage, peers};

/// What a run has found.
#[derive(Debug, Serialize)]
pub struct Run {
    /// Where.
    pub machine: Machine,
    /// Times per page.
    pub rows: Vec<Row>,
    /// Memory.
    pub resident: Vec<Resident>,
    /// What is neither.
    pub facts: Vec<Fact>,
    /// Allocators that did not take part.
    pub absent: Vec<Absent>,
}

/// Memory of one allocator.
#[derive(Debug, Serialize)]
pub struct Resident {
    /// The allocator's name.
    pub allocator: &'static str,
    /// Its memory.
    #[serde(flatten)]
    pub footprint: Footprint,
}

/// An allocator that did not take part.
#[derive(Debug, Serialize)]
pub struct Absent {
    /// The allocator's name.
    pub allocator: &'static str,
    /// Why.
    pub reason: String,
}

/// Measures everything.
///
/// # Errors
///
/// If the benchmark threads cannot be started on CPUs of their own, or the memory of this process
/// cannot be read.
pub fn run(effort: &Effort) -> io::Result<Run> {
    let workers = Workers::start()?;
    let machine = Machine::this();
    let mut field = Field::default();
    for entry in nearpage::all().into_iter().chain(peers::all()) {
        field.admit(entry, &workers, effort)?;
    }
    let facts = nearpage::facts();
    let mut rows = field.compete(&Work::all(workers.count(), effort), &workers, effort);
    let mut large = Field::default();
    for entry in nearpage::large().into_iter().chain(peers::large()) {
        large.enter(entry, &workers);
    }
    rows.extend(large.compete(&Work::large(workers.count()), &workers, effort));
    field.absent.extend(large.absent);
    Ok(Run { machine, rows, resident: field.resident, facts, absent: field.absent })
}

/// Those that take part.
#[derive(Default)]
struct Field {
    contestants: Vec<(&'static str, Box<dyn Contestant>)>,
    resident: Vec<Resident>,
    absent: Vec<Absent>,
}

impl Field {
    fn admit(&mut self, entry: peers::Entry, workers: &Workers, effort: &Effort) -> io::Result<()> {
        let before = resident_bytes()?;
        let admitted = (entry.build)().and_then(|contestant| {
            contestant.enter(workers);
            let footprint = match Role::of(entry.name) {
                Role::Limit => None,
                _ => Some(contestant.footprint(workers, before, effort.fill_pages)?),
            };
            Ok((contestant, footprint))
        });
        let allocator = entry.name;
        match admitted {
            Ok((contestant, footprint)) => {
                self.contestants.push((allocator, contestant));
                self.resident.extend(footprint.map(|footprint| Resident { allocator, footprint }));
            }
            Err(reason) => self.absent.push(Absent { allocator, reason }),
        }
        Ok(())
    }

    /// Without a look at its memory.
    fn enter(&mut self, entry: peers::Entry, workers: &Workers) {
        match (entry.build)() {
            Ok(contestant) => {
                contestant.enter(workers);
                self.contestants.push((entry.name, contestant));
            }
            Err(reason) => self.absent.push(Absent { allocator: entry.name, reason }),
        }
    }

    fn compete(&self, works: &[Work], workers: &Workers, effort: &Effort) -> Vec<Row> {
        let count = self.contestants.len();
        let progress = progress_bar((effort.rounds + 1) * works.len() * count);
        let mut samples = Samples::default();
        for round in 0..=effort.rounds {
            for (position, &work) in works.iter().enumerate() {
                for turn in 0..count {
                    let rank = (round + position + turn) % count;
                    let (name, contestant) = &self.contestants[rank];
                    let measured = contestant.measure(work, workers, effort);
                    if round > 0 {
                        samples.add(rank, name, &measured);
                    }
                    progress.inc(1);
                }
            }
        }
        progress.finish_and_clear();
        samples.rows()
    }
}

/// On standard error, and only on a terminal. It has no thread of its own that would take time away.
pub fn progress_bar(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} %  {eta} left");
    let bar = ProgressBar::new(steps as u64);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;
    use crate::sample::Bench;
    use crate::task;

    /// Everything, for a moment.
    const TINY: Effort = Effort {
        rounds: 1,
        sample: Duration::from_micros(50),
        cross: Duration::from_micros(50),
        fill_pages: 1000,
        large_pages: 10_000,
        batch_max: 512,
    };

    /// Whether the allocator called `name` can do what `bench` does.
    fn can(name: &str, bench: Bench) -> bool {
        match name {
            "mmap" => matches!(bench, Bench::Pair | Bench::Order9Pair | Bench::Cross),
            "dpdk" => bench != Bench::Order9Pair,
            _ => true,
        }
    }

    /// Those that hold many more pages have memories of their own, and so do not all others.
    fn is_large(row: &&Row) -> bool {
        row.n == TINY.large_pages
    }

    #[test]
    fn every_allocator_has_every_row_that_it_can_have() {
        let run = run(&TINY).expect("a run");
        let keys: BTreeSet<_> =
            run.rows.iter().filter(|row| !is_large(row)).map(Row::key).collect();
        let series = task::series(TINY.batch_max).count();
        assert_eq!(keys.len(), if run.machine.cpus > 1 { 12 + 6 * series } else { 6 + 4 * series });
        for name in peers::all().iter().map(|entry| entry.name) {
            let rows = run.rows.iter().filter(|row| row.allocator == name && !is_large(row));
            let has: BTreeSet<_> = rows.map(Row::key).collect();
            let absent = run.absent.iter().any(|absent| absent.allocator == name);
            let can = keys.iter().copied().filter(|key| !absent && can(name, key.bench)).collect();
            assert_eq!(has, can, "{name}");
        }
        let large: BTreeSet<_> =
            run.rows.iter().filter(is_large).map(|row| row.allocator).collect();
        assert_eq!(large, BTreeSet::from(["bitmap-allocator", "nearpage"]));
        let count = run.rows.iter().filter(is_large).count();
        assert_eq!(count, 2 * 3 * run.machine.cpus.min(2));
        assert!(run.absent.iter().all(|absent| absent.allocator == "dpdk"), "{:?}", run.absent);
        assert!(run.rows.iter().all(|row| row.ns_median >= 0.0 && row.ns_median.is_finite()));
        assert!(run.resident.iter().all(|resident| resident.footprint.pages == TINY.fill_pages));
    }
}
