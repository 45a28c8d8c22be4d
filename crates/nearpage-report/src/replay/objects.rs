//! The objects of a trace as text.

use std::fmt::Write;

use nearpage_replay::{ObjectTotals, Objects};

type Line = (&'static str, fn(&ObjectTotals) -> u64);
const LINES: [Line; 9] = [
    ("objects allocated", |of| of.allocated),
    ("by a CPU's stack", |of| of.stack_hits),
    ("list locks, nodes with memory", |of| of.memory_node_locks),
    ("list locks, memoryless nodes", |of| of.memoryless_node_locks),
    ("failed requests for one node", |of| of.failed_this_node),
    ("locks of alien stacks", |of| of.alien_locks),
    ("locks of barns", |of| of.barn_locks),
    ("objects past the sheaves", |of| of.bypasses),
    ("objects refused", |of| of.refused),
];

/// The table, with how the events went together above it.
pub fn objects_text(objects: &Objects) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "\nobjects (slab events): {} allocated, {} freed; {} frees ({:.1} %) could not be paired with an allocation and are \
         left out; {} objects too large for a cache",
        objects.allocated,
        objects.freed,
        objects.unpaired_frees + objects.lost_frees,
        objects.unpaired_percent,
        objects.left_out
    );
    let mut line = |what: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>22}")).collect();
        let _ = writeln!(out, "{what:<34}{cells}");
    };
    line("", objects.columns.iter().map(|column| column.name.to_owned()).collect());
    for (what, of) in LINES {
        line(what, objects.columns.iter().map(|column| of(column).to_string()).collect());
    }
    let share = |column: &ObjectTotals| {
        format!("{:.1} %", column.stack_hits as f64 / column.allocated.max(1) as f64 * 100.0)
    };
    line("share of a CPU's stack", objects.columns.iter().map(share).collect());
    if objects.columns.iter().any(|column| column.name == "nearest memory") {
        out.push_str(
            "own node: CPUs of a node without memory look for objects there, as Linux before 2010 (numa_node_id) and, by \
             another way, in 2026;\nnearest memory: at the nearest node that has some (numa_mem_id)\n",
        );
    }
    out
}
