//! Recordings that were changed: without their derived fields, with other ones, and of other machines.

use serde_json::{Value, json};

use super::{json as run_json, read, recording, run, stdout, unpacked, write};

const KEYS: [&str; 5] = ["min", "low", "high", "promo", "protection"];

/// Deletes all that is derived, in each place where it stands.
fn delete_derived(document: &mut Value) {
    for capture in document["captures"].as_object_mut().unwrap().values_mut() {
        for zone in capture["parsed"]["zones"].as_array_mut().unwrap() {
            let zone = zone.as_object_mut().unwrap();
            KEYS.iter().for_each(|key| drop(zone.remove(*key)));
            zone.remove("pcp");
        }
        let is_kept = |line: &&str| {
            let key = line.split_whitespace().next().unwrap_or_default();
            let colons = ["protection:", "pagesets", "cpu:", "count:", "high:", "batch:", "vm"];
            !KEYS.contains(&key) && !colons.contains(&key)
        };
        let text = capture["zoneinfo"].as_str().unwrap();
        capture["zoneinfo"] = json!(text.lines().filter(is_kept).collect::<Vec<_>>().join("\n"));
    }
    document["dmesg"].as_object_mut().unwrap().remove("fallback");
    document["module"] = json!({});
}

#[test]
fn derived_fields_are_not_read() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["n4-memless13-6.1", "n2-8g-4c-nothp-6.12", "n2-kernelcore1g-6.12", "fake8-2g-6.1"]
    {
        let whole = recording(name);
        let mut document = unpacked(&whole);
        delete_derived(&mut document);
        let mut files = vec![write(folder.path(), "both.json", &document)];
        for key in ["parsed", "zoneinfo"] {
            let mut document = document.clone();
            for capture in document["captures"].as_object_mut().unwrap().values_mut() {
                capture.as_object_mut().unwrap().remove(key);
            }
            files.push(write(folder.path(), &format!("without-{key}.json"), &document));
        }
        for format in ["json", "zoneinfo", "fallback"] {
            for capture in ["boot", "phase_wsf200", "phase_minfree_big", "restored"] {
                let print = |file: &str| {
                    stdout(&["topo", "--bundle", file, "--capture", capture, "--format", format])
                };
                let expected = print(&whole);
                files.iter().for_each(|file| assert_eq!(print(file), expected, "{name} {file}"));
            }
        }
        assert_eq!(run(&["verify", &files[0]]).0, 0);
    }
}

/// Changes one recorded number; whether the zone is read from the text or from what was read of it.
fn change(document: &mut Value, capture: &str, in_text: bool) {
    let capture = &mut document["captures"][capture];
    if in_text {
        let text = capture["zoneinfo"].as_str().unwrap();
        let (head, rest) = text.split_once("        low      ").unwrap();
        capture["zoneinfo"] = json!(format!("{head}        low      1{rest}"));
    } else {
        capture["parsed"]["zones"][0]["low"] = json!(1);
    }
}

#[test]
fn a_wrong_number_is_found() {
    let folder = tempfile::tempdir().unwrap();
    for in_text in [false, true] {
        let mut document = unpacked(&recording("n2-2g-4c-6.12"));
        change(&mut document, "phase_phf8", in_text);
        let path = write(folder.path(), "wrong.json", &document);
        let (code, stdout, stderr) = run(&["verify", "--json", &path]);
        assert_eq!((code, stderr.as_str()), (1, "nearpage: 1 fields differ\n"));
        let report: Value = serde_json::from_str(&stdout).unwrap();
        let captures = report.as_array().unwrap();
        let wrong = captures.iter().find(|one| one["capture"] == "phase_phf8").unwrap();
        assert_eq!(wrong["model"], "linux-6.12");
        let mismatch = &wrong["mismatches"][0];
        assert_eq!(mismatch["field"], "node 0 zone DMA low");
        assert_ne!(mismatch["predicted"], mismatch["recorded"]);
        assert!(mismatch["rule"].as_str().unwrap().contains("__setup_per_zone_wmarks"));
        let figures = &wrong["classes"]["watermarks"];
        let figure = |key: &str| figures[key].as_u64().unwrap();
        assert_eq!((figure("total") - figure("matched"), figure("apart")), (1, 0));
        let (code, stdout, _) = run(&["verify", &path]);
        assert_eq!(code, 1);
        assert!(stdout.contains("    phase_phf8: node 0 zone DMA low: predicted "), "{stdout}");
    }
}

/// `min_free_kbytes` where nobody wrote it, and the order as the log has it beside what was read of it.
#[test]
fn wrong_settings_and_logs_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let whole = unpacked(&recording("n4-ring-6.12"));
    let differences = |document: &Value| {
        let path = write(folder.path(), "wrong.json", document);
        let (code, stdout, _) = run(&["verify", &path]);
        assert_eq!(code, 1, "{stdout}");
        stdout.lines().skip(1).map(String::from).collect::<Vec<_>>()
    };
    let mut document = whole.clone();
    let kbytes = &mut document["captures"]["restored"]["sysctl_vm"]["min_free_kbytes"];
    let recorded = kbytes.as_str().unwrap().to_owned();
    *kbytes = json!((recorded.parse::<u64>().unwrap() + 1).to_string());
    let found = differences(&document);
    let expected =
        format!("    restored: min_free_kbytes: predicted {recorded}, the kernel printed ");
    assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?}");
    let mut document = whole;
    let log = document["dmesg"]["raw"].as_str().unwrap();
    let changed = log.replacen("for Node 1: 1 2 0 3", "for Node 1: 1 0 2 3", 1);
    assert_ne!(log, changed);
    document["dmesg"]["raw"] = json!(changed);
    let found = differences(&document);
    let expected = "    boot: node 1 fallback: predicted [1,2,0,3], the kernel printed [1,0,2,3]; ";
    assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
}

/// What tells nothing, or one thing twice, is no recording.
#[test]
fn no_captures_and_doubled_zones_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut document = unpacked(&recording("n1-2g-1c-6.12"));
    let zones = document["captures"]["restored"]["parsed"]["zones"].as_array_mut().unwrap();
    zones.push(zones[1].clone());
    let path = write(folder.path(), "doubled.json", &document);
    let (code, _, stderr) = run(&["verify", &path]);
    assert_eq!(code, 2);
    let expected = "captures.restored.zoneinfo: zone DMA32 of node 0 is told twice, expected each";
    assert!(stderr.contains(expected), "{stderr}");
    document["captures"] = json!({});
    let path = write(folder.path(), "empty.json", &document);
    let (code, stdout, stderr) = run(&["verify", &path]);
    assert_eq!((code, stdout.as_str()), (2, ""));
    assert!(stderr.contains("empty.json: no captures, expected captures.NAME\n"), "{stderr}");
}

/// Changes the marks of a zone at boot.
fn change_marks(document: &mut Value, zone: usize, change: impl Fn(&str, u64) -> u64) {
    let boot = &mut document["captures"]["boot"];
    boot.as_object_mut().unwrap().remove("zoneinfo");
    for mark in ["min", "low", "high", "promo"] {
        let recorded = &mut boot["parsed"]["zones"][zone][mark];
        *recorded = json!(change(mark, recorded.as_u64().unwrap()));
    }
}

/// What was computed at boot is apart, and counts with --strict only: here a page more, as other sizes would
/// have given it.
#[test]
fn a_wrong_number_of_boot_is_apart() {
    let folder = tempfile::tempdir().unwrap();
    let mut document = unpacked(&recording("n2-2g-4c-6.12"));
    change_marks(&mut document, 1, |_, mark| mark + 1);
    let path = write(folder.path(), "wrong.json", &document);
    let (code, stdout, _) = run(&["verify", "--json", &path]);
    assert_eq!(code, 0, "{stdout}");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    let boot = &report[0];
    assert_eq!((&boot["capture"], boot["mismatches"].to_string().as_str()), (&"boot".into(), "[]"));
    assert_eq!(boot["boot_time_mismatches"][0]["field"], "node 0 zone DMA32 min");
    let figures = &boot["classes"]["watermarks"];
    assert_eq!(figures["total"], 0);
    let figure = |key: &str| figures[key].as_u64().unwrap();
    assert_eq!(figure("apart") - figure("apart_matched"), 4);
    let (code, stdout, _) = run(&["verify", "--strict", &path]);
    assert_eq!(code, 1);
    assert!(stdout.contains("    boot: boot-time: node 0 zone DMA32 low: "), "{stdout}");
}

/// Marks that are not evenly spaced, or that share out more or less than there is, protection and batches that
/// are more than the zones of now give: no earlier sizes explain them.
#[test]
fn what_no_earlier_sizes_explain_is_a_difference() {
    let folder = tempfile::tempdir().unwrap();
    let whole = unpacked(&recording("n2-2g-4c-6.12"));
    let refuses = |document: &Value, line: &str| {
        let path = write(folder.path(), "wrong.json", document);
        let (code, stdout, _) = run(&["verify", &path]);
        assert_eq!(code, 1, "{stdout}");
        assert!(stdout.contains(line), "{line}\n{stdout}");
    };
    let mut document = whole.clone();
    change_marks(&mut document, 1, |name, mark| mark + u64::from(name == "low"));
    refuses(&document, "\n    boot: node 0 zone DMA32 low: predicted ");
    for difference in [-9, 9] {
        let mut document = whole.clone();
        change_marks(&mut document, 1, |_, mark| mark.saturating_add_signed(difference));
        refuses(&document, "\n    boot: node 0 zone DMA32 min: predicted ");
    }
    let mut document = whole.clone();
    change_marks(&mut document, 1, |_, mark| mark);
    document["captures"]["boot"]["parsed"]["zones"][1]["pcp"][0]["batch"] = json!(64);
    refuses(&document, "\n    boot: node 0 zone DMA32 cpu 0 batch: predicted ");
}

/// Orders, lists and answers of a module that are wrong.
#[test]
fn wrong_orders_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let mut document = unpacked(&recording("n4-memless13-6.12"));
    document["dmesg"]["fallback"]["1"] = json!([3, 2, 0]);
    let info = document["module"]["info"].as_str().unwrap();
    let info = info.replace("CPU cpu=1 numa_node=1 numa_mem=1", "CPU cpu=1 numa_node=1 numa_mem=2");
    document["module"]["info"] =
        json!(info.replacen("order=0:DMA32,0:DMA", "order=0:DMA,0:DMA32", 1));
    let path = write(folder.path(), "wrong.json", &document);
    let (code, stdout, _) = run(&["verify", &path]);
    assert_eq!(code, 1);
    for line in [
        "    boot: node 1 fallback: predicted [2,0], the kernel printed [3,2,0]; by distance",
        "    restored: node 0 FALLBACK: predicted [\"0:DMA32\",\"0:DMA\",",
        "    restored: cpu 1 numa_mem_id: predicted 1, the kernel printed 2; the CPU's own node",
    ] {
        assert!(stdout.contains(line), "{line}\n{stdout}");
    }
}

/// A machine with other ids, more nodes and another table of distances.
#[test]
fn sparse_ids_and_made_up_distances() {
    let mut document = unpacked(&recording("n2-2g-4c-6.12"));
    let sys = document["sys"].as_object_mut().unwrap();
    for key in ["online", "possible"] {
        sys.insert(key.into(), json!("0,8,252"));
    }
    let mut node = sys.remove("node1").unwrap();
    node["meminfo"] = json!(node["meminfo"].as_str().unwrap().replace("Node 1 ", "Node 8 "));
    sys.insert("node8".into(), node);
    sys["node0"]["distance"] = json!("10 40 15");
    sys["node8"]["distance"] = json!("40 10 80");
    sys.insert("node252".into(), json!({ "cpulist": "", "distance": "15 80 10" }));
    for capture in document["captures"].as_object_mut().unwrap().values_mut() {
        capture.as_object_mut().unwrap().remove("zoneinfo");
        let zones = capture["parsed"]["zones"].as_array_mut().unwrap();
        let mut more: Vec<Value> = zones.iter().filter(|zone| zone["node"] == 1).cloned().collect();
        zones.iter_mut().filter(|zone| zone["node"] == 1).for_each(|zone| zone["node"] = json!(8));
        more.iter_mut().for_each(|zone| zone["node"] = json!(252));
        zones.extend(more);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "sparse.json", &document);
    let document = run_json(&["topo", "--bundle", &path, "--format", "json"]);
    let expected = json!({ "0": [0, 252, 8], "8": [8, 0, 252], "252": [252, 0, 8] });
    assert_eq!(document["fallback"], expected);
    assert_eq!(document["zonelists"]["252"]["nofallback"], json!(["252:DMA32"]));
    assert_eq!(document["zones"].as_array().unwrap().len(), 15);
    // Nobody is at home on node 252: all four CPUs share its zone, two that of node 8.
    let high_max = |node: u64| {
        let zones = document["zones"].as_array().unwrap();
        let is_it = |zone: &&Value| zone["node"] == node && zone["zone"] == "DMA32";
        zones.iter().find(is_it).unwrap()["high_max"].as_u64().unwrap()
    };
    assert_eq!(high_max(252), high_max(8) / 2);
    let rebuilt = run_json(&["topo", "--bundle", &path, "--rebuilt", "--format", "json"]);
    assert_eq!(rebuilt["fallback"]["0"], json!([0, 252, 8]));
}

/// A setting that a capture does not have is the kernel's default; `min_free_kbytes` is predicted.
#[test]
fn settings_may_be_missing() {
    let mut document = unpacked(&recording("n2-8g-4c-nothp-6.12"));
    let restored = &mut document["captures"]["restored"];
    restored["sysctl_vm"] = json!({});
    let recorded = restored["parsed"]["zones"][1]["protection"].clone();
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "bare.json", &document);
    let document = run_json(&["topo", "--bundle", &path, "--format", "json"]);
    assert_eq!(document["min_free_kbytes"], 11_389);
    assert_eq!(document["zones"][1]["protection"], recorded);
    assert_eq!(run(&["verify", &path]).0, 0);
}

/// Whatever the machine has: settings that somebody wrote are no prediction, others are.
#[test]
fn min_free_kbytes_is_what_was_written_or_follows() {
    let path = recording("n2-8g-4c-nothp-6.12");
    let of = |arguments: &[&str]| {
        let document =
            run_json(&[&["topo", "--format", "json", "--bundle", &path], arguments].concat());
        document["min_free_kbytes"].as_u64().unwrap()
    };
    assert_eq!(of(&[]), 11_389);
    assert_eq!(of(&["--capture", "phase_minfree_big"]), 65_536);
    assert_eq!(of(&["--capture", "phase_wsf200"]), 11_389);
    assert_eq!(of(&["--set", "vm.min_free_kbytes=4096"]), 4096);
    assert_eq!(read(&path).captures[0].min_free_kbytes(), Some(11_389));
}

/// A phase that wrote no watermark leaves them as boot made them, until a later phase does.
#[test]
fn what_no_phase_computed_anew_stays_boot_time() {
    let report = run_json(&["verify", "--strict", "--json", &recording("n5-mixed-6.12")]);
    let captures = report.as_array().unwrap();
    let names: Vec<&str> = captures.iter().map(|one| one["capture"].as_str().unwrap()).collect();
    assert!(captures.iter().all(|one| one["schema"] == 1), "{captures:?}");
    let expected =
        ["boot", "phase_lrr", "phase_minfree", "phase_phf16", "phase_wsf300", "restored"];
    assert_eq!(names, expected);
    let figures =
        |at: usize, class: &str, key: &str| captures[at]["classes"][class][key].as_u64().unwrap();
    assert_eq!(figures(1, "watermarks", "total"), 0);
    assert_eq!(figures(1, "watermarks", "apart"), figures(2, "watermarks", "total"));
    assert_eq!(figures(1, "protection", "apart"), 0);
    assert_eq!(figures(0, "protection", "total"), 0);
    assert_eq!(figures(2, "pageset_sizes", "apart"), 0);
    // A phase that nobody describes is taken to have done so, and is found not to.
    let mut document = unpacked(&recording("n5-mixed-6.12"));
    document.as_object_mut().unwrap().remove("spec");
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "undescribed.json", &document);
    let (code, stdout, _) = run(&["verify", &path]);
    assert_eq!(code, 1);
    assert!(stdout.contains("    phase_lrr: node 0 zone DMA min: predicted "), "{stdout}");
}

/// A capture that failed has nothing to compare; a recording of such captures is none.
#[test]
fn failed_captures_have_nothing_to_compare() {
    let mut document = unpacked(&recording("n1-2g-1c-6.12"));
    document["captures"]["phase_combo"] = json!({ "error": "the machine was lost" });
    for key in ["spec", "module"] {
        document[key] = Value::Null;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = write(folder.path(), "partly.json", &document);
    let (code, text, stderr) = run(&["verify", "--explain", &path]);
    assert_eq!(code, 0, "{stderr}");
    assert!(text.contains("\n  phase_combo: nothing to compare\n"), "{text}");
    let told = "capture phase_combo failed when it was recorded: the machine was lost\n";
    assert_eq!(stderr, format!("nearpage: {path}: {told}"));
    let captures = document["captures"].as_object_mut().unwrap();
    captures.retain(|name, _| name == "phase_combo");
    let path = write(folder.path(), "failed.json", &document);
    let (code, _, stderr) = run(&["verify", &path]);
    assert_eq!(code, 2);
    assert!(stderr.contains(": proc/zoneinfo: no zones, expected zones"), "{stderr}");
}

/// Counter thresholds are of boot until background reclaim ran.
#[test]
fn thresholds_follow_reclaim() {
    let mut document = unpacked(&recording("n7-200m-6.1"));
    let folder = tempfile::tempdir().unwrap();
    let mut threshold = |runs: &str| {
        let vmstat = &mut document["captures"]["restored"]["vmstat"];
        let lines = vmstat.as_str().unwrap().lines();
        let others: Vec<&str> = lines.filter(|line| !line.starts_with("pageoutrun ")).collect();
        *vmstat = json!(format!("{}\n{runs}", others.join("\n")));
        let path = write(folder.path(), "box.json", &document);
        let predicted = run_json(&["topo", "--bundle", &path, "--format", "json"]);
        predicted["zones"][1]["stat_threshold"].as_u64().unwrap()
    };
    // 34652 pages are managed, 32650 of them since boot; 128 MiB are 32768.
    assert_eq!([threshold("pageoutrun 0"), threshold("pageoutrun 3"), threshold("")], [6, 12, 12]);
}
