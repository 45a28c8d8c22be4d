//! Tables that are shown out of result files.
//!
//! - `FILE / SECTION`, with `; columns A, B` and `; rows C, D` if not all are shown.
//! - `checks A, B of FILE = MACHINE, FILE = MACHINE`: verdicts of `--check` side by side.

use super::results::Results;

/// The lines of a table.
pub fn shown(what: &str, results: &Results) -> Result<Vec<String>, String> {
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    match what.strip_prefix("checks ") {
        Some(rest) => checks(rest, results),
        None => section(&what, results),
    }
}

fn row(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

fn rule(columns: usize) -> String {
    format!("|---|{}", "---:|".repeat(columns.saturating_sub(1)))
}

fn section(what: &str, results: &Results) -> Result<Vec<String>, String> {
    let mut parts = what.split("; ");
    let place = parts.next().unwrap_or_default();
    let (file, section) =
        place.split_once(" / ").ok_or_else(|| format!("`{place}` is not FILE / SECTION"))?;
    let mut table = results.table(file, section)?;
    for part in parts {
        let (word, names) = part
            .split_once(' ')
            .ok_or_else(|| format!("`{part}`: columns or rows are expected"))?;
        let names: Vec<&str> = names.split(", ").collect();
        match word {
            "columns" => {
                let place = |name: &&str| {
                    let at = table.head.iter().position(|head| head == name);
                    at.ok_or_else(|| {
                        format!("{place} has no column {name}: {}", table.head.join(", "))
                    })
                };
                let places = names.iter().map(place).collect::<Result<Vec<_>, _>>()?;
                let pick = |cells: &Vec<String>| -> Vec<String> {
                    places.iter().map(|&at| cells.get(at).cloned().unwrap_or_default()).collect()
                };
                table.rows = table.rows.iter().map(pick).collect();
                table.head = pick(&table.head);
            }
            "rows" => {
                let found = |name: &&str| {
                    let row = table.rows.iter().find(|cells| cells[0] == **name).cloned();
                    row.ok_or_else(|| format!("{place} has no row {name}"))
                };
                table.rows = names.iter().map(found).collect::<Result<_, _>>()?;
            }
            _ => return Err(format!("`{word}`: columns or rows are expected")),
        }
    }
    let mut lines = vec![row(&table.head), rule(table.head.len())];
    lines.extend(table.rows.iter().map(|cells| row(cells)));
    Ok(lines)
}

fn checks(what: &str, results: &Results) -> Result<Vec<String>, String> {
    let (names, files) =
        what.rsplit_once(" of ").ok_or("checks NAMES of FILE = MACHINE is expected")?;
    let files = files
        .split(", ")
        .map(|file| file.split_once(" = ").ok_or(format!("`{file}` names no machine")));
    let files: Vec<(&str, &str)> = files.collect::<Result<_, _>>()?;
    let mut head = vec!["work".to_owned(), "wanted".to_owned()];
    for (_, machine) in &files {
        head.extend([format!("{machine}: nearpage"), "other".to_owned(), "ratio".to_owned()]);
    }
    let mut lines = vec![row(&head), rule(head.len())];
    for name in names.split(", ") {
        let mut cells = Vec::new();
        for (file, _) in &files {
            let Ok(check) = results.check(file, name) else {
                cells.extend(["not run", "", ""].map(str::to_owned));
                continue;
            };
            if cells.is_empty() {
                let must = check.must.replace("<=", "at most").replace(">=", "at least");
                lines.push(String::new());
                cells.extend([check.what.to_owned(), must]);
            }
            let measured = |at: usize| check.measured.get(at);
            cells.push(measured(0).map_or(String::new(), |(_, value)| short(value)));
            cells.push(
                measured(1).map_or(String::new(), |(who, value)| format!("{} {who}", short(value))),
            );
            let missed = if check.missed { " **missed**" } else { "" };
            cells.push(format!("{}{missed}", check.value));
        }
        if cells.len() != head.len() {
            return Err(format!("the first file has no check {name}"));
        }
        *lines.last_mut().expect("a row was begun") = row(&cells);
    }
    Ok(lines)
}

/// Three digits of a value with a unit.
fn short(value: &str) -> String {
    let Some((number, unit)) = value.split_once(' ') else { return value.to_owned() };
    let Ok(parsed) = number.parse::<f64>() else { return value.to_owned() };
    let decimals = if parsed >= 100.0 {
        0
    } else if parsed >= 10.0 {
        1
    } else {
        2
    };
    format!("{parsed:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pair: ns\n allocator   median  max \n nearpage      2.43    9 \n mmap          7255    8 \n\nMISS      1.47x  must >= 1.5x   aim >= 3x     not reached  lifo: free: faster (nearpage 4.84 ns; bitmap-allocator 117.107 ns)\n";

    #[test]
    fn tables_show_rows_columns_and_verdicts() {
        let results = Results::of("pages", TEXT);
        let lines = shown("pages / pair; columns allocator, median; rows mmap", &results).unwrap();
        assert_eq!(lines, ["| allocator | median |", "|---|---:|", "| mmap | 7255 |"]);
        let lines = shown("checks lifo of pages = EPYC", &results).unwrap();
        assert_eq!(lines[0], "| work | wanted | EPYC: nearpage | other | ratio |");
        assert_eq!(
            lines[2],
            "| free: faster | at least 1.5x | 4.84 ns | 117 ns bitmap-allocator | 1.47x **missed** |"
        );
        for wrong in [
            "pages / fill",
            "pages / pair; rows glibc",
            "pages / pair; columns p99",
            "checks a of pages = EPYC",
        ] {
            assert!(shown(wrong, &results).is_err(), "{wrong}");
        }
    }
}
