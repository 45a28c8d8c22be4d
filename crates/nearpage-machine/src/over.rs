//! A setting and the values that a sweep gives it, as text: `KEY=VALUE,VALUE` or `KEY=FIRST..LAST`.
//!
//! ```
//! use nearpage_machine::over::{Over, OverError};
//!
//! let over: Over = "pcp.batch_scale_max=0..3,6".parse()?;
//! assert_eq!((&*over.key, over.values.join(" ")), ("pcp.batch_scale_max", "0 1 2 3 6".to_owned()));
//! assert_eq!("a=6..0".parse::<Over>(), Err(OverError::NoRange { found: "6..0".into() }));
//! # Ok::<(), OverError>(())
//! ```

use std::collections::HashSet;
use std::str::FromStr;

/// The most values that one range stands for.
pub const RANGE_VALUES_MAX: u32 = 1000;

/// A setting by its name, and the values that it takes in turn. Whether there is such a setting, and whether it
/// takes such values, is for the reader of it to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Over {
    /// The name of the setting.
    pub key: String,
    /// Its values, at least one, in the order of the text.
    pub values: Vec<String>,
}

/// A text that names no setting and values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OverError {
    /// There is no `=`.
    #[error("{found:?} has no =, expected KEY=VALUE,VALUE... or KEY=FIRST..LAST")]
    NoValues {
        /// The text.
        found: String,
    },
    /// A value that is there more than once.
    #[error("{key}={value} is there twice, expected each value once")]
    Twice {
        /// The name of the setting.
        key: String,
        /// The value.
        value: String,
    },
    /// A range without a first or a last number, with more than [`RANGE_VALUES_MAX`] values, or with none.
    #[error(
        "{found:?} is no range, expected FIRST..LAST: two whole numbers, the first not above the last, at most \
         {RANGE_VALUES_MAX} values"
    )]
    NoRange {
        /// The range.
        found: String,
    },
}

impl FromStr for Over {
    type Err = OverError;

    fn from_str(text: &str) -> Result<Over, OverError> {
        let (key, values) =
            text.split_once('=').ok_or_else(|| OverError::NoValues { found: text.into() })?;
        let mut all = Vec::new();
        for value in values.split(',').map(str::trim) {
            match value.split_once("..") {
                Some((first, last)) => all.extend(
                    range(first, last).ok_or_else(|| OverError::NoRange { found: value.into() })?,
                ),
                None => all.push(value.to_owned()),
            }
        }
        let key: String = key.trim().into();
        let mut seen = HashSet::new();
        match all.iter().find(|value| !seen.insert(value.as_str())) {
            Some(value) => Err(OverError::Twice { key, value: value.clone() }),
            None => Ok(Over { key, values: all }),
        }
    }
}

/// All numbers from the first to the last one.
fn range(first: &str, last: &str) -> Option<impl Iterator<Item = String> + use<>> {
    let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
    let is_range = first <= last && last - first < RANGE_VALUES_MAX;
    is_range.then(|| (first..=last).map(|value| value.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_ranges_are_read() {
        let values = |text: &str| text.parse::<Over>().unwrap().values.join(" ");
        assert_eq!(values("k=1"), "1");
        assert_eq!(values("k = off, keyed"), "off keyed");
        assert_eq!(values("k=0..0"), "0");
        assert_eq!(values("k=1,3..5,9"), "1 3 4 5 9");
        assert_eq!("k=0..999".parse::<Over>().unwrap().values.len(), 1000);
    }

    #[test]
    fn a_value_is_there_once() {
        for text in ["k=5,5", "k=1..3,2", "k= a,a "] {
            let message = text.parse::<Over>().unwrap_err().to_string();
            assert!(message.ends_with(" is there twice, expected each value once"), "{message}");
        }
    }

    #[test]
    fn what_is_no_range_is_named() {
        for text in ["k=a..b", "k=6..0", "k=1..", "k=..1", "k=0..1000", "k=0..1..2", "k=-1..1"] {
            let message = text.parse::<Over>().unwrap_err().to_string();
            assert!(
                message.contains("is no range") && message.contains("FIRST..LAST"),
                "{message}"
            );
        }
        assert!("k".parse::<Over>().unwrap_err().to_string().contains("KEY=FIRST..LAST"));
    }
}
