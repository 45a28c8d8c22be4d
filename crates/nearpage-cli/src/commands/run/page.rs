//! The report as a page: plots over time, and tables.

use nearpage::Reason;
use nearpage_report::run::{RunPage, RunTable};
use nearpage_report::{Lines, Origin, Series, Shade};

use super::child::{Ended, Look};
use super::report::{Process, Report, Sample, mib, samples};

/// Processes that have lines in plots, and rows in tables.
const PROCESSES_MOST: usize = 40;

/// The page, as HTML.
pub(super) fn page(report: &Report, ended: &Ended) -> String {
    let mut page =
        RunPage::new(&format!("{}: exit code {}", report.command.join(" "), report.exit_code));
    page.add_sentence(format!(
        "{:.3} s, {:.3} s of CPU time, {}, {} minor faults, {} processes that counted.",
        report.wall_s,
        report.cpu_s,
        report.peak_text(),
        report.faults,
        report.processes.len()
    ));
    if let Some(why) = &report.uncounted {
        page.add_sentence(format!("No calls were counted: {why}."));
    }
    let mut of_most = samples(ended);
    if let Some(most) = report.busiest() {
        of_most.retain(|sample| sample.sample == most.pid);
    }
    plots(&mut page, ended, &of_most);
    tables(&mut page, report);
    page.finish(&Origin::new(std::env::args_os(), "none: a program ran".into()))
}

fn series(name: impl Into<String>, shade: Shade, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.into(), shade, points }
}

/// The shade of one of some nodes.
fn shade(at: usize, of: usize) -> Shade {
    Shade::Graded((at * 255 / of.saturating_sub(1).max(1)).min(255) as u8)
}

fn plots(page: &mut RunPage, ended: &Ended, samples: &[Sample]) {
    let plot = |title: &str, series| Lines { title: title.into(), moments: "s", series };
    let looked = |value: &dyn Fn(&Look) -> f64| -> Vec<(f64, f64)> {
        ended.looks.iter().map(|look| (look.at_s, value(look))).collect()
    };
    let at = |sample: &Sample| sample.ms.saturating_sub(ended.begun_ms) as f64 / 1000.0;
    let sampled = |value: &dyn Fn(&Sample) -> f64| -> Vec<(f64, f64)> {
        samples.iter().map(|sample| (at(sample), value(sample))).collect()
    };
    page.add_plot(plot(
        "Memory of the program, MiB",
        vec![
            series("resident", Shade::Given, looked(&|look| look.resident_kib as f64 / 1024.0)),
            series("held", Shade::OtherModel, sampled(&|sample| mib(sample.held))),
            series("in use", Shade::Model, sampled(&|sample| mib(sample.in_use))),
        ],
    ));
    let nodes: std::collections::BTreeSet<u32> =
        ended.looks.iter().flat_map(|look| look.pages_by_node.keys().copied()).collect();
    let pages_of = |node: u32| {
        looked(&|look| look.pages_by_node.get(&node).copied().unwrap_or_default() as f64)
    };
    let by_node = nodes
        .iter()
        .enumerate()
        .map(|(at, node)| series(format!("node {node}"), shade(at, nodes.len()), pages_of(*node)));
    page.add_plot(plot("Pages by node, as the kernel has them", by_node.collect()));
    let count = samples.iter().map(|sample| sample.nodes.len()).max().unwrap_or_default();
    let held_by =
        |node: usize| sampled(&|sample| mib(sample.nodes.get(node).copied().unwrap_or_default()));
    let used = (0..count).filter(|node| {
        samples.iter().any(|sample| sample.nodes.get(*node).is_some_and(|bytes| *bytes > 0))
    });
    let spans: Vec<_> = used
        .map(|node| series(format!("node {node}"), shade(node, count), held_by(node)))
        .collect();
    page.add_plot(plot("Spans by nearpage's node, MiB", spans));
    page.add_plot(plot(
        "Allocations a second",
        vec![series("allocations", Shade::Model, rates(samples, &at, |sample| sample.allocations))],
    ));
    page.add_plot(plot(
        "Minor faults a second",
        vec![series("faults", Shade::OtherModel, rates(samples, &at, |sample| sample.faults))],
    ));
    page.add_plot(plot(
        "Huge pages, MiB",
        vec![series("huge", Shade::High, looked(&|look| look.huge_kib as f64 / 1024.0))],
    ));
}

/// How fast a count grew between two samples.
fn rates(
    samples: &[Sample],
    at: &dyn Fn(&Sample) -> f64,
    of: fn(&Sample) -> u64,
) -> Vec<(f64, f64)> {
    let pairs = samples.windows(2).filter(|pair| pair[1].ms > pair[0].ms);
    pairs
        .map(|pair| {
            let seconds = (pair[1].ms - pair[0].ms) as f64 / 1000.0;
            (at(&pair[1]), of(&pair[1]).saturating_sub(of(&pair[0])) as f64 / seconds)
        })
        .collect()
}

fn texts<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

fn tables(page: &mut RunPage, report: &Report) {
    page.add_table(processes(&report.processes));
    let Some(most) = report.busiest() else { return };
    let of = format!("{} ({})", most.program, most.pid);
    page.add_table(waste(most, &of));
    page.add_table(classes(most, &of));
    page.add_table(nodes(report, most, &of));
    page.add_table(reasons(most, &of));
    let cpus = most.by_cpu.iter().enumerate().filter(|(_, calls)| **calls > 0);
    page.add_table(RunTable {
        title: format!("Objects and blocks by CPU, {of}"),
        note: "Counted when a thread's list is refilled, on the CPU that the thread ran on.".into(),
        header: texts(["CPU", "objects"]),
        rows: cpus.map(|(cpu, calls)| vec![cpu.to_string(), calls.to_string()]).collect(),
    });
}

fn processes(all: &[Process]) -> RunTable {
    let row = |process: &Process| {
        let calls = match process.allocations {
            0 => "called no malloc".into(),
            calls => calls.to_string(),
        };
        let kind = if process.forked { "fork" } else { "program" };
        vec![
            process.command.clone(),
            process.pid.to_string(),
            process.parent.to_string(),
            kind.to_owned(),
            calls,
            format!("{:.1}", mib(process.bytes_in_use)),
            format!("{:.1}", mib(process.bytes_held)),
            process.peak_rss_kib.map_or("-".into(), |peak| format!("{:.1}", mib(peak * 1024))),
            process.minor_faults.to_string(),
            process.heaps.to_string(),
            process.freed_elsewhere.to_string(),
            process.freed_on_other_node.to_string(),
            process.lock_waits.to_string(),
            format!("{:.3}", process.lock_wait_ns as f64 / 1e6),
        ]
    };
    RunTable {
        title: "Processes".into(),
        note: format!(
            "Each wrote this when it ended; {} of {}. A fork counts its allocations since the fork.",
            all.len().min(PROCESSES_MOST),
            all.len()
        ),
        header: texts([
            "command",
            "process",
            "parent",
            "kind",
            "allocations",
            "in use MiB",
            "held MiB",
            "peak resident MiB",
            "minor faults",
            "heaps",
            "freed by other threads",
            "on other nodes",
            "lock waits",
            "waited ms",
        ]),
        rows: all.iter().take(PROCESSES_MOST).map(row).collect(),
    }
}

/// Peak memory, in parts.
fn waste(process: &Process, of: &str) -> RunTable {
    let small: u64 = process.classes.iter().map(|class| class.in_use * class.size).sum();
    let spans: u64 = process.classes.iter().map(|class| class.span_bytes).sum();
    let large = process.bytes_held.saturating_sub(spans + process.boot_bytes);
    let peak = process.peak_rss_kib.map(|peak| peak * 1024);
    let row = |what: &str, bytes: u64| vec![what.to_owned(), format!("{:.2}", mib(bytes))];
    let mut rows = vec![
        row("small objects in use", small),
        row("caching: spans, less objects in use", spans.saturating_sub(small)),
        row("large blocks and mappings", large),
        row("what the malloc stands on", process.boot_bytes),
    ];
    if let Some(peak) = peak {
        rows.push(row("peak resident", peak));
        rows.push(row("peak, less what is held", peak.saturating_sub(process.bytes_held)));
    }
    RunTable {
        title: format!("Where the memory is, {of}, when it ended"),
        note: "Caching: free objects in spans and on lists of threads. What the peak has more is memory that was given back, \
               code, stacks, and files."
            .into(),
        header: texts(["what", "MiB"]),
        rows,
    }
}

fn classes(process: &Process, of: &str) -> RunTable {
    let row = |class: &super::report::Class| {
        let used = class.in_use * class.size;
        let waste = 100.0 * (1.0 - used as f64 / class.span_bytes.max(1) as f64);
        vec![
            class.size.to_string(),
            class.allocated.to_string(),
            class.in_use.to_string(),
            class.spans.to_string(),
            format!("{:.2}", mib(class.span_bytes)),
            format!("{waste:.1}"),
        ]
    };
    let mut rows: Vec<_> = process.classes.iter().map(row).collect();
    for (name, count, bytes) in [
        ("large", process.large, process.large_bytes),
        ("mapped", process.mapped, process.mapped_bytes),
    ] {
        let dash = || "-".to_owned();
        rows.push(vec![
            name.into(),
            count.to_string(),
            dash(),
            dash(),
            format!("{:.2}", mib(bytes)),
            dash(),
        ]);
    }
    RunTable {
        title: format!("Calls by size, {of}"),
        note: "Of large blocks and mappings: the bytes that were asked for, in all.".into(),
        header: texts(["bytes", "allocations", "in use", "spans", "MiB", "waste %"]),
        rows,
    }
}

fn nodes(report: &Report, process: &Process, of: &str) -> RunTable {
    let count =
        process.bytes_by_node.iter().rposition(|bytes| *bytes > 0).map_or(0, |last| last + 1);
    let kernel = |node: usize| match report.pages_by_node.get(&(node as u32)) {
        Some(pages) => pages.to_string(),
        None => "-".into(),
    };
    let row = |node: usize| {
        let bytes = process.bytes_by_node[node];
        vec![node.to_string(), (bytes / 4096).to_string(), kernel(node)]
    };
    RunTable {
        title: format!("Pages by node, {of}"),
        note: format!(
            "Spans and blocks by nearpage's node, and all pages of the program by the kernel's. {} pages of spans lie on another \
             node than the threads that own them.",
            process.wrong_node_bytes / 4096
        ),
        header: texts(["node", "pages of spans and blocks", "pages in numa_maps"]),
        rows: (0..count).map(row).collect(),
    }
}

fn reasons(process: &Process, of: &str) -> RunTable {
    let found = Reason::ALL.iter().zip(&process.elsewhere).filter(|(_, pages)| **pages > 0);
    RunTable {
        title: format!("Pages from another node than the nearest, {of}"),
        note: String::new(),
        header: texts(["reason", "pages"]),
        rows: found.map(|(reason, pages)| vec![reason.name().into(), pages.to_string()]).collect(),
    }
}
