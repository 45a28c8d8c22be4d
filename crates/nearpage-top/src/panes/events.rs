//! What is wrong, what began and ended, what settings mean, and counters of the kernel.

use nearpage_watch::{Mark, rate};

use super::Chosen;
use crate::shown::Shown;
use crate::table::{Item, Table};
use crate::words::{clock, per_second, time};

/// Counters by what they tell, in this order; others stand at the end.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "requests that reclaimed memory themselves",
        &["allocstall", "pgscan_direct", "pgsteal_direct"],
    ),
    ("compaction", &["compact_"]),
    ("kswapd", &["kswapd_", "pageoutrun", "pgscan_kswapd", "pgsteal_kswapd"]),
    ("reclaim of nodes by zone_reclaim_mode", &["zone_reclaim"]),
    ("OOM kills", &["oom_kill"]),
    ("swap and huge pages", &["pswp", "thp_"]),
];

/// Changes that are listed before the counters.
const CHANGES_MOST: usize = 100;

/// Place and reason of a mark.
pub(crate) fn mark_text(mark: &Mark) -> String {
    format!("{}{}", place(mark), mark.reason)
}

fn place(mark: &Mark) -> String {
    match (mark.node, &mark.zone) {
        (Some(node), Some(zone)) => format!("node {node} {zone}: "),
        (Some(node), None) => format!("node {node}: "),
        _ => String::new(),
    }
}

/// A mark as a line, with since when it is true.
pub(crate) fn mark_line(shown: &Shown<'_>, mark: &Mark) -> String {
    let age = shown.past.map_or(0, |past| past.history.age_ms(mark));
    let since = if age >= 1000 { format!(" for {}", time(age)) } else { String::new() };
    format!("! {}{since} {}", mark.word, mark_text(mark))
}

pub(super) fn table<'a>(shown: &'a Shown<'a>, chosen: Chosen) -> Table<'a> {
    let mut rows: Vec<(String, Item)> = Vec::new();
    let is_shown =
        |mark: &Mark| chosen.node.is_none() || mark.node.is_none() || mark.node == chosen.node;
    for mark in shown.marks.iter().filter(|mark| is_shown(mark)) {
        rows.push((mark_line(shown, mark), Item::Word(mark.word)));
    }
    if rows.is_empty() {
        rows.push(("nothing is wrong".into(), Item::Nothing));
    }
    if let Some(past) = shown.past {
        let changes = past.history.changes().rev().filter(|change| is_shown(&change.mark));
        let mut changes: Vec<_> = changes.take(CHANGES_MOST).collect();
        // An end is known a while after it.
        changes.sort_by_key(|change| std::cmp::Reverse(change.time_ms));
        for change in changes {
            let what = match change.lasted_ms {
                None => "began".into(),
                Some(lasted) => format!("ended after {}", time(lasted)),
            };
            let (time, mark) = (clock(change.time_ms), &change.mark);
            let line = format!("{time} {} {what}: {}", mark.word, mark_text(mark));
            rows.push((line, Item::Word(mark.word)));
        }
        rows.extend(past.advice.iter().map(|line| (format!("doctor: {line}"), Item::Nothing)));
    }
    let mut rest: Vec<&(&'static str, u64)> = shown.now.events.iter().collect();
    for (heading, begins) in GROUPS {
        let (group, others): (Vec<_>, Vec<_>) = rest
            .into_iter()
            .partition(|(name, _)| begins.iter().any(|begin| name.starts_with(begin)));
        rest = others;
        add_group(shown, heading, group, &mut rows);
    }
    add_group(shown, "others", rest, &mut rows);
    Table::of(
        format!(
            "{:<52} {:>8} {:>17}",
            "what is wrong, began and ended; counters", "/s", "since boot"
        ),
        rows,
        |(line, _)| line.clone(),
        |(_, item)| item.clone(),
    )
}

fn add_group(
    shown: &Shown<'_>,
    heading: &str,
    group: Vec<&(&'static str, u64)>,
    rows: &mut Vec<(String, Item)>,
) {
    if group.is_empty() {
        return;
    }
    rows.push((format!("{heading}:"), Item::Nothing));
    for (name, count) in group {
        let rate =
            shown.before.and_then(|before| rate(before.event(name)?, *count, shown.elapsed_ms()));
        rows.push((format!("  {name:<50} {:>8} {count:>17}", per_second(rate)), Item::Nothing));
    }
}
