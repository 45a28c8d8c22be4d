//! What-if: three columns that count the same things.

use serde_json::Value;

use super::{shipped, stdout};

fn asked(arguments: &[&str]) -> Value {
    let bundle = shipped();
    let arguments = [&["replay", bundle.to_str().unwrap(), "--json"], arguments].concat();
    serde_json::from_str(&stdout(&arguments)).unwrap()
}

/// The model's column is what the comparison has, and asking for what is so anyway changes nothing.
#[test]
fn all_columns_count_alike() {
    let report = asked(&["--set", "pcp.batch_scale_max=5"]);
    let what_if = &report["what_if"];
    assert!(what_if["recorded"]["lock_acquisitions"].is_null());
    for quantity in ["refills", "refill_pages", "drains", "drain_pages"] {
        let rows = report["fidelity"]["rows"].as_array().unwrap();
        let row = |row: &&Value| row["quantity"] == quantity && row["where"] == "all";
        let row = rows.iter().find(row).unwrap();
        assert_eq!(what_if["recorded"][quantity], row["recorded"], "{quantity}");
        assert_eq!(what_if["predicted"][quantity], row["predicted"], "{quantity}");
        assert_eq!(what_if["what_if"][quantity], row["predicted"], "{quantity}");
    }
    assert_eq!(what_if["predicted"], what_if["what_if"]);
}

/// Settings act on another machine as they do on the recorded one.
#[test]
fn settings_act_on_other_machines() {
    for machine in [&["--cpus", "6"][..], &["--topology", "--numa 3G,cpus=0-3 --numa 3G"]] {
        let holds = |fraction: &str| {
            let set = format!("vm.percpu_pagelist_high_fraction={fraction}");
            let report = asked(&[machine, &["--set", &set]].concat());
            let what_if = &report["what_if"];
            assert!(what_if["changes"]["machine"]["name"].is_string());
            let setting = &what_if["changes"]["settings"][0];
            assert_eq!((&setting["before"], &setting["after"]), (&"0".into(), &fraction.into()));
            assert!(what_if["unchanged"]["lock_acquisitions"].is_u64());
            what_if["what_if"]["lock_acquisitions"].as_u64().unwrap()
        };
        assert!(holds("100000") > holds("8"), "{machine:?}");
    }
}

/// A setting that does nothing under other rules is told, though all differs from the recorded ones.
#[test]
fn settings_that_do_nothing_under_other_rules_are_told() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let asked = |change: &str, rules: &str| -> Value {
        let arguments = ["whatif", bundle, "--rules", rules, "--change", change, "--starts", "0"];
        serde_json::from_str(&stdout(&[&arguments[..], &["--json"]].concat())).unwrap()
    };
    let idle = asked("pcp.high_min=10", "nearpage");
    let told = idle["then"][0]["idle_settings"].as_str().unwrap();
    assert!(told.starts_with("pcp.high_min does nothing under the rules nearpage"), "{told}");
    let acts = asked("pcp.batch_scale_max=0", "linux-6.18");
    assert_eq!(acts["then"][0]["idle_settings"], Value::Null);
    let machine = "--numa 1G,cpus=0-3";
    let change = "vm.watermark_boost_factor=0";
    let load = ["whatif", "fill", "--machine", machine, "--rules", "linux-6.1", "--change", change];
    let text = stdout(&load);
    assert!(text.contains("vm.watermark_boost_factor: 15000 -> 0"), "{text}");
    assert!(text.contains("under the rules linux-6.1 the change does nothing with this load"));
}

/// On another machine the recorded rules are what others are compared with; what they come to at home stands beside.
#[test]
fn a_machine_and_rules_have_the_recorded_machine_beside_them() {
    let asked = |arguments: &[&str]| -> Value {
        let bundle = shipped();
        let arguments = [&["whatif", bundle.to_str().unwrap(), "--json"], arguments].concat();
        serde_json::from_str(&stdout(&arguments)).unwrap()
    };
    let machine = ["--machine", "--numa 3G,cpus=0-3 --numa 3G"];
    let both = asked(&[&machine[..], &["--rules", "linux-6.12,nearpage"]].concat());
    let alone = asked(&machine);
    let names: Vec<&Value> =
        both["then"].as_array().unwrap().iter().map(|of| &of["model"]).collect();
    assert_eq!(names, ["nearpage"]);
    assert_eq!(both["on_recorded"], alone["now"]);
    assert_eq!(both["now"], alone["then"][0]["totals"]);
    assert_eq!(alone["on_recorded"], Value::Null);
    // What the machine moves is told beside what rules and settings move, too.
    let moved = |of: &Value| of["sizes"].as_array().unwrap().clone();
    let of_machine = &both["then"][0]["changes"]["machine"];
    let by_machine = moved(of_machine);
    assert!(by_machine.iter().any(|of| of["where"] == "node 0 zone DMA32" && of["what"] == "min"));
    assert_eq!(by_machine, moved(&alone["then"][0]["changes"]));
    assert!(moved(&alone["then"][0]["changes"]["machine"]).is_empty());
}

#[test]
fn what_did_nothing_is_told() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let text = stdout(&["replay", bundle, "--model", "nearpage", "--set", "pcp.batch_scale_max=0"]);
    let why = "pcp.batch_scale_max has no effect under the rules nearpage: they have no batches\n";
    assert!(text.contains(why), "{text}");
    let sweep = stdout(&["replay", "sweep", bundle, "--over", "pcp.below_high=on,off"]);
    assert!(sweep.contains("pcp.below_high: no figure depends on it"), "{sweep}");
}

fn positions(text: &str, titles: &[&str]) -> Vec<usize> {
    let lines: Vec<&str> = text.lines().collect();
    let place = |title: &&str| lines.iter().position(|line| line == title);
    titles.iter().map(|title| place(title).unwrap_or_else(|| panic!("{title}: {text}"))).collect()
}

const PARTS: [&str; 4] =
    ["What changes", "Answer", "Recorded, now, then", "What the model leaves out"];

#[test]
fn a_whatif_says_what_changes_the_answer_a_table_and_what_is_left_out() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let change = ["whatif", bundle, "--change", "pcp.batch_scale_max=0", "--starts", "2"];
    let text = stdout(&change);
    assert!(positions(&text, &PARTS).is_sorted(), "{text}");
    assert!(text.contains("pcp.batch_scale_max: 5 -> 0"), "{text}");
    let document: Value =
        serde_json::from_str(&stdout(&[&change[..], &["--json"]].concat())).unwrap();
    let then = &document["then"][0];
    let count = |of: &Value| of["lock_acquisitions"].as_f64().unwrap();
    let ratio = then["ratios"]["holds"]["ratio"].as_f64().unwrap();
    assert_eq!(ratio, count(&then["totals"]) / count(&document["now"]));
    let range = then["ratios"]["holds"]["range"].as_array().unwrap();
    assert!(range[0].as_f64().unwrap() <= ratio && ratio <= range[1].as_f64().unwrap());
    assert_eq!(document["starts"], 2);
    // The same engine answers `replay --set`.
    let replayed = asked(&["--set", "pcp.batch_scale_max=0"]);
    assert_eq!(replayed["what_if"]["what_if"], then["totals"]);
    assert_eq!(replayed["what_if"]["recorded"], document["recorded"]);
}

#[test]
fn a_card_fits_into_a_mail_and_a_page_has_the_same() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let machine = "--numa 4G,cpus=0-7 --numa 0,cpus=8-11 --numa 4G,cpus=12-15";
    let rules = "linux-6.12,rfc-2026-owned,nearpage";
    let asked = [
        "whatif",
        bundle,
        "--machine",
        machine,
        "--rules",
        rules,
        "--change",
        "vm.min_free_kbytes=9999",
    ];
    let card = stdout(&[&asked[..], &["--card", "--report", page.to_str().unwrap()]].concat());
    assert!(card.lines().count() <= 25, "{card}");
    assert!(positions(&card, &PARTS).is_sorted(), "{card}");
    // A card with waits names what was run.
    let waits = stdout(&[
        "whatif",
        bundle,
        "--machine",
        machine,
        "--rules",
        "nearpage",
        "--waits",
        "--card",
    ]);
    assert!(waits.lines().count() <= 25, "{waits}");
    for told in [
        "machine: ",
        "rules: linux-6.12 -> nearpage",
        "CPUs: 0->",
        "waiting for zone locks, % of time",
        "longest wait, us",
    ] {
        assert!(waits.contains(told), "{told}: {waits}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    for part in PARTS {
        assert!(page.contains(part), "{part}");
    }
}

#[test]
fn a_whatif_without_a_change_is_refused() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    for (arguments, expected) in [
        (&["whatif", bundle][..], "nothing is changed"),
        (&["whatif", bundle, "--repeat", "2"], "--repeat needs a machine"),
        (&["whatif", bundle, "--change", "vm.x=1"], "--change vm.x=1"),
        (&["whatif", "build", "--rules", "nearpage"], "expected --machine"),
        (
            &["whatif", "build", "--machine", "--numa 1G,cpus=0-1", "--rules", "nearpage"],
            "nothing is changed",
        ),
        (
            &["whatif", "fill", "--machine", "--numa 1G,cpus=0-1", "--change", "pcp.batch=1"],
            "sizes of pagesets follow",
        ),
        (
            &["whatif", bundle, "--change", "vm.percpu_pagelist_high_fraction=4"],
            "--change vm.percpu_pagelist_high_fraction=4: percpu_pagelist_high_fraction is 4; accepted: 0, or 8 and more",
        ),
        (
            &["whatif", bundle, "--over", "pcp.batch=0,5", "--change", "pcp.batch=3"],
            "--change pcp.batch is there twice",
        ),
        (
            &["whatif", bundle, "--over", "pcp.batch=0", "--over", "pcp.batch=5"],
            "--over pcp.batch is there twice",
        ),
        (
            &["whatif", bundle, "--machine", "--numa 1G,cpus=0", "--machine", "--numa 1G,cpus=0"],
            "--machine --numa 1G,cpus=0 is there twice",
        ),
        (
            &[
                "replay",
                "sweep",
                bundle,
                "--topology",
                "--numa 1G,cpus=0",
                "--topology",
                "--numa 1G,cpus=0",
            ],
            "--topology --numa 1G,cpus=0 is there twice",
        ),
    ] {
        let output = super::nearpage(arguments);
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {message}");
        assert!(message.contains(expected), "{arguments:?}: {message}");
    }
}

#[test]
fn a_load_by_name_has_its_waits_compared() {
    let machine = "--numa 1G,cpus=0-3 --numa 1G,cpus=4-7";
    let asked =
        ["whatif", "faults", "--machine", machine, "--change", "pcp.batch_scale_max=0", "--json"];
    let document: Value = serde_json::from_str(&stdout(&asked)).unwrap();
    let most = |of: &Value| of["most_pages_per_hold"].as_f64().unwrap();
    assert!(most(&document["then"][0]) < most(&document["now"]), "{document}");
    assert_eq!(document["now"]["rules"], "linux-6.18");
    assert_eq!(document["changes"][0]["key"], "pcp.batch_scale_max");
    let text = stdout(&asked[..6]);
    assert!(text.contains("linux-6.18 with pcp.batch_scale_max=0: of their time"), "{text}");
    assert!(text.contains("; then: with pcp.batch_scale_max=0; "), "{text}");
    // Nobody waits who gets nothing.
    let starved = ["whatif", "faults", asked[2], machine, asked[4], "vm.min_free_kbytes=9999999"];
    let starved = stdout(&starved);
    assert!(starved.contains("requests are refused: who has no page"), "{starved}");
}

/// Rules are a change too; who draws says by which seeds, and what they come to.
#[test]
fn a_load_that_draws_says_its_seeds_and_its_range() {
    let machine = "--numa 1G,cpus=0-3";
    let asked = ["--machine", machine, "--rules", "linux-6.12,nearpage"];
    let build = [&["whatif", "build"][..], &asked].concat();
    let document: Value =
        serde_json::from_str(&stdout(&[&build[..], &["--json"]].concat())).unwrap();
    assert_eq!(document["seeds"], serde_json::json!([1, 2, 3]));
    assert_eq!(
        (&document["machine"], &document["changes"][0]["after"]),
        (&machine.into(), &"nearpage".into())
    );
    let [now, then] = [&document["now"], &document["then"][0]];
    let speed = |of: &Value| of["pages_per_second"].as_f64().unwrap();
    let score = then["score"].as_f64().unwrap();
    assert!((score - 100.0 * speed(then) / speed(now)).abs() < 1e-6, "{document}");
    let range = &now["range"]["holds"];
    assert!(range[0].as_f64() < range[1].as_f64(), "{document}");
    let text = stdout(&build);
    let told = format!("holds (now {} [low {}, high {}])", now["holds"], range[0], range[1]);
    assert!(text.contains(&told.replace(".0", "")), "{told}: {text}");
    let lab = ["lab", "build", "--machine", machine, "--rules", "linux-6.12", "--json"];
    let lab: Value = serde_json::from_str(&stdout(&lab)).unwrap();
    assert_eq!((&lab[0]["seeds"], &lab[0]["machine"]), (&document["seeds"], &document["machine"]));
    assert_eq!(&lab[0]["range"]["build, linux-6.12: holds"], range);
    assert_eq!(lab[0]["costs"], document["costs"]);
}

/// The card of a sweep of a load has what it is about, and each point of the front once.
#[test]
fn a_sweep_of_a_load_has_its_answer_on_a_card() {
    let machine = "--numa 1G,cpus=0-1";
    let rules = "linux-6.12,nearpage";
    let asked = ["--machine", machine, "--rules", rules, "--over", "pcp.batch_scale_max=0,5"];
    let asked = [&["whatif", "faults"][..], &asked].concat();
    let card = stdout(&[&asked[..], &["--card"]].concat());
    assert!(card.lines().count() <= 25, "{card}");
    for told in [
        "faults on 2 of 2 CPUs",
        "rules: linux-6.12, nearpage",
        "seed 1 alone",
        "of them different",
        "has no effect under the rules nearpage",
        "linux-6.12: zone lock % ",
        "zone lock %  worst wait, us     holds  on the front",
    ] {
        assert!(card.contains(told), "{told}: {card}");
    }
    let document: Value =
        serde_json::from_str(&stdout(&[&asked[..], &["--json"]].concat())).unwrap();
    let of_machine = &document["machines"][0];
    assert_eq!((&of_machine["machine"], &of_machine["seeds"][0]), (&machine.into(), &1.into()));
    let hold = "model=linux-6.12, pcp.batch_scale_max=0: worst_hold_us";
    assert!(of_machine["counts"][hold].as_f64().unwrap() > 0.0, "{document}");
    let holds = "model=linux-6.12, pcp.batch_scale_max=5: holds";
    assert_eq!(document["now"][0]["holds"], of_machine["counts"][holds]);
}

/// Waits stand beside the answer, at the rate that was recorded: more CPUs wait longer, and a card has them too.
#[test]
fn waits_of_the_recorded_load_stand_beside() {
    let text = trace(&[0, 1], 3000, "");
    let waits = |machine: &str| -> Value {
        let rules = "linux-6.12,nearpage";
        let asked = ["--machine", machine, "--rules", rules, "--waits"];
        let (_, document) = asked_of(&text, &asked);
        assert!(document["now"]["lock_acquisitions"].is_u64());
        document["waits"].clone()
    };
    let (few, many) = (waits("--numa 4G,cpus=0-1"), waits("--numa 16G,cpus=0-15"));
    let percent = |of: &Value| of["zone_lock_percent"].as_f64().unwrap();
    assert!(percent(&many["now"]) > percent(&few["now"]), "{few} {many}");
    let then = many["then"].as_array().unwrap();
    assert_eq!((then.len(), &then[0]["rules"]), (1, &"nearpage".into()));
    assert!(percent(&then[0]) < percent(&many["now"]), "{many}");
    let numbers = &many["leaves_out"][1];
    assert!(numbers.as_str().unwrap().contains("a CPU took a page each 2.0 us"), "{numbers}");
    let bundle = shipped();
    let asked = ["whatif", bundle.to_str().unwrap(), "--rules", "nearpage", "--waits", "--card"];
    let card = stdout(&asked);
    assert!(card.lines().count() <= 25 && card.contains("CPUs wait for zone locks"), "{card}");
}

/// The text of a trace: so many blocks of each CPU, allocated and freed one after the other, one free of an older block, and a heading.
fn trace(cpus: &[u32], blocks: u64, heading: &str) -> String {
    let mut text = heading.to_owned();
    let mut line = |cpu: u32, at: u64, what: String| {
        text += &format!("  cc-{} [{cpu:03}] ..... {}.{:06}: {what}\n", 70 + cpu, 5, at);
    };
    line(cpus[0], 0, "mm_page_free: page=1 pfn=0x99999 order=0".into());
    for at in 0..blocks {
        for (nth, &cpu) in cpus.iter().enumerate() {
            let pfn = 0x1000 + 0x10000 * nth as u64 + at;
            let what = format!(
                "mm_page_alloc: page=1 pfn={pfn:#x} order=0 migratetype=1 gfp_flags=GFP_HIGHUSER_MOVABLE"
            );
            line(cpu, 1 + at, what);
        }
    }
    for at in 0..blocks {
        for (nth, &cpu) in cpus.iter().enumerate() {
            let pfn = 0x1000 + 0x10000 * nth as u64 + at;
            line(cpu, 1 + blocks + at, format!("mm_page_free: page=1 pfn={pfn:#x} order=0"));
        }
    }
    text
}

const OF_6_6: &str = "# os release : 6.6.9-test\n";

fn asked_of(text: &str, arguments: &[&str]) -> (String, Value) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    std::fs::write(&path, text).unwrap();
    let asked = [&["whatif", path.to_str().unwrap()], arguments].concat();
    let json = stdout(&[&asked[..], &["--json"]].concat());
    (stdout(&asked), serde_json::from_str(&json).unwrap())
}

#[test]
fn a_trace_is_played_on_a_machine_and_what_is_unknown_is_told() {
    let machine = ["--machine", "--numa 2G,cpus=0-1", "--change", "pcp.batch_scale_max=0"];
    let (text, document) = asked_of(&trace(&[0, 1], 3000, ""), &machine);
    let parts = ["What changes", "Answer", "Now, then", "What the model leaves out"];
    assert!(positions(&text, &parts).is_sorted(), "{text}");
    for told in [
        "kernel unknown",
        "12001 events",
        "6000 blocks allocated, 6001 freed, on 2 CPUs",
        "CPUs: 0->0 1->1",
        "pcp.batch_scale_max: 5 -> 0",
        "unknown: what was allocated",
        "Of 6001 frees, 1 are of blocks that the trace does not allocate",
        "unknown: sysctls",
        "unknown: the kernel; the rules of linux-6.12 stand for it",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(document["recorded"].is_null() && document["fidelity_percent"].is_null());
    assert_eq!(document["alone"]["trace"]["allocs"], 6000);
    assert_eq!(document["alone"]["older_frees"], 1);
    assert_eq!(document["then"][0]["changes"]["machine"], Value::Null);
    let holds = |of: &Value| of["lock_acquisitions"].as_u64().unwrap();
    assert!(holds(&document["then"][0]["totals"]) > holds(&document["now"]), "{text}");
}

#[test]
fn a_trace_that_tells_its_kernel_has_its_rules_and_others_are_compared_with_them() {
    let machine = "--numa 2G,cpus=0-3 --numa 2G,cpus=4-7";
    let of = |heading: &str, rules: &[&str]| {
        let arguments = [&["--machine", machine][..], rules].concat();
        asked_of(&trace(&[0, 9], 500, heading), &arguments)
    };
    let names = |document: &Value| -> Vec<String> {
        let then = document["then"].as_array().unwrap().iter();
        let name = |of: &Value| of["model"].as_str().unwrap().to_owned();
        then.map(name).collect()
    };
    let (text, document) = of(OF_6_6, &["--rules", "linux-6.12,nearpage"]);
    assert_eq!(
        (&document["kernel"], &document["model"]),
        (&"6.6.9-test".into(), &"linux-6.6".into())
    );
    assert_eq!(names(&document), ["linux-6.12", "nearpage"]);
    // The trace's own rules are what others are compared with.
    let (_, document) = of(OF_6_6, &["--rules", "linux-6.6,nearpage"]);
    assert_eq!(names(&document), ["nearpage"]);
    // CPU 9 is none of the machine's.
    assert!(text.contains("CPUs: 0->0 9->4") && text.contains("which has other CPUs"), "{text}");
    let (text, document) = of("", &["--rules", "linux-6.1,nearpage"]);
    assert_eq!(
        (&document["model"], names(&document)),
        (&"linux-6.1".into(), vec!["nearpage".to_owned()])
    );
    assert!(text.contains("the rules of linux-6.1 stand for it"), "{text}");
    // Nothing need be changed.
    let (text, document) = of(OF_6_6, &[]);
    let holds = document["now"]["lock_acquisitions"].as_u64().unwrap();
    assert!(text.contains(&format!("{holds} holds of zone locks, ")) && holds > 0, "{text}");
    let (text, document) = of(OF_6_6, &["--waits"]);
    assert_eq!(document["waits"]["then"].as_array().unwrap().len(), 0);
    assert!(
        text.contains("linux-6.6: of their time") && text.contains("believe this one"),
        "{text}"
    );
}

#[test]
fn traces_that_cannot_be_played_say_what_they_lack() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.txt");
    let path = path.to_str().unwrap();
    let machine = ["--machine", "--numa 1G,cpus=0"];
    let others = "  cc-7 [000] ..... 1.000001: sched_switch: a=b\n".repeat(3);
    for (text, arguments, expected) in [
        (trace(&[0], 2, ""), &[][..], "expected --machine MACHINE"),
        (others, &machine, "none of its 3 events allocates or frees a page (3 of sched_switch)"),
        ("no trace\n".into(), &machine, "ends without an event"),
    ] {
        std::fs::write(path, text).unwrap();
        let output = super::nearpage(&[&["whatif", path], arguments].concat());
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let output =
        super::nearpage(&["whatif", folder.path().to_str().unwrap(), "--change", "pcp.batch=1"]);
    assert_eq!(output.status.code(), Some(2));
    std::fs::write(folder.path().join("metadata"), "/* CTF 1.8 */").unwrap();
    let output = super::nearpage(&["whatif", folder.path().to_str().unwrap()]);
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("babeltrace2"), "{message}");
}

#[test]
fn a_sweep_shows_its_front() {
    let bundle = shipped();
    let bundle = bundle.to_str().unwrap();
    let over = ["--over", "pcp.batch_scale_max=0,5"];
    let rules = ["--rules", "linux-6.12,nearpage", "--change", "pcp.free_high=on"];
    let asked = [&["whatif", bundle][..], &over, &rules].concat();
    let text = stdout(&asked);
    let parts =
        ["What is swept", "Answer", "Combinations", "The front", "What the model leaves out"];
    assert!(positions(&text, &parts).is_sorted(), "{text}");
    assert!(text.contains("combinations are on the front") && text.contains("holds of zone locks"));
    let card = stdout(&[&asked[..], &["--card"]].concat());
    assert!(card.lines().count() <= 25, "{card}");
    let document: Value =
        serde_json::from_str(&stdout(&[&asked[..], &["--json"]].concat())).unwrap();
    let points = document["points"].as_array().unwrap();
    assert_eq!(points.len(), 4);
    assert!(points.iter().all(|point| point["settings"][1] == "pcp.free_high=on"));
    for point in points {
        let of = |name: &str| point[name].as_f64().unwrap();
        let ratio = (of("lock_acquisitions") + 32.0) / (of("bound") + 32.0);
        assert!((of("bound_ratio") - ratio).abs() < 1e-9, "{point}");
    }
    // It is the engine of the other spelling.
    let sweep = ["replay", "sweep", bundle, "--json", "--over", "pcp.batch_scale_max=0,5"];
    let model = ["--model", "linux-6.12", "--model", "nearpage", "--over", "pcp.free_high=on"];
    let other: Value = serde_json::from_str(&stdout(&[&sweep[..], &model].concat())).unwrap();
    assert_eq!(other["points"], document["points"]);
    // And single answers have the same figures.
    let one = ["whatif", bundle, "--change", "pcp.batch_scale_max=0", "--starts", "0", "--json"];
    let one: Value = serde_json::from_str(&stdout(&one)).unwrap();
    assert_eq!(one["then"][0]["totals"]["lock_acquisitions"], points[0]["lock_acquisitions"]);
}

/// One answer for each machine is as that machine's own: what is there beside what is now, and why it has no range.
#[test]
fn machines_with_one_change_have_an_answer_each() {
    let bundle = shipped();
    let machines = ["--numa 4G,cpus=0-7", "--numa 8G,cpus=0-3 --numa 8G,cpus=4-7"];
    let asked = ["whatif", bundle.to_str().unwrap()];
    let change = ["--change", "vm.percpu_pagelist_high_fraction=8"];
    let both = ["--machine", machines[0], "--machine", machines[1], "--json"];
    let both: Value =
        serde_json::from_str(&stdout(&[&asked[..], &change, &both].concat())).unwrap();
    let mut text = stdout(
        &[&asked[..], &change, &["--machine", machines[0], "--machine", machines[1]]].concat(),
    );
    for (at, machine) in machines.iter().enumerate() {
        let one = [&asked[..], &change, &["--machine", machine]].concat();
        let alone = stdout(&one);
        let said = alone.lines().find(|line| line.contains("holds of zone locks (")).unwrap();
        assert!(text.contains(&format!("on {machine}: {}", said.trim())), "{said}: {text}");
        assert!(alone.contains("No range: another machine starts with all memory free"), "{alone}");
        let one: Value = serde_json::from_str(&stdout(&[&one[..], &["--json"]].concat())).unwrap();
        assert_eq!(one["now"]["lock_acquisitions"], both["now"][at]["lock_acquisitions"]);
        assert!(one["no_range"].is_string());
    }
    text.truncate(text.find("Combinations").unwrap());
    assert!(text.contains("No range: ") && !text.contains("()"), "{text}");
}

#[test]
fn machines_of_a_sweep_may_be_of_a_trace() {
    let machines = ["--numa 1G,cpus=0-1", "--numa 1G,cpus=0 --numa 1G,cpus=1"];
    let arguments =
        ["--machine", machines[0], "--machine", machines[1], "--over", "pcp.batch=31,63"];
    let (text, document) = asked_of(&trace(&[0, 1], 300, ""), &arguments);
    assert_eq!(document["points"].as_array().unwrap().len(), 4);
    assert_eq!(text.matches("combinations are on the front").count(), 2, "{text}");
    // What is now there stands beside each.
    let now = document["now"].as_array().unwrap();
    assert_eq!(now.iter().map(|now| &now["machine"]).collect::<Vec<_>>(), machines);
    for now in now {
        assert_eq!(now["settings"].as_array().map(Vec::len), Some(0));
        let told = format!("(now {}; pcp.batch", now["lock_acquisitions"]);
        assert!(text.contains(&told), "{told}: {text}");
    }
}
