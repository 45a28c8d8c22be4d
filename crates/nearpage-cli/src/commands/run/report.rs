//! What is told after a program has ended.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::child::{Ended, exit_code};

/// Programs and sizes that the text has a line for.
const LINES: usize = 8;

/// What a process wrote when it ended.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Process {
    pub program: String,
    /// Its command line, or the begin of it.
    pub command: String,
    pub pid: u32,
    pub parent: u32,
    /// Made by a fork, with the memory of its parent; its allocations are those since.
    pub forked: bool,
    /// The most that was resident; `None` where the process could not read it.
    pub peak_rss_kib: Option<u64>,
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
    /// The most that was resident in a process; `None` where that cannot be told from what this command had.
    #[serde(rename = "peak_rss_kib")]
    pub peak_kib: Option<u64>,
    /// No process had more than this.
    #[serde(rename = "peak_rss_most_kib")]
    pub most_kib: u64,
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
        processes
            .sort_by_key(|process| std::cmp::Reverse((process.peak_rss_kib, process.allocations)));
        let counted: u64 = processes.iter().map(|process| process.allocations).sum();
        let uncounted = uncounted.or_else(|| {
            let why = match processes.is_empty() {
                true => "no process wrote a report: it was killed or ended by _exit, or brings a malloc of its own",
                false => "it called no malloc, or one of its own",
            };
            (counted == 0).then(|| why.to_owned())
        });
        let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
        Self {
            schema: 1,
            command: command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            exit_code: exit_code(ended.status),
            wall_s: wall.as_secs_f64(),
            cpu_s: seconds(ended.usage.ru_utime) + seconds(ended.usage.ru_stime),
            peak_kib: peak_kib(ended, &processes),
            // The kernel counts in batches, and a process reads its own count at another moment.
            most_kib: ended.most_kib().max(most_written(&processes).unwrap_or(0)),
            faults: ended.usage.ru_minflt,
            pages_by_node: ended.pages_by_node.clone(),
            uncounted,
            processes,
        }
    }
}

/// The most that a process wrote of itself.
fn most_written(processes: &[Process]) -> Option<u64> {
    processes.iter().filter_map(|of| of.peak_rss_kib).max()
}

/// The most that was resident in a process: what the kernel has of all, else what each wrote, if the program's own did.
fn peak_kib(ended: &Ended, processes: &[Process]) -> Option<u64> {
    let wrote = || {
        processes.iter().find(|of| of.pid == ended.process)?.peak_rss_kib?;
        most_written(processes)
    };
    ended.peak_kib().max(wrote())
}

impl Report {
    /// The process with the most allocations, if any has one.
    pub fn busiest(&self) -> Option<&Process> {
        let busiest = self.processes.iter().max_by_key(|process| process.allocations);
        busiest.filter(|process| process.allocations > 0)
    }

    /// What was resident at most, in words.
    pub fn peak_text(&self) -> String {
        match self.peak_kib {
            Some(peak) => format!("at most {:.1} MiB resident in a process", mib(peak * 1024)),
            None => {
                format!("less than {:.1} MiB resident in each process", mib(self.most_kib * 1024))
            }
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
        writeln!(f, "memory: {}, {} minor faults", self.peak_text(), self.faults)?;
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
        self.write_processes(f)?;
        let Some(most) = self.busiest() else { return Ok(()) };
        let mut classes: Vec<_> = most.classes.iter().collect();
        classes.sort_by_key(|class| std::cmp::Reverse(class.allocated));
        writeln!(f, "sizes of process {} ({}), by calls:", most.pid, most.program)?;
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

/// Letters of a command line in a row.
const COMMAND_LETTERS: usize = 48;

impl Report {
    /// A row for each program, of its largest process.
    fn write_processes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>8} {:>9} {:>12} {:>9} {:>9} {:>7} {:>7} {:>10} {:>6}  command",
            "process",
            "peak MiB",
            "allocations",
            "used MiB",
            "held MiB",
            "large",
            "mapped",
            "elsewhere",
            "heaps"
        )?;
        let mut programs: Vec<(&Process, usize)> = Vec::new();
        for process in &self.processes {
            match programs.iter_mut().find(|(largest, _)| largest.program == process.program) {
                Some((_, more)) => *more += 1,
                None => programs.push((process, 0)),
            }
        }
        for (process, more) in programs.iter().take(LINES) {
            let peak = process.peak_rss_kib.map(|peak| format!("{:.1}", mib(peak * 1024)));
            let peak = peak.unwrap_or_else(|| "-".into());
            let mut command: String = process.command.chars().take(COMMAND_LETTERS).collect();
            if *more > 0 {
                command += &format!("  (and {more} more of {})", process.program);
            }
            write!(f, "{:>8} {peak:>9} ", process.pid)?;
            if process.allocations == 0 {
                writeln!(f, "{:>12} {:>53}  {command}", "none", "called no malloc")?;
                continue;
            }
            writeln!(
                f,
                "{:>12} {:>9.1} {:>9.1} {:>7} {:>7} {:>10} {:>6}  {command}",
                process.allocations,
                mib(process.bytes_in_use),
                mib(process.bytes_held),
                process.large,
                process.mapped,
                process.freed_elsewhere,
                process.heaps,
            )?;
        }
        match programs.len().checked_sub(LINES).filter(|more| *more > 0) {
            Some(more) => writeln!(f, "{more:>8} more programs"),
            None => Ok(()),
        }
    }
}
