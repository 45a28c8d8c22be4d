//! The prediction needs `before`, and who allocated and freed, alone.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{replayed, trace, unpack_shipped};

/// What a prediction comes from.
const NEEDED: [&str; 4] = [" mm_page_alloc: ", " mm_page_free: ", " nearpage_bulk", "nearpage: "];

/// By quantity, place and moment: a value of each row.
fn values(report: &Value, key: &str) -> BTreeMap<String, Value> {
    let rows = report["fidelity"]["rows"].as_array().unwrap();
    let name = |row: &Value| format!("{} {} {}", row["quantity"], row["where"], row["at"]);
    rows.iter().map(|row| (name(row), row[key].clone())).collect()
}

fn delete_what_is_compared(bundle: &Path) {
    let text = trace(bundle);
    let is_kept = |line: &&str| NEEDED.iter().any(|event| line.contains(event));
    let kept: Vec<&str> = text.lines().filter(is_kept).collect();
    assert!(kept.len() < text.lines().count());
    std::fs::write(bundle.join("trace.txt"), kept.join("\n") + "\n").unwrap();
    std::fs::remove_file(bundle.join("samples.txt")).unwrap();
    for folder in ["after", "cmdend"] {
        std::fs::remove_dir_all(bundle.join(folder)).unwrap();
    }
}

#[test]
fn without_what_is_compared_the_prediction_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let whole = replayed(&bundle);
    delete_what_is_compared(&bundle);
    let part = replayed(&bundle);
    for key in ["predicted", "drawn_range"] {
        assert_eq!(values(&whole, key), values(&part, key), "{key}");
    }
    let recorded = values(&part, "recorded");
    let told: Vec<_> = recorded.iter().filter(|(_, value)| !value.is_null()).collect();
    assert!(told.is_empty(), "{told:?}");
    assert!(part["fidelity"]["percent"].is_null());
}
