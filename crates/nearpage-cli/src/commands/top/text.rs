//! A sample as a text of 80 columns, and as CSV.

use std::io::{self, Write};

use nearpage_machine::{shown, size};
use nearpage_watch::{Mark, NodeSample, Placement, ProcessSample, Sample, ZoneSample, gives};

/// Nodes and zones that a text shows one by one.
const ROWS_MOST: usize = 64;

/// Processes that a text shows.
const PROCESSES_MOST: usize = 10;
/// Nodes of a process that have room in 80 columns.
const NODES_OF_PROCESS_MOST: usize = 3;

/// The text.
pub(super) fn write(
    output: &mut impl Write,
    source: &str,
    sample: &Sample,
    marks: &[Mark],
) -> io::Result<()> {
    let kernel = sample.kernel.as_deref().map(|release| format!(", Linux {}", shown(release)));
    writeln!(output, "Machine   {source}{}\n", kernel.unwrap_or_default())?;
    writeln!(
        output,
        " node  total    free     file     anon     slab     huge  numa hit/miss/foreign"
    )?;
    for node in sample.nodes.iter().take(ROWS_MOST) {
        writeln!(output, "{}", node_row(node))?;
    }
    more(output, sample.nodes.len())?;
    writeln!(
        output,
        "\n zone         free      min      low     high  boost  cached  order  gives"
    )?;
    for zone in sample.zones.iter().take(ROWS_MOST) {
        writeln!(output, "{}", zone_row(zone))?;
    }
    more(output, sample.zones.len())?;
    write_processes(output, sample)?;
    writeln!(output)?;
    for mark in marks {
        let place = match (mark.node, &mark.zone) {
            (Some(node), Some(zone)) => format!("node {node} {}: ", shown(zone)),
            (Some(node), None) => format!("node {node}: "),
            _ => String::new(),
        };
        writeln!(output, "{:<11} {place}{}", mark.word, mark.reason)?;
    }
    if sample.zones.is_empty() {
        writeln!(output, "not known what is wrong: there are no zones")?;
    } else if marks.is_empty() {
        writeln!(output, "nothing is wrong")?;
    }
    for text in &sample.unreadable {
        writeln!(output, "unreadable  {}", shown(text))?;
    }
    Ok(())
}

fn write_processes(output: &mut impl Write, sample: &Sample) -> io::Result<()> {
    let processes = &sample.processes;
    if processes.list.is_empty() {
        return Ok(());
    }
    writeln!(output, "\n     pid name                 rss  by node")?;
    for process in processes.list.iter().take(PROCESSES_MOST) {
        writeln!(output, "{}", process_row(process))?;
    }
    let more = processes.seen.saturating_sub(PROCESSES_MOST);
    if more > 0 {
        let denied = match processes.denied {
            0 => String::new(),
            denied => format!("; {denied} are not readable for this user"),
        };
        writeln!(output, " and {more} more{denied}")?;
    }
    Ok(())
}

fn process_row(process: &ProcessSample) -> String {
    let runs = process.runs_on.map_or(String::new(), |node| format!(", ran on node {node}"));
    let nodes = match process.placement {
        Placement::Read => {
            let mut nodes = process.nodes.clone();
            nodes.sort_by_key(|(node, kib)| (u64::MAX - kib, *node));
            let more = nodes.len().saturating_sub(NODES_OF_PROCESS_MOST);
            let nodes = nodes.iter().take(NODES_OF_PROCESS_MOST);
            let nodes: Vec<String> =
                nodes.map(|(node, kib)| format!("{node}: {}", short(*kib))).collect();
            let more = if more > 0 { format!(", {more} more") } else { String::new() };
            format!("{}{more}", nodes.join(", "))
        }
        Placement::Denied => match process.uid {
            Some(uid) => format!("not readable: of user {uid}{runs}"),
            None => format!("not readable{runs}"),
        },
        Placement::Absent => format!("the kernel does not tell{runs}"),
        Placement::Waiting | Placement::TooLong => format!("not read: it takes long{runs}"),
    };
    // A process names itself.
    let name: String = shown(&process.name).to_string().chars().take(15).collect();
    format!(" {:>7} {name:<15} {:>8}  {nodes}", process.pid, short(process.rss))
}

fn more(output: &mut impl Write, rows: usize) -> io::Result<()> {
    match rows.checked_sub(ROWS_MOST) {
        Some(more) if more > 0 => writeln!(output, " and {more} more"),
        _ => Ok(()),
    }
}

fn node_row(node: &NodeSample) -> String {
    let of = |kib: Option<u64>| kib.map_or("-".into(), short);
    let numa = |name: &str| {
        let found = node.numa.iter().find(|(other, _)| *other == name);
        found.map_or("-".into(), |(_, count)| count.to_string())
    };
    let huge = node.hugetlb.map_or("-".into(), |(all, _)| all.to_string());
    let row = format!(
        " {:<5} {:<8} {:<8} {:<8} {:<8} {:<8} {:<5} {}/{}/{}",
        node.node,
        of(node.total),
        of(node.free),
        of(node.file),
        of(node.anon),
        of(node.slab),
        huge,
        numa("numa_hit"),
        numa("numa_miss"),
        numa("numa_foreign")
    );
    row.trim_end().to_owned()
}

/// KiB in at most eight columns.
fn short(kib: u64) -> String {
    match kib {
        0..=9999 => format!("{kib} K"),
        10_000..=9_999_999 => format!("{} M", kib >> 10),
        _ => size::format(kib >> 20 << 30).replace("iB", ""),
    }
}

fn zone_row(zone: &ZoneSample) -> String {
    let of = |pages: Option<u64>| pages.map_or("-".into(), |pages| pages.to_string());
    let order = zone.largest_order().map_or("-".into(), |order| order.to_string());
    let gives = gives(zone).unwrap_or_else(|| "none".into());
    format!(
        " {:<3} {:<7} {:>8} {:>8} {:>8} {:>8} {:>6} {:>7} {order:>6}  {gives}",
        zone.node,
        shown(&zone.zone).to_string(),
        of(zone.free),
        of(zone.min),
        of(zone.low),
        of(zone.high),
        of(zone.boost),
        of(zone.pageset_pages)
    )
}

/// A line a zone. Numbers that the kernel does not tell are empty.
pub(super) fn write_csv(
    output: &mut impl Write,
    sample: &Sample,
    marks: &[Mark],
    with_heading: bool,
) -> io::Result<()> {
    if with_heading {
        writeln!(
            output,
            "time_ms,node,zone,free,min,low,high,boost,managed,pagesets,largest_order,marks"
        )?;
    }
    for zone in &sample.zones {
        let words: Vec<&str> = marks
            .iter()
            .filter(|mark| {
                mark.node == Some(zone.node)
                    && mark.zone.as_ref().is_none_or(|name| *name == zone.zone)
            })
            .map(|mark| mark.word)
            .collect();
        let numbers = [
            zone.free,
            zone.min,
            zone.low,
            zone.high,
            zone.boost,
            zone.managed,
            zone.pageset_pages,
            zone.largest_order().map(|order| order as u64),
        ];
        let numbers: Vec<String> = numbers
            .iter()
            .map(|number| number.map_or(String::new(), |number| number.to_string()))
            .collect();
        // Names of zones have letters and digits; whatever else a file has would break the line.
        let name: String = zone.zone.chars().filter(char::is_ascii_alphanumeric).collect();
        writeln!(
            output,
            "{},{},{name},{},{}",
            sample.time_ms,
            zone.node,
            numbers.join(","),
            words.join(" ")
        )?;
    }
    Ok(())
}
