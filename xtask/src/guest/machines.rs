//! The machines, and what is done on each.

use serde_json::json;

use super::suites::{MEMORY, Part, SLAB, THREADS};
use crate::record::RecordError;
use crate::record::topology::Topology;

/// A machine.
pub struct Machine {
    /// Its name.
    pub name: &'static str,
    /// Memory in MiB, and CPUs.
    pub nodes: &'static [(u32, u32)],
    /// Rows of distances.
    pub distances: &'static [&'static [u8]],
    /// Memory in MiB that is plugged in while a process runs, and the node.
    pub plugged: Option<(u32, u32)>,
}

/// What runs of the host's test suites: all of them, as far as they fit emulated machines. What they deny or limit is denied and
/// limited there, or they fail (`NEARPAGE_OWN_MACHINE`).
pub const ALL_SUITES: [Part; 3] = [Part::whole(&THREADS), Part::whole(&MEMORY), Part::whole(&SLAB)];
/// Runs while memory and a CPU come and go.
pub const BESIDE: Part = Part { name: "beside", modules: &["stress"], ..Part::whole(&THREADS) };

/// All machines.
pub const MACHINES: [Machine; 4] = [
    Machine {
        name: "two",
        nodes: &[(1024, 1), (768, 1)],
        distances: &[&[10, 21], &[21, 10]],
        plugged: None,
    },
    Machine {
        name: "asymmetric",
        nodes: &[(768, 1), (0, 1), (512, 0), (1024, 2)],
        distances: &[&[10, 20, 30, 40], &[15, 10, 20, 30], &[30, 25, 10, 20], &[45, 30, 20, 10]],
        plugged: None,
    },
    Machine {
        name: "8-of-2",
        nodes: &[(1024, 1), (0, 1), (0, 1), (0, 1), (768, 1), (0, 1), (0, 1), (0, 1)],
        distances: &[],
        plugged: None,
    },
    Machine {
        name: "plugged",
        nodes: &[(1024, 2), (512, 1)],
        distances: &[&[10, 20], &[20, 10]],
        plugged: Some((512, 1)),
    },
];

impl Machine {
    /// As the recordings have it.
    ///
    /// # Errors
    ///
    /// There is none for these machines.
    pub fn topology(&self) -> Result<Topology, RecordError> {
        let nodes = self.nodes.iter().map(|(mem, cpus)| json!({"mem": mem, "cpus": cpus}));
        let distances = (!self.distances.is_empty()).then_some(self.distances);
        // An emulator that gets no time for some milliseconds would have the kernel think that it has no timer.
        let text = json!({
            "nodes": nodes.collect::<Vec<_>>(),
            "distances": distances,
            "cmdline": "no_timer_check",
        });
        Topology::parse(&text.to_string())
            .map_err(|problem| RecordError::Topology { path: self.name.into(), problem })
    }

    /// Memory of all nodes.
    pub fn memory_mib(&self) -> u32 {
        self.nodes.iter().map(|(mib, _)| mib).sum()
    }

    /// CPUs of all nodes.
    pub fn cpus(&self) -> u32 {
        self.nodes.iter().map(|(_, cpus)| cpus).sum()
    }

    /// What the first process is told.
    pub fn orders(&self, with_suites: bool) -> String {
        let mut orders = vec!["port /dev/ttyS1".to_owned()];
        let mut order = |words: &str| orders.push(words.to_owned());
        order("send madt /sys/firmware/acpi/tables/APIC");
        order("send srat /sys/firmware/acpi/tables/SRAT");
        order("send cpuinfo /proc/cpuinfo");
        order("run topo /nearpage --quiet topo --json");
        order("run placement /nearpage --quiet topo --verify-placement 64M --json");
        order("run verify /nearpage --quiet verify --json /");
        order("run doctor /nearpage --quiet doctor --json");
        if with_suites {
            order("cgroups cpuset memory");
            for part in &ALL_SUITES {
                order(&format!("run {} NEARPAGE_OWN_MACHINE=1 {}", part.name, part.command()));
            }
            order("run bench /nearpage --quiet bench --quick");
        }
        if self.plugged.is_some() {
            if with_suites {
                order(&format!("begin {} {}", BESIDE.name, BESIDE.command()));
            }
            order("plug");
            order("run placement-plugged /nearpage --quiet topo --verify-placement 256M --json");
            order("cpu 1 0");
            order("run topo-without /nearpage --quiet topo --json");
            order("run placement-without /nearpage --quiet topo --verify-placement 64M --json");
            order("cpu 1 1");
            order("unplug");
            order("run placement-unplugged /nearpage --quiet topo --verify-placement 64M --json");
            if with_suites {
                order("finish beside");
            }
        }
        orders.join("\n") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_topologies() {
        for machine in &MACHINES {
            assert!(machine.topology().is_ok(), "{}", machine.name);
            assert!(machine.orders(true).starts_with("port "));
        }
    }
}
