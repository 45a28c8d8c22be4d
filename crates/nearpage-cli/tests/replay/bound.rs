//! `nearpage replay --bound`: no rules need fewer holds than the bound says, and wrong questions are refused.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{nearpage, shipped, stdout, trace, unpack_shipped};

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

/// The same for all that tunables can make of a kernel's rules.
#[test]
fn no_sweep_takes_fewer_holds_than_the_bound() {
    let (mut combinations, mut is_any_needed) = (0, false);
    for bundle in bundles() {
        let over = ["pcp.batch_scale_max=0,5", "pcp.batch=7,63"];
        let over =
            over.iter().flat_map(|over| ["--over", over]).chain(["--over", "pcp.free_high=on,off"]);
        let arguments = ["replay", "sweep", bundle.to_str().unwrap(), "--json"];
        let arguments: Vec<&str> = arguments.into_iter().chain(over).collect();
        let sweep: Value = serde_json::from_str(&stdout(&arguments)).unwrap();
        let points = sweep["points"].as_array().unwrap();
        assert_eq!(points.len(), 8);
        for point in points {
            let [holds, least] =
                ["lock_acquisitions", "least_holds"].map(|key| point[key].as_u64().unwrap());
            assert!(least <= holds, "{}: {point}", bundle.display());
            assert!(point["bound_ratio"].as_f64() > Some(0.0));
            is_any_needed |= least > 0;
        }
        combinations += points.len();
    }
    println!("{combinations} combinations");
    assert!(is_any_needed, "a bound of 0 everywhere holds for nothing");
}

/// A free may fill the pageset of another CPU: what is kept is what the core has.
#[test]
fn what_is_kept_is_what_the_pagesets_have() {
    let bundle = shipped();
    for model in MODELS {
        let arguments = ["replay", bundle.to_str().unwrap(), "--json", "--model", model];
        let report: Value = serde_json::from_str(&stdout(&arguments)).unwrap();
        let totals = &report["what_if"]["what_if"];
        let kept = totals["kept_pages_end"].as_u64().unwrap();
        assert_eq!(kept * 4096, totals["cached_bytes"].as_u64().unwrap(), "{model}");
        let longest = totals["longest_hold_ns"].as_f64().unwrap();
        let pages = totals["most_pages_per_hold"].as_u64().unwrap() as f64;
        // By `bench/pages.txt`, if they were taken, and if they came back.
        let [taken, returned] = [0.7, 2.7].map(|ns| 33.2 + ns * pages);
        // Rules of our own hold no lock.
        let is_none = model == "nearpage" && longest == 0.0 && pages == 0.0;
        let is_one = (taken..=returned).contains(&longest);
        assert!(is_none || is_one, "{model}: {longest} ns, {pages} pages");
    }
}

/// The shipped bundle with another trace.
fn with_trace(folder: &Path, change: impl FnMut(&str) -> Option<String>) -> PathBuf {
    let bundle = unpack_shipped(folder);
    let lines: Vec<String> = trace(&bundle).lines().filter_map(change).collect();
    fs::write(bundle.join("trace.txt"), lines.join("\n") + "\n").unwrap();
    bundle
}

/// A line with another CPU; the first of its fields in brackets is the CPU.
fn on_cpu(line: &str, cpu: &str) -> String {
    match (line.find('['), line.find(']')) {
        (Some(begin), Some(end)) if begin < end => {
            format!("{}[{cpu}]{}", &line[..begin], &line[end + 1..])
        }
        _ => line.to_owned(),
    }
}

/// They are left out, as the comparison with the kernel leaves them out.
#[test]
fn cpus_that_the_machine_does_not_have_are_no_stores() {
    let folder = tempfile::tempdir().unwrap();
    let mut moved = 0;
    let bundle = with_trace(folder.path(), |line| {
        let is_moved = line.contains("mm_page_alloc:") && moved < 500;
        moved += u64::from(is_moved);
        let cpu = if moved % 2 == 0 { "009" } else { "70001" };
        Some(if is_moved { on_cpu(line, cpu) } else { line.to_owned() })
    });
    let bundle = bundle.to_str().unwrap();
    let answer = bound(bundle, &["--model", "rfc-2026-owned"]);
    assert_eq!(answer["cpus"], 4);
    let report = stdout(&["replay", bundle, "--json", "--model", "linux-6.12"]);
    let report: Value = serde_json::from_str(&report).unwrap();
    let what_if = &report["what_if"];
    assert_eq!(what_if["what_if"], what_if["predicted"]);
    assert_eq!(answer["models"][0]["holds"], what_if["predicted"]["lock_acquisitions"]);
    let sweep = stdout(&["replay", "sweep", bundle, "--over", "pcp.batch=1"]);
    assert!(sweep.contains("1 combinations"), "{sweep}");
}

#[test]
fn a_trace_on_one_cpu_or_without_time_has_a_bound() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = with_trace(folder.path(), |line| Some(on_cpu(line, "000")));
    let answer = bound(bundle.to_str().unwrap(), &["--at", "1000:100", "--at", "4000:100"]);
    let fewest = |at: usize| answer["points"][at]["fewest"].as_u64().unwrap();
    // One store of all pages: the pooled one of four CPUs is as large as the CPU's own with four times the pages.
    assert_eq!(fewest(0), fewest(4), "{answer}");
    let folder = tempfile::tempdir().unwrap();
    let bundle = with_trace(folder.path(), |line| {
        let time = line
            .split_whitespace()
            .find(|word| word.strip_suffix(':').is_some_and(|word| word.parse::<f64>().is_ok()));
        Some(time.map_or(line.to_owned(), |time| line.replacen(time, "100.000000:", 1)))
    });
    let answer = bound(bundle.to_str().unwrap(), &["--model", "nearpage"]);
    for of in answer["models"].as_array().unwrap() {
        assert_eq!(of["kept_pages_mean"].as_f64(), of["kept_pages_end"].as_f64(), "{of}");
        assert!(of["bound"].as_u64() > Some(0), "{of}");
    }
}

#[test]
fn a_trace_that_no_pageset_serves_has_forced_holds_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut left = 20;
    let bundle = with_trace(folder.path(), |line| {
        if line.contains("nearpage_bulk") {
            return None;
        }
        if !line.contains(": mm_page") {
            return Some(line.to_owned());
        }
        let pfn = line.split("pfn=0x").nth(1)?.split(' ').next()?;
        let is_taken = line.contains("mm_page_alloc:")
            && left > 0
            && u64::from_str_radix(pfn, 16).ok()? % 32 == 0;
        left -= u64::from(is_taken);
        is_taken.then(|| line.replace("order=0", "order=5"))
    });
    let bundle = bundle.to_str().unwrap();
    let models =
        ["--model", "nearpage", "--model", "rfc-2026-owned", "--at", "9:7", "--at", "9:32"];
    let answer = bound(bundle, &models);
    for of in answer["models"].as_array().unwrap() {
        let counts = ["holds", "bound", "forced"].map(|key| of[key].as_u64().unwrap());
        assert_eq!(counts[1], counts[2], "{of}");
        // nearpage's rules cache these blocks too: nothing is forced on them.
        assert!(counts[0] >= counts[1] && (counts[1] > 0) == (of["model"] != "nearpage"), "{of}");
    }
    let all = answer["points"].as_array().unwrap().iter();
    let (short, long): (Vec<&Value>, Vec<&Value>) = all.partition(|point| point["k"] == 7);
    assert!(short.iter().all(|point| point["fewest"] == point["forced"]), "{answer}");
    // 32 pages by seven at most are five holds.
    let forced = |of: &Value| of["forced"].as_u64().unwrap();
    assert_eq!(forced(short[0]), 5 * forced(long[0]), "{answer}");
    let text = stdout(&["replay", bundle, "--bound"]);
    assert!(text.contains("no pageset is used") && text.contains("5: 2"), "{text}");
}

#[test]
fn a_trace_without_blocks_is_refused_and_one_of_an_unknown_kernel_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bundle =
        with_trace(folder.path(), |line| (!line.contains("mm_page")).then(|| line.to_owned()));
    for arguments in [&["--bound"][..], &["--bound", "--json"], &["--model", "nearpage"]] {
        let output = nearpage(&[&["replay", bundle.to_str().unwrap()], arguments].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("without an event of a block"), "{message}");
    }
    for (kernel, model) in [("4.4.0", "linux-6.1"), ("7.5.0-rc1", "linux-6.18"), ("", "linux-6.12")]
    {
        let folder = tempfile::tempdir().unwrap();
        let bundle = unpack_shipped(folder.path());
        let path = bundle.join("meta.json");
        let mut meta: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        meta["kernel"] = kernel.into();
        fs::write(&path, meta.to_string()).unwrap();
        let answer = bound(bundle.to_str().unwrap(), &["--at", "100:100"]);
        assert_eq!(
            (&answer["is_nearest_model"], &answer["models"][0]["model"]),
            (&true.into(), &model.into())
        );
        let text = stdout(&["replay", bundle.to_str().unwrap(), "--bound", "--at", "100:100"]);
        assert!(text.contains("the nearest that is modelled"), "{text}");
    }
}

/// As a trace without a bound is judged.
#[test]
fn a_trace_of_another_recording_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    // The window of another recording of the same machine: fewer samples than before.
    let text = trace(&bundle);
    let text = text.lines().filter(|line| !line.contains("nearpage: sample 1"));
    let other = folder.path().join("other.txt");
    fs::write(&other, text.collect::<Vec<_>>().join("\n") + "\n").unwrap();
    let refusal = |arguments: &[&str]| {
        let all = ["replay", bundle.to_str().unwrap(), "--trace", other.to_str().unwrap()];
        let output = nearpage(&[&all, arguments].concat());
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(refusal(&[]).0, Some(2));
    assert_eq!(refusal(&["--bound"]), refusal(&[]));
}

#[test]
fn rules_that_are_named_twice_are_replayed_once() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let twice = ["--model", "nearpage", "--model", "nearpage", "--model", "auto"];
    let names = |of: &Value| -> Vec<String> {
        of.as_array().unwrap().iter().map(|of| of["model"].as_str().unwrap().into()).collect()
    };
    assert_eq!(names(&bound(bundle, &twice)["models"]), ["linux-6.12", "nearpage"]);
    let report = stdout(&[&["replay", bundle, "--json"], &twice[..]].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(names(&report["rules"]), ["nearpage", "linux-6.12"]);
    let report = stdout(&[&["replay", bundle, "--json"], &twice[..4]].concat());
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(
        (names(&report["rules"]), &report["what_if"]["model"]),
        (vec![], &"nearpage".into())
    );
}

/// The page draws the bound as a line for each K and each set of rules as a point, no two of one colour.
#[test]
fn the_page_has_a_plot_for_each_class() {
    let models: Vec<&str> = MODELS.iter().flat_map(|model| ["--model", model]).collect();
    let bundle = shipped();
    let arguments = ["replay", bundle.to_str().unwrap(), "--bound", "--report", "-"];
    let page = stdout(&[&arguments, &models[..]].concat());
    assert_eq!(page.matches("<svg ").count(), 3);
    let captions: Vec<&str> = page.split("<figcaption>").skip(1).collect();
    for caption in captions {
        let caption = caption.split("</figcaption>").next().unwrap();
        let mut colours: Vec<&str> = caption
            .split("background:")
            .skip(1)
            .filter_map(|text| text.split('"').next())
            .collect();
        assert_eq!(colours.len(), 3 + MODELS.len(), "{caption}");
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), 3 + MODELS.len(), "{caption}");
    }
    let points = page.matches("<circle").count();
    assert_eq!(points, 3 * MODELS.len());
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
        refused(&["--bound", "--at", point], "expected H:K");
    }
    refused(&["--bound", "--at", "99999999999:5"], "the pages of the machine");
    refused(&["--at", "5:5"], "--bound");
    refused(&["--bound", "--model", "linux-0.1"], "linux-6.18");
}

/// An option that the bound does not heed is refused, and not passed over in silence.
#[test]
fn options_that_the_bound_has_no_use_for_are_refused() {
    let bundle = shipped();
    for option in [
        ["--explain", "1"],
        ["--placement", "recorded"],
        ["--starts", "3"],
        ["--set", "pcp.batch=1"],
        ["--zonelist-cache", "keyed"],
        ["--topology", "memoryless-8n2m"],
        ["--map-cpus", "comm"],
        ["--repeat", "2"],
        ["--cpus", "8"],
    ] {
        let all = [&["replay", bundle.to_str().unwrap(), "--bound"], &option[..]].concat();
        let output = nearpage(&all);
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{option:?}: {message}");
        assert!(
            message.contains("--bound") && message.contains(option[0]),
            "{option:?}: {message}"
        );
        assert!(output.stdout.is_empty());
    }
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
