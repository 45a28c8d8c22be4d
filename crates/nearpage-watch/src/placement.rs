//! A process at one moment, and the files of /proc that tell it.

use memchr::memrchr;
use serde::Serialize;

use crate::number::number;

/// Processes with memory, as far as they were read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Processes {
    /// Those with most memory, most first.
    pub list: Vec<ProcessSample>,
    /// Processes with memory that are known.
    pub seen: usize,
    /// Those of them whose placement may not be read, mostly for they are another user's.
    pub denied: usize,
    /// Those whose placement is still to be read, or takes too long for the budget.
    pub waiting: usize,
}

/// A process with memory.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct ProcessSample {
    /// Its id.
    pub pid: u32,
    /// Its name, as the kernel has it: at most 15 bytes.
    pub name: String,
    /// Its user, if its status was read.
    pub uid: Option<u32>,
    /// Resident, in KiB.
    pub rss: u64,
    /// By node, in KiB, if the placement was read. Shared pages count in each process, so the sum may differ from `rss`.
    pub nodes: Vec<(u32, u64)>,
    /// Whether the placement was read.
    pub placement: Placement,
    /// How many seconds ago, if it was.
    pub placed_ago: Option<u64>,
    /// The node of the CPU that it ran on last.
    pub runs_on: Option<u32>,
    /// Nodes that it may use, as the kernel lists them, if its status was read.
    pub may_use: String,
    /// Faults a second that needed no disk.
    pub minor_faults: Option<u64>,
    /// Faults a second that did.
    pub major_faults: Option<u64>,
}

/// Whether it is known on which nodes a process has its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// Its turn has not come.
    #[default]
    Waiting,
    /// From numa_maps.
    Read,
    /// numa_maps may not be read: it is another user's process.
    Denied,
    /// It has so much memory that reading would take longer than a refresh may; it is read on request.
    TooLong,
    /// The kernel, or the copy, has no numa_maps.
    Absent,
}

impl Placement {
    pub(crate) const ALL: [Placement; 5] = [
        Placement::Waiting,
        Placement::Read,
        Placement::Denied,
        Placement::TooLong,
        Placement::Absent,
    ];
}

impl ProcessSample {
    /// What it has on a node, in KiB.
    pub fn on(&self, node: u32) -> u64 {
        self.nodes.iter().find(|(other, _)| *other == node).map_or(0, |(_, kib)| *kib)
    }

    /// Whether it has memory on a node, or, if that is not known, runs there.
    pub fn is_of(&self, node: u32) -> bool {
        match self.placement {
            Placement::Read => self.on(node) > 0,
            _ => self.runs_on == Some(node),
        }
    }
}

/// What `/proc/PID/stat` tells.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Stat {
    pub(crate) name: String,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    /// In ticks since boot: with the PID it names a process.
    pub(crate) start: u64,
    pub(crate) rss_pages: u64,
    pub(crate) cpu: Option<u32>,
}

/// `17 (a name) with) S 1 17 ...`: the name may have anything in it, also brackets. `None` for what no kernel writes.
pub(crate) fn stat(text: &[u8]) -> Option<Stat> {
    let (begin, end) = (memchr::memchr(b'(', text)?, memrchr(b')', text)?);
    let name = String::from_utf8_lossy(text.get(begin + 1..end)?).chars().take(64).collect();
    let words: Vec<&[u8]> = text[end + 1..].trim_ascii().split(|byte| *byte == b' ').collect();
    // proc(5) counts from 1 and has the state, which follows the name, third.
    let field = |nth: usize| words.get(nth - 3).and_then(|word| number(word));
    Some(Stat {
        name,
        minor_faults: field(10)?,
        major_faults: field(12)?,
        start: field(22)?,
        rss_pages: field(24)?,
        cpu: field(39).and_then(|cpu| u32::try_from(cpu).ok()),
    })
}

/// User and nodes of `/proc/PID/status`.
pub(crate) fn status(text: &[u8]) -> (Option<u32>, String) {
    let (mut uid, mut nodes) = (None, String::new());
    for line in text.split(|byte| *byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"Uid:") {
            uid = number(rest).and_then(|uid| u32::try_from(uid).ok());
        } else if let Some(rest) = line.strip_prefix(b"Mems_allowed_list:") {
            nodes = String::from_utf8_lossy(rest.trim_ascii()).chars().take(256).collect();
        }
    }
    (uid, nodes)
}

/// KiB by node of a `numa_maps`, by id. What is not understood is passed over.
pub(crate) fn numa_maps(text: &[u8]) -> Vec<(u32, u64)> {
    let mut nodes: Vec<(u32, u64)> = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        // Its page size stands at the end of a line, behind the pages.
        let mut page_kib = 4;
        for word in line.rsplit(|byte| *byte == b' ') {
            if let Some(kib) = word.strip_prefix(b"kernelpagesize_kB=") {
                page_kib = number(kib).unwrap_or(page_kib);
                continue;
            }
            let Some(rest) = word.strip_prefix(b"N") else { continue };
            let Some(at) = memchr::memchr(b'=', rest) else { continue };
            let (Some(node), Some(pages)) = (number(&rest[..at]), number(&rest[at + 1..])) else {
                continue;
            };
            let Some(node) = u32::try_from(node).ok().filter(|node| *node < NODES_MOST) else {
                continue;
            };
            let kib = pages.saturating_mul(page_kib);
            match nodes.iter_mut().find(|(other, _)| *other == node) {
                Some((_, sum)) => *sum = sum.saturating_add(kib),
                None => nodes.push((node, kib)),
            }
        }
    }
    nodes.sort_unstable();
    nodes
}

/// As many as Linux may have.
const NODES_MOST: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "17 (a (b) c) S 1 17 17 0 -1 4194560 120 0 3 0 5 6 0 0 20 0 1 0 777 9000 250 \
                        1844 1 1 0 0 0 0 0 0 0 0 0 0 17 5 0 0 0 0 0";

    #[test]
    fn files_of_a_process() {
        let read = stat(STAT.as_bytes()).unwrap();
        assert_eq!((read.name.as_str(), read.minor_faults, read.major_faults), ("a (b) c", 120, 3));
        assert_eq!((read.start, read.rss_pages, read.cpu), (777, 250, Some(5)));
        let (uid, nodes) = status(b"Name:\tx\nUid:\t1000\t0\t0\t0\nMems_allowed_list:\t0-1,4\n");
        assert_eq!((uid, nodes.as_str()), (Some(1000), "0-1,4"));
    }

    #[test]
    fn pages_of_any_size_are_counted_by_node() {
        let text = b"7f00 default anon=12 dirty=12 N0=10 N1=2 kernelpagesize_kB=4\n\
                     7f01 bind:1 file=/N9=9\\040N0 huge dirty=3 N1=3 kernelpagesize_kB=2048\n\
                     7f02 default\n7f03 default mapped=1 N0=1\nN\nN=\nN5\nN99999=4 N0=x\n";
        assert_eq!(numa_maps(text), [(0, 44), (1, 8 + 6144)]);
    }

    #[test]
    fn damage_is_passed_over() {
        for end in 0..STAT.len() {
            stat(&STAT.as_bytes()[..end]);
            stat(&STAT.as_bytes()[end..]);
            status(&STAT.as_bytes()[..end]);
            numa_maps(&STAT.as_bytes()[end..]);
        }
        assert_eq!(stat(b")("), None);
        assert_eq!(stat(b"1 () S"), None);
    }
}
