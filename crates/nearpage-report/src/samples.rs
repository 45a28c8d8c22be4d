//! Plots of a run over its time: pages of each node, free pages with watermarks, a pageset, who waits.

use maud::{Markup, html};
use nearpage_sim::{Sample, Samples, ZoneSample};

use super::MachineView;
use super::charts::{self, Lines, Series, Shade};

/// What moments are counted in, by the last one (ps).
struct Unit {
    name: &'static str,
    ps: f64,
}

impl Unit {
    fn of(samples: &Samples) -> Unit {
        let last = samples.all.last().map_or(0, |sample| sample.at_ps);
        let (name, ps) = match last {
            ps if ps >= 1_000_000_000_000 => ("model time, s", 1e12),
            ps if ps >= 1_000_000_000 => ("model time, ms", 1e9),
            _ => ("model time, µs", 1e6),
        };
        Unit { name, ps }
    }

    fn lines(
        &self,
        samples: &Samples,
        name: &str,
        shade: Shade,
        value: impl Fn(&Sample) -> Option<u64>,
    ) -> Series {
        let points = samples
            .all
            .iter()
            .filter_map(|sample| Some((sample.at_ps as f64 / self.ps, value(sample)? as f64)));
        Series { name: name.into(), shade, points: points.collect() }
    }
}

/// The plots of a run on a machine.
pub(super) fn plots(name: &str, samples: &Samples, machine: Option<&MachineView>) -> Markup {
    let unit = Unit::of(samples);
    let lines = [
        Some(nodes(&unit, samples, machine)),
        free_pages(&unit, samples, machine),
        pageset(&unit, samples, machine),
        Some(queue(&unit, samples)),
    ];
    html! {
        h4 { (name) }
        div.plots { @for lines in lines.iter().flatten() { (charts::lines(lines)) } }
    }
}

fn node_name(machine: Option<&MachineView>, node: usize) -> String {
    let id = machine.and_then(|machine| machine.node_id(node)).unwrap_or(node as u32);
    format!("node {id}")
}

/// Pages of each node that are not free: with callers, or in pagesets.
fn nodes(unit: &Unit, samples: &Samples, machine: Option<&MachineView>) -> Lines {
    let of = |sample: &Sample, node: usize| {
        let zones = sample.zones.iter().filter(|zone| zone.node == node);
        zones.map(|zone| zone.managed - zone.free.min(zone.managed)).sum()
    };
    let mut nodes: Vec<usize> =
        samples.all.iter().flat_map(|sample| &sample.zones).map(|zone| zone.node).collect();
    nodes.sort_unstable();
    nodes.dedup();
    // A legend has room for few: of more it names some, evenly.
    let step = nodes.len().div_ceil(LEGEND);
    let series = nodes.iter().enumerate().map(|(at, &node)| {
        let part = at as f64 / (nodes.len() - 1).max(1) as f64;
        let name = if at % step == 0 { node_name(machine, node) } else { String::new() };
        unit.lines(samples, &name, Shade::Graded((part * 255.0) as u8), |sample| {
            Some(of(sample, node))
        })
    });
    Lines {
        title: "Pages in use or in pagesets, by node".into(),
        moments: unit.name,
        series: series.collect(),
    }
}

/// Names in the legend of a plot with a line a node.
const LEGEND: usize = 7;

/// Of the zone that was once the nearest to having nothing.
fn free_pages(unit: &Unit, samples: &Samples, machine: Option<&MachineView>) -> Option<Lines> {
    let part = |zone: &ZoneSample| zone.free as f64 / zone.managed.max(1) as f64;
    let least = |at: usize| {
        let zones = samples.all.iter().filter_map(|sample| sample.zones.get(at));
        zones.filter(|zone| zone.managed > 0).map(part).fold(f64::INFINITY, f64::min)
    };
    let count = samples.all.iter().map(|sample| sample.zones.len()).max()?;
    let at = (0..count).min_by(|&one, &other| least(one).total_cmp(&least(other)))?;
    let node = samples.all.iter().find_map(|sample| sample.zones.get(at))?.node;
    let zone = |sample: &Sample| sample.zones.get(at).copied();
    let mark = |mark: usize| move |sample: &Sample| Some(zone(sample)?.marks[mark]);
    let free = unit.lines(samples, "free", Shade::Model, |sample| Some(zone(sample)?.free));
    let series = vec![
        free,
        unit.lines(samples, "mark high", Shade::High, mark(2)),
        unit.lines(samples, "mark low", Shade::OtherModel, mark(1)),
        unit.lines(samples, "mark min", Shade::Low, mark(0)),
    ];
    let title = format!("Free pages of {}, the fullest", node_name(machine, node));
    Some(Lines { title, moments: unit.name, series })
}

/// Of those of one CPU, the one that once held most.
fn pageset(unit: &Unit, samples: &Samples, machine: Option<&MachineView>) -> Option<Lines> {
    let most = |at: usize| {
        let sets = samples.all.iter().filter_map(|sample| sample.pagesets.get(at));
        sets.map(|set| set.count).max()
    };
    let count = samples.all.iter().map(|sample| sample.pagesets.len()).max()?;
    // The first of several that hold as much.
    let at = (0..count).rev().max_by_key(|&at| most(at))?;
    let node = samples.all.iter().find_map(|sample| sample.zones.get(at))?.node;
    let set = |sample: &Sample| sample.pagesets.get(at).copied();
    let title = format!("Pageset of CPU {} for {}", samples.cpu?.0, node_name(machine, node));
    let series = vec![
        unit.lines(samples, "high", Shade::OtherModel, |sample| Some(set(sample)?.high)),
        unit.lines(samples, "count", Shade::Model, |sample| Some(set(sample)?.count)),
    ];
    Some(Lines { title, moments: unit.name, series })
}

fn queue(unit: &Unit, samples: &Samples) -> Lines {
    let waiting = unit.lines(samples, "CPUs that waited, at most", Shade::Model, |sample| {
        Some(sample.longest_queue)
    });
    Lines {
        title: "Longest queue at a lock, of a zone or a slab list".into(),
        moments: unit.name,
        series: vec![waiting],
    }
}
