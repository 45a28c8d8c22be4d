//! An explanation in words: what text and page say, line by line.

use crate::Explanation;
use crate::figure::Figure;
use crate::held::NoProgress;
use crate::judge::{Answer, Judgement, Rule, ZoneVerdict};
use crate::report::{Kind, NodeRow, Report};
use crate::verdict::Verdict;
use crate::zones::{Mark, PAGES_MOST};
use nearpage::Gfp;
use nearpage_machine::{idlist, shown, size};

/// Zones, nodes and tasks that are shown one by one.
const ROWS_MOST: usize = 40;

/// Lines about one question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Paragraph {
    /// What they are about: `why`, `asked`, `verdict`, `zones`, `killed`, `advice`, `beside`, `not known`.
    pub label: &'static str,
    /// The lines; names in them command no terminal.
    pub lines: Vec<String>,
}

impl Explanation {
    /// The line that names the report.
    pub fn head(&self) -> String {
        head(&self.report)
    }

    /// What there is to say about the report: causes first.
    pub fn paragraphs(&self) -> Vec<Paragraph> {
        paragraphs(self)
    }
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

fn paragraphs(explanation: &Explanation) -> Vec<Paragraph> {
    let Explanation { report, verdict, causes, remedies, unknown, beside } = explanation;
    let advice = remedies.iter().map(|remedy| {
        let (effect, change) = (remedy.effect.words(), remedy.change.name());
        format!("{effect:<14} {change}: {}", shown(&remedy.text))
    });
    let all = [
        ("why", causes.iter().map(|cause| shown(&cause.text).to_string()).collect()),
        ("asked", vec![asked(report, verdict)]),
        ("verdict", vec![decided(report, verdict)]),
        ("zones", zones(report, verdict)),
        ("killed", killed(report, verdict)),
        ("advice", advice.collect()),
        ("beside", beside.iter().map(|text| shown(text).to_string()).collect()),
        ("not known", unknown.iter().map(|text| shown(text).to_string()).collect()),
    ];
    let all = all.into_iter().filter(|(_, lines): &(_, Vec<String>)| !lines.is_empty());
    all.map(|(label, lines)| Paragraph { label, lines }).collect()
}

/// KiB in the unit that people read; a report may not have them.
fn kib(kib: impl Into<Figure>) -> String {
    let kib = kib.into();
    let bytes = |kib: u64| size::format(kib.saturating_mul(1024));
    match (kib.least(), kib.most()) {
        (0, 0) => "0".into(),
        (0, u64::MAX) => "an unknown amount".into(),
        (least, u64::MAX) => format!("at least {}", bytes(least)),
        (least, most) if least == most => bytes(least),
        (0, most) => format!("at most {}", bytes(most)),
        (least, most) => format!("{} to {}", bytes(least), bytes(most)),
    }
}

/// Pages as a size, with their number in brackets.
fn pages(report: &Report, pages: Figure) -> String {
    // More than any machine has are no bound.
    let is_bound = pages.most() < PAGES_MOST;
    let pages = if is_bound { pages } else { Figure::between(pages.least(), u64::MAX) };
    let page = report.page_kib();
    let scaled = |pages: u64| pages.saturating_mul(page);
    let figure = match pages.most() {
        u64::MAX => Figure::between(scaled(pages.least()), u64::MAX),
        most => Figure::between(scaled(pages.least()), scaled(most)),
    };
    match pages.known() {
        Some(0) => "0".into(),
        Some(pages) => format!("{} ({pages})", kib(figure)),
        None if pages == Figure::UNKNOWN => kib(figure),
        None => format!("{} ({pages})", kib(figure)),
    }
}

fn asked(report: &Report, verdict: &Verdict) -> String {
    let block = |order: u8| kib(Some(report.page_kib() << order));
    let mut text = match report.order {
        Some(0) => format!("order 0: one page of {}", block(0)),
        Some(order) if order < 32 => match report.length {
            Some(length) => format!(
                "order {order}: {} in a row for a mapping of {}, without an MMU",
                block(order),
                kib(Some(length.div_ceil(1024)))
            ),
            None => format!("order {order}: {} in a row", block(order)),
        },
        Some(order) => format!("order {order}"),
        None => "no order".into(),
    };
    if report.mode.is_cut && report.mode.gfp == Gfp::NONE {
        text += ", its flags are cut";
    } else if !report.lacks_head {
        let gfp = report.mode.gfp.to_string();
        text += ", ";
        text += &match report.mode.lacks_atomic {
            true => gfp.replace("GFP_ATOMIC", "GFP_NOWAIT|__GFP_HIGH"),
            false => gfp,
        };
        for other in &report.mode.others {
            text += &format!("|{}", shown(other));
        }
        text += &format!("; zones up to {}; down to {}", verdict.highest_zone, verdict.rights);
    }
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

fn decided(report: &Report, verdict: &Verdict) -> String {
    let mut text = String::from(verdict.rule.name());
    if let (Some(node), Some(zone)) = (verdict.node, &verdict.zone) {
        text += &format!(" in {zone} of node {node}");
        text +=
            &verdict.of_row().map(|zone| because(report, zone, verdict.mark)).unwrap_or_default();
    } else {
        text += &format!(", {}", proof(verdict.answer, &verdict.depends_on));
    }
    match verdict.rule {
        Rule::Memcg => text += ": no zone was short",
        Rule::NoRequest => return "no_request: nothing is known to have been refused".into(),
        rule if rule.is_of_area() => text += ": before any zone was asked",
        _ => {}
    }
    if let Some(confinement) = &verdict.confined_by {
        text += &format!("; confined by {}", confinement.by.name());
        match &confinement.elsewhere {
            Some((node, zone)) => text += &format!(": {zone} of node {node} would have given"),
            None if confinement.hidden_pages > 0 => {
                let hidden = pages(report, Figure::exact(confinement.hidden_pages));
                text += &format!(": {hidden} of other nodes or zones are not shown");
            }
            None => {}
        }
    }
    text
}

fn because(report: &Report, zone: &ZoneVerdict, mark: Mark) -> String {
    let Judgement { rule, answer, depends_on, free, needed, .. } = zone.at(mark);
    let (free, needed) = (pages(report, *free), pages(report, *needed));
    let mut text = format!(", {}: {free} free, {needed} needed", proof(*answer, depends_on));
    text += &match rule {
        Rule::LowmemReserve => {
            let reserve = pages(report, zone.reserve);
            format!(", {reserve} of them its reserve against requests for higher zones")
        }
        Rule::HighatomicReserve => ", with what is reserved for urgent requests".into(),
        Rule::NoBlock => ", but not in blocks that are large enough and of a type for it".into(),
        Rule::OrderTooLarge => "; no list has blocks of that order".into(),
        Rule::Passes => "; by these figures it would pass: memory came back before they were printed, or another rule refused".into(),
        _ => String::new(),
    };
    if mark == Mark::High {
        text += &format!(
            "; against min it {}{}, but the last try before a kill asks for high",
            if zone.at_min.answer == Answer::Passes { "" } else { "is " },
            proof(zone.at_min.answer, &zone.at_min.depends_on)
        );
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

fn zones(report: &Report, verdict: &Verdict) -> Vec<String> {
    let is_asked =
        !verdict.rule.is_of_area() && !matches!(verdict.rule, Rule::Memcg | Rule::NoRequest);
    let line = |zone| zone_line(report, zone, is_asked);
    let mut lines: Vec<String> = verdict.zones.iter().take(ROWS_MOST).map(line).collect();
    lines.extend(more(verdict.zones.len()));
    lines
}

fn more(rows: usize) -> Option<String> {
    let more = rows.checked_sub(ROWS_MOST).filter(|&more| more > 0)?;
    Some(format!("and {more} more"))
}

fn zone_line(report: &Report, zone: &ZoneVerdict, is_asked: bool) -> String {
    let Judgement { rule, answer, depends_on, free, needed, mark } = &zone.at_min;
    let says = match (zone.excluded, answer) {
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
    let size = |figure: &Figure| pages(report, *figure);
    format!(
        "node {} {:<8} {says:<22} free {}, needed {} (min {}, reserve {}); {gives}{damaged}",
        zone.node,
        zone.zone,
        size(free),
        size(needed),
        size(mark),
        size(&zone.reserve)
    )
}

fn killed(report: &Report, verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(victim) = &report.victim {
        lines.push(format!(
            "{} (process {}): {} anonymous, {} of files, {} shared, {} of page tables",
            shown(&victim.name),
            victim.pid,
            kib(victim.anon),
            kib(victim.file),
            kib(victim.shmem),
            kib(victim.pgtables)
        ));
        if report.also_ended > 0 {
            lines.push(format!("and {} others of its group", report.also_ended));
        }
    } else if let Some(words) = &report.panic {
        lines.push(format!("nobody: the kernel ended itself: \"{}\"", shown(words)));
    } else if let Some((pid, name)) = &report.reaped {
        let name = shown(name);
        lines.push(format!("{name} (process {pid}), as the reaper that took its memory says"));
    } else if let Some((pid, name)) = &report.chosen {
        let name = shown(name);
        lines.push(format!("{name} (process {pid}) was chosen: that or a child of it was ended"));
    } else if report.kind == Kind::Oom {
        lines.push("nobody, as far as the log goes".into());
    }
    let is_told = |held: &&NoProgress| held.anon.least() > 0 || held.file.least() > 0;
    if let Some(held) = verdict.no_progress.as_ref().filter(is_told) {
        let swap = match report.swap_free {
            Some(free) => format!("with {} of swap free", kib(Some(free))),
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
            "held: {} of slab, {} unevictable, {} of page tables, {} that no counter of the report explains",
            kib(held.slab_unreclaimable),
            kib(held.unevictable),
            kib(held.page_tables),
            kib(held.unexplained)
        ));
    }
    lines
}

/// What each node had, where there are more than one.
fn by_node(report: &Report) -> Vec<String> {
    if report.nodes.len() < 2 {
        return Vec::new();
    }
    let line = |node: &NodeRow| {
        let gave_up = if node.all_unreclaimable { "; reclaim had given up there" } else { "" };
        let NodeRow { node, anon, file, unevictable, .. } = node;
        let (anon, file, unevictable) = (kib(*anon), kib(*file), kib(*unevictable));
        format!(
            "  node {node}: {anon} anonymous, {file} of files, {unevictable} unevictable{gave_up}"
        )
    };
    let mut lines: Vec<String> = report.nodes.iter().take(ROWS_MOST).map(line).collect();
    lines.extend(more(report.nodes.len()).map(|more| format!("  {more}")));
    lines
}
