//! What a replay must reach, by bundle: `bench/fidelity.txt` has the table.
//!
//! `NEARPAGE_BUNDLES=FOLDER cargo test --release -p nearpage-cli --test replay musts -- --nocapture` prints it for a
//! folder of bundles; without, it is the repository's own.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::replayed;

/// Musts that are missed, each with its reason. Who misses another one fails.
const KNOWN: [(&str, &str); 9] = [
    // What pagesets held at the start, or when idle CPUs did their once-a-second work, is in no event, and no drawn start has it.
    ("h-frag", "refill_pages"),
    ("h-frag", "drain_pages"),
    ("h-hackbench", "refill_pages"),
    ("h-pagecache", "refill_pages"),
    ("h-slab", "refill_pages"),
    ("q612-n8-2mem", "numa_miss"),
    ("q612-n8-2mem", "numa_foreign"),
    ("q612-normal", "numa_miss"),
    ("q612-normal", "numa_foreign"),
];

/// One must of a bundle.
struct Must {
    name: String,
    text: String,
    is_reached: bool,
}

struct Bundle {
    name: String,
    report: Value,
}

impl Bundle {
    fn is_emulated(&self) -> bool {
        self.name.starts_with('q')
    }

    fn rows(&self, quantity: &str) -> Vec<&Value> {
        let rows = self.report["fidelity"]["rows"].as_array().unwrap();
        rows.iter().filter(|row| row["quantity"] == quantity).collect()
    }

    fn all(&self, quantity: &str) -> &Value {
        self.rows(quantity).into_iter().find(|row| row["where"] == "all").unwrap()
    }

    /// Pages allocated and freed.
    fn moved_pages(&self) -> f64 {
        let trace = &self.report["trace"];
        trace["allocated_pages"].as_f64().unwrap() + trace["freed_pages"].as_f64().unwrap()
    }

    /// A row within some percent.
    fn within(&self, name: &str, row: &Value, percent: f64) -> Option<Must> {
        let (predicted, recorded) = (row["predicted"].as_f64()?, row["recorded"].as_f64()?);
        if predicted == recorded {
            return Some(Must { name: name.into(), text: "0.0 %".into(), is_reached: true });
        }
        if recorded == 0.0 {
            return None;
        }
        let error = (predicted - recorded) / recorded * 100.0;
        let (text, is_reached) = (format!("{error:+.1} %"), error.abs() <= percent);
        Some(Must { name: name.into(), text, is_reached })
    }

    /// The same, or within 1 % of the pages moved, or between the starts.
    fn flow(&self, quantity: &str) -> Option<Must> {
        let row = self.all(quantity);
        let mut must = self.within(quantity, row, 10.0)?;
        if !must.is_reached && !self.is_emulated() {
            let value = |value: &Value| value.as_f64().unwrap();
            let (predicted, recorded) = (value(&row["predicted"]), value(&row["recorded"]));
            let range = [value(&row["drawn_range"][0]), value(&row["drawn_range"][1])];
            if (predicted - recorded).abs() <= self.moved_pages() * 0.01 {
                must.text += ", 1 % of pages";
                must.is_reached = true;
            } else if (range[0]..=range[1]).contains(&recorded) {
                must.text += ", between starts";
                must.is_reached = true;
            }
        }
        Some(must)
    }

    fn high(&self) -> Option<Must> {
        let rows = self.rows("pcp_high").into_iter().filter(|row| row["at"] != "end");
        let mut errors: Vec<f64> = rows.filter_map(|row| row["error_percent"].as_f64()).collect();
        errors.sort_by(f64::total_cmp);
        let median = *errors.get(errors.len() / 2)?;
        let text = format!("{median:.1} %");
        Some(Must { name: "pcp_high".into(), text, is_reached: median <= 10.0 })
    }

    /// Free pages at the end: the worst zone, of the pages moved.
    fn free(&self) -> Option<Must> {
        let error = |row: &Value| {
            let difference = row["predicted"].as_f64()? - row["recorded"].as_f64()?;
            Some(difference.abs() / self.moved_pages() * 100.0)
        };
        let zones = self.rows("free_pages").into_iter().filter(|row| row["where"] != "all");
        let worst = zones.filter_map(error).max_by(f64::total_cmp)?;
        let text = format!("{worst:.2} %");
        Some(Must { name: "free_pages".into(), text, is_reached: worst <= 2.0 })
    }

    /// The zones that give pages to requests that prefer others.
    fn fallbacks(&self) -> Vec<Must> {
        let is_zone = |row: &&Value| row["where"] != "all" && row["recorded"].as_u64() >= Some(500);
        let rows = self.rows("fallback_pages").into_iter().filter(is_zone);
        let must = |row: &Value| self.within(row["where"].as_str().unwrap(), row, 5.0);
        rows.filter_map(must).collect()
    }

    fn musts(&self) -> Vec<Must> {
        let mut musts: Vec<Must> =
            ["refill_pages", "drain_pages"].into_iter().filter_map(|of| self.flow(of)).collect();
        // 6.1 has pagesets of one size.
        musts.extend(self.high().filter(|_| !self.name.starts_with("q61-")));
        if self.is_emulated() {
            musts.extend(self.free());
            // Policies are in no event.
            if self.name != "q612-cxl" {
                let counters = ["numa_hit", "numa_miss", "numa_foreign"];
                musts.extend(counters.iter().filter_map(|of| self.within(of, self.all(of), 2.0)));
            }
            musts.extend(self.fallbacks());
        }
        musts
    }

    /// A row of a Markdown table; `earlier` is the score before it was of what moved.
    fn row(&self, musts: &[Must], earlier: &str) -> String {
        let fidelity = &self.report["fidelity"];
        let percent = |value: &Value| value.as_f64().map_or("-".into(), |of| format!("{of:.1}"));
        let score = |quantity: &str| {
            let scores = fidelity["scores"].as_array().unwrap();
            let row = scores.iter().find(|row| row["quantity"] == quantity);
            row.map_or("-".into(), |row| percent(&row["percent"]))
        };
        let cell = |is_it: &dyn Fn(&str) -> bool| {
            let texts = musts.iter().filter(|must| is_it(&must.name)).map(|must| {
                if must.is_reached { must.text.clone() } else { format!("**{}**", must.text) }
            });
            let texts: Vec<String> = texts.collect();
            if texts.is_empty() { "-".into() } else { texts.join("; ") }
        };
        let extfrag = self.all("extfrag");
        let mut cells = vec![
            self.name.clone(),
            percent(&fidelity["percent"]),
            fidelity["worst"]["quantity"].as_str().unwrap_or("-").into(),
            earlier.into(),
        ];
        cells.extend(SCORES.map(score));
        cells.extend([
            percent(&fidelity["percent_known_state"]),
            cell(&|name| name == "refill_pages"),
            cell(&|name| name == "drain_pages"),
            cell(&|name| name == "pcp_high"),
            cell(&|name| name == "free_pages"),
            cell(&|name| name.starts_with("numa_")),
            cell(&|name| name.starts_with("node ")),
            format!("{} / {}", extfrag["predicted"], extfrag["recorded"]),
        ]);
        format!("| {} |", cells.join(" | "))
    }
}

/// The rows of the score.
const SCORES: [&str; 7] =
    ["refills", "refill_pages", "drains", "drain_pages", "holds", "pagesets", "free_lists"];

const HEADING: &str = "| bundle | score | worst row | earlier score | refills | refill pages | drains | drain pages | holds | \
     pagesets | free lists | known state | refill pages, error | drain pages, error | high, median | free pages, of those moved | \
     numa hit; miss; foreign | pages of fallback zones | extfrag events: model / kernel |\n\
     |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|";

fn bundles() -> Vec<PathBuf> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bundles");
    let folder = std::env::var("NEARPAGE_BUNDLES").unwrap_or_else(|_| own.into());
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.join("meta.json").exists() || name(path) != file_name(path));
    paths.sort();
    assert!(!paths.is_empty(), "{folder}: no bundles");
    paths
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// The name without the ending of a packed bundle.
fn name(path: &Path) -> String {
    file_name(path).trim_end_matches(".tar.zst").into()
}

/// A text of the repository.
fn text(path: &str) -> String {
    let path = format!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../{}"), path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn musts_are_reached_and_the_table_has_the_rows() {
    let (mut missed, mut stale) = (Vec::new(), Vec::new());
    let table = text("bench/fidelity.txt");
    println!("{HEADING}");
    for path in bundles() {
        let bundle = Bundle { name: name(&path), report: replayed(&path) };
        let musts = bundle.musts();
        let known = table.lines().find(|line| line.starts_with(&format!("| {} |", bundle.name)));
        let row = bundle.row(&musts, known.map_or("-", |line| column(line, 4)));
        println!("{row}");
        if known.is_some_and(|line| line != row) {
            stale.push(row);
        }
        let is_known = |must: &Must| {
            KNOWN.iter().any(|(of, what)| *of == bundle.name && must.name.starts_with(what))
        };
        let new = musts.iter().filter(|must| !must.is_reached && !is_known(must));
        missed.extend(new.map(|must| format!("{}: {} {}", bundle.name, must.name, must.text)));
    }
    assert!(missed.is_empty(), "{missed:#?}");
    assert!(stale.is_empty(), "bench/fidelity.txt has other figures than {stale:#?}");
}

/// A cell of a row of a Markdown table, counted from 1.
fn column(line: &str, at: usize) -> &str {
    line.split('|').nth(at).unwrap().trim()
}

/// What other pages and the other tables say of the table: how many recordings it has, and which scores.
#[test]
fn other_pages_say_what_the_table_says() {
    let page = text("bench/fidelity.txt");
    let is_row = |line: &&str| ["| h-", "| q"].iter().any(|name| line.starts_with(name));
    let rows: Vec<&str> = page.lines().filter(is_row).collect();
    let numbers = |of: &dyn Fn(&str) -> Vec<f64>| {
        let mut numbers: Vec<f64> =
            rows.iter().filter_map(|row| of(row).first().copied()).collect();
        numbers.sort_by(f64::total_cmp);
        let all = [numbers[0], numbers[numbers.len() / 2], numbers[numbers.len() - 1]];
        format!("{:>7.1}{:>8.1}{:>7.1}", all[0], all[1], all[2])
    };
    let at = |at: usize| move |row: &str| column(row, at).parse().into_iter().collect::<Vec<f64>>();
    let worst = |row: &str| {
        let scores = (5..12).filter_map(|at| column(row, at).parse().ok());
        scores.min_by(f64::total_cmp).into_iter().collect::<Vec<f64>>()
    };
    let mut told = vec![
        (" score", numbers(&at(2))),
        (" the worst row", numbers(&worst)),
        (" earlier score", numbers(&at(4))),
    ];
    told.extend(SCORES.iter().zip(5..).map(|(name, place)| (*name, numbers(&at(place)))));
    for (name, numbers) in told {
        let line = format!(" {:<15}{numbers}", name.trim().replace('_', " "));
        assert!(page.lines().any(|told| told == line), "bench/fidelity.txt does not say: {line}");
    }
    let count = rows.len();
    for (path, told) in [
        ("docs/src/trust/fidelity.md", format!("{count} recordings of real kernels")),
        ("docs/src/guides/replay.md", format!("The scores of {count} recordings")),
        ("README.md", format!("{count} recordings, of hosts and of guests")),
    ] {
        assert!(text(path).contains(&told), "{path} does not say: {told}");
    }
}
