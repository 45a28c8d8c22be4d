//! The rows of each pane, as text: a heading and lines.

use nearpage_watch::{NUMA, NodeSample, Sample, ZoneSample, passes, rate};

use crate::shown::{Pane, Shown};

/// Heading and lines of a pane.
pub(crate) fn of(pane: Pane, shown: &Shown<'_>) -> (String, Vec<String>) {
    match pane {
        Pane::Nodes => nodes(shown),
        Pane::Zones => zones(shown),
        Pane::Blocks => blocks(shown),
        Pane::Pagesets => pagesets(shown),
        Pane::Events => events(shown),
    }
}

fn mib(kib: Option<u64>) -> String {
    kib.map_or("-".into(), |kib| (kib >> 10).to_string())
}

fn number(value: Option<u64>) -> String {
    value.map_or("-".into(), |value| value.to_string())
}

/// Events a second, in at most seven columns.
fn per_second(value: Option<f64>) -> String {
    match value {
        None => "-".into(),
        Some(value) if value < 10.0 => format!("{value:.1}"),
        Some(value) if value < 100_000.0 => format!("{value:.0}"),
        Some(value) => format!("{:.0}k", value / 1000.0),
    }
}

fn elapsed_ms(shown: &Shown<'_>) -> u64 {
    shown.before.map_or(0, |before| shown.now.time_ms.saturating_sub(before.time_ms))
}

fn nodes(shown: &Shown<'_>) -> (String, Vec<String>) {
    let heading =
        "node total M  free M  file M  anon M  slab M   hit/s  miss/s foreign/s  distances".into();
    (heading, shown.now.nodes.iter().map(|node| node_row(shown, node)).collect())
}

fn node_row(shown: &Shown<'_>, node: &NodeSample) -> String {
    let old = shown.before.and_then(|before| before.nodes.iter().find(|old| old.node == node.node));
    let of = |node: &NodeSample, name| {
        node.numa.iter().find(|(other, _)| *other == name).map(|(_, count)| *count)
    };
    let rate_of = |name| {
        per_second(old.and_then(|old| rate(of(old, name)?, of(node, name)?, elapsed_ms(shown))))
    };
    let distances: Vec<String> = node.distances.iter().map(u32::to_string).collect();
    format!(
        "{:>4} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9}  {}",
        node.node,
        mib(node.total),
        mib(node.free),
        mib(node.file),
        mib(node.anon),
        mib(node.slab),
        rate_of(NUMA[0]),
        rate_of(NUMA[1]),
        rate_of(NUMA[2]),
        distances.join(" ")
    )
}

/// Free pages against the marks: `|` at min, low and high, `=` up to what is free, on a scale of twice `high`.
fn gauge(zone: &ZoneSample) -> String {
    const WIDTH: u64 = 14;
    let (Some(free), Some(min), Some(low), Some(high)) = (zone.free, zone.min, zone.low, zone.high)
    else {
        return String::new();
    };
    let scale = high.saturating_mul(2).max(1);
    let at = |pages: u64| {
        (u128::from(pages) * u128::from(WIDTH) / u128::from(scale)).min(u128::from(WIDTH - 1))
            as usize
    };
    let mut cells = vec![b' '; WIDTH as usize];
    cells[..at(free) + usize::from(free > 0)].fill(b'=');
    for mark in [min, low, high] {
        cells[at(mark)] = b'|';
    }
    String::from_utf8(cells).unwrap_or_default()
}

fn zones(shown: &Shown<'_>) -> (String, Vec<String>) {
    let heading =
        "node zone         free       min  boost  cached min|low|high    pages/s gives".into();
    (heading, shown.now.zones.iter().map(|zone| zone_row(shown, zone)).collect())
}

fn same<'a>(sample: Option<&'a Sample>, zone: &ZoneSample) -> Option<&'a ZoneSample> {
    sample?.zones.iter().find(|old| (old.node, &old.zone) == (zone.node, &zone.zone))
}

fn zone_row(shown: &Shown<'_>, zone: &ZoneSample) -> String {
    let change = same(shown.before, zone).and_then(|old| {
        let (old, free) = (old.free?, zone.free?);
        let pages = rate(old.min(free), old.max(free), elapsed_ms(shown))?;
        Some(if free < old {
            format!("-{}", per_second(Some(pages)))
        } else {
            format!("+{}", per_second(Some(pages)))
        })
    });
    let gives: Vec<&str> = [(0, "0"), (3, "3"), (9, "9")]
        .into_iter()
        .filter(|(order, _)| passes(zone, *order) == Some(true))
        .map(|(_, name)| name)
        .collect();
    format!(
        "{:>4} {:<7} {:>9} {:>9} {:>6} {:>7} {:<14} {:>8} {}",
        zone.node,
        zone.zone,
        number(zone.free),
        number(zone.min),
        number(zone.boost),
        number(zone.pageset_pages),
        gauge(zone),
        change.unwrap_or_else(|| "-".into()),
        if gives.is_empty() { "nothing".into() } else { gives.join(" ") }
    )
}

fn blocks(shown: &Shown<'_>) -> (String, Vec<String>) {
    let orders = shown.now.zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
    let heading: String = (0..orders).map(|order| format!(" {order:>6}")).collect();
    let rows = shown.now.zones.iter().map(|zone| {
        let counts: String = zone.blocks.iter().map(|count| format!(" {count:>6}")).collect();
        format!("{:>4} {:<7}{counts}", zone.node, zone.zone)
    });
    (format!("node zone   {heading}  free blocks by order"), rows.collect())
}

fn pagesets(shown: &Shown<'_>) -> (String, Vec<String>) {
    let heading = "node zone     cpu   count    high   batch".into();
    let rows = shown.now.zones.iter().flat_map(|zone| {
        zone.pagesets.iter().map(|pageset| {
            format!(
                "{:>4} {:<7} {:>4} {:>7} {:>7} {:>7}",
                zone.node, zone.zone, pageset.cpu, pageset.count, pageset.high, pageset.batch
            )
        })
    });
    (heading, rows.collect())
}

fn events(shown: &Shown<'_>) -> (String, Vec<String>) {
    let rows = shown.now.events.iter().map(|(name, count)| {
        let rate =
            shown.before.and_then(|before| rate(before.event(name)?, *count, elapsed_ms(shown)));
        format!("{name:<32} {:>8} {count:>20}", per_second(rate))
    });
    (format!("{:<32} {:>8} {:>20}", "event", "/s", "since boot"), rows.collect())
}
