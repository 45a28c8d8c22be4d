//! Every setting on every kind of machine: it acts, or the answer says that it does not.

use nearpage_machine::tunable::Tunable;
use nearpage_machine::work::Unwatched;
use nearpage_machine::{MachineDescription, MachineInput};

use super::*;
use crate::pilot::survey;
use crate::replay::Replay;

/// Two values of each key; a key that is missing here fails the test.
fn two_values(key: &str) -> [&'static str; 2] {
    match key {
        "pcp.tunes_high" | "pcp.below_high" | "pcp.free_high" => ["on", "off"],
        "pcp.batch_scale_max" => ["0", "6"],
        "pcp.batch" | "pcp.high_min" | "pcp.high_max" => ["7", "63"],
        "zone.instances" => ["1", "4"],
        "vm.percpu_pagelist_high_fraction" => ["8", "10000"],
        "vm.min_free_kbytes" => ["100", "200000"],
        "vm.lowmem_reserve_ratio" => ["1 1 1", "9 9"],
        "vm.watermark_scale_factor" => ["1", "3000"],
        "vm.watermark_boost_factor" => ["0", "30000"],
        key => panic!("{key}: two values are missing here"),
    }
}

struct Asked<'a> {
    replay: &'a Replay,
    survey: Survey,
}

impl Asked<'_> {
    fn answer(&self, wish: &Wish) -> Answer {
        let (bundle, start) = (self.replay.bundle(), self.replay.start());
        let watch = Watch::new(&Unwatched, 1, 1);
        let other = start_of(bundle.name(), start, wish).unwrap();
        let load =
            Load { source: bundle.source(), survey: &self.survey, recorded: start, watch: &watch };
        load.ask(Wished { wish, start: &other }, Guess::Likely, Keeps::default()).unwrap()
    }
}

fn tunable(key: &str, value: &str) -> Tunable {
    format!("{key}={value}").parse().unwrap()
}

fn outcome(answer: &Answer) -> (Totals, String) {
    (answer.totals.clone(), format!("{:?}", answer.causes))
}

#[test]
fn every_setting_acts_or_is_told_not_to() {
    let replay = Replay::shipped();
    let survey = survey(replay.bundle(), replay.start(), &Watch::new(&Unwatched, 1, 1)).unwrap();
    let asked = Asked { replay: &replay, survey };
    let described = |nodes: &[&str]| {
        let nodes = nodes.iter().map(ToString::to_string).collect();
        let input = MachineInput::ShortForm { nodes, distances: Vec::new() };
        Some(MachineDescription::read(&input, &nearpage_machine::Budget::DEFAULT).unwrap())
    };
    let machines = [
        None,
        Some(replay.scaled_machine(5, 1).unwrap()),
        described(&["0,cpus=0-1", "3G", "0,cpus=2-3", "3G"]),
        described(&["5G,cpus=0-3", "1G"]),
    ];
    let mut count = 0;
    for (machine, model) in machines.iter().zip([None, None, None, Some(Model::NEARPAGE)]) {
        for key in Tunable::keys() {
            let answers = two_values(key.name).map(|value| {
                let tunables = vec![tunable(key.name, value)];
                asked.answer(&Wish { tunables, model, machine: machine.clone(), ..Wish::default() })
            });
            let [one, other] = answers.each_ref().map(|answer| &answer.changes.settings[..]);
            let ([one], [other]) = (one, other) else { panic!("{}: one setting", key.name) };
            assert_eq!((one.key, other.key), (key.name, key.name));
            assert!(one.after != other.after, "{one:?} {other:?}");
            let [first, second] = answers.each_ref().map(outcome);
            let is_told = one.no_effect.is_some() || other.no_effect.is_some();
            let has_moved = answers[0].changes.sizes != answers[1].changes.sizes;
            // Rules that this load never meets: `no_difference` of a report says so.
            let is_rare = ["pcp.below_high", "pcp.free_high"].contains(&key.name);
            assert!(
                first != second || is_told || has_moved || is_rare,
                "{}: {one:?} {other:?}",
                key.name
            );
            count += 1;
        }
    }
    assert_eq!(count, machines.len() * Tunable::keys().count());
}

#[test]
fn what_is_said_to_do_nothing_does_nothing() {
    let replay = Replay::shipped();
    let survey = survey(replay.bundle(), replay.start(), &Watch::new(&Unwatched, 1, 1)).unwrap();
    let asked = Asked { replay: &replay, survey };
    let mut count = 0;
    for model in Model::ALL {
        let idle = Tunable::keys()
            .filter(|key| tunable(key.name, two_values(key.name)[0]).idle_under(&model).is_some());
        let wish = Wish { model: Some(model), ..Wish::default() };
        let without = outcome(&asked.answer(&wish));
        for key in idle {
            let [one, other] = two_values(key.name).map(|value| {
                asked.answer(&Wish { tunables: vec![tunable(key.name, value)], ..wish.clone() })
            });
            assert_eq!(outcome(&one), without, "{} under {}", key.name, model.name);
            assert_eq!(outcome(&other), without, "{} under {}", key.name, model.name);
            assert!(one.changes.settings[0].no_effect.is_some());
            count += 1;
        }
    }
    assert!(count >= 7, "{count} keys do nothing under some rules");
}
