//! The kernel's own lines of fallback orders.

use nearpage::zonelist::write_fallback_order;

use super::Report;

/// One line a node, with the kernel's trailing space.
pub(super) fn format(report: &Report) -> String {
    let mut text = String::new();
    let memoryless = report.plan.model.memoryless_line();
    let write = |topology: &nearpage::topology::Topology<'_>| {
        for (local, node) in topology.indexes().zip(&report.plan.nodes) {
            write_fallback_order(&mut text, topology, local, &node.fallback, memoryless)
                .expect("writing to a string cannot fail");
        }
    };
    report.description.topology.with(write).expect("a description's topology is valid");
    text
}
