//! Reports of which the log lost lines or ends of lines: no rule is named that the whole report does not have, unless the zone
//! that decides is lost itself.

mod first;

use std::fs;
use std::path::{Path, PathBuf};

use nearpage_explain::{Answer, Explanation, Reader, Rule};

use first::explained;

fn log(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The log without the line that has a text in it.
fn without(log: &str, part: &str) -> String {
    assert!(log.contains(part), "{part}");
    log.split_inclusive('\n').filter(|line| !line.contains(part)).collect()
}

/// The log up to the end of a text.
fn up_to<'a>(log: &'a str, part: &str) -> &'a str {
    &log[..log.find(part).expect(part) + part.len()]
}

fn says(explanation: &Explanation, part: &str) -> bool {
    explanation.unknown.iter().any(|text| text.contains(part))
}

fn logs() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reports");
    let folders = ["6.1", "6.12", "public"].map(|name| fs::read_dir(folder.join(name)).unwrap());
    let mut paths: Vec<PathBuf> =
        folders.into_iter().flatten().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let name = |path: &Path| path.strip_prefix(&folder).unwrap().display().to_string();
    paths.iter().map(|path| (name(path), fs::read_to_string(path).unwrap())).collect()
}

/// Node 1 gives nothing, node 0 would give, and node 2 may give: its free blocks are lost.
#[test]
fn a_lost_row_of_blocks_leaves_the_node_that_was_insisted_on() {
    let whole = log("6.1/later-frag-order7-fifth.log");
    let decided = |explanation: &Explanation| {
        let verdict = &explanation.verdict;
        let by = verdict.confined_by.as_ref().map(|by| by.by.name());
        (verdict.rule, verdict.node, by)
    };
    let expected = (Rule::NoBlock, Some(1), Some("this_node"));
    assert_eq!(decided(&explained(&whole)), expected);
    for node in [0, 2] {
        let damaged = without(&whole, &format!("Node {node} DMA32: "));
        let explanation = explained(&damaged);
        assert_eq!(decided(&explanation), expected, "of node {node}");
        assert!(says(&explanation, "free blocks by order of a zone are missing"));
        assert!(!says(&explanation, "__GFP_THISNODE was set"));
    }
    // The blocks of the node itself: it is still the only one that does not give, and the rule is not known.
    let explanation = explained(&without(&whole, "Node 1 DMA32: "));
    assert_eq!(decided(&explanation), (Rule::Unknown, Some(1), Some("this_node")));
}

/// Two nodes give nothing: the request named one of them, and not the one that would give.
#[test]
fn two_nodes_that_may_be_meant_are_no_reason_for_a_third() {
    let whole = log("6.1/later-frag-order7-fifth.log");
    let row = whole.lines().find(|line| line.contains("Node 2 DMA32 free:")).unwrap();
    let (head, rest) = row.split_once("free:").unwrap();
    let (_, tail) = rest.split_once("kB").unwrap();
    let explanation = explained(&whole.replace(row, &format!("{head}free:400kB{tail}")));
    assert_ne!(explanation.verdict.rule, Rule::Passes);
    assert!(says(&explanation, "__GFP_THISNODE was set"));
}

/// A cpuset with all nodes hides none.
#[test]
fn lost_zones_are_not_taken_for_those_outside_a_cpuset() {
    let whole = log("6.1/frag-order9-comp.log");
    assert!(explained(&whole).verdict.confined_by.is_none());
    let explanation = explained(&without(&whole, "Node 0 DMA32 free:"));
    assert!(explanation.verdict.confined_by.is_none());
    assert!(says(&explanation, "lines were lost"));
    let real = explained(&log("6.1/cpuset.log"));
    assert_eq!(real.verdict.confined_by.as_ref().unwrap().by.name(), "cpuset");
    assert!(!says(&real, "lines were lost"));
}

#[test]
fn a_row_of_blocks_that_breaks_off_names_no_rule() {
    let whole = log("6.1/frag-order4-kernel.log");
    let row = whole.lines().find(|line| line.contains("Node 1 DMA32: ")).unwrap();
    let counts = &row[..row.find('=').unwrap()];
    for (end, _) in counts.match_indices([' ', '*', '(', 'k']) {
        let end = end.max("[  277.706] Node 1 DMA32: ".len());
        let explanation = explained(up_to(&whole, &row[..end]));
        // Orders 4 to 10 have no block, as many lists as the other rows have: that is proven.
        let expected = if row[..end].contains("0*4096kB") { Rule::NoBlock } else { Rule::Unknown };
        assert_eq!(explanation.verdict.rule, expected, "{}", &row[..end]);
        // Also in the middle of a log that goes on.
        let explanation = explained(&whole.replace(row, &row[..end]));
        let rule = explanation.verdict.rule;
        assert!(matches!(rule, Rule::Unknown | Rule::NoBlock), "{rule:?}: {}", &row[..end]);
    }
}

/// 1571 pages are free and 1582 needed: that is proven as soon as both figures are there, and never becomes another rule.
#[test]
fn a_zone_whose_row_breaks_off_is_proven_or_open() {
    let whole = log("6.1/thisnode-full.log");
    let row = whole.lines().find(|line| line.contains("Node 1 DMA32 free:")).unwrap();
    let from = row.find("free:").unwrap() + "free:".len();
    let to = row.find("present:").unwrap() + "present:123".len();
    let known = row.find("min:6324kB").unwrap() + "min:6324kB".len();
    for end in from..to {
        let explanation = explained(up_to(&whole, &row[..end]));
        let zone = explanation.verdict.zones.iter().find(|zone| zone.node == 1).unwrap();
        let (rule, answer) = match end < known {
            true => (Rule::Unknown, Answer::Open),
            false => (Rule::Watermark, Answer::Refused),
        };
        assert_eq!((zone.at_min.rule, zone.at_min.answer), (rule, answer), "{}", &row[..end]);
        assert!(says(&explanation, "breaks off"), "{}", &row[..end]);
    }
}

/// The end of the log at any line, and any line lost: never a panic, and a rule that the whole report does not have is named only
/// where zones, the kernel's version or the constraint are lost.
#[test]
fn every_line_of_every_report_may_be_lost() {
    let mut reports = 0;
    for (name, whole) in logs() {
        // Not those of stacks, registers and modules, which are most.
        const PARTS: [&str; 7] = ["order", "CPU: ", "Mem-Info", "kB", "reserve", "pages", "oom"];
        let has_part = |line: &&str| PARTS.iter().any(|part| line.contains(part));
        let lines: Vec<&str> = whole.split_inclusive('\n').filter(has_part).collect();
        let whole = lines.concat();
        let all = |log: &str| -> Vec<Explanation> {
            Reader::new(log.as_bytes()).map(|report| Explanation::of(report.unwrap())).collect()
        };
        let before = all(&whole);
        reports += before.len();
        for at in 0..lines.len() {
            let half = lines[at].len() / 2;
            let half = (half..).find(|&half| lines[at].is_char_boundary(half)).unwrap();
            all(&format!("{}{}", lines[..at].concat(), &lines[at][..half]));
            let after = all(&[&lines[..at], &lines[at + 1..]].concat().concat());
            if after.len() != before.len() {
                continue;
            }
            for (before, after) in before.iter().zip(&after) {
                let rule = after.verdict.rule;
                let is_said = rule == before.verdict.rule
                    || rule == Rule::Unknown
                    || after.unknown.iter().any(|text| !before.unknown.contains(text))
                    || before.report.zones.len() > after.report.zones.len()
                    || before.report.kernel != after.report.kernel;
                assert!(is_said, "{name} without line {}: {rule:?}", at + 1);
            }
        }
    }
    assert!(reports >= 100, "{reports}");
}
