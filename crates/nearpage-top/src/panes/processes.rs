//! Processes and the nodes of their memory.

use nearpage_watch::{Placement, ProcessSample};

use super::Chosen;
use crate::shown::Shown;
use crate::table::{Item, Table};
use crate::words::{mib, short, time};

/// Up to so many nodes each has a column.
const COLUMNS_MOST: usize = 4;

#[derive(Clone, Copy)]
enum Order {
    Memory,
    Faults,
    MajorFaults,
    Pid,
    Name,
}

fn order(chosen: Chosen) -> Order {
    use Order::{Faults, MajorFaults, Memory, Name, Pid};
    Chosen::turn(chosen.order, &[Memory, Faults, MajorFaults, Pid, Name])
}

pub(super) fn choice(shown: &Shown<'_>, chosen: Chosen) -> String {
    let by = match order(chosen) {
        Order::Memory => "memory",
        Order::Faults => "faults",
        Order::MajorFaults => "faults from disk",
        Order::Pid => "id",
        Order::Name => "name",
    };
    let processes = &shown.now.processes;
    let mut words = format!("by {by}; {} of {}", processes.list.len(), processes.seen);
    if processes.denied > 0 {
        words += &format!(", {} not readable", processes.denied);
    }
    if processes.waiting > 0 {
        words += &format!(", {} waiting", processes.waiting);
    }
    words
}

pub(super) fn table<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let list = &shown.now.processes.list;
    let is_shown = |process: &ProcessSample| chosen.node.is_none_or(|node| process.is_of(node));
    let mut rows: Vec<&ProcessSample> = list.iter().filter(|process| is_shown(process)).collect();
    let faults = |process: &ProcessSample| {
        process.minor_faults.unwrap_or(0).saturating_add(process.major_faults.unwrap_or(0))
    };
    match order(chosen) {
        Order::Memory => rows.sort_by_key(|process| {
            let of_node = chosen.node.map_or(0, |node| process.on(node));
            (u64::MAX - of_node, u64::MAX - process.rss, process.pid)
        }),
        Order::Faults => rows.sort_by_key(|process| u64::MAX - faults(process)),
        Order::MajorFaults => {
            rows.sort_by_key(|process| u64::MAX - process.major_faults.unwrap_or(0));
        }
        Order::Pid => rows.sort_by_key(|process| process.pid),
        Order::Name => {
            rows.sort_by(|one, other| (&one.name, one.pid).cmp(&(&other.name, other.pid)))
        }
    }
    let nodes: Vec<u32> = shown.now.nodes.iter().map(|node| node.node).collect();
    let nodes = if nodes.len() <= COLUMNS_MOST { nodes } else { Vec::new() };
    let mut heading = String::from("    pid name              rss M faults  disk");
    nodes.iter().for_each(|node| heading += &format!(" {:>7}", format!("N{node} M")));
    if nodes.is_empty() {
        heading += "  M by node";
    }
    Table::of(
        heading,
        rows,
        move |process| row(process, &nodes),
        |process| Item::Process(process.pid),
    )
}

fn row(process: &ProcessSample, columns: &[u32]) -> String {
    let rate = |faults: Option<u64>| faults.map_or("-".into(), short);
    let mut line = format!(
        "{:>7} {:<15} {:>7} {:>6} {:>5}",
        process.pid,
        process.name.chars().take(15).collect::<String>(),
        mib(Some(process.rss)),
        rate(process.minor_faults),
        rate(process.major_faults)
    );
    match process.placement {
        Placement::Read if columns.is_empty() => line += &largest(process),
        Placement::Read => {
            for node in columns {
                line += &format!(" {:>7}", mib(Some(process.on(*node))));
            }
        }
        _ => line += &format!("  {}", why_not(process)),
    }
    line + &age(process)
}

/// What was read some time ago says when: the size is of now, and may be another.
fn age(process: &ProcessSample) -> String {
    let old = process.placed_ago.filter(|seconds| *seconds >= 5);
    old.map_or(String::new(), |seconds| format!("  {} ago", time(seconds.saturating_mul(1000))))
}

/// `  3:512 0:20 and 5 nodes`: the nodes with most.
fn largest(process: &ProcessSample) -> String {
    const MOST: usize = 3;
    let mut nodes = process.nodes.clone();
    nodes.sort_by_key(|(node, kib)| (u64::MAX - kib, *node));
    let more = nodes.len().saturating_sub(MOST);
    let mut line = String::from(" ");
    for (node, kib) in nodes.iter().take(MOST) {
        line += &format!(" {node}:{}", mib(Some(*kib)));
    }
    if more > 0 {
        line += &format!(" and {more} nodes");
    }
    line
}

/// Why it is not known where its memory is, and what is known.
pub(crate) fn why_not(process: &ProcessSample) -> String {
    let runs = process.runs_on.map_or(String::new(), |node| format!("; ran on node {node}"));
    match process.placement {
        Placement::Read => String::new(),
        Placement::Waiting => format!("not read yet{runs}"),
        Placement::Denied => {
            let whose = process.uid.map_or("another user's".into(), |uid| format!("of user {uid}"));
            format!("not readable, {whose}{runs}")
        }
        Placement::TooLong => format!("takes long: Enter reads it{runs}"),
        Placement::Absent => format!("the kernel does not tell{runs}"),
    }
}
