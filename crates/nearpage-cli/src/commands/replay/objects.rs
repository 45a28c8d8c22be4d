//! The objects of a trace, on the recorded machine and on the one that is asked about.

use std::fmt::Write;

use nearpage::slab::LocalNode;
use serde_json::{Value, json};

use super::CommandError;
use nearpage_replay::cpus::CpuRule;
use nearpage_replay::objects::{ObjectTotals, Objects, Place, replay_objects};
use nearpage_replay::source::Bundle;
use nearpage_replay::start::{Start, settings};
use nearpage_replay::survey::Survey;
use nearpage_replay::whatif::{Wish, start_of};

/// Replays the objects, if the trace has any: on the recorded machine, and on that of the wish by both rules.
pub(super) fn of(
    bundle: &Bundle,
    start: &Start,
    survey: &Survey,
    wish: &Wish,
) -> Result<Option<Objects>, CommandError> {
    let other = match wish.machine {
        Some(_) => Some(start_of(bundle, start, settings(bundle, start)?, wish)?),
        None => None,
    };
    let place =
        |name: &str, start, local| Place { name: name.into(), start, cpus: wish.cpus, local };
    let mut places = vec![place("recorded machine", start, LocalNode::NearestMemory)];
    // The recorded machine plays its own CPUs.
    places[0].cpus = CpuRule::Socket;
    if let Some(other) = &other {
        places.push(place("own node: 2010, 2026", other, LocalNode::OwnNode));
        places.push(place("nearest memory", other, LocalNode::NearestMemory));
    }
    Ok(replay_objects(bundle, survey, &start.topology, &places)?)
}

type Line = (&'static str, &'static str, fn(&ObjectTotals) -> u64);
const LINES: [Line; 7] = [
    ("objects allocated", "allocated", |of| of.allocs),
    ("by a CPU's stack", "stack_hits", |of| of.stack_hits),
    ("list locks, nodes with memory", "memory_node_locks", |of| of.memory_locks),
    ("list locks, memoryless nodes", "memoryless_node_locks", |of| of.memoryless_locks),
    ("failed requests for one node", "failed_this_node", |of| of.failed_this_node),
    ("locks of alien stacks", "alien_locks", |of| of.alien_locks),
    ("objects refused", "refused", |of| of.refused),
];

/// The table, with how the events went together above it.
pub(super) fn text(objects: &Objects) -> String {
    let mut out = String::new();
    let pairing = &objects.pairing;
    let _ = writeln!(
        out,
        "\nobjects (slab events): {} allocated, {} freed; {} frees ({:.1} %) could not be paired with an allocation and are \
         left out; {} objects too large for a cache",
        pairing.allocs,
        pairing.frees,
        pairing.unpaired_frees + pairing.lost_frees,
        pairing.unpaired_percent(),
        pairing.left_out
    );
    let mut line = |what: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!(" {cell:>22}")).collect();
        let _ = writeln!(out, "{what:<34}{cells}");
    };
    line("", objects.columns.iter().map(|column| column.name.clone()).collect());
    for (what, _, of) in LINES {
        line(what, objects.columns.iter().map(|column| of(column).to_string()).collect());
    }
    let share = |column: &ObjectTotals| {
        format!("{:.1} %", column.stack_hits as f64 / column.allocs.max(1) as f64 * 100.0)
    };
    line("share of a CPU's stack", objects.columns.iter().map(share).collect());
    if objects.columns.len() > 1 {
        out.push_str(
            "own node: CPUs of a node without memory look for objects there, as Linux before 2010 (numa_node_id) and, by \
             another way, in 2026;\nnearest memory: at the nearest node that has some (numa_mem_id)\n",
        );
    }
    out
}

/// The same for programs.
pub(super) fn json(objects: &Objects) -> Value {
    let pairing = &objects.pairing;
    let column = |column: &ObjectTotals| {
        let counts = LINES.iter().map(|(_, key, of)| ((*key).to_owned(), of(column).into()));
        let name = ("name".to_owned(), Value::from(column.name.clone()));
        Value::Object([name].into_iter().chain(counts).collect())
    };
    json!({
        "allocated": pairing.allocs,
        "freed": pairing.frees,
        "unpaired_frees": pairing.unpaired_frees,
        "lost_frees": pairing.lost_frees,
        "unpaired_percent": pairing.unpaired_percent(),
        "left_out": pairing.left_out,
        "columns": objects.columns.iter().map(column).collect::<Vec<Value>>(),
    })
}
