//! `peers objects`: the same work with objects on all allocators, in interleaved rounds as in [`crate::pages`].

mod memoryless;
mod messages;
mod nearpage;
pub mod peers;
pub mod source;
pub mod work;

use std::io;

use nearpage_slab::LocalNode;

use crate::fact::Fact;
use crate::machine::Machine;
use crate::pages::{Absent, Run, progress_bar};
use crate::sample::{Row, Samples};
use crate::timing::Effort;
use crate::workers::Workers;

use peers::Entry;
use work::Work;

/// How much work is done to measure something.
#[derive(Clone, Copy, Debug)]
pub struct ObjectEffort {
    /// Rounds and durations; its pages mean nothing here.
    pub common: Effort,
    /// Objects held in `obj_fill` and `obj_free_random`.
    pub objects: usize,
}

impl ObjectEffort {
    /// What `objects` does.
    pub const FULL: ObjectEffort = ObjectEffort { common: Effort::FULL, objects: 1_000_000 };
}

/// Measures everything.
///
/// # Errors
///
/// As [`crate::pages::run`].
pub fn run(effort: &ObjectEffort) -> io::Result<Run> {
    let nodes = memoryless::Machines::build();
    let mut run =
        among(nearpage::all().into_iter().chain(peers::all()), nodes.as_ref().ok(), effort)?;
    let mut fact = |name, value| run.facts.push(Fact { name, value });
    if let Ok(nodes) = nodes {
        nodes.hits(&mut fact);
    }
    let workers = Workers::start()?;
    for (name, local) in [
        (Fact::LIST_LOCKS_OLD_PER_MESSAGE, LocalNode::OwnNode),
        (Fact::LIST_LOCKS_PER_MESSAGE, LocalNode::NearestMemory),
    ] {
        if let Ok(locks) = messages::list_locks(&workers, local) {
            fact(name, locks);
        }
    }
    Ok(run)
}

/// Measures these alone.
///
/// # Errors
///
/// As [`run`].
pub fn run_of(entries: Vec<Entry>, effort: &ObjectEffort) -> io::Result<Run> {
    among(entries, None, effort)
}

fn among(
    entries: impl IntoIterator<Item = Entry>,
    nodes: Option<&memoryless::Machines>,
    effort: &ObjectEffort,
) -> io::Result<Run> {
    let machine = Machine::this();
    let (mut contestants, mut absent) = (Vec::new(), Vec::new());
    for Entry { name, build } in entries {
        match build() {
            Ok(contestant) => contestants.push((name, contestant)),
            Err(reason) => absent.push(Absent { allocator: name, reason }),
        }
    }
    let workers = Workers::start()?;
    let rows = compete(&contestants, &workers, nodes, effort);
    Ok(Run { machine, rows, resident: Vec::new(), facts: Vec::new(), absent })
}

fn compete(
    contestants: &[(&'static str, Box<dyn work::Contestant>)],
    workers: &Workers,
    nodes: Option<&memoryless::Machines>,
    effort: &ObjectEffort,
) -> Vec<Row> {
    let works = Work::all(workers.count());
    let count = contestants.len();
    let progress = progress_bar((effort.common.rounds + 1) * works.len() * count);
    let mut samples = Samples::default();
    for round in 0..=effort.common.rounds {
        for (position, &work) in works.iter().enumerate() {
            for turn in 0..count {
                let rank = (round + position + turn) % count;
                let (name, contestant) = &contestants[rank];
                let measured = contestant.measure(work, workers, effort);
                if round > 0 {
                    samples.add(rank, name, &measured);
                }
                progress.inc(1);
            }
        }
        if let Some(nodes) = nodes {
            let measured = nodes.measure(workers, effort);
            if round > 0 {
                samples.add(0, "nearpage", &measured);
            }
        }
    }
    progress.finish_and_clear();
    samples.rows()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::*;

    /// Everything, for a moment.
    const TINY: ObjectEffort = ObjectEffort {
        common: Effort {
            rounds: 1,
            sample: Duration::from_micros(50),
            cross: Duration::from_micros(50),
            fill_pages: 1000,
            large_pages: 1000,
            batch_max: 512,
        },
        objects: 10_000,
    };

    #[test]
    fn every_allocator_has_every_row() {
        let run = run(&TINY).expect("a run");
        assert!(run.absent.is_empty(), "{:?}", run.absent);
        let keys: BTreeSet<_> = run.rows.iter().map(Row::key).collect();
        for name in peers::all().iter().map(|entry| entry.name) {
            let has: BTreeSet<_> =
                run.rows.iter().filter(|row| row.allocator == name).map(Row::key).collect();
            let nearpage_alone = keys.iter().filter(|key| key.bench.is_of_nearpage_alone()).count();
            assert_eq!(has.len() + nearpage_alone, keys.len(), "{name}");
        }
        let verdicts = crate::check::evaluate_objects(&crate::check::Results::of(&run));
        // Times of a moment mean nothing; that each figure could be made does.
        if run.machine.cpus > 1 && run.machine.storage == Some("rseq") {
            assert!(verdicts.iter().all(|verdict| verdict.value.is_some()), "{verdicts:?}");
            let counts =
                verdicts.iter().filter(|verdict| verdict.name.starts_with("obj-list-locks"));
            assert!(counts.filter(|verdict| verdict.ok).count() == 2, "{verdicts:?}");
        }
        assert!(run.rows.iter().all(|row| row.ns_median >= 0.0 && row.ns_median.is_finite()));
    }
}
