//! `nearpage replay rules`: figures of rules that were pinned, the document, the exit code, and what is refused.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde_json::Value;

use super::{nearpage, shipped, unpack_shipped};

/// Rules whose figures are pinned.
const MODELS: [&str; 5] =
    ["linux-6.18", "linux-6.12", "linux-6.1", "rfc-2026-owned", "rfc-2023-zones"];

/// What `nearpage replay rules` finds for them, by bundle.
const PINNED: &str = "tests/replay/rules.txt";

const HEADING: &str = "\
# Figures of nearpage replay rules, of the second pass over each bundle: they are compared exactly.
# NEARPAGE_BUNDLES=FOLDER cargo test --release -p nearpage-cli --test replay pinned
#   compares those of a folder of bundles; NEARPAGE_PINS=write beside it writes this file anew.
# direct: all orders; kept and whole: the mean over time; bound: (holds + 32) / (fewest + 32).
";

const COLUMNS: [&str; 21] = [
    "bundle",
    "model",
    "holds",
    "refill",
    "drain",
    "direct",
    "foreign",
    "upkeep",
    "takes",
    "operations",
    "longest",
    "kept",
    "kept_max",
    "whole",
    "whole_end",
    "order_9",
    "remote",
    "failed",
    "below_min",
    "fewest",
    "bound",
];

/// A line of the pinned file.
fn line(row: &Value) -> String {
    let number = |value: &Value| match value.as_u64() {
        Some(number) => number.to_string(),
        None => format!("{:.3}", value.as_f64().unwrap()),
    };
    let causes = &row["holds_by_cause"];
    let direct = causes["direct"].as_object().unwrap().values();
    let direct: u64 = direct.map(|holds| holds.as_u64().unwrap()).sum();
    let mut cells = vec![text(&row["bundle"]), text(&row["model"]), number(&row["holds"])];
    cells.extend(["refill", "drain"].map(|cause| number(&causes[cause])));
    cells.push(direct.to_string());
    cells.extend(["foreign", "upkeep"].map(|cause| number(&causes[cause])));
    let others = [
        "foreign_takes",
        "operations",
        "longest_hold_operations",
        "kept_pages_mean",
        "kept_pages_max",
        "whole_mean",
        "whole_end",
        "order_9_served",
        "remote_pages",
        "failed",
        "served_below_min",
        "fewest",
        "bound_ratio",
    ];
    cells.extend(others.map(|key| number(&row[key])));
    in_columns(&cells)
}

fn in_columns<S: AsRef<str>>(cells: &[S]) -> String {
    let pad = |(at, cell): (usize, &S)| match at {
        0 => format!("{:<19}", cell.as_ref()),
        1 => format!(" {:<14}", cell.as_ref()),
        _ => format!(" {:>10}", cell.as_ref()),
    };
    cells.iter().enumerate().map(pad).collect()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().into()
}

/// All rules whose figures are pinned, over the bundle that comes along.
fn of_shipped() -> &'static (Value, i32) {
    static COMPARED: OnceLock<(Value, i32)> = OnceLock::new();
    COMPARED.get_or_init(|| compared(&[shipped()], &MODELS))
}

fn folders() -> Option<Vec<PathBuf>> {
    let folder = std::env::var("NEARPAGE_BUNDLES").ok()?;
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.join("meta.json").exists());
    paths.sort();
    Some(paths)
}

/// The document over some bundles, and the exit code.
fn compared(bundles: &[PathBuf], models: &[&str]) -> (Value, i32) {
    let mut arguments = vec!["replay", "rules", "--json"];
    arguments.extend(bundles.iter().map(|path| path.to_str().unwrap()));
    arguments.extend(models.iter().flat_map(|model| ["--model", model]));
    let output = nearpage(&arguments);
    let message = String::from_utf8_lossy(&output.stderr);
    let code = output.status.code().unwrap();
    assert!(code <= 1, "{arguments:?}: {message}");
    (serde_json::from_slice(&output.stdout).unwrap(), code)
}

/// The rules of kernels and proposals do not change unnoticed, and the rules of today stay to be compared with.
#[test]
fn figures_are_those_that_were_pinned() {
    let folders = folders();
    let of_folders = folders.as_ref().map(|folders| compared(folders, &MODELS).0);
    let document = of_folders.as_ref().unwrap_or_else(|| &of_shipped().0);
    let rows = document["rows"].as_array().unwrap();
    assert_eq!(rows.len(), folders.map_or(1, |folders| folders.len()) * MODELS.len());
    let mut found: Vec<String> = rows.iter().map(line).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PINNED);
    if std::env::var("NEARPAGE_PINS").as_deref() == Ok("write") {
        found.insert(0, in_columns(&COLUMNS));
        std::fs::write(path, format!("{HEADING}{}\n", found.join("\n"))).unwrap();
        return;
    }
    let pinned = std::fs::read_to_string(path).unwrap();
    let pinned: BTreeSet<&str> = pinned.lines().collect();
    let changed: Vec<&String> =
        found.iter().filter(|line| !pinned.contains(line.as_str())).collect();
    assert!(changed.is_empty(), "not as pinned:\n{}\n{changed:#?}", in_columns(&COLUMNS));
}

/// They change; what they are measured by does not.
#[test]
fn rules_of_our_own_meet_their_musts() {
    let bundles = folders().unwrap_or_else(|| vec![shipped()]);
    let (document, code) = compared(&bundles, &["nearpage"]);
    let musts = document["musts"].as_array().unwrap();
    let missed: Vec<&Value> = musts.iter().filter(|must| must["is_met"] == false).collect();
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(musts.len() >= 9 && code == 0, "{} musts, exit code {code}", musts.len());
    let rows = document["rows"].as_array().unwrap();
    for row in rows.iter().filter(|row| row["model"] == "nearpage") {
        let longest = row["longest_hold_operations"].as_u64().unwrap();
        assert!(longest <= 256, "{row}");
    }
}

#[test]
fn the_document_says_what_is_missed_and_so_does_the_exit_code() {
    let (document, code) = of_shipped();
    assert_eq!((&document["schema"], &document["reference"]), (&1.into(), &"linux-6.18".into()));
    let rows = |key: &str| document[key].as_array().unwrap().clone();
    for passes in ["rows", "first_pass"] {
        let models: Vec<String> = rows(passes).iter().map(|row| text(&row["model"])).collect();
        assert_eq!(models, MODELS, "{passes}");
        for row in rows(passes) {
            assert_eq!(row["bundle"], "q612-n2-mixed");
            let causes = &row["holds_by_cause"];
            let named = ["refill", "drain", "foreign", "upkeep"];
            let named: u64 = named.iter().map(|key| causes[key].as_u64().unwrap()).sum();
            let direct = causes["direct"].as_object().unwrap().values();
            let direct: u64 = direct.map(|holds| holds.as_u64().unwrap()).sum();
            assert_eq!(row["holds"], named + direct);
        }
    }
    assert_ne!(rows("rows"), rows("first_pass"));
    let figures = rows("means").iter().filter(|mean| mean["model"] == "linux-6.1").count();
    assert_eq!((rows("means").len(), figures), (MODELS.len() * figures, 10));
    for mean in rows("means") {
        assert!(!rows("rows")[0][text(&mean["figure"])].is_null(), "named as in the rows: {mean}");
        assert_eq!(mean["worst_bundle"], "q612-n2-mixed");
        // Of one bundle the mean is the ratio itself.
        let [mean, worst] = ["geometric_mean", "worst"].map(|key| mean[key].as_f64().unwrap());
        assert!((mean - worst).abs() < 1e-9 * worst, "{mean} {worst}");
    }
    let mut models: Vec<String> = rows("musts").iter().map(|must| text(&must["model"])).collect();
    models.dedup();
    assert_eq!(models, MODELS[1..], "the reference has nothing to reach");
    let missed = rows("musts").iter().filter(|must| must["is_met"] == false).count();
    assert!(missed > 0, "linux-6.1 takes more holds than linux-6.18 could spare");
    assert_eq!(*code, 1);
    // Named twice, and the reference itself.
    let (document, code) = compared(&[shipped()], &["linux-6.18", "linux-6.18"]);
    assert_eq!(document["rows"].as_array().unwrap().len(), 1);
    assert_eq!((document["musts"].as_array().unwrap().len(), code), (0, 0));
}

#[test]
fn the_table_has_a_row_a_bundle_and_a_line_a_figure() {
    let output = nearpage(&["replay", "rules", shipped().to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    let begins = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    // Two passes of two sets of rules.
    assert_eq!(begins("q612-n2-mixed "), 4, "{text}");
    for figure in ["holds ", "operations ", "kept_pages_mean ", "bound_ratio ", "failed "] {
        assert_eq!(begins(figure), 2, "{figure}{text}");
    }
    assert_eq!(begins("nearpage, first pass, shown apart"), 1);
    assert!(text.contains("mean <= 0.6, worst <= 1.0"));
}

#[test]
fn bundles_and_models_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = unpack_shipped(folder.path());
    let bundle = bundle.to_str().unwrap();
    let refused = |arguments: &[&str], named: &str| {
        let output = nearpage(&[&["replay", "rules"], arguments].concat());
        let message = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(named), "{named}: {message}");
        assert!(output.stdout.is_empty() || arguments.contains(&"--json"));
    };
    refused(&[], "BUNDLE");
    refused(&[bundle, bundle], "is given twice");
    refused(&[bundle, &format!("{bundle}/../q612-n2-mixed/")], "is given twice");
    refused(&["-", "-"], "is given twice");
    refused(&[bundle, "/nowhere/at-all"], "/nowhere/at-all");
    refused(&[folder.path().to_str().unwrap()], "expected a bundle");
    for name in ["linux-0.1", "auto", "sheaves-7.0", ""] {
        refused(&[bundle, "--model", name], "linux-6.18");
        refused(&[bundle, "--model", name], "rfc-2026-owned");
    }
    refused(&[bundle, "--model", "linux-0.1", "--json"], "linux-6.18");
}
