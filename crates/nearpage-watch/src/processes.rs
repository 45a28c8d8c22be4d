//! Processes by node, read within a budget: a machine has thousands, and numa_maps of a large one takes long.
//!
//! Each refresh has three parts, each with a third of the budget, and reads the list of PIDs before them; if that takes
//! longer than a third, not each time.
//!
//! 1. `stat` of the largest processes, then of the others in turn.
//! 2. `numa_maps` of processes for which it fits: those that were never read first, the largest of them first, then
//!    those that are due.
//! 3. `numa_maps` of one for which it does not fit. What it takes above the third is owed: refreshes read none of this
//!    kind until it is paid back. A reader begins with a credit, so that placements are there soon.
//!
//! `numa_maps` walks a process's page tables and keeps it from changing its mappings meanwhile. A process is due when a
//! hundred times as long has passed as its last reading took, so nobody is held up for more than 1 % of the time.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use nearpage_machine::FileTree;

use crate::placement::{self, Placement, ProcessSample, Processes, Stat};

/// The largest processes, which are read each time.
const LARGEST: usize = 32;
/// PIDs that are known at most: as many as Linux may have.
const PIDS_MOST: usize = 1 << 22;
/// Others that are read at least.
const TURNS_LEAST: usize = 16;
/// A process's reading may take this part of the time.
const SHARE: u32 = 100;
/// What is expected to take longer is read on request only.
const LONGEST: Duration = Duration::from_millis(50);
/// What may be read above the budget at first, and of it in one refresh.
const CREDIT: Duration = Duration::from_millis(400);
const CREDIT_OF_REFRESH: Duration = Duration::from_millis(40);
/// What a GiB of pages of 4 KiB takes, before it is known.
const EXPECTED_PER_GIB: Duration = Duration::from_millis(5);

/// What is known of a process.
#[derive(Debug)]
struct Known {
    stat: Stat,
    stat_at: Instant,
    /// Faults a second: minor, major.
    faults: Option<(u64, u64)>,
    uid: Option<u32>,
    may_use: String,
    nodes: Vec<(u32, u64)>,
    placement: Placement,
    /// When its placement was read, and how long it took.
    placed: Option<(Instant, Duration)>,
}

/// Reads processes of a tree.
#[derive(Debug)]
pub(crate) struct ProcessReader {
    known: BTreeMap<u32, Known>,
    /// Where the round of those that are not among the largest goes on: above this PID.
    cursor: u32,
    budget: Option<Duration>,
    /// What past readings of placements took above their budget.
    owed: Duration,
    credit: Duration,
    /// Refreshes for which the list of PIDs is kept.
    list_holds: u32,
    per_gib: Duration,
    wanted: Option<u32>,
    /// Tests have a clock that stands still while nothing is read.
    clock: fn() -> Instant,
}

impl ProcessReader {
    /// A reader that spends about `budget` on a refresh; without one it reads everything each time.
    pub(crate) fn new(budget: Option<Duration>) -> ProcessReader {
        ProcessReader {
            known: BTreeMap::new(),
            cursor: 0,
            budget,
            owed: Duration::ZERO,
            credit: CREDIT,
            list_holds: 0,
            per_gib: EXPECTED_PER_GIB,
            wanted: None,
            clock: Instant::now,
        }
    }

    /// Reads the placement of this process at the next refresh, whatever it takes.
    pub(crate) fn want(&mut self, pid: u32) {
        self.wanted = Some(pid);
    }

    /// Reads what the budget allows; `most` processes are told. `node_of` knows the node of a CPU.
    pub(crate) fn refresh(
        &mut self,
        tree: &dyn FileTree,
        most: usize,
        page_kib: u64,
        node_of: impl Fn(u32) -> Option<u32>,
    ) -> Processes {
        let third = self.budget.map(|budget| budget / 3);
        match self.list_holds {
            0 => {
                let begin = (self.clock)();
                self.read_list(tree);
                let took = self.since(begin).as_micros();
                let third = third.map_or(u128::MAX, |third| third.as_micros().max(1));
                self.list_holds = (took / third).min(30) as u32;
            }
            _ => self.list_holds -= 1,
        }
        self.read_stats(tree, third);
        self.read_placements(tree, third, page_kib);
        self.told(most, page_kib, node_of)
    }

    /// Forgets those that ended; those that are new are read in their turn.
    fn read_list(&mut self, tree: &dyn FileTree) {
        let names = tree.names("proc").unwrap_or_default();
        let mut pids: Vec<u32> =
            names.iter().filter_map(|name| name.parse().ok()).take(PIDS_MOST).collect();
        pids.sort_unstable();
        self.known.retain(|pid, _| pids.binary_search(pid).is_ok());
        let now = (self.clock)();
        for pid in pids {
            self.known.entry(pid).or_insert_with(|| Known {
                stat: Stat { start: u64::MAX, ..Stat::default() },
                stat_at: now,
                faults: None,
                uid: None,
                may_use: String::new(),
                nodes: Vec::new(),
                placement: Placement::Waiting,
                placed: None,
            });
        }
    }

    fn read_stats(&mut self, tree: &dyn FileTree, third: Option<Duration>) {
        let begin = (self.clock)();
        let largest = self.largest(LARGEST);
        for pid in &largest {
            self.read_stat(tree, *pid);
        }
        // One round at most: from behind the cursor to the end, then from the first.
        let behind = self.known.range(self.cursor.saturating_add(1)..).map(|(pid, _)| *pid);
        let round: Vec<u32> =
            behind.chain(self.known.range(..=self.cursor).map(|(pid, _)| *pid)).collect();
        for (turn, pid) in round.into_iter().enumerate() {
            // A few have their turn also where the largest used it up.
            if turn >= TURNS_LEAST && third.is_some_and(|third| self.since(begin) >= third) {
                break;
            }
            self.cursor = pid;
            if !largest.contains(&pid) {
                self.read_stat(tree, pid);
            }
        }
    }

    fn largest(&self, most: usize) -> Vec<u32> {
        let mut sizes: Vec<(u64, u32)> = self
            .known
            .iter()
            .filter(|(_, known)| known.stat.rss_pages > 0)
            .map(|(pid, known)| (known.stat.rss_pages, *pid))
            .collect();
        keep_largest(&mut sizes, most, |(rss, pid)| (std::cmp::Reverse(*rss), *pid));
        sizes.into_iter().map(|(_, pid)| pid).collect()
    }

    fn read_stat(&mut self, tree: &dyn FileTree, pid: u32) {
        // A process that ended since the list was read is no error.
        let read = tree.read(&format!("proc/{pid}/stat")).ok().flatten();
        let now = (self.clock)();
        let Some(stat) = read.and_then(|text| placement::stat(&text)) else {
            self.known.remove(&pid);
            return;
        };
        let Some(known) = self.known.get_mut(&pid) else { return };
        if known.stat.start == stat.start {
            let seconds = now.duration_since(known.stat_at).as_secs_f64();
            let rate = |before: u64, after: u64| {
                let events = after.checked_sub(before).filter(|_| seconds > 0.0)?;
                Some((events as f64 / seconds).round() as u64)
            };
            known.faults = rate(known.stat.minor_faults, stat.minor_faults)
                .zip(rate(known.stat.major_faults, stat.major_faults));
        } else {
            // The first time, or another process that got the PID.
            (known.faults, known.uid, known.placed) = (None, None, None);
            (known.placement, known.nodes) = (Placement::Waiting, Vec::new());
        }
        (known.stat, known.stat_at) = (stat, now);
    }

    fn read_placements(&mut self, tree: &dyn FileTree, third: Option<Duration>, page_kib: u64) {
        if let Some(pid) = self.wanted.take() {
            self.read_placement(tree, pid, page_kib);
        }
        let Some(third) = third else {
            for pid in self.largest(usize::MAX) {
                self.read_placement(tree, pid, page_kib);
            }
            return;
        };
        self.owed = self.owed.saturating_sub(third);
        let (mut left, mut above) = (third, self.credit.min(CREDIT_OF_REFRESH));
        for pid in self.due() {
            let expected = self.expected(pid, page_kib);
            if expected > LONGEST {
                self.leave_out(pid);
            } else if expected > third {
                // It does not fit: on credit, or one of this kind if the last is paid.
                if !above.is_zero() {
                    let took = self.read_placement(tree, pid, page_kib);
                    above = above.saturating_sub(took);
                    self.credit = self.credit.saturating_sub(took);
                } else if self.owed.is_zero() {
                    self.owed = self.read_placement(tree, pid, page_kib).saturating_sub(third);
                }
            } else if !left.is_zero() {
                left = left.saturating_sub(self.read_placement(tree, pid, page_kib));
            }
        }
    }

    /// What reading a placement takes: what it took, or what others of that size take.
    fn expected(&self, pid: u32, page_kib: u64) -> Duration {
        let Some(known) = self.known.get(&pid) else { return Duration::ZERO };
        match known.placed {
            Some((_, took)) => took,
            None => per_kib(self.per_gib, known.stat.rss_pages.saturating_mul(page_kib)),
        }
    }

    /// One that was read on request keeps what was read.
    fn leave_out(&mut self, pid: u32) {
        if let Some(known) = self.known.get_mut(&pid).filter(|known| known.placed.is_none()) {
            known.placement = Placement::TooLong;
        }
    }

    /// Those whose placement is to be read, in order.
    fn due(&self) -> Vec<u32> {
        let now = (self.clock)();
        let mut due: Vec<(bool, u64, u32)> = Vec::new();
        for (pid, known) in &self.known {
            if known.stat.rss_pages == 0 || known.placement == Placement::TooLong {
                continue;
            }
            // Who may not be read now is asked again as seldom as a reading of a second.
            let waits = known.placed.map(|(at, took)| {
                let took = if known.placement == Placement::Read { took } else { took.max(SELDOM) };
                now.duration_since(at) < took * SHARE
            });
            if waits != Some(true) {
                due.push((waits.is_some(), u64::MAX - known.stat.rss_pages, *pid));
            }
        }
        // No budget lasts for more.
        keep_largest(&mut due, DUE_MOST, |key| *key);
        due.into_iter().map(|(.., pid)| pid).collect()
    }

    fn read_placement(&mut self, tree: &dyn FileTree, pid: u32, page_kib: u64) -> Duration {
        let Some(known) = self.known.get_mut(&pid) else { return Duration::ZERO };
        let begin = (self.clock)();
        if known.uid.is_none() {
            let status = tree.read(&format!("proc/{pid}/status")).ok().flatten();
            (known.uid, known.may_use) = placement::status(&status.unwrap_or_default());
        }
        let read = tree.read(&format!("proc/{pid}/numa_maps"));
        (known.placement, known.nodes) = match read {
            Ok(Some(text)) => (Placement::Read, placement::numa_maps(&text)),
            Ok(None) => (Placement::Absent, Vec::new()),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                (Placement::Denied, Vec::new())
            }
            // It is ending: the next list is without it.
            Err(_) => (Placement::Waiting, Vec::new()),
        };
        let now = (self.clock)();
        let took = now.duration_since(begin);
        known.placed = Some((now, took));
        let kib = known.stat.rss_pages.saturating_mul(page_kib);
        if known.placement == Placement::Read && kib > 1 << 16 {
            let per_gib = took.as_secs_f64() * (1 << 20) as f64 / kib as f64;
            self.per_gib = (self.per_gib * 7 + Duration::from_secs_f64(per_gib.min(10.0))) / 8;
        }
        took
    }

    fn since(&self, begin: Instant) -> Duration {
        (self.clock)().duration_since(begin)
    }

    fn told(&self, most: usize, page_kib: u64, node_of: impl Fn(u32) -> Option<u32>) -> Processes {
        let with_memory = || self.known.values().filter(|known| known.stat.rss_pages > 0);
        let count =
            |of: fn(Placement) -> bool| with_memory().filter(|known| of(known.placement)).count();
        let list = self.largest(most).into_iter().filter_map(|pid| {
            let known = self.known.get(&pid)?;
            Some(ProcessSample {
                pid,
                name: known.stat.name.clone(),
                uid: known.uid,
                rss: known.stat.rss_pages.saturating_mul(page_kib),
                nodes: known.nodes.clone(),
                placement: known.placement,
                placed_ago: known
                    .placed
                    .filter(|_| known.placement == Placement::Read)
                    .map(|(at, _)| self.since(at).as_secs()),
                runs_on: known.stat.cpu.and_then(&node_of),
                may_use: known.may_use.clone(),
                minor_faults: known.faults.map(|(minor, _)| minor),
                major_faults: known.faults.map(|(_, major)| major),
            })
        });
        Processes {
            list: list.collect(),
            seen: with_memory().count(),
            denied: count(|placement| placement == Placement::Denied),
            waiting: count(|of| matches!(of, Placement::Waiting | Placement::TooLong)),
        }
    }
}

/// Placements that are read in one refresh at most.
const DUE_MOST: usize = 1024;
/// What stands for the time of a reading that was refused.
const SELDOM: Duration = Duration::from_millis(100);

fn per_kib(per_gib: Duration, kib: u64) -> Duration {
    per_gib.mul_f64((kib as f64 / (1 << 20) as f64).min(1e6))
}

/// Keeps the `most` first by a key, sorted by it: a selection, not a sort of thousands.
fn keep_largest<T, K: Ord>(list: &mut Vec<T>, most: usize, key: impl Fn(&T) -> K) {
    if most < list.len() {
        list.select_nth_unstable_by_key(most, &key);
        list.truncate(most);
    }
    list.sort_unstable_by_key(key);
}

#[cfg(test)]
mod tests;
