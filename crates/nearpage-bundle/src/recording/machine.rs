//! The machine of a capture: what a prediction starts from, and what the kernel printed.

use nearpage::{CpuId, NodeId};
use nearpage_machine::sysfs::zoneinfo::{self, ZoneRecord};
use nearpage_machine::sysfs::{
    KernelSettings, LastLevelCache, MachineNode, Source, TextFile, read_machine,
};
use nearpage_machine::tree::FileTree;

use super::error::BundleError;

const NODES: &str = "sys/devices/system/node";
/// Pages of the longest addresses of x86-64, 52 bits.
const PAGES_MAX: u64 = 1 << 40;

/// A machine as it was at the moment of a capture.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedMachine {
    /// The online nodes, ascending by id.
    pub nodes: Vec<RecordedNode>,
    /// Distances between them, row by row in the order of `nodes`.
    pub distances: Vec<u8>,
    /// All online CPUs, ascending.
    pub cpus: Vec<CpuId>,
    /// The kernel's settings.
    pub settings: KernelSettings,
    /// Last-level caches and who shares them.
    pub last_level_caches: Vec<LastLevelCache>,
    /// Bytes of a page, from the nodes' memory in bytes and in pages.
    pub page_bytes: u64,
    /// First frame of the kernel's code, if it may be known.
    pub kernel_code_pfn: Option<u64>,
    /// Whether background reclaim ever ran; true if the recording does not tell.
    pub has_reclaimed: bool,
    /// All zones, populated or not, in the order of the text. If the recording has them twice, as text
    /// and as somebody read it, this is what was read.
    pub zones: Vec<ZoneRecord>,
    /// The zones of the text, if the recording has them twice.
    pub zones_of_text: Option<Vec<ZoneRecord>>,
}

/// A node of a [`RecordedMachine`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecordedNode {
    /// The node's id.
    pub id: NodeId,
    /// The online CPUs that the node lists: emulated nodes list those of the real one.
    pub listed_cpus: Vec<CpuId>,
    /// Those of them that call it their own (`numa_node_id()`).
    pub own_cpus: Vec<CpuId>,
}

impl RecordedMachine {
    pub(super) fn read(
        tree: &dyn FileTree,
        parsed: Option<&[ZoneRecord]>,
    ) -> Result<RecordedMachine, BundleError> {
        let source = Source::new(tree);
        let machine = read_machine(tree)?;
        let text = source.read_if_allowed("proc/zoneinfo")?;
        let of_text = text.map(|file| zoneinfo::parse(&file)).transpose()?;
        let (zones, zones_of_text) = match parsed {
            Some(parsed) => (parsed.to_vec(), of_text),
            None => (of_text.unwrap_or_default(), None),
        };
        let online = source.read("sys/devices/system/cpu/online")?;
        let online = online.map(|list| list.ids()).transpose()?;
        let nodes =
            machine.nodes.into_iter().map(|node| read_node(&source, node, online.as_deref()));
        let nodes = nodes.collect::<Result<Vec<_>, BundleError>>()?;
        let mut cpus: Vec<CpuId> = match online {
            Some(online) => online.into_iter().map(CpuId).collect(),
            None => nodes.iter().flat_map(|node| node.own_cpus.iter().copied()).collect(),
        };
        cpus.sort_unstable();
        let mut settings = machine.settings;
        if settings.transparent_hugepages.is_none() {
            let line = source.read_if_allowed("proc/cmdline")?;
            settings.transparent_hugepages = line.and_then(|line| huge_pages_at_boot(&line.text));
        }
        let recorded = RecordedMachine {
            nodes,
            distances: machine.distances,
            cpus,
            settings,
            last_level_caches: machine.last_level_caches,
            page_bytes: machine.page_bytes,
            kernel_code_pfn: source.read_if_allowed("proc/iomem")?.and_then(kernel_code_pfn),
            has_reclaimed: source.read_if_allowed("proc/vmstat")?.is_none_or(has_reclaimed),
            zones,
            zones_of_text,
        };
        recorded.check(&source)?;
        Ok(recorded)
    }

    /// Checks that there is what everything follows from.
    fn check(&self, source: &Source<'_>) -> Result<(), BundleError> {
        let input = || source.display("proc/zoneinfo");
        let incomplete = |what: String, expected| {
            Err(BundleError::Incomplete { input: input(), what, expected })
        };
        if self.zones.is_empty() {
            return incomplete("no zones".into(), "zones: /proc/zoneinfo, or what was read of it");
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
    node: MachineNode,
    online: Option<&[u32]>,
) -> Result<RecordedNode, BundleError> {
    let list = source.read(&format!("{NODES}/node{}/cpulist", node.id))?;
    let listed = list.map(|list| list.ids()).transpose()?;
    let is_online = |cpu: &u32| online.is_none_or(|cpus| cpus.binary_search(cpu).is_ok());
    let listed = listed.map(|cpus| cpus.into_iter().filter(is_online).map(CpuId).collect());
    let listed_cpus = listed.unwrap_or_else(|| node.cpus.clone());
    Ok(RecordedNode { id: node.id, listed_cpus, own_cpus: node.cpus })
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

/// Reads `01000000-01ffffff : Kernel code`. Who may not know addresses is told 0.
fn kernel_code_pfn(iomem: TextFile) -> Option<u64> {
    let line = iomem.text.lines().find(|line| line.ends_with(": Kernel code"))?;
    let (start, _) = line.trim_start().split_once('-')?;
    u64::from_str_radix(start, 16).ok().map(|address| address >> 12).filter(|&pfn| pfn > 0)
}
