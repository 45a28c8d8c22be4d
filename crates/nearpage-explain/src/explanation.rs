//! A report with what follows from it.

use serde::Serialize;

use nearpage::Gfp;

use crate::beside::Beside;
use crate::cause::Cause;
use crate::figure::Figure;
use crate::held::no_progress;
use crate::judge::Rule;
use crate::remedy::{self, Remedy};
use crate::report::{Kind, Report, Unreadable};
use crate::verdict::{self, Verdict};
use crate::why;
use crate::zones::{Zones, hidden_pages};

/// A report, the rule that refused, what would have helped, and what cannot be known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Explanation {
    /// What the kernel printed.
    pub report: Report,
    /// Why the request was refused.
    pub verdict: Verdict,
    /// What an expert reads first: what decides, then what fills memory, the largest first.
    pub causes: Vec<Cause>,
    /// What would have helped, and what would not; what helps first.
    pub remedies: Vec<Remedy>,
    /// What the report does not tell, in words.
    pub unknown: Vec<String>,
    /// What texts beside the report tell, in words.
    pub beside: Vec<String>,
}

impl Explanation {
    /// Explains a report.
    pub fn of(report: Report) -> Explanation {
        Explanation::with(report, &Beside::default())
    }

    /// Explains a report, with what stood beside it: nodes that it does not show, the node of its CPU, settings.
    pub fn with(report: Report, beside: &Beside) -> Explanation {
        let verdict = Verdict::of(&report);
        let zones = Zones::new(&report);
        let held = verdict.no_progress.clone().unwrap_or_else(|| no_progress(&zones));
        let causes = why::of(&zones, &verdict, &held);
        let remedies = remedy::of(&zones, &verdict, &held);
        let mut unknown = unknown(&zones, &verdict);
        if report.cpu.is_some_and(|cpu| beside.node_of(cpu).is_some()) {
            unknown.retain(|text| text != NO_NODE_OF_CPU);
        }
        let beside = beside.about(&report);
        Explanation { report, verdict, causes, remedies, unknown, beside }
    }
}

const NO_NODE_OF_CPU: &str = "the report names the CPU and not its node: which zonelist was walked first is not known, that all of it refused is";

fn unreadable(figure: &Unreadable) -> String {
    let Unreadable { line, word } = figure;
    format!("line {line}: {word} is no figure from 0 to 2^64 - 1: it is taken as not known")
}

fn unknown(zones: &Zones<'_>, verdict: &Verdict) -> Vec<String> {
    let report = zones.report;
    let has_zones = !report.zones.is_empty();
    let is_memcg = verdict.rule == Rule::Memcg;
    let mut said: Vec<String> = report.unreadable.iter().map(unreadable).collect();
    let mut say = |condition: bool, text: &str| {
        if condition {
            said.push(text.into());
        }
    };
    say(
        report.kind == Kind::Slub,
        "a SLUB failure has no zones: the page allocation failure before it in the log has, unless __GFP_NOWARN or the rate limit of messages hid it",
    );
    say(
        !has_zones
            && !is_memcg
            && report.kind != Kind::Slub
            && !matches!(verdict.rule, Rule::NoRequest | Rule::EmptyArea | Rule::NoZone),
        "the log has no zones of this report: it was cut, or its messages were dropped",
    );
    say(
        report.lacks_head,
        "the report's first line is not in the log: process, order and flags are not known",
    );
    say(
        report.order.is_none()
            && report.kind == Kind::Oom
            && !report.lacks_head
            && verdict.rule == Rule::Unknown,
        "the order is missing or damaged: whether a request was refused is not known",
    );
    let sizes = report.page_sizes();
    say(
        has_zones && sizes.len() > 1,
        "how large a page is the report does not tell: sizes in pages are of the smallest that fits its figures, and what is told as proven holds for all",
    );
    let lacks_blocks = || report.zones.iter().map(|zone| !zone.has_all_blocks);
    let lacks_all = has_zones && lacks_blocks().all(|lacks| lacks);
    say(
        lacks_all,
        "free blocks by order are missing: the log was cut there, or lines were lost, and zones may be missing, too",
    );
    say(
        !lacks_all && lacks_blocks().any(|lacks| lacks),
        "free blocks by order of a zone are missing, or not all are there: whether it has one for the request is not known",
    );
    say(
        report.unreadable.is_empty() && report.zones.iter().any(|zone| zone.is_damaged),
        "a zone's row breaks off: what is missing is taken for anything that it may be",
    );
    say(
        report.zones.iter().any(|zone| zone.free == Figure::UNKNOWN && !zone.blocks.is_empty()),
        "of a zone only the free blocks by order are there: lines were lost",
    );
    say(
        hidden_pages(report) > 0
            && verdict.confined_by.is_none()
            && !is_memcg
            && !verdict.rule.is_of_area(),
        "zones of the machine are missing, and nothing in the report says that the request could not use them: lines were lost",
    );
    say(
        // Of orders without blocks no kernel prints types.
        report
            .zones
            .iter()
            .flat_map(|zone| &zone.blocks)
            .any(|blocks| blocks.count > 0 && blocks.types.is_none()),
        "kernels before 3.8 do not print the types of free blocks: all are taken to be usable",
    );
    say(
        report.zones.iter().any(|zone| zone.reserve.is_empty() && !zone.is_damaged),
        "a zone's lowmem_reserve is missing: whether it gives what would pass without one is not known",
    );
    say(
        report.is_mixed,
        "lines of another report stand among its own, and the log does not say whose they are (CONFIG_PRINTK_CALLER): figures may be the other's",
    );
    say(
        has_zones
            && report.kernel.is_none()
            && report.mode.words.is_none()
            && report.mode.bits.is_some(),
        "neither the kernel's version nor words of the flags are there: their bits are taken to be those before 4.4",
    );
    let nodes: Vec<u32> = {
        let mut nodes: Vec<u32> = report.zones.iter().map(|zone| zone.node).collect();
        nodes.dedup();
        nodes
    };
    // Either the report names it, or it is the only one that gives nothing.
    let names_node = zones.this_node().is_some();
    let has_walked = !is_memcg && verdict.rule != Rule::NoRequest && verdict::is_asked(report);
    say(nodes.len() > 1 && !names_node && has_walked, NO_NODE_OF_CPU);
    say(
        has_zones && report.mode.gfp.contains(Gfp::THISNODE) && !names_node,
        "__GFP_THISNODE was set, and the node that it names is not in the report",
    );
    let held = verdict.no_progress.as_ref();
    say(
        held.is_some_and(|held| held.unexplained.is_none())
            && !report.zones.iter().any(|zone| zones.has_wrong_mark(zone)),
        "the report lacks counters (anonymous memory, files or slab): how much no counter explains is not known",
    );
    say(
        is_memcg && report.memcg.as_ref().is_none_or(|memcg| memcg.limit.is_none()),
        "the report does not say how much the group used, nor its limit",
    );
    // "page order 0, failed to allocate pages"; before 5.13 no reason was told.
    let failed = report.failed.as_deref().unwrap_or("allocate pages");
    let is_of_pages = failed.contains("allocate pages") || failed.ends_with(" bytes");
    say(
        !verdict.rule.is_of_area() && !is_of_pages,
        "vmalloc wanted other than the area's pages, as the first line says: page tables are pages of their own",
    );
    say(
        verdict.rule == Rule::Passes && is_of_pages,
        "the numbers were read after the refusal, without a lock: they would pass now",
    );
    say(
        report.kind == Kind::Oom && report.victim.is_some(),
        "which nodes the victim's memory lay on is not in the report: what its end freed is known in sum only",
    );
    said
}
