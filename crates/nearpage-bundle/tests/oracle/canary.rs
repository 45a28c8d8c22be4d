//! Planted mistakes: with a wrong rule in the core, the replays must find differences. A comparison that
//! finds none then compares nothing. Only in the project's own recordings: few others may show too little.

use std::sync::OnceLock;

use nearpage::Model;
use nearpage::rules::pagesets::{FreeHigh, RefillScale};
use nearpage::rules::{CpuTerm, FallbackModel, FallbackRules, HeldMovable, PcpRules};

use crate::lab;
use crate::recordings::{self, Collection, Recording};
use crate::tally::Tally;
use crate::{Replay, replay, tally};

fn own() -> &'static [Recording] {
    static OWN: OnceLock<Result<Collection, String>> = OnceLock::new();
    let read = || recordings::collection(&recordings::own_root());
    let own = OWN.get_or_init(read).as_ref();
    &own.unwrap_or_else(|error| panic!("{error}")).recordings
}

/// Counts the differences of a kind under rules that were changed after those of each kernel.
fn differences(kind: &str, replay: Replay, change: impl Fn(&mut Model) + Sync) -> usize {
    let changed = |kernel: &str| {
        let mut model = lab::model(kernel)?;
        change(&mut model);
        Ok(model)
    };
    tally(own(), kind, replay, changed).differences()
}

#[track_caller]
fn must_find(kind: &str, replay: Replay, change: impl Fn(&mut Model) + Sync) {
    assert!(differences(kind, replay, change) > 0, "{kind}: the mistake was not found");
}

fn change_pcp(change: impl Fn(&mut PcpRules) + Sync) -> impl Fn(&mut Model) + Sync {
    move |model| change(&mut model.pcp)
}

/// Replays the first text of a kind with a number in it changed.
#[track_caller]
fn must_find_in(kind: &str, replay: Replay, number: &str, changed: &str) {
    let with = |recording: &&Recording| {
        recording.module.get(kind).is_some_and(|text| text.contains(number))
    };
    let recording = own().iter().find(with).expect("the project has such a text");
    let text = recording.module[kind].replacen(number, changed, 1);
    let model = lab::model(&recording.kernel).expect("the kernel is modelled");
    let mut tally = Tally::default();
    replay(recording, &text, model, &mut tally).expect("the text is as before");
    assert!(tally.differences() > 0, "{kind}: the changed number was not found");
}

#[test]
fn numbers_that_no_kernel_gave() {
    must_find_in("spill_nopcp", replay::spill::replay, " n=", " n=1");
    must_find_in("spill_nopcp", replay::spill::replay, " foreign=", " foreign=1");
    must_find_in("spill", replay::spill::replay, " n=", " n=1");
    must_find_in("steal", replay::steal::replay, "STEAL_POST U=", "STEAL_POST U=1");
}

#[test]
fn refills_that_do_not_double() {
    let fixed = |rules: &mut PcpRules| {
        rules.refill = RefillScale::Fixed;
    };
    must_find("pcp", replay::pcp::replay, change_pcp(fixed));
    must_find("buddypcp", replay::buddy::replay, change_pcp(fixed));
}

#[test]
fn drains_of_high_orders_without_a_batch() {
    let eager = |rules: &mut PcpRules| {
        rules.free_high = rules.free_high.map(|rule| FreeHigh { keeps_batch: false, ..rule });
    };
    must_find("pcp", replay::pcp::replay, change_pcp(eager));
}

/// A zone near a mark has several possible starts: none may make up for a wrong rule.
#[test]
fn pagesets_that_grow_below_the_high_mark() {
    let growing = |rules: &mut PcpRules| rules.below_high = false;
    must_find("bulk", replay::bulk::replay, change_pcp(growing));
    must_find("pcp", replay::pcp::replay, change_pcp(growing));
}

#[test]
fn a_scale_that_is_one_too_small() {
    let smaller = |rules: &mut PcpRules| rules.batch_scale_max -= 1;
    must_find("bulk", replay::bulk::replay, change_pcp(smaller));
}

#[test]
fn bulk_requests_that_take_what_there_is() {
    let ours = |model: &mut Model| {
        model.departures = model.departures.with(|changed| changed.bulk_from_zone = true);
    };
    must_find("bulk", replay::bulk::replay, ours);
}

#[test]
fn the_other_kernels_stealing() {
    let other = |model: &mut Model| {
        let FallbackRules { model: rules, .. } = &mut model.fallback;
        *rules = match *rules {
            FallbackModel::Linux6_1 => FallbackModel::Linux6_12,
            FallbackModel::Linux6_12 => FallbackModel::Linux6_1,
        };
    };
    must_find("steal2", replay::steal2::replay, other);
}

#[test]
fn held_pages_that_count_as_movable() {
    let by_word = |model: &mut Model| model.fallback.held = HeldMovable::ByWord;
    must_find("steal2", replay::steal2::replay, by_word);
}

#[test]
fn a_preference_for_nodes_without_cpus_at_boot() {
    let early = |model: &mut Model| model.cpu_term_at_boot = CpuTerm::Counted;
    must_find("rebuild", replay::rebuild::replay, early);
}
