//! What a what-if changes, as text.

use std::fmt::Display;

use nearpage_machine::shown;
use nearpage_machine::size::format as bytes;
use nearpage_replay::{Change, Changes, OrderChange, OtherMachine, SizeChange};

/// Zones, and nodes with their orders, that are shown; JSON has all.
const SHOWN_MOST: usize = 8;

/// A line for each thing that is changed, for each that was asked for in vain, and then for what follows; what several changes share
/// stands once.
pub fn change_lines<'c>(all: impl IntoIterator<Item = &'c Changes>) -> Vec<String> {
    let all: Vec<&Changes> = all.into_iter().collect();
    let asked = all.iter().flat_map(|changes| asked_lines(changes));
    let mut lines = Vec::new();
    for line in asked.chain(all.iter().flat_map(|changes| moved_lines(changes))) {
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines
}

/// A line for each thing that is changed, and for each that was asked for in vain.
fn asked_lines(changes: &Changes) -> Vec<String> {
    let mut lines = Vec::new();
    for setting in &changes.settings {
        lines.push(format!("{}: {} -> {}", setting.key, setting.before, setting.after));
        lines.extend(setting.no_effect.clone());
    }
    let Change { before, after, .. } = changes.rules;
    lines.push(match before == after {
        true => format!("rules: {after}, unchanged"),
        false => format!("rules: {before} -> {after}"),
    });
    if let Some(machine) = &changes.machine {
        lines.push(format!("machine: {}", machine_text(machine)));
    }
    if let Some(cpus) = &changes.cpus {
        lines.push(format!("CPUs: {cpus}"));
    }
    if changes.repeat > 1 {
        lines.push(format!("copies of the trace at once: {}", changes.repeat));
    }
    lines
}

/// What follows: sizes and fallback orders that move, those that the machine alone moves last.
fn moved_lines(changes: &Changes) -> Vec<String> {
    let Change { before, after, .. } = changes.rules;
    let under = if before == after { String::new() } else { format!("under {after}: ") };
    let mut lines = moved(&changes.sizes, &changes.fallback, &under);
    if let Some(machine) = &changes.machine {
        lines.extend(moved(&machine.sizes, &machine.fallback, "by the machine: "));
    }
    lines
}

/// Lines for zones with sizes that moved, and for nodes with other fallback orders, each after its cause.
fn moved(zones: &[SizeChange], nodes: &[OrderChange], cause: &str) -> Vec<String> {
    let orders = nodes.iter().map(|order| {
        let text = |nodes: &Option<Vec<u32>>| {
            let ids = |nodes: &Vec<u32>| nodes.iter().map(u32::to_string).collect::<Vec<_>>();
            nodes.as_ref().map_or("none".to_owned(), |nodes| ids(nodes).join(" "))
        };
        format!(
            "fallback of node {}: {} -> {}",
            order.node,
            text(&order.before),
            text(&order.after)
        )
    });
    let mut lines = few(sizes(zones), "zones with other sizes");
    lines.extend(few(orders.collect(), "nodes with another fallback order"));
    lines.into_iter().map(|line| format!("{cause}{line}")).collect()
}

fn machine_text(machine: &OtherMachine) -> String {
    let OtherMachine { name, nodes, cpus, memory_bytes, page_bytes, .. } = machine;
    let sizes = |nodes: u64, cpus: u64, memory: u64, page: u64| {
        format!("{nodes} nodes, {cpus} CPUs, {} in pages of {}", bytes(memory), bytes(page))
    };
    format!(
        "{}: {}, all free; recorded: {}",
        shown(name),
        sizes(nodes.after, cpus.after, memory_bytes.after, page_bytes.after),
        sizes(nodes.before, cpus.before, memory_bytes.before, page_bytes.before)
    )
}

/// A line for each zone with sizes that moved, those with the largest first.
fn sizes(sizes: &[SizeChange]) -> Vec<String> {
    let number = |pages: Option<u64>| pages.map_or("none".into(), |pages| pages.to_string());
    let text = |size: &SizeChange| {
        format!("{} {} -> {}", size.what, number(size.before), number(size.after))
    };
    let of_zone = |zone: &[SizeChange]| {
        let all: Vec<String> = zone.iter().map(text).collect();
        format!("{}, pages: {}", zone[0].place, all.join(", "))
    };
    let largest = |zone: &&[SizeChange]| zone.iter().map(|size| size.before.max(size.after)).max();
    let mut zones: Vec<&[SizeChange]> =
        sizes.chunk_by(|one, other| one.place == other.place).collect();
    zones.sort_by_key(|zone| std::cmp::Reverse(largest(zone)));
    zones.into_iter().map(of_zone).collect()
}

/// The first of many lines.
fn few(mut lines: Vec<String>, what: impl Display) -> Vec<String> {
    if lines.len() > SHOWN_MOST {
        let more = lines.len() - SHOWN_MOST;
        lines.truncate(SHOWN_MOST);
        lines.push(format!("... and {more} more {what} (--json has all)"));
    }
    lines
}
