//! Settings that somebody put over those of a machine, beside what they were.

use serde::Serialize;

use crate::plan::Plan;
use crate::tunable::Override;

/// A setting that --set replaced.
#[derive(Clone, Debug, Serialize)]
pub struct Replaced {
    /// Its key.
    pub key: &'static str,
    /// Its value without the setting.
    pub before: String,
    /// Its value.
    pub after: String,
    /// Why no figure is another one, if none is.
    pub no_effect: Option<String>,
}

impl Replaced {
    /// What settings come to, of plans without and with them.
    pub fn all(overrides: &[Override], before: &Plan, after: &Plan) -> Vec<Replaced> {
        let known = |plan: &Plan| {
            plan.settings.with(|settings| settings.min_free_kbytes = Some(plan.min_free_kbytes))
        };
        let (before, after) = (known(before), known(after));
        let why = |set: &Override, before: &str, after: &str| match set {
            Override::WatermarkBoostFactor(_) => Some(
                "it raises marks while pageblocks are mixed, and is no figure of a machine at rest"
                    .into(),
            ),
            _ if before == after => Some(format!("it is {after} without it")),
            _ => None,
        };
        let mut all: Vec<Replaced> = Vec::new();
        for set in overrides {
            all.retain(|known| known.key != set.key());
            let (before, after) = (set.value_in(&before), set.value_in(&after));
            let no_effect = why(set, &before, &after)
                .map(|why| format!("{} has no effect here: {why}", set.key()));
            all.push(Replaced { key: set.key(), before, after, no_effect });
        }
        all
    }
}

/// A document with the settings that were replaced.
#[derive(Debug, Serialize)]
pub struct WithSet<'a, D> {
    /// The document.
    #[serde(flatten)]
    pub document: D,
    /// The settings.
    pub set: &'a [Replaced],
}
