//! Tunables: settings of a kernel, rules of pagesets and zones, each `KEY=VALUE`.

mod kernel;

use std::str::FromStr;

use nearpage::rules::pagesets::Sizes;
use nearpage::{Model, PageCount, PageblockOwners, Settings, ZoneInstances};

pub use kernel::{Override, OverrideError, SettingKey};

/// A tunable with a value. It is read from `KEY=VALUE`; [`Tunable::keys`] lists the keys.
///
/// ```
/// use nearpage_machine::tunable::Tunable;
///
/// assert_eq!("pcp.batch_scale_max=0".parse(), Ok(Tunable::BatchScaleMax(0)));
/// let error = "pcp.batch_scale_max=7".parse::<Tunable>().unwrap_err();
/// assert!(error.to_string().starts_with("pcp.batch_scale_max=7: \"7\" is no value of pcp.batch_scale_max"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Tunable {
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
    /// How many zones the Normal memory of a node makes.
    ZoneInstances(u16),
}

/// A text that is no tunable with a value.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{given}: {problem}, expected KEY=VALUE with a KEY of {}", accepted())]
pub struct TunableError {
    /// The text.
    pub given: String,
    /// What is wrong with it.
    pub problem: String,
}

/// The keys with what they take.
fn accepted() -> String {
    let shown = |key: SettingKey| format!("{} ({})", key.name, key.values);
    Tunable::keys().map(shown).collect::<Vec<_>>().join(", ")
}

/// The keys that no kernel has as settings.
const OF_MODELS: [SettingKey; 8] = [
    SettingKey::new("pcp.batch_scale_max", "0 to 6", "how often refills and drains may double"),
    SettingKey::new("pcp.batch", "pages", "the smallest refill and drain"),
    SettingKey::new("pcp.high_min", "pages", "the lowest limit of a pageset"),
    SettingKey::new("pcp.high_max", "pages", "the highest limit of a pageset"),
    SettingKey::new("pcp.tunes_high", "on, off", "the limit follows the load"),
    SettingKey::new(
        "pcp.below_high",
        "on, off",
        "the limit falls while the zone is below its high mark",
    ),
    SettingKey::new("pcp.free_high", "on, off", "frees of order 1 to 3 in a row empty a pageset"),
    SettingKey::new(
        "zone.instances",
        "1 to 64",
        "zones that a node's Normal memory is divided into",
    ),
];

impl Tunable {
    /// All keys: those of the kernel ([`Override::KEYS`]), and those of pagesets and zones.
    pub fn keys() -> impl Iterator<Item = SettingKey> {
        Override::KEYS.into_iter().chain(OF_MODELS)
    }
}

impl FromStr for Tunable {
    type Err = TunableError;

    fn from_str(given: &str) -> Result<Tunable, TunableError> {
        let wrong = |problem: String| TunableError { given: given.into(), problem };
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
                Ok(scale @ 0..=6) => Ok(Tunable::BatchScaleMax(scale)),
                _ => Err(not_taken()),
            },
            "pcp.batch" => pages().map(Tunable::Batch),
            "pcp.high_min" => pages().map(Tunable::HighMin),
            "pcp.high_max" => pages().map(Tunable::HighMax),
            "pcp.tunes_high" => switch().map(Tunable::TunesHigh),
            "pcp.below_high" => switch().map(Tunable::BelowHigh),
            "pcp.free_high" => switch().map(Tunable::FreeHigh),
            "zone.instances" => match value.parse() {
                Ok(count @ 1..=64) => Ok(Tunable::ZoneInstances(count)),
                _ => Err(not_taken()),
            },
            key if key.starts_with("vm.") => {
                let change = Override::parse(given).map_err(|error| wrong(error.problem))?;
                // What no kernel takes, whatever else is set.
                Settings::default()
                    .with(|settings| change.apply(settings))
                    .check()
                    .map_err(|error| wrong(error.to_string()))?;
                Ok(Tunable::Kernel(change))
            }
            key => {
                let is_meant =
                    |known: &SettingKey| known.name.split_once('.').is_some_and(|of| of.1 == key);
                let meant = Tunable::keys().find(is_meant);
                let hint = meant.map_or(String::new(), |known| format!(" ({} is one)", known.name));
                Err(wrong(format!("{key:?} is no tunable{hint}")))
            }
        }
    }
}

impl Tunable {
    /// Its key.
    pub fn key(&self) -> &'static str {
        match self {
            Tunable::Kernel(change) => change.key(),
            Tunable::BatchScaleMax(_) => "pcp.batch_scale_max",
            Tunable::Batch(_) => "pcp.batch",
            Tunable::HighMin(_) => "pcp.high_min",
            Tunable::HighMax(_) => "pcp.high_max",
            Tunable::TunesHigh(_) => "pcp.tunes_high",
            Tunable::BelowHigh(_) => "pcp.below_high",
            Tunable::FreeHigh(_) => "pcp.free_high",
            Tunable::ZoneInstances(_) => "zone.instances",
        }
    }

    /// Why it does nothing under some rules, whatever its value and the load: the end of a sentence.
    ///
    /// ```
    /// use nearpage::Model;
    /// use nearpage_machine::tunable::Tunable;
    ///
    /// let scale: Tunable = "pcp.batch_scale_max=0".parse()?;
    /// assert_eq!(scale.idle_under(&Model::NEARPAGE), Some("they have no batches"));
    /// assert_eq!(scale.idle_under(&Model::LINUX_6_12), None);
    /// # Ok::<(), nearpage_machine::tunable::TunableError>(())
    /// ```
    pub fn idle_under(&self, model: &Model) -> Option<&'static str> {
        let has_lists_alone = model.owners == PageblockOwners::Nobody;
        match self {
            Tunable::BatchScaleMax(_) if model.owners == PageblockOwners::Quotas => {
                Some("they have no batches")
            }
            Tunable::BelowHigh(_) if !has_lists_alone => {
                Some("what a CPU keeps does not follow the high mark")
            }
            Tunable::BelowHigh(_) if !model.pcp.tunes_high => {
                Some("the limit of a pageset is fixed")
            }
            Tunable::FreeHigh(_) if !has_lists_alone => {
                Some("no frees in a row empty what a CPU keeps")
            }
            _ => None,
        }
    }

    /// Puts it over the rules.
    pub fn apply_to_model(self, model: &mut Model) {
        match self {
            Tunable::BatchScaleMax(scale) => model.pcp.batch_scale_max = scale,
            Tunable::TunesHigh(on) => model.pcp.tunes_high = on,
            Tunable::BelowHigh(on) => model.pcp.below_high = on,
            Tunable::ZoneInstances(count) => model.zone_instances = ZoneInstances::Count(count),
            Tunable::FreeHigh(false) => model.pcp.free_high = None,
            Tunable::FreeHigh(true) if model.pcp.free_high.is_none() => {
                model.pcp.free_high = Model::LINUX_6_12.pcp.free_high;
            }
            _ => {}
        }
    }

    /// Puts it over the sizes of a pageset. A bound that is put beyond the other one takes it along.
    pub fn apply_to_sizes(self, sizes: &mut Sizes) {
        match self {
            Tunable::Batch(pages) => sizes.batch = PageCount(pages.0.max(1)),
            Tunable::HighMin(pages) => {
                sizes.high_min = pages;
                sizes.high_max = sizes.high_max.max(pages);
            }
            Tunable::HighMax(pages) => {
                sizes.high_max = pages;
                sizes.high_min = sizes.high_min.min(pages);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tunable_is_read() {
        for (given, expected) in [
            ("pcp.batch_scale_max=0", Tunable::BatchScaleMax(0)),
            ("pcp.batch=31", Tunable::Batch(PageCount(31))),
            ("pcp.high_max = 9", Tunable::HighMax(PageCount(9))),
            ("pcp.free_high=off", Tunable::FreeHigh(false)),
            ("zone.instances=4", Tunable::ZoneInstances(4)),
            ("vm.watermark_scale_factor=200", Tunable::Kernel(Override::WatermarkScaleFactor(200))),
        ] {
            assert_eq!(given.parse(), Ok(expected));
        }
        for given in [
            "pcp.batch",
            "pcp.batch=x",
            "pcp.batch_scale_max=7",
            "zone.instances=0",
            "pcp.x=1",
            "vm.x=1",
        ] {
            let message = given.parse::<Tunable>().unwrap_err().to_string();
            assert!(message.contains(given) && message.contains("pcp.high_min"), "{message}");
        }
    }

    #[test]
    fn every_listed_key_is_read_and_named_in_errors() {
        let error = "pcp.x=1".parse::<Tunable>().unwrap_err().to_string();
        for key in Tunable::keys() {
            let accepted = ["on", "1", "9"]
                .iter()
                .filter(|value| format!("{}={value}", key.name).parse::<Tunable>().is_ok());
            assert!(accepted.count() > 0, "{}", key.name);
            assert!(error.contains(key.name), "{}", key.name);
        }
    }
}
