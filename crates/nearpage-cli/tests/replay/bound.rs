//! `nearpage replay --bound`: no rules need fewer holds than the bound says, and wrong questions are refused.

use std::path::PathBuf;

use serde_json::Value;

use super::{nearpage, shipped, stdout};

const MODELS: [&str; 8] = [
    "linux-6.1",
    "linux-6.6",
    "series-2023",
    "linux-6.12",
    "linux-6.18",
    "nearpage",
    "rfc-2023-zones",
    "rfc-2026-owned",
];

fn bound(bundle: &str, arguments: &[&str]) -> Value {
    let arguments = [&["replay", bundle, "--bound", "--json"], arguments].concat();
    serde_json::from_str(&stdout(&arguments)).unwrap()
}

/// The bundle of the sources, and those that `NEARPAGE_BUNDLES` names a folder of.
fn bundles() -> Vec<PathBuf> {
    let folder = std::env::var_os("NEARPAGE_BUNDLES").map(PathBuf::from);
    let entries = folder.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    let is_bundle = |path: &PathBuf| {
        path.join("meta.json").exists() || path.to_string_lossy().ends_with(".tar.zst")
    };
    std::iter::once(shipped()).chain(paths.filter(is_bundle)).collect()
}

/// With as much memory as the rules had at most and holds as long as theirs, the bound is not above them.
#[test]
fn no_rules_take_fewer_holds_than_the_bound() {
    let models: Vec<&str> = MODELS.iter().flat_map(|model| ["--model", model]).collect();
    let bundles = bundles();
    let mut is_any_needed = false;
    for bundle in bundles {
        let answer = bound(bundle.to_str().unwrap(), &models);
        let standings = answer["models"].as_array().unwrap();
        assert_eq!(
            standings.len(),
            MODELS.len(),
            "{}: the recorded one is among them",
            bundle.display()
        );
        for of in standings {
            let [holds, least] = ["holds", "least_holds"].map(|key| of[key].as_u64().unwrap());
            let what = format!("{}: {of}", bundle.display());
            assert!(least <= holds, "{what}");
            is_any_needed |= least > 0;
            let causes = &of["causes"];
            let named =
                ["refill", "drain", "foreign", "upkeep"].map(|key| causes[key].as_u64().unwrap());
            let direct = causes["direct"].as_object().unwrap().values();
            let direct: u64 = direct.map(|holds| holds.as_u64().unwrap()).sum();
            assert_eq!(named.iter().sum::<u64>() + direct, holds, "{what}");
            let mean = of["kept_pages_mean"].as_f64().unwrap();
            assert!(mean <= of["kept_pages_max"].as_f64().unwrap(), "{what}");
        }
    }
    assert!(is_any_needed, "a bound of 0 everywhere holds for nothing");
}

#[test]
fn points_are_those_that_were_asked_for_and_wider_classes_need_less() {
    let bundle = shipped();
    let answer = bound(bundle.to_str().unwrap(), &["--at", "1000:100", "--at", "1000:500"]);
    let points = answer["points"].as_array().unwrap();
    let key =
        |point: &Value| (point["k"].as_u64().unwrap(), point["class"].as_str().unwrap().to_owned());
    let keys: Vec<(u64, String)> = points.iter().map(key).collect();
    let all = [100, 500].map(|k| ["pooled", "per-cpu", "lists"].map(|class| (k, class.to_owned())));
    assert_eq!(keys, all.concat());
    let fewest: Vec<u64> = points.iter().map(|point| point["fewest"].as_u64().unwrap()).collect();
    assert!(fewest[0] <= fewest[1] && fewest[1] <= fewest[2], "{fewest:?}");
    assert!((0..3).all(|at| fewest[at + 3] <= fewest[at]), "longer holds: {fewest:?}");
}

#[test]
fn several_rules_are_an_array_beside_the_what_if() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let arguments = ["replay", bundle, "--json", "--model", "nearpage", "--model", "linux-6.1"];
    let report: Value = serde_json::from_str(&stdout(&arguments)).unwrap();
    let rules = report["rules"].as_array().unwrap();
    let names: Vec<&str> = rules.iter().map(|of| of["model"].as_str().unwrap()).collect();
    assert_eq!(names, ["nearpage", "linux-6.1"]);
    assert_eq!(report["what_if"]["model"], "nearpage");
    assert_eq!(report["what_if"]["what_if"], rules[0]["totals"]);
    assert!(rules[1]["totals"]["kept_pages_mean"].as_f64() > Some(0.0));
}

#[test]
fn points_that_nothing_can_have_are_refused() {
    let bundle = shipped();
    let refused = |arguments: &[&str], named: &str| {
        let all = [&["replay", bundle.to_str().unwrap()], arguments].concat();
        let output = nearpage(&all);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{named}: {message}");
        assert!(output.stdout.is_empty());
    };
    for point in ["0:5", "5:0", "5", "5:", ":5", "-1:5", "a:b", "1:2:3", ""] {
        refused(&["--bound", &format!("--at={point}")], "expected H:K");
    }
    refused(&["--bound", "--at", "99999999999:5"], "the pages of the machine");
    refused(&["--at", "5:5"], "--bound");
    refused(&["--bound", "--model", "linux-0.1"], "linux-6.18");
}

#[test]
fn rules_of_objects_are_for_slab_events() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let refused = |arguments: &[&str], named: &str| {
        let output = nearpage(&[&["replay", bundle], arguments].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{named}: {message}");
    };
    refused(&["--model", "sheaves-7.0"], "no slab events");
    refused(&["--bound", "--model", "sheaves-7.1"], "about pages");
    refused(&["--model", "sheaves-6.0"], "sheaves-7.1");
}
