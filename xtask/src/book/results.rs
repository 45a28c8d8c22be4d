//! Result files: what `bench/NAME.txt` has under a key `NAME / SECTION / ROW / COLUMN`.
//!
//! A section begins with a line at the left margin; its table follows: rows that begin with a space, whose columns stand two spaces
//! apart, or rows of Markdown. Section `check` has the verdicts of `--check`, by their names.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// All result files, by name without ending.
pub struct Results(BTreeMap<String, String>);

/// A table of a result file.
#[derive(PartialEq, Eq, Debug)]
pub struct Table {
    pub title: String,
    pub head: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// One verdict of `--check`.
pub struct Check<'a> {
    pub missed: bool,
    pub value: &'a str,
    pub must: &'a str,
    pub what: &'a str,
    /// Who was measured, and how much, nearpage first.
    pub measured: Vec<(&'a str, &'a str)>,
}

impl Results {
    /// Reads a folder.
    pub fn read(folder: &Path) -> std::io::Result<Self> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let is_result =
                path.extension().is_some_and(|ending| ending == "txt" || ending == "md");
            if let (true, Some(name)) = (is_result, path.file_stem().and_then(|name| name.to_str()))
            {
                files.insert(name.to_owned(), fs::read_to_string(&path)?);
            }
        }
        Ok(Self(files))
    }

    #[cfg(test)]
    pub fn of(name: &str, text: &str) -> Self {
        Self(BTreeMap::from([(name.to_owned(), text.to_owned())]))
    }

    /// The text of a file.
    pub fn file(&self, name: &str) -> Result<&str, String> {
        self.0
            .get(name)
            .map(String::as_str)
            .ok_or_else(|| format!("bench has no result file {name}"))
    }

    /// The files that do not say in their first lines by which command and at which commit they were made.
    pub fn without_origin(&self) -> impl Iterator<Item = &str> {
        let lacks = |text: &str| {
            let head: String = text.lines().take(8).collect::<Vec<_>>().join("\n");
            !head.to_lowercase().contains("commit ")
        };
        self.0
            .iter()
            .filter(move |(name, text)| *name != "README" && lacks(text))
            .map(|(name, _)| name.as_str())
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Result<String, String> {
        let parts: Vec<&str> = key.split(" / ").map(str::trim).collect();
        let (file, section, row, column) = match parts[..] {
            [file, section, row] => (file, section, row, None),
            [file, section, row, column] => (file, section, row, Some(column)),
            _ => return Err(format!("`{key}` is no key: FILE / SECTION / ROW / COLUMN")),
        };
        if section == "check" {
            let check = self.check(file, row)?;
            let measured = |at: usize| check.measured.get(at).map(|(_, value)| *value);
            let value = match column {
                None => Some(check.value),
                Some("nearpage") => measured(0),
                Some("best") => measured(1),
                Some("must") => Some(check.must),
                Some(_) => None,
            };
            return value
                .map(str::to_owned)
                .ok_or_else(|| format!("`{key}`: a check has nearpage, best, must"));
        }
        let column = column.ok_or_else(|| format!("`{key}` names no column"))?;
        let table = self.table(file, section)?;
        let at = table.head.iter().position(|name| name == column);
        let at = at.ok_or_else(|| format!("`{key}`: the columns are {}", table.head.join(", ")))?;
        let begins = |cells: &[String]| {
            cells
                .join(" ")
                .strip_prefix(row)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let mut rows: Vec<_> = table.rows.iter().filter(|cells| begins(cells)).collect();
        if rows.iter().any(|cells| cells[0] == row) {
            rows.retain(|cells| cells[0] == row);
        }
        match rows[..] {
            [cells] => cells.get(at).cloned().ok_or_else(|| format!("`{key}`: the row is shorter")),
            _ => Err(format!("`{key}`: {} rows begin so", rows.len())),
        }
    }

    /// The table whose title begins with `section`.
    pub fn table(&self, file: &str, section: &str) -> Result<Table, String> {
        let mut tables = tables(self.file(file)?);
        tables.retain(|table| table.title.starts_with(section));
        match tables.len() {
            1 => Ok(tables.remove(0)),
            count => Err(format!("{file} has {count} sections that begin `{section}`")),
        }
    }

    /// The verdict called `name`.
    pub fn check(&self, file: &str, name: &str) -> Result<Check<'_>, String> {
        let line = self.file(file)?.lines().find(|line| line.contains(&format!(" {name}: ")));
        line.and_then(|line| check(line, name)).ok_or_else(|| format!("{file} has no check {name}"))
    }
}

fn check<'a>(line: &'a str, name: &str) -> Option<Check<'a>> {
    let (verdict, rest) = line.split_once("must")?;
    let (missed, value) = match verdict.trim().split_once(' ')? {
        ("ok", value) => (false, value),
        ("MISS", value) => (true, value),
        _ => return None,
    };
    let must = rest.split("aim").next()?.trim();
    let what = rest.split_once(&format!("{name}: "))?.1;
    let (what, measured) = what.rsplit_once(" (").unwrap_or((what, ""));
    let pair = |text: &'a str| {
        let (who, value) = text.trim_end_matches(')').trim().rsplit_once(": ").or_else(|| {
            let value = text.trim_end_matches(')').trim();
            let number = value
                .find(|c: char| c.is_ascii_digit())
                .filter(|at| value[..*at].ends_with(' '))?;
            Some((&value[..number], &value[number..]))
        })?;
        Some((who.split_whitespace().next()?, value.trim()))
    };
    Some(Check {
        missed,
        value: value.trim(),
        must,
        what,
        measured: measured.split("; ").filter_map(pair).collect(),
    })
}

/// The tables of a text.
fn tables(text: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let (mut title, mut open) = (String::new(), false);
    for line in text.lines() {
        let cells: Vec<String> = if line.starts_with('|') {
            line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
        } else if line.starts_with(' ') {
            line.split("  ")
                .map(str::trim)
                .filter(|cell| !cell.is_empty())
                .map(str::to_owned)
                .collect()
        } else {
            if !line.trim().is_empty() {
                title = line.trim_end_matches(':').to_owned();
            }
            open = false;
            continue;
        };
        match tables.last_mut() {
            Some(table) if open => {
                if !cells
                    .iter()
                    .all(|cell| cell.chars().all(|c| "-:".contains(c)) && !cell.is_empty())
                {
                    table.rows.push(cells);
                }
            }
            _ => tables.push(Table { title: title.clone(), head: cells, rows: Vec::new() }),
        }
        open = true;
    }
    tables
}

/// The number that a value begins with.
pub fn number(value: &str) -> Option<f64> {
    let value = value.trim().trim_start_matches(['+', '-']);
    let end =
        value.find(|c: char| !c.is_ascii_digit() && c != '.' && c != ' ').unwrap_or(value.len());
    value[..end].replace(' ', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# peers, commit 1\n\npair, 1 thread: ns\n allocator   median  to nearpage \n nearpage      2.43        1.00x \n mmap          7255     2981.91x \n\nMeans:\n\n| malloc | wall time |\n|---|---:|\n| mimalloc | 0.80 (0.80 to 0.81) |\n\nMISS      1.47x  must >= 1.5x   aim >= 3x     not reached  free-lifo: free them: faster (nearpage 4.84 ns; bitmap-allocator 7.107 ns)\nok 1.00x must <= 1.03x aim <= 1x not reached  pair-0.1: hot pair (nearpage pair threads 1 n 1: 2.433 ns; nearpage-0.1 pair threads 1 n 1: 2.43 ns)\n";

    #[test]
    fn keys_lead_to_values() {
        let results = Results::of("pages", TEXT);
        let value = |key: &str| results.value(key);
        assert_eq!(value("pages / pair, 1 thread / mmap / to nearpage").unwrap(), "2981.91x");
        assert_eq!(value("pages / Means / mimalloc / wall time").unwrap(), "0.80 (0.80 to 0.81)");
        assert_eq!(value("pages / check / free-lifo").unwrap(), "1.47x");
        assert_eq!(value("pages / check / free-lifo / best").unwrap(), "7.107 ns");
        assert_eq!(value("pages / check / pair-0.1 / best").unwrap(), "2.43 ns");
        assert!(results.check("pages", "free-lifo").unwrap().missed);
        for none in [
            "pages / pair / mmap / p99",
            "pages / pair / glibc / median",
            "objects / a / b / c",
            "pages",
        ] {
            assert!(value(none).is_err(), "{none}");
        }
        assert_eq!(results.without_origin().count(), 0);
        assert_eq!(number("139 564 of 7"), Some(139_564.0));
    }
}
