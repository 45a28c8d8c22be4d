//! Lists of node and CPU ids, as the kernel writes them and as numactl reads them.
//!
//! The kernel writes ascending ranges, `0-3,8`, and nothing for an empty list. numactl's grammar
//! (numactl(8)) adds `all`, `!` in front of a list for "all but these", and `+` in front of a list
//! for positions among the available ids instead of ids. Old kernels write a mask of hexadecimal
//! words instead, `00000001,0000000f`.

use std::fmt::Write as _;

/// The largest id that a list may name. It bounds what `0-4294967295` can make a reader allocate;
/// Linux itself stops at 8192 CPUs and 1024 nodes.
pub const MAX_ID: u32 = (1 << 20) - 1;

/// Why a text is no list of ids.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("column {column}: {problem}")]
pub struct IdListError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong there.
    #[source]
    pub problem: IdListProblem,
}

/// What is wrong with a list of ids.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IdListProblem {
    /// Something else stands where an id or a range belongs.
    #[error("found {found:?}, expected {expected}")]
    Syntax {
        /// What stands there.
        found: String,
        /// What would be accepted.
        expected: &'static str,
    },
    /// An id above [`MAX_ID`].
    #[error("the id {found} is too large, expected 0 to {MAX_ID}")]
    TooLarge {
        /// The number as written.
        found: String,
    },
    /// A range whose end lies before its start.
    #[error("the range {first}-{last} runs backwards, expected {last}-{first}")]
    Backwards {
        /// The first id as written.
        first: u32,
        /// The last id as written.
        last: u32,
    },
    /// An id that the list names before.
    #[error("the id {id} is named again, expected each id once")]
    Repeated {
        /// The id.
        id: u32,
    },
    /// An id, or with `+` a position, that is not among the available ones.
    #[error("{id} is not there, expected some of {available}")]
    NotAvailable {
        /// The id or position.
        id: u32,
        /// What there is, as a list.
        available: String,
    },
}

/// The ids `first..=last`, and where in the text they stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct IdRange {
    first: u32,
    last: u32,
    column: usize,
}

/// Reads a list as the kernel writes it, its ranges in any order. The ids of the answer ascend; nothing is the empty
/// list.
///
/// # Errors
///
/// [`IdListError`] with the column: something else than ids and ranges, or an id that is named twice.
pub fn parse(text: &str) -> Result<Vec<u32>, IdListError> {
    let text = text.trim_end();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut ranges = parse_ranges(text, 1, "an id such as 0 or a range such as 0-3")?;
    ranges.sort_by_key(|range| range.first);
    Ok(ranges.iter().flat_map(|range| range.first..=range.last).collect())
}

/// Writes ids the way the kernel does: `[0, 1, 2, 8]` becomes `0-2,8`. Expects ascending ids.
pub fn format(ids: &[u32]) -> String {
    let mut text = String::new();
    for run in ids.chunk_by(|left, right| left + 1 == *right) {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = match run {
            [only] => write!(text, "{comma}{only}"),
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [] => Ok(()),
        };
    }
    text
}

/// Reads a mask as old kernels write it: words of 32 bits in hexadecimal, the highest first.
///
/// # Errors
///
/// [`IdListError`] with the column of a word that is no mask.
pub fn parse_mask(text: &str) -> Result<Vec<u32>, IdListError> {
    let mut ids = Vec::new();
    let mut end = text.trim_end().len();
    for (position, word) in text.trim_end().rsplit(',').enumerate() {
        let column = end - word.len() + 1;
        let bits = parse_mask_word(word).ok_or_else(|| IdListError {
            column,
            problem: syntax(word, "a mask of hexadecimal words such as 00000001,0000000f"),
        })?;
        let base = position as u32 * 32;
        ids.extend((0..32).filter(|bit| bits >> bit & 1 != 0).map(|bit| base + bit));
        end = end.saturating_sub(word.len() + 1);
    }
    Ok(ids)
}

/// One word of a mask. `u32::from_str_radix` alone would accept a sign.
fn parse_mask_word(word: &str) -> Option<u32> {
    let is_hexadecimal = word.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hexadecimal { u32::from_str_radix(word, 16).ok() } else { None }
}

/// A choice of ids in numactl's grammar, before it is known which ids there are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdSelection {
    inverted: bool,
    relative: bool,
    /// `None` for `all`.
    ranges: Option<Vec<IdRange>>,
}

impl IdSelection {
    /// Reads `0-3,8`, `all`, `!0-3`, `+0-1` or `!+0`.
    ///
    /// # Errors
    ///
    /// [`IdListError`] with the column: no choice of that grammar, or an id or position that is named twice.
    pub fn parse(text: &str) -> Result<IdSelection, IdListError> {
        const EXPECTED: &str = "ids such as 0-3,8, all, !0-3 or +0-1";
        let (inverted, rest) = strip_sign(text.trim_end(), '!');
        let (relative, list) = strip_sign(rest, '+');
        if list == "all" && !relative {
            return Ok(IdSelection { inverted, relative, ranges: None });
        }
        let column = 1 + usize::from(inverted) + usize::from(relative);
        let ranges = parse_ranges(list, column, EXPECTED)?;
        Ok(IdSelection { inverted, relative, ranges: Some(ranges) })
    }

    /// The ids chosen among `available`, which is ascending: the nodes or CPUs that this process may use.
    ///
    /// # Errors
    /// [`IdListProblem::NotAvailable`] if the text named an id that is not available.
    pub fn resolve(&self, available: &[u32]) -> Result<Vec<u32>, IdListError> {
        let mut named = Vec::new();
        for range in self.ranges.iter().flatten() {
            self.resolve_range(*range, available, &mut named)?;
        }
        if self.ranges.is_none() {
            named.extend_from_slice(available);
        }
        let is_chosen = |id: &&u32| named.contains(id) != self.inverted;
        Ok(available.iter().filter(is_chosen).copied().collect())
    }

    fn resolve_range(
        &self,
        range: IdRange,
        available: &[u32],
        named: &mut Vec<u32>,
    ) -> Result<(), IdListError> {
        for number in range.first..=range.last {
            let id = if self.relative {
                available.get(number as usize).copied()
            } else {
                available.binary_search(&number).ok().map(|_| number)
            };
            named.push(id.ok_or_else(|| self.not_available(range, number, available))?);
        }
        Ok(())
    }

    fn not_available(&self, range: IdRange, number: u32, available: &[u32]) -> IdListError {
        let available = if self.relative {
            format(&(0..available.len() as u32).collect::<Vec<_>>())
        } else {
            format(available)
        };
        IdListError {
            column: range.column,
            problem: IdListProblem::NotAvailable { id: number, available },
        }
    }
}

/// Whether `text` starts with `sign`, and what follows it.
fn strip_sign(text: &str, sign: char) -> (bool, &str) {
    match text.strip_prefix(sign) {
        Some(rest) => (true, rest),
        None => (false, text),
    }
}

/// Reads `0-3,8`; `column` is where `text` stands in the whole.
fn parse_ranges(
    text: &str,
    mut column: usize,
    expected: &'static str,
) -> Result<Vec<IdRange>, IdListError> {
    let mut ranges = Vec::new();
    for part in text.split(',') {
        let at = |problem| IdListError { column, problem };
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parse = |number| parse_id(number).map_err(|error| at(error.problem(part, expected)));
        let (first, last) = (parse(first)?, parse(last)?);
        if last < first {
            return Err(at(IdListProblem::Backwards { first, last }));
        }
        ranges.push(IdRange { first, last, column });
        column += part.chars().count() + 1;
    }
    check_each_once(&ranges)?;
    Ok(ranges)
}

/// Checks that no two ranges have an id in common. The later one in the text is to blame.
fn check_each_once(ranges: &[IdRange]) -> Result<(), IdListError> {
    let mut ascending = ranges.to_vec();
    ascending.sort_by_key(|range| range.first);
    let pairs = ascending.windows(2).filter(|pair| pair[1].first <= pair[0].last);
    let errors = pairs.map(|pair| IdListError {
        column: pair[0].column.max(pair[1].column),
        problem: IdListProblem::Repeated { id: pair[1].first },
    });
    errors.min_by_key(|error| error.column).map_or(Ok(()), Err)
}

/// Why a text is no id.
enum BadId {
    NoNumber,
    TooLarge(String),
}

impl BadId {
    fn problem(self, part: &str, expected: &'static str) -> IdListProblem {
        match self {
            BadId::NoNumber => syntax(part, expected),
            BadId::TooLarge(found) => IdListProblem::TooLarge { found },
        }
    }
}

fn parse_id(text: &str) -> Result<u32, BadId> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadId::NoNumber);
    }
    match text.parse() {
        Ok(id) if id <= MAX_ID => Ok(id),
        _ => Err(BadId::TooLarge(excerpt(text))),
    }
}

fn syntax(found: &str, expected: &'static str) -> IdListProblem {
    IdListProblem::Syntax { found: excerpt(found), expected }
}

/// The start of an input, short enough for a message.
pub fn excerpt(text: &str) -> String {
    const CHARACTERS_MAX: usize = 40;
    let mut short: String = text.chars().take(CHARACTERS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn kernel_lists() {
        assert_eq!(parse("0-3,8\n").unwrap(), [0, 1, 2, 3, 8]);
        assert_eq!(parse("252-255").unwrap(), [252, 253, 254, 255]);
        assert_eq!(parse("\n").unwrap(), []);
        assert_eq!(parse("8,0-2,3").unwrap(), [0, 1, 2, 3, 8]);
    }

    #[test]
    fn masks_of_old_kernels() {
        assert_eq!(parse_mask("00000001,0000000f\n").unwrap(), [0, 1, 2, 3, 32]);
        assert_eq!(parse_mask("3").unwrap(), [0, 1]);
        assert_eq!(parse_mask("+3").unwrap_err().column, 1);
        assert_eq!(parse_mask("0,x").unwrap_err().column, 3);
        assert_eq!(parse_mask("x,0").unwrap_err().column, 1);
    }

    #[test]
    fn errors_name_the_column_and_what_would_be_accepted() {
        let message = |text| parse(text).unwrap_err().to_string();
        assert_eq!(
            message("0-3,x"),
            "column 5: found \"x\", expected an id such as 0 or a range such as 0-3"
        );
        assert_eq!(message("3-1"), "column 1: the range 3-1 runs backwards, expected 1-3");
        assert_eq!(
            message("0,99999999999"),
            "column 3: the id 99999999999 is too large, expected 0 to 1048575"
        );
        for (list, column, id) in [("0-3,2", 5, 2), ("8,4,0-4", 5, 4), ("1,1", 3, 1)] {
            assert_eq!(
                message(list),
                format!("column {column}: the id {id} is named again, expected each id once")
            );
        }
        assert_eq!(
            message("0,,1"),
            "column 3: found \"\", expected an id such as 0 or a range such as 0-3"
        );
    }

    #[test]
    fn numactl_selections() {
        let available = [0, 8, 252, 253];
        let select = |text| IdSelection::parse(text).unwrap().resolve(&available);
        assert_eq!(select("0,252-253").unwrap(), [0, 252, 253]);
        assert_eq!(select("all").unwrap(), available);
        assert_eq!(select("!8").unwrap(), [0, 252, 253]);
        assert_eq!(select("!all").unwrap(), []);
        assert_eq!(select("+1-2").unwrap(), [8, 252]);
        assert_eq!(select("!+0").unwrap(), [8, 252, 253]);
        assert_eq!(
            select("0,9").unwrap_err().to_string(),
            "column 3: 9 is not there, expected some of 0,8,252-253"
        );
        assert_eq!(
            select("!+4").unwrap_err().to_string(),
            "column 3: 4 is not there, expected some of 0-3"
        );
        assert_eq!(
            IdSelection::parse("!+0-3,2").unwrap_err().to_string(),
            "column 7: the id 2 is named again, expected each id once"
        );
        assert!(IdSelection::parse("+all").is_err());
        assert!(IdSelection::parse("").is_err());
    }

    proptest! {
        #[test]
        fn format_and_parse_are_inverse(ids in proptest::collection::btree_set(0..5000u32, 0..50)) {
            let ids: Vec<u32> = ids.into_iter().collect();
            prop_assert_eq!(parse(&format(&ids)).unwrap(), ids);
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,30}|[0-9,!+-]{0,12}") {
            let _ = parse(&text);
            let _ = parse_mask(&text);
            if let Ok(selection) = IdSelection::parse(&text) {
                let _ = selection.resolve(&[0, 1, 8]);
            }
        }
    }
}
