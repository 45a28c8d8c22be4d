//! The parts of a kernel's log that no other file has.

use nearpage::NodeId;
use nearpage_machine::NODES_MAX;

/// KiB of a page, of the kernels that log in KiB.
const KIB_PER_PAGE: u64 = 4;

/// Parts of a kernel's log.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KernelLog {
    /// `Fallback order for Node N:`, as printed, each once.
    pub fallback: Vec<(NodeId, Vec<NodeId>)>,
    /// Memory that boot freed after it had computed the watermarks.
    pub late: Vec<LateMemory>,
}

/// Memory that was used during boot and freed at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LateMemory {
    /// How much, in pages.
    pub pages: u64,
    /// A frame of it, if the log has an address.
    pub pfn: Option<u64>,
}

impl KernelLog {
    /// Reads a log; most of its lines are skipped.
    pub fn parse(text: &str) -> KernelLog {
        let initrd = text.lines().find_map(initrd_pfn);
        // A rebuild at run time logs the orders again, and those may differ.
        let mut fallback = Vec::<(NodeId, Vec<NodeId>)>::new();
        for (node, order) in text.lines().filter_map(fallback_order) {
            let is_new = fallback.iter().all(|(known, _)| *known != node);
            if is_new && fallback.len() < NODES_MAX {
                fallback.push((node, order));
            }
        }
        KernelLog {
            fallback,
            late: text.lines().filter_map(|line| late_memory(line, initrd)).collect(),
        }
    }
}

/// Reads `Fallback order for Node 0: 0 2 1`.
fn fallback_order(line: &str) -> Option<(NodeId, Vec<NodeId>)> {
    let (_, rest) = line.split_once("Fallback order for Node ")?;
    let (node, order) = rest.split_once(':')?;
    let ids = order.split_whitespace().map(|id| id.parse().map(NodeId));
    Some((NodeId(node.parse().ok()?), ids.collect::<Result<_, _>>().ok()?))
}

/// The first frame of `RAMDISK: [mem 0xbfeb4000-0xbffdffff]`.
fn initrd_pfn(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("RAMDISK: [mem 0x")?;
    let (start, _) = rest.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()? / (KIB_PER_PAGE * 1024))
}

/// Reads `Freeing initrd memory: 1200K` and its like.
fn late_memory(line: &str, initrd: Option<u64>) -> Option<LateMemory> {
    let (_, rest) = line.split_once("] Freeing ").or_else(|| line.split_once("Freeing "))?;
    let (what, size) = rest.split_once(" memory: ")?;
    let pages = size.trim().strip_suffix('K')?.parse::<u64>().ok()? / KIB_PER_PAGE;
    match what {
        "initrd" => Some(LateMemory { pages, pfn: initrd }),
        // Freed while the CPUs come up, before watermarks are computed.
        "SMP alternatives" => None,
        _ => Some(LateMemory { pages, pfn: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_matter_are_read() {
        let log = KernelLog::parse(
            "[    0.000000] RAMDISK: [mem 0xbfeb4000-0xbffdffff]\n\
             [    0.000000] Fallback order for Node 0: 0 2 \n\
             [    0.000000] Fallback order for Node 8: 8 x\n\
             [    9.000000] Fallback order for Node 0: 2 0 \n\
             [    0.257275] Freeing SMP alternatives memory: 40K\n\
             [    2.175080] Freeing initrd memory: 1200K\n\
             [    5.449040] Freeing unused kernel image (initmem) memory: 4252K\n\
             Freeing nothing\n",
        );
        assert_eq!(log.fallback, [(NodeId(0), vec![NodeId(0), NodeId(2)])]);
        let initrd = LateMemory { pages: 300, pfn: Some(0xbfeb4) };
        assert_eq!(log.late, [initrd, LateMemory { pages: 1063, pfn: None }]);
    }
}
