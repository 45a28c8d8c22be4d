//! A report in words: a paragraph for each question.

use std::collections::HashMap;
use std::io::{self, Write};

use nearpage_explain::{
    Answer, Explanation, Figure, Judgement, Kind, Mark, NodeRow, Report, Rule, Verdict, ZoneVerdict,
};
use nearpage_machine::{idlist, shown};

/// Kinds of reports that are told apart and shown; those beyond are counted.
const KINDS_MOST: usize = 4096;
/// Zones that are shown one by one.
const ZONES_MOST: usize = 40;

/// What reports that are alike have in common.
type Alike = (Kind, String, Option<u8>, Option<u64>, Rule, Option<u32>, Option<String>);

/// What was shown so far.
#[derive(Debug, Default)]
pub(super) struct Log {
    reports: u64,
    /// The line of the first, how many more, the line of the last.
    alike: HashMap<Alike, (u64, u64, u64)>,
    /// How many reports of other kinds there are, and the line of the first.
    beyond: Option<(u64, u64)>,
}

impl Log {
    /// Shows a report, or counts it if one like it was shown.
    pub(super) fn add(
        &mut self,
        output: &mut impl Write,
        explanation: &Explanation,
    ) -> io::Result<()> {
        let Explanation { report, verdict, .. } = explanation;
        self.reports += 1;
        let key = (
            report.kind,
            report.process.clone(),
            report.order,
            report.mode.bits,
            verdict.rule,
            verdict.node,
            verdict.zone.clone(),
        );
        if let Some((_, more, last)) = self.alike.get_mut(&key) {
            (*more, *last) = (*more + 1, report.first_line);
            return Ok(());
        }
        if self.alike.len() == KINDS_MOST {
            self.beyond.get_or_insert((0, report.first_line)).0 += 1;
            return Ok(());
        }
        self.alike.insert(key, (report.first_line, 0, report.first_line));
        write_one(output, explanation)
    }

    pub(super) fn end(&self, output: &mut impl Write, lines: u64) -> io::Result<()> {
        let mut repeated: Vec<_> = self.alike.values().filter(|(_, more, _)| *more > 0).collect();
        repeated.sort();
        for (first, more, last) in repeated {
            writeln!(output, "as at line {first}: {more} more, the last at line {last}")?;
        }
        if let Some((count, first)) = self.beyond {
            writeln!(
                output,
                "{count} more of other kinds than the {KINDS_MOST} that are shown, the first at line {first}; --json has each"
            )?;
        }
        let noun = if self.reports == 1 { "report" } else { "reports" };
        writeln!(output, "{} {noun} in {lines} lines", self.reports)
    }
}

fn write_one(output: &mut impl Write, explanation: &Explanation) -> io::Result<()> {
    let Explanation { report, verdict, remedies, unknown } = explanation;
    writeln!(output, "{}", head(report))?;
    row(output, "asked", &asked(report, verdict))?;
    row(output, "refused", &refused(report, verdict))?;
    for (at, zone) in verdict.zones.iter().take(ZONES_MOST).enumerate() {
        let line = zone_line(zone, verdict.rule != Rule::AreaTooLarge);
        row(output, if at == 0 { "zones" } else { "" }, &line)?;
    }
    if let Some(more) = verdict.zones.len().checked_sub(ZONES_MOST).filter(|&more| more > 0) {
        row(output, "", &format!("and {more} more"))?;
    }
    for (at, line) in out_of_memory(report, verdict).iter().enumerate() {
        row(output, if at == 0 { "killed" } else { "" }, line)?;
    }
    for (at, remedy) in remedies.iter().enumerate() {
        let label = if at == 0 { "would help" } else { "" };
        row(
            output,
            label,
            &format!("{:<8} {}: {}", remedy.helps.name(), remedy.change.name(), remedy.text),
        )?;
    }
    for (at, text) in unknown.iter().enumerate() {
        row(output, if at == 0 { "not known" } else { "" }, text)?;
    }
    writeln!(output)
}

fn row(output: &mut impl Write, label: &str, text: &str) -> io::Result<()> {
    writeln!(output, "  {label:<11} {text}")
}

fn head(report: &Report) -> String {
    let mut text = format!("line {}", report.first_line);
    if let Some(time) = &report.time {
        text += &format!(" [{}]", shown(time));
    }
    text += &format!(": {}", report.kind.name());
    if !report.whose().is_empty() {
        text += &format!(" of {}", shown(report.whose()));
    }
    if let Some(pid) = report.pid {
        text += &format!(", process {pid}");
    }
    if let Some(cpu) = report.cpu {
        text += &format!(", CPU {cpu}");
    }
    if let Some(kernel) = &report.kernel {
        text += &format!(", Linux {}", shown(kernel));
    }
    text
}

fn asked(report: &Report, verdict: &Verdict) -> String {
    let mut text = match report.order {
        Some(0) => format!("order 0: one page of {} KiB", report.page_kib()),
        Some(order) if order < 32 => {
            format!("order {order}: {} KiB in a row", report.page_kib() << order)
        }
        Some(order) => format!("order {order}"),
        None => "no order".into(),
    };
    text += &format!(", {}", report.mode.gfp);
    for other in &report.mode.others {
        text += &format!("|{}", shown(other));
    }
    text += &format!("; zones up to {}; down to {}", verdict.highest_zone, verdict.rights);
    if let Some(nodes) = &report.nodemask {
        text += &format!("; policy: nodes {}", idlist::format(nodes));
    }
    if let Some(cpuset) = &report.cpuset {
        text += &format!("; cpuset {}", shown(cpuset));
        if let Some(nodes) = &report.mems_allowed {
            text += &format!(": nodes {}", idlist::format(nodes));
        }
    }
    if let Some(ms) = report.stalled_ms {
        text += &format!("; had waited for {ms} ms");
    }
    if let Some(failed) = &report.failed {
        text += &format!("; \"{}\"", shown(failed));
    }
    if let Some(slub) = report.slub.as_ref().filter(|slub| !slub.cache.is_empty()) {
        text += &format!("; for the cache {}", shown(&slub.cache));
        if let Some((order, least)) = slub.orders {
            text += &format!(" with slabs of order {order}, at least {least}");
        }
    }
    text
}

fn refused(report: &Report, verdict: &Verdict) -> String {
    let mut text = String::from(verdict.rule.name());
    if let (Some(node), Some(zone)) = (verdict.node, &verdict.zone) {
        text += &format!(" in {zone} of node {node}");
        let judged =
            verdict.zones.iter().find(|judged| judged.node == node && judged.zone == *zone);
        text += &judged.map(|zone| because(zone, verdict.mark)).unwrap_or_default();
    }
    if verdict.rule == Rule::AreaTooLarge {
        text += ": before any zone was asked";
    }
    if let Some(memcg) = report.memcg.as_ref().filter(|_| verdict.rule == Rule::Memcg) {
        let path = memcg.path.as_deref().unwrap_or("a group");
        text += &format!(
            ": {} used {} of its limit of {}; no zone was short",
            shown(path),
            kib(memcg.usage),
            kib(memcg.limit)
        );
    }
    if let Some(confinement) = &verdict.confined_by {
        text += &format!("; confined by {}", confinement.by.name());
        match &confinement.elsewhere {
            Some((node, zone)) => text += &format!(": {zone} of node {node} would have given"),
            None if confinement.hidden_pages > 0 => {
                text += &format!(
                    ": {} pages of other nodes or zones are not shown",
                    confinement.hidden_pages
                );
            }
            None => {}
        }
    }
    text
}

fn because(zone: &ZoneVerdict, mark: Mark) -> String {
    let Judgement { rule, answer, depends_on, free, needed, .. } = zone.at(mark);
    let mut text = format!(", {}: {free} pages free, {needed} needed", proof(*answer, depends_on));
    text += &match rule {
        Rule::LowmemReserve => {
            format!(", {} of them its reserve for lower addresses", zone.reserve)
        }
        Rule::HighatomicReserve => ", with what is reserved for urgent requests".into(),
        Rule::NoBlock => ", but no block that is large enough and of a type for it".into(),
        Rule::OrderTooLarge => "; no list has blocks of that order".into(),
        Rule::Passes => ": it would give now".into(),
        _ => String::new(),
    };
    if mark == Mark::High {
        text += &format!(
            "; against min it is {}, but the last try before a kill asks for high",
            proof(zone.at_min.answer, &zone.at_min.depends_on)
        );
    } else if *answer == Answer::Open && zone.at_high.is_some() {
        text += "; so is the last try before a kill, which asks for high";
    }
    text
}

/// How sure an answer is.
fn proof(answer: Answer, depends_on: &[&str]) -> String {
    match answer {
        Answer::Refused | Answer::Passes => format!("{}, proven", answer.name()),
        Answer::Open if depends_on.is_empty() => "open".into(),
        Answer::Open => format!("open: depends on {}", depends_on.join(", ")),
    }
}

fn zone_line(zone: &ZoneVerdict, is_asked: bool) -> String {
    let Judgement { rule, answer, depends_on, free, needed, mark } = &zone.at_min;
    let verdict = match (zone.excluded, answer) {
        _ if !is_asked => "not asked".into(),
        (Some(by), _) => format!("not asked ({})", by.name()),
        (None, Answer::Open) => proof(*answer, depends_on),
        // Several rules may refuse at once.
        (None, Answer::Refused) if *rule == Rule::Unknown => "refused".into(),
        (None, _) => rule.name().into(),
    };
    let gives = match zone.gives_order {
        Some(order) => format!("gives up to order {order}"),
        None if *answer == Answer::Open => "what it gives is open".into(),
        None => "gives nothing".into(),
    };
    let damaged = if zone.is_damaged { "; its row breaks off" } else { "" };
    format!(
        "node {} {:<8} {verdict:<22} free {free}, needed {needed} (min {mark}, reserve {}); {gives}{damaged}",
        zone.node, zone.zone, zone.reserve
    )
}

/// A size, which a report may not have.
fn kib(kib: impl Into<Figure>) -> String {
    match kib.into() {
        Figure::UNKNOWN => "an unknown number of KiB".into(),
        kib => format!("{kib} KiB"),
    }
}

/// The same within a list of sizes.
fn number(kib: impl Into<Figure>) -> String {
    kib.into().to_string()
}

/// What each node had, where there are more than one.
fn by_node(report: &Report) -> Vec<String> {
    if report.nodes.len() < 2 {
        return Vec::new();
    }
    let line = |node: &NodeRow| {
        let gave_up = if node.all_unreclaimable { "; reclaim had given up there" } else { "" };
        let NodeRow { node, anon, file, unevictable, .. } = node;
        let (anon, file, unevictable) = (kib(*anon), number(*file), number(*unevictable));
        format!("  node {node}: {anon} anonymous, {file} of files, {unevictable} locked{gave_up}")
    };
    let mut lines: Vec<String> = report.nodes.iter().take(ZONES_MOST).map(line).collect();
    if let Some(more) = report.nodes.len().checked_sub(ZONES_MOST).filter(|&more| more > 0) {
        lines.push(format!("  and {more} more"));
    }
    lines
}

fn out_of_memory(report: &Report, verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(victim) = &report.victim {
        lines.push(format!(
            "{} (process {}): {} anonymous, {} of files, {} shared, {} of page tables",
            shown(&victim.name),
            victim.pid,
            kib(victim.anon),
            number(victim.file),
            number(victim.shmem),
            number(victim.pgtables)
        ));
    } else if report.kind == Kind::Oom {
        lines.push("nobody, as far as the log goes".into());
    }
    if let Some(held) = &verdict.no_progress {
        let swap = match report.swap_free {
            Some(kib) => format!("with {kib} KiB of swap free"),
            None => "(what swap was free is not there)".into(),
        };
        lines.push(format!(
            "no progress: {} anonymous {swap}; to be freed were {} of files and {} of slab",
            kib(held.anon),
            kib(held.file),
            kib(held.slab_reclaimable)
        ));
        lines.extend(by_node(report));
        lines.push(format!(
            "held: {} of slab, {} locked, {} that no counter of the report explains",
            kib(held.slab_unreclaimable),
            kib(held.unevictable),
            kib(held.unexplained)
        ));
    }
    if let Some(task) = report.tasks.first() {
        let kib = task.rss_pages.saturating_mul(report.page_kib());
        lines.push(format!(
            "largest of {} tasks: {} (process {}), {kib} KiB resident",
            report.tasks_listed,
            shown(&task.name),
            task.pid
        ));
    }
    lines
}
