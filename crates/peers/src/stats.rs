//! Statistics of a handful of rounds.

/// What is reported of several measurements of one thing.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Summary {
    /// The middle one; of an even number, the mean of the two in the middle.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

impl Summary {
    /// Summarizes `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&min, &max) = (sorted.first()?, sorted.last()?);
        let half = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => (sorted[half - 1] + sorted[half]) / 2.0,
            _ => sorted[half],
        };
        Some(Summary { median, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::Summary;

    #[test]
    fn odd_number_of_values_has_its_middle_one_as_median() {
        let summary = Summary::of(&[9.0, 1.0, 4.0]).expect("three values");
        assert_eq!(summary, Summary { median: 4.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn even_number_of_values_has_the_mean_of_its_middle_two() {
        let summary = Summary::of(&[8.0, 2.0, 100.0, 4.0]).expect("four values");
        assert_eq!(summary, Summary { median: 6.0, min: 2.0, max: 100.0 });
    }

    #[test]
    fn one_value_is_everything() {
        let summary = Summary::of(&[3.5]).expect("one value");
        assert_eq!(summary, Summary { median: 3.5, min: 3.5, max: 3.5 });
    }

    #[test]
    fn no_values_have_no_summary() {
        assert_eq!(Summary::of(&[]), None);
    }
}
