//! What raises a score, and what lowers it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{replayed, trace, unpack_shipped};

/// What is wrong of what moved, by row of the score.
fn wrong(report: &Value) -> BTreeMap<String, u64> {
    let scores = report["fidelity"]["scores"].as_array().unwrap();
    let row =
        |row: &Value| (row["quantity"].as_str().unwrap().into(), row["wrong"].as_u64().unwrap());
    scores.iter().map(row).collect()
}

fn change(path: &Path, change: impl FnOnce(&str) -> String) {
    let text = fs::read_to_string(path).unwrap();
    let changed = change(&text);
    assert_ne!(changed, text, "{}", path.display());
    fs::write(path, changed).unwrap();
}

/// A node of 4 GiB without CPUs: no event is about it.
fn add_node(bundle: &Path) {
    let zone = |kind: &str, pages: u64, pagesets: &str| {
        format!(
            "Node 2, zone {kind:>8}\n  pages free     {pages}\n        boost    0\n        min      {0}\n        low      {0}\n        \
             high     {0}\n        promo    {0}\n        spanned  {pages}\n        present  {pages}\n        managed  {pages}\n        \
             cma      0\n        protection: (0, 0, 0, 0, 0)\n{pagesets}",
            pages / 500
        )
    };
    let pagesets: String = (0..4)
        .map(|cpu| {
            format!(
                "    cpu: {cpu}\n              count: 0\n              high:  500\n              batch: 63\n              high_min: 500\n\
                \x20             high_max: 5000\n  vm stats threshold: 20\n"
            )
        })
        .collect();
    let normal = "      nr_free_pages 1048576\n      numa_hit     0\n      numa_miss    0\n      numa_foreign 0\n  pagesets\n";
    let normal =
        format!("{normal}{pagesets}  node_unreclaimable:  0\n  start_pfn:           1048576\n");
    let zones = zone("DMA", 0, "") + &zone("DMA32", 0, "") + &zone("Normal", 1 << 20, &normal);
    let zones = zones + &zone("Movable", 0, "") + &zone("Device", 0, "");
    let orders = |most: u32| format!("{}{most}\n", "0 ".repeat(10));
    let types = ["Unmovable", "Movable", "Reclaimable"];
    let free: String = types
        .iter()
        .map(|of| {
            let blocks = if *of == "Movable" { 1024 } else { 0 };
            format!("Node 2, zone Normal, type {of} {}", orders(blocks))
        })
        .collect();
    for moment in ["before", "after"].map(|moment| bundle.join(moment)) {
        change(&moment.join("zoneinfo"), |text| format!("{text}{zones}"));
        let blocks = format!("Node 2, zone Normal {}", orders(1024));
        change(&moment.join("buddyinfo"), |text| format!("{text}{blocks}"));
        change(&moment.join("pagetypeinfo"), |text| {
            let head = "Free pages count per migrate type at order 0 1 2 3 4 5 6 7 8 9 10 \n";
            let count = "Number of blocks type Unmovable Movable Reclaimable \n";
            format!("{text}\n{head}{free}\n{count}Node 2, zone Normal 0 2048 0 \n")
        });
        change(&moment.join("sysfs"), |text| {
            let node = "/sys/devices/system/node/";
            let mut text = text.replace("distance:10 21", "distance:10 21 40");
            text = text.replace("distance:21 10", "distance:21 10 40");
            for set in ["has_memory", "has_normal_memory", "online", "possible"] {
                text = text.replace(&format!("{node}{set}:0-1"), &format!("{node}{set}:0-2"));
            }
            format!("{text}{node}node2/cpulist:\n{node}node2/distance:40 40 10\n")
        });
    }
}

#[test]
fn the_same_events_have_the_same_score_on_a_larger_machine() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let small = replayed(&bundle);
    add_node(&bundle);
    let large = replayed(&bundle);
    let free = |report: &Value| {
        let rows = report["fidelity"]["rows"].as_array().unwrap().clone();
        let is_it = |row: &&Value| row["quantity"] == "free_pages" && row["where"] == "all";
        rows.iter().find(is_it).unwrap()["recorded"].as_u64().unwrap()
    };
    assert_eq!(free(&large), free(&small) + (1 << 20), "it is larger");
    for key in ["percent", "percent_known_state", "worst", "scores"] {
        assert_eq!(large["fidelity"][key], small["fidelity"][key], "{key}");
    }
}

/// A wrong rule is seen where it works: in how much a hold moves, first of all.
#[test]
fn a_batch_of_another_size_costs_points() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let right = replayed(&bundle);
    let zoneinfo = bundle.join("before/zoneinfo");
    let batch = fs::read_to_string(&zoneinfo).unwrap();
    let batch = batch.lines().filter(|line| line.contains("batch: ")).max().unwrap().to_owned();
    change(&zoneinfo, |text| text.replace(&batch, "              batch: 9"));
    let faulty = replayed(&bundle);
    let percent = |report: &Value| report["fidelity"]["percent"].as_f64().unwrap();
    assert!(percent(&faulty) < percent(&right) - 5.0, "{} {}", percent(&faulty), percent(&right));
    let (faulty, right) = (wrong(&faulty), wrong(&right));
    assert!(faulty["holds"] > 2 * right["holds"], "{faulty:?} {right:?}");
}

/// The first drain that the kernel logged: its lines are gone. It and no other row of the log is wrong by that.
#[test]
fn a_drain_that_one_side_lacks_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let whole = replayed(&bundle);
    let mut pages = 0;
    let text = trace(&bundle);
    let first = text.find("mm_page_pcpu_drain: ").unwrap();
    let head = text[..first].rfind('\n').unwrap() + 1;
    let of = text[head..].split_whitespace().take(2).map(str::to_owned).collect::<Vec<_>>();
    let mut is_over = false;
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| {
            let is_own = line.split_whitespace().take(2).eq(of.iter().map(String::as_str));
            let is_drain = is_own && line.contains("mm_page_pcpu_drain: ");
            is_over |= pages > 0 && is_own && !is_drain && line.contains("mm_page_alloc");
            let is_gone = is_drain && !is_over;
            pages += u64::from(is_gone);
            !is_gone
        })
        .collect();
    assert!((2..5000).contains(&pages), "{pages}");
    fs::write(bundle.join("trace.txt"), kept.join("\n") + "\n").unwrap();
    let part = replayed(&bundle);
    let (part, whole) = (wrong(&part), wrong(&whole));
    for (quantity, wrong) in &whole {
        let is_touched = ["drains", "drain_pages", "holds"].contains(&&**quantity);
        assert_eq!(part[quantity] != *wrong, is_touched, "{quantity}: {part:?} {whole:?}");
    }
}
