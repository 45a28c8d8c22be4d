//! What is wrong with a machine, as a word and a reason: rules over a sample and the one before it.

use nearpage::rules::watermarks::{AllocFlags, WatermarkCheck, watermark_ok};
use nearpage::{Gfp, Order, PageCount};
use serde::Serialize;

use crate::sample::{Sample, ZoneSample, rate};

/// Something that is wrong, or soon will be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Mark {
    /// The word. Words do not change; the book explains each.
    pub word: &'static str,
    /// The node, if it is about one.
    pub node: Option<u32>,
    /// The zone, if it is about one.
    pub zone: Option<String>,
    /// The reason, with figures.
    pub reason: String,
}

/// Small zones refuse nearly everything nearly always: those with less than a sixteenth of the memory of the largest are
/// not judged.
const SMALL: u64 = 16;

/// Judges a sample; `before` is the one before it, for what is a matter of rates.
///
/// | word | when |
/// |---|---|
/// | `refusing` | a zone is at or below `min`: ordinary requests are refused there |
/// | `reclaiming` | a zone is below `low`: kswapd works |
/// | `kept-away` | so, while another node has memory above `high`, and `zone_reclaim_mode` makes requests reclaim first |
/// | `fragmented` | a zone has enough free pages, and no block of order 3 |
/// | `boosted` | marks of a zone are raised, since pageblocks were mixed |
/// | `stalled` | requests waited for reclaim |
/// | `compacting` | requests waited for compaction, and most of it failed |
/// | `spilled` | more than a tenth of the allocations came from another node than wanted |
/// | `killed` | the OOM killer ended a process |
pub fn marks(before: Option<&Sample>, now: &Sample) -> Vec<Mark> {
    let largest = now.zones.iter().filter_map(|zone| zone.managed).max().unwrap_or(0);
    let large = now
        .zones
        .iter()
        .filter(|zone| zone.managed.is_some_and(|managed| managed > largest / SMALL));
    let mut marks: Vec<Mark> = large.flat_map(|zone| of_zone(now, zone)).collect();
    if let Some(before) = before {
        of_events(before, now, &mut marks);
        of_nodes(before, now, &mut marks);
    }
    marks
}

/// A kind of request: what it may use, and how far below the marks it may go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    /// Its flags, as the kernel names them.
    pub name: &'static str,
    gfp: Gfp,
    /// The highest zone that it may use, as an index of `protection`.
    highest: usize,
}

/// Requests of the kernel for itself that can wait, of interrupts, and of programs.
pub const ASKERS: [Asker; 3] = [
    Asker { name: "GFP_KERNEL", gfp: Gfp::KERNEL, highest: NORMAL },
    Asker { name: "GFP_ATOMIC", gfp: Gfp::ATOMIC, highest: NORMAL },
    Asker { name: "GFP_HIGHUSER_MOVABLE", gfp: Gfp::HIGHUSER_MOVABLE, highest: NORMAL + 1 },
];

/// Whether a zone would give a block of this order to a request of the kernel for itself that can wait, by the core's
/// watermark check. `None` if the zone does not tell its marks or, of orders above 0, its blocks. Types of blocks are not looked at: buddyinfo has none.
pub fn passes(zone: &ZoneSample, order: u8) -> Option<bool> {
    ASKERS[0].passes(zone, order)
}

/// Which of the orders 0, 3 and 9 a zone would give, by [`passes`], as text: `0 3`, or with `-` for all that are not known. `None` if
/// it gives none of them.
pub fn gives(zone: &ZoneSample) -> Option<String> {
    let mut gives: Vec<&str> = [(0, "0"), (3, "3"), (9, "9")]
        .into_iter()
        .filter_map(|(order, name)| match passes(zone, order) {
            Some(true) => Some(name),
            Some(false) => None,
            None => Some("-"),
        })
        .collect();
    gives.dedup();
    (!gives.is_empty()).then(|| gives.join(" "))
}

impl Asker {
    /// Whether a zone would give it a block of this order; as [`passes`].
    pub fn passes(&self, zone: &ZoneSample, order: u8) -> Option<bool> {
        let lacks_blocks = order > 0 && zone.blocks.is_empty();
        let order = Order(order);
        let check = WatermarkCheck {
            free: PageCount(zone.free?),
            free_high_atomic: PageCount(0),
            mark: PageCount(zone.min?),
            boost: PageCount(0),
            reserve: PageCount(self.reserve(zone)),
            order,
            flags: AllocFlags::under_pressure(self.gfp, order),
        };
        let has_block =
            |order: Order| zone.blocks.get(usize::from(order.0)).is_some_and(|&count| count > 0);
        let passes = watermark_ok(&check, |order, _| lacks_blocks || has_block(order));
        // Of blocks that are not known none may be there.
        (!lacks_blocks || !passes).then_some(passes)
    }

    /// Pages that a zone keeps from it, since it could use a higher zone.
    pub fn reserve(&self, zone: &ZoneSample) -> u64 {
        zone.protection.get(self.highest).or(zone.protection.last()).copied().unwrap_or(0)
    }
}

/// The index of the Normal zone where there are zones for small addresses, as on x86-64 and aarch64.
const NORMAL: usize = 2;

fn of_zone(now: &Sample, zone: &ZoneSample) -> Vec<Mark> {
    let mark =
        |word, reason| Mark { word, node: Some(zone.node), zone: Some(zone.zone.clone()), reason };
    let mut marks = Vec::new();
    let (Some(free), Some(min), Some(low)) = (zone.free, zone.min, zone.low) else { return marks };
    if free <= min {
        marks.push(mark(
            "refusing",
            format!("{free} pages free, min {min}: only urgent requests get any"),
        ));
    } else if free < low {
        marks.push(mark(
            "reclaiming",
            format!("{free} pages free, low is {low}: kswapd works here"),
        ));
    }
    if free < low && now.zone_reclaim_mode.is_some_and(|mode| mode & 1 == 1) {
        let elsewhere =
            now.zones.iter().filter(|other| other.node != zone.node && other.zone == zone.zone);
        let elsewhere =
            elsewhere.filter(|other| other.free > other.high).max_by_key(|other| other.free);
        marks.extend(elsewhere.map(|other| {
            let free = other.free.unwrap_or(0);
            mark("kept-away", format!("node {} has {free} pages free; zone_reclaim_mode=1 makes requests reclaim here first", other.node))
        }));
    }
    if passes(zone, 0) == Some(true)
        && !zone.blocks.is_empty()
        && passes(zone, 3) == Some(false)
        && free > low
    {
        marks
            .push(mark("fragmented", format!("{free} pages free, and no block of order 3 passes")));
    }
    if let Some(boost) = zone.boost.filter(|&boost| boost > 0) {
        marks.push(mark(
            "boosted",
            format!("marks are {boost} pages higher: pageblocks were mixed, and kswapd makes room"),
        ));
    }
    marks
}

fn of_events(before: &Sample, now: &Sample, marks: &mut Vec<Mark>) {
    let elapsed = now.time_ms.saturating_sub(before.time_ms);
    let rate_of = |name: &str| {
        rate(before.event(name)?, now.event(name)?, elapsed).filter(|rate| *rate > 0.0)
    };
    let mut add = |word, reason| marks.push(Mark { word, node: None, zone: None, reason });
    let stalls: f64 = now
        .events
        .iter()
        .filter(|(name, _)| name.starts_with("allocstall"))
        .filter_map(|(name, _)| rate_of(name))
        .sum();
    if stalls > 0.0 {
        add("stalled", format!("{stalls:.1} requests a second reclaim memory themselves"));
    }
    if let Some(failed) = rate_of("compact_fail") {
        let succeeded = rate_of("compact_success").unwrap_or(0.0);
        if failed > succeeded {
            add(
                "compacting",
                format!("{failed:.1} compactions a second fail, {succeeded:.1} succeed"),
            );
        }
    }
    let kills = now
        .event("oom_kill")
        .zip(before.event("oom_kill"))
        .and_then(|(now, before)| now.checked_sub(before));
    if let Some(kills) = kills.filter(|&kills| kills > 0) {
        add("killed", format!("the OOM killer ended {kills}"));
    }
}

fn of_nodes(before: &Sample, now: &Sample, marks: &mut Vec<Mark>) {
    let elapsed = now.time_ms.saturating_sub(before.time_ms);
    for node in &now.nodes {
        let Some(old) = before.nodes.iter().find(|old| old.node == node.node) else { continue };
        let rate_of = |name: &str| {
            let of = |counters: &[(&'static str, u64)]| {
                counters.iter().find(|(other, _)| *other == name).map(|(_, count)| *count)
            };
            rate(of(&old.numa)?, of(&node.numa)?, elapsed)
        };
        let (Some(hit), Some(foreign)) = (rate_of("numa_hit"), rate_of("numa_foreign")) else {
            continue;
        };
        if foreign > hit / 9.0 && foreign >= 100.0 {
            let reason = format!(
                "{foreign:.0} allocations a second wanted this node and got another, {hit:.0} got it"
            );
            marks.push(Mark { word: "spilled", node: Some(node.node), zone: None, reason });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::NodeSample;

    fn zone(node: u32, free: u64) -> ZoneSample {
        ZoneSample {
            node,
            zone: "Normal".into(),
            free: Some(free),
            min: Some(100),
            low: Some(200),
            high: Some(300),
            managed: Some(100_000),
            blocks: vec![free, 0, 0, 0, 0],
            ..ZoneSample::default()
        }
    }

    fn words(before: Option<&Sample>, now: &Sample) -> Vec<&'static str> {
        let words: Vec<_> = marks(before, now).iter().map(|mark| mark.word).collect();
        let is_told = |word: &&str| crate::words::WORDS.iter().any(|told| told.word == *word);
        assert!(words.iter().all(is_told), "{words:?}");
        words
    }

    #[test]
    fn without_blocks_only_what_pages_tell_is_known() {
        let mut zone = zone(0, 5000);
        zone.blocks.clear();
        assert_eq!([0, 3, 9].map(|order| passes(&zone, order)), [Some(true), None, None]);
        zone.free = Some(1);
        assert_eq!([0, 3, 9].map(|order| passes(&zone, order)), [Some(false); 3]);
        zone.min = None;
        assert_eq!([0, 3, 9].map(|order| passes(&zone, order)), [None; 3]);
    }

    #[test]
    fn every_word_is_said_when_it_is_true_and_only_then() {
        let mut now = Sample { zones: vec![zone(0, 100)], ..Sample::default() };
        assert_eq!(words(None, &now), ["refusing"]);
        now.zones[0].free = Some(199);
        assert_eq!(words(None, &now), ["reclaiming"]);
        now.zones.push(zone(1, 5000));
        now.zones[1].blocks = vec![0, 0, 0, 0, 312];
        assert_eq!(words(None, &now), ["reclaiming"]);
        now.zone_reclaim_mode = Some(1);
        assert_eq!(words(None, &now), ["reclaiming", "kept-away"]);
        now.zones[1].blocks = vec![5000, 0, 0];
        now.zones[1].boost = Some(512);
        assert_eq!(words(None, &now), ["reclaiming", "kept-away", "fragmented", "boosted"]);
        let mut small = zone(2, 0);
        small.managed = Some(3840);
        now.zones = vec![zone(1, 5000), small];
        now.zones[0].blocks = vec![0, 0, 0, 0, 312];
        assert_eq!(words(None, &now), [""; 0], "a small zone is not judged");
        let numa = |hit, foreign| {
            vec![NodeSample {
                numa: vec![("numa_hit", hit), ("numa_foreign", foreign)],
                ..NodeSample::default()
            }]
        };
        let events = |count| {
            vec![
                ("allocstall_normal", count),
                ("compact_fail", 2 * count),
                ("compact_success", count),
                ("oom_kill", count),
            ]
        };
        let before = Sample { time_ms: 1000, events: events(0), nodes: numa(0, 0), ..now.clone() };
        let after =
            Sample { time_ms: 2000, events: events(3), nodes: numa(1000, 1000), ..now.clone() };
        assert_eq!(words(Some(&before), &after), ["stalled", "compacting", "killed", "spilled"]);
        // Counters that go back, as after a hotplug, are no events.
        assert_eq!(words(Some(&after), &Sample { time_ms: 3000, ..before }), [""; 0]);
    }
}
