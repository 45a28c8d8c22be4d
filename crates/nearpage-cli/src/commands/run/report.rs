//! What is told after a program has ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::child::{Ended, exit_code};

/// Processes and sizes that the text has a line for.
const LINES: usize = 8;

/// What a process wrote when it ended.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Process {
    pub program: String,
    pub pid: u32,
    pub parent: u32,
    /// Made by a fork, with the memory of its parent; its allocations are those since.
    pub forked: bool,
    pub peak_rss_kib: u64,
    pub minor_faults: u64,
    pub allocations: u64,
    pub bytes_in_use: u64,
    pub bytes_held: u64,
    pub large: u64,
    pub large_bytes: u64,
    pub mapped: u64,
    pub mapped_bytes: u64,
    pub freed_elsewhere: u64,
    pub batches: u64,
    pub heaps: u64,
    pub trims: u64,
    misuses: u64,
    pub boot_bytes: u64,
    pub bytes_by_node: Vec<u64>,
    pub freed_on_other_node: u64,
    pub wrong_node_bytes: u64,
    /// Pages that came from elsewhere, by reason.
    pub elsewhere: Vec<u64>,
    pub by_cpu: Vec<u64>,
    pub lock_waits: u64,
    pub lock_wait_ns: u64,
    pub classes: Vec<Class>,
}

#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Class {
    pub size: u64,
    pub allocated: u64,
    pub in_use: u64,
    pub spans: u64,
    pub span_bytes: u64,
}

/// What a process wrote meanwhile.
#[derive(Deserialize, Debug)]
pub(super) struct Sample {
    /// The process.
    pub sample: u32,
    pub ms: u64,
    pub allocations: u64,
    pub in_use: u64,
    pub held: u64,
    pub faults: u64,
    pub nodes: Vec<u64>,
}

/// The whole report.
#[derive(Serialize, Debug)]
pub(super) struct Report {
    schema: u32,
    pub command: Vec<String>,
    pub exit_code: u8,
    pub wall_s: f64,
    pub cpu_s: f64,
    #[serde(rename = "peak_rss_kib")]
    pub peak_kib: i64,
    #[serde(rename = "minor_faults")]
    pub faults: i64,
    pub pages_by_node: BTreeMap<u32, u64>,
    pub uncounted: Option<String>,
    pub processes: Vec<Process>,
}

impl Report {
    pub fn new(
        command: &[OsString],
        ended: &Ended,
        wall: Duration,
        uncounted: Option<String>,
    ) -> Self {
        let lines = ended.lines.lines();
        let mut processes: Vec<Process> =
            lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
        processes.sort_by_key(|process| std::cmp::Reverse(process.allocations));
        let counted: u64 = processes.iter().map(|process| process.allocations).sum();
        let uncounted = uncounted.or_else(|| {
            (counted == 0).then(|| {
                "no process wrote a report: it was killed or ended by _exit, or brings a malloc of its own".to_owned()
            })
        });
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            schema: 1,
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code: exit_code(ended.status),
            wall_s: wall.as_secs_f64(),
            cpu_s: seconds(ended.usage.ru_utime) + seconds(ended.usage.ru_stime),
            peak_kib: ended.usage.ru_maxrss,
            faults: ended.usage.ru_minflt,
            pages_by_node: ended.pages_by_node.clone(),
            uncounted,
            processes,
        }
    }
}

/// What processes wrote meanwhile.
pub(super) fn samples(ended: &Ended) -> Vec<Sample> {
    ended.lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

pub(super) fn mib(bytes: u64) -> f64 {
    bytes as f64 / (1 << 20) as f64
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: exit code {}", self.command.join(" "), self.exit_code)?;
        writeln!(f, "time: {:.3} s, CPU {:.3} s", self.wall_s, self.cpu_s)?;
        writeln!(
            f,
            "memory: at most {:.1} MiB resident in a process, {} minor faults",
            mib(self.peak_kib as u64 * 1024),
            self.faults
        )?;
        if !self.pages_by_node.is_empty() {
            let nodes = self.pages_by_node.iter();
            let nodes: Vec<_> =
                nodes.map(|(node, pages)| format!("node {node}: {pages}")).collect();
            writeln!(f, "pages when last looked at: {}", nodes.join(", "))?;
        }
        if let Some(why) = &self.uncounted {
            writeln!(f, "no calls were counted: {why}")?;
        }
        if self.processes.is_empty() {
            return Ok(());
        }
        writeln!(
            f,
            "{:>8} {:>12} {:>9} {:>9} {:>7} {:>7} {:>10} {:>6} {:>6}",
            "process",
            "allocations",
            "used MiB",
            "held MiB",
            "large",
            "mapped",
            "elsewhere",
            "heaps",
            "trims"
        )?;
        for process in self.processes.iter().take(LINES) {
            writeln!(
                f,
                "{:>8} {:>12} {:>9.1} {:>9.1} {:>7} {:>7} {:>10} {:>6} {:>6}",
                process.pid,
                process.allocations,
                mib(process.bytes_in_use),
                mib(process.bytes_held),
                process.large,
                process.mapped,
                process.freed_elsewhere,
                process.heaps,
                process.trims
            )?;
        }
        if let Some(more) = self.processes.len().checked_sub(LINES).filter(|more| *more > 0) {
            writeln!(f, "{more:>8} more")?;
        }
        let most = &self.processes[0];
        let mut classes: Vec<_> = most.classes.iter().collect();
        classes.sort_by_key(|class| std::cmp::Reverse(class.allocated));
        writeln!(f, "sizes of process {}, by calls:", most.pid)?;
        writeln!(
            f,
            "{:>8} {:>12} {:>10} {:>8} {:>9}",
            "bytes", "allocations", "in use", "spans", "waste %"
        )?;
        for class in classes.iter().take(LINES) {
            let used = class.in_use * class.size;
            let waste = 100.0 * (1.0 - used as f64 / (class.span_bytes.max(1)) as f64);
            writeln!(
                f,
                "{:>8} {:>12} {:>10} {:>8} {:>9.1}",
                class.size, class.allocated, class.in_use, class.spans, waste
            )?;
        }
        Ok(())
    }
}
