//! The machine as hwloc's XML, from which `lstopo --input` draws it.

use std::collections::BTreeSet;
use std::fmt::{self, Display, Formatter};

use nearpage::{CpuId, NodeId};

use crate::machine::{LastLevelCache, Machine, MachineNode};

/// The XML of hwloc 2. A node with CPUs is a package, a node without is memory of the whole machine. A cache is written
/// where all its CPUs are of one node. Free memory, zones and settings have no place in it.
pub fn hwloc(machine: &Machine) -> impl Display {
    fmt::from_fn(|out| Writer { machine, objects: 0 }.write(out))
}

struct Writer<'a> {
    machine: &'a Machine,
    /// How many objects are written; each has a number.
    objects: usize,
}

impl Writer<'_> {
    fn write(&mut self, out: &mut Formatter<'_>) -> fmt::Result {
        let machine = self.machine;
        let cpus: BTreeSet<CpuId> =
            machine.nodes.iter().flat_map(|node| node.cpus.iter().copied()).collect();
        let cpus: Vec<CpuId> = cpus.into_iter().collect();
        let nodes: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
        let (cpus, nodes) = (Set::of_cpus(&cpus), Set::of_nodes(&nodes));
        let all_cpus = Set::of_cpus(&machine.possible_cpus).0;
        let all_nodes = Set::of_nodes(&machine.possible_nodes).0;
        writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
        writeln!(out, "<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">")?;
        writeln!(out, "<topology version=\"2.0\">")?;
        self.objects += 1;
        writeln!(
            out,
            "  <object type=\"Machine\" os_index=\"0\" cpuset=\"{}\" complete_cpuset=\"{all_cpus}\" \
             allowed_cpuset=\"{}\" nodeset=\"{}\" complete_nodeset=\"{all_nodes}\" allowed_nodeset=\"{}\" \
             gp_index=\"{}\">",
            cpus.0, cpus.0, nodes.0, nodes.0, self.objects
        )?;
        writeln!(out, "    <info name=\"Backend\" value=\"nearpage\"/>")?;
        for node in machine.nodes.iter().filter(|node| node.cpus.is_empty()) {
            self.memory(out, 4, node, &cpus)?;
        }
        let mut with_cpus: Vec<&MachineNode> =
            machine.nodes.iter().filter(|node| !node.cpus.is_empty()).collect();
        // hwloc warns of objects that do not stand in the order of their CPUs.
        with_cpus.sort_by_key(|node| node.cpus[0]);
        for (package, node) in with_cpus.into_iter().enumerate() {
            self.package(out, package, node)?;
        }
        writeln!(out, "  </object>")?;
        self.distances(out)?;
        writeln!(out, "</topology>")
    }

    fn package(
        &mut self,
        out: &mut Formatter<'_>,
        package: usize,
        node: &MachineNode,
    ) -> fmt::Result {
        let cpus = Set::of_cpus(&node.cpus);
        let nodes = Set::of_nodes(&[node.id]);
        self.open(out, 4, "Package", package, &cpus, &nodes)?;
        writeln!(out, ">")?;
        self.memory(out, 6, node, &cpus)?;
        let mut caches: Vec<&LastLevelCache> =
            self.machine.last_level_caches.iter().filter(|cache| is_within(cache, node)).collect();
        caches.sort_by_key(|cache| cache.cpus[0]);
        let mut caches = caches.into_iter().enumerate().peekable();
        let mut in_caches = BTreeSet::new();
        for &cpu in &node.cpus {
            while let Some((index, cache)) = caches.next_if(|(_, cache)| cache.cpus[0] <= cpu) {
                // No CPU is in two.
                if !cache.cpus.iter().any(|cpu| in_caches.contains(cpu)) {
                    in_caches.extend(cache.cpus.iter().copied());
                    self.cache(out, index, cache, &nodes)?;
                }
            }
            if !in_caches.contains(&cpu) {
                self.unit(out, 6, cpu, &nodes)?;
            }
        }
        writeln!(out, "    </object>")
    }

    fn cache(
        &mut self,
        out: &mut Formatter<'_>,
        index: usize,
        cache: &LastLevelCache,
        nodes: &Set,
    ) -> fmt::Result {
        self.open(out, 6, "L3Cache", index, &Set::of_cpus(&cache.cpus), nodes)?;
        writeln!(
            out,
            " cache_size=\"{}\" depth=\"3\" cache_linesize=\"64\" cache_associativity=\"0\" cache_type=\"0\">",
            cache.bytes
        )?;
        for &cpu in &cache.cpus {
            self.unit(out, 8, cpu, nodes)?;
        }
        writeln!(out, "      </object>")
    }

    fn memory(
        &mut self,
        out: &mut Formatter<'_>,
        indent: usize,
        node: &MachineNode,
        cpus: &Set,
    ) -> fmt::Result {
        self.open(out, indent, "NUMANode", node.id.0 as usize, cpus, &Set::of_nodes(&[node.id]))?;
        let page_bytes = self.machine.page_bytes;
        let bytes = node.memory_bytes.unwrap_or(0);
        if bytes > 0 {
            write!(out, " local_memory=\"{bytes}\"")?;
        }
        writeln!(out, ">")?;
        let (inner, count) = (indent + 2, bytes / page_bytes);
        writeln!(out, "{:inner$}<page_type size=\"{page_bytes}\" count=\"{count}\"/>", "")?;
        writeln!(out, "{:indent$}</object>", "")
    }

    fn unit(
        &mut self,
        out: &mut Formatter<'_>,
        indent: usize,
        cpu: CpuId,
        nodes: &Set,
    ) -> fmt::Result {
        self.open(out, indent, "PU", cpu.0 as usize, &Set::of_cpus(&[cpu]), nodes)?;
        writeln!(out, "/>")
    }

    /// Begins an object's tag.
    fn open(
        &mut self,
        out: &mut Formatter<'_>,
        indent: usize,
        kind: &str,
        index: usize,
        cpus: &Set,
        nodes: &Set,
    ) -> fmt::Result {
        self.objects += 1;
        let (cpus, nodes, number) = (&cpus.0, &nodes.0, self.objects);
        write!(
            out,
            "{:indent$}<object type=\"{kind}\" os_index=\"{index}\" cpuset=\"{cpus}\" \
             complete_cpuset=\"{cpus}\" nodeset=\"{nodes}\" complete_nodeset=\"{nodes}\" gp_index=\"{number}\"",
            ""
        )
    }

    fn distances(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let count = self.machine.nodes.len();
        if count < 2 {
            return Ok(());
        }
        // The kind: from the system's firmware, latencies.
        writeln!(
            out,
            "  <distances2 type=\"NUMANode\" nbobjs=\"{count}\" kind=\"5\" name=\"NUMALatency\" indexing=\"os\">"
        )?;
        let words = |words: &mut dyn Iterator<Item = String>| {
            words.map(|word| word + " ").collect::<String>()
        };
        let ids = words(&mut self.machine.nodes.iter().map(|node| node.id.to_string()));
        writeln!(out, "    <indexes length=\"{}\">{ids}</indexes>", ids.len())?;
        for row in self.machine.distances.chunks(count) {
            let row = words(&mut row.iter().map(ToString::to_string));
            writeln!(out, "    <u64values length=\"{}\">{row}</u64values>", row.len())?;
        }
        writeln!(out, "  </distances2>")
    }
}

fn is_within(cache: &LastLevelCache, node: &MachineNode) -> bool {
    cache.bytes > 0 && !cache.cpus.is_empty() && cache.cpus.iter().all(|&cpu| node.has_cpu(cpu))
}

/// A set in hwloc's format: words of 32 bits in hexadecimal, the highest first.
struct Set(String);

impl Set {
    fn of_cpus(cpus: &[CpuId]) -> Set {
        Set::new(cpus.iter().map(|cpu| cpu.0))
    }

    fn of_nodes(nodes: &[NodeId]) -> Set {
        Set::new(nodes.iter().map(|node| node.0))
    }

    fn new(ids: impl Iterator<Item = u32>) -> Set {
        let mut words = vec![0_u32];
        for id in ids {
            let word = (id / 32) as usize;
            words.resize(words.len().max(word + 1), 0);
            words[word] |= 1 << (id % 32);
        }
        let words: Vec<String> = words.iter().rev().map(|word| format!("{word:#010x}")).collect();
        Set(words.join(","))
    }
}
