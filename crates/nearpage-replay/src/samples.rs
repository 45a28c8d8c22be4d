//! The samples of a bundle: `/proc/zoneinfo` at some moments of the window.

use nearpage_bundle::BundleError;
use nearpage_machine::sysfs::TextFile;
use nearpage_machine::sysfs::zoneinfo::{self, ZoneRecord};

use crate::error::ReplayError;

/// `/proc/zoneinfo` at one moment of the window.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Its number, as the markers have it.
    pub(crate) number: u32,
    /// The zones.
    pub(crate) zones: Vec<ZoneRecord>,
}

/// Reads texts that begin with `# sample 3 uptime 12.5`.
///
/// # Errors
///
/// The text is damaged.
pub(crate) fn parse_samples(name: &str, text: &str) -> Result<Vec<Sample>, ReplayError> {
    let mut samples = Vec::new();
    for part in text.split("# sample ").skip(1) {
        let (heading, zones) = part.split_once('\n').unwrap_or((part, ""));
        let number = heading.split_whitespace().next().and_then(|word| word.parse().ok());
        let Some(number) = number else {
            let what = format!("found {heading:?} after # sample");
            return Err(ReplayError::incomplete(name, what, "the number of the sample"));
        };
        let file = TextFile { name: format!("{name}: sample {number}"), text: zones.into() };
        let zones = zoneinfo::parse(&file).map_err(BundleError::from)?;
        samples.push(Sample { number, zones });
    }
    if samples.is_empty() && !text.trim().is_empty() {
        let input = format!("{name}: byte 0");
        let expected = "# sample K uptime S, then the text of /proc/zoneinfo";
        return Err(ReplayError::incomplete(&input, "has no samples".into(), expected));
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_taken_apart() {
        let text = "# sample 1 uptime 2.5\nNode 0, zone      DMA\n  pages free     7\n# sample 2 uptime 3.0\n";
        let samples = parse_samples("s", text).unwrap();
        assert_eq!(samples.len(), 2);
        assert_eq!((samples[0].number, samples[0].zones[0].free), (1, Some(7)));
        assert!(parse_samples("s", "# sample x\n").is_err());
        assert!(parse_samples("s", "\0\0").is_err());
        assert!(parse_samples("s", "\n").unwrap().is_empty());
    }
}
