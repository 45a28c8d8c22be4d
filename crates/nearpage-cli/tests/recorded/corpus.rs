//! Every recording: predicted, and compared with what its kernel printed.

use std::collections::BTreeMap;

use nearpage_machine::sysfs::TextFile;
use serde_json::Value;

use super::{corpus, json, read, recording, run, stdout, unpacked};

/// Matched, total and apart of each class over all captures.
fn sums(report: &Value) -> BTreeMap<String, [u64; 4]> {
    let mut sums: BTreeMap<String, [u64; 4]> = BTreeMap::new();
    for capture in report.as_array().unwrap() {
        assert_eq!(capture["mismatches"].to_string(), "[]", "{}", capture["path"]);
        for (class, figures) in capture["classes"].as_object().unwrap() {
            let keys = ["matched", "total", "apart", "apart_matched"];
            let sum = sums.entry(class.clone()).or_default();
            for (sum, key) in sum.iter_mut().zip(keys) {
                *sum += figures[key].as_u64().unwrap();
            }
        }
    }
    sums
}

/// The figures that the book prints (trust/oracle.md).
#[test]
fn every_field_of_every_recording_is_predicted() {
    let paths = corpus();
    let mut arguments = vec!["verify", "--strict", "--json"];
    arguments.extend(paths.iter().map(String::as_str));
    let report = json(&arguments);
    assert_eq!((paths.len(), report.as_array().unwrap().len()), (98, 874));
    let sums = sums(&report);
    println!("{} recordings, {sums:#?}", paths.len());
    let expected = [
        ("fallback_order", [385, 385, 0, 0]),
        ("min_free_kbytes", [432, 432, 254, 254]),
        ("numa_mem_id", [1840, 1840, 0, 0]),
        ("pageset_sizes", [50_825, 50_825, 7162, 7162]),
        ("protection", [13_000, 13_000, 1967, 1967]),
        ("thresholds", [25_604, 25_604, 4022, 4022]),
        ("watermarks", [44_298, 44_298, 8480, 8480]),
        ("zonelists", [3180, 3180, 0, 0]),
    ];
    let expected: BTreeMap<String, [u64; 4]> =
        expected.map(|(class, figures)| (class.into(), figures)).into();
    assert_eq!(sums, expected);
}

/// Bundles say so of their kernels, too: of 6.1 and 6.12, on two processors.
#[test]
fn every_field_of_the_bundles_is_predicted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundles");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<String> = paths.map(|path| path.to_string_lossy().into_owned()).collect();
    paths.retain(|path| path.ends_with(".tar.zst"));
    assert_eq!(paths.len(), 5, "{paths:?}");
    let mut arguments = vec!["verify", "--strict", "--json"];
    arguments.extend(paths.iter().map(String::as_str));
    let report = json(&arguments);
    let kernels = report.as_array().unwrap().iter();
    let aarch64 = kernels.filter(|of| of["kernel"].as_str().unwrap().ends_with("-arm64"));
    assert_eq!(aarch64.count(), 3, "captures before, at the end, and after");
    let sums = sums(&report);
    let all = |class: &str| sums[class][1] + sums[class][2];
    for class in ["watermarks", "protection", "pageset_sizes", "thresholds", "fallback_order"] {
        assert!(all(class) > 0 && sums[class][0] == sums[class][1], "{class}: {sums:#?}");
        assert_eq!(sums[class][2], sums[class][3], "{class}: {sums:#?}");
    }
}

#[test]
fn a_line_a_recording_and_one_for_all() {
    let paths = [recording("n2-2g-4c-6.1"), recording("n2-2g-4c-6.12")];
    let text = stdout(&["verify", &paths[0], &paths[1]]);
    let lines: Vec<&str> = text.lines().collect();
    let [first, second, all] = lines[..] else { panic!("{text}") };
    assert!(first.starts_with(&format!("{}: linux-6.1 (6.1.0-56-amd64): watermarks ", paths[0])));
    assert!(second.contains("; boot-time "), "{second}");
    assert!(all.starts_with("all 2 recordings, 24 captures: watermarks "), "{all}");
    let explained = stdout(&["verify", "--explain", &paths[0]]);
    assert_eq!(explained.lines().count(), 13, "{explained}");
    assert!(explained.contains("\n  phase_wsf200: watermarks "), "{explained}");
}

/// A line of zoneinfo with 0 for what does not follow from sizes and settings.
fn at_rest(line: &str, is_high_a_state: bool) -> String {
    let indent = line.len() - line.trim_start().len();
    let is_event = indent == 6;
    let key = line.split_whitespace().next().unwrap_or_default();
    let is_state = is_event
        || line.starts_with("  pages free")
        || ["count:", "node_unreclaimable:"].contains(&key)
        || is_high_a_state && key == "high:";
    match line.rsplit_once(' ') {
        Some((name, _)) if is_state => format!("{name} 0"),
        _ => line.into(),
    }
}

/// Both kernels, a memoryless node, Movable zones, all captures: the kernel's own text, line by line.
#[test]
fn zoneinfo_is_the_kernels_text() {
    let names = ["n4-memless13", "n2-kernelcore1g", "n2-8g-4c-nothp", "fake8-2g"];
    for name in names.map(|name| [format!("{name}-6.1"), format!("{name}-6.12")]).concat() {
        let path = recording(&name);
        let tuned = name.ends_with("-6.12");
        let of_state = |capture: &str| capture == "restored" || capture.starts_with("phase_");
        let document = unpacked(&path);
        let captures = document["captures"].as_object().unwrap();
        for (capture, content) in captures.iter().filter(|(capture, _)| of_state(capture)) {
            let predicted =
                stdout(&["topo", "--bundle", &path, "--capture", capture, "--format", "zoneinfo"]);
            let bounds = ["              high_min: ", "              high_max: "];
            let is_bound = |line: &&str| bounds.iter().any(|bound| line.starts_with(bound));
            assert_eq!(predicted.lines().any(|line| is_bound(&line)), tuned);
            let predicted = predicted.lines().filter(|line| !is_bound(line));
            let recorded = content["zoneinfo"].as_str().unwrap().lines();
            for (ours, theirs) in predicted.clone().zip(recorded.clone()) {
                assert_eq!(ours, at_rest(theirs, tuned), "{name} {capture}");
            }
            assert_eq!(predicted.count(), recorded.count(), "{name} {capture}");
        }
    }
}

/// Lines of the orders at boot, and of those that a module made the kernel build anew, twice.
#[test]
fn fallback_lines_are_the_kernels() {
    let mut rebuilt = 0;
    for path in corpus() {
        let log = unpacked(&path)["dmesg"]["raw"].as_str().unwrap().to_owned();
        let logged = log.lines().filter_map(|line| line.split_once("] Fallback order"));
        // Who recorded the log cut the blanks at the ends of lines.
        let logged: Vec<String> =
            logged.map(|(_, rest)| format!("Fallback order{}", rest.trim_end())).collect();
        let predict = |arguments: &[&str]| {
            let bundle = ["topo", "--bundle", &path, "--format", "fallback"];
            let text = stdout(&[&bundle, arguments].concat());
            text.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>()
        };
        let at_boot = predict(&[]);
        let builds: Vec<&[String]> = logged.chunks(at_boot.len()).collect();
        assert_eq!(builds[0], at_boot, "{path}");
        if builds.len() > 1 {
            rebuilt += 1;
            assert_eq!(builds[1..], [predict(&["--rebuilt"]), predict(&["--rebuilt"])], "{path}");
        }
    }
    assert!(rebuilt > 0, "no log has orders that were built anew");
}

#[test]
fn json_has_what_the_kernel_answers() {
    let path = recording("n4-memless13-6.1");
    let document = json(&["topo", "--bundle", &path, "--format", "json"]);
    assert_eq!(document["schema"], 1);
    assert_eq!(document["kernel"], "6.1.0-56-amd64");
    assert_eq!(document["model"], "linux-6.1");
    assert_eq!(document["capture"], "restored");
    let zones = document["zones"].as_array().unwrap();
    assert_eq!(zones.len(), 20);
    let mut keys: Vec<&String> = zones[0].as_object().unwrap().keys().collect();
    keys.sort();
    let expected = [
        "batch",
        "boost",
        "high",
        "high_max",
        "high_min",
        "low",
        "min",
        "node",
        "promo",
        "protection",
        "stat_threshold",
        "zone",
    ];
    assert_eq!(keys, expected.each_ref());
    let unpopulated = &zones[5];
    assert_eq!((&unpopulated["node"], &unpopulated["zone"]), (&1.into(), &"DMA".into()));
    for key in ["promo", "batch", "high_min", "high_max", "stat_threshold"] {
        assert!(unpopulated[key].is_null(), "{key}");
    }
    assert_eq!(zones[1]["high_min"], zones[1]["high_max"]);
    // 6.1 logs a memoryless node first in its own order; numa_mem_id() answers it too.
    assert_eq!(document["fallback"]["1"][0], 1);
    assert_eq!(document["zonelists"]["1"]["nofallback"].to_string(), "[]");
    assert_eq!(document["numa_mem_id"]["1"], 1);
    let newer = json(&["topo", "--bundle", &recording("n4-memless13-6.12"), "--format", "json"]);
    assert_ne!(newer["fallback"]["1"][0], 1);
    assert!(newer["zones"][0]["promo"].is_u64());
    let lists = &newer["zonelists"]["0"];
    assert_eq!(lists["fallback"][0], "0:DMA32");
    assert_eq!(lists["nofallback"].to_string(), r#"["0:DMA32","0:DMA"]"#);
}

/// The library reads the texts of lists too, of every capture.
#[test]
fn texts_of_free_lists_are_read() {
    use nearpage_bundle::{parse_buddyinfo, parse_pagetypeinfo};
    use nearpage_machine::sysfs::Source;
    for path in corpus() {
        for capture in &read(&path).captures {
            let source = Source::new(&*capture.tree);
            let text =
                |file: &str| -> TextFile { source.read(&format!("proc/{file}")).unwrap().unwrap() };
            let free = parse_buddyinfo(&text("buddyinfo")).unwrap();
            let types = parse_pagetypeinfo(&text("pagetypeinfo")).unwrap();
            assert!(free.iter().all(|zone| zone.blocks.len() == 11), "{path}");
            assert_eq!(types.pageblock_order, Some(9));
            // Debian's kernels of aarch64 have CMA.
            let has_cma = types.free.iter().any(|list| list.migratetype == "CMA");
            assert_eq!(has_cma, path.contains("-virt-"), "{path}");
            let kinds = if has_cma { 6 } else { 5 };
            assert_eq!(types.free.len(), free.len() * kinds, "{path} {}", capture.name);
            assert_eq!(types.pageblocks.len(), free.len());
        }
    }
}

#[test]
fn wrong_wishes_are_refused() {
    let path = recording("n2-2g-4c-6.12");
    let refusal = |arguments: &[&str]| {
        let (code, stdout, stderr) = run(&[&["topo", "--bundle", &path], arguments].concat());
        assert_eq!((code, stdout.as_str()), (2, ""), "{arguments:?}");
        stderr
    };
    assert_eq!(
        refusal(&["--capture", "later"]),
        format!(
            "nearpage: {path}: has no capture later, expected one of: boot, phase_wsf200, \
             phase_wsf1000, phase_minfree_big, phase_minfree_small, phase_lrr, phase_lrr1, phase_phf8, \
             phase_phf100, phase_combo, restored, after_module\n"
        )
    );
    assert!(refusal(&["--model", "nearpage"]).contains("predicts what Linux prints"));
    assert!(
        refusal(&["--set", "vm.swappiness=1"]).contains("expected KEY=VALUE with a KEY of vm.")
    );
    assert_eq!(
        refusal(&["--set", "vm.percpu_pagelist_high_fraction=7"]),
        format!(
            "nearpage: {path}: capture restored: percpu_pagelist_high_fraction is 7; accepted: 0, \
             or 8 and more\n"
        )
    );
    let (code, _, stderr) = run(&["topo", "--model", "auto"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("--model auto goes with --bundle"));
    assert_eq!(run(&["verify"]).0, 2);
    assert_eq!(run(&["topo", "--capture", "boot"]).0, 2);
}

/// Other rules are used where they are asked for, and the difference shows.
#[test]
fn the_model_of_another_kernel_differs() {
    let path = recording("n1-movablecore512-6.12");
    let (code, stdout, _) = run(&["verify", "--model", "linux-6.1", &path]);
    assert_eq!(code, 1);
    assert!(stdout.contains("linux-6.1 is another kernel: "), "{stdout}");
    assert!(stdout.contains("node 0 zone Movable min: predicted "), "{stdout}");
}
