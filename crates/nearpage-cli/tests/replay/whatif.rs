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
