//! What must hold of a memory hog on any machine: closed forms from the machine alone.
//!
//! A thread's node has room or not; what no node of the threads has room for is far, and nothing else need be. Where memory of
//! nodes without CPUs (CXL, GPUs) lies further away than all other, it comes last. Pagesets keep pages of zones, up to a few thousand a CPU, and zones keep pages back: so figures are exact only where much is left over.

use nearpage::CpuId;
use nearpage_sim::workload::hog::HogResult;
use nearpage_sim::{Machine, NodeSpec};

use crate::report::Report;

/// Room enough for pagesets and watermarks: so much of a node's memory, of four parts, is used at most.
const AMPLE: u64 = 3;

/// What a number of threads asks of a machine, the first CPUs first.
pub(super) struct Demand {
    /// Pages that all write to.
    pub(super) pages: u64,
    /// Of those, pages for which the node of their thread has no room.
    homeless: u64,
    /// Whether each thread's node has memory and ample room, also for those whose node has none, or no memory at all.
    is_clear: bool,
    /// Pages of nodes with CPUs, if all others are further away.
    with_cpus: Option<u64>,
    /// Pages of all nodes.
    all: u64,
}

impl Demand {
    pub(super) fn of(machine: &Machine, threads: usize, pages: u64) -> Demand {
        let running: Vec<CpuId> = machine.cpus().take(threads).map(|(cpu, _)| cpu).collect();
        let room = |node: &NodeSpec| node.bytes / machine.page_bytes();
        let asked = |node: &NodeSpec| {
            let here = node.cpus.iter().filter(|cpu| running.contains(cpu)).count() as u64;
            pages * here / threads.max(1) as u64
        };
        let nodes = || machine.nodes.iter();
        let homeless = nodes().map(|node| asked(node).saturating_sub(room(node))).sum();
        // Nodes with memory may get all of those who have none.
        let guests: u64 = nodes().filter(|node| room(node) == 0).map(asked).sum();
        let is_ample = |node: &NodeSpec| (asked(node) + guests) * 4 <= room(node) * AMPLE;
        let is_clear = nodes().filter(|node| room(node) > 0).all(is_ample);
        let with_cpus = machine.nodes.iter().filter(|node| !node.cpus.is_empty());
        Demand {
            pages,
            homeless,
            is_clear,
            with_cpus: cpuless_is_further(machine).then(|| with_cpus.map(room).sum()),
            all: machine.nodes.iter().map(room).sum(),
        }
    }

    /// What must hold of a run with such a demand.
    pub(super) fn hold(&self, name: &str, run: &HogResult, report: &mut Report) {
        let part = |pages: u64| pages as f64 / self.pages.max(1) as f64;
        let (far, homeless) = (part(run.remote), part(self.homeless));
        if self.is_clear {
            // Shares of threads may differ by a page.
            let what = format!(
                "{name}: share of pages from another node, only those of threads without memory at home, {homeless:.4}"
            );
            report.hold(what, far, (far - homeless).abs() < 0.001);
        } else if self.pages <= self.all {
            let what = format!(
                "{name}: share of pages from another node, at least the {homeless:.4} that have no room at home"
            );
            report.hold(what, far, far >= homeless);
        }
        if self.pages * 10 <= self.all * 9 {
            let what = format!("{name}: refused although a tenth of memory is left, exactly 0");
            report.hold(what, run.refused as f64, run.refused == 0);
        }
        let Some(with_cpus) = self.with_cpus else { return };
        let last = part(run.of_cpuless);
        let least = part(self.pages.min(self.all).saturating_sub(with_cpus));
        let (what, ok) = if self.pages * 4 <= with_cpus * AMPLE {
            ("none: it comes last".into(), run.of_cpuless == 0)
        } else {
            (format!("at least what the others have no room for, {least:.4}"), last >= least)
        };
        report.hold(format!("{name}: pages of nodes without CPUs a page, {what}"), last, ok);
    }
}

/// Whether there are nodes that have memory and no CPUs, and from each CPU all of them lie further away than all others.
fn cpuless_is_further(machine: &Machine) -> bool {
    let count = machine.nodes.len();
    let with = |has_cpus: bool| {
        let is_it = move |node: &NodeSpec| node.bytes > 0 && node.cpus.is_empty() != has_cpus;
        (0..count).filter(move |&at| is_it(&machine.nodes[at]))
    };
    let distance = |from: usize, to: usize| machine.distances[from * count + to];
    let mut from = (0..count).filter(|&at| !machine.nodes[at].cpus.is_empty());
    let is_last = |from: usize| {
        let nearest = with(false).map(|to| distance(from, to)).min();
        let farthest = with(true).map(|to| distance(from, to)).max();
        nearest.is_some_and(|near| farthest.is_some_and(|far| far < near))
    };
    from.all(is_last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nodes of 64 MiB: one with two CPUs, one with two CPUs and no memory, one without CPUs.
    fn machine() -> Machine {
        let mut machine = Machine::uniform(3, 2, 64 << 20);
        machine.distances = vec![10, 20, 30, 20, 10, 30, 30, 30, 10];
        machine.nodes[1].bytes = 0;
        machine.nodes[2].cpus.clear();
        machine
    }

    fn holds(threads: usize, pages: u64, run: HogResult) -> Vec<bool> {
        let mut report = Report::new("", "");
        Demand::of(&machine(), threads, pages).hold("", &run, &mut report);
        report.holds.iter().map(|hold| hold.ok).collect()
    }

    #[test]
    fn what_fits_stays_and_what_does_not_is_far() {
        let run = |remote, of_cpuless| HogResult { remote, of_cpuless, ..HogResult::default() };
        // Half of the threads have no memory at home.
        assert_eq!(holds(4, 10_000, run(5000, 0)), [true; 3]);
        assert_eq!(holds(4, 10_000, run(5100, 0)), [false, true, true]);
        assert_eq!(holds(4, 10_000, run(5000, 1)), [true, true, false], "CXL too early");
        // More, and who has no memory crowds others out of theirs.
        assert_eq!(holds(4, 16_000, run(8100, 0)), [true; 3]);
        // Two threads ask for more than their node has: 16384 pages.
        assert_eq!(holds(2, 20_000, run(4000, 4000)), [true; 3]);
        assert_eq!(holds(2, 20_000, run(3000, 3000)), [false, true, false]);
        let refused = HogResult { refused: 1, ..run(4000, 4000) };
        assert_eq!(holds(2, 20_000, refused), [true, false, true]);
    }

    #[test]
    fn memory_that_is_as_near_need_not_come_last() {
        let mut near = machine();
        assert!(cpuless_is_further(&near));
        near.distances = vec![10, 20, 20, 20, 10, 20, 20, 20, 10];
        assert!(!cpuless_is_further(&near));
        assert!(!cpuless_is_further(&Machine::uniform(2, 1, 64 << 20)));
    }
}
