//! Replays that begin with the kernel's own state.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{nearpage, replayed, stdout, trace};

const NAME: &str = "q612-n2-state";
const BEFORE: &str = "before/kernel.json";

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../bundles/{NAME}.tar.zst"))
}

fn unpack(folder: &Path) -> PathBuf {
    let text = nearpage_trace::unpacked(
        fs::File::open(path()).unwrap(),
        &nearpage_machine::Budget::DEFAULT,
    )
    .unwrap();
    tar::Archive::new(text).unpack(folder).unwrap();
    folder.join(NAME)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_core_begins_and_ends_with_the_kernels_lists() {
    let report = replayed(&path());
    assert_eq!(report["lacks_state"], Value::Null);
    let state = &report["state"];
    assert!(number(&state["pageset_pages"]) > 0 && number(&state["free_pages"]) > 0);
    assert_eq!((&state["has_upkeep"], number(&state["gap"]["misfits"])), (&Value::Bool(true), 0));
    // Nothing is left open.
    let rows = report["fidelity"]["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["drawn_range"].is_null()));
    for quantity in ["refill_pages", "drain_pages"] {
        let is_it = |row: &&Value| row["quantity"] == quantity && row["where"] == "all";
        let row = rows.iter().find(is_it).unwrap();
        let (predicted, recorded) = (number(&row["predicted"]), number(&row["recorded"]));
        assert!(predicted.abs_diff(recorded) * 200 <= recorded, "{row}");
    }
    // Page by page, at the end.
    let pagesets = &state["end"]["pagesets"];
    let (differ, recorded) =
        (number(&pagesets["differing_pages"]), number(&pagesets["recorded_pages"]));
    assert!(differ * 100 <= recorded, "{pagesets}");
    let without = stdout(&["replay", path().to_str().unwrap(), "--no-state", "--json"]);
    let without: Value = serde_json::from_str(&without).unwrap();
    let score = |report: &Value| report["fidelity"]["percent"].as_f64().unwrap();
    assert!(score(&report) > score(&without), "{} {}", score(&report), score(&without));
    assert!(without["lacks_state"].as_str().unwrap().contains(BEFORE));
    assert_eq!(without["state"], Value::Null);
}

/// What the kernel logged after the first event that is replayed, it is compared with, and uses it not.
#[test]
fn without_what_is_compared_the_prediction_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack(folder.path());
    let predicted = |report: &Value| -> Vec<Value> {
        let rows = report["fidelity"]["rows"].as_array().unwrap();
        rows.iter().map(|row| row["predicted"].clone()).collect()
    };
    let whole = replayed(&bundle);
    let (mut kept, mut is_begun) = (String::new(), false);
    for line in trace(&bundle).lines() {
        let is_log = ["_zone_locked: ", "_pcpu_drain: ", "_extfrag: "].iter();
        if !is_begun || !is_log.clone().any(|event| line.contains(event)) {
            kept += line;
            kept += "\n";
        }
        is_begun |= line.contains("nearpage: state before end");
    }
    fs::write(bundle.join("trace.txt"), kept).unwrap();
    fs::remove_file(bundle.join("after/kernel.json")).unwrap();
    let part = replayed(&bundle);
    assert_eq!(predicted(&part), predicted(&whole));
    assert_eq!(part["state"]["end"], Value::Null);
    assert_eq!(part["state"]["same_frames"], whole["state"]["same_frames"]);
}

#[test]
fn a_state_that_cannot_be_used_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack(folder.path());
    let path = bundle.join(BEFORE);
    let text = fs::read(&path).unwrap();
    let state: Value = serde_json::from_slice(&text).unwrap();
    let told = |change: &dyn Fn(&mut Value)| {
        let mut state = state.clone();
        change(&mut state);
        fs::write(&path, state.to_string()).unwrap();
        replayed(&bundle)
    };
    let cut = told(&|state| state["cut"] = "after 7 blocks".into());
    assert!(
        cut["lacks_state"].as_str().unwrap().contains("after 7 blocks"),
        "{}",
        cut["lacks_state"]
    );
    // Another order is found, and frames of no memory: the comparison can fail.
    let zone = |state: &mut Value, change: &dyn Fn(&mut Value)| {
        for node in state["nodes"].as_array_mut().unwrap() {
            node["zones"].as_array_mut().unwrap().iter_mut().for_each(change);
        }
    };
    let reversed = told(&|state| {
        zone(state, &|zone| {
            for pageset in zone["pagesets"].as_array_mut().unwrap() {
                let lists = pageset["lists"].as_array_mut().unwrap();
                lists.iter_mut().for_each(|list| list.as_array_mut().unwrap().reverse());
            }
        });
    });
    fs::write(&path, &text).unwrap();
    let whole = replayed(&bundle);
    let same = |report: &Value| number(&report["state"]["same_frames"]);
    assert!(same(&reversed) < same(&whole), "{} {}", same(&reversed), same(&whole));
    let nowhere = told(&|state| {
        zone(state, &|zone| {
            for pageset in zone["pagesets"].as_array_mut().unwrap() {
                pageset["lists"][1] = vec![u64::MAX, 1 << 50].into();
            }
        });
    });
    assert!(number(&nowhere["state"]["gap"]["misfits"]) > 2, "{}", nowhere["state"]["gap"]);
    // What is no state is refused, with the file.
    fs::write(&path, &text[..text.len() / 2]).unwrap();
    let refused = nearpage(&["replay", bundle.to_str().unwrap()]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(message.contains(BEFORE) && message.contains("no state of a kernel"), "{message}");
}
