//! The report of a replay: what was met, how exactly it predicts, and the answers to what was asked. Its serialization
//! is the JSON of `nearpage replay`.

use std::collections::BTreeMap;

use nearpage::TopologyBuf;
use serde::Serialize;

use crate::fidelity::Fidelity;
use crate::kernel_state::Gap;
use crate::objects::Objects;
use crate::recorded::Recorded;
use crate::series::Series;
use crate::session::Replayed;
use crate::start::Start;
use crate::state_end::StateEnd;
use crate::survey::Survey;
use crate::totals::{Costs, Totals};
use crate::truth::ChangedZone;
use crate::whatif::{Answer, Changes};

/// What a replay leaves out beside it, unless waits are told with its answer.
pub const NO_WAITS: &str = "waits for locks: a replay runs one event after the other; nearpage lab build and the other loads have them";

/// What a replay cannot say: the allocations and frees are not the model's.
pub const OPEN_LOOP: &str = "open loop: allocations and frees come as recorded, whatever the model answers; reclaim, tasks and \
     CPUs do not react";

/// A finished replay.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON: 1. Fields are added without another number.
    pub schema: u32,
    /// The name of the bundle.
    pub bundle: String,
    /// The release of its kernel.
    pub kernel: String,
    /// The name of the rules.
    pub model: &'static str,
    /// The comparison with what the kernel logged.
    pub fidelity: Fidelity,
    /// What was met in the trace.
    pub trace: TraceFacts,
    /// Recorded, predicted, and what was asked for, if something was.
    pub what_if: Option<WhatIf>,
    /// The replay of the objects, if the trace has any.
    pub objects: Option<Objects>,
    /// What was to be explained, line by line.
    pub explain: Option<Vec<String>>,
    /// [`OPEN_LOOP`].
    pub open_loop: &'static str,
    /// What the kernel's own state told, if the recording has it.
    pub state: Option<StateReport>,
    /// Why the replay does not begin with the kernel's own state, if so: a sentence.
    pub lacks_state: Option<String>,
    /// Whether the rules are those of another kernel than the recorded, the nearest that is modelled.
    pub is_nearest_model: bool,
    /// What is explained, in words.
    pub explained: Option<String>,
    /// Whether so many pages came from elsewhere than predicted that memory policies are likely, which are in no event:
    /// [`ZoneChoice::Recorded`](crate::ZoneChoice::Recorded) goes by the pages.
    pub placement_disagrees: bool,
    /// Whether the trace was given beside the bundle and may be a part of a recording, so that nothing shows that it is of
    /// this one.
    pub trace_is_unproven: bool,
    /// Whether the bundle does not tell the zones after the trace, so that nothing is compared with them.
    pub lacks_after: bool,
    /// Whether the window has no event of refills and drains, so that nothing is compared with those of the kernel.
    pub lacks_flows: bool,
    /// Zones whose memory was not the same before and after.
    pub changed_zones: Vec<ChangedZone>,
    /// What each of several sets of rules came to: [`Options::rules`](crate::Options::rules).
    pub rules: Vec<RuleTotals>,
    /// What was recorded and predicted at each sample.
    #[serde(skip)]
    pub series: Series,
    /// The recorded machine, as the core was given it.
    #[serde(skip)]
    pub machine: Machine,
}

/// What the kernel's own state told of a recording.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct StateReport {
    /// What was applied to the lists at the start.
    pub gap: Gap,
    /// Pages that pagesets held at the start.
    pub pageset_pages: u64,
    /// Pages in the free lists at the start.
    pub free_pages: u64,
    /// Allocations of which the core gave the very block that the kernel gave.
    pub same_frames: u64,
    /// Allocations.
    pub allocs: u64,
    /// Blocks that were freed without an event.
    pub untold_frees: u64,
    /// Blocks that were taken without an event.
    pub untold_takes: u64,
    /// Whether the trace tells when CPUs do their once-a-second work.
    pub has_upkeep: bool,
    /// Lists at the end, if the recording has the kernel's.
    pub end: Option<StateEnd>,
}

impl StateReport {
    pub(crate) fn of(start: &Start, survey: &Survey, replayed: &Replayed) -> Option<StateReport> {
        let state = start.state.as_ref()?;
        let counts = &replayed.outcomes.first()?.counts;
        let pagesets = start.zones.iter().flat_map(|zone| &zone.pagesets);
        Some(StateReport {
            gap: state.gap.clone(),
            pageset_pages: pagesets.map(|pageset| pageset.count.0).sum(),
            free_pages: start.zones.iter().map(|zone| zone.free_pages()).sum(),
            same_frames: counts.same_frames,
            allocs: counts.allocs,
            untold_frees: counts.untold_frees,
            untold_takes: counts.untold_takes,
            has_upkeep: survey.has_upkeep,
            end: replayed.end.clone(),
        })
    }
}

/// A machine of a replay.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Machine {
    /// Nodes, CPUs, memory and distances.
    pub topology: TopologyBuf,
    /// Log2 of the bytes of a page.
    pub page_shift: u32,
}

/// What was met in a trace, and what did not go as recorded.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct TraceFacts {
    /// Events of any kind.
    pub events: u64,
    /// Events lost, as far as lines tell.
    pub lost_events: u64,
    /// Lines that say that events were lost.
    pub lost_lines: u64,
    /// Lines that are no event.
    pub other_lines: u64,
    /// Events whose time is before that of an earlier line.
    pub unsorted: u64,
    /// Allocations that failed.
    pub failed_allocs: u64,
    /// Frees that were logged twice, alone and in a batch: they count once.
    pub batched_frees: u64,
    /// Blocks freed that were allocated before the window, or by something without an event.
    pub unknown_frees: u64,
    /// Frees of a piece of a block.
    pub split_frees: u64,
    /// Frees of a block of which the core had none left.
    pub lost_frees: u64,
    /// Allocations of a block that the trace had not freed.
    pub realloc_of_live: u64,
    /// Allocations that the core refused below its marks.
    pub refused_allocs: u64,
    /// Pages allocated in bulk.
    pub bulk_pages: u64,
    /// Pages allocated.
    pub allocated_pages: u64,
    /// Pages freed.
    pub freed_pages: u64,
    /// Names of gfp flags that are not known, and how often each was met.
    pub unknown_gfp_names: BTreeMap<String, u64>,
    /// Blocks allocated in the window.
    pub allocs: u64,
    /// Blocks freed in the window.
    pub frees: u64,
    /// Events about frames outside of all zones.
    pub foreign_frames: u64,
    /// Events on CPUs that `before` does not have.
    pub foreign_cpus: u64,
    /// Pages of the free lists of `before` for which there was no place in the zone.
    pub unplaced_pages: u64,
    /// Allocations that the kernel counted and that have no event, by zone; they are taken off the recorded `numa_hit`.
    pub unlogged_allocs: BTreeMap<String, i64>,
    /// Seconds of the window.
    pub window_seconds: f64,
    /// Seconds of it without an event whose turns of CPUs are left out: in gaps of more than 1024 s all but the last 512 s.
    pub unticked_seconds: f64,
    /// Whether the trace has the markers between which `before` and `after` were read; otherwise all of it is the window.
    pub has_markers: bool,
    /// Whether the window ends before the trace does; otherwise nothing is compared with `after`.
    pub is_whole: bool,
    /// Events that the recorder lost, as `meta.json` tells.
    pub recorder_lost_events: u64,
}

/// A what-if, beside the recording and the prediction for the recorded machine.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct WhatIf {
    /// The name of its rules.
    pub model: &'static str,
    /// Which CPU plays which, in words; `None` on the recorded machine.
    pub cpus: Option<String>,
    /// The name of the costs that make up the model time.
    pub costs: &'static str,
    /// What the kernel logged.
    pub recorded: Totals,
    /// What the model came to on the recorded machine under its own rules.
    pub predicted: Totals,
    /// What it came to on the other machine without other rules and settings, if all of them are asked for.
    pub unchanged: Option<Totals>,
    /// What it came to as wished.
    pub what_if: Totals,
    /// Why it comes to the same as without other rules and settings, if it does: a sentence.
    pub no_difference: Option<String>,
    /// Frees of a block of which the core had none left.
    pub lost_frees: u64,
    /// Allocations that the core refused below its marks.
    pub refused_allocs: u64,
    /// What was changed for it.
    pub changes: Changes,
    /// The other machine, if it is another.
    #[serde(skip)]
    pub machine: Option<Machine>,
}

/// What one of several sets of rules came to.
#[derive(Clone, PartialEq, Debug, Serialize)]
#[non_exhaustive]
pub struct RuleTotals {
    /// Its name.
    pub model: &'static str,
    /// What it came to.
    pub totals: Totals,
    /// What was changed for it.
    pub changes: Changes,
    /// Frees of a block of which the core had none left.
    pub lost_frees: u64,
    /// Allocations that the core refused below its marks.
    pub refused_allocs: u64,
}

impl RuleTotals {
    pub(crate) fn of(answer: Answer) -> RuleTotals {
        RuleTotals {
            model: answer.changes.rules.after,
            lost_frees: answer.counts.lost_frees,
            refused_allocs: answer.counts.refused_allocs,
            changes: answer.changes,
            totals: answer.totals,
        }
    }
}

impl Machine {
    pub(crate) fn of(start: &Start) -> Machine {
        Machine { topology: start.topology.clone(), page_shift: start.page_shift }
    }
}

impl TraceFacts {
    pub(crate) fn of(
        start: &Start,
        survey: &Survey,
        replayed: &Replayed,
        unlogged: &[i64],
        recorder_lost_events: u64,
    ) -> TraceFacts {
        let Replayed { counts: trace, recorded, .. } = replayed;
        let (outcome, run) = (&replayed.outcomes[0], &replayed.outcomes[0].counts);
        let unlogged = start.zones.iter().zip(unlogged).filter(|(_, count)| **count != 0);
        TraceFacts {
            events: trace.events,
            lost_events: trace.lost_events,
            lost_lines: trace.lost_lines,
            other_lines: trace.other_lines,
            unsorted: trace.unsorted,
            failed_allocs: trace.failed_allocs,
            batched_frees: trace.batched_frees,
            unknown_frees: run.unknown_frees,
            split_frees: run.split_frees,
            lost_frees: run.lost_frees,
            realloc_of_live: run.realloc_of_live,
            refused_allocs: run.refused_allocs,
            bulk_pages: run.bulk_pages,
            allocated_pages: recorded.pages.iter().sum(),
            freed_pages: recorded.freed_pages,
            unknown_gfp_names: trace.unknown_gfp_names.clone(),
            allocs: run.allocs,
            frees: run.frees,
            foreign_frames: recorded.foreign_frames,
            foreign_cpus: recorded.foreign_cpus,
            unplaced_pages: outcome.left_out_pages,
            unlogged_allocs: unlogged.map(|(zone, count)| (zone.name(), *count)).collect(),
            window_seconds: survey.end_ns.saturating_sub(survey.begin_ns) as f64 / 1e9,
            unticked_seconds: survey.unticked_ns as f64 / 1e9,
            has_markers: survey.has_window,
            is_whole: survey.is_whole,
            recorder_lost_events,
        }
    }
}

impl WhatIf {
    pub(crate) fn of(
        start: &Start,
        replayed: &Replayed,
        fidelity: &Fidelity,
        unchanged: Option<Answer>,
        answer: Answer,
    ) -> WhatIf {
        let predicted = replayed.outcomes[0].totals.clone();
        let unchanged = unchanged.map(|answer| answer.totals);
        let is_same = answer.totals == *unchanged.as_ref().unwrap_or(&predicted);
        WhatIf {
            no_difference: is_same.then(|| answer.changes.why_the_same()),
            unchanged,
            model: answer.changes.rules.after,
            cpus: answer.changes.cpus.clone(),
            costs: Costs::BENCH.name,
            recorded: recorded_totals(start, &replayed.recorded, fidelity),
            predicted,
            what_if: answer.totals,
            lost_frees: answer.counts.lost_frees,
            refused_allocs: answer.counts.refused_allocs,
            changes: answer.changes,
            machine: answer.machine.map(|(topology, page_shift)| Machine { topology, page_shift }),
        }
    }
}

/// What the kernel's log comes to, as far as it tells. Refills and drains are runs of lines.
pub(crate) fn recorded_totals(start: &Start, recorded: &Recorded, fidelity: &Fidelity) -> Totals {
    let flow = recorded.flow();
    let mut pages_by_node: BTreeMap<u32, u64> = BTreeMap::new();
    for (zone, &pages) in start.zones.iter().zip(&recorded.pages) {
        *pages_by_node.entry(zone.node.0).or_default() += pages;
    }
    let cached = fidelity.over_all("pcp_count").and_then(|row| row.recorded);
    Totals {
        refills: flow.refills,
        refill_pages: flow.refill_pages,
        drains: flow.drains,
        drain_pages: flow.drain_pages,
        longest_run_pages: recorded.lengths().longest(),
        pages_by_node,
        cached_bytes: cached.unwrap_or(0) << start.page_shift,
        remote_pages: recorded.remote_pages,
        ..Totals::default()
    }
}

/// Whether so many pages came from elsewhere than predicted that a policy is likely.
pub(crate) fn placement_disagrees(fidelity: &Fidelity) -> bool {
    const ENOUGH: f64 = 5.0;
    const PAGES: u64 = 500;
    fidelity.over_all("fallback_pages").is_some_and(|row| {
        row.recorded.is_some_and(|pages| pages >= PAGES)
            && row.error_percent.is_some_and(|error| error > ENOUGH)
    })
}
