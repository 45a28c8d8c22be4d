//! The machine of a capture: what a prediction starts from, and what the kernel printed.

use nearpage::{CpuId, NodeId};
use nearpage_machine::sysfs::zoneinfo::{self, ZoneRecord};
use nearpage_machine::sysfs::{Source, TextFile};
use nearpage_machine::{FileTree, Machine, MachineNode, Note, read_machine};

use super::error::BundleError;

const NODES: &str = "sys/devices/system/node";
/// Pages of the longest addresses of x86-64, 52 bits.
const PAGES_MAX: u64 = 1 << 40;

/// A machine as it was at the moment of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedMachine {
    /// Nodes, distances, settings and caches, as the files of /sys and /proc describe them.
    pub machine: Machine,
    /// The CPUs of its nodes, in the same order.
    pub nodes: Vec<RecordedNode>,
    /// All online CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// First frame of the kernel's code, if the recorder could read it.
    pub kernel_code_pfn: Option<u64>,
    /// Whether background reclaim ever ran; true if unknown.
    pub has_reclaimed: bool,
    /// All zones, populated or not, in the order of the text. A recording may have them twice, as text and as values
    /// that the recorder read: then these are the values.
    pub zones: Vec<ZoneRecord>,
    /// The zones of the text, if the recording has them twice.
    pub zones_of_text: Option<Vec<ZoneRecord>>,
}

/// A node of a [`RecordedMachine`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedNode {
    /// The node's id.
    pub id: NodeId,
    /// The online CPUs that the node lists. Emulated nodes list those of the real node.
    pub listed_cpus: Vec<CpuId>,
    /// The listed CPUs whose own node it is (`numa_node_id()`).
    pub own_cpus: Vec<CpuId>,
}

impl RecordedMachine {
    pub(super) fn read(
        tree: &dyn FileTree,
        parsed: Option<&[ZoneRecord]>,
    ) -> Result<RecordedMachine, BundleError> {
        let source = Source::new(tree);
        let mut machine = read_machine(tree)?;
        let text = source.read_if_allowed("proc/zoneinfo")?;
        let of_text = text.map(|file| zoneinfo::parse(&file)).transpose()?;
        let (zones, zones_of_text) = match parsed {
            Some(parsed) => (parsed.to_vec(), of_text),
            None => (of_text.unwrap_or_default(), None),
        };
        let online = source.read("sys/devices/system/cpu/online")?;
        let online = online.filter(is_shown).map(|list| list.ids()).transpose()?;
        let nodes = machine.nodes.iter().map(|node| read_node(&source, node, online.as_deref()));
        let nodes = nodes.collect::<Result<Vec<_>, BundleError>>()?;
        let mut cpus: Vec<CpuId> = match online {
            Some(online) => online.into_iter().map(CpuId).collect(),
            None => nodes.iter().flat_map(|node| node.own_cpus.iter().copied()).collect(),
        };
        cpus.sort_unstable();
        if machine.settings.transparent_hugepages.is_none() {
            let line = source.read_if_allowed("proc/cmdline")?;
            machine.settings.transparent_hugepages =
                line.and_then(|line| huge_pages_at_boot(&line.text));
        }
        add_memory(&mut machine, &zones);
        let recorded = RecordedMachine {
            machine,
            nodes,
            cpus,
            kernel_code_pfn: source.read_if_allowed("proc/iomem")?.and_then(kernel_code_pfn),
            has_reclaimed: source.read_if_allowed("proc/vmstat")?.is_none_or(has_reclaimed),
            zones,
            zones_of_text,
        };
        recorded.check(&source)?;
        Ok(recorded)
    }

    /// Checks that the values are complete and possible.
    fn check(&self, source: &Source<'_>) -> Result<(), BundleError> {
        let input = || source.display("proc/zoneinfo");
        let incomplete = |what: String, expected| {
            Err(BundleError::Incomplete { input: input(), what, expected })
        };
        if self.zones.is_empty() {
            // Files of /proc have a size of 0, so tar stores no content.
            let is_empty = self.machine.notes.contains(&Note::ZonesEmpty);
            let what = match is_empty {
                true => "has no bytes, as tar leaves files that it takes from /proc itself",
                false => "no zones",
            };
            return incomplete(what.into(), "zones: /proc/zoneinfo, or what was read of it");
        }
        for (index, zone) in self.zones.iter().enumerate() {
            let node = zone.node;
            let Some(kind) = zone.kind else {
                let what = format!("node {node} has a zone of another processor");
                return incomplete(what, "DMA, DMA32, Normal, Movable and Device");
            };
            let name = format!("zone {} of node {node}", kind.name());
            if self.zones[..index].iter().any(|other| (other.node, other.kind) == (node, zone.kind))
            {
                return incomplete(format!("{name} is told twice"), "each zone once");
            }
            if self.nodes.iter().all(|known| known.id != node) {
                let what = format!("{name} is on a node that is not online");
                return incomplete(what, "zones of online nodes");
            }
            if zone.is_populated() && (zone.managed.is_none() || zone.present.is_none()) {
                return incomplete(
                    format!("{name} tells no size"),
                    "managed and present of each zone",
                );
            }
            let end = zone.start_pfn.unwrap_or(0).checked_add(zone.spanned.unwrap_or(0));
            let numbers = [zone.managed, zone.present, zone.boost, end.or(Some(u64::MAX))];
            if numbers.into_iter().flatten().any(|pages| pages > PAGES_MAX) {
                let what = format!("{name} tells a size that no machine has");
                return incomplete(what, "up to 4 PiB of memory");
            }
            if zone.managed > zone.present {
                let what = format!("{name} manages more than is present");
                return incomplete(what, "managed up to present");
            }
        }
        Ok(())
    }
}

fn read_node(
    source: &Source<'_>,
    node: &MachineNode,
    online: Option<&[u32]>,
) -> Result<RecordedNode, BundleError> {
    let list = source.read(&format!("{NODES}/node{}/cpulist", node.id))?;
    let listed = list.filter(is_shown).map(|list| list.ids()).transpose()?;
    let is_online = |cpu: &u32| online.is_none_or(|cpus| cpus.binary_search(cpu).is_ok());
    let listed = listed.map(|cpus| cpus.into_iter().filter(is_online).map(CpuId).collect());
    let listed_cpus = listed.unwrap_or_else(|| node.cpus.clone());
    Ok(RecordedNode { id: node.id, listed_cpus, own_cpus: node.cpus.clone() })
}

/// Whether a file has bytes. The kernel ends even an empty list with a newline, so a file without bytes is hidden.
fn is_shown(file: &TextFile) -> bool {
    !file.text.is_empty()
}

/// Computes the memory of nodes without a meminfo from the managed pages of their zones.
fn add_memory(machine: &mut Machine, zones: &[ZoneRecord]) {
    let page_bytes = machine.page_bytes;
    for node in machine.nodes.iter_mut().filter(|node| node.memory_bytes.is_none()) {
        let of_node = || zones.iter().filter(|zone| zone.node == node.id);
        let bytes = |pages: fn(&ZoneRecord) -> Option<u64>| {
            let pages = of_node().filter_map(pages).reduce(u64::saturating_add)?;
            pages.checked_mul(page_bytes)
        };
        let (managed, free) = (bytes(|zone| zone.managed), bytes(|zone| zone.free));
        if managed.is_some() {
            (node.memory_bytes, node.free_bytes) = (managed, node.free_bytes.or(free));
            machine.notes.retain(|note| *note != Note::MemoryUnknown { node: node.id });
        }
    }
}

/// `transparent_hugepage=` of a kernel's command line.
fn huge_pages_at_boot(line: &str) -> Option<bool> {
    // The last one counts.
    let mut words = line.split_whitespace().rev();
    let value = words.find_map(|word| word.strip_prefix("transparent_hugepage="))?;
    Some(value != "never")
}

/// Reads `pageoutrun 0`: how often background reclaim ran.
fn has_reclaimed(vmstat: TextFile) -> bool {
    let runs = vmstat.text.lines().find_map(|line| line.strip_prefix("pageoutrun "));
    runs.is_none_or(|runs| runs.trim() != "0")
}

/// Reads `01000000-01ffffff : Kernel code`. The kernel prints 0 to unprivileged readers.
fn kernel_code_pfn(iomem: TextFile) -> Option<u64> {
    let line = iomem.text.lines().find(|line| line.ends_with(": Kernel code"))?;
    let (start, _) = line.trim_start().split_once('-')?;
    u64::from_str_radix(start, 16).ok().map(|address| address >> 12).filter(|&pfn| pfn > 0)
}
