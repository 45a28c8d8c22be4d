//! Tunables of a what-if: `KEY=VALUE`.

use nearpage::rules::pagesets::Sizes;
use nearpage::{Model, PageCount};

use super::error::ReplayError;
use nearpage_bundle::predict::Override;

/// What `--set` takes.
const EXPECTED: &str = "vm.min_free_kbytes, vm.watermark_scale_factor, vm.watermark_boost_factor, \
    vm.lowmem_reserve_ratio, vm.percpu_pagelist_high_fraction, pcp.batch_scale_max (0 to 6), pcp.batch, \
    pcp.high_min, pcp.high_max (pages), pcp.tunes_high, pcp.below_high or pcp.free_high (on or off), with =VALUE";

/// A tunable with a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// One of the kernel's.
    Kernel(Override),
    /// How often refills and drains may double (`CONFIG_PCP_BATCH_SCALE_MAX`).
    BatchScaleMax(u8),
    /// Pages of the smallest refill and drain.
    Batch(PageCount),
    /// The lowest limit of a pageset.
    HighMin(PageCount),
    /// The highest limit of a pageset.
    HighMax(PageCount),
    /// Whether the limit follows the load.
    TunesHigh(bool),
    /// Whether the limit falls while the zone is below its high mark.
    BelowHigh(bool),
    /// Whether frees of order 1 to 3 in a row empty a pageset.
    FreeHigh(bool),
}

impl Setting {
    /// Reads `KEY=VALUE`.
    ///
    /// # Errors
    ///
    /// An unknown key, or a value that it does not take.
    pub fn parse(given: &str) -> Result<Setting, ReplayError> {
        let wrong = |what: String| ReplayError::Incomplete {
            input: format!("--set {given}"),
            what,
            expected: EXPECTED,
        };
        let Some((key, value)) = given.split_once('=') else {
            return Err(wrong("has no =".into()));
        };
        let value = value.trim();
        let not_taken = || wrong(format!("{value:?} is no value of {key}"));
        let pages = || value.parse().map(PageCount).map_err(|_| not_taken());
        let switch = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(not_taken()),
        };
        match key.trim() {
            "pcp.batch_scale_max" => match value.parse() {
                Ok(scale @ 0..=6) => Ok(Setting::BatchScaleMax(scale)),
                _ => Err(not_taken()),
            },
            "pcp.batch" => pages().map(Setting::Batch),
            "pcp.high_min" => pages().map(Setting::HighMin),
            "pcp.high_max" => pages().map(Setting::HighMax),
            "pcp.tunes_high" => switch().map(Setting::TunesHigh),
            "pcp.below_high" => switch().map(Setting::BelowHigh),
            "pcp.free_high" => switch().map(Setting::FreeHigh),
            key if key.starts_with("vm.") => Override::parse(given)
                .map(Setting::Kernel)
                .map_err(|error| wrong(error.to_string())),
            key => Err(wrong(format!("{key:?} is no tunable"))),
        }
    }

    /// Puts it over the rules.
    pub fn apply_to_model(self, model: &mut Model) {
        match self {
            Setting::BatchScaleMax(scale) => model.pcp.batch_scale_max = scale,
            Setting::TunesHigh(on) => model.pcp.tunes_high = on,
            Setting::BelowHigh(on) => model.pcp.below_high = on,
            Setting::FreeHigh(false) => model.pcp.free_high = None,
            Setting::FreeHigh(true) if model.pcp.free_high.is_none() => {
                model.pcp.free_high = Model::LINUX_6_12.pcp.free_high;
            }
            _ => {}
        }
    }

    /// Puts it over the sizes of a pageset.
    pub fn apply_to_sizes(self, sizes: &mut Sizes) {
        match self {
            Setting::Batch(pages) => sizes.batch = PageCount(pages.0.max(1)),
            Setting::HighMin(pages) => sizes.high_min = pages,
            Setting::HighMax(pages) => sizes.high_max = pages,
            _ => {}
        }
        sizes.high_max = sizes.high_max.max(sizes.high_min);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tunable_is_read() {
        for (given, expected) in [
            ("pcp.batch_scale_max=0", Setting::BatchScaleMax(0)),
            ("pcp.batch=31", Setting::Batch(PageCount(31))),
            ("pcp.high_max = 9", Setting::HighMax(PageCount(9))),
            ("pcp.free_high=off", Setting::FreeHigh(false)),
            ("vm.watermark_scale_factor=200", Setting::Kernel(Override::WatermarkScaleFactor(200))),
        ] {
            assert_eq!(Setting::parse(given).unwrap(), expected);
        }
        for given in ["pcp.batch", "pcp.batch=x", "pcp.batch_scale_max=7", "pcp.x=1", "vm.x=1"] {
            let message = Setting::parse(given).unwrap_err().to_string();
            assert!(message.contains(given) && message.contains("pcp.high_min"), "{message}");
        }
    }
}
