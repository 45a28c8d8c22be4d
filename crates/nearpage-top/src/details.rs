//! All that is known of one row, as lines.

use nearpage_watch::{ASKERS, NodeSample, Placement, Processes, WORDS, ZoneSample};

use crate::panes::{available, distances, mark_text, traffic_of, why_not};
use crate::shown::Shown;
use crate::table::Item;
use crate::words::{clock, mib, number, short, time};

/// Orders whose fate is told: a page, those of small kernel allocations, huge pages of x86.
const ORDERS: [u8; 6] = [0, 1, 2, 3, 4, 9];

/// Lines about an item. One that is gone says so.
pub(crate) fn of(shown: &Shown<'_>, item: &Item) -> Vec<String> {
    let lines = match item {
        Item::Node(node) => node_lines(shown, *node),
        Item::Zone(node, zone) => zone_lines(shown, *node, zone),
        Item::Blocks(node, zone) => block_lines(shown, *node, zone),
        Item::Pageset(_, _, cpu) => Some(cpu_lines(shown, *cpu)),
        Item::Process(pid) => process_lines(&shown.now.processes, *pid),
        Item::Word(word) => word_lines(shown, word),
        Item::Nothing => Some(vec!["nothing more is known of this row".into()]),
    };
    lines.unwrap_or_else(|| vec!["it is gone".into()])
}

fn node_lines(shown: &Shown<'_>, id: u32) -> Option<Vec<String>> {
    let node = shown.now.nodes.iter().find(|node| node.node == id)?;
    let mut lines =
        vec![format!("node {id}, CPUs {}", if node.cpus.is_empty() { "none" } else { &node.cpus })];
    let sizes: [(&str, Option<u64>); 8] = [
        ("total", node.total),
        ("free", node.free),
        ("available", available(shown.now, node)),
        ("files", node.file),
        ("anonymous", node.anon),
        ("of it huge", node.anon_huge),
        ("slab", node.slab),
        ("shared", node.shmem),
    ];
    lines.extend(sizes.map(|(name, kib)| format!("  {name:<12} {:>10} MiB", mib(kib))));
    if let Some((all, free)) = node.hugetlb {
        lines.push(format!("  {:<12} {free:>10} free of {all} huge pages", "pool"));
    }
    lines.push(format!("distances: {}", distances(&node.distances)));
    lines.push(nearest(node));
    for (name, count) in &node.numa {
        lines.push(format!("  {name:<15} {count:>20} since boot"));
    }
    Some(lines)
}

/// The nodes that are tried first when this one is full.
fn nearest(node: &NodeSample) -> String {
    let mut others: Vec<(u32, usize)> =
        node.distances.iter().enumerate().map(|(at, distance)| (*distance, at)).collect();
    others.sort_unstable();
    let others = others.iter().skip(1).take(8).map(|(distance, at)| format!("{at} ({distance})"));
    format!("nearest others: {}", others.collect::<Vec<_>>().join(" "))
}

fn zone_lines(shown: &Shown<'_>, node: u32, name: &str) -> Option<Vec<String>> {
    let zone = shown.now.zones.iter().find(|zone| zone.node == node && zone.zone == name)?;
    let mut lines = vec![format!("zone {name} of node {node}, in pages")];
    let figures = [
        ("free", zone.free),
        ("min", zone.min),
        ("low", zone.low),
        ("high", zone.high),
        ("promo", zone.promo),
        ("boost", zone.boost),
        ("in pagesets", zone.pageset_pages),
        ("managed", zone.managed),
        ("present", zone.present),
    ];
    lines.extend(figures.map(|(name, pages)| format!("  {name:<12} {:>12}", number(pages))));
    let reserves: Vec<String> = zone.protection.iter().map(u64::to_string).collect();
    lines.push(format!("kept from requests that could use a higher zone: {}", reserves.join(" ")));
    lines.push(String::new());
    lines.push(format!(
        "{:<22}{}",
        "which request of order",
        ORDERS.map(|order| format!(" {order:>8}")).concat()
    ));
    lines.extend(ASKERS.iter().map(|asker| {
        let fates =
            ORDERS.map(|order| format!(" {:>8}", fate(zone, asker.passes(zone, order), order)));
        format!("  {:<20}{}", asker.name, fates.concat())
    }));
    lines.push("refused: too few pages; no block: enough pages, none so large".into());
    if let Some(past) = shown.past {
        for order in [0, 3, 9] {
            if let Some(left) = past.trends.none_in(node, name, order) {
                let what = if order == 0 {
                    "pages above min".into()
                } else {
                    format!("blocks of order {order}")
                };
                let left = time(left.as_millis() as u64);
                lines.push(format!("at the pace of the last minute there are no {what} in {left}"));
            }
        }
    }
    Some(lines)
}

/// Free blocks by order and type, and then all else of the zone.
fn block_lines(shown: &Shown<'_>, node: u32, name: &str) -> Option<Vec<String>> {
    let zone = shown.now.zones.iter().find(|zone| zone.node == node && zone.zone == name)?;
    let row = |name: &str, counts: &mut dyn Iterator<Item = String>| {
        let counts: String = counts.map(|count| format!(" {count:>4}")).collect();
        format!("  {name:<12}{counts}")
    };
    let mut lines = vec![
        format!("free blocks of {name} of node {node}"),
        row("of order", &mut (0..zone.blocks.len()).map(|order| order.to_string())),
        row("all", &mut zone.blocks.iter().map(|count| short(*count).trim().to_owned())),
    ];
    match shown.past.and_then(|past| past.types.as_ref()) {
        None => lines.push("by type: not known of a recording".into()),
        Some((_, Err(why))) => lines.push(format!("by type: {why}")),
        Some((time_ms, Ok(types))) => {
            lines.push(format!("by type, at {}, and empty types left out:", clock(*time_ms)));
            let here = types.iter().filter(|types| types.node == node && types.zone == name);
            let some = here.filter(|types| types.blocks.iter().any(|(count, _)| *count > 0));
            lines.extend(some.map(|types| {
                let mut counts = types.blocks.iter().map(|(count, is_more)| {
                    format!("{}{}", if *is_more { ">" } else { "" }, short(*count).trim())
                });
                row(&types.migratetype, &mut counts)
            }));
        }
    }
    lines.push(String::new());
    lines.extend(zone_lines(shown, node, name)?);
    Some(lines)
}

/// What becomes of a request.
fn fate(zone: &ZoneSample, passes: Option<bool>, order: u8) -> &'static str {
    let has_block = zone.blocks.iter().skip(usize::from(order)).any(|count| *count > 0);
    match passes {
        None => "-",
        Some(true) => "given",
        Some(false) if has_block || order == 0 => "refused",
        Some(false) => "no block",
    }
}

fn cpu_lines(shown: &Shown<'_>, cpu: u32) -> Vec<String> {
    let mut lines =
        vec![format!("CPU {cpu}: pages in its pagesets, their limit, and how many move at once")];
    for zone in &shown.now.zones {
        for pageset in zone.pagesets.iter().filter(|pageset| pageset.cpu == cpu) {
            lines.push(format!(
                "  node {} {:<8} {:>7} of {:>7}, {:>4}",
                zone.node, zone.zone, pageset.count, pageset.high, pageset.batch
            ));
        }
    }
    lines.extend(traffic_of(shown, cpu));
    lines
}

fn process_lines(processes: &Processes, pid: u32) -> Option<Vec<String>> {
    let process = processes.list.iter().find(|process| process.pid == pid)?;
    let mut lines = vec![format!("process {pid}, {}", process.name)];
    let user = process.uid.map_or("not read yet".into(), |uid| uid.to_string());
    lines.push(format!("  user         {user}"));
    lines.push(format!("  resident     {} MiB", mib(Some(process.rss))));
    let runs = process.runs_on.map_or("unknown".into(), |node| format!("node {node}"));
    lines.push(format!("  ran last on  {runs}"));
    let nodes = if process.may_use.is_empty() { "not read yet" } else { &process.may_use };
    lines.push(format!("  may use      nodes {nodes}"));
    match process.placement {
        Placement::Read => {
            let ago = time(process.placed_ago.unwrap_or(0).saturating_mul(1000));
            lines.push(format!("memory by node {ago} ago, shared pages too:"));
            let all: u64 = process.nodes.iter().map(|(_, kib)| *kib).fold(0, u64::saturating_add);
            for (node, kib) in &process.nodes {
                let percent = u128::from(*kib) * 100 / u128::from(all.max(1));
                lines.push(format!("  node {node:>4} {:>10} MiB {percent:>4} %", mib(Some(*kib))));
            }
        }
        Placement::Denied => {
            lines.push(format!("memory by node: {}", why_not(process)));
            lines
                .push("numa_maps is for its user and root: run nearpage top as one of them".into());
        }
        _ => lines.push(format!("memory by node: {}", why_not(process))),
    }
    Some(lines)
}

fn word_lines(shown: &Shown<'_>, word: &str) -> Option<Vec<String>> {
    let meaning = WORDS.iter().find(|other| other.word == word)?;
    let mut lines = vec![
        format!("{word}: {}", meaning.when),
        format!("what to do: {}", meaning.advice),
        format!("the book: Marks of nearpage top, section {word}"),
        String::new(),
    ];
    let now = shown.marks.iter().filter(|mark| mark.word == word);
    lines.extend(now.map(|mark| format!("now: {}", mark_text(mark))));
    Some(lines)
}
