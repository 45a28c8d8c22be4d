//! What counts as a figure: CONTRIBUTING.md, "Figures", has the rule.

use std::ops::Range;

/// A number in a line.
#[derive(PartialEq, Eq, Debug)]
pub struct Number {
    /// Where it stands in its line.
    pub at: Range<usize>,
    /// Whether a unit of measurements follows, at once or behind another number and `to`, `and` or `or`.
    pub measured: bool,
}

/// Units of what is measured. Bytes and pages are no such units: sizes of constants and of machines have them.
const UNITS: [&str; 17] = [
    "ns",
    "us",
    "µs",
    "ms",
    "s",
    "second",
    "seconds",
    "minute",
    "minutes",
    "min",
    "hour",
    "hours",
    "%",
    "x",
    "times",
    "cycles",
    "instructions",
];

/// The numbers of a line, but for those in code, in targets of links, and in names (`6.12.95`, `q612-n2`, `#4`).
pub fn numbers(line: &str) -> Vec<Number> {
    let hidden = hidden(line);
    let bytes = line.as_bytes();
    let (mut found, mut at): (Vec<Number>, usize) = (Vec::new(), 0);
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = end_of_number(line, at);
        let before = line[..at].chars().next_back();
        let is_name = before.is_some_and(|c| c.is_alphanumeric() || "._-/#`^".contains(c));
        let goes_on = line[end..].starts_with(['.', '-', '_', '/'])
            && line[end + 1..].starts_with(|c: char| c.is_alphanumeric());
        if !is_name && !goes_on && !hidden.iter().any(|range| range.contains(&at)) {
            let unit = unit(&line[end..]);
            let letters = line[end..].starts_with(char::is_alphabetic);
            if unit || !letters {
                found.push(Number { at: at..end, measured: unit });
            }
        }
        at = end;
    }
    for index in (1..found.len()).rev() {
        let between = line[found[index - 1].at.end..found[index].at.start].trim();
        if found[index].measured && ["to", "and", "or"].contains(&between) {
            found[index - 1].measured = true;
        }
    }
    found
}

/// Digits, groups of three of them behind spaces, and what follows a point.
fn end_of_number(line: &str, from: usize) -> usize {
    let bytes = line.as_bytes();
    let digits =
        |at: usize| bytes[at.min(bytes.len())..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = from + digits(from);
    if end - from <= 3 {
        while bytes.get(end) == Some(&b' ') && digits(end + 1) == 3 {
            end += 4;
        }
    }
    while bytes.get(end) == Some(&b'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
    }
    end
}

/// Whether a unit of measurements follows.
fn unit(rest: &str) -> bool {
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    if rest.starts_with('%') {
        return true;
    }
    let word: String = rest.chars().take_while(|c| c.is_alphanumeric()).collect();
    UNITS.contains(&word.as_str())
}

/// Code, targets of links, comments.
fn hidden(line: &str) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    for (open, close) in [("`", "`"), ("](", ")"), ("<!--", "-->")] {
        let mut from = 0;
        while let Some(start) = line[from..].find(open).map(|at| from + at) {
            let inside = start + open.len();
            let Some(end) = line[inside..].find(close).map(|at| inside + at + close.len()) else {
                break;
            };
            ranges.push(start..end);
            from = end;
        }
    }
    ranges
}

/// The figures of a block: line of the block, and place.
///
/// In a table whose cells or headings have a unit, each number behind the first column is one.
pub fn figures(lines: &[&str]) -> Vec<(usize, Range<usize>)> {
    let is_table = lines.len() > 2 && lines[1].starts_with("|--")
        || lines.len() > 2 && lines[1].starts_with("|:-");
    let measured = |line: &&str| numbers(line).iter().any(|number| number.measured);
    let heading = |line: &str| {
        line.split(|c: char| !c.is_alphanumeric() && c != '%')
            .any(|word| UNITS.contains(&word) && word != "s" || word == "ratio")
    };
    let of_results = is_table && (heading(lines[0]) || lines[2..].iter().any(measured));
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        if line.starts_with('#') || is_table && index < 2 {
            continue;
        }
        let first = line.get(1..).and_then(|rest| rest.find('|')).map_or(0, |at| at + 1);
        let counts =
            |number: &Number| if of_results { number.at.start > first } else { number.measured };
        found.extend(numbers(line).into_iter().filter(counts).map(|number| (index, number.at)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lines: &[&str]) -> Vec<String> {
        figures(lines).into_iter().map(|(line, at)| lines[line][at].to_owned()).collect()
    }

    #[test]
    fn figures_have_units_and_names_are_none() {
        let text = "Linux 6.12.95 on q612-n2 with 64 MiB takes 2.4 ns, 10 to 12 ms, 1.5x and 7 % of 139 564 fields";
        assert_eq!(shown(&[text]), ["2.4", "10", "12", "1.5", "7"]);
        assert_eq!(
            shown(&["`3 ns` in [code](a#3 ms), order-0 3x, 5 pages, 1 000 000 times"]),
            ["3", "1 000 000"]
        );
        assert_eq!(shown(&["a 4s kernel, 5th, 3.5% of it"]), ["4", "3.5"]);
    }

    #[test]
    fn tables_of_results_have_figures_in_all_columns_but_the_first() {
        let table =
            ["| work of 3 ns | ns | pages |", "|---|---|---|", "| 200 000 pages | 3.6 | 12 (13) |"];
        assert_eq!(shown(&table), ["3.6", "12", "13"]);
        let constants = ["| zone | batch |", "|---|---|", "| DMA | 63 |"];
        assert!(shown(&constants).is_empty());
    }
}
