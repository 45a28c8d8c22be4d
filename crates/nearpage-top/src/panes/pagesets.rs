//! Pagesets: each, or those of a CPU or a zone together.

use std::collections::BTreeMap;

use nearpage_watch::{CpuTraffic, PagesetSample};

use super::Chosen;
use crate::shown::Shown;
use crate::table::{Item, Table};
use crate::words::short;

/// Up to so many pagesets each is shown, unless `g` says otherwise.
const MANY: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Each,
    Zones,
    Cpus,
}

fn group(chosen: Chosen) -> Group {
    Chosen::turn(chosen.group, &[Group::Each, Group::Zones, Group::Cpus])
}

/// How often `g` is pressed by itself: with many pagesets, zones are shown first.
pub(crate) fn first_group(shown: &Shown<'_>) -> usize {
    let all: usize = shown.now.zones.iter().map(|zone| zone.pagesets.len()).sum();
    usize::from(all > MANY)
}

pub(super) fn choice(shown: &Shown<'_>, chosen: Chosen) -> String {
    let group = match group(chosen) {
        Group::Each => "each pageset",
        Group::Zones => "by zone",
        Group::Cpus => "by CPU",
    };
    match shown.past.and_then(|past| past.traffic.as_ref()) {
        Some(Ok(cpus)) if !cpus.is_empty() => {
            let sum = |of: fn(&CpuTraffic) -> u64| {
                short(cpus.iter().map(of).fold(0, u64::saturating_add)).trim_start().to_owned()
            };
            let (refills, drains) = (sum(|cpu| cpu.refills), sum(|cpu| cpu.drains));
            format!("{group}; {refills} refills/s, {drains} drains/s")
        }
        Some(Err(_)) => format!("{group}; refills and drains not counted"),
        _ => group.into(),
    }
}

/// What a CPU moves, in words; `None` where nobody counts it.
pub(crate) fn traffic_of(shown: &Shown<'_>, cpu: u32) -> Option<String> {
    match shown.past?.traffic.as_ref()? {
        Ok(cpus) => {
            let found = cpus.iter().find(|traffic| traffic.cpu == cpu)?;
            let CpuTraffic { refills, drains, .. } = found;
            Some(format!("blocks a second: {refills} refilled, {drains} drained"))
        }
        Err(why) => Some(format!("refills and drains are not counted: {why}")),
    }
}

pub(super) fn table<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    match group(chosen) {
        Group::Each => each(shown, chosen),
        Group::Zones => by_zone(shown, chosen),
        Group::Cpus => by_cpu(shown, chosen),
    }
}

/// How full, as `=` of twenty.
fn gauge(count: u64, high: u64) -> String {
    let cells = (u128::from(count) * 20).checked_div(u128::from(high)).unwrap_or(0).min(20);
    "=".repeat(cells as usize)
}

fn each<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let zones = &shown.now.zones;
    let rows: Vec<(u32, u32)> = zones
        .iter()
        .enumerate()
        .filter(|(_, zone)| chosen.has(zone.node))
        .flat_map(|(at, zone)| (0..zone.pagesets.len() as u32).map(move |of| (at as u32, of)))
        .collect();
    let at = move |row: &(u32, u32)| {
        let zone = &zones[row.0 as usize];
        (zone, zone.pagesets[row.1 as usize])
    };
    Table::of(
        "node zone     cpu   count   change    high   batch  full",
        rows,
        move |row| {
            let (zone, pageset) = at(row);
            let old = shown.before.and_then(|before| {
                let old = before
                    .zones
                    .iter()
                    .find(|old| (old.node, &old.zone) == (zone.node, &zone.zone))?;
                let same = old.pagesets.get(row.1 as usize).filter(|old| old.cpu == pageset.cpu);
                same.or_else(|| old.pagesets.iter().find(|old| old.cpu == pageset.cpu))
            });
            format!(
                "{:>4} {:<7} {:>4} {:>7} {:>8} {:>7} {:>7}  {}",
                zone.node,
                zone.zone,
                pageset.cpu,
                pageset.count,
                change(old, &pageset),
                pageset.high,
                pageset.batch,
                gauge(pageset.count, pageset.high)
            )
        },
        move |row| {
            let (zone, pageset) = at(row);
            Item::Pageset(zone.node, zone.zone.clone(), pageset.cpu)
        },
    )
}

fn change(old: Option<&PagesetSample>, now: &PagesetSample) -> String {
    match old {
        None => "-".into(),
        Some(old) if old.count > now.count => format!("-{}", old.count - now.count),
        Some(old) => format!("+{}", now.count - old.count),
    }
}

fn by_zone<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let zones = &shown.now.zones;
    let rows: Vec<usize> = (0..zones.len()).filter(|at| chosen.has(zones[*at].node)).collect();
    Table::of(
        "node zone    cpus    count      most      high   batch  full",
        rows,
        move |at| {
            let zone = &zones[*at];
            let count = zone.pageset_pages.unwrap_or(0);
            let most = zone.pagesets.iter().map(|pageset| pageset.count).max();
            let high =
                zone.pagesets.iter().map(|pageset| pageset.high).fold(0, u64::saturating_add);
            let batch = zone.pagesets.iter().map(|pageset| pageset.batch).max();
            format!(
                "{:>4} {:<7} {:>4} {:>8} {:>9} {:>9} {:>7}  {}",
                zone.node,
                zone.zone,
                zone.cpus,
                count,
                most.unwrap_or(0),
                high,
                batch.unwrap_or(0),
                gauge(count, high)
            )
        },
        move |at| Item::Zone(zones[*at].node, zones[*at].zone.clone()),
    )
}

fn by_cpu<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let mut cpus: BTreeMap<u32, (u32, u64, u64)> = BTreeMap::new();
    for zone in shown.now.zones.iter().filter(|zone| chosen.has(zone.node)) {
        for pageset in &zone.pagesets {
            let (zones, count, high) = cpus.entry(pageset.cpu).or_default();
            *zones += 1;
            *count = count.saturating_add(pageset.count);
            *high = high.saturating_add(pageset.high);
        }
    }
    let traffic = shown.past.and_then(|past| past.traffic.as_ref()?.as_ref().ok());
    let heading = match traffic {
        Some(_) => " cpu zones    count      high refills/s  drains/s  full",
        None => " cpu zones    count      high  full",
    };
    Table::of(
        heading,
        cpus.into_iter().collect(),
        move |(cpu, (zones, count, high))| {
            let row = format!("{cpu:>4} {zones:>5} {count:>8} {high:>9}");
            let rates = traffic.map(|all| match all.iter().find(|one| one.cpu == *cpu) {
                Some(one) => format!(" {:>9} {:>9}", one.refills, one.drains),
                None => format!(" {:>9} {:>9}", "-", "-"),
            });
            format!("{row}{}  {}", rates.unwrap_or_default(), gauge(*count, *high))
        },
        |(cpu, _)| Item::Pageset(u32::MAX, String::new(), *cpu),
    )
}
