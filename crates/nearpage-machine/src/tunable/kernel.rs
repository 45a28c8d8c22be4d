//! Settings of a kernel that a user puts over those of a machine.

use nearpage::{Settings, ZoneKind};

/// A text that is not a setting, or not one that predictions depend on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{given}: {problem}, expected KEY=VALUE with a KEY of {}",
    Override::KEYS.map(|key| key.name).join(", ")
)]
pub struct OverrideError {
    /// The text.
    pub given: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A setting that replaces the recorded one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Override {
    /// `vm.min_free_kbytes`.
    MinFreeKbytes(u64),
    /// `vm.watermark_scale_factor`.
    WatermarkScaleFactor(u32),
    /// `vm.watermark_boost_factor`. It changes no value of a machine at rest.
    WatermarkBoostFactor(u32),
    /// The first entries of `vm.lowmem_reserve_ratio`; the others keep their values.
    LowmemReserveRatio([Option<u32>; ZoneKind::COUNT]),
    /// `vm.percpu_pagelist_high_fraction`.
    PercpuPagelistHighFraction(u32),
}

/// A key that takes a value, for lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SettingKey {
    /// Its name.
    pub name: &'static str,
    /// The values that it takes.
    pub values: &'static str,
    /// What it means.
    pub meaning: &'static str,
}

impl SettingKey {
    /// A key by its three texts.
    pub const fn new(name: &'static str, values: &'static str, meaning: &'static str) -> Self {
        Self { name, values, meaning }
    }
}

impl Override {
    /// The keys of all settings.
    pub const KEYS: [SettingKey; 5] = [
        SettingKey::new("vm.min_free_kbytes", "KiB", "the sum of all zones' min watermarks"),
        SettingKey::new(
            "vm.watermark_scale_factor",
            "1 to 3000",
            "the distance between watermarks, in 1/10000 of a zone",
        ),
        SettingKey::new(
            "vm.watermark_boost_factor",
            "0 and more",
            "how far mixed pageblocks raise the watermarks, in 1/10000 of high",
        ),
        SettingKey::new(
            "vm.lowmem_reserve_ratio",
            "one to five numbers",
            "the share of higher zones that lower ones keep, lowest first: 1/ratio each, 0 for none",
        ),
        SettingKey::new(
            "vm.percpu_pagelist_high_fraction",
            "0, or 8 and more",
            "pagesets get 1/fraction of a zone; 0: by the low mark",
        ),
    ];

    /// Reads `vm.KEY=VALUE`.
    ///
    /// # Errors
    ///
    /// An unknown key, or a value of the wrong form.
    pub fn parse(given: &str) -> Result<Override, OverrideError> {
        let wrong = |problem: String| OverrideError { given: given.into(), problem };
        let Some((key, value)) = given.split_once('=') else {
            return Err(wrong("has no =".into()));
        };
        let not_a_number = || wrong(format!("{value:?} is no number"));
        let number = || value.trim().parse().map_err(|_| not_a_number());
        match key.trim().strip_prefix("vm.") {
            Some("min_free_kbytes") => {
                value.trim().parse().map(Override::MinFreeKbytes).map_err(|_| not_a_number())
            }
            Some("watermark_scale_factor") => number().map(Override::WatermarkScaleFactor),
            Some("watermark_boost_factor") => number().map(Override::WatermarkBoostFactor),
            Some("percpu_pagelist_high_fraction") => {
                number().map(Override::PercpuPagelistHighFraction)
            }
            Some("lowmem_reserve_ratio") => match parse_ratios(value) {
                Some(ratios) => Ok(Override::LowmemReserveRatio(ratios)),
                None => Err(wrong(format!("{value:?} are no one to five numbers"))),
            },
            _ => Err(wrong(format!("{key} is no setting that watermarks or pagesets follow from"))),
        }
    }

    /// Its key.
    pub fn key(&self) -> &'static str {
        let at = match self {
            Override::MinFreeKbytes(_) => 0,
            Override::WatermarkScaleFactor(_) => 1,
            Override::WatermarkBoostFactor(_) => 2,
            Override::LowmemReserveRatio(_) => 3,
            Override::PercpuPagelistHighFraction(_) => 4,
        };
        Override::KEYS[at].name
    }

    /// The value that some settings have at its key.
    pub fn value_in(&self, settings: &Settings) -> String {
        match self {
            Override::MinFreeKbytes(_) => {
                let kbytes = settings.min_free_kbytes.map(|kbytes| kbytes.to_string());
                kbytes.unwrap_or_else(|| "as boot computes".into())
            }
            Override::WatermarkScaleFactor(_) => settings.watermark_scale_factor.to_string(),
            Override::WatermarkBoostFactor(_) => settings.watermark_boost_factor.to_string(),
            Override::LowmemReserveRatio(_) => {
                settings.lowmem_reserve_ratio.map(|ratio| ratio.to_string()).join(" ")
            }
            Override::PercpuPagelistHighFraction(_) => {
                settings.percpu_pagelist_high_fraction.to_string()
            }
        }
    }

    /// Replaces the recorded setting.
    pub fn apply(&self, settings: &mut Settings) {
        match *self {
            Override::MinFreeKbytes(kbytes) => settings.min_free_kbytes = Some(kbytes),
            Override::WatermarkScaleFactor(factor) => settings.watermark_scale_factor = factor,
            Override::WatermarkBoostFactor(factor) => settings.watermark_boost_factor = factor,
            Override::LowmemReserveRatio(ratios) => {
                for (slot, ratio) in settings.lowmem_reserve_ratio.iter_mut().zip(ratios) {
                    *slot = ratio.unwrap_or(*slot);
                }
            }
            Override::PercpuPagelistHighFraction(fraction) => {
                settings.percpu_pagelist_high_fraction = fraction;
            }
        }
    }
}

fn parse_ratios(list: &str) -> Option<[Option<u32>; ZoneKind::COUNT]> {
    let is_gap = |c: char| c == ',' || c.is_whitespace();
    let words: Vec<&str> = list.split(is_gap).filter(|word| !word.is_empty()).collect();
    let mut ratios = [None; ZoneKind::COUNT];
    if words.is_empty() || words.len() > ratios.len() {
        return None;
    }
    for (slot, word) in ratios.iter_mut().zip(words) {
        *slot = Some(word.parse().ok()?);
    }
    Some(ratios)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_put_over_the_recorded_ones() {
        let mut settings = Settings::default();
        for given in [
            "vm.min_free_kbytes=65536",
            "vm.watermark_scale_factor= 200",
            "vm.lowmem_reserve_ratio=32 64\t16",
            "vm.percpu_pagelist_high_fraction=8",
            "vm.watermark_boost_factor=0",
        ] {
            Override::parse(given).unwrap().apply(&mut settings);
        }
        assert_eq!(settings.min_free_kbytes, Some(65_536));
        assert_eq!(settings.watermark_scale_factor, 200);
        assert_eq!(settings.lowmem_reserve_ratio, [32, 64, 16, 0, 0]);
        assert_eq!(settings.percpu_pagelist_high_fraction, 8);
        assert_eq!(settings.watermark_boost_factor, 0);
    }

    #[test]
    fn others_are_refused() {
        let message = |given: &str| Override::parse(given).unwrap_err().to_string();
        assert_eq!(
            message("vm.swappiness=1"),
            "vm.swappiness=1: vm.swappiness is no setting that watermarks or pagesets follow \
             from, expected KEY=VALUE with a KEY of vm.min_free_kbytes, vm.watermark_scale_factor, \
             vm.watermark_boost_factor, vm.lowmem_reserve_ratio, vm.percpu_pagelist_high_fraction"
        );
        assert!(message("vm.min_free_kbytes").contains("has no ="));
        assert!(message("vm.min_free_kbytes=-1").contains("\"-1\" is no number"));
        assert!(message("vm.lowmem_reserve_ratio=1 2 3 4 5 6").contains("are no one to five"));
        assert!(message("min_free_kbytes=1").contains("is no setting"));
    }

    #[test]
    fn every_listed_key_is_read() {
        for key in Override::KEYS {
            let read = Override::parse(&format!("{}=9", key.name)).unwrap();
            assert_eq!(read.key(), key.name);
        }
    }
}
