//! The machines that the kernel is booted on.

use nearpage::{CpuId, NodeId};
use nearpage_machine::{Machine, short_form};

use super::{KernelError, Processor};

/// A machine for QEMU.
#[derive(Debug)]
pub struct GuestMachine {
    /// Its name.
    pub name: String,
    /// In the short form, for `nearpage topo`.
    pub short_form: Vec<String>,
    /// Nodes and distances.
    pub machine: Machine,
    /// Memory that is plugged in while it runs, in MiB.
    pub plugged_mib: Option<u32>,
    /// Operations of each CPU in the stress.
    pub operations: u32,
}

/// Nodes that `nearpage-kernel` reads of firmware's tables.
const NODES_MAX: usize = 64;
/// What the image, the metadata, and a range of 2500 pages in one piece take.
const MIB_MIN: u64 = 32;

/// Name, nodes, distances, memory to be plugged in, operations.
type Row = (&'static str, &'static [&'static str], &'static [&'static str], Option<u32>, u32);

/// 32 CPUs share two of the host's, so each does less.
const MACHINES: [Row; 8] = [
    ("one", &["64M,cpus=0"], &[], None, 200_000),
    ("two", &["256M,cpus=0-1", "256M,cpus=2-3"], &["0,1=21"], Some(128), 50_000),
    (
        "asymmetric",
        &["256M,cpus=0", "256M,cpus=1", "256M,cpus=2", "256M,cpus=3"],
        &[
            "0,1=20", "0,2=30", "0,3=40", "1,0=15", "1,2=20", "1,3=30", "2,0=30", "2,1=25",
            "2,3=20", "3,0=45", "3,1=30", "3,2=20",
        ],
        Some(256),
        50_000,
    ),
    (
        "memoryless",
        &["256M,cpus=0", "0,cpus=1-2", "256M,cpus=3"],
        &["0,1=30", "1,2=15"],
        None,
        50_000,
    ),
    ("no-cpus", &["256M,cpus=0-1", "512M"], &["0,1=40"], None, 50_000),
    (
        "8-of-2",
        &[
            "512M,cpus=0",
            "0,cpus=1",
            "0,cpus=2",
            "0,cpus=3",
            "512M,cpus=4",
            "0,cpus=5",
            "0,cpus=6",
            "0,cpus=7",
        ],
        &["1,4=15", "2,4=15", "3,4=15"],
        None,
        20_000,
    ),
    // The nodes share a section of 128 MiB, and the second goes on beyond it.
    ("shared-section", &["64M,cpus=0", "200M,cpus=1-3"], &[], None, 50_000),
    ("32-cpus", &["512M,cpus=0-15", "512M,cpus=16-31"], &[], None, 2000),
];

/// All machines that have a name.
pub fn all() -> impl Iterator<Item = GuestMachine> {
    MACHINES.iter().filter_map(|&(name, nodes, distances, plugged_mib, operations)| {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let machine = of_short_form(&words(nodes), &words(distances)).ok()?;
        Some(GuestMachine { name: name.to_owned(), plugged_mib, operations, ..machine })
    })
}

/// The machine of this name.
///
/// # Errors
///
/// [`KernelError::NoMachine`].
pub fn named(name: &str) -> Result<GuestMachine, KernelError> {
    let known = || MACHINES.map(|(name, ..)| name).join(", ");
    let machine = all().find(|machine| machine.name == name);
    machine.ok_or_else(|| KernelError::NoMachine { name: name.to_owned(), known: known() })
}

/// A machine of the values of `--numa` and `--numa-distance`.
///
/// # Errors
///
/// [`KernelError`].
pub fn of_short_form(nodes: &[String], distances: &[String]) -> Result<GuestMachine, KernelError> {
    let machine = short_form::parse_options(nodes, distances)?;
    let nodes = nodes.iter().map(|node| ["--numa".to_owned(), node.clone()]);
    let distances = distances.iter().map(|far| ["--numa-distance".to_owned(), far.clone()]);
    let short_form = nodes.chain(distances).flatten().collect();
    let name = "machine".to_owned();
    let guest = GuestMachine { name, short_form, machine, plugged_mib: None, operations: 20_000 };
    guest.check_nodes()?;
    let mut cpus: Vec<CpuId> = guest.nodes().flat_map(|(_, _, cpus)| cpus.to_vec()).collect();
    cpus.sort_unstable();
    if !cpus.iter().copied().eq((0..cpus.len() as u32).map(CpuId)) || cpus.is_empty() {
        return Err(KernelError::Unfit(
            "QEMU numbers CPUs from 0 without gaps; so must --numa".into(),
        ));
    }
    if cpus.len() > 64 {
        return Err(KernelError::Unfit("the kernel has room for 64 CPUs".into()));
    }
    Ok(guest)
}

impl GuestMachine {
    /// Whether the kernel can be booted on these nodes, and tested there.
    fn check_nodes(&self) -> Result<(), KernelError> {
        let unfit = |why: String| Err(KernelError::Unfit(why));
        let count = self.machine.nodes.len();
        if count > NODES_MAX {
            return unfit(format!("{count} nodes; the kernel has room for {NODES_MAX}"));
        }
        for node in &self.machine.nodes {
            let (id, bytes) = (node.id, node.memory_bytes.unwrap_or(0));
            if !bytes.is_multiple_of(1 << 20) {
                return unfit(format!("node {id} has {bytes} bytes; QEMU is given whole MiB"));
            }
            if bytes == 0 && node.cpus.is_empty() {
                let why = "has neither memory nor CPUs; no table of the firmware tells of it";
                return unfit(format!("node {id} {why}"));
            }
        }
        let mib = self.memory_mib();
        if mib < MIB_MIN {
            return unfit(format!("{mib} MiB of memory; the kernel's checks need {MIB_MIN} MiB"));
        }
        Ok(())
    }

    /// Why QEMU cannot make it with a processor, if so. Memory is plugged into PCs only, so the machine is booted without elsewhere.
    pub fn unfit(&self, processor: Processor) -> Option<&'static str> {
        let mut nodes = self.nodes();
        match processor {
            Processor::X86_64 => None,
            _ if nodes.next().is_none_or(|(_, mib, _)| mib == 0) => {
                Some("the board `virt` has memory on its first node")
            }
            Processor::Aarch64 => None,
            Processor::Riscv64 if nodes.any(|(_, mib, cpus)| mib == 0 || cpus.is_empty()) => {
                Some("the board `virt` of RISC-V has memory and CPUs on all nodes")
            }
            // All CPUs run at once, on those of the host.
            Processor::Riscv64 if self.cpus() > 16 => Some("more than 16 CPUs take too long"),
            Processor::Riscv64 => None,
        }
    }

    /// The nodes: id, memory in MiB, CPUs.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, u64, &[CpuId])> {
        self.machine
            .nodes
            .iter()
            .map(|node| (node.id, node.memory_bytes.unwrap_or(0) >> 20, node.cpus.as_slice()))
    }

    /// CPUs of all nodes.
    pub fn cpus(&self) -> usize {
        self.machine.nodes.iter().map(|node| node.cpus.len()).sum()
    }

    /// Memory of all nodes.
    pub fn memory_mib(&self) -> u64 {
        self.nodes().map(|(_, mib, _)| mib).sum()
    }

    /// The node that memory is plugged into: QEMU's tables say that it is the last that has some.
    pub fn plugged_node(&self) -> Option<NodeId> {
        Some(self.nodes().filter(|&(_, mib, _)| mib > 0).last()?.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_kernel_can_be_booted_on_is_told() {
        let told = |nodes: &[&str]| {
            let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
            of_short_form(&nodes, &[]).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(told(&["24M,cpus=0", "8M"]), Ok(()));
        let refused = |nodes: &[&str], expected: &str| {
            assert_eq!(told(nodes), Err(expected.to_owned()), "{nodes:?}");
        };
        refused(&["1M,cpus=0"], "1 MiB of memory; the kernel's checks need 32 MiB");
        refused(&["64M,cpus=0", "4K,cpus=1"], "node 1 has 4096 bytes; QEMU is given whole MiB");
        refused(
            &["64M,cpus=0", "0", "64M,cpus=1"],
            "node 1 has neither memory nor CPUs; no table of the firmware tells of it",
        );
        let many: Vec<&str> = ["64M,cpus=0"].into_iter().chain(["16M"; 64]).collect();
        refused(&many, "65 nodes; the kernel has room for 64");
        refused(&["64M,cpus=1"], "QEMU numbers CPUs from 0 without gaps; so must --numa");
    }

    #[test]
    fn machines_have_their_names() {
        assert_eq!(all().count(), MACHINES.len(), "each of them can be had");
        assert_eq!(named("8-of-2").unwrap().cpus(), 8);
        assert_eq!(
            named("three").unwrap_err().to_string(),
            "no machine three; expected one of one, two, asymmetric, memoryless, no-cpus, 8-of-2, shared-section, 32-cpus"
        );
    }
}
