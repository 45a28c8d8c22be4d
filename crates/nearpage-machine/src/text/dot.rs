//! The machine as a graph: nodes with their CPUs and memory, edges with distances.

use std::fmt::{self, Display, Formatter};

use crate::machine::{Machine, MachineNode};
use crate::{idlist, size};

/// A graph for Graphviz, directed if some distance depends on the direction.
pub fn dot(machine: &Machine) -> impl Display {
    fmt::from_fn(|out| write_graph(out, machine))
}

fn write_graph(out: &mut Formatter<'_>, machine: &Machine) -> fmt::Result {
    let count = machine.nodes.len();
    let distance = |from: usize, to: usize| machine.distances[from * count + to];
    let is_symmetric =
        (0..count).all(|from| (0..from).all(|to| distance(from, to) == distance(to, from)));
    let (kind, arrow) = if is_symmetric { ("graph", "--") } else { ("digraph", "->") };
    writeln!(out, "{kind} nearpage {{")?;
    writeln!(out, "  node [shape=box];")?;
    for node in &machine.nodes {
        writeln!(out, "  node{} [label=\"{}\"];", node.id, label(node))?;
    }
    for (from, node) in machine.nodes.iter().enumerate() {
        let others = machine.nodes.iter().enumerate();
        for (to, other) in
            others.filter(|&(to, _)| if is_symmetric { from < to } else { from != to })
        {
            let distance = distance(from, to);
            writeln!(out, "  node{} {arrow} node{} [label=\"{distance}\"];", node.id, other.id)?;
        }
    }
    writeln!(out, "}}")
}

/// The text in a node's box; `\n` is Graphviz's line break.
fn label(node: &MachineNode) -> String {
    let cpus: Vec<u32> = node.cpus.iter().map(|cpu| cpu.0).collect();
    let cpus =
        if cpus.is_empty() { "no CPUs".into() } else { format!("CPUs {}", idlist::format(&cpus)) };
    let memory = match node.memory_bytes {
        Some(0) => "no memory".into(),
        Some(bytes) => size::format(bytes),
        None => "memory unknown".into(),
    };
    format!("node {}\\n{cpus}\\n{memory}", node.id)
}
