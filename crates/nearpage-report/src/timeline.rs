//! How a load went over its time, zone by zone: what was recorded, and some runs, in one plot each.

use std::cmp::Reverse;

use maud::{Markup, html};
use nearpage_replay::{Timeline, TimelineRun, ZoneLine, ZonePoint};

use super::charts::{self, Lines, Series, Shade};

/// Pagesets of a zone that are drawn: those that held most.
const PAGESETS_MOST: usize = 4;
const SECONDS: &str = "seconds";

/// The plots of each zone, those with most holds first. With scripts one zone is shown at a time.
pub(super) fn plots(timeline: &Timeline) -> Markup {
    html! {
        div.timeline {
            @for zone in zones(timeline) {
                div.place data-place=(zone) {
                    h3 { (zone) }
                    div.plots {
                        @for lines in of_zone(timeline, zone) { (charts::lines(&lines)) }
                    }
                }
            }
        }
    }
}

/// Zones in which something moved.
fn zones(timeline: &Timeline) -> Vec<&str> {
    let mut all: Vec<(u64, &str)> = Vec::new();
    for line in timeline.runs.iter().flat_map(|run| &run.zones) {
        let holds = line.points.iter().filter_map(|point| point.holds).max().unwrap_or(0);
        match all.iter_mut().find(|(_, zone)| *zone == line.zone) {
            Some((most, _)) => *most = holds.max(*most),
            None => all.push((holds, &line.zone)),
        }
    }
    all.sort_by_key(|(holds, _)| Reverse(*holds));
    let least = usize::from(all.first().is_some_and(|(holds, _)| *holds == 0));
    all.into_iter()
        .enumerate()
        .filter(|(at, (holds, _))| *holds > 0 || *at < least)
        .map(|(_, (_, zone))| zone)
        .collect()
}

/// A run with its line of a zone.
type OfZone<'a> = (&'a TimelineRun, &'a ZoneLine, Shade);

fn of_zone(timeline: &Timeline, zone: &str) -> Vec<Lines> {
    let last = timeline.runs.len().saturating_sub(2).max(1);
    let lines = timeline.runs.iter().enumerate().filter_map(|(at, run)| {
        let shade = match (run.name.as_str(), at) {
            ("recorded", _) => Shade::Given,
            (name, _) if name.starts_with("now") => Shade::Model,
            (_, at) => Shade::Graded((at * 255 / (last + 1)).min(255) as u8),
        };
        Some((run, run.zones.iter().find(|line| line.zone == zone)?, shade))
    });
    let lines: Vec<OfZone<'_>> = lines.collect();
    let mut all = vec![free(&lines), kept(&lines), holds(&lines)];
    all.extend(pagesets(&lines).into_iter().map(|cpu| pageset(&lines, cpu)));
    all
}

/// A line of each run, in mebibytes.
fn each<'a>(
    lines: &[OfZone<'a>],
    what: &str,
    value: impl Fn(&ZonePoint) -> Option<u64> + 'a,
) -> Vec<Series> {
    let series = |(run, line, shade): &OfZone<'_>| {
        let points = line
            .points
            .iter()
            .filter_map(|point| Some((point.seconds, mebibytes(value(point)?, run.page_shift))));
        let name = format!("{what} {}", run.name).trim_start().to_owned();
        Series { name, shade: *shade, points: points.collect() }
    };
    lines.iter().map(series).filter(|series| !series.points.is_empty()).collect()
}

fn mebibytes(pages: u64, page_shift: u32) -> f64 {
    (pages << page_shift) as f64 / f64::from(1 << 20)
}

fn free(lines: &[OfZone<'_>]) -> Lines {
    let mut series = each(lines, "", |point| point.free);
    let mut known: Vec<[u64; 3]> = Vec::new();
    for (run, line, _) in lines {
        if known.contains(&line.marks) {
            continue;
        }
        known.push(line.marks);
        let of = if known.len() > 1 { format!(", {}", run.name) } else { String::new() };
        let shades = [Shade::Low, Shade::OtherModel, Shade::High];
        for ((name, shade), pages) in ["min", "low", "high"].into_iter().zip(shades).zip(line.marks)
        {
            let value = mebibytes(pages, run.page_shift);
            let points = ends(lines).map(|seconds| (seconds, value)).to_vec();
            series.push(Series { name: format!("mark {name}{of}"), shade, points });
        }
    }
    Lines { title: "Free memory, MiB".into(), moments: SECONDS, series }
}

/// The first and the last moment.
fn ends(lines: &[OfZone<'_>]) -> [f64; 2] {
    let moments = lines.iter().flat_map(|(_, line, _)| &line.points).map(|point| point.seconds);
    let fold = |[first, last]: [f64; 2], moment: f64| [first.min(moment), last.max(moment)];
    moments.fold([0.0, 0.0], fold)
}

fn kept(lines: &[OfZone<'_>]) -> Lines {
    let sum = |point: &ZonePoint| Some(point.pagesets.iter().map(|(_, pages, _)| pages).sum());
    Lines {
        title: "Kept in pagesets of all CPUs, MiB".into(),
        moments: SECONDS,
        series: each(lines, "", sum),
    }
}

fn holds(lines: &[OfZone<'_>]) -> Lines {
    let series = |(run, line, shade): &OfZone<'_>| {
        let points = line.points.iter();
        let points = points.filter_map(|point| Some((point.seconds, point.holds? as f64)));
        Series { name: run.name.clone(), shade: *shade, points: points.collect() }
    };
    let series = lines.iter().map(series).filter(|series| !series.points.is_empty()).collect();
    Lines { title: "Holds of the zone's lock until then".into(), moments: SECONDS, series }
}

/// The CPUs whose pagesets once held most.
fn pagesets(lines: &[OfZone<'_>]) -> Vec<u32> {
    let mut most: Vec<(u64, u32)> = Vec::new();
    let points = lines.iter().flat_map(|(_, line, _)| &line.points);
    for &(cpu, pages, _) in points.flat_map(|point| &point.pagesets) {
        match most.iter_mut().find(|(_, known)| *known == cpu) {
            Some((known, _)) => *known = pages.max(*known),
            None => most.push((pages, cpu)),
        }
    }
    most.sort_by_key(|&(pages, cpu)| (Reverse(pages), cpu));
    most.into_iter().take(PAGESETS_MOST).map(|(_, cpu)| cpu).collect()
}

fn pageset(lines: &[OfZone<'_>], cpu: u32) -> Lines {
    let find = move |point: &ZonePoint| point.pagesets.iter().copied().find(|(of, ..)| *of == cpu);
    let mut series = each(lines, "held,", move |point| find(point).map(|(_, pages, _)| pages));
    let highs = each(lines, "high,", move |point| find(point).map(|(.., high)| high));
    series.extend(highs.into_iter().map(|line| match line.shade {
        Shade::Given => Series { shade: Shade::OtherGiven, ..line },
        Shade::Model => Series { shade: Shade::OtherModel, ..line },
        _ => line,
    }));
    Lines { title: format!("Pageset of CPU {cpu}, MiB"), moments: SECONDS, series }
}

#[cfg(test)]
mod tests {
    use nearpage_machine::work::Unwatched;
    use nearpage_replay::{Replay, Study, Wish};

    use super::*;

    #[test]
    fn a_zone_has_what_was_recorded_now_and_then_in_one_plot() {
        let tunables = vec!["pcp.batch_scale_max=0".parse().unwrap()];
        let wish = Wish { tunables, ..Wish::default() };
        let study = Study { wish, moments: 50, ..Study::default() };
        let answer = Replay::shipped().study(&study, &Unwatched).unwrap();
        let timeline = &answer.timeline;
        let [zone, ..] = zones(timeline)[..] else { panic!("something moved") };
        let all = of_zone(timeline, zone);
        let free = all.iter().find(|lines| lines.title.starts_with("Free memory")).unwrap();
        let names: Vec<&str> = free.series.iter().map(|line| &*line.name).collect();
        let (then, now) = (format!("then: {}", answer.model), format!("now: {}", answer.model));
        assert_eq!(names, ["recorded", &now, &then, "mark min", "mark low", "mark high"]);
        assert_eq!(free.series[1].points.len(), 50);
        // The last moment is the end: all holds of all zones are those of the totals.
        let run = &timeline.runs[2];
        let holds = run.zones.iter().map(|zone| zone.points.last().unwrap().holds.unwrap());
        assert_eq!(Some(holds.sum::<u64>()), answer.then[0].totals.lock_acquisitions);
        let page = plots(timeline).into_string();
        assert_eq!(page.matches("class=\"place\"").count(), zones(timeline).len());
    }
}
