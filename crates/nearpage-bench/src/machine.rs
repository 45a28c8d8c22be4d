//! What was measured on.

use std::fmt;
use std::fs;

use nearpage_linux::Memory;
use nearpage_machine::read_this_machine;
use nearpage_machine::size;
use serde::Serialize;

use crate::measure::{Clock, SAMPLE_OPERATIONS};
use crate::source::MMAP_SAMPLE_PAGES;
use crate::threads::Cpus;
use crate::work::cross::SAMPLE_QUEUES;

/// What figures are measured under, beside the machine.
pub(crate) struct Conditions<'a> {
    pub(crate) cpus: &'a Cpus,
    pub(crate) clock: Clock,
    pub(crate) bytes_per_node: u64,
    pub(crate) rounds: usize,
    pub(crate) commit: Option<&'static str>,
}

/// The machine, and the program that runs on it.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Machine {
    /// The processor as `/proc/cpuinfo` names it.
    cpu: Option<String>,
    /// CPUs that this process may use.
    cpus: usize,
    /// The same as a list.
    cpu_list: String,
    /// Nodes, as nearpage sees them.
    nodes: usize,
    /// Memory of the whole machine.
    memory_bytes: Option<u64>,
    /// Name, release and architecture.
    kernel: String,
    /// The kernel's page size.
    page_bytes: Option<u64>,
    /// Which storage nearpage's pagesets have, and why.
    storage: String,
    /// How memory is bound to its nodes.
    binding: String,
    /// nearpage's version.
    version: &'static str,
    /// What was built, if it was built from a repository.
    commit: Option<&'static str>,
    /// What a look at the clock costs; it is taken off.
    clock_look_ns: u64,
    /// Memory of nearpage on each node.
    bytes_per_node: u64,
    /// Rounds that the medians are of.
    rounds: usize,
}

impl Machine {
    /// This machine, as `memory` sees it.
    pub(crate) fn this(memory: &Memory, run: &Conditions<'_>) -> Self {
        let machine = read_this_machine().ok();
        let bytes = |machine: &nearpage_machine::Machine| {
            machine.nodes.iter().filter_map(|node| node.memory_bytes).reduce(u64::saturating_add)
        };
        Self {
            cpu: fs::read_to_string("/proc/cpuinfo").ok().as_deref().and_then(cpu_model),
            cpus: run.cpus.count(),
            cpu_list: run.cpus.list(),
            nodes: memory.topology().nodes().len(),
            memory_bytes: machine.as_ref().and_then(bytes),
            kernel: kernel(),
            page_bytes: machine.map(|machine| machine.page_bytes),
            storage: memory.storage().to_string(),
            binding: memory.binding().to_string(),
            version: env!("CARGO_PKG_VERSION"),
            commit: run.commit,
            clock_look_ns: run.clock.look.as_nanos() as u64,
            bytes_per_node: run.bytes_per_node,
            rounds: run.rounds,
        }
    }
}

/// The first processor that `/proc/cpuinfo` names. Not all architectures have a line with the model.
pub fn cpu_model(cpuinfo: &str) -> Option<String> {
    let model = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    };
    cpuinfo.lines().find_map(model)
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!("Linux {} {}", release.trim(), std::env::consts::ARCH)
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unknown = "unknown".to_owned();
        let cpu = self.cpu.as_ref().unwrap_or(&unknown);
        let memory = self.memory_bytes.map_or(unknown.clone(), size::format);
        let page = self.page_bytes.map_or(unknown.clone(), |bytes| bytes.to_string());
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let (cpus, nodes) = (self.cpus, self.nodes);
        writeln!(f, "cpu      {cpu}, {cpus} CPU{} ({})", plural(cpus), self.cpu_list)?;
        let binding = &self.binding;
        writeln!(f, "memory   {memory}, {nodes} node{}, binding {binding}", plural(nodes))?;
        writeln!(f, "kernel   {}, pages of {page} bytes", self.kernel)?;
        writeln!(f, "storage  {}", self.storage)?;
        let commit = self.commit.map_or(String::new(), |commit| format!(", commit {commit}"));
        let bytes = size::format(self.bytes_per_node);
        writeln!(f, "nearpage {}{commit}, {bytes} a node", self.version)?;
        writeln!(f, "clock    a reading takes {} ns, subtracted", self.clock_look_ns)?;
        writeln!(
            f,
            "rounds   {}: median, min and max are over them, p99 is over their samples",
            self.rounds
        )?;
        writeln!(
            f,
            "sample   {SAMPLE_OPERATIONS} operations of a thread (mmap: {MMAP_SAMPLE_PAGES} or fewer), \
             {SAMPLE_QUEUES} times as many in cross, a round in bulk"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cpu_is_the_first_model_name() {
        let cpuinfo =
            "processor\t: 0\nmodel\t\t: 207\nmodel name\t: Some CPU @ 2 GHz\n\nmodel name\t: x\n";
        assert_eq!(cpu_model(cpuinfo), Some("Some CPU @ 2 GHz".into()));
        assert_eq!(cpu_model("CPU implementer\t: 0x41\n"), None);
    }
}
