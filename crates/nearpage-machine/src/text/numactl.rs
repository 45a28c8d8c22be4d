//! The text of `numactl --hardware`, as its version 2.0.19 and later print it.

use std::fmt::{self, Display, Formatter};

use crate::idlist;
use crate::machine::{Machine, MachineNode};

/// The text of `numactl --hardware`, as its version 2.0.19 and later print it.
pub fn numactl(machine: &Machine) -> impl Display {
    fmt::from_fn(|out| write_machine(out, machine))
}

fn write_machine(out: &mut Formatter<'_>, machine: &Machine) -> fmt::Result {
    let ids: Vec<u32> = machine.nodes.iter().map(|node| node.id.0).collect();
    writeln!(out, "available: {} nodes ({})", ids.len(), idlist::format(&ids))?;
    for node in &machine.nodes {
        write_node(out, node)?;
    }
    writeln!(out, "node distances:")?;
    write!(out, "node  ")?;
    for id in &ids {
        write!(out, "{id:4} ")?;
    }
    writeln!(out)?;
    for (id, row) in ids.iter().zip(machine.distances.chunks(ids.len())) {
        write!(out, "{id:4}: ")?;
        for distance in row {
            write!(out, "{distance:4} ")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_node(out: &mut Formatter<'_>, node: &MachineNode) -> fmt::Result {
    write!(out, "node {} cpus:", node.id)?;
    for cpu in &node.cpus {
        write!(out, " {cpu}")?;
    }
    writeln!(out)?;
    for (what, bytes) in [("size", node.memory_bytes), ("free", node.free_bytes)] {
        match bytes {
            Some(bytes) => writeln!(out, "node {} {what}: {} MB", node.id, bytes >> 20)?,
            None => writeln!(out, "node {} {what}: <not available>", node.id)?,
        }
    }
    Ok(())
}
