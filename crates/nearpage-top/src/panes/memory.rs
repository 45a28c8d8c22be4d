//! Nodes, zones and free blocks.

use nearpage_watch::{ASKERS, NUMA, NodeSample, Sample, ZoneSample, gives, passes, rate};

use super::Chosen;
use crate::shown::Shown;
use crate::table::{Item, Table};
use crate::words::{mib, number, per_second, short, time};

/// From how many columns on there are more figures.
const WIDE: usize = 130;

pub(super) fn nodes<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let wide = if chosen.width >= WIDE {
        "  avail M  huge M  shmem M  pool  interlv/s  cpus      "
    } else {
        ""
    };
    let heading = format!(
        "node total M  free M  file M  anon M  slab M   hit/s  miss/s foreign/s{wide}  distances"
    );
    let now = shown.now;
    let mut rows: Vec<Option<usize>> =
        (0..now.nodes.len()).filter(|at| chosen.has(now.nodes[*at].node)).map(Some).collect();
    if rows.len() > 1 {
        rows.insert(0, None);
    }
    let all = sum(now, &rows);
    let before = shown.before.map(|before| sum(before, &rows));
    Table::of(
        heading,
        rows,
        move |row| match row {
            None => node_row(shown, &all, before.as_ref(), " all", chosen.width),
            Some(at) => {
                let node = &now.nodes[*at];
                let old = shown.before.and_then(|before| {
                    let same = before.nodes.get(*at).filter(|old| old.node == node.node);
                    same.or_else(|| before.nodes.iter().find(|old| old.node == node.node))
                });
                node_row(shown, node, old, &format!("{:>4}", node.node), chosen.width)
            }
        },
        move |row| row.map_or(Item::Nothing, |at| Item::Node(now.nodes[at].node)),
    )
}

/// All nodes of the rows together.
fn sum(sample: &Sample, rows: &[Option<usize>]) -> NodeSample {
    let nodes = || rows.iter().filter_map(|at| sample.nodes.get((*at)?));
    let of =
        |of: fn(&NodeSample) -> Option<u64>| nodes().filter_map(of).reduce(u64::saturating_add);
    let counter = |name: &'static str| {
        let counts = nodes().filter_map(|node| count_of(node, name));
        counts.reduce(u64::saturating_add).map(|count| (name, count))
    };
    NodeSample {
        node: u32::MAX,
        total: of(|node| node.total),
        free: of(|node| node.free),
        file: of(|node| node.file),
        anon: of(|node| node.anon),
        slab: of(|node| node.slab),
        shmem: of(|node| node.shmem),
        anon_huge: of(|node| node.anon_huge),
        hugetlb: of(|node| node.hugetlb.map(|(all, _)| all))
            .zip(of(|node| node.hugetlb.map(|(_, free)| free))),
        numa: NUMA.into_iter().filter_map(counter).collect(),
        ..NodeSample::default()
    }
}

fn count_of(node: &NodeSample, name: &str) -> Option<u64> {
    node.numa.iter().find(|(other, _)| *other == name).map(|(_, count)| *count)
}

/// What programs could still get without swap: what is free above the marks, and files that can be read again.
pub(crate) fn available(sample: &Sample, node: &NodeSample) -> Option<u64> {
    let marks: u64 = sample
        .zones_of(node.node)
        .filter_map(|zone| zone.low)
        .fold(0, u64::saturating_add)
        .saturating_mul(sample.page_kib());
    let files = node.file.unwrap_or(0).saturating_sub(node.shmem.unwrap_or(0));
    Some(node.free?.saturating_sub(marks).saturating_add(files))
}

fn node_row(
    shown: &Shown<'_>,
    node: &NodeSample,
    old: Option<&NodeSample>,
    name: &str,
    width: usize,
) -> String {
    let rate_of = |name| {
        let counts = old.and_then(|old| count_of(old, name)).zip(count_of(node, name));
        per_second(counts.and_then(|(old, now)| rate(old, now, shown.elapsed_ms())))
    };
    let wide = if width >= WIDE {
        let pool = node.hugetlb.map_or("-".into(), |(all, free)| format!("{free}/{all}"));
        format!(
            "  {:>7} {:>7} {:>8} {:>5} {:>10}  {:<10}",
            mib(available(shown.now, node)),
            mib(node.anon_huge),
            mib(node.shmem),
            pool,
            rate_of(NUMA[3]),
            node.cpus.chars().take(10).collect::<String>()
        )
    } else {
        String::new()
    };
    format!(
        "{name} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7} {:>9}{wide}  {}",
        mib(node.total),
        mib(node.free),
        mib(node.file),
        mib(node.anon),
        mib(node.slab),
        rate_of(NUMA[0]),
        rate_of(NUMA[1]),
        rate_of(NUMA[2]),
        distances(&node.distances)
    )
}

/// One by one; of many nodes how many there are at each distance.
pub(crate) fn distances(distances: &[u32]) -> String {
    if distances.len() <= 8 {
        return distances.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    }
    let mut counts = std::collections::BTreeMap::new();
    distances.iter().for_each(|distance| *counts.entry(distance).or_insert(0) += 1);
    let counts = counts.iter().map(|(distance, count)| format!("{count}x{distance}"));
    counts.collect::<Vec<_>>().join(" ")
}

/// Free pages against the marks: `|` at min, low and high, `=` up to what is free, on a scale of twice `high`.
fn gauge(zone: &ZoneSample, width: u64) -> String {
    let (Some(free), Some(min), Some(low), Some(high)) = (zone.free, zone.min, zone.low, zone.high)
    else {
        return String::new();
    };
    let scale = high.saturating_mul(2).max(1);
    let at = |pages: u64| {
        (u128::from(pages) * u128::from(width) / u128::from(scale)).min(u128::from(width - 1))
            as usize
    };
    let mut cells = vec![b' '; width as usize];
    cells[..at(free) + usize::from(free > 0)].fill(b'=');
    for mark in [min, low, high] {
        cells[at(mark)] = b'|';
    }
    String::from_utf8(cells).unwrap_or_default()
}

pub(super) fn choice(chosen: Chosen) -> String {
    Chosen::turn(chosen.order, &["in the kernel's order", "least above low first"]).into()
}

fn zone_indexes(shown: &Shown<'_>, chosen: Chosen) -> Vec<usize> {
    (0..shown.now.zones.len()).filter(|at| chosen.has(shown.now.zones[*at].node)).collect()
}

fn item_of(zone: &ZoneSample) -> Item {
    Item::Zone(zone.node, zone.zone.clone())
}

pub(super) fn zones<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let wide = if chosen.width >= WIDE {
        "          low      high     promo    reserve  managed  none in"
    } else {
        ""
    };
    let heading = format!(
        "node zone         free       min  boost  cached min|low|high    pages/s gives{wide}"
    );
    let zones = &shown.now.zones;
    let mut rows = zone_indexes(shown, chosen);
    if !chosen.order.is_multiple_of(2) {
        // Small zones are always short of pages: by the part that is free above low.
        rows.sort_by_key(|at| {
            let zone = &zones[*at];
            let above = zone.free.unwrap_or(0).saturating_sub(zone.low.unwrap_or(0));
            u128::from(above) * 1_000_000 / u128::from(zone.managed.unwrap_or(1).max(1))
        });
    }
    Table::of(
        heading,
        rows,
        move |at| zone_row(shown, *at, chosen.width),
        move |at| item_of(&zones[*at]),
    )
}

fn same<'a>(sample: Option<&'a Sample>, zone: &ZoneSample, at: usize) -> Option<&'a ZoneSample> {
    let is_same = |old: &&ZoneSample| (old.node, &old.zone) == (zone.node, &zone.zone);
    let zones = &sample?.zones;
    zones.get(at).filter(is_same).or_else(|| zones.iter().find(is_same))
}

/// Pages that a zone got or lost in a second.
pub(crate) fn change(shown: &Shown<'_>, zone: &ZoneSample, at: usize) -> String {
    let change = same(shown.before, zone, at).and_then(|old| {
        let (old, free) = (old.free?, zone.free?);
        let pages = per_second(Some(rate(old.min(free), old.max(free), shown.elapsed_ms())?));
        Some(format!("{}{pages}", if free < old { '-' } else { '+' }))
    });
    change.unwrap_or_else(|| "-".into())
}

fn zone_row(shown: &Shown<'_>, at: usize, width: usize) -> String {
    let zone = &shown.now.zones[at];
    let gives = gives(zone).unwrap_or_else(|| "nothing".into());
    let wide = if width >= WIDE {
        format!(
            "   {:>8} {:>9} {:>9} {:>10} {:>8}  {}",
            number(zone.low),
            number(zone.high),
            number(zone.promo),
            ASKERS[0].reserve(zone),
            number(zone.managed),
            none_in(shown, zone, 0).unwrap_or_else(|| "-".into())
        )
    } else {
        String::new()
    };
    let gives = if wide.is_empty() { gives } else { format!("{gives:<7}") };
    format!(
        "{:>4} {:<7} {:>9} {:>9} {:>6} {:>7} {:<14} {:>8} {gives}{wide}",
        zone.node,
        zone.zone,
        number(zone.free),
        number(zone.min),
        number(zone.boost),
        number(zone.pageset_pages),
        gauge(zone, 14),
        change(shown, zone, at),
    )
}

fn none_in(shown: &Shown<'_>, zone: &ZoneSample, order: usize) -> Option<String> {
    let trends = &shown.past?.trends;
    let left = trends.none_in(zone.node, &zone.zone, order)?;
    Some(time(left.as_millis() as u64))
}

pub(super) fn blocks<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let zones = &shown.now.zones;
    let orders = zones.iter().map(|zone| zone.blocks.len()).max().unwrap_or(0);
    let heading: String = (0..orders).map(|order| format!(" {order:>4}")).collect();
    Table::of(
        format!("node zone   {heading}  to be had"),
        zone_indexes(shown, chosen),
        move |at| block_row(shown, &zones[*at], orders),
        move |at| Item::Blocks(zones[*at].node, zones[*at].zone.clone()),
    )
}

/// Counts, the highest order that a request of the kernel gets, and when that ends.
fn block_row(shown: &Shown<'_>, zone: &ZoneSample, orders: usize) -> String {
    let counts: String = (0..orders)
        .map(|order| {
            let count = zone.blocks.get(order).map_or("-".into(), |count| short(*count));
            format!(" {count:>4}")
        })
        .collect();
    let highest = (0..orders as u8).rev().find(|order| passes(zone, *order) == Some(true));
    let highest = match highest {
        Some(order) => format!("up to order {order}"),
        None if zone.min.is_none() || zone.blocks.is_empty() => "-".into(),
        None => "none".into(),
    };
    // The largest that gets less.
    let end = [9, 3, 0].into_iter().find_map(|order| {
        Some(format!("; at this pace order {order} runs out in {}", none_in(shown, zone, order)?))
    });
    format!("{:>4} {:<7}{counts}  {highest}{}", zone.node, zone.zone, end.unwrap_or_default())
}
